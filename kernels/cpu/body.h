// The inner loops, written once over 16 lanes. scalar.c, avx2.c and avx512.c include one lanes_*.h, define
// CPU_KERNELS as the name of their table, and include this file, so the order of operations cannot differ
// between them: only what one lane operation compiles to does. Rule numbers refer to kernels/README.md.

#include "half.h"
#include "quants.h"

#include <math.h>

// The numbers of tokens and queries of a tile are constants in the vector tables, so that its sums stay in
// registers and not in an array: 5 times faster at 8 tokens. Plain C has nothing to gain, and with a
// sanitizer the many copies would take minutes to compile.
#if CPU_CONSTANT_TILES && !defined(QUIRE_SANITIZED)
#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif
#else
#define INLINE static inline
#define UNROLL
#endif

// The first n lanes from memory, zeros after.
INLINE struct v16 v16_load_part(const float *p, int n) {
    float part[16] = {0};
    if (n >= 16)
        return v16_load(p);
    for (int i = 0; i < n; i++)
        part[i] = p[i];
    return v16_load(part);
}

INLINE void v16_store_part(float *p, struct v16 x, int n) {
    float part[16];
    if (n >= 16) {
        v16_store(p, x);
        return;
    }
    v16_store(part, x);
    for (int i = 0; i < n; i++)
        p[i] = part[i];
}

// exp: x = n ln 2 + f, 2^n times the polynomial of Cephes' expf in f. At most 1 ulp off; exactly 0 below
// -87.33, infinity above 88.37, NaN for NaN (rule 6).
INLINE struct v16 exp_v16(struct v16 x) {
    const struct v16 low = v16_set1(-87.33f), high = v16_set1(88.37f), magic = v16_set1(0x1.8p23f);
    struct v16 y = v16_min(high, v16_max(low, x)); // this order of arguments lets a NaN through
    struct v16 t = v16_fma(y, v16_set1(1.44269504088896341f), magic), n = v16_sub(t, magic);
    struct v16 f = v16_fma(n, v16_set1(-0.693359375f), y);
    f = v16_fma(n, v16_set1(2.12194440e-4f), f);
    struct v16 p = v16_set1(1.9875691500e-4f);
    p = v16_fma(p, f, v16_set1(1.3981999507e-3f));
    p = v16_fma(p, f, v16_set1(8.3334519073e-3f));
    p = v16_fma(p, f, v16_set1(4.1665795894e-2f));
    p = v16_fma(p, f, v16_set1(1.6666665459e-1f));
    p = v16_fma(p, f, v16_set1(5.0000001201e-1f));
    p = v16_add(v16_fma(p, v16_mul(f, f), f), v16_set1(1));
    p = v16_mul(p, v16_power(t));
    p = v16_if_less(x, low, v16_set1(0), p);
    return v16_if_less(high, x, v16_set1(INFINITY), p);
}

INLINE float exp_1(float x) { return v16_first(exp_v16(v16_set1(x))); }

#include "body_gemm.h"

// ---- vectors

static void rmsnorm(float *y, const float *x, const float *w, int n, float eps) {
    struct v16 squares = v16_set1(0);
    for (int i = 0; i < n; i += LANES) {
        struct v16 v = v16_load_part(x + i, n - i);
        squares = v16_fma(v, v, squares);
    }
    float scale = 1.0f / sqrtf(v16_sum(squares) / (float)n + eps);
    for (int i = 0; i < n; i += LANES) {
        struct v16 v = v16_mul(v16_load_part(x + i, n - i), v16_set1(scale));
        v16_store_part(y + i, v16_mul(v, v16_load_part(w + i, n - i)), n - i);
    }
}

static void to_bf16(uint16_t *y, const float *x, int n) {
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        v16_store_bf16(y + i, v16_load(x + i));
    for (; i < n; i++)
        y[i] = float_to_bf16(x[i]);
}

static void to_f16(uint16_t *y, const float *x, int n) {
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        v16_store_f16(y + i, v16_load(x + i));
    for (; i < n; i++)
        y[i] = float_to_half(x[i]);
}

