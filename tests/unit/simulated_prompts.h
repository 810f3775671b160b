// Prompts of the simulator: random ones from families that share prefixes, with spans that are no tokens, and what the fake
// device makes of them.
#pragma once

#include "plan.h"

enum { VOCAB = 61, NUM_FAMILIES = 3 };

static inline uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t z = (a ^ b * 0x9e3779b97f4a7c15u) + 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t rng_state;
static inline unsigned rnd(unsigned n) {
    return (unsigned)((mix(rng_state++, 77) >> 32) * n >> 32);
} // [0, n)
static inline int between(int lo, int hi) { return lo + (int)rnd((unsigned)(hi - lo + 1)); }
static inline bool one_in(unsigned n) { return rnd(n) == 0; }

// Cells of the fake cache: each is a hash of all up to its position.
static inline uint64_t cell_root(uint64_t salt) { return mix(salt, 0x5eed); }
static inline uint64_t cell_next(uint64_t cell, uint64_t content) { return mix(cell, content + 1); }
static inline token_id sample(uint64_t cell, uint64_t seed) { return (token_id)(mix(cell, seed) % VOCAB); }

// The content of the cell of position p: of a span its hash, place and grid, else the id.
static inline uint64_t content(const struct request *r, int p, token_id token) {
    int s = kv_find_span(r->seq.spans, r->seq.num_spans, p);
    const struct kv_span *span = s < r->seq.num_spans && r->seq.spans[s].first <= p ? &r->seq.spans[s] : NULL;
    return !span ? (uint64_t)token
                 : mix(mix(span->hash.lo, span->hash.hi),
                       mix((uint64_t)(p - span->first),
                           mix((uint64_t)span->len, (uint64_t)(span->grid[0] + 1000 * span->grid[1]))));
}

// Whether the first n positions of two requests hold the same.
static inline bool same_prefix(const struct request *a, const struct request *b, int n) {
    for (int p = 0; p < n; p++)
        if (content(a, p, a->tokens[p]) != content(b, p, b->tokens[p]))
            return false;
    return true;
}

struct prompt_shape {
    int family, shared, tail, salt;
    uint64_t tail_seed;
    bool spans;
};

static inline struct prompt_shape random_shape(int max_prompt) {
    struct prompt_shape shape = {
        .family = between(0, NUM_FAMILIES - 1),
        .tail_seed = rnd(1u << 30),
        .salt = one_in(3) ? between(1, 2) : 0,
    };
    shape.shared = one_in(3) ? 0 : between(0, max_prompt - 1);
    shape.tail = between(shape.shared == 0, one_in(2) ? max_prompt - shape.shared : 2);
    if (shape.shared + shape.tail == 0)
        shape.tail = 1;
    if (shape.shared + shape.tail > max_prompt)
        shape.tail = max_prompt - shape.shared;
    return shape;
}

static inline void fill_prompt(const struct prompt_shape *shape, uint64_t seed, token_id *prompt) {
    for (int i = 0; i < shape->shared; i++)
        prompt[i] = (token_id)(mix(seed + (uint64_t)shape->family, (uint64_t)i) % VOCAB);
    for (int i = shape->shared; i < shape->shared + shape->tail; i++)
        prompt[i] = (token_id)(mix(shape->tail_seed, (uint64_t)i) % VOCAB);
}

// Spans of a prompt of n tokens; their places are the family's. Contents are one of two, most times in the family's grid, if it
// has one; ids are of no account. Returns how many.
static inline int make_spans(uint64_t family, int n, int max_len, token_id *prompt, struct kv_span *spans) {
    int num = 0;
    for (int at = 0, len; at < n; at += len) {
        uint64_t place = mix(family, 1000 + (uint64_t)at);
        len = 1 + (int)((place >> 8) % (uint64_t)max_len);
        len = len < n - at ? len : n - at;
        if (place % 3 > 0)
            continue;
        uint64_t what = mix(family + (one_in(3) ? 1 : 0), (uint64_t)at);
        spans[num++] = (struct kv_span){
            .first = at, .len = len, .hash = {mix(what, 1), mix(what, 2)}, .whole = (place >> 4) % 2};
        unsigned grid = one_in(4) ? rnd(3) : (unsigned)((place >> 16) % 3);
        int lines = grid == 0 ? 0 : len % 2 == 0 ? 2 : 1;
        if (lines > 0)
            spans[num - 1].grid[0] = 1, spans[num - 1].grid[grid] = lines,
                        spans[num - 1].grid[3 - grid] = len / lines;
        for (int i = at; i < at + len; i++)
            prompt[i] = (token_id)rnd(VOCAB);
    }
    return num;
}

// S17: an item does not end inside a whole span that it computes some of.
static inline bool cuts_whole_span(const struct plan_item *it, const struct kv_span *span) {
    int end = it->first + it->num_new, last = span->first + span->len;
    return span->whole && end > span->first && end < last && it->first < last;
}

// Whether the item may be longer or shorter than others because of a whole span that it ends with, or before.
static inline bool set_by_whole_span(const struct plan_item *it, const struct kv_span *span) {
    int end = it->first + it->num_new, last = span->first + span->len;
    return span->whole && ((it->first < last && end == last) || end == span->first);
}
