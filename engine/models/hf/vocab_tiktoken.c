// See vocab_reader.h: tiktoken.model, lines of a token in Base64 and its rank, as byte-level BPE. Ranks are ids. Words are cut
// as the class of tokenizer_config.json does it: no file says how.
#include "vocab_reader.h"

#include "hash.h"

#include <stdlib.h>

enum {
    MAX_RANK_BYTES = 512, // of a token: finding its halves is quadratic
    RESERVED = 256,       // tokens behind the ranks, by the class
};

struct ranked_tokens {
    struct text_view *tokens; // (num) bytes
    int32_t num, mask;
    int32_t *slots; // (mask + 1) of the hash table, -1: free
    uint64_t seed;
};

static bool bad_line(const struct vocab_reader *r, int64_t line, const char *what) {
    jdoc_bad(r->j, r->err, "line %lld %s", (long long)line + 1, what);
    return false;
}

static int32_t *slot_of(const struct ranked_tokens *k, const char *bytes, size_t len) {
    uint32_t i = (uint32_t)hash_bytes(k->seed, bytes, len) & (uint32_t)k->mask;
    for (; k->slots[i] >= 0; i = (i + 1) & (uint32_t)k->mask) {
        const struct text_view *t = &k->tokens[k->slots[i]];
        if (t->len == len && memcmp(t->data, bytes, len) == 0)
            break;
    }
    return &k->slots[i];
}

static int64_t count_lines(struct text_view file) {
    int64_t n = 0;
    for (size_t i = 0; i < file.len; i++)
        n += file.data[i] == '\n' || i + 1 == file.len;
    return n;
}

static bool read_line(const struct vocab_reader *r, struct ranked_tokens *k, struct text_view line,
                      int64_t at, char *to) {
    const char *space = memchr(line.data, ' ', line.len);
    size_t len = space ? (size_t)(space - line.data) : 0, n = 0, from = len + 1;
    int64_t rank = 0;
    if (len == 0 || from == line.len ||
        !hf_base64((struct text_view){line.data, len}, (unsigned char *)to, &n))
        return bad_line(r, at, "is not a token in Base64, a space and a rank");
    for (size_t i = from; i < line.len && rank <= VOCAB_MAX_TOKENS; i++)
        rank = line.data[i] >= '0' && line.data[i] <= '9' ? 10 * rank + line.data[i] - '0' : INT32_MAX;
    if (rank >= k->num || k->tokens[rank].data)
        return bad_line(r, at, "has a rank that another line has, or that is not below the number of lines");
    if (n == 0 || n > MAX_RANK_BYTES)
        return bad_line(r, at, "has a token that is not 1 to 512 bytes long");
    k->tokens[rank] = (struct text_view){to, n};
    int32_t *slot = slot_of(k, to, n);
    if (*slot >= 0)
        return bad_line(r, at, "has a token that another line has");
    *slot = (int32_t)rank;
    return true;
}

static bool read_ranks(struct vocab_reader *r, struct text_view file, struct ranked_tokens *k) {
    int64_t num = count_lines(file);
    if (num < 256 || num + RESERVED > VOCAB_MAX_TOKENS)
        return bad_line(r, 0, "begins a file of less than 256 tokens, or of more than 2^22");
    k->num = (int32_t)num;
    for (k->mask = 1023; k->mask < 2 * k->num;)
        k->mask = 2 * k->mask + 1;
    char *bytes = hf_alloc(r->keys, file.len);
    k->tokens = hf_alloc(r->keys, (size_t)k->num * sizeof *k->tokens);
    k->slots = hf_alloc(r->keys, ((size_t)k->mask + 1) * sizeof *k->slots);
    k->seed = hash_seed();
    if (!bytes || !k->tokens || !k->slots)
        return false;
    memset(k->tokens, 0, (size_t)k->num * sizeof *k->tokens);
    memset(k->slots, 0xff, ((size_t)k->mask + 1) * sizeof *k->slots);
    size_t at = 0;
    for (int64_t i = 0; i < num; i++) {
        const char *end = memchr(file.data + at, '\n', file.len - at);
        size_t len = end ? (size_t)(end - file.data) - at : file.len - at;
        if (!read_line(r, k, (struct text_view){file.data + at, len}, i, bytes + at)) // Base64 is longer
            return false;
        at += len + 1;
    }
    return true;
}

// ---- merges

