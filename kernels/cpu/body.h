// The inner loops, written once over 16 lanes. scalar.c, avx2.c, avxvnni.c and avx512.c include one
// vec_*.h, define CPU_KERNELS as the name of their table, and include this file, so the order of operations
// cannot differ between them: only what one vector operation compiles to does. Rule numbers refer to
// kernels/README.md.

#include "body_math.h"
#include "hadamard.h"
#include "half.h"
#include "quants.h"

#include "body_gemm.h"

// ---- vectors

// w NULL: 1
static void rmsnorm(float *y, const float *x, const float *w, int n, float eps) {
    struct v16 squares = v16_set1(0);
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        squares = v16_fma(v16_load(x + i), v16_load(x + i), squares);
    if (i < n)
        squares = v16_fma(v16_load_part(x + i, n - i), v16_load_part(x + i, n - i), squares);
    const struct v16 scale = v16_set1(1.0f / sqrtf(v16_sum(squares) / (float)n + eps));
    for (i = 0; i + LANES <= n; i += LANES)
        v16_store(y + i, v16_mul(v16_mul(v16_load(x + i), scale), w ? v16_load(w + i) : v16_set1(1)));
    if (i < n) {
        struct v16 v = v16_mul(v16_load_part(x + i, n - i), scale);
        v16_store_part(y + i, v16_mul(v, w ? v16_load_part(w + i, n - i) : v16_set1(1)), n - i);
    }
}

static float sum_row(const float *x, int n) {
    struct v16 sum = v16_set1(0);
    for (int i = 0; i < n; i += LANES)
        sum = v16_add(sum, v16_load_part(x + i, n - i));
    return v16_sum(sum);
}

static float sum_squares(const float *x, float less, int n) {
    const struct v16 zero = v16_set1(0), mean = v16_set1(less);
    struct v16 squares = zero;
    for (int i = 0; i < n; i += LANES) {
        struct v16 v = v16_sub(v16_load_part(x + i, n - i), mean);
        v = n - i < LANES ? v16_keep(v, 0, n - i, zero) : v;
        squares = v16_fma(v, v, squares);
    }
    return v16_sum(squares);
}

