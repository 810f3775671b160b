#include "ref_ops.h"
#include "hadamard.h"
#include "half.h"
#include "log.h"
#include "rope.h"

#include <math.h>

float ref_fetch(const void *src, enum dtype dtype) {
    uint16_t h;
    float f;
    switch (dtype) {
    case DTYPE_F16: memcpy(&h, src, sizeof h); return half_to_float(h);
    case DTYPE_BF16: memcpy(&h, src, sizeof h); return bf16_to_float(h);
    case DTYPE_F8_E4M3: return e4m3_to_float(*(const uint8_t *)src);
    default: memcpy(&f, src, sizeof f); return f;
    }
}

void ref_store(void *dst, enum dtype dtype, float x) {
    uint16_t h = dtype == DTYPE_F16 ? float_to_half(x) : float_to_bf16(x);
    if (dtype == DTYPE_F32)
        memcpy(dst, &x, sizeof x);
    else if (dtype == DTYPE_F8_E4M3)
        *(uint8_t *)dst = float_to_e4m3(x);
    else
        memcpy(dst, &h, sizeof h);
}

void ref_quantise(int8_t *q, float *scale, const float *x, int d) {
    float max = 0;
    bool finite = true;
    for (int i = 0; i < d; i++) {
        finite &= isfinite(x[i]) != 0;
        max = fmaxf(max, fabsf(x[i]));
    }
    bool zero = !finite || max < 0x1p-100f;
    *scale = !finite ? NAN : zero ? 0 : max / 127;
    for (int i = 0; i < d; i++)
        q[i] = zero ? 0 : (int8_t)lrintf(x[i] * (127 / max));
}

// Scale and minimum j of 8, 6 bits each, in the 12 bytes of a Q4_K or Q5_K block
static void scale_and_min(const uint8_t *p, int j, int *scale, int *min) {
    *scale = j < 4 ? p[j] & 63 : (p[j + 4] & 15) | p[j - 4] >> 6 << 4;
    *min = j < 4 ? p[j + 4] & 63 : p[j + 4] >> 4 | p[j] >> 6 << 4;
}

// The values of the nibbles of IQ4_NL and IQ4_XS; and twice the magnitudes of a 4-bit float of MXFP4
static const signed char iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const signed char e2m1[8] = {0, 1, 2, 3, 4, 6, 8, 12};