// Per 32: d = max |x| / 127, q = round(x * (127 / max)). A block below 2^-100 is zero; one that holds a NaN
// or an infinity has a NaN scale, so that its row, and only its row, fails (rule 4).
static void to_q8(struct act_q8 *y, const float *x, int n) {
    for (int i = 0; i < n; i += 32, y++) {
        struct v16 a = v16_load(x + i), b = v16_load(x + i + 16);
        uint32_t bits = v16_abs_bits(a), bits_b = v16_abs_bits(b);
        float max = bits_float(bits > bits_b ? bits : bits_b);
        if (!(max < INFINITY) || max < 0x1p-100f) {
            memset(y, 0, sizeof *y);
            y->d = y->s = max < INFINITY ? 0 : NAN;
            continue;
        }
        struct v16 inverse = v16_set1(127.0f / max);
        int sum0 = v16_store_i8(y->q, v16_mul(a, inverse));
        int sum1 = v16_store_i8(y->q + 16, v16_mul(b, inverse));
        y->d = max / 127.0f;
        y->s = y->d * (float)(sum0 + sum1);
        y->minus8 = -8 * (sum0 + sum1);
        y->minus32[0] = -32 * sum0;
        y->minus32[1] = -32 * sum1;
    }
}

static void swiglu(float *y, const float *gate, const float *up, int n) {
    for (int i = 0; i < n; i += LANES) {
        struct v16 g = v16_load_part(gate + i, n - i), one = v16_set1(1);
        struct v16 silu = v16_div(g, v16_add(one, exp_v16(v16_sub(v16_set1(0), g))));
        v16_store_part(y + i, v16_mul(silu, v16_load_part(up + i, n - i)), n - i);
    }
}

// ---- attention (rules 8 to 10)

INLINE struct v16 kv_load(const void *p, enum dtype dtype, size_t at) {
    if (dtype == DTYPE_F32)
        return v16_load((const float *)p + at);
    if (dtype == DTYPE_F16)
        return v16_load_f16((const uint16_t *)p + at);
    return v16_load_bf16((const uint16_t *)p + at);
}

// The last lanes of a row whose length is no multiple of 16: never read past the row.
INLINE struct v16 kv_load_part(const void *p, enum dtype dtype, size_t at, int n) {
    float part[16] = {0};
    if (n >= 16)
        return kv_load(p, dtype, at);
    for (int i = 0; i < n; i++) {
        if (dtype == DTYPE_F32)
            part[i] = ((const float *)p)[at + (size_t)i];
        else if (dtype == DTYPE_F16)
            part[i] = half_to_float(((const uint16_t *)p)[at + (size_t)i]);
        else
            part[i] = bf16_to_float(((const uint16_t *)p)[at + (size_t)i]);
    }
    return v16_load(part);
}

// scores[t][64] = q . k for `num_tiles` tiles from tile0 of a step; lanes are tokens, d ascends.
INLINE void scores_tile(float *scores, const struct attn_chunk *c, enum dtype dtype, int tile, const int n,
                        const int num_tiles) {
    struct v16 acc[ATTN_QUERIES];
    UNROLL for (int i = 0; i < n * num_tiles; i++) acc[i] = v16_set1(0);
    for (int i = 0; i < c->head_dim; i++)
        UNROLL for (int j = 0; j < num_tiles; j++) {
            struct v16 k = kv_load(c->keys[tile + j], dtype, (size_t)i * LANES);
            UNROLL for (int t = 0; t < n; t++) acc[j * n + t] =
                v16_fma(k, v16_set1(c->q[t][i]), acc[j * n + t]);
        }
    UNROLL for (int j = 0; j < num_tiles; j++) UNROLL for (int t = 0; t < n; t++)
        v16_store(scores + t * ATTN_STEP + (tile + j) * ATTN_TILE % ATTN_STEP, acc[j * n + t]);
}

INLINE void scores_queries(float *scores, const struct attn_chunk *c, enum dtype dtype, int tile0, int tile1,
                           const int n) {
    int tile = tile0;
    if (n <= 2) // enough independent sums to hide the latency of fma
        for (; tile + 4 <= tile1; tile += 4)
            scores_tile(scores, c, dtype, tile, n, 4);
    if (n <= 4)
        for (; tile + 2 <= tile1; tile += 2)
            scores_tile(scores, c, dtype, tile, n, 2);
    for (; tile < tile1; tile++)
        scores_tile(scores, c, dtype, tile, n, 1);
}

