// Requests of /v1/systemone and /classify: the prompts, the rows that are asked of the model, the probabilities that come of
// them, and what is refused. A tokenizer of bytes stands in.
#include "../tools/fake_service.c"
#include "dialects/openai.h"
#include "harness.h"

#include <math.h>

static struct served_model model(int max_model_len) {
    static char *names[] = {(char *)"m"};
    struct err err = {0};
    return (struct served_model){.tokenizer = tokenizer_open("", &err),
                                 .names = names,
                                 .num_names = 1,
                                 .vocab = 258,
                                 .max_model_len = max_model_len,
                                 .max_token_bytes = 4};
}

static bool read_body(struct decision_request *r, const struct decision_dialect *dialect, const char *body,
                      int max_model_len, struct api_error *e) {
    struct served_model m = model(max_model_len);
    if (!dialect->parse(r, &m, body, strlen(body), e))
        return false;
    if (dialect->prepare(r, &m, e))
        return true;
    decision_request_free(r);
    return false;
}

static void add_id(struct buf *b, token_id id) { buf_char(b, id == EOS ? '$' : (char)id); }

// The prompts; or of each row its prompt, the beginning that follows it, and the tokens that are asked for: `0 x|yz`.
static void expect(const char *body, bool rows, const char *wanted) {
    struct decision_request r;
    struct api_error e = {0};
    struct buf b = {0};
    if (!read_body(&r, strstr(body, "\"input\"") ? &vllm_classify : &systemone, body, 4096, &e))
        fail_msg("%s: %s", body, e.message);
    for (size_t i = 0; i < r.base.num_prompts && !rows; i++) {
        buf_str(&b, i ? "#" : "");
        for (size_t k = 0; k < r.base.prompts[i].len; k++)
            add_id(&b, r.base.prompts[i].ids[k]);
    }
    for (int i = 0; i < r.num_rows && rows; i++) {
        const struct decision_row *row = &r.rows[i];
        const struct decision_question *q = &r.questions[row->question];
        buf_fmt(&b, "%s%d", i ? ";" : "", row->prompt);
        for (int k = 0; k < row->depth; k++)
            add_id(&b, q->options[row->option].ids.ids[k]);
        buf_char(&b, '|');
        for (int k = 0; k < row->num_edges; k++)
            add_id(&b, q->edges[row->edges + k].token);
    }
    if (strcmp(buf_cstr(&b), wanted) != 0)
        fail_msg("%s: '%s', expected '%s'", body, buf_cstr(&b), wanted);
    buf_free(&b);
    decision_request_free(&r);
}

#define QUESTION(type, rest)                                                                                 \
    "{\"state\":\"S\",\"questions\":{\"q\":{\"type\":\"" type "\",\"instructions\":\"I?\"" rest

TEST(prompts) {
    expect(QUESTION("noul", "}}}"), false, "S\n\nI?\nYes or No?\nAnswer:");
    expect(QUESTION("noul", ",\"criteria\":{\"false\":\"f\",\"true\":\"t\"}}},\"permutations\":9}"), false,
           "S\n\nI?\nYes: t\nNo: f\nYes or No?\nAnswer:#"
           "S\n\nI?\nNo: f\nYes: t\nNo or Yes?\nAnswer:");
    expect(QUESTION("choice", ",\"criteria\":{\"a\":\"x\",\"b\":null,\"c\":{\"k\":1}}}},\"permutations\":2}"),
           false,
           "S\n\nI?\na: x\nb\nc: {\"k\":1}\nName only.\nAnswer:#"
           "S\n\nI?\nb\nc: {\"k\":1}\na: x\nName only.\nAnswer:");
    expect(QUESTION("score", ",\"criteria\":[\"lo\",\"hi\"]}}}"), false,
           "S\n\nI?\n0: lo\n1: hi\nNumber only.\nAnswer:");
    expect("{\"state\":[1,\"é\"],\"questions\":{\"a\":{\"type\":\"noul\",\"instructions\":\"A\"},"
           "\"b\":{\"type\":\"noul\",\"instructions\":\"B\"}}}",
           false, "[1,\"é\"]\n\nA\nYes or No?\nAnswer:#[1,\"é\"]\n\nB\nYes or No?\nAnswer:");
    expect("{\"input\":[\"t\",\"u\"],\"labels\":[\"a\",\"b\"],\"instructions\":\"L?\"}", false,
           "t\n\nL?\na\nb\nName only.\nAnswer:#u\n\nL?\na\nb\nName only.\nAnswer:");
}

