// Requests of /completion, as those of /v1/completions: prompts, bias, what of the tokens is wanted; and the
// chunks of a choice. A tokenizer of bytes stands in.
#include "../tools/fake_service.c"
#include "dialects/llama_completion.h"
#include "harness.h"

#include <limits.h>
#include <math.h>

static struct served_model model(void) {
    static char *names[] = {(char *)"m"};
    struct err err = {0};
    return (struct served_model){.tokenizer = tokenizer_open("", &err),
                                 .names = names,
                                 .num_names = 1,
                                 .vocab = 258,
                                 .max_model_len = 100,
                                 .max_token_bytes = 4};
}

static bool parse(const char *body, struct completion_request *c, struct api_error *e) {
    const struct served_model m = model();
    *e = (struct api_error){0};
    return llama_completion.parse(c, &m, body, strlen(body), e);
}

// The prompts' ids, as 1,2;3
static void assert_prompts(const char *body, const char *wanted) {
    struct completion_request c;
    struct api_error e;
    struct buf b = {0};
    assert_true(parse(body, &c, &e));
    for (size_t i = 0; i < c.base.num_prompts; i++)
        for (size_t k = 0; k < c.base.prompts[i].len; k++)
            buf_fmt(&b, "%s%d", k ? "," : i ? ";" : "", c.base.prompts[i].ids[k]);
    assert_string_equal(buf_cstr(&b), wanted);
    buf_free(&b);
    completion_request_free(&c);
}

TEST(prompts) {
    assert_prompts("{\"prompt\":\"ab\"}", "256,97,98");
    assert_prompts("{\"prompt\":[5,6]}", "5,6");
    assert_prompts("{\"prompt\":{\"prompt_string\":\"a\",\"multimodal_data\":[]}}", "256,97");
    assert_prompts("{\"prompt\":[5,\"a\",6,\"b\"]}", "5,97,6,98");
    assert_prompts("{\"prompt\":[\"a\",5]}", "256,97,5");
    assert_prompts("{\"prompt\":[\"a\",\"b\"]}", "256,97;256,98");
    assert_prompts("{\"prompt\":[[5],\"a\",{\"prompt_string\":\"b\"},[6,\"c\"]]}", "5;256,97;256,98;6,99");
}