// out[t] += sum of p[t][token] * v[token] for tokens [begin, end) of the chunk, ascending, n queries from t0.
INLINE void values_queries(float *out, const float *p, const struct attn_chunk *c, enum dtype dtype,
                           int begin, int end, const int n) {
    int d = c->head_dim, stride = (d + LANES - 1) / LANES * LANES;
    for (int i = 0; i < d; i += LANES) {
        struct v16 acc[ATTN_QUERIES];
        UNROLL for (int t = 0; t < n; t++) acc[t] = v16_load(out + t * stride + i);
        for (int j = begin; j < end; j++) {
            const void *tile = c->values[j / ATTN_TILE];
            struct v16 v = kv_load_part(tile, dtype, (size_t)(j % ATTN_TILE * d + i), d - i);
            UNROLL for (int t = 0; t < n; t++) acc[t] =
                v16_fma(v, v16_set1(p[t * ATTN_STEP + j % ATTN_STEP]), acc[t]);
        }
        UNROLL for (int t = 0; t < n; t++) v16_store(out + t * stride + i, acc[t]);
    }
}

INLINE void scores(float *s, const struct attn_chunk *c, enum dtype dtype, int tile0, int tile1) {
    switch (c->num_queries) {
    case 1: scores_queries(s, c, dtype, tile0, tile1, 1); break;
    case 2: scores_queries(s, c, dtype, tile0, tile1, 2); break;
    case 3: scores_queries(s, c, dtype, tile0, tile1, 3); break;
    case 4: scores_queries(s, c, dtype, tile0, tile1, 4); break;
    case 5: scores_queries(s, c, dtype, tile0, tile1, 5); break;
    case 6: scores_queries(s, c, dtype, tile0, tile1, 6); break;
    case 7: scores_queries(s, c, dtype, tile0, tile1, 7); break;
    default: scores_queries(s, c, dtype, tile0, tile1, 8); break;
    }
}

INLINE void values(float *out, const float *p, const struct attn_chunk *c, enum dtype dtype, int begin,
                   int end, int n) {
    switch (n) {
    case 1: values_queries(out, p, c, dtype, begin, end, 1); break;
    case 2: values_queries(out, p, c, dtype, begin, end, 2); break;
    case 3: values_queries(out, p, c, dtype, begin, end, 3); break;
    case 4: values_queries(out, p, c, dtype, begin, end, 4); break;
    case 5: values_queries(out, p, c, dtype, begin, end, 5); break;
    case 6: values_queries(out, p, c, dtype, begin, end, 6); break;
    case 7: values_queries(out, p, c, dtype, begin, end, 7); break;
    default: values_queries(out, p, c, dtype, begin, end, 8); break;
    }
}

static int clamp_int(int x, int low, int high) { return x < low ? low : x > high ? high : x; }

// One query, 64 tokens from `first`: scores become weights relative to the new maximum; out and sum follow.
static void softmax_step(float *p, float *out, float *max, float *sum, int first, int begin, int end,
                         float scale, int stride) {
    const struct v16 nothing = v16_set1(-INFINITY);
    int tile0 = begin / LANES * LANES, n = (end + LANES - 1) / LANES * LANES;
    struct v16 best = v16_set1(*max), total = v16_set1(0);
    for (int i = tile0; i < n; i += LANES) {
        struct v16 s = v16_mul(v16_load(p + i - first), v16_set1(scale));
        s = v16_keep(s, begin - i, end - i, nothing);
        v16_store(p + i - first, s);
        best = v16_max(best, s);
    }
    float top = v16_largest(best), fade = exp_1(*max - top);
    for (int i = tile0; i < n; i += LANES) {
        struct v16 e = exp_v16(v16_sub(v16_load(p + i - first), v16_set1(top)));
        v16_store(p + i - first, e);
        total = v16_add(total, e);
    }
    *sum = fmaf(*sum, fade, v16_sum(total));
    *max = top;
    if (fade != 1)
        for (int i = 0; i < stride; i += LANES)
            v16_store(out + i, v16_mul(v16_load(out + i), v16_set1(fade)));
}