static void layernorm(float *y, const float *x, const float *w, const float *b, int n, float eps) {
    const float less = sum_row(x, n) / (float)n;
    const struct v16 mean = v16_set1(less);
    const struct v16 scale = v16_set1(1.0f / sqrtf(sum_squares(x, less, n) / (float)n + eps));
    for (int i = 0; i < n; i += LANES) {
        struct v16 v = v16_mul(v16_sub(v16_load_part(x + i, n - i), mean), scale);
        v = v16_mul(v, v16_load_part(w + i, n - i));
        v16_store_part(y + i, b ? v16_add(v, v16_load_part(b + i, n - i)) : v, n - i);
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

static void act_sums(struct act_q8 *y, int sum0, int sum1) {
    y->s = y->d * (float)(sum0 + sum1);
    y->minus8 = -8 * (sum0 + sum1);
    y->minus128 = -128 * (sum0 + sum1);
    y->minus32[0] = -32 * sum0;
    y->minus32[1] = -32 * sum1;
}

// Per 32: d = max |x| / 127, q = round(x * (127 / max |x|)). A block below 2^-100 is zero; one of 2^100 or more, or with
// a NaN, has a NaN scale, so that its row, and only its row, fails (rule 4).
static void to_q8(struct act_q8 *y, const float *x, int n) {
    for (int i = 0; i < n; i += 32, y++) {
        struct v16 a = v16_load(x + i), b = v16_load(x + i + 16);
        uint32_t max = v16_abs_bits(a, b);
        if (max < 0x0d800000 || max >= 0x71800000) { // 2^-100, 2^100
            memset(y, 0, sizeof *y);
            y->d = y->s = max < 0x0d800000 ? 0 : NAN;
            continue;
        }
        struct v16 inverse = v16_set1(127 / bits_float(max));
        int sums[2];
        v16_store_i8(y->q, v16_mul(a, inverse), v16_mul(b, inverse), sums);
        y->d = bits_float(max) / 127;
        act_sums(y, sums[0], sums[1]);
    }
}

INLINE struct v16 silu_v16(struct v16 x) {
    return v16_div(x, v16_add(v16_set1(1), exp_v16(v16_sub(v16_set1(0), x))));
}

INLINE struct v16 gelu_v16(struct v16 x) {
    struct v16 cubic = v16_fma(v16_set1(0.0713548162726f), v16_mul(x, x), v16_set1(1.59576912161f));
    return v16_div(x, v16_add(v16_set1(1), exp_v16(v16_sub(v16_set1(0), v16_mul(x, cubic)))));
}

// Abramowitz and Stegun 7.1.26, halved: `tail` is the normal distribution's beyond |x|.
INLINE struct v16 gelu_erf_v16(struct v16 x) {
    const struct v16 zero = v16_set1(0), one = v16_set1(1);
    struct v16 size = v16_max(v16_sub(zero, x), x);
    struct v16 t = v16_div(one, v16_fma(size, v16_set1(0.231641888f), one));
    struct v16 p = v16_set1(0.5307027145f);
    p = v16_fma(p, t, v16_set1(-0.7265760135f));
    p = v16_fma(p, t, v16_set1(0.7107068705f));
    p = v16_fma(p, t, v16_set1(-0.142248368f));
    p = v16_fma(p, t, v16_set1(0.127414796f));
    struct v16 tail = v16_mul(v16_mul(p, t), exp_v16(v16_mul(v16_mul(x, x), v16_set1(-0.5f))));
    return v16_mul(x, v16_if_less(x, zero, tail, v16_sub(one, tail)));
}

INLINE struct v16 relu2_v16(struct v16 x) {
    struct v16 positive = v16_max(v16_set1(0), x);
    return v16_mul(positive, positive);
}

INLINE struct v16 relu_v16(struct v16 x) { return v16_max(v16_set1(0), x); }

#define DEFINE_ACT(name)                                                                                     \
    INLINE void name##_rows(float *y, size_t ldy, const float *gate, const float *up, size_t ldx, int rows,  \
                            int n, const bool gated) {                                                       \
        for (int r = 0; r < rows; r++, y += ldy, gate += ldx, up += gated ? ldx : 0) {                       \
            int i = 0;                                                                                       \
            for (; i + LANES <= n; i += LANES) {                                                             \
                struct v16 v = name##_v16(v16_load(gate + i));                                               \
                v16_store(y + i, gated ? v16_mul(v, v16_load(up + i)) : v);                                  \
            }                                                                                                \
            if (i == n)                                                                                      \
                continue;                                                                                    \
            struct v16 v = name##_v16(v16_load_part(gate + i, n - i));                                       \
            v16_store_part(y + i, gated ? v16_mul(v, v16_load_part(up + i, n - i)) : v, n - i);              \
        }                                                                                                    \
    }                                                                                                        \
    static void act_##name(float *y, size_t ldy, const float *gate, const float *up, size_t ldx, int rows,   \
                           int n) {                                                                          \
        if (up)                                                                                              \
            name##_rows(y, ldy, gate, up, ldx, rows, n, true);                                               \
        else                                                                                                 \
            name##_rows(y, ldy, gate, up, ldx, rows, n, false);                                              \
    }
DEFINE_ACT(silu)
DEFINE_ACT(gelu)
DEFINE_ACT(gelu_erf)
DEFINE_ACT(relu2)
DEFINE_ACT(relu)

// v16_min and v16_max let a NaN through in their second argument.
INLINE struct v16 gated_clamped(struct v16 g, struct v16 up) {
    g = v16_min(v16_set1(7), g);
    up = v16_max(v16_set1(-7), v16_min(v16_set1(7), up));
    struct v16 z = v16_add(v16_set1(1), exp_v16(v16_sub(v16_set1(0), v16_mul(g, v16_set1(1.702f)))));
    return v16_mul(v16_div(g, z), v16_add(up, v16_set1(1)));
}

static void act_clamped(float *y, size_t ldy, const float *gate, const float *up, size_t ldx, int rows,
                        int n) {
    for (int r = 0; r < rows; r++, y += ldy, gate += ldx, up += up ? ldx : 0)
        for (int i = 0; i < n; i += LANES) {
            struct v16 u = up ? v16_load_part(up + i, n - i) : v16_set1(0);
            v16_store_part(y + i, gated_clamped(v16_load_part(gate + i, n - i), u), n - i);
        }
}

static void exp_row(float *y, const float *x, int n, float max) {
    for (int i = 0; i < n; i += LANES)
        v16_store_part(y + i, exp_v16(v16_sub(v16_load_part(x + i, n - i), v16_set1(max))), n - i);
}

static void gate_output(float *y, const float *gate, int n) {
    for (int i = 0; i < n; i += LANES) {
        struct v16 z = v16_add(v16_set1(1), exp_v16(v16_sub(v16_set1(0), v16_load_part(gate + i, n - i))));
        v16_store_part(y + i, v16_div(v16_load_part(y + i, n - i), z), n - i);
    }
}

