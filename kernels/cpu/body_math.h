// Parts of rows, exponentials and tanh over 16 lanes: part of body.h, and of what amx.c has of its own.
#pragma once

#include "body_inline.h"

#include <math.h>

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

#ifndef V16_EIGHT
// Sums of eight vectors, in the first eight lanes; zeros after
static inline struct v16 v16_sums(const struct v16 *x) {
    float y[16] = {0};
    for (int i = 0; i < 8; i++)
        y[i] = v16_sum(x[i]);
    return v16_load(y);
}
static inline struct v16 v16_largests(const struct v16 *x) {
    float y[16] = {0};
    for (int i = 0; i < 8; i++)
        y[i] = v16_largest(x[i]);
    return v16_load(y);
}
#endif

// exp: x = n ln 2 + f, 2^n times the polynomial of Cephes' expf in f. At most 1 ulp off; exactly 0 below
// -87.33, infinity above 88.37, NaN for NaN (rule 6).
INLINE struct v16 exp_core(struct v16 x) { // for x that 2^n of a normal number can hold, or NaN
    struct v16 t = v16_fma(x, v16_set1(1.44269504088896341f), v16_set1(0x1.8p23f));
    struct v16 n = v16_sub(t, v16_set1(0x1.8p23f));
    struct v16 f = v16_fma(n, v16_set1(-0.693359375f), x);
    f = v16_fma(n, v16_set1(2.12194440e-4f), f);
    struct v16 p = v16_set1(1.9875691500e-4f);
    p = v16_fma(p, f, v16_set1(1.3981999507e-3f));
    p = v16_fma(p, f, v16_set1(8.3334519073e-3f));
    p = v16_fma(p, f, v16_set1(4.1665795894e-2f));
    p = v16_fma(p, f, v16_set1(1.6666665459e-1f));
    p = v16_fma(p, f, v16_set1(5.0000001201e-1f));
    p = v16_add(v16_fma(p, v16_mul(f, f), f), v16_set1(1));
    return v16_mul(p, v16_power(t));
}

INLINE struct v16 exp_v16(struct v16 x) {
    const struct v16 low = v16_set1(-87.33f), high = v16_set1(88.37f);
    struct v16 p = exp_core(v16_min(high, v16_max(low, x))); // this order of arguments lets a NaN through
    p = v16_if_less(x, low, v16_set1(0), p);
    return v16_if_less(high, x, v16_set1(INFINITY), p);
}

INLINE struct v16 tanh_v16(struct v16 x) {
    struct v16 z = v16_add(v16_set1(1), exp_v16(v16_add(x, x)));
    return v16_sub(v16_set1(1), v16_div(v16_set1(2), z));
}
