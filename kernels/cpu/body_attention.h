// Attention of a few queries over one chunk of the cache (rules 8 to 10 and 17 of kernels/README.md): part of
// body.h. A tile of sums is up to 8 queries times up to 4 vectors of 16 tokens (scores) or dimensions
// (values): each element of a query is fetched once for all vectors, each vector once for all queries.
//
// Keys and values of F32 and F16 are multiplied as f32, one token after another. Those of BF16 are multiplied
// two at a time as rule 2 says; so are those of I8: in decode of several heads, or of long contexts, they
// become bf16 as they are read, else they come here as BF16, widened once for all queries.
#include "body_softmax.h"

INLINE struct v16 kv_load(const void *p, enum dtype dtype, size_t at) {
    if (dtype == DTYPE_F32)
        return v16_load((const float *)p + at);
    return v16_load_f16((const uint16_t *)p + at);
}

// The last lanes of a row whose length is no multiple of 16: never read past the row.
INLINE struct v16 kv_load_part(const void *p, enum dtype dtype, size_t at, int n) {
    float part[16] = {0};
    if (n >= 16)
        return kv_load(p, dtype, at);
    for (int i = 0; i < n; i++) {
        if (dtype == DTYPE_F32)
            part[i] = ((const float *)p)[at + (size_t)i];
        else
            part[i] = half_to_float(((const uint16_t *)p)[at + (size_t)i]);
    }
    return v16_load(part);
}

// How many queries a tile of sums takes
enum { ATTN_AT_ONCE = (int)ATTN_SUMS < (int)ATTN_QUERIES ? (int)ATTN_SUMS : (int)ATTN_QUERIES };

// scores[t][64] = q . k for n queries from t0 and `num_tiles` tiles from `tile`; lanes are tokens, d ascends.
INLINE void scores_tile(float *scores, const struct attn_chunk *c, enum dtype dtype, int tile, int t0,
                        const int n, const int num_tiles) {
    struct v16 acc[4 * ATTN_QUERIES];
    bool pairs = is_paired(dtype);
    int lines = pairs ? c->head_dim / 2 : c->head_dim;
    size_t line = kv_bytes_of(dtype) * (pairs ? 2 : 1) * LANES; // bytes
    UNROLL for (int j = 0; j < num_tiles; j++) UNROLL for (int t = 0; t < n; t++) acc[j * n + t] =
        v16_set1(0);
    const char *at[4];
    UNROLL for (int j = 0; j < num_tiles; j++) at[j] = c->keys[tile + j];
    struct prefetch_cursor prefetch = prefetch_start(&c->prefetch[tile / STEP_TILES][tile % STEP_TILES],
                                                     num_tiles, kv_tile_bytes(c->head_dim, dtype));
    const float *query = c->q + t0;
    for (int i = 0; i < lines; i++, query += ATTN_QUERIES) {
        struct v16 k[4];
        struct pairs kk[4];
        prefetch_lines(&prefetch, (int)((line * (size_t)num_tiles + 63) / 64));
        UNROLL for (int j = 0; j < num_tiles; j++) {
            const char *p = at[j] + (size_t)i * line;
            if (pairs)
                kk[j] = kv_load_pairs(p, dtype);
            else
                k[j] = kv_load(p, dtype, 0);
        }
        UNROLL for (int t = 0; t < n; t++) {
            if (pairs) {
                uint32_t q = pair_at(query + t);
                UNROLL for (int j = 0; j < num_tiles; j++) acc[j * n + t] =
                    v16_dot_pairs(acc[j * n + t], kk[j], q);
            } else {
                struct v16 q = v16_set1(query[t]);
                UNROLL for (int j = 0; j < num_tiles; j++) acc[j * n + t] = v16_fma(k[j], q, acc[j * n + t]);
            }
        }
    }
    UNROLL for (int j = 0; j < num_tiles; j++) UNROLL for (int t = 0; t < n; t++)
        v16_store(scores + (t0 + t) * ATTN_STEP + (tile + j) * ATTN_TILE % ATTN_STEP, acc[j * n + t]);
}

