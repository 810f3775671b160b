// Prefetches and the softmax of attention, for every way of multiplying queries with keys and probabilities with
// values (rules 6 and 9 of kernels/README.md).
#pragma once

#include "body_math.h"

#include <float.h>

INLINE bool is_paired(enum dtype dtype) { return dtype == DTYPE_BF16 || dtype == DTYPE_I8; }
INLINE size_t kv_bytes_of(enum dtype dtype) { return dtype == DTYPE_F32 ? 4 : dtype == DTYPE_I8 ? 1 : 2; }

INLINE struct pairs kv_load_pairs(const void *p, enum dtype dtype) {
    return dtype == DTYPE_I8 ? pairs_load_i8(p) : pairs_load(p);
}

INLINE struct pairs kv_load_pairs_part(const void *p, enum dtype dtype, int n) {
    uint16_t part[32] = {0};
    if (n >= 16)
        return kv_load_pairs(p, dtype);
    memcpy(part, p, (size_t)n * 2 * kv_bytes_of(dtype));
    return kv_load_pairs(part, dtype);
}

// How many of the lines that are prefetched with the values the softmax of each query prefetches, so that
// memory does not stand still meanwhile (bench_attention).
enum { SOFTMAX_LINES = 4 };

// The cache lines that this step has still to prefetch
struct prefetch_cursor {
    const void *const *piece; // at which it is
    int left;                 // pieces after it
    const char *at;           // the next line
    int lines, each;          // of this piece that are left; of a piece
};

INLINE struct prefetch_cursor prefetch_start(const void *const *pieces, int n, size_t bytes) {
    int each = (int)((bytes + 63) / 64);
    return (struct prefetch_cursor){pieces, n - 1, pieces[0], each, each};
}

// Asks for n more lines, after the last piece for that one again. Into the L2 cache: they are used later than
// the L1 cache could hold them, and there they are in the way of what is used at once.
INLINE void prefetch_lines(struct prefetch_cursor *a, const int n) {
    UNROLL for (int i = 0; i < n; i++) __builtin_prefetch(a->at + (size_t)i * 64, 0, 2);
    a->at += (size_t)n * 64;
    a->lines -= n;
    if (a->lines <= 0) {
        if (a->left > 0)
            a->piece++, a->left--;
        a->at = *a->piece;
        a->lines = a->each;
    }
}

// Floats from query to query of out
INLINE int out_stride(const struct attn_chunk *c) { return (c->value_dim + LANES - 1) / LANES * LANES; }

INLINE size_t kv_tile_bytes(int dim, enum dtype dtype) {
    return (size_t)(ATTN_TILE * dim) * kv_bytes_of(dtype);
}

// Scores and probabilities of one KV tile of 64 tokens
struct attn_probs {
    float *p;             // (queries, 64) scores, then probabilities
    uint16_t *pairs;      // (queries, 64) the same as bf16, where values are multiplied in pairs
    float rescale[LANES]; // rescale factor of each query's out so far
    struct prefetch_cursor prefetch;
};

static int clamp_int(int x, int low, int high) { return x < low ? low : x > high ? high : x; }

// 2^x for x that are not above 0, but for roundings, or NaN: 0 below -126.5 at the latest (rule 6). rough:
// for probabilities that become bf16.
INLINE struct v16 exp2_falling(struct v16 x, const bool rough) {
    x = v16_max(v16_set1(-127), x); // this order of arguments lets a NaN through
    struct v16 n = v16_round(x), f = v16_sub(x, n), p = v16_set1(5.500895530e-02f);
    if (rough) {
        p = v16_fma(p, f, v16_set1(2.422111034e-01f));
        p = v16_fma(p, f, v16_set1(6.932829618e-01f));
    } else {
        p = v16_set1(1.326482859e-03f);
        p = v16_fma(p, f, v16_set1(9.671515785e-03f));
        p = v16_fma(p, f, v16_set1(5.550733581e-02f));
        p = v16_fma(p, f, v16_set1(2.402224243e-01f));
        p = v16_fma(p, f, v16_set1(6.931470037e-01f));
    }
    return v16_times_power(v16_fma(p, f, v16_set1(1)), n);
}

INLINE float exp2_1(float x) { return v16_first(exp2_falling(v16_set1(x), false)); }