TEST(refused) {
    static const struct {
        const char *body, *param;
    } cases[] = {
        {"{}", "prompt"},
        {"[]", ""},
        {"{\"prompt\":5}", "prompt"},
        {"{\"prompt\":[]}", "prompt"},
        {"{\"prompt\":[[]]}", "prompt"},
        {"{\"prompt\":[258,\"a\"]}", "prompt"},
        {"{\"prompt\":{\"prompt_string\":\"a\",\"multimodal_data\":\"x\"}}", "prompt"},
        {"{\"prompt\":{}}", "prompt"},
        {"{\"prompt\":\"a\",\"logprobs\":1}", "logprobs"},
        {"{\"prompt\":\"a\",\"suffix\":\"b\"}", "suffix"},
        {"{\"prompt\":\"a\",\"n_probs\":21}", "n_probs"},
        {"{\"prompt\":\"a\",\"n_probs\":1,\"post_sampling_probs\":true,\"logprob_token_ids\":[1]}",
         "post_sampling_probs"},
        {"{\"prompt\":\"a\",\"logit_bias\":[[1]]}", "logit_bias"},
        {"{\"prompt\":\"a\",\"logit_bias\":[[null,1]]}", "logit_bias"},
        {"{\"prompt\":\"a\",\"logit_bias\":[[1,true]]}", "logit_bias.1"},
        {"{\"prompt\":\"a\",\"logit_bias\":{\"258\":1}}", "logit_bias.258"},
        {"{\"prompt\":\"a\",\"response_fields\":\"content\"}", "response_fields"},
        {"{\"prompt\":\"a\",\"response_fields\":[\"stop\",5]}", "response_fields[1]"},
        {"{\"prompt\":\"a\",\"echo\":true}", "echo"},
        {"{\"prompt\":\"a\",\"prompt_logprobs\":0}", "prompt_logprobs"},
        {"{\"prompt\":\"a\",\"stream\":true,\"stream_options\":{\"include_usage\":true}}", "stream_options"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct completion_request c;
        struct api_error e;
        assert_false(parse(cases[i].body, &c, &e));
        assert_int_equal(e.status, 400);
        assert_string_equal(e.param, cases[i].param);
    }
}

// /infill: the ids of the prompt, or the field that is refused.
static void assert_infill(const char *body, int max_model_len, const char *wanted) {
    struct served_model m = model();
    struct completion_request c;
    struct api_error e = {0};
    struct buf b = {0};
    m.max_model_len = max_model_len;
    if (llama_infill.parse(&c, &m, body, strlen(body), &e)) {
        assert_int_equal(c.base.num_prompts, 1);
        for (size_t k = 0; k < c.base.prompts[0].len; k++) {
            token_id id = c.base.prompts[0].ids[k];
            buf_fmt(&b, id == BOS ? "^" : id < 10 ? "%d" : "%c", id);
        }
        completion_request_free(&c);
    } else {
        assert_int_equal(e.status, 400);
        buf_str(&b, e.param);
    }
    assert_string_equal(buf_cstr(&b), wanted);
    buf_free(&b);
}

TEST(infill) {
    static const char plain[] = "{\"input_prefix\":\"ab\",\"input_suffix\":\"c\",\"prompt\":\"d\"}";
    static const char extra[] = "{\"input_prefix\":\"ab\",\"input_suffix\":\"c\",\"input_extra\":["
                                "{\"text\":\"x\"},{\"filename\":\"f\",\"text\":\"yz\"}]}";
    static const char cut[] = "{\"input_prefix\":\"abcdefghijklmnop\",\"input_suffix\":\"qrstuvwxyz\","
                              "\"prompt\":\"A\",\"n_predict\":3,\"input_extra\":[{\"text\":\"BCDEF\"}]}";
    assert_infill(plain, 100, "input_suffix"); // no such tokens
    fake_fim = (struct fim_tokens){.prefix = 1, .suffix = 2, .middle = 3, .repo = -1, .file = -1};
    assert_infill(plain, 100, "^1abd2c3");
    assert_infill(extra, 100, "^\n\n--- snippet ---\n\nx\n\n--- snippet ---\n\nyz1ab2c3");
    assert_infill(cut, 200, "^\n\n--- snippet ---\n\nBCDEF1abcdefghijklmnopA2qrstuvwxyz3");
    assert_infill(cut, 39, "^BCDEF1abcdefghijklmnopA2qrstuvwxyz3"); // room for 31 beside 5, and 3 to come
    assert_infill(cut, 34, "^1abcdefghijklmnopA2qrstuvwxyz3");
    assert_infill(cut, 24, "^1efghijklmnopA2qrst3"); // of 16 a quarter behind
    assert_infill(cut, 8, "^1pA23");
    assert_infill(cut, 5, "prompt");
    fake_fim.repo = 4;
    fake_fim.file = 5;
    assert_infill(plain, 100, "^4myproject\n5filename\n1abd2c3");
    assert_infill(extra, 100, "^4myproject\n5tmp\nx5f\nyz5filename\n1ab2c3");
    fake_fim = (struct fim_tokens){1, 2, -1, -1, -1, true};
    assert_infill(plain, 100, "^2c1abd");
    static const char *const refused_bodies[][2] = {
        {"{\"input_suffix\":\"\"}", "input_prefix"},
        {"{\"input_prefix\":\"\"}", "input_suffix"},
        {"{\"input_prefix\":1,\"input_suffix\":\"\"}", "input_prefix"},
        {"{\"input_prefix\":\"\",\"input_suffix\":[]}", "input_suffix"},
        {"{\"input_prefix\":\"\",\"input_suffix\":\"\",\"prompt\":[1]}", "prompt"},
        {"{\"input_prefix\":\"\",\"input_suffix\":\"\",\"input_extra\":{}}", "input_extra"},
        {"{\"input_prefix\":\"\",\"input_suffix\":\"\",\"input_extra\":[{}]}", "input_extra[0]"},
        {"{\"input_prefix\":\"\",\"input_suffix\":\"\",\"input_extra\":[{\"text\":\"\"},1]}",
         "input_extra[1]"},
        {"{\"input_prefix\":\"\",\"input_suffix\":\"\",\"input_extra\":[{\"text\":\"\",\"filename\":1}]}",
         "input_extra[0]"},
        {"{\"input_prefix\":\"\",\"input_suffix\":\"\",\"suffix\":\"x\"}", "suffix"},
        {"{\"input_prefix\":\"\",\"input_suffix\":\"\",\"truncate_prompt_tokens\":3}", "input_suffix"},
    };
    for (size_t i = 0; i < sizeof refused_bodies / sizeof *refused_bodies; i++)
        assert_infill(refused_bodies[i][0], 100, refused_bodies[i][1]);
    fake_fim.prefix = 0;
}

TEST(taken) {
    struct completion_request c;
    struct api_error e;
    assert_true(parse("{\"prompt\":\"a\",\"seed\":-1,\"logit_bias\":[[7,1.5],[\"xy\",false]]}", &c, &e));
    assert_true(c.max_tokens == INT_MAX && !c.has_seed && c.logprobs == -1);
    assert_int_equal(c.num_bias, 3);
    assert_true(c.bias[0].token == 7 && c.bias[0].add == 1.5F);
    assert_true(c.bias[1].token == 'x' && c.bias[2].token == 'y' && c.bias[2].add == -100);
    completion_request_free(&c);

    assert_true(
        parse("{\"prompt\":\"a\",\"n_predict\":3,\"seed\":4,\"logit_bias\":{\"7\":1,\"b\":2}}", &c, &e));
    assert_true(c.max_tokens == 3 && c.has_seed && c.num_bias == 2 && c.bias[1].token == 'b');
    completion_request_free(&c);

    assert_true(parse("{\"prompt\":\"a\",\"ignore_eos\":true,\"logit_bias\":{\"257\":1,\"b\":2}}", &c, &e));
    assert_true(c.num_bias == 2 && c.bias[0].token == 257 && c.bias[0].add == -INFINITY);
    assert_true(c.bias[1].token == 'b' && c.bias[1].add == 2);
    completion_request_free(&c);

    // Ids are wanted: of a stream, by name, or with the probabilities.
    static const char *const wants[] = {"\"stream\":true", "\"return_tokens\":true", "\"n_probs\":2"};
    for (int i = 0; i < 3; i++) {
        char body[80];
        snprintf(body, sizeof body, "{\"prompt\":\"a\",%s}", wants[i]);
        assert_true(parse(body, &c, &e));
        assert_int_equal(c.logprobs, i == 2 ? 2 : 0);
        assert_string_equal(c.base.ignored, "");
        completion_request_free(&c);
    }
}

// The text and the end are two events, the second with what the choice was.
TEST(chunks) {
    const struct served_model m = model();
    struct completion_request c;
    struct api_error e;
    assert_true(parse("{\"prompt\":\"a\",\"stream\":true,\"n_predict\":9,\"stop\":\"xy\"}", &c, &e));
    struct response r = {.request = &c, .model = &m, .num_choices = 1};
    struct logprob_lists l = {0};
    const struct service_event ev = {.token = 'h', .logprob = -1};
    llama_completion.logprob(&l, &r, &ev, 0);
    struct piece p = {.text = "h", .len = 1, .num_tokens = 9, .logprobs = &l, .finish = FINISH_LENGTH};
    struct sse_queue out = {0};
    char text[4096];
    llama_completion.piece(&out, &r, &p, NULL);
    size_t n = sse_read(&out, text, sizeof text - 1);
    text[n] = '\0';
    assert_string_equal(text,
                        "data: {\"index\":0,\"content\":\"h\",\"tokens\":[104],\"stop\":false,\"id_slot\":-1,"
                        "\"tokens_predicted\":9,\"tokens_evaluated\":2}\n\n");
    n = sse_read(&out, text, sizeof text - 1);
    text[n] = '\0';
    assert_non_null(strstr(text, "\"content\":\"\",\"tokens\":[],\"stop\":true"));
    assert_non_null(strstr(
        text, "\"truncated\":false,\"stop_type\":\"limit\",\"tokens_cached\":11,\"stopping_word\":\"\""));
    p.num_tokens = 8; // the context left no more
    p.len = 0;
    logprobs_clear(&l);
    llama_completion.piece(&out, &r, &p, NULL);
    n = sse_read(&out, text, sizeof text - 1);
    text[n] = '\0';
    assert_non_null(strstr(text, "\"stop\":true"));
    assert_non_null(strstr(text, "\"truncated\":true"));
    assert_int_equal(sse_pending(&out), 0);
    p.finish = FINISH_STOP;
    p.stop = c.stops[0];
    p.stop_len = 2;
    llama_completion.piece(&out, &r, &p, NULL);
    n = sse_read(&out, text, sizeof text - 1);
    text[n] = '\0';
    assert_non_null(strstr(
        text, "\"truncated\":false,\"stop_type\":\"word\",\"tokens_cached\":10,\"stopping_word\":\"xy\""));
    logprobs_free(&l);
    sse_free(&out);
    completion_request_free(&c);
}

// Members by their paths, where they are.
TEST(response_fields) {
    const struct served_model m = model();
    struct completion_request c;
    struct api_error e;
    assert_true(parse("{\"prompt\":\"a\",\"response_fields\":[\"generation_settings/"
                      "top_k\",\"content\",\"content/x\",\"x\","
                      "\"stop_type\"]}",
                      &c, &e));
    struct response r = {.request = &c, .model = &m, .num_choices = 1};
    const struct piece p = {.text = "h\0\"", .len = 3, .finish = FINISH_STOP};
    struct buf b = {0};
    llama_completion.whole(&b, &r, &p, NULL);
    assert_string_equal(
        buf_cstr(&b), "{\"generation_settings/top_k\":0,\"content\":\"h\\u0000\\\"\",\"stop_type\":\"eos\"}");
    buf_free(&b);
    completion_request_free(&c);
}

int main(void) { return run_all_tests(NULL, NULL); }