INLINE void scores_queries(float *scores, const struct attn_chunk *c, enum dtype dtype, int tile0, int tile1,
                           int t0, const int n) {
    int tile = tile0;
    if (4 * n <= ATTN_SUMS)
        for (; tile + 4 <= tile1; tile += 4)
            scores_tile(scores, c, dtype, tile, t0, n, 4);
    if (2 * n <= ATTN_SUMS)
        for (; tile + 2 <= tile1; tile += 2)
            scores_tile(scores, c, dtype, tile, t0, n, 2);
    for (; tile < tile1; tile++)
        scores_tile(scores, c, dtype, tile, t0, n, 1);
}

// out[t][i..] = out[t][i..] * rescale[t] + sum of p[t][token] * v[token][i..] for tokens [begin, end) of
// the chunk, ascending, n queries from t0, num_vectors times 16 dimensions. Pairs: begin and end are even.
INLINE void values_tile(float *out, struct attn_probs *w, const struct attn_chunk *c, enum dtype dtype,
                        int begin, int end, int t0, int i, const int n, const int num_vectors) {
    struct prefetch_cursor prefetch = w->prefetch;
    int d = c->value_dim, stride = out_stride(c);
    bool pairs = is_paired(dtype);
    int step = pairs ? 2 : 1; // tokens
    size_t size = kv_bytes_of(dtype), row = (size_t)(step * d) * size;
    struct v16 acc[4 * ATTN_QUERIES];
    UNROLL for (int t = 0; t < n; t++) UNROLL for (int j = 0; j < num_vectors; j++) acc[t * num_vectors + j] =
        v16_mul(v16_load(out + (t0 + t) * stride + i + j * LANES), v16_set1(w->rescale[t0 + t]));
    for (int past, token = begin; token < end; token = past) { // one tile after another
        int tile = token / ATTN_TILE;
        past = (tile + 1) * ATTN_TILE < end ? (tile + 1) * ATTN_TILE : end;
        const char *v = (const char *)c->values[tile];
        size_t at = (size_t)(token % ATTN_TILE * d + (pairs ? 2 * i : i)) * size;
        const float *p = w->p + t0 * ATTN_STEP + token % ATTN_STEP;
        const uint16_t *pp = w->pairs + t0 * ATTN_STEP + token % ATTN_STEP;
        for (; token < past; token += step, at += row, p++, pp += 2) {
            struct v16 vv[4];
            struct pairs pv[4];
            prefetch_lines(&prefetch, (int)((size * LANES * (size_t)(num_vectors * step) + 63) / 64));
            UNROLL for (int j = 0; j < num_vectors; j++) {
                size_t line = at + (size_t)j * LANES * size * (pairs ? 2 : 1);
                if (pairs)
                    pv[j] = num_vectors > 1 ? kv_load_pairs(v + line, dtype)
                                            : kv_load_pairs_part(v + line, dtype, d - i);
                else
                    vv[j] = num_vectors > 1 ? kv_load(v + line, dtype, 0)
                                            : kv_load_part(v + line, dtype, 0, d - i);
            }
            UNROLL for (int t = 0; t < n; t++) {
                if (pairs) {
                    uint32_t x = pair_at(pp + t * ATTN_STEP);
                    UNROLL for (int j = 0; j < num_vectors; j++) acc[t * num_vectors + j] =
                        v16_dot_pairs(acc[t * num_vectors + j], pv[j], x);
                } else {
                    struct v16 x = v16_set1(p[t * ATTN_STEP]);
                    UNROLL for (int j = 0; j < num_vectors; j++) acc[t * num_vectors + j] =
                        v16_fma(vv[j], x, acc[t * num_vectors + j]);
                }
            }
        }
    }
    UNROLL for (int t = 0; t < n; t++) UNROLL for (int j = 0; j < num_vectors; j++)
        v16_store(out + (t0 + t) * stride + i + j * LANES, acc[t * num_vectors + j]);
    w->prefetch = prefetch;
}