// A row for each token that tells options apart; with `sequence` for each token.
TEST(rows) {
    expect(QUESTION("choice", ",\"criteria\":{\"ca\":\"\",\"b\":\"\",\"cb\":\"\"}}}}"), true, "0 |bc;0 c|ab");
    expect(
        QUESTION("choice", ",\"criteria\":{\"ca\":\"\",\"b\":\"\",\"cb\":\"\"}}},\"method\":\"sequence\"}"),
        true, "0| ;0 |bc;0 c|ab");
    expect(QUESTION("choice", ",\"criteria\":{\"no\":\"\",\"not\":\"\"}}}}"), true, "0 no|t$");
    expect(QUESTION("choice", ",\"criteria\":{\"abc\":\"\",\"d\":\"\"}}},\"method\":\"sequence\"}"), true,
           "0| ;0 |ad;0 a|b;0 ab|c");
    expect(QUESTION("noul", "}},\"permutations\":2}"), true, "0 |NY;1 |NY");
    expect("{\"input\":\"t\",\"labels\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\",\"j\",\"k\","
           "\"l\",\"m\",\"n\","
           "\"o\",\"p\",\"q\",\"r\",\"s\",\"t\",\"u\",\"v\"]}",
           true, "0 |abcdefghijklmnopqrst;0 |uv");
}

// Each edge has one log-probability, which one row brings.
TEST(places) {
    static const char body[] =
        "{\"input\":[\"t\",\"u\"],\"labels\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\","
        "\"h\",\"i\",\"j\",\"k\",\"l\",\"m\",\"n\",\"o\",\"p\",\"q\",\"r\",\"s\",\"t\","
        "\"u\",\"v\"],\"method\":\"sequence\",\"permutations\":2}";
    struct decision_request r;
    struct api_error e = {0};
    int next = 0;
    assert_true(read_body(&r, &vllm_classify, body, 4096, &e));
    for (int i = 0; i < r.num_rows; i++) {
        assert_int_equal(r.rows[i].at, next);
        next += r.rows[i].num_edges;
    }
    assert_int_equal(next, r.num_logprobs);
    decision_request_free(&r);
}

static struct decision_request weighed(const char *body, const double *shares, int num) {
    struct decision_request r;
    struct api_error e = {0};
    assert_true(read_body(&r, &systemone, body, 4096, &e));
    assert_int_equal(r.num_logprobs, num);
    for (int i = 0; i < num; i++)
        r.logprobs[i] = (float)log(shares[i]);
    assert_true(decisions_weigh(&r, &e));
    return r;
}

static void is_near(double found, double wanted, double most) {
    if (!(fabs(found - wanted) <= most))
        fail_msg("%g, expected %g", found, wanted);
}

static double probability(const struct decision_request *r, int option) {
    return r->questions[0].options[option].probability;
}

TEST(probabilities) {
    // Edges: the blank; then b and c, of which other tokens take half; then a and b behind c.
    static const char body[] = QUESTION("choice", ",\"criteria\":{\"ca\":\"\",\"b\":\"\",\"cb\":\"\"}}}");
    static const double shares[] = {0.5, 0.1, 0.4, 0.3, 0.1}, swapped[] = {0.9, 0.4, 0.1, 0.3, 0.1};
    char text[256];
    struct decision_request r;
    snprintf(text, sizeof text, "%s}", body);
    r = weighed(text, shares, 5);
    is_near(probability(&r, 0), 0.8 * 0.75, 1e-6);
    is_near(probability(&r, 1), 0.2, 1e-6);
    is_near(probability(&r, 2), 0.8 * 0.25, 1e-6);
    decision_request_free(&r);
    snprintf(text, sizeof text, "%s,\"method\":\"sequence\"}", body); // 0.12, 0.1 and 0.04 behind the blank
    r = weighed(text, shares, 5);
    is_near(probability(&r, 0), 0.12 / 0.26, 1e-6);
    is_near(probability(&r, 1), 0.1 / 0.26, 1e-6);
    is_near(probability(&r, 2), 0.04 / 0.26, 1e-6);
    decision_request_free(&r);
    double both[10];
    memcpy(both, shares, sizeof shares);
    memcpy(both + 5, swapped, sizeof swapped);
    snprintf(text, sizeof text, "%s,\"permutations\":2}", body);
    r = weighed(text, both, 10);
    is_near(probability(&r, 0), (0.8 + 0.2) / 2 * 0.75, 1e-6);
    is_near(probability(&r, 1), (0.2 + 0.8) / 2, 1e-6);
    decision_request_free(&r);
}

