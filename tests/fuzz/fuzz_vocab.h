// Small vocabularies for fuzzing: bytes, special tokens, and pieces that overlap.
#pragma once

#include "../tools/gguf_tokenizer.h"

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
    gw_str(&w, "tokenizer.ggml.model", "llama");
    gw_strings(&w, "tokenizer.ggml.tokens", N, names);
    gw_array(&w, "tokenizer.ggml.scores", 6, N, scores, sizeof scores);
    gw_array(&w, "tokenizer.ggml.token_type", 5, N, types, sizeof types);
    struct tokenizer *t = gw_tokenizer(&w, &err);
    if (!t) {
        fprintf(stderr, "%s\n", err.msg);
        abort();
    }
    return t;
}

// A byte-level one; pre: its pre-tokenizer.
static inline struct tokenizer *fuzz_vocab_bpe(const char *pre) {
    static const char *const pieces[] = {"<|endoftext|>", "<|im_end|>", "<table>", "ab", "ba", "aa", "aab",
                                         "abab",          "aaaa",       "Ġ",       "Ġa", "ĠĠ", "12", "Ċ"};
    static const char *const merges[] = {"a b", "a ab", "a a", "ab ab", "b a", "aa aa", "Ġ a", "Ġ Ġ", "1 2"};
    static const int32_t kinds[] = {3, 4, 4};
    enum { PIECES = sizeof pieces / sizeof pieces[0], N = 256 + PIECES };
    static char bytes[256][3];
    const char *names[N];
    int32_t types[N];
    int next = 0x100, num = 0;
    for (int b = 0; b < 256; b++) { // the alphabet of GPT-2
        int cp = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad) ? b : next++;
        bytes[b][0] = (char)(cp < 0x80 ? cp : 0xc0 | cp >> 6);
        bytes[b][1] = (char)(cp < 0x80 ? 0 : 0x80 | (cp & 63));
        names[num] = bytes[b];
        types[num++] = 1;
    }
    for (int i = 0; i < PIECES; i++) {
        bool known = false;
        for (int b = 0; b < 256; b++)
            known = known || strcmp(bytes[b], pieces[i]) == 0;
        if (known)
            continue;
        names[num] = pieces[i];
        types[num++] = i < 3 ? kinds[i] : 1;
    }
    struct gguf_writer w = {0};
    struct err err = {0};
    gw_str(&w, "tokenizer.ggml.model", "gpt2");
    gw_str(&w, "tokenizer.ggml.pre", pre);
    gw_strings(&w, "tokenizer.ggml.tokens", (uint64_t)num, names);
    gw_array(&w, "tokenizer.ggml.token_type", 5, (uint64_t)num, types, (size_t)num * sizeof *types);
    gw_strings(&w, "tokenizer.ggml.merges", sizeof merges / sizeof merges[0], merges);
    struct tokenizer *t = gw_tokenizer(&w, &err);
    if (!t) {
        fprintf(stderr, "%s\n", err.msg);
        abort();
    }
    return t;
}
