// A small vocabulary for fuzzing: bytes, special tokens, and pieces that overlap.
#pragma once

#include "../tools/gguf_write.h"
#include "tokenizer_gguf.h"

static inline struct tokenizer *fuzz_vocab(void) {
    static const char *const pieces[] = {
        "<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<table>",  "\n\n", "a",   "b",   "ab",
        "ba",    "aa",  "aab",  "abab",         "aaaa",       "▁",        "▁▁",   "▁a",  "▁ab", "▁▁a",
        "é",     "日",  "日本", "🙂",         "\xe2\x96",   "\xf0\x9f", "x▁",   "x▁a", "x"};
    static const int32_t kinds[] = {2, 3, 3, 3, 4, 4, 4};
    enum { PIECES = sizeof pieces / sizeof pieces[0], N = 256 + PIECES };
    static char bytes[256][7];
    const char *names[N];
    float scores[N];
    int32_t types[N];
    for (int i = 0; i < N; i++) {
        names[i] = i < PIECES ? pieces[i] : bytes[i - PIECES];
        types[i] = i >= PIECES ? 6 : i < 7 ? kinds[i] : 1;
        scores[i] = i >= PIECES ? 0 : -(float)(i * 7 % 13); // with ties
        if (i >= PIECES)
            snprintf(bytes[i - PIECES], 7, "<0x%02X>", (unsigned)(i - PIECES));
    }
    struct gguf_writer w = {0};
    struct err err = {0};
    size_t size;
    gw_str(&w, "tokenizer.ggml.model", "llama");
    gw_strings(&w, "tokenizer.ggml.tokens", N, names);
    gw_array(&w, "tokenizer.ggml.scores", 6, N, scores, sizeof scores);
    gw_array(&w, "tokenizer.ggml.token_type", 5, N, types, sizeof types);
    unsigned char *file = gw_finish(&w, &size);
    struct gguf *g = gguf_parse(file, size, "fuzz", &err);
    struct tokenizer *t = g ? tokenizer_from_gguf(g, &err) : NULL;
    if (!t) {
        fprintf(stderr, "%s\n", err.msg);
        abort();
    }
    gguf_close(g);
    free(file);
    return t;
}