// The example of Ollama's documentation: probabilities and the confidence that it has.
TEST(confidence) {
    static const double shares[] = {1, 0.0093, 0.0125, 0.9781}; // a, b and c behind the blank
    struct decision_request r =
        weighed(QUESTION("choice", ",\"criteria\":{\"b\":\"\",\"c\":\"\",\"a\":\"\"}}}}"), shares, 4);
    struct buf b = {0};
    is_near(decision_confidence(&r.questions[0]), 0.8906, 5e-4);
    const struct decision_response response = {.request = &r, .id = "x", .num_cached = 3};
    systemone.write(&b, &response);
    assert_non_null(
        strstr(buf_cstr(&b), "{\"q\":{\"type\":\"choice\",\"choice\":\"c\",\"probabilities\":{\"b\":0.0125"));
    assert_non_null(
        strstr(buf_cstr(&b), "\"output_tokens\":0,\"input_tokens_details\":{\"cached_tokens\":3}}}"));
    buf_free(&b);
    decision_request_free(&r);
}

TEST(not_finite) {
    struct decision_request r;
    struct api_error e = {0};
    assert_true(read_body(&r, &systemone, QUESTION("noul", "}}}"), 4096, &e));
    for (int i = 0; i < r.num_logprobs; i++)
        r.logprobs[i] = NAN;
    assert_false(decisions_weigh(&r, &e));
    assert_int_equal(e.status, 500);
    decision_request_free(&r);
}

TEST(refused) {
    static const char *const bad[][2] = {
        {"{\"questions\":{\"q\":{\"type\":\"noul\",\"instructions\":\"I\"}}}", "state"},
        {"{\"state\":1,\"questions\":{}}", "state"},
        {"{\"state\":\"S\"}", "questions"},
        {"{\"state\":\"S\",\"questions\":{}}", "questions"},
        {"{\"state\":\"S\",\"questions\":[]}", "questions"},
        {"{\"state\":\"S\",\"questions\":{\"q\":1}}", "questions.q"},
        {"{\"state\":\"S\",\"questions\":{\"q\":{\"type\":\"noul\"}}}", "questions.q.instructions"},
        {QUESTION("box", "}}}"), "questions.q.type"},
        {QUESTION("choice", "}}}"), "questions.q.criteria"},
        {QUESTION("choice", ",\"criteria\":{\"a\":\"\"}}}}"), "questions.q.criteria"},
        {QUESTION("choice", ",\"criteria\":{\"a\":\"\",\"\":\"\"}}}}"), "questions.q.criteria"},
        {QUESTION("choice", ",\"criteria\":{\"a\":\"\",\"b\":2}}}}"), "questions.q.criteria"},
        {QUESTION("noul", ",\"criteria\":[]}}}"), "questions.q.criteria"},
        {QUESTION("score", ",\"criteria\":{}}}}"), "questions.q.criteria"},
        {QUESTION("noul", "}},\"permutations\":17}"), "permutations"},
        {QUESTION("noul", "}},\"method\":\"second\"}"), "method"},
        {QUESTION("noul", "}},\"images\":[\"x\"]}"), "images"},
        {QUESTION("noul", "}},\"model\":\"other\"}"), "model"},
        {"{\"input\":[],\"labels\":[\"a\",\"b\"]}", "input"},
        {"{\"input\":[1],\"labels\":[\"a\",\"b\"]}", "input"},
        {"{\"input\":\"t\"}", "labels"},
        {"{\"input\":\"t\",\"labels\":[\"a\"]}", "labels"},
        {"{\"input\":\"t\",\"labels\":[\"a\",1]}", "labels"},
        {"{\"input\":\"t\",\"labels\":[\"a\",\"a\"]}", "questions"},
    };
    struct decision_request r;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct api_error e = {0};
        const struct decision_dialect *d = strstr(bad[i][0], "\"input\"") ? &vllm_classify : &systemone;
        if (read_body(&r, d, bad[i][0], 4096, &e) || e.status / 100 != 4 || strcmp(e.param, bad[i][1]) != 0)
            fail_msg("%s: %d '%s' %s", bad[i][0], e.status, e.param, e.message);
    }
}

// The longest beginning and the token behind it have to fit.
TEST(room) {
    static const char body[] = QUESTION("choice", ",\"criteria\":{\"abc\":\"\",\"abd\":\"\"}}}}");
    struct decision_request r;
    struct api_error e = {0};
    assert_true(read_body(&r, &systemone, body, 4096, &e));
    int len = (int)r.base.prompts[0].len;
    decision_request_free(&r);
    assert_true(read_body(&r, &systemone, body, len + 4, &e)); // " ab" and a token
    decision_request_free(&r);
    assert_false(read_body(&r, &systemone, body, len + 3, &e));
    assert_string_equal(e.code, "context_length_exceeded");
    assert_string_equal(e.param, "state");
}

int main(void) { return run_all_tests(NULL, NULL); }