static void softcap(float *x, int n, float cap) {
    for (int i = 0; i < n; i += LANES) {
        struct v16 t = tanh_v16(v16_div(v16_load_part(x + i, n - i), v16_set1(cap)));
        v16_store_part(x + i, v16_mul(v16_set1(cap), t), n - i);
    }
}

#include "body_attention.h"
#include "body_mix.h"

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

static bool group_mask(float *max, float *y, const float *logits, const uint32_t *mask, int num_groups) {
    bool finite = true;
    for (int g = 0; g < num_groups; g++) {
        struct v16 l = v16_load(logits + (size_t)g * LANES);
        finite &= v16_all_less(l, v16_set1(INFINITY));
        l = v16_select(mask[g / 2] >> g % 2 * LANES & 0xffff, l, v16_set1(-INFINITY));
        v16_store(y + (size_t)g * LANES, l);
        max[g] = v16_largest(l);
    }
    return finite;
}

static void group_exp(float *sums, const float *logits, int num_groups, float max) {
    for (int g = 0; g < num_groups; g++)
        sums[g] = v16_sum(exp_v16(v16_sub(v16_load(logits + (size_t)g * LANES), v16_set1(max))));
}

static uint64_t group_prob(uint32_t *w, uint64_t *sums, const float *logits, const float *largest,
                           int num_groups, float max, float temperature) {
    uint64_t total = 0;
    for (int g = 0; g < num_groups; g++) {
        if (largest && largest[g] == -INFINITY) {
            memset(w + (size_t)g * LANES, 0, LANES * sizeof *w);
            sums[g] = 0;
            continue;
        }
        struct v16 l = v16_sub(v16_load(logits + (size_t)g * LANES), v16_set1(max));
        struct v16 e = exp_v16(v16_div(l, v16_set1(temperature)));
        sums[g] = v16_store_u32(w + (size_t)g * LANES, v16_mul(e, v16_set1(0x1p30f)));
        total += sums[g];
    }
    return total;
}

// ---- the table's entries

#define GEMM(type, tile, few)                                                                                \
    static void gemm_##type(const struct gemm_tile *job) { any_tile(tile, job, few); }
GEMM(F32, tile_f32, TILE_VECTORS(1))
GEMM(F16, tile_f16, TILE_VECTORS(1))
GEMM(BF16, tile_bf16, TILE_VECTORS_FEW_BF16)
#define X(type, packed)                                                                                      \
    INLINE void tile_##type(struct sums *s, const struct tile_args *a, const int nv, const int n) {          \
        tile_quantised(s, a, nv, n, DTYPE_##type);                                                           \
    }                                                                                                        \
    GEMM(type, tile_##type, TILE_VECTORS_FEW)
QUANTISED_MAP(X)
#undef X
#undef GEMM

#define GEMM_ENTRY(type, packed) [DTYPE_##type] = gemm_##type,
#define TOKENS_ENTRY(type, packed) [DTYPE_##type] = TILE_QUANTISED(DTYPE_##type),
#define GEMM_TABLE                                                                                           \
    .gemm =                                                                                                  \
        {QUANTISED_MAP(GEMM_ENTRY)[DTYPE_F32] = gemm_F32, [DTYPE_F16] = gemm_F16, [DTYPE_BF16] = gemm_BF16}, \
    .tile_tokens = {QUANTISED_MAP(TOKENS_ENTRY)[DTYPE_F32] = TILE_FLOAT, [DTYPE_F16] = TILE_FLOAT,           \
                    [DTYPE_BF16] = TILE_FLOAT}

const struct cpu_kernels CPU_KERNELS = {
    .name = CPU_KERNELS_NAME,
    GEMM_TABLE,
    .rmsnorm = rmsnorm,
    .layernorm = layernorm,
    .sum = sum_row,
    .squares = sum_squares,
    .to_bf16 = to_bf16,
    .to_f16 = to_f16,
    .to_q8 = to_q8,
    .act = {[ACT_SILU] = act_silu,
            [ACT_GELU] = act_gelu,
            [ACT_GELU_ERF] = act_gelu_erf,
            [ACT_RELU2] = act_relu2,
            [ACT_RELU] = act_relu,
            [ACT_CLAMPED] = act_clamped},
    .exp = exp_row,
    .gate = gate_output,
    .softcap = softcap,
    .attend = attend,
    .mix_conv = mix_conv,
    .mix_recur = mix_recur,
    .attend_combine = attend_combine,
    .hadamard = hadamard,
    .to_i8 = to_i8,
    .widen_i8 = widen_i8,
    .group_max = group_max,
    .group_mask = group_mask,
    .group_exp = group_exp,
    .group_prob = group_prob,
};
