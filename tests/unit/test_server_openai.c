// Requests of /v1/completions: every field, its range, and what is refused. A tokenizer of bytes stands in.
#include "../tools/fake_service.c"
#include "api/generic_tools.h"
#include "dialects/openai.h"
#include "harness.h"
#include "requests/seed.h"

static char *names[] = {(char *)"m", (char *)"org/other"};

static bool strict, fcfs; // flags of the server

static bool parse_bytes(const char *body, size_t len, struct completion_request *c, struct api_error *e) {
    struct err err = {0};
    const struct served_model m = {.tokenizer = tokenizer_open("", &err),
                                   .names = names,
                                   .num_names = 2,
                                   .vocab = 258,
                                   .max_model_len = 100,
                                   .max_token_bytes = 4,
                                   .has_priorities = !fcfs,
                                   .strict_fields = strict};
    *e = (struct api_error){0};
    return openai_completions.parse(c, &m, body, len, e);
}

static bool parse(const char *body, struct completion_request *c, struct api_error *e) {
    return parse_bytes(body, strlen(body), c, e);
}

TEST(refused) {
    static const struct {
        const char *body, *param, *code;
    } cases[] = {
        {"", "", NULL},
        {"{", "", NULL},
        {"nonsense", "", NULL},
        {"[]", "", "invalid_type"},
        {"null", "", "invalid_type"},
        {"3", "", "invalid_type"},
        {"{\"prompt\":\"x\",\"n\":1,\"n\":1}", "", NULL},
        {"{\"prompt\":\"x\",\"seed\":18446744073709551615}", "seed", "out_of_range"},
        {"{\"prompt\":\"x\",\"seed\":-9223372036854775809}", "seed", "out_of_range"},
        {"{\"prompt\":\"x\",\"temperature\":NaN}", "", NULL},
        {"{\"prompt\":\"x\",\"temperature\":1e999}", "", NULL},
        {"{\"prompt\":\"\xff\"}", "", NULL},
        {"{}", "prompt", "missing_required_parameter"},
        {"{\"prompt\":null}", "prompt", "missing_required_parameter"},
        {"{\"prompt\":1}", "prompt", "invalid_type"},
        {"{\"prompt\":[]}", "prompt", NULL},
        {"{\"prompt\":[[]]}", "prompt", NULL},
        {"{\"prompt\":[\"a\",1]}", "prompt", "invalid_type"},
        {"{\"prompt\":[1,\"a\"]}", "prompt", "invalid_type"},
        {"{\"prompt\":[[1],2]}", "prompt", "invalid_type"},
        {"{\"prompt\":[true]}", "prompt", "invalid_type"},
        {"{\"prompt\":[1.0]}", "prompt", "invalid_type"},
        {"{\"prompt\":[-1]}", "prompt", "out_of_range"},
        {"{\"prompt\":[258]}", "prompt", "out_of_range"},
        {"{\"prompt\":[4294967296]}", "prompt", "out_of_range"},
        {"{\"prompt\":\"x\",\"model\":\"q\"}", "model", "model_not_found"},
        {"{\"prompt\":\"x\",\"model\":\"m\\u0000\"}", "model", "invalid_type"},
        {"{\"prompt\":\"x\",\"model\":3}", "model", "invalid_type"},
        {"{\"prompt\":\"x\",\"suffix\":\"a\"}", "suffix", "unsupported_parameter"},
        {"{\"prompt\":\"x\",\"suffix\":1}", "suffix", "invalid_type"},
        {"{\"prompt\":\"x\",\"tools\":[{}]}", "tools", "unsupported_parameter"},
        {"{\"prompt\":\"x\",\"response_format\":{\"type\":\"yaml\"}}", "response_format.type",
         "unsupported_parameter"},
        {"{\"prompt\":\"x\",\"prompt_logprobs\":21}", "prompt_logprobs", "out_of_range"},
        {"{\"prompt\":\"x\",\"prompt_logprobs\":-1}", "prompt_logprobs", "out_of_range"},
        {"{\"prompt\":\"x\",\"prompt_logprobs\":1,\"stream\":true}", "prompt_logprobs", NULL},
        {"{\"prompt\":\"x\",\"logprob_token_ids\":[1]}", "logprob_token_ids", NULL},
        {"{\"prompt\":\"x\",\"logprobs\":1,\"logprob_token_ids\":[]}", "logprob_token_ids", "out_of_range"},
        {"{\"prompt\":\"x\",\"logprobs\":1,\"logprob_token_ids\":[1,258]}", "logprob_token_ids[1]",
         "out_of_range"},
        {"{\"prompt\":\"x\",\"logprobs\":1,\"logprob_token_ids\":[3,1,3]}", "logprob_token_ids", NULL},
        {"{\"prompt\":\"x\",\"logprobs\":1,\"echo\":true,\"logprob_token_ids\":[3]}", "logprob_token_ids",
         NULL},
        {"{\"prompt\":\"x\",\"n\":2,\"best_of\":1}", "best_of", "out_of_range"},
        {"{\"prompt\":\"x\",\"best_of\":2}", "best_of", "unsupported_parameter"},
        {"{\"prompt\":\"x\",\"stream_options\":{}}", "stream_options", NULL},
        {"{\"prompt\":\"x\",\"stream\":true,\"stream_options\":3}", "stream_options", "invalid_type"},
        {"{\"prompt\":\"x\",\"stream\":true,\"stream_options\":{\"include_usage\":1}}",
         "stream_options.include_usage", "invalid_type"},
        {"{\"prompt\":\"x\",\"stop\":\"\"}", "stop", "out_of_range"},
        {"{\"prompt\":\"x\",\"stop\":{}}", "stop", "invalid_type"},
        {"{\"prompt\":\"x\",\"stop\":[\"a\",\"\"]}", "stop[1]", "out_of_range"},
        {"{\"prompt\":\"x\",\"stop_token_ids\":1}", "stop_token_ids", "invalid_type"},
        {"{\"prompt\":\"x\",\"stop_token_ids\":[0,258]}", "stop_token_ids[1]", "out_of_range"},
        {"{\"prompt\":\"x\",\"logit_bias\":[]}", "logit_bias", "invalid_type"},
        {"{\"prompt\":\"x\",\"logit_bias\":{\"258\":1}}", "logit_bias.258", "out_of_range"},
        {"{\"prompt\":\"x\",\"logit_bias\":{\"-1\":1}}", "logit_bias.-1", "out_of_range"},
        {"{\"prompt\":\"x\",\"logit_bias\":{\"\":1}}", "logit_bias.", "out_of_range"},
        {"{\"prompt\":\"x\",\"logit_bias\":{\"1\":true}}", "logit_bias.1", "invalid_type"},
        {"{\"prompt\":\"x\",\"logit_bias\":{\"1\":100.5}}", "logit_bias.1", "out_of_range"},
        {"{\"prompt\":\"x\",\"logit_bias\":{\"7\":1,\"07\":2}}", "logit_bias.07", NULL},
        {"{\"prompt\":\"x\",\"cache_salt\":\"\"}", "cache_salt", "out_of_range"},
        {"{\"prompt\":\"x\",\"request_id\":\"a b\"}", "request_id", "out_of_range"},
        {"{\"prompt\":\"x\",\"user\":1}", "user", "invalid_type"},
        {"{\"prompt\":\"x\",\"min_tokens\":5,\"max_tokens\":4}", "min_tokens", "out_of_range"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct completion_request c;
        struct api_error e;
        if (parse(cases[i].body, &c, &e))
            fail_msg("taken: %s", cases[i].body);
        if (strcmp(e.param, cases[i].param) ||
            (e.code ? !cases[i].code || strcmp(e.code, cases[i].code) : cases[i].code != NULL))
            fail_msg("%s: param=%s code=%s %s", cases[i].body, e.param, e.code ? e.code : "null", e.message);
        assert_int_equal(e.status, e.code && strcmp(e.code, "model_not_found") == 0 ? 404 : 400);
        assert_true(strlen(e.message) > 10);
    }
}

// The text between each prompt and the suffix.
TEST(suffixes) {
    struct completion_request c;
    struct api_error e;
    fake_fim = (struct fim_tokens){.prefix = 1, .suffix = 2, .middle = 3, .repo = 4, .file = -1};
    assert_true(parse("{\"prompt\":[\"a\",\"\"],\"suffix\":\"b\"}", &c, &e));
    static const token_id first[] = {BOS, 4,   'm',  'y', 'p', 'r', 'o', 'j', 'e',
                                     'c', 't', '\n', 1,   'a', 2,   'b', 3};
    assert_int_equal(c.base.prompts[0].len, 17);
    assert_memory_equal(c.base.prompts[0].ids, first, sizeof first);
    assert_int_equal(c.base.prompts[1].len, 16);
    completion_request_free(&c);
    fake_fim.repo = -1;
    assert_true(parse("{\"prompt\":\"a\",\"suffix\":\"b\",\"add_special_tokens\":false}", &c, &e));
    assert_int_equal(c.base.prompts[0].len, 5);
    assert_memory_equal(c.base.prompts[0].ids, ((token_id[]){1, 'a', 2, 'b', 3}), 5 * sizeof(token_id));
    completion_request_free(&c);
    static const char *const asks_nothing[] = {"\"\"", "null"};
    for (int i = 0; i < 2; i++) {
        char body[64];
        snprintf(body, sizeof body, "{\"prompt\":\"a\",\"suffix\":%s}", asks_nothing[i]);
        assert_true(parse(body, &c, &e));
        assert_int_equal(c.base.prompts[0].len, 2);
        completion_request_free(&c);
    }
    static const char *const bad[][2] = {{"{\"prompt\":[1],\"suffix\":\"b\"}", "prompt"},
                                         {"{\"prompt\":[[1]],\"suffix\":\"b\"}", "prompt"},
                                         {"{\"prompt\":\"a\",\"suffix\":\"b\",\"echo\":true}", "suffix"}};
    for (int i = 0; i < 3; i++) {
        assert_false(parse(bad[i][0], &c, &e));
        assert_string_equal(e.param, bad[i][1]);
    }
    char *long_body = malloc(300);
    assert_non_null(long_body);
    snprintf(long_body, 300, "{\"prompt\":\"a\",\"suffix\":\"%0100d\"}", 1); // nothing is left out
    assert_false(parse(long_body, &c, &e));
    assert_string_equal(e.code, "context_length_exceeded");
    free(long_body);
    fake_fim.prefix = 0;
}

// Both ends of every range, a step beyond them, and every wrong type.
TEST(ranges) {
    static const struct {
        const char *name, *good[3], *bad[3];
        bool whole;
    } cases[] = {
        {"max_tokens", {"0", "16", "2147483647"}, {"-1", "2147483648", "1e18"}, true},
        {"n", {"1", "128", "2.0"}, {"0", "129", "-9223372036854775808"}, true},
        {"temperature", {"0", "2", "0.5"}, {"-0.0001", "2.0001", "1e300"}, false},
        {"top_p", {"1", "1e-6", "0.5"}, {"0", "1.0001", "1e-300"}, false},
        {"min_p", {"0", "1", "0.5"}, {"-0.1", "1.1", "-1e300"}, false},
        {"top_k", {"-1", "0", "2147483647"}, {"-2", "2147483648", "-1e18"}, true},
        {"presence_penalty", {"-2", "2", "0"}, {"-2.1", "2.1", "1e300"}, false},
        {"frequency_penalty", {"-2", "2", "0"}, {"-2.1", "2.1", "1e300"}, false},
        {"repetition_penalty", {"0.001", "1000", "1.1"}, {"0", "-1", "1e-300"}, false},
        {"logprobs", {"0", "20", "5"}, {"-1", "21", "1e18"}, true},
        {"priority", {"-5", "0", "2147483647"}, {"2147483648", "-2147483648", "1e18"}, true},
        {"min_tokens", {"0", "16", "1"}, {"-1", "17", "2147483648"}, true},
        {"seed", {"-9223372036854775808", "9223372036854775807", "0"}, {"1e19", "-1e19", "1e300"}, true},
    };
    static const char *const not_numbers[] = {"\"1\"", "true", "[]", "{}"};
    struct completion_request c;
    struct api_error e;
    char body[160];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int k = 0; k < 3; k++) {
            snprintf(body, sizeof body, "{\"prompt\":\"x\",\"%s\":%s}", cases[i].name, cases[i].good[k]);
            if (!parse(body, &c, &e))
                fail_msg("%s: %s", body, e.message);
            completion_request_free(&c);
            snprintf(body, sizeof body, "{\"prompt\":\"x\",\"%s\":%s}", cases[i].name, cases[i].bad[k]);
            if (parse(body, &c, &e) || strcmp(e.param, cases[i].name))
                fail_msg("%s: %s", body, e.message);
        }
        for (int k = 0; k < 4; k++) {
            snprintf(body, sizeof body, "{\"prompt\":\"x\",\"%s\":%s}", cases[i].name, not_numbers[k]);
            if (parse(body, &c, &e) || strcmp(e.code, "invalid_type") || strcmp(e.param, cases[i].name))
                fail_msg("%s: %s", body, e.message);
        }
        snprintf(body, sizeof body, "{\"prompt\":\"x\",\"%s\":0.5}", cases[i].name);
        if (cases[i].whole && (parse(body, &c, &e) || strcmp(e.code, "invalid_type")))
            fail_msg("taken: %s", body);
        snprintf(body, sizeof body, "{\"prompt\":\"x\",\"%s\":null}", cases[i].name); // null is absent
        assert_true(parse(body, &c, &e));
        completion_request_free(&c);
    }
    static const char *const bools[] = {"stream", "ignore_eos", "skip_special_tokens", "add_special_tokens",
                                        "echo"};
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 4; k++) {
            static const char *const bad[] = {"1", "\"true\"", "[]", "0.5"};
            snprintf(body, sizeof body, "{\"prompt\":\"x\",\"%s\":%s}", bools[i], bad[k]);
            assert_false(parse(body, &c, &e));
            assert_string_equal(e.param, bools[i]);
        }
}