// Element k of a block of ggml's quantised formats or FP8. Each product of ggml's is exact in f32.
static float block_element(const uint8_t *block, enum dtype dtype, int k) {
    int scale, min, q, j = k / 32; // j: which 32 of the 256 of a K block
    const uint8_t *low, *high;
    switch (dtype) {
    case DTYPE_Q8_0: // f16 scale, 32 signed bytes
        return ref_fetch(block, DTYPE_F16) * (float)(int8_t)block[2 + k];
    case DTYPE_Q4_0: // f16 scale, 16 bytes: elements 0..15 in the low nibbles, 16..31 in the high ones
        q = k < 16 ? block[2 + k] & 15 : block[2 + k - 16] >> 4;
        return ref_fetch(block, DTYPE_F16) * (float)(q - 8);
    case DTYPE_Q4_K: // f16 scale, f16 minimum, 12 bytes of 6-bit scales and minima, 4 x 32 bytes of nibbles
    case DTYPE_Q5_K: // and before those nibbles 32 bytes, bit j of byte i: the fifth bit of element i of 32 j
        scale_and_min(block + 4, j, &scale, &min);
        low = block + (dtype == DTYPE_Q4_K ? 16 : 48);
        q = low[j / 2 * 32 + k % 32] >> (j % 2 * 4) & 15;
        if (dtype == DTYPE_Q5_K)
            q |= (block[16 + k % 32] >> j & 1) << 4;
        return ref_fetch(block, DTYPE_F16) * (float)scale * (float)q -
               ref_fetch(block + 2, DTYPE_F16) * (float)min;
    case DTYPE_Q6_K: // 128 bytes low, 64 high, 16 signed scales, f16 scale; two halves of 4 x 32 elements
        low = block + k / 128 * 64 + j % 2 * 32 + k % 32;
        high = block + 128 + k / 128 * 32 + k % 32;
        q = (*low >> (j % 4 / 2 * 4) & 15) | (*high >> (j % 4 * 2) & 3) << 4;
        return ref_fetch(block + 208, DTYPE_F16) * (float)(int8_t)block[192 + k / 16] * (float)(q - 32);
    case DTYPE_Q4_1: // f16 scale, f16 minimum to add, 16 bytes of nibbles as in Q4_0
    case DTYPE_Q5_1: // and before those nibbles 4 bytes: the fifth bit of element k is bit k
        q = block[(dtype == DTYPE_Q4_1 ? 4 : 8) + k % 16] >> k / 16 * 4 & 15;
        if (dtype == DTYPE_Q5_1)
            q |= (block[4 + k / 8] >> k % 8 & 1) << 4;
        return ref_fetch(block, DTYPE_F16) * (float)q + ref_fetch(block + 2, DTYPE_F16);
    case DTYPE_Q5_0: // f16 scale, 4 bytes of fifth bits, 16 bytes of nibbles
        q = (block[6 + k % 16] >> k / 16 * 4 & 15) | (block[2 + k / 8] >> k % 8 & 1) << 4;
        return ref_fetch(block, DTYPE_F16) * (float)(q - 16);
    case DTYPE_IQ4_NL: // f16 scale, 16 bytes of nibbles, which are indices
        return ref_fetch(block, DTYPE_F16) * (float)iq4[block[2 + k % 16] >> k / 16 * 4 & 15];
    case DTYPE_IQ4_XS: // f16 scale; 8 scales, 2 bytes of upper and 4 of lower bits; 8 x 16 bytes of nibbles
        scale = (block[4 + j / 2] >> j % 2 * 4 & 15) | (block[2 + j / 4] >> j % 4 * 2 & 3) << 4;
        q = iq4[block[8 + 16 * j + k % 16] >> k % 32 / 16 * 4 & 15];
        return ref_fetch(block, DTYPE_F16) * (float)(scale - 32) * (float)q;
    case DTYPE_FP8: // f32 scale, 32 bytes of E4M3
        return bf16_to_float(float_to_bf16(e4m3_to_float(block[4 + k]) * ref_fetch(block, DTYPE_F32)));
    case DTYPE_MXFP4: // a byte of exponent, 16 bytes of nibbles: sign, two bits of exponent, one of mantissa
        q = block[1 + k % 16] >> k / 16 * 4 & 15;
        return ldexpf(1, block[0] - 128) * (float)(q & 8 ? -e2m1[q & 7] : e2m1[q & 7]);
    case DTYPE_Q3_K: // 32 bytes, bit j of byte i: the third bit of element i of 32 j; 64 bytes of two bits
                     // for two halves of 4 x 32 elements; 16 scales of 6 bits; f16 scale
        j = k / 16;
        scale = (block[96 + j % 8] >> j / 8 * 4 & 15) | (block[104 + j % 4] >> j / 4 * 2 & 3) << 4;
        q = (block[32 + k / 128 * 32 + k % 32] >> k % 128 / 32 * 2 & 3) | (block[k % 32] >> k / 32 & 1) << 2;
        return ref_fetch(block + 108, DTYPE_F16) * (float)(scale - 32) * (float)(q - 4);
    case DTYPE_Q2_K: // 16 bytes, scale low and minimum high; 64 bytes of two bits as in Q3_K; two f16
        j = k / 16;
        q = block[16 + k / 128 * 32 + k % 32] >> k % 128 / 32 * 2 & 3;
        return ref_fetch(block + 80, DTYPE_F16) * (float)(block[j] & 15) * (float)q -
               ref_fetch(block + 82, DTYPE_F16) * (float)(block[j] >> 4);
    default: return 0;
    }
}

float ref_element(const struct ref_matrix *w, int n, int k) {
    const uint8_t *row = (const uint8_t *)w->data + (size_t)n * dtype_row_bytes(w->dtype, w->cols);
    int block = dtype_block(w->dtype);
    if (block == 1)
        return ref_fetch(row + dtype_row_bytes(w->dtype, k), w->dtype);
    return block_element(row + dtype_row_bytes(w->dtype, k / block * block), w->dtype, k % block);
}

struct ref_matrix ref_decode(float *to, const struct ref_matrix *w) {
    for (int n = 0; n < w->rows; n++)
        for (int k = 0; k < w->cols; k++)
            to[(size_t)n * (size_t)w->cols + (size_t)k] = ref_element(w, n, k);
    return (struct ref_matrix){to, DTYPE_F32, w->rows, w->cols, w->bias};
}

