// Vocabularies of the test data, their reference ids, and texts that are long or random, for tests of tokenizers.
#pragma once

#include "harness.h"

#include "clock.h"
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

#define LLAMA_SPM GGML "llama-spm.gguf"
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

// The ids of text are as wanted. With special tokens parsed and none added, as byte-level vocabularies are asked, what the
// tokens add to a text is that text again.
static inline int check_case(const struct tokenizer *t, const char *text, size_t len, unsigned flags,
                             const token_id *want, size_t n, const char *what, size_t which) {
    struct token_buf b = {0};
    size_t at = 0;
    assert_int_equal(tokenizer_encode(t, text, len, flags, &b), STATUS_OK);
    int ok = same_ids(&b, want, n, what, which);
    for (size_t i = 0; i < b.len && flags == TOKENIZE_PARSE_SPECIAL; i++) {
        size_t l;
        const char *p = tokenizer_bytes(t, b.ids[i], true, &l);
        assert_true(at + l <= len && memcmp(text + at, p, l) == 0);
        at += l;
    }
    assert_true(at == len || flags != TOKENIZE_PARSE_SPECIAL);
    token_buf_free(&b);
    return ok;
}

// llama.cpp's vectors: texts separated by a mark, one line of ids each.
static inline void check_ggml(const char *vocab, unsigned flags, const char *name) {
    char path[256];
    size_t inp_len, out_len, cases = 0, bad = 0;
    struct tokenizer *t = open_vocab(vocab);
    snprintf(path, sizeof path, GGML "%s.gguf.inp", name);
    if (!test_data(path))
        skip();
    char *inp = read_file(test_data(path), &inp_len);
    snprintf(path, sizeof path, GGML "%s.gguf.out", name);
    char *out = read_file(test_data(path), &out_len);
    static const char mark[] = "\n__ggml_vocab_test__\n";
    const char *text = inp, *line = out;
    while (*line) {
        const char *end = memmem(text, inp_len - (size_t)(text - inp), mark, sizeof mark - 1);
        size_t len = end ? (size_t)(end - text) : inp_len - (size_t)(text - inp);
        token_id want[4096];
        size_t n = 0;
        for (char *next; *line && *line != '\n'; line = next) {
            long v = strtol(line, &next, 10);
            if (next == line)
                next++;
            else
                want[n++] = (token_id)v;
        }
        line += *line == '\n';
        bad += !check_case(t, text, len, flags, want, n, name, cases);
        cases++;
        if (!end)
            break;
        text = end + sizeof mark - 1;
    }
    printf("  %s: %zu cases\n", name, cases);
    assert_true(cases >= 46);
    assert_int_equal(bad, 0);
    free(inp);
    free(out);
    tokenizer_free(t);
}

static inline uint32_t rnd(uint32_t n) {
    static uint64_t rng = 88172645463325252u;
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)(rng >> 32) % n;
}

static inline double encode_time(const struct tokenizer *t, const char *text, size_t len, size_t *num) {
    struct token_buf b = {0};
    double begin = clock_now_s();
    assert_int_equal(tokenizer_encode(t, text, len, 0, &b), STATUS_OK);
    double seconds = clock_now_s() - begin;
    *num = b.len;
    token_buf_free(&b);
    return seconds;
}