// Other servers' names of fields that are read.
TEST(aliases) {
    struct completion_request c;
    struct api_error e;
    static const struct {
        const char *fields;
        int max_tokens;
    } good[] = {
        {"\"n_predict\":5", 5},
        {"\"n_predict\":5.0,\"max_tokens\":5,\"max_completion_tokens\":5", 5},
        {"\"n_predict\":5,\"max_tokens\":null", 5},
        {"\"n_predict\":null", 16},
        {"\"n_predict\":-1", 2147483647},
        {"\"num_predict\":-2", 2147483647},
        {"\"max_new_tokens\":0", 0},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char body[160];
        snprintf(body, sizeof body, "{\"prompt\":\"a\",%s}", good[i].fields);
        if (!parse(body, &c, &e) || c.max_tokens != good[i].max_tokens || *c.base.ignored)
            fail_msg("%s: %s", body, e.message);
        completion_request_free(&c);
    }
    static const struct {
        const char *fields, *param, *message; // message: words that it has
    } bad[] = {
        {"\"n_predict\":5,\"max_tokens\":6", "n_predict", "'n_predict' and 'max_tokens'"},
        {"\"n_predict\":5,\"max_completion_tokens\":6", "n_predict", "'max_completion_tokens'"},
        {"\"n_predict\":5,\"num_predict\":6", "num_predict", "'num_predict' and 'max_tokens'"},
        {"\"n_predict\":-2", "n_predict", "'n_predict' stands for 'max_tokens'"},
        {"\"max_new_tokens\":-1", "max_new_tokens", "at least 0"},
        {"\"stop_sequences\":[\"a\",1]", "stop_sequences[1]", "'stop_sequences' stands for 'stop'"},
        {"\"typical\":0", "typical", "'typical' stands for 'typical_p'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char body[160];
        snprintf(body, sizeof body, "{\"prompt\":\"a\",%s}", bad[i].fields);
        if (parse(body, &c, &e) || strcmp(e.param, bad[i].param) || !strstr(e.message, bad[i].message))
            fail_msg("%s: %s: %s", body, e.param, e.message);
    }
    assert_true(
        parse("{\"prompt\":\"a\",\"stop_sequences\":[\"x\"],\"min_new_tokens\":3,\"repeat_penalty\":2,"
              "\"n_cmpl\":4,\"random_seed\":7,\"rid\":\"r\",\"extra_key\":\"k\",\"typical\":0.5}",
              &c, &e));
    assert_true(c.num_stops == 1 && c.min_tokens == 3 && c.sampling.repetition_penalty == 2 && c.n == 4);
    assert_true(c.sampling.typical_p == 0.5f);
    assert_true(c.has_seed && c.seed == 7 && strcmp(c.base.request_id, "r") == 0 && c.base.salt_len == 1);
    completion_request_free(&c);
}

// Every name is told, whether the request is good or not, within bounds and in letters that a header may have.
TEST(ignored_names) {
    struct completion_request c;
    struct api_error e;
    assert_false(parse("{\"prompt\":1,\"a,b\":1,\"\":1,\"null\":null,\"\\u00e9\":1}", &c, &e));
    assert_string_equal(e.param, "prompt");
    assert_string_equal(c.base.ignored, "a?b, ?, ??");
    assert_false(parse("{", &c, &e));
    assert_string_equal(c.base.ignored, "");

    struct buf b = {0};
    buf_str(&b, "{\"prompt\":\"a\"");
    for (int i = 0; i < 1000; i++)
        buf_fmt(&b, ",\"name%d%.*s\":1", i, i == 3 ? 200 : 0,
                "llllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllll"
                "llll");
    buf_char(&b, '}');
    assert_true(parse_bytes(b.data, b.len, &c, &e));
    buf_free(&b);
    size_t n = strlen(c.base.ignored);
    assert_true(n < IGNORED_SIZE && n > IGNORED_SIZE - 32);
    assert_string_equal(c.base.ignored + n - 5, ", ...");
    assert_true(strncmp(c.base.ignored, "name0, name1, name2, name3ll", 28) == 0);

    char list[IGNORED_SIZE] = "ab, x";
    ignored_merge(list, "b, x, a");
    assert_string_equal(list, "ab, x, b, a");
    ignored_merge(list, c.base.ignored);
    ignored_merge(list, c.base.ignored);
    assert_true(strlen(list) < IGNORED_SIZE && strstr(list, ", ...") == list + strlen(list) - 5);
    completion_request_free(&c);
}

TEST(flags) {
    struct completion_request c;
    struct api_error e;
    strict = fcfs = true;
    assert_false(parse("{\"prompt\":\"a\",\"eta\":1,\"zeta\":1}", &c, &e));
    assert_string_equal(e.param, "eta");
    assert_string_equal(e.code, "unknown_parameter");
    assert_string_equal(c.base.ignored, "eta, zeta");
    assert_false(parse("{\"prompt\":\"a\",\"priority\":1}", &c, &e));
    assert_string_equal(e.param, "priority");
    assert_true(parse("{\"prompt\":\"a\",\"priority\":0,\"eta\":null,\"keep_alive\":5}", &c, &e));
    completion_request_free(&c);
    strict = fcfs = false;
}

// No name has two rows for one place, and the values are JSON.
TEST(table) {
    for (const struct field_rule *rule = field_rules; rule->name; rule++) {
        assert_ptr_equal(field_rule_find(field_rules, rule->name, rule->where), rule);
        for (unsigned where = 1; where <= OPENAI_PART; where *= 2)
            if (rule->where & where)
                assert_ptr_equal(field_rule_find(field_rules, rule->name, where), rule);
        char text[160];
        assert_in_range(snprintf(text, sizeof text, "[%s]", rule->values ? rule->values : ""), 2, 150);
        json_t *list = json_loads(text, 0, NULL);
        if (!list)
            fail_msg("%s: %s", rule->name, rule->values);
        json_decref(list);
    }
}

TEST(taken) {
    struct completion_request c;
    struct api_error e;
    assert_true(parse("{\"prompt\":\"hi\"}", &c, &e)); // the defaults
    assert_string_equal(c.base.model, "m");
    assert_int_equal(c.max_tokens, 16);
    assert_int_equal(c.n, 1);
    assert_true(c.sampling.temperature == 1 && c.sampling.top_p == 1 && c.sampling.repetition_penalty == 1);
    assert_int_equal(c.logprobs, -1);
    assert_false(c.has_seed);
    assert_int_equal(c.base.num_prompts, 1);
    assert_int_equal(c.base.prompts[0].len, 3); // BOS, h, i
    assert_int_equal(c.num_stop_ids, 1);
    assert_int_equal(c.stop_ids[0], EOS);
    completion_request_free(&c);

    assert_true(parse("{\"prompt\":\"hi\",\"seed\":-1}", &c, &e));
    assert_false(c.has_seed);
    completion_request_free(&c);

    assert_true(parse("{\"prompt\":[[1,2],[3]],\"model\":\"org/"
                      "other\",\"max_tokens\":10.0,\"seed\":-2,\"stop\":[\"a\",\"bc\"],"
                      "\"stop_token_ids\":[5],\"ignore_eos\":true,\"logit_bias\":{\"3\":-100},\"top_k\":-1,"
                      "\"temperature\":1e-6,"
                      "\"cache_salt\":\"s\",\"tools\":[],\"mirostat\":0.0,\"echo\":false,\"best_of\":1,"
                      "\"response_format\":{"
                      "\"type\":\"text\"},"
                      "\"stream\":true,\"stream_options\":{\"include_usage\":true,\"include_obfuscation\":"
                      "false,\"eta\":1},\"zeta\\n\":1}",
                      &c, &e));
    assert_string_equal(c.base.model, "org/other");
    assert_int_equal(c.base.num_prompts, 2);
    assert_int_equal(c.base.prompts[0].ids[1], 2); // ids are taken as they are: no BOS
    assert_int_equal(c.base.prompts[0].len, 2);
    assert_int_equal(c.max_tokens, 10);
    assert_true(c.has_seed && c.seed == -2);
    assert_int_equal(c.num_stops, 2);
    assert_int_equal(c.num_stop_ids, 1);
    assert_int_equal(c.stop_ids[0], 5);
    assert_true(c.bias[0].token == 3 && c.bias[0].add == -100);
    assert_int_equal(c.sampling.top_k, 0);
    assert_true(c.sampling.temperature == 0);
    assert_int_equal(c.base.salt_len, 1);
    assert_true(c.include_usage && !c.continuous_usage);
    assert_string_equal(c.base.ignored, "zeta?, stream_options.eta");
    completion_request_free(&c);

    assert_true(parse("{\"prompt\":\"\"}", &c, &e)); // BOS alone
    assert_int_equal(c.base.prompts[0].len, 1);
    completion_request_free(&c);
    assert_true(parse("{\"prompt\":\"\",\"add_special_tokens\":false}", &c, &e));
    assert_int_equal(c.base.prompts[0].ids[0], BOS);
    completion_request_free(&c);
    assert_true(parse("{\"prompt\":\"a\\u0000b\",\"stop\":\"\\u0000\"}", &c, &e)); // NULs do not cut
    assert_int_equal(c.base.prompts[0].len, 4);
    assert_int_equal(c.stop_lens[0], 1);
    completion_request_free(&c);
}

TEST(sizes) {
    struct completion_request c;
    struct api_error e;
    struct buf b = {0};
    buf_str(&b, "{\"prompt\":\"");
    for (int i = 0; i <= 1 << 20; i++)
        buf_char(&b, 'x');
    buf_str(&b, "\"}");
    assert_false(parse_bytes(b.data, b.len, &c, &e)); // over a megabyte and 4 * 100: not tokenised
    assert_string_equal(e.code, "context_length_exceeded");
    assert_non_null(strstr(e.message, "1048577 bytes"));
    assert_true(e.n_ctx == 100 && e.n_prompt_tokens == 0);
    buf_clear(&b);
    buf_str(&b, "{\"prompt\":[0");
    for (int i = 1; i < 100; i++)
        buf_str(&b, ",0");
    buf_str(&b, "],\"max_tokens\":0}");
    assert_true(parse_bytes(b.data, b.len, &c, &e)); // fits exactly, where nothing is to be generated
    completion_request_free(&c);
    b.len -= strlen("0}");
    buf_str(&b, "1}");
    assert_false(parse_bytes(b.data, b.len, &c, &e));
    assert_string_equal(e.code, "context_length_exceeded");
    assert_non_null(strstr(e.message, "has 100, which leaves no room"));
    assert_true(e.n_ctx == 100 && e.n_prompt_tokens == 100);
    buf_clear(&b);
    buf_str(&b, "{\"prompt\":[\"a\"");
    for (int i = 1; i < 65; i++)
        buf_str(&b, ",\"a\"");
    buf_str(&b, "],\"n\":2}");
    assert_false(parse_bytes(b.data, b.len, &c, &e));
    assert_string_equal(e.param, "prompt");
    buf_clear(&b);
    for (int i = 0; i < 100000; i++)
        buf_char(&b, '[');
    assert_false(parse_bytes(b.data, b.len, &c, &e)); // and no deep recursion
    buf_free(&b);
    assert_true(json_depth_ok("[[\"[[[[\\\"[\"]]", 13, 2));
    assert_false(json_depth_ok("[[[", 3, 2));
}

TEST(seeds) {
    assert_true(splitmix64(0) == 0xe220a8397b1dcdafu); // first output of the reference generator with seed 0
    assert_true(choice_seed(7, 0) == 7);
    assert_true(choice_seed(7, 1) == splitmix64(splitmix64(7) + 1));
}

TEST(logprob_lists) {
    struct err err = {0};
    const struct tokenizer *t = tokenizer_open("", &err);
    struct logprob_lists l = {0};
    // The chosen token is outside the best two; two broken bytes would share the key U+FFFD: the likelier one
    // stays.
    struct service_event ev = {.token = 'c',
                               .logprob = -3,
                               .num_top = 3,
                               .top_ids = {0xff, 'a', 0xfe},
                               .top_logprobs = {-0.5f, -1, -2}};
    const struct served_model model = {.tokenizer = t};
    struct completion_request request = {.logprobs = 3};
    const struct response response = {.request = &request, .model = &model};
    openai_completions.logprob(&l, &response, &ev, 0);
    request.logprobs = 0;
    ev.token = 0xfe;
    ev.logprob = -2;
    openai_completions.logprob(&l, &response, &ev, 1);
    assert_string_equal(buf_cstr(&l.tokens), "\"c\",\"\xef\xbf\xbd\"");
    assert_string_equal(buf_cstr(&l.values), "-3,-2");
    assert_string_equal(buf_cstr(&l.tops), "{\"\xef\xbf\xbd\":-0.5,\"a\":-1,\"c\":-3},{\"\xef\xbf\xbd\":-2}");
    assert_string_equal(buf_cstr(&l.offsets), "0,1");
    logprobs_free(&l);
}

// Calls and results of before where the template knows neither.
TEST(generic_history) {
    static const char before[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":"
                                 "\"assistant\",\"content\":\"b\",\"tool_calls\":["
                                 "{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
                                 "\"arguments\":\"{\\\"x\\\": 1}\"}}]},"
                                 "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"c\"},{\"role\":"
                                 "\"user\",\"content\":\"d\"}],\"tools\":[]}",
                      after[] =
                          "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","
                          "\"content\":\"b\\n<tool_call>\\n{\\\"name\\\""
                          ": \\\"f\\\", \\\"arguments\\\": {\\\"x\\\": "
                          "1}}\\n</tool_call>\"},{\"role\":\"user\",\"content\":\"<tool_response>\\nc\\n"
                          "</tool_response>\\n\\nd\"}]}";
    const struct served_model plain = {.generic_tools = true, .template_source = (char *)""},
                              knows = {.generic_tools = true,
                                       .template_source = (char *)"{{ m.tool_calls }}"};
    struct api_error e = {0};
    for (int i = 0; i < 2; i++) {
        json_t *root = json_loads(before, 0, NULL), *same = json_deep_copy(root);
        assert_true(generic_tools_rewrite(root, i ? &knows : &plain, &e));
        json_object_del(same, "tools");
        char *text = json_dumps(i ? same : root, JSON_COMPACT);
        if (i)
            assert_true(json_equal(root, same));
        else
            assert_string_equal(text, after);
        free(text);
        json_decref(root);
        json_decref(same);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
