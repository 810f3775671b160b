// The rules of kernels/README.md written a second time, one operation after another: what tests of the order of sums
// compare the kernels with. Callers flush subnormals (float_env_enter()).
#pragma once

#include "fixture.h"
#include "float_env.h"
#include "rope.h"

// Rule 6
static inline float plain_exp(float x) {
    if (x < -87.33f)
        return 0;
    if (x > 88.37f)
        return INFINITY;
    float t = fmaf(x, 1.44269504088896341f, 0x1.8p23f), n = t - 0x1.8p23f;
    float f = fmaf(n, 2.12194440e-4f, fmaf(n, -0.693359375f, x));
    static const float c[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                              4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
    float p = c[0];
    for (int i = 1; i < 6; i++)
        p = fmaf(p, f, c[i]);
    return (fmaf(p, f * f, f) + 1) * ldexpf(1, (int)n);
}

// Rule 6
static inline float plain_exp2(float x, bool short_one) {
    x = fmaxf(x, -127);
    float n = rintf(x), f = x - n;
    static const float c[] = {1.326482859e-3f, 9.671515785e-3f, 5.550733581e-2f,
                              2.402224243e-1f, 6.931470037e-1f, 1};
    static const float c3[] = {5.500895530e-2f, 2.422111034e-1f, 6.932829618e-1f, 1};
    const float *at = short_one ? c3 : c;
    float p = at[0];
    for (int i = 1; i < (short_one ? 4 : 6); i++)
        p = fmaf(p, f, at[i]);
    return ldexpf(p, (int)n) < 0x1p-126f ? 0 : ldexpf(p, (int)n);
}

// Rule 7: 16 lanes, then the tree 8, 4, 2, 1
static inline float plain_tree(const float lane[16]) {
    float a[16];
    memcpy(a, lane, sizeof a);
    for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            a[i] += a[i + n];
    return a[0];
}

static inline void plain_rmsnorm(float *y, const float *x, const float *w, int n, float eps) {
    float lane[16] = {0};
    for (int i = 0; i < n; i++)
        lane[i % 16] = fmaf(x[i], x[i], lane[i % 16]);
    float scale = 1 / sqrtf(plain_tree(lane) / (float)n + eps);
    for (int i = 0; i < n; i++)
        y[i] = x[i] * scale * (w ? w[i] : 1);
}

static inline void plain_layernorm(float *y, const float *x, const float *w, const float *b, int n,
                                   float eps) {
    float sum[16] = {0}, squares[16] = {0};
    for (int i = 0; i < n; i++)
        sum[i % 16] += x[i];
    float mean = plain_tree(sum) / (float)n;
    for (int i = 0; i < n; i++)
        squares[i % 16] = fmaf(x[i] - mean, x[i] - mean, squares[i % 16]);
    float scale = 1 / sqrtf(plain_tree(squares) / (float)n + eps);
    for (int i = 0; i < n; i++)
        y[i] = (x[i] - mean) * scale * w[i];
    for (int i = 0; b && i < n; i++)
        y[i] += b[i];
}

static inline void plain_norm(const struct model_config *m, float *y, const float *x,
                              const struct weight_desc *norm) {
    int n = (int)norm->part[0].shape[0];
    if (m->norm == NORM_LAYER)
        plain_layernorm(y, x, norm->part[0].data, norm->bias[0].data, n, m->norm_eps);
    else
        plain_rmsnorm(y, x, norm->part[0].data, n, m->norm_eps);
}

// Rule 6
static inline float plain_act(enum act act, float x) {
    static const float c[] = {0.5307027145f, -0.7265760135f, 0.7107068705f, -0.142248368f, 0.127414796f};
    float t = 1 / fmaf(fabsf(x), 0.231641888f, 1), p = c[0];
    for (int i = 1; i < 5; i++)
        p = fmaf(p, t, c[i]);
    float tail = p * t * plain_exp(x * x * -0.5f), positive = fmaxf(x, 0);
    switch (act) {
    case ACT_SILU: return x / (1 + plain_exp(-x));
    case ACT_GELU: return x / (1 + plain_exp(-(x * fmaf(0.0713548162726f, x * x, 1.59576912161f))));
    case ACT_GELU_ERF: return x * (x < 0 ? tail : 1 - tail);
    case ACT_RELU: return positive;
    default: return positive * positive;
    }
}

// Rule 11
static inline float plain_tanh(float x) { return 1 - 2 / (1 + plain_exp(x + x)); }

// Rule 4: block b of 32 k of a row of a quantised matrix as the file has it
struct plain_block {
    int w[32];
    float scale[2], offset[2]; // of each half; the offset is times the sum of the activations
    bool halves;               // Q6_K, Q3_K, Q2_K: sums of 16
    bool minimum;              // a second fma
};

static inline struct plain_block plain_block(const struct tensor *t, int n, int b) {
    static const int iq4[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    static const int fp4[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    struct plain_block r = {.halves =
                                t->dtype == DTYPE_Q6_K || t->dtype == DTYPE_Q3_K || t->dtype == DTYPE_Q2_K};
    int size = dtype_block(t->dtype), per = size / 32, s = b % per;
    const unsigned char *p = (const unsigned char *)t->data +
                             (size_t)n * dtype_row_bytes(t->dtype, t->shape[1]) +
                             dtype_row_bytes(t->dtype, (int64_t)(b / per) * size);
    float d = ref_fetch(p, DTYPE_F16), min;
    int scale, least;
    for (int i = 0; i < 32; i++)
        switch (t->dtype) {
        case DTYPE_Q8_0: r.w[i] = (signed char)p[2 + i]; break;
        case DTYPE_Q4_0: r.w[i] = (i < 16 ? p[2 + i] % 16 : p[2 + i - 16] / 16) - 8; break;
        case DTYPE_Q4_1: r.w[i] = i < 16 ? p[4 + i] % 16 : p[4 + i - 16] / 16; break;
        case DTYPE_Q5_0:
            r.w[i] = (i < 16 ? p[6 + i] % 16 : p[6 + i - 16] / 16) + (p[2 + i / 8] >> i % 8) % 2 * 16 - 16;
            break;
        case DTYPE_Q5_1:
            r.w[i] = (i < 16 ? p[8 + i] % 16 : p[8 + i - 16] / 16) + (p[4 + i / 8] >> i % 8) % 2 * 16;
            break;
        case DTYPE_IQ4_NL: r.w[i] = iq4[i < 16 ? p[2 + i] % 16 : p[2 + i - 16] / 16]; break;
        case DTYPE_MXFP4: r.w[i] = fp4[i < 16 ? p[1 + i] % 16 : p[1 + i - 16] / 16]; break;
        case DTYPE_IQ4_XS: r.w[i] = iq4[i < 16 ? p[8 + 16 * s + i] % 16 : p[8 + 16 * s + i - 16] / 16]; break;
        case DTYPE_Q4_K: r.w[i] = s % 2 ? p[16 + s / 2 * 32 + i] / 16 : p[16 + s / 2 * 32 + i] % 16; break;
        case DTYPE_Q5_K:
            r.w[i] = s % 2 ? p[48 + s / 2 * 32 + i] / 16 : p[48 + s / 2 * 32 + i] % 16;
            r.w[i] += (p[16 + i] >> s) % 2 * 16;
            break;
        case DTYPE_Q2_K: r.w[i] = (p[16 + s / 4 * 32 + i] >> s % 4 * 2) % 4; break;
        case DTYPE_Q3_K: r.w[i] = (p[32 + s / 4 * 32 + i] >> s % 4 * 2) % 4 + (p[i] >> s) % 2 * 4 - 4; break;
        default: // Q6_K: 32 s of 128: low halves of 64 bytes, then their high halves
            r.w[i] = p[s / 4 * 64 + s % 2 * 32 + i];
            r.w[i] = s % 4 < 2 ? r.w[i] % 16 : r.w[i] / 16;
            r.w[i] += (p[128 + s / 4 * 32 + i] >> s % 4 * 2) % 4 * 16 - 32;
            break;
        }
    r.scale[0] = d;
    switch (t->dtype) {
    case DTYPE_MXFP4: r.scale[0] = p[0] < 2 ? 0 : ldexpf(1, p[0] - 128); break;
    case DTYPE_Q4_1:
    case DTYPE_Q5_1:
        r.offset[0] = ref_fetch(p + 2, DTYPE_F16);
        r.minimum = true;
        break;
    case DTYPE_IQ4_XS:
        scale = (p[4 + s / 2] >> s % 2 * 4) % 16 + (p[2 + s / 4] >> s % 4 * 2) % 4 * 16;
        r.scale[0] = d * (float)(scale - 32);
        break;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        min = ref_fetch(p + 2, DTYPE_F16);
        scale = s < 4 ? p[4 + s] % 64 : p[8 + s] % 16 + p[s] / 64 * 16;
        least = s < 4 ? p[8 + s] % 64 : p[8 + s] / 16 + p[4 + s] / 64 * 16;
        r.scale[0] = d * (float)scale;
        r.offset[0] = -(min * (float)least);
        r.minimum = true;
        break;
    case DTYPE_Q6_K:
        d = ref_fetch(p + 208, DTYPE_F16);
        r.scale[0] = d * (float)(signed char)p[192 + 2 * s];
        r.scale[1] = d * (float)(signed char)p[193 + 2 * s];
        break;
    case DTYPE_Q3_K:
        d = ref_fetch(p + 108, DTYPE_F16);
        for (int h = 0; h < 2; h++) {
            int i = 2 * s + h;
            scale = i < 8 ? p[96 + i] % 16 : p[96 + i - 8] / 16;
            scale += (p[104 + i % 4] >> i / 4 * 2) % 4 * 16;
            r.scale[h] = d * (float)(scale - 32);
        }
        break;
    case DTYPE_Q2_K:
        d = ref_fetch(p + 80, DTYPE_F16);
        min = ref_fetch(p + 82, DTYPE_F16);
        for (int h = 0; h < 2; h++) {
            r.scale[h] = d * (float)(p[2 * s + h] % 16);
            r.offset[h] = -(min * (float)(p[2 * s + h] / 16));
        }
        r.minimum = true;
        break;
    default: break;
    }
    return r;
}

// Whether sums of pairs go in AMX's order
static bool plain_on_amx;

// Rules 2, 8 and 9: sum plus the dot of w and x, which is rounded to bf16. On AMX in steps of so many pairs
static inline float plain_pairs(float sum, const float *w, const float *x, int n, int step_pairs) {
    float part[2];
    for (int i = 0; i < n; i++) {
        int j = plain_on_amx || (i ^ 1) >= n ? i : i ^ 1; // of a pair the odd one first
        if (!plain_on_amx) {
            sum = fmaf(w[j], bf16_to_float(float_to_bf16(x[j])), sum);
            continue;
        }
        if (i % (2 * step_pairs) == 0)
            part[0] = part[1] = 0;
        part[i % 2] = fmaf(w[i], bf16_to_float(float_to_bf16(x[i])), part[i % 2]);
        if (i + 1 == n || (i + 1) % (2 * step_pairs) == 0)
            sum += part[0] + part[1];
    }
    return sum;
}

// Rule 17: the halves of each `size` neighbours first, then their sums and differences.
static inline void plain_halves(float *x, int size) {
    if (size == 1)
        return;
    plain_halves(x, size / 2);
    plain_halves(x + size / 2, size / 2);
    for (int i = 0; i < size / 2; i++) {
        float a = x[i], b = x[i + size / 2];
        x[i] = a + b;
        x[i + size / 2] = a - b;
    }
}

static inline void plain_turn(float *x, int d, float scale) {
    int size = 1;
    while (d % (2 * size) == 0)
        size *= 2;
    for (int i = 0; i < d; i += size)
        plain_halves(x + i, size);
    for (int i = 0; i < d; i++)
        x[i] *= scale;
}

// Rules 1, 2, 4: elements [k0, k1) of the dot of x with row n of a matrix as the file has it
static inline float plain_dot(const struct tensor *w, int n, const float *x, int k0, int k1) {
    struct ref_matrix m = {w->data, w->dtype, (int)w->shape[0], (int)w->shape[1], NULL};
    float acc = 0;
    if (w->dtype == DTYPE_F32 || w->dtype == DTYPE_F16) {
        for (int k = k0; k < k1; k++)
            acc = fmaf(ref_element(&m, n, k), x[k], acc);
    } else if (w->dtype == DTYPE_BF16) {
        float row[k1 - k0 + 1];
        for (int k = k0; k < k1; k++)
            row[k - k0] = ref_element(&m, n, k);
        acc = plain_pairs(0, row, x + k0, k1 - k0, 16);
    } else {
        for (int k = k0; k < k1; k += 32) {
            struct plain_block block = plain_block(w, n, k / 32);
            float max = 0;
            for (int i = 0; i < 32; i++)
                max = fmaxf(max, fabsf(x[k + i]));
            const float d = max / 127, inverse = 127 / max;
            int dot[2] = {0}, sum[2] = {0}, halves = block.halves ? 2 : 1;
            for (int i = 0; i < 32; i++) {
                int q = (int)nearbyintf(x[k + i] * inverse);
                dot[i / 16 % halves] += block.w[i] * q;
                sum[i / 16 % halves] += q;
            }
            for (int h = 0; h < halves; h++) {
                acc = fmaf((float)dot[h], d * block.scale[h], acc);
                if (block.minimum)
                    acc = fmaf(block.offset[h], d * (float)sum[h], acc);
            }
        }
    }
    return acc;
}

// Rule 3
static inline float plain_segments(const struct tensor *w, int n, const float *x) {
    int block = w->dtype == DTYPE_BF16 ? 2 : dtype_block(w->dtype), cols = (int)w->shape[1];
    int blocks = (cols + block - 1) / block;
    float s[8];
    for (int i = 0; i < 8; i++) {
        int k1 = blocks * (i + 1) / 8 * block;
        s[i] = plain_dot(w, n, x, blocks * i / 8 * block, k1 < cols ? k1 : cols);
    }
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

// Rules 8 to 10 and 17: one query over tokens [begin, end). k, v (end, d), in pairs where queries are rounded
// to bf16; ks, vs (end) their scales
static inline void plain_attention(float *out, const float *q, const float *k, const float *v,
                                   const float *ks, const float *vs, bool pairs, int begin, int end, int d,
                                   float scale, float cap, const float *sink) {
    float all_max = -INFINITY, all_sum = 0, log2_scale = (cap > 0 ? cap : scale) * 1.44269504088896341f;
    memset(out, 0, (size_t)d * sizeof *out);
    for (int chunk = begin / 256 * 256; chunk < end; chunk += 256) {
        float max = -INFINITY, sum = 0, o[256] = {0};
        for (int step = chunk; step < chunk + 256 && step < end; step += 64) {
            int t0 = step > begin ? step : begin, t1 = step + 64 < end ? step + 64 : end;
            if (t0 >= t1)
                continue;
            float s[64], lane[16] = {0}, top = -INFINITY;
            for (int t = t0; t < t1; t++) {
                float acc = 0;
                if (pairs)
                    acc = plain_pairs(0, k + t * d, q, d, 8);
                else
                    for (int i = 0; i < d; i++)
                        acc = fmaf(k[t * d + i], q[i], acc);
                s[t - step] = cap > 0 ? plain_tanh(acc * ks[t] * (scale / cap)) : acc * ks[t];
                top = fmaxf(top, s[t - step]);
            }
            top = fmaxf(max, top * log2_scale);
            float rescale = plain_exp2(max - top, false);
            for (int t = t0; t < t1; t++) {
                s[t - step] = plain_exp2(s[t - step] * log2_scale - top, pairs);
                lane[t % 16] += s[t - step];
            }
            sum = fmaf(sum, rescale, plain_tree(lane));
            max = top;
            for (int i = 0; i < d; i++) {
                o[i] *= rescale;
                float column[64] = {0}, p[64] = {0}; // what is not attended to counts as zero
                for (int t = t0; t < t1; t++)
                    column[t - step] = v[t * d + i], p[t - step] = s[t - step] * vs[t];
                int from = t0 - step, past = t1 - step;
                if (pairs)
                    o[i] = plain_pairs(o[i], column + from / 16 * 16, p + from / 16 * 16,
                                       (past + 1) / 2 * 2 - from / 16 * 16, 8);
                for (int t = from; !pairs && t < past; t++)
                    o[i] = fmaf(column[t], p[t], o[i]);
            }
        }
        float top = fmaxf(all_max, max), old = plain_exp2(all_max - top, false),
              new = plain_exp2(max - top, false);
        all_sum = fmaf(sum, new, all_sum * old);
        all_max = top;
        for (int i = 0; i < d; i++)
            out[i] = fmaf(o[i], new, out[i] * old);
    }
    if (sink) {
        float own = *sink * 1.44269504088896341f, top = fmaxf(all_max, own);
        float old = plain_exp2(all_max - top, false);
        all_sum = plain_exp2(own - top, false) + all_sum * old;
        for (int i = 0; i < d; i++)
            out[i] = 0 + out[i] * old;
    }
    for (int i = 0; i < d; i++)
        out[i] /= all_sum;
}

static inline void plain_rope(float *x, const struct rope_config *r, int position) {
    for (int i = 0; i < r->dim / 2; i++) {
        float c = (float)cos(position * rope_frequency(r, i)),
              s = (float)sin(position * rope_frequency(r, i));
        float *a = x + (r->interleaved ? 2 * i : i), *b = x + (r->interleaved ? 2 * i + 1 : i + r->dim / 2);
        float x0 = *a, x1 = *b;
        *a = x0 * c - x1 * s;
        *b = x0 * s + x1 * c;
    }
}