void ref_matvec(float *y, const float *x, const struct ref_matrix *w) {
    const float *row = w->dtype == DTYPE_F32 ? w->data : NULL;
    for (int n = 0; n < w->rows; n++, row += row ? w->cols : 0) {
        double sum = 0;
        for (int k = 0; k < w->cols; k++)
            sum += (double)x[k] * (double)(row ? row[k] : ref_element(w, n, k));
        y[n] = (float)(sum + (w->bias ? (double)w->bias[n] : 0));
    }
}

void ref_rmsnorm(float *y, const float *x, const float *w, int n, float eps) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    double scale = 1 / sqrt(sum / n + (double)eps);
    for (int i = 0; i < n; i++)
        y[i] = (float)((double)x[i] * scale * (w ? (double)w[i] : 1));
}

void ref_layernorm(float *y, const float *x, const float *w, const float *b, int n, float eps) {
    double mean = 0, sum = 0;
    for (int i = 0; i < n; i++)
        mean += (double)x[i] / n;
    for (int i = 0; i < n; i++)
        sum += ((double)x[i] - mean) * ((double)x[i] - mean);
    double scale = 1 / sqrt(sum / n + (double)eps);
    for (int i = 0; i < n; i++)
        y[i] = (float)(((double)x[i] - mean) * scale * (double)w[i] + (b ? (double)b[i] : 0));
}

static double activate(enum act act, double x) {
    switch (act) {
    case ACT_SILU: return x / (1 + exp(-x));
    case ACT_GELU: return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    case ACT_GELU_ERF: return 0.5 * x * erfc(-x * 0.70710678118654752440);
    case ACT_RELU2: return x < 0 ? 0 : x * x;
    case ACT_RELU: return x < 0 ? 0 : x;
    default: return NAN;
    }
}

static double clamped(double gate, double up) {
    double g = fmin(gate, 7), u = fmin(fmax(up, -7), 7);
    return isnan(gate) || isnan(up) ? NAN : g / (1 + exp(-1.702 * g)) * (u + 1);
}

void ref_act(float *y, enum act act, const float *gate, const float *up, int n) {
    for (int i = 0; i < n; i++)
        y[i] = (float)(act == ACT_CLAMPED ? clamped((double)gate[i], up ? (double)up[i] : 0)
                                          : activate(act, (double)gate[i]) * (up ? (double)up[i] : 1));
}

void ref_xielu(float *y, const float *x, int n, const struct xielu *p) {
    for (int i = 0; i < n; i++) {
        double v = (double)x[i], low = v < (double)p->eps ? v : (double)p->eps;
        double part = v > 0 ? (double)p->positive * v * v : (double)p->negative * (expm1(low) - v);
        y[i] = (float)(part + (double)p->beta * v);
    }
}

enum { MAX_EXPERTS = 1024 };

// The experts that may be chosen: of the best groups.
static void choose_groups(bool *may, const double *score, const struct ffn_spec *ffn) {
    int groups = ffn->groups > 1 ? ffn->groups : 1, n = ffn->experts / groups;
    bool taken[MAX_EXPERTS] = {false};
    double sum[MAX_EXPERTS];
    for (int g = 0; groups > 1 && g < groups; g++) {
        double best[2] = {-INFINITY, -INFINITY};
        for (int e = g * n; e < (g + 1) * n; e++) {
            double low = fmin(score[e], best[0]);
            best[0] = fmax(score[e], best[0]);
            best[1] = fmax(low, best[1]);
        }
        sum[g] = ffn->gating == GATING_SOFTMAX ? best[0] : best[0] + best[1];
    }
    for (int k = 0; k < (groups > 1 ? ffn->top_groups : 1); k++) {
        int best = -1;
        for (int g = 0; g < groups; g++)
            if (!taken[g] && (best < 0 || (groups > 1 && sum[g] > sum[best])))
                best = g;
        taken[best] = true;
    }
    for (int e = 0; e < ffn->experts; e++)
        may[e] = groups == 1 || taken[e / n];
}

// The weight of the expert `best` among those that may be chosen and are near it.
static double weight_in_turn(const float *logits, const bool *may, const bool *chosen, int best,
                             const struct ffn_spec *ffn) {
    double sum = 0, max = (double)logits[best];
    for (int e = 0; e < ffn->experts; e++) {
        double l = (double)logits[e];
        if (may[e] && !chosen[e] && !((max - l) / fmax(fabs(l), max) > (double)ffn->near))
            sum += exp(l - max);
    }
    return 1 / sum;
}