// Merges a token's bytes by the ranks below its own, the lowest first; where two parts are left, *left is the bytes of the
// first.
static bool find_halves(const struct ranked_tokens *k, int32_t rank, size_t *left) {
    struct text_view t = k->tokens[rank];
    size_t start[MAX_RANK_BYTES + 1]; // of each part, and the end
    int32_t pair[MAX_RANK_BYTES];     // the rank of a part and the next together, -1: none
    size_t n = t.len;
    for (size_t i = 0; i <= n; i++)
        start[i] = i;
    for (size_t i = 0; i + 1 < n; i++)
        pair[i] = *slot_of(k, t.data + i, 2);
    while (n > 2) {
        size_t best = n;
        int32_t lowest = rank;
        for (size_t i = 0; i + 1 < n; i++)
            if (pair[i] >= 0 && pair[i] < lowest) {
                best = i;
                lowest = pair[i];
            }
        if (best == n)
            return false;
        memmove(start + best + 1, start + best + 2, (n - best - 1) * sizeof *start);
        memmove(pair + best, pair + best + 1, (n - best - 1) * sizeof *pair);
        n--;
        for (size_t i = best ? best - 1 : 0; i <= best && i + 1 < n; i++)
            pair[i] = *slot_of(k, t.data + start[i], start[i + 2] - start[i]);
    }
    *left = start[1];
    return true;
}

// Bytes in the alphabet of byte-level vocabularies, at most two for each; returns how many.
static size_t spell(struct text_view bytes, char *to) {
    size_t n = 0;
    for (size_t i = 0; i < bytes.len; i++) {
        unsigned b = (unsigned char)bytes.data[i];
        unsigned cp = b <= 0x20                ? 0x100 + b
                      : b >= 0x7f && b <= 0xa0 ? 0x100 + 33 + b - 0x7f
                      : b == 0xad              ? 0x100 + 67
                                               : b;
        if (cp < 0x80) {
            to[n++] = (char)cp;
            continue;
        }
        to[n++] = (char)(0xc0 | cp >> 6);
        to[n++] = (char)(0x80 | (cp & 63));
    }
    return n;
}

static bool write_merges(struct vocab_reader *r, const struct ranked_tokens *k, size_t bytes) {
    struct strings s;
    uint64_t count = 0;
    if (!strings_room(&s, r->keys, (uint64_t)k->num, 2 * bytes + (size_t)k->num))
        return false;
    for (int32_t i = 0; i < k->num; i++) {
        struct text_view t = k->tokens[i];
        char a[2 * MAX_RANK_BYTES], b[2 * MAX_RANK_BYTES];
        size_t left;
        if (t.len < 2)
            continue;
        if (!find_halves(k, i, &left)) {
            jdoc_bad(r->j, r->err, "the token of rank %d is not two of lower ranks, merged", i);
            return false;
        }
        struct text_view first = {a, spell((struct text_view){t.data, left}, a)},
                         second = {b, spell((struct text_view){t.data + left, t.len - left}, b)};
        strings_add(&s, first, " ", second);
        count++;
    }
    hf_array(r->keys, "tokenizer.ggml.merges", META_STRING, count, s.data, "ranks");
    return true;
}

static bool name_tokens(struct vocab_reader *r, const struct ranked_tokens *k, size_t bytes) {
    char *to = hf_alloc(r->keys, 2 * bytes);
    for (int32_t i = 0; to && i < k->num; i++) {
        r->names[i] = (struct text_view){to, spell(k->tokens[i], to)};
        r->types[i] = TYPE_NORMAL;
        to += r->names[i].len;
    }
    for (int64_t i = k->num; i < r->num && i < k->num + RESERVED; i++) {
        const char *name = hf_text(r->keys, "<|reserved_token_%lld|>", (long long)i);
        if (!name)
            return false;
        r->names[i] = view_of(name);
        r->types[i] = TYPE_CONTROL;
    }
    return to != NULL;
}

bool hf_tiktoken_read(struct vocab_reader *r, struct text_view file, int64_t rows) {
    const struct jdoc *c = r->config;
    const struct jdoc_value *name = c ? jdoc_get(c, c->values, "tokenizer_class") : NULL;
    struct ranked_tokens k = {.num = 0};
    size_t bytes = 0;
    if (!c || !jdoc_is(c, name, "TikTokenTokenizer")) {
        jdoc_bad(r->j, r->err,
                 "how words are cut is in the code of tokenizer_class %.*s, and that of TikTokenTokenizer "
                 "(Kimi) alone "
                 "is known",
                 name && name->type == JDOC_STRING ? (int)(name->len < 80 ? name->len : 80) : 7,
                 name && name->type == JDOC_STRING ? c->text + name->at : "unnamed");
        return false;
    }
    if (!read_ranks(r, file, &k))
        return false;
    for (int32_t i = 0; i < k.num; i++)
        bytes += k.tokens[i].len;
    if (!hf_vocab_room(r, k.num, RESERVED, rows) || !name_tokens(r, &k, bytes) || !hf_vocab_added(r) ||
        !write_merges(r, &k, bytes))
        return false;
    hf_str(r->keys, "tokenizer.ggml.model", view_of("gpt2"), "tiktoken.model");
    hf_str(r->keys, "tokenizer.ggml.pre", view_of("kimi-k2"), "tokenizer_class");
    hf_bool(r->keys, "tokenizer.quire.ignore_merges", true, "tiktoken.model");
    return true;
}
