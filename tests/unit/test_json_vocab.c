// tokenizer.json: the ids that the tokenizers library gives texts of some thirty scripts (vocab_folders.json, made by
// tests/tools/make_vocab_folder.py), and the vectors of the test data.
#include "vocabularies.h"

#include <jansson.h>
#include <unistd.h>

// Checks one text; special: its marks of a dialogue are tokens.
static bool check(const struct tokenizer *t, const json_t *text, const json_t *ids, bool special,
                  const char *what) {
    struct token_buf b = {0};
    size_t n = json_array_size(ids);
    assert_int_equal(tokenizer_encode(t, json_string_value(text), json_string_length(text),
                                      special ? TOKENIZE_PARSE_SPECIAL : 0, &b),
                     STATUS_OK);
    bool same = b.len == n;
    for (size_t i = 0; same && i < n; i++)
        same = b.ids[i] == (token_id)json_integer_value(json_array_get(ids, i));
    if (!same)
        printf("  %s: '%s' has %zu ids, expected %zu\n", what, json_string_value(text), b.len, n);
    token_buf_free(&b);
    return same;
}

static struct tokenizer *open_folder(const char *name) {
    char path[4096];
    struct err err = {0};
    const char *where = getenv("QUIRE_VOCABULARIES");
    snprintf(path, sizeof path, "%s/vocab-folders/%s", where ? where : QUIRE_BINARY_DIR "/tests", name);
    if (access(path, R_OK) != 0) {
        if (getenv("QUIRE_REQUIRE_DATA"))
            fail_msg("no folder %s", path);
        skip();
    }
    struct tokenizer *t = tokenizer_open(path, &err);
    if (!t)
        fail_msg("%s", err.msg);
    return t;
}

static void test_scripts(void **state) {
    (void)state;
    json_t *all = json_load_file(QUIRE_SOURCE_DIR "/tests/unit/vocab_folders.json", JSON_ALLOW_NUL, NULL),
           *ids;
    json_t *texts = json_object_get(all, "texts");
    const char *name;
    int vocabularies = 0;
    assert_true(json_array_size(texts) > 50);
    json_object_foreach(all, name, ids) {
        if (ids == texts)
            continue;
        struct tokenizer *t = open_folder(name);
        bool good = true;
        for (size_t i = 0; i < json_array_size(texts); i++)
            good &= check(t, json_array_get(texts, i), json_array_get(ids, i), true, name);
        assert_true(good);
        tokenizer_free(t);
        vocabularies++;
    }
    assert_int_equal(vocabularies, 13);
    json_decref(all);
}

static void check_lines(const char *vocabulary, const char *file) {
    struct tokenizer *t = open_folder(vocabulary);
    size_t len, cases = 0, bad = 0;
    if (!test_data(file))
        skip();
    char *all = read_file(test_data(file), &len);
    for (char *line = all, *end; (end = strchr(line, '\n')); line = end + 1) {
        json_t *c = json_loadb(line, (size_t)(end - line), JSON_ALLOW_NUL, NULL);
        bad += !check(t, json_object_get(c, "text"), json_object_get(c, "ids"), false, file);
        json_decref(c);
        cases++;
    }
    assert_int_equal(cases, 717);
    assert_int_equal(bad, 0);
    free(all);
    tokenizer_free(t);
}

static void test_golden_large(void **state) {
    (void)state;
    check_lines("gpt2", "tokenizers/golden-large/large-gpt2.jsonl");
    check_lines("llama3", "tokenizers/golden-large/large-llama3.jsonl");
    check_lines("qwen2", "tokenizers/golden-large/large-qwen2.jsonl");
    check_lines("phi-3", "tokenizers/golden-large/large-llama2-spm.jsonl"); // of the same tokens
}

static void test_settings(void **state) {
    (void)state;
    static const struct {
        const char *name;
        token_id bos, eos;
        bool adds;
    } cases[] = {{"phi-3", 1, 32000, true}, {"llama3", 128000, 128001, true}, {"qwen2", -1, 151645, false}};
    for (int i = 0; i < 3; i++) {
        struct tokenizer *t = open_folder(cases[i].name);
        assert_int_equal(tokenizer_bos(t), cases[i].bos);
        assert_int_equal(tokenizer_eos(t), cases[i].eos);
        assert_true(tokenizer_adds_bos(t) == cases[i].adds && tokenizer_is_end(t, cases[i].eos));
        tokenizer_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scripts),
        cmocka_unit_test(test_golden_large),
        cmocka_unit_test(test_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
