// Requests of /v1/rerank and /v1/score: the ids of pairs, where the second text begins, what is cut; and the order of a
// ranking. A tokenizer of bytes stands in.
#include "../tools/fake_service.c"
#include "dialects/openai.h"
#include "harness.h"

#include <math.h>

static struct served_model model(const char *rank_template) {
    static char *names[] = {(char *)"m"};
    struct err err = {0};
    return (struct served_model){.tokenizer = tokenizer_open("", &err),
                                 .names = names,
                                 .num_names = 1,
                                 .vocab = 258,
                                 .max_model_len = 12,
                                 .max_token_bytes = 4,
                                 .pairs = true,
                                 .types = true,
                                 .vector_size = 1,
                                 .rank_template = rank_template,
                                 .rank_template_len = rank_template ? strlen(rank_template) : 0};
}

// Ids as text, BOS as ^, and where the second text begins; `;` between pairs. Or the field that is refused.
static void expect(const struct vector_dialect *dialect, const char *body, const char *rank_template,
                   const char *wanted) {
    struct served_model m = model(rank_template);
    struct vector_request c;
    struct api_error e = {0};
    struct buf b = {0};
    if (dialect->parse(&c, &m, body, strlen(body), &e)) {
        for (size_t i = 0; i < c.base.num_prompts; i++) {
            buf_str(&b, i ? ";" : "");
            for (size_t k = 0; k < c.base.prompts[i].len; k++)
                buf_char(&b, c.base.prompts[i].ids[k] == BOS ? '^' : (char)c.base.prompts[i].ids[k]);
            buf_fmt(&b, "%d", c.second_text[i]);
        }
        vector_request_free(&c);
    } else {
        assert_int_equal(e.status, 400);
        buf_str(&b, e.param);
    }
    if (strcmp(buf_cstr(&b), wanted) != 0)
        fail_msg("%s: '%s', expected '%s'", body, buf_cstr(&b), wanted);
    buf_free(&b);
}

TEST(pairs) {
    const struct vector_dialect *rank = &cohere_rerank, *score = &vllm_score;
    expect(rank, "{\"query\":\"ab\",\"documents\":[\"cde\",{\"text\":\"f\"},\"\"]}", NULL,
           "^abcde3;^abf3;^ab3");
    expect(rank, "{\"query\":\"ab\",\"documents\":[\"cdefgh\"],\"truncate_prompt_tokens\":5}", NULL,
           "^abcd3");
    expect(rank, "{\"query\":\"abcd\",\"documents\":[\"e\"],\"truncate_prompt_tokens\":3}", NULL, "^ab3");
    expect(rank, "{\"query\":\"ab\",\"documents\":[\"cdefghijklm\"],\"truncate_prompt_tokens\":-1}", NULL,
           "^abcdefghijk3");
    expect(rank, "{\"query\":\"ab\",\"documents\":[\"cdefghijklm\"]}", NULL, "documents[0]");
    expect(score, "{\"text_1\":\"a\",\"text_2\":[\"b\",\"c\"]}", NULL, "^ab2;^ac2");
    expect(score, "{\"text_1\":[\"a\"],\"text_2\":[\"b\",\"c\"]}", NULL, "^ab2;^ac2");
    expect(score, "{\"text_1\":[\"a\",\"b\"],\"text_2\":\"c\"}", NULL, "^ac2;^bc2");
    expect(score, "{\"text_1\":[\"a\",\"b\"],\"text_2\":[\"c\",\"d\"]}", NULL, "^ac2;^bd2");
    expect(score, "{\"text_1\":[\"a\",\"b\"],\"text_2\":[\"c\",\"d\",\"e\"]}", NULL, "text_2");
    expect(score, "{\"text_1\":\"a\",\"text_2\":[1]}", NULL, "text_2");
    expect(score, "{\"text_2\":\"a\"}", NULL, "text_1");
    static const char *const bad[][2] = {
        {"{\"documents\":[\"a\"]}", "query"},
        {"{\"query\":\"\",\"documents\":[\"a\"]}", "query"},
        {"{\"query\":\"a\",\"documents\":[]}", "documents"},
        {"{\"query\":\"a\",\"documents\":\"b\"}", "documents"},
        {"{\"query\":\"a\",\"documents\":[\"b\",{}]}", "documents[1]"},
        {"{\"query\":\"a\",\"documents\":[\"b\"],\"truncate_prompt_tokens\":0}", "truncate_prompt_tokens"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect(rank, bad[i][0], NULL, bad[i][1]);
}

// Texts of one template have no types; the end of the document goes, not what follows it, of which one token counts as a
// BOS that this stand-in does not write.
TEST(templates) {
    static const char both[] = "{\"query\":\"ab\",\"documents\":[\"cdefg\"]}",
                      cut[] = "{\"query\":\"ab\",\"documents\":[\"cdefg\"],\"truncate_prompt_tokens\":8}";
    expect(&cohere_rerank, both, "<{query}|{document}>", "<ab|cdefg>0");
    expect(&cohere_rerank, cut, "<{query}|{document}!>", "<ab|cde>0");
    expect(&cohere_rerank, both, "{document}:{query}", "cdefg:ab0");
}

TEST(ranking) {
    static const char body[] =
        "{\"query\":\"a\",\"documents\":[\"b\",\"c\",\"d\"],\"top_n\":2,\"return_documents\":false}";
    const struct served_model m = model(NULL);
    struct vector_request c;
    struct api_error e = {0};
    assert_true(cohere_rerank.parse(&c, &m, body, strlen(body), &e));
    const double logits[] = {0, log(3), 0};
    float vectors[3];
    for (int i = 0; i < 3; i++)
        vectors[i] = (float)logits[i];
    const struct vector_response r = {
        .request = &c, .model = &m, .id = "x", .vectors = vectors, .num_prompt = 9};
    struct buf b = {0};
    cohere_rerank.write(&b, &r);
    const char *results = strstr(buf_cstr(&b), "\"results\"");
    assert_non_null(results);
    assert_string_equal(
        results,
        "\"results\":[{\"index\":1,\"relevance_score\":0.750000004},{\"index\":0,\"relevance_score\":0.5}],"
        "\"usage\":{\"prompt_tokens\":9,\"total_tokens\":9}}");
    buf_clear(&b);
    vectors[0] = 30; // both scores are printed as 1, and are not the same
    vectors[1] = 31;
    cohere_rerank.write(&b, &r);
    assert_non_null(strstr(buf_cstr(&b), "[{\"index\":1,\"relevance_score\":1},{\"index\":0,"));
    buf_free(&b);
    vector_request_free(&c);
}

int main(void) { return run_all_tests(NULL, NULL); }
