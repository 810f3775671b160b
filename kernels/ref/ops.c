#include "half.h"
#include "log.h"
#include "ref.h"
#include "rope.h"

#include <math.h>

float ref_fetch(const void *src, enum dtype dtype) {
    uint16_t h;
    float f;
    switch (dtype) {
    case DTYPE_F16: memcpy(&h, src, sizeof h); return half_to_float(h);
    case DTYPE_BF16: memcpy(&h, src, sizeof h); return bf16_to_float(h);
    default: memcpy(&f, src, sizeof f); return f;
    }
}

void ref_store(void *dst, enum dtype dtype, float x) {
    uint16_t h = dtype == DTYPE_F16 ? float_to_half(x) : float_to_bf16(x);
    if (dtype == DTYPE_F32)
        memcpy(dst, &x, sizeof x);
    else
        memcpy(dst, &h, sizeof h);
}

float ref_element(const struct ref_matrix *w, int n, int k) {
    const char *row = (const char *)w->data + (size_t)n * dtype_row_bytes(w->dtype, w->cols);
    if (w->dtype != DTYPE_Q8_0)
        return ref_fetch(row + dtype_row_bytes(w->dtype, k), w->dtype);
    const char *block = row + (size_t)(k / 32) * 34; // f16 scale, 32 signed bytes
    int8_t q;
    memcpy(&q, block + 2 + k % 32, 1);
    return ref_fetch(block, DTYPE_F16) * (float)q;
}

void ref_matvec(float *y, const float *x, const struct ref_matrix *w) {
    for (int n = 0; n < w->rows; n++) {
        double sum = 0;
        for (int k = 0; k < w->cols; k++)
            sum += (double)x[k] * (double)ref_element(w, n, k);
        y[n] = (float)(sum + (w->bias ? (double)w->bias[n] : 0));
    }
}

void ref_rmsnorm(float *y, const float *x, const float *w, int n, float eps) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    double scale = 1 / sqrt(sum / n + (double)eps);
    for (int i = 0; i < n; i++)
        y[i] = (float)((double)x[i] * scale * (double)w[i]);
}

void ref_swiglu(float *y, const float *gate, const float *up, int n) {
    for (int i = 0; i < n; i++)
        y[i] = (float)((double)gate[i] / (1 + exp(-(double)gate[i])) * (double)up[i]);
}

void ref_rope(float *x, const struct rope_config *rope, int position) {
    double magnitude = rope_magnitude(rope);
    int half = rope->dim / 2;
    for (int i = 0; i < half; i++) {
        double angle = position * rope_frequency(rope, i);
        double c = cos(angle) * magnitude, s = sin(angle) * magnitude;
        int ia = rope->interleaved ? 2 * i : i, ib = rope->interleaved ? 2 * i + 1 : i + half;
        double a = (double)x[ia], b = (double)x[ib];
        x[ia] = (float)(a * c - b * s);
        x[ib] = (float)(a * s + b * c);
    }
}

void ref_attention(float *o, const float *q, const float *k, const float *v, int n, int d, int stride,
                   double scale) {
    CHECK(n > 0 && d <= 1024);
    double max = -INFINITY, sum = 0, acc[1024] = {0};
    for (int pass = 0; pass < 2; pass++) { // the maximum first, then the weights
        for (int t = 0; t < n; t++) {
            double s = 0;
            for (int i = 0; i < d; i++)
                s += (double)q[i] * (double)k[(size_t)t * (size_t)stride + (size_t)i];
            s *= scale;
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
        o[i] = (float)(acc[i] / sum);
}
