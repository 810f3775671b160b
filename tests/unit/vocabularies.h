// Byte-level vocabularies of the test data, for test_bpe.c and test_json_bpe.c.
#pragma once

#include "harness.h"

#include "tokenizer.h"

#include <unistd.h>

static inline char *read_file(const char *path, size_t *len) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *len = (size_t)ftell(f);
    rewind(f);
    char *p = malloc(*len + 1);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, *len, f), *len);
    p[*len] = 0;
    fclose(f);
    return p;
}

// A file of the test data, or one that tests/tools/make_vocab_gguf.py has made (QUIRE_VOCABULARIES, else
// where the build puts them).
static inline struct tokenizer *open_vocab(const char *name) {
    struct err err = {0};
    char made[4096];
    const char *path = made, *folder = getenv("QUIRE_VOCABULARIES");
    if (strchr(name, '/')) {
        path = test_data(name);
        if (!path)
            skip();
    } else {
        snprintf(made, sizeof made, "%s/%s", folder ? folder : QUIRE_BINARY_DIR "/tests", name);
        if (access(made, R_OK) != 0) {
            if (getenv("QUIRE_REQUIRE_DATA"))
                fail_msg("no %s", made);
            printf("  skipped: no %s (ctest makes it)\n", made);
            skip();
        }
    }
    struct tokenizer *t = tokenizer_open(path, &err);
    if (!t)
        fail_msg("%s", err.msg);
    return t;
}

#define GPT2 "vocab-gpt2.gguf"
#define QWEN2 "vocab-qwen2.gguf"
#define LLAMA3 "vocab-llama3.gguf"
#define GGML "tokenizers/ggml-vocab/ggml-vocab-"

// Says where two lists of ids differ.
static inline int same_ids(const struct token_buf *b, const token_id *want, size_t n, const char *what,
                           size_t which) {
    size_t i = 0;
    if (b->len == n && (n == 0 || memcmp(b->ids, want, n * sizeof *want) == 0))
        return 1;
    while (i < b->len && i < n && b->ids[i] == want[i])
        i++;
    printf("  %s case %zu: differs from id %zu of %zu, got", what, which, i, n);
    for (size_t k = i; k < b->len && k < i + 12; k++)
        printf(" %d", b->ids[k]);
    printf(", want");
    for (size_t k = i; k < n && k < i + 12; k++)
        printf(" %d", want[k]);
    printf("\n");
    return 0;
}

// The ids of text are as wanted, and what the tokens add to a text is that text again.
static inline int check_case(const struct tokenizer *t, const char *text, size_t len, const token_id *want,
                             size_t n, const char *what, size_t which) {
    struct token_buf b = {0};
    size_t at = 0;
    assert_int_equal(tokenizer_encode(t, text, len, TOKENIZE_PARSE_SPECIAL, &b), STATUS_OK);
    int ok = same_ids(&b, want, n, what, which);
    for (size_t i = 0; i < b.len; i++) {
        size_t l;
        const char *p = tokenizer_bytes(t, b.ids[i], true, &l);
        assert_true(at + l <= len && memcmp(text + at, p, l) == 0);
        at += l;
    }
    assert_int_equal(at, len);
    token_buf_free(&b);
    return ok;
}
