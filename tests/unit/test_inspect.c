// The output of `quire inspect` for real files.
#include "harness.h"

#include "engine.h"

struct lines {
    char text[65536];
    size_t len;
};

static void add_line(void *arg, const char *text) {
    struct lines *l = arg;
    l->len += (size_t)snprintf(l->text + l->len, sizeof l->text - l->len, "%s\n", text);
    assert_true(l->len < sizeof l->text);
}

static void inspect(const char *name, const char *const *words) {
    static struct lines l;
    struct err err = {0};
    const char *path = test_data(name);
    if (!path)
        skip();
    l.len = 0;
    if (model_inspect(path, add_line, &l, &err))
        fail_msg("%s", err.msg);
    for (; *words; words++)
        if (!strstr(l.text, *words))
            fail_msg("no '%s' in:\n%s", *words, l.text);
}

TEST(test_inspect) {
    inspect(
        "models/stories260K/stories260K.gguf",
        (const char *const[]){"stories260K.gguf", "version 3", "architecture:   llama", "layers:         5",
                              "8 of 8, 4 for keys and values", "512 tokens, bos 1 (added), eos 2",
                              "chat template:  none", "blk.4.ffn_norm.weight", "(172, 64)", "F32",
                              "KV cache f16:   640 B a token", "parameters:     292800 in 48 tensors", NULL});
    inspect("models/tiny-fixtures/moe.gguf",
            (const char *const[]){"key llama.embedding_length is missing", "expert_used_count = 8", NULL});
    inspect("models/tiny-fixtures/lowctx.gguf",
            (const char *const[]){"architecture:   qwen2", "qwen2.embedding_length is missing", NULL});
    inspect("tokenizers/ggml-vocab/ggml-vocab-gpt-2.gguf",
            (const char *const[]){"architecture:   gpt2", "rope:           none", "the file has no tensors",
                                  "tokenizer:      'gpt2'", NULL});
    inspect("tokenizers/ggml-vocab/ggml-vocab-phi-3.gguf",
            (const char *const[]){"ends with:      32007 '<|end|>'", "chat template:", NULL});
}

int main(void) { return run_all_tests(NULL, NULL); }