INLINE void values_queries(float *out, struct attn_probs *w, const struct attn_chunk *c, enum dtype dtype,
                           int begin, int end, int t0, const int n) {
    int i = 0, d = c->value_dim;
    if (4 * n <= ATTN_SUMS)
        for (; i + 4 * LANES <= d; i += 4 * LANES)
            values_tile(out, w, c, dtype, begin, end, t0, i, n, 4);
    if (2 * n <= ATTN_SUMS)
        for (; i + 2 * LANES <= d; i += 2 * LANES)
            values_tile(out, w, c, dtype, begin, end, t0, i, n, 2);
    for (; i < d; i += LANES)
        values_tile(out, w, c, dtype, begin, end, t0, i, n, 1);
}

// Runs `loop` over all queries, as many at once as there are registers for; n is a constant in each call.
#define QUERIES_CASE(loop, n, ...)                                                                           \
    case n:                                                                                                  \
        if (n <= ATTN_AT_ONCE)                                                                               \
            loop(__VA_ARGS__, t0, n);                                                                        \
        break;
#define QUERIES(loop, num_queries, ...)                                                                      \
    for (int t0 = 0; t0 < (ATTN_AT_ONCE < (int)ATTN_QUERIES ? (num_queries) : 1); t0 += ATTN_AT_ONCE)        \
        switch ((num_queries)-t0 < ATTN_AT_ONCE ? (num_queries)-t0 : ATTN_AT_ONCE) {                         \
            QUERIES_CASE(loop, 1, __VA_ARGS__)                                                               \
            QUERIES_CASE(loop, 2, __VA_ARGS__)                                                               \
            QUERIES_CASE(loop, 3, __VA_ARGS__)                                                               \
            QUERIES_CASE(loop, 4, __VA_ARGS__)                                                               \
            QUERIES_CASE(loop, 5, __VA_ARGS__)                                                               \
            QUERIES_CASE(loop, 6, __VA_ARGS__)                                                               \
            QUERIES_CASE(loop, 7, __VA_ARGS__)                                                               \
            QUERIES_CASE(loop, 8, __VA_ARGS__)                                                               \
        }
INLINE void scores_any(float *s, const struct attn_chunk *c, enum dtype dtype, int tile0, int tile1) {
    QUERIES(scores_queries, c->num_queries, s, c, dtype, tile0, tile1);
}

INLINE void values_any(float *out, struct attn_probs *w, const struct attn_chunk *c, enum dtype dtype,
                       int begin, int end, int n) {
    QUERIES(values_queries, n, out, w, c, dtype, begin, end);
}
#undef QUERIES
#undef QUERIES_CASE