INLINE void attend_dtype(const struct attn_chunk *c, enum dtype dtype) {
    int n = c->num_queries, stride = (c->head_dim + LANES - 1) / LANES * LANES;
    float max[ATTN_QUERIES], sum[ATTN_QUERIES], p[ATTN_QUERIES * ATTN_STEP];
    for (int t = 0; t < n; t++)
        max[t] = -INFINITY, sum[t] = 0;
    memset(c->partial, 0, (size_t)(n * stride) * sizeof(float));

    for (int first = 0; first < ATTN_CHUNK; first += ATTN_STEP) {
        int begin[ATTN_QUERIES], end[ATTN_QUERIES];
        int low = ATTN_CHUNK, high = 0, all_low = 0, all_high = ATTN_CHUNK; // of any, of all queries
        for (int t = 0; t < n; t++) {
            begin[t] = clamp_int(c->begin[t], first, first + ATTN_STEP);
            end[t] = clamp_int(c->end[t], first, first + ATTN_STEP);
            if (begin[t] < end[t]) {
                low = begin[t] < low ? begin[t] : low;
                high = end[t] > high ? end[t] : high;
            }
            all_low = begin[t] > all_low ? begin[t] : all_low;
            all_high = end[t] < all_high ? end[t] : all_high;
        }
        if (low >= high)
            continue;
        scores(p, c, dtype, low / ATTN_TILE, (high + ATTN_TILE - 1) / ATTN_TILE);
        for (int t = 0; t < n; t++)
            if (begin[t] < end[t])
                softmax_step(p + t * ATTN_STEP, c->partial + t * stride, &max[t], &sum[t], first, begin[t],
                             end[t], c->scale, stride);
        // Tokens outside a query's range are skipped, never multiplied by 0: they may hold anything.
        bool shared = all_low < all_high;
        for (int t = 0; t < n; t++)
            values(c->partial + t * stride, p + t * ATTN_STEP, c, dtype, begin[t], shared ? all_low : end[t],
                   1);
        if (shared) {
            values(c->partial, p, c, dtype, all_low, all_high, n);
            for (int t = 0; t < n; t++)
                values(c->partial + t * stride, p + t * ATTN_STEP, c, dtype, all_high, end[t], 1);
        }
    }

    for (int t = 0; t < n; t++) { // merge into the state of the chunks before
        if (c->begin[t] >= c->end[t])
            continue;
        float top = *c->max[t] > max[t] ? *c->max[t] : max[t];
        float fade_old = exp_1(*c->max[t] - top), fade_new = exp_1(max[t] - top);
        *c->sum[t] = fmaf(sum[t], fade_new, *c->sum[t] * fade_old);
        *c->max[t] = top;
        for (int i = 0; i < c->head_dim; i += LANES) {
            int rest = c->head_dim - i;
            struct v16 old = v16_mul(v16_load_part(c->out[t] + i, rest), v16_set1(fade_old));
            struct v16 o = v16_fma(v16_load(c->partial + t * stride + i), v16_set1(fade_new), old);
            v16_store_part(c->out[t] + i, o, rest);
        }
    }
}

static void attend(const struct attn_chunk *c) {
    if (c->kv_dtype == DTYPE_F32)
        attend_dtype(c, DTYPE_F32);
    else if (c->kv_dtype == DTYPE_F16)
        attend_dtype(c, DTYPE_F16);
    else
        attend_dtype(c, DTYPE_BF16);
}

// ---- logits (rules 11 to 13)

static bool group_max(float *max, const float *logits, int num_groups) {
    bool finite = true;
    for (int g = 0; g < num_groups; g++) {
        struct v16 l = v16_load(logits + (size_t)g * LANES);
        finite &= v16_all_less(l, v16_set1(INFINITY));
        max[g] = v16_largest(l);
    }
    return finite;
}

static void group_exp(float *sums, const float *logits, int num_groups, float max) {
    for (int g = 0; g < num_groups; g++)
        sums[g] = v16_sum(exp_v16(v16_sub(v16_load(logits + (size_t)g * LANES), v16_set1(max))));
}

static uint64_t group_weight(uint32_t *w, uint64_t *sums, const float *logits, int num_groups, float max,
                             float temperature) {
    uint64_t total = 0;
    for (int g = 0; g < num_groups; g++) {
        struct v16 l = v16_sub(v16_load(logits + (size_t)g * LANES), v16_set1(max));
        struct v16 e = exp_v16(v16_div(l, v16_set1(temperature)));
        sums[g] = v16_store_u32(w + (size_t)g * LANES, v16_mul(e, v16_set1(0x1p30f)));
        total += sums[g];
    }
    return total;
}

const struct cpu_kernels CPU_KERNELS = {
    .name = CPU_KERNELS_NAME,
    GEMM_TABLE,
    .rmsnorm = rmsnorm,
    .to_bf16 = to_bf16,
    .to_f16 = to_f16,
    .to_q8 = to_q8,
    .swiglu = swiglu,
    .attend = attend,
    .group_max = group_max,
    .group_exp = group_exp,
    .group_weight = group_weight,
};