// 64 tokens from `first`, [begin, end) for each query: scores become probabilities relative to the new
// maximum; max, sum and rescale follow. Query by query in each part, so that the steps of one fill the
// waiting of another. whole: all queries attend to all 64.
INLINE void softmax_step(struct attn_probs *w, struct attn_chunk *c, enum dtype dtype, int first,
                         const int *begin, const int *end, const bool whole) {
    const struct v16 nothing = v16_set1(-INFINITY), zero = v16_set1(0), scale = v16_set1(c->scale);
    int n = c->num_queries;
    struct v16 v[ATTN_QUERIES];
    for (int t = 0; t < ATTN_QUERIES; t++)
        v[t] = nothing;
    for (int t = 0; t < n; t++) {
        int past = whole ? first + ATTN_STEP : end[t];
        UNROLL for (int i = whole ? first : begin[t] / LANES * LANES; i < past; i += LANES) {
            float *p = w->p + t * ATTN_STEP + i - first;
            struct v16 s = v16_load(p);
            if (c->scaled)
                s = v16_mul(s, v16_load(c->key_scale[i / ATTN_TILE]));
            if (c->inner != 0)
                s = tanh_v16(v16_mul(s, v16_set1(c->inner)));
            if (!whole)
                s = v16_keep(s, begin[t] - i, end[t] - i, nothing);
            if (!whole || c->scaled || c->inner != 0)
                v16_store(p, s);
            v[t] = v16_max(v[t], s);
        }
    }
    struct v16 old = v16_load(c->max), top = v16_max(old, v16_mul(v16_largests(v), scale));
    struct v16 rescale = exp2_falling(v16_sub(old, top), false);
    rescale = v16_if_less(top, v16_set1(-FLT_MAX), v16_set1(1), rescale); // nothing yet
    v16_store(c->max, top);
    v16_store(w->rescale, rescale);
    for (int t = 0; t < ATTN_QUERIES; t++)
        v[t] = zero;
    for (int t = 0; t < n; t++) {
        struct v16 total = zero, best = v16_set1(c->max[t]);
        int past = whole ? first + ATTN_STEP : end[t];
        UNROLL for (int i = whole ? first : begin[t] / LANES * LANES; i < past; i += LANES) {
            int at = t * ATTN_STEP + i - first;
            struct v16 x = v16_sub(v16_mul(v16_load(w->p + at), scale), best);
            struct v16 e = exp2_falling(x, is_paired(dtype));
            total = v16_add(total, e);
            if (!is_paired(dtype)) {
                v16_store(w->p + at, e);
                continue;
            }
            if (c->scaled)
                e = v16_mul(e, v16_load(c->value_scale[i / ATTN_TILE]));
            if (c->scaled && !whole)
                e = v16_keep(e, begin[t] - i, end[t] - i, zero);
            v16_store_probs(w->pairs + at, e);
        }
        prefetch_lines(&w->prefetch, SOFTMAX_LINES);
        v[t] = total;
    }
    v16_store(c->sum, v16_fma(v16_load(c->sum), rescale, v16_sums(v)));
}

// Rescales `out` to a new maximum
INLINE void rescale_out(struct attn_probs *w, const struct attn_chunk *c) {
    int stride = out_stride(c);
    for (int t = 0; t < c->num_queries; t++) {
        for (int i = 0; i < stride; i += LANES) {
            float *out = c->out + t * stride + i;
            v16_store(out, v16_mul(v16_load(out), v16_set1(w->rescale[t])));
        }
        w->rescale[t] = 1;
    }
}

// A chunk's first step starts from nothing.
INLINE void attend_start(struct attn_chunk *c) {
    int stride = out_stride(c);
    if (c->step0 > 0)
        return;
    v16_store(c->max, v16_set1(-INFINITY));
    v16_store(c->sum, v16_set1(0));
    memset(c->out, 0, (size_t)(c->num_queries * stride) * sizeof(float));
}

// Which tokens of a step each query attends to, [low, high) any of them, and [all_low, all_high) all
struct attn_range {
    int begin[ATTN_QUERIES], end[ATTN_QUERIES], low, high, all_low, all_high;
};

// false: no query attends to anything of the step
INLINE bool attended_range(struct attn_range *r, const struct attn_chunk *c, int first) {
    r->low = r->all_high = ATTN_CHUNK;
    r->high = r->all_low = 0;
    for (int t = 0; t < c->num_queries; t++) {
        int begin = clamp_int(c->begin[t], first, first + ATTN_STEP);
        int end = clamp_int(c->end[t], first, first + ATTN_STEP);
        if (begin < end) {
            r->low = begin < r->low ? begin : r->low;
            r->high = end > r->high ? end : r->high;
        }
        r->all_low = begin > r->all_low ? begin : r->all_low;
        r->all_high = end < r->all_high ? end : r->all_high;
        r->begin[t] = begin;
        r->end[t] = end;
    }
    return r->low < r->high;
}

INLINE void scores_to_probs(struct attn_probs *w, struct attn_chunk *c, enum dtype dtype, int first,
                            const struct attn_range *r) {
    w->prefetch = prefetch_start(&c->prefetch[first / ATTN_STEP][STEP_TILES], STEP_TILES,
                                 kv_tile_bytes(c->value_dim, dtype));
    if (r->all_low == first && r->all_high == first + ATTN_STEP)
        softmax_step(w, c, dtype, first, r->begin, r->end, true);
    else
        softmax_step(w, c, dtype, first, r->begin, r->end, false);
}