// Functions of their own: inlined into what calls them, their loops ran out of registers for pointers.
#define ATTN_LOOPS(type)                                                                                     \
    static NOINLINE void scores_##type(float *s, const struct attn_chunk *c, int tile0, int tile1) {         \
        scores_any(s, c, DTYPE_##type, tile0, tile1);                                                        \
    }                                                                                                        \
    static NOINLINE void values_##type(float *out, struct attn_probs *w, const struct attn_chunk *c,         \
                                       int begin, int end, int n) {                                          \
        values_any(out, w, c, DTYPE_##type, begin, end, n);                                                  \
    }
ATTN_LOOPS(F32)
ATTN_LOOPS(F16)
ATTN_LOOPS(BF16)
ATTN_LOOPS(I8)
#undef ATTN_LOOPS

static void scores(float *s, const struct attn_chunk *c, enum dtype dtype, int tile0, int tile1) {
    if (dtype == DTYPE_F32)
        scores_F32(s, c, tile0, tile1);
    else if (dtype == DTYPE_F16)
        scores_F16(s, c, tile0, tile1);
    else if (dtype == DTYPE_I8)
        scores_I8(s, c, tile0, tile1);
    else
        scores_BF16(s, c, tile0, tile1);
}

static void values(float *out, struct attn_probs *w, const struct attn_chunk *c, enum dtype dtype, int begin,
                   int end, int n) {
    if (dtype == DTYPE_F32)
        values_F32(out, w, c, begin, end, n);
    else if (dtype == DTYPE_F16)
        values_F16(out, w, c, begin, end, n);
    else if (dtype == DTYPE_I8)
        values_I8(out, w, c, begin, end, n);
    else
        values_BF16(out, w, c, begin, end, n);
}

INLINE uint16_t pair_part(const void *p, enum dtype dtype, int i) {
    return dtype == DTYPE_I8 ? float_to_bf16(((const int8_t *)p)[i]) : ((const uint16_t *)p)[i];
}

// One pair of tokens for query t, of which `used` (bits 0 and 1) are attended: the memory of the other may
// hold anything, so its value is zero, as its probability is.
INLINE void values_half_pair(float *out, const struct attn_probs *w, const struct attn_chunk *c,
                             enum dtype dtype, int token, int t, int used) {
    int d = c->value_dim, stride = out_stride(c), at0 = token % ATTN_TILE * d;
    const void *tile = c->values[token / ATTN_TILE];
    uint32_t p = pair_at(w->pairs + t * ATTN_STEP + token % ATTN_STEP);
    for (int i = 0; i < d; i += LANES) {
        uint16_t part[32] = {0};
        for (int j = 0; j < LANES && i + j < d; j++)
            part[2 * j + used / 2] = pair_part(tile, dtype, at0 + 2 * (i + j) + used / 2);
        float *at = out + t * stride + i;
        v16_store(at, v16_dot_pairs(v16_load(at), pairs_load(part), p));
    }
}

// Tokens [begin, end) of query t alone.
INLINE void values_one(float *out, struct attn_probs *w, const struct attn_chunk *c, enum dtype dtype,
                       int begin, int end, int t) {
    if (begin >= end)
        return;
    if (is_paired(dtype) && begin % 2) {
        values_half_pair(out, w, c, dtype, begin - 1, t, 2);
        begin++;
    }
    int even = is_paired(dtype) ? end / 2 * 2 : end;
    if (begin < even)
        values_queries(out, w, c, dtype, begin, even, t, 1);
    if (begin <= even && even < end)
        values_half_pair(out, w, c, dtype, even, t, 1);
}

INLINE void attend_dtype(struct attn_chunk *c, enum dtype dtype) {
    int n = c->num_queries;
    float p[ATTN_QUERIES * ATTN_STEP];
    uint16_t pairs[ATTN_QUERIES * ATTN_STEP];
    struct attn_probs w = {.p = p, .pairs = pairs};
    struct attn_range r;
    attend_start(c);
    for (int first = c->step0 * ATTN_STEP; first < c->step1 * ATTN_STEP; first += ATTN_STEP) {
        if (!attended_range(&r, c, first))
            continue;
        scores(w.p, c, dtype, r.low / ATTN_TILE, (r.high + ATTN_TILE - 1) / ATTN_TILE);
        scores_to_probs(&w, c, dtype, first, &r);
        // Tokens outside a query's range are skipped, never multiplied by 0: they may hold anything.
        int low = r.all_low, high = r.all_high;
        if (is_paired(dtype)) { // whole pairs
            low = (low + 1) / 2 * 2;
            high = high / 2 * 2;
        }
        bool shared = low < high;
        if (low > r.low || high < r.high)
            rescale_out(&w, c);
        for (int t = 0; t < n; t++)
            values_one(c->out, &w, c, dtype, r.begin[t], shared ? low : r.end[t], t);
        if (shared) {
            values(c->out, &w, c, dtype, low, high, n);
            for (int t = 0; t < n; t++)
                values_one(c->out, &w, c, dtype, high, r.end[t], t);
        }
    }
}

static void attend(struct attn_chunk *c) {
    if (c->kv_dtype == DTYPE_F32)
        attend_dtype(c, DTYPE_F32);
    else if (c->kv_dtype == DTYPE_F16)
        attend_dtype(c, DTYPE_F16);
    else if (c->kv_dtype == DTYPE_I8)
        attend_dtype(c, DTYPE_I8);
    else
        attend_dtype(c, DTYPE_BF16);
}

static void attend_combine(float *max, float *sum, float *out, float chunk_max, float chunk_sum,
                           const float *chunk_out, int d) {
    float top = *max > chunk_max ? *max : chunk_max;
    float rescale_old = exp2_1(*max - top), rescale_new = exp2_1(chunk_max - top);
    *sum = fmaf(chunk_sum, rescale_new, *sum * rescale_old);
    *max = top;
    for (int i = 0; i < d; i += LANES) {
        struct v16 old = v16_mul(v16_load_part(out + i, d - i), v16_set1(rescale_old));
        v16_store_part(out + i, v16_fma(v16_load(chunk_out + i), v16_set1(rescale_new), old), d - i);
    }
}

typedef float sixteen __attribute__((vector_size(64)));
#ifdef __clang__
#define SHUFFLED(v, ...) __builtin_shufflevector(v, v, __VA_ARGS__)
#else // gcc has it since 12
typedef int places __attribute__((vector_size(64)));
#define SHUFFLED(v, ...) __builtin_shuffle(v, (places){__VA_ARGS__})
#endif
// Sums, and differences where the sign is negative, of elements whose places differ in one bit.
#define TURN_STEP(v, sign, ...) (SHUFFLED(v, __VA_ARGS__) + (v) * (sign))

static void turn_sixteen(float *x) {
    static const sixteen sign1 = {1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
                         sign2 = {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
                         sign4 = {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
                         sign8 = {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1};
    sixteen v;
    memcpy(&v, x, sizeof v);
    v = TURN_STEP(v, sign1, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
    v = TURN_STEP(v, sign2, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    v = TURN_STEP(v, sign4, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
    v = TURN_STEP(v, sign8, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
    memcpy(x, &v, sizeof v);
}

static void hadamard(float *x, int n, float scale) {
    const int size = hadamard_size(n);
    for (int i = 0; i < n && size >= 16; i += 16)
        turn_sixteen(x + i);
    for (int h = size >= 16 ? 16 : 1; h < size; h *= 2)
        for (int i = 0; i < n; i += 2 * h)
            for (int j = i; j < i + h; j++) {
                const float a = x[j], b = x[j + h];
                x[j] = a + b, x[j + h] = a - b;
            }
    for (int i = 0; i < n; i++)
        x[i] *= scale;
}

// As to_q8, over a whole vector.
static void to_i8(int8_t *q, float *scale, const float *x, int n) {
    int8_t last[2 * LANES];
    int sums[2];
    uint32_t bits = 0;
    for (int i = 0; i < n; i += 2 * LANES) {
        uint32_t b = v16_abs_bits(v16_load_part(x + i, n - i), v16_load_part(x + i + LANES, n - i - LANES));
        bits = b > bits ? b : bits;
    }
    float max = bits_float(bits);
    if (!(max < INFINITY) || max < 0x1p-100f) {
        memset(q, 0, (size_t)n);
        *scale = max < INFINITY ? 0 : NAN;
        return;
    }
    struct v16 inverse = v16_set1(127.0f / max);
    *scale = max / 127.0f;
    for (int i = 0; i < n; i += 2 * LANES) {
        struct v16 a = v16_load_part(x + i, n - i), b = v16_load_part(x + i + LANES, n - i - LANES);
        v16_store_i8(last, v16_mul(a, inverse), v16_mul(b, inverse), sums);
        memcpy(q + i, last, (size_t)(n - i < 2 * LANES ? n - i : 2 * LANES));
    }
}

static void widen_i8(uint16_t *y, const int8_t *x, int n, const char *prefetch) {
    for (int i = 0; i < n; i += 32) {
        __builtin_prefetch(prefetch + i);
        pairs_store(y + i, pairs_load_i8(x + i));
    }
}
