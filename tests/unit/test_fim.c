// The tokens that fill in the middle, of each family's names and of the file's keys, and what they become.
#include "harness.h"

#include "../tools/gguf_tokenizer.h"

enum { USUAL = 7, MAX_NAMES = 16 };

// Texts are [A-C]; all further names are those of the family, of a type. Keys end with a NULL.
struct key {
    const char *name;
    uint32_t id;
};
static struct tokenizer *make(const char *const *more, int32_t type, const struct key *keys) {
    const char *names[MAX_NAMES] = {"<unk>", "<s>", "</s>", "A", "B", "C", "▁"};
    int32_t types[MAX_NAMES] = {2, 3, 3, 1, 1, 1, 1};
    float scores[MAX_NAMES] = {0};
    int n = USUAL;
    struct gguf_writer w = {0};
    struct err err = {0};
    for (; *more; more++) {
        types[n] = type;
        names[n++] = *more;
    }
    gw_str(&w, "tokenizer.ggml.model", "llama");
    gw_strings(&w, "tokenizer.ggml.tokens", (uint64_t)n, names);
    gw_array(&w, "tokenizer.ggml.scores", 6, (uint64_t)n, scores, (size_t)n * sizeof *scores);
    gw_array(&w, "tokenizer.ggml.token_type", 5, (uint64_t)n, types, (size_t)n * sizeof *types);
    for (; keys && keys->name; keys++)
        gw_u32(&w, keys->name, keys->id);
    struct tokenizer *t = gw_tokenizer(&w, &err);
    if (!t)
        fail_msg("%s", err.msg);
    return t;
}

static void expect(const struct tokenizer *t, token_id prefix, token_id suffix, token_id middle,
                   token_id repo, token_id file, bool suffix_first) {
    const struct fim_tokens *fim = tokenizer_fim(t);
    assert_non_null(fim);
    if (fim->prefix != prefix || fim->suffix != suffix || fim->middle != middle || fim->repo != repo ||
        fim->file != file || fim->suffix_first != suffix_first)
        fail_msg("%d %d %d %d %d %d", fim->prefix, fim->suffix, fim->middle, fim->repo, fim->file,
                 fim->suffix_first);
}

TEST(families) {
    static const struct {
        const char *names[MAX_NAMES - USUAL];
        token_id prefix, suffix, middle, repo, file;
        bool suffix_first;
    } cases[] = {
        {{"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>",
          "<|file_sep|>"},
         7,
         9,
         8,
         11,
         12,
         false}, // Qwen
        {{"<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>", "<repo_name>", "<file_sep>"},
         7,
         9,
         8,
         -1,
         -1,
         false},                                                                             // StarCoder 2
        {{"<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>"}, 8, 7, 9, -1, -1, false},    // DeepSeek
        {{"▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>"}, 7, 9, 8, -1, -1, false},                  // CodeLlama
        {{"[PREFIX]", "[MIDDLE]", "[SUFFIX]"}, 7, 9, -1, -1, -1, true},                      // Codestral
        {{"<|code_prefix|>", "<|code_middle|>", "<|code_suffix|>"}, 7, 9, 8, -1, -1, false}, // GLM
        {{"<PRE>", "<SUF>", "<fim_middle>", "<fim_prefix>"}, 10, 8, 9, -1, -1, false}, // the earlier name
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *t = make(cases[i].names, i % 2 ? 4 : 3, NULL);
        expect(t, cases[i].prefix, cases[i].suffix, cases[i].middle, cases[i].repo, cases[i].file,
               cases[i].suffix_first);
        tokenizer_free(t);
    }
}

TEST(keys) {
    static const char *const names[] = {"<|fim_prefix|>", "one", "two", "three", "four", "five", "six", NULL};
    static const struct key all[] = {{"tokenizer.ggml.fim_pre_token_id", 8},
                                     {"tokenizer.ggml.fim_suf_token_id", 9},
                                     {"tokenizer.ggml.fim_mid_token_id", 10},
                                     {"tokenizer.ggml.fim_pad_token_id", 11},
                                     {"tokenizer.ggml.fim_rep_token_id", 12},
                                     {"tokenizer.ggml.fim_sep_token_id", 13},
                                     {0}},
                            old[] = {{"tokenizer.ggml.prefix_token_id", 8},
                                     {"tokenizer.ggml.suffix_token_id", 9},
                                     {"tokenizer.ggml.middle_token_id", 10},
                                     {0}},
                            some[] = {{"tokenizer.ggml.fim_suf_token_id", 9},
                                      {"tokenizer.ggml.fim_mid_token_id", 99}, // out of range
                                      {"tokenizer.ggml.middle_token_id", 10},
                                      {0}};
    struct tokenizer *t = make(names, 1, all);
    expect(t, 8, 9, 10, 12, 13, false);
    for (token_id i = 8; i <= 13; i++) {
        assert_true(tokenizer_is_special(t, i));
        assert_int_equal(tokenizer_is_end(t, i), i >= 11); // the model goes on to another file, or to nothing
    }
    assert_false(tokenizer_is_special(t, 7));
    tokenizer_free(t);
    t = make(names, 1, old);
    expect(t, 8, 9, 10, -1, -1, false);
    tokenizer_free(t);
    t = make(names, 1, some);
    expect(t, 7, 9, 10, -1, -1, false);
    tokenizer_free(t);
}

// A model that lacks one of them has none, and its tokens are what they were.
TEST(incomplete) {
    static const char *const names[][3] = {
        {"<PRE>", "<SUF>"}, {"<PRE>", "<MID>"}, {"<SUF>", "<MID>"}, {"[SUFFIX]"}};
    for (int i = 0; i < 4; i++) {
        struct tokenizer *t = make(names[i], 1, NULL);
        assert_null(tokenizer_fim(t));
        assert_false(tokenizer_is_special(t, USUAL));
        tokenizer_free(t);
    }
}

// Only text that may hold control tokens makes them.
TEST(forged) {
    static const char *const names[] = {"<PRE>", "<SUF>", "<MID>", NULL};
    struct tokenizer *t = make(names, 4, NULL);
    for (unsigned flags = 0; flags <= TOKENIZE_PARSE_SPECIAL; flags += TOKENIZE_PARSE_SPECIAL) {
        struct token_buf b = {0};
        bool found = false;
        assert_int_equal(tokenizer_encode(t, "A<SUF>B", 7, flags, &b), STATUS_OK);
        for (size_t i = 0; i < b.len; i++)
            found |= b.ids[i] == USUAL + 1;
        assert_int_equal(found, flags != 0);
        token_buf_free(&b);
    }
    tokenizer_free(t);
}

int main(void) { return run_all_tests(NULL, NULL); }
