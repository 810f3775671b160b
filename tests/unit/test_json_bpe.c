// Reference ids of Hugging Face, OpenAI and others, from JSON.
#include "vocabularies.h"

#include <jansson.h>

static int check_json(const struct tokenizer *t, unsigned flags, json_t *text, json_t *ids, const char *what,
                      size_t which) {
    size_t n = json_array_size(ids);
    token_id *want = malloc((n + 1) * sizeof *want);
    assert_true(want && json_is_string(text) && n > 0);
    for (size_t i = 0; i < n; i++)
        want[i] = (token_id)json_integer_value(json_array_get(ids, i));
    int ok = check_case(t, json_string_value(text), json_string_length(text), flags, want, n, what, which);
    free(want);
    return ok;
}

// One JSON object a line, with text and ids.
static void check_lines(const char *vocab, unsigned flags, const char *file) {
    struct tokenizer *t = open_vocab(vocab);
    size_t len, cases = 0, bad = 0;
    if (!test_data(file))
        skip();
    char *all = read_file(test_data(file), &len);
    for (char *line = all, *end; (end = strchr(line, '\n')); line = end + 1) {
        json_t *c = json_loadb(line, (size_t)(end - line), JSON_ALLOW_NUL, NULL);
        bad += !check_json(t, flags, json_object_get(c, "text"), json_object_get(c, "ids"), file, cases);
        json_decref(c);
        cases++;
    }
    printf("  %s: %zu cases\n", file, cases);
    assert_int_equal(cases, 717);
    assert_int_equal(bad, 0);
    free(all);
    tokenizer_free(t);
}

TEST(test_golden_large) {
    check_lines(GPT2, TOKENIZE_PARSE_SPECIAL, "tokenizers/golden-large/large-gpt2.jsonl");
    check_lines(LLAMA3, TOKENIZE_PARSE_SPECIAL, "tokenizers/golden-large/large-llama3.jsonl");
    check_lines(QWEN2, TOKENIZE_PARSE_SPECIAL, "tokenizers/golden-large/large-qwen2.jsonl");
    check_lines(LLAMA_SPM, 0, "tokenizers/golden-large/large-llama2-spm.jsonl");
}

// Hugging Face's vectors, of transformers.js.
static void check_tjs(const char *vocab, unsigned flags, const char *file, const char *model, size_t num) {
    struct tokenizer *t = open_vocab(vocab);
    size_t cases = 0, bad = 0;
    const char *name;
    json_t *c;
    if (!test_data(file))
        skip();
    json_t *all = json_load_file(test_data(file), JSON_ALLOW_NUL, NULL);
    json_t *models = json_object_get(all, model);
    assert_non_null(models);
    json_object_foreach(models, name, c) {
        bad += !check_json(t, flags, json_object_get(c, "text"), json_object_get(c, "ids"), name, cases);
        cases++;
    }
    printf("  %s: %zu cases\n", model, cases);
    assert_int_equal(cases, num);
    assert_int_equal(bad, 0);
    json_decref(all);
    tokenizer_free(t);
}

TEST(test_tjs) {
    check_tjs(GPT2, TOKENIZE_PARSE_SPECIAL, "tokenizers/tjs-vectors/tjs-gpt2.json", "Xenova/gpt2", 26);
    check_tjs(GPT2, TOKENIZE_PARSE_SPECIAL, "tokenizers/tjs-vectors/tjs-gpt2.json", "openai-community/gpt2",
              26);
    check_tjs(QWEN2, TOKENIZE_PARSE_SPECIAL, "tokenizers/tjs-vectors/tjs-qwen2.json",
              "Xenova/Qwen1.5-0.5B-Chat", 25);
    check_tjs(LLAMA3, TOKENIZE_PARSE_SPECIAL, "tokenizers/tjs-vectors/tjs-llama.json",
              "Xenova/llama3-tokenizer", 37);
    check_tjs(LLAMA_SPM, TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL,
              "tokenizers/tjs-vectors/tjs-llama.json", "Xenova/llama-tokenizer", 37);
}

// A source file of 24 KB and its ids, of Microsoft's tokenizer.
TEST(test_microsoft) {
    struct tokenizer *t = open_vocab(GPT2);
    size_t len;
    if (!test_data("tokenizers/openai/microsoft-vectors/lib.rs.txt"))
        skip();
    char *file = read_file(test_data("tokenizers/openai/microsoft-vectors/lib.rs.txt"), &len);
    json_t *text = json_stringn(file, len);
    json_t *ids = json_load_file(test_data("tokenizers/openai/microsoft-vectors/tokens_gpt2.json"), 0, NULL);
    assert_true(check_json(t, TOKENIZE_PARSE_SPECIAL, text, ids, "lib.rs.txt", 0));
    json_decref(text);
    json_decref(ids);
    free(file);
    tokenizer_free(t);
}

int main(void) { return run_all_tests(NULL, NULL); }