void ref_route(int *experts, float *weights, const float *logits, const float *select_bias,
               const float *factors, const struct ffn_spec *ffn) {
    int E = ffn->experts, n = 0;
    double score[MAX_EXPERTS], key[MAX_EXPERTS], max = -INFINITY, z = 0, sum = 0;
    bool may[MAX_EXPERTS], chosen[MAX_EXPERTS] = {false};
    CHECK(E <= MAX_EXPERTS && ffn->top_k <= E);
    for (int e = 0; e < E; e++) // not fmax(), of which gcc 12 for ARM64 dies here
        max = (double)logits[e] > max ? (double)logits[e] : max;
    for (int e = 0; e < E; e++)
        z += exp((double)logits[e] - max);
    for (int e = 0; e < E; e++) {
        double l = (double)logits[e];
        score[e] = ffn->gating == GATING_SIGMOID ? 1 / (1 + exp(-l)) : exp(l - max) / z;
        key[e] = (ffn->gating == GATING_SOFTMAX_CHOSEN || ffn->gating == GATING_IN_TURN ? l : score[e]) +
                 (select_bias ? (double)select_bias[e] : 0);
    }
    choose_groups(may, key, ffn);
    for (int k = 0; k < ffn->top_k; k++) { // ties to the lower id
        int best = -1;
        for (int e = 0; e < E; e++)
            if (may[e] && !chosen[e] && (best < 0 || key[e] > key[best]))
                best = e;
        if (ffn->gating == GATING_IN_TURN)
            score[best] = weight_in_turn(logits, may, chosen, best, ffn);
        chosen[best] = true;
    }
    for (int e = 0; e < E; e++)
        if (chosen[e])
            sum += score[e];
    bool divide = ffn->renormalise || ffn->gating == GATING_SOFTMAX_CHOSEN;
    for (int e = 0; e < E; e++)
        if (chosen[e]) {
            experts[n] = e;
            weights[n++] = (float)(score[e] / (divide ? sum + 1e-20 : 1) * (double)model_scale(ffn->scale) *
                                   (factors ? (double)factors[e] : 1));
        }
}

double ref_softcap(double x, double cap) { return cap > 0 ? cap * tanh(x / cap) : x; }

void ref_rope(float *x, const struct rope_config *rope, const int32_t positions[ROPE_AXES]) {
    double magnitude = rope_magnitude(rope);
    int half = rope->dim / 2;
    for (int i = 0; i < half; i++) {
        double angle = positions[rope_axis(&rope->sections, i)] * rope_frequency(rope, i);
        double c = cos(angle) * magnitude, s = sin(angle) * magnitude;
        int ia = rope->interleaved ? 2 * i : i, ib = rope->interleaved ? 2 * i + 1 : i + half;
        double a = (double)x[ia], b = (double)x[ib];
        x[ia] = (float)(a * c - b * s);
        x[ib] = (float)(a * s + b * c);
    }
}

void ref_hadamard(float *x, int d, double scale) {
    int size = hadamard_size(d);
    double y[1024];
    CHECK(d <= 1024);
    for (int i = 0; i < d; i++) {
        y[i] = 0;
        for (int j = 0; j < size; j++)
            y[i] += (double)x[i / size * size + j] * (__builtin_parity((unsigned)(i % size & j)) ? -1 : 1);
    }
    for (int i = 0; i < d; i++)
        x[i] = (float)(y[i] * scale);
}

void ref_attention(float *o, const float *q, const float *k, const float *v, int n, int d, int stride,
                   double scale, double softcap, double sink) {
    CHECK(n > 0 && d <= 1024);
    double max = sink, sum = 0, acc[1024] = {0};
    for (int pass = 0; pass < 2; pass++) { // the maximum first, then the probabilities
        for (int t = 0; t < n; t++) {
            double s = 0;
            for (int i = 0; i < d; i++)
                s += (double)q[i] * (double)k[(size_t)t * (size_t)stride + (size_t)i];
            s = ref_softcap(s * scale, softcap);
            if (pass == 0) {
                max = fmax(max, s);
                continue;
            }
            double p = exp(s - max);
            sum += p;
            for (int i = 0; i < d; i++)
                acc[i] += p * (double)v[(size_t)t * (size_t)stride + (size_t)i];
        }
    }
    for (int i = 0; i < d; i++)
        o[i] = (float)(acc[i] / (sum + exp(sink - max)));
}
