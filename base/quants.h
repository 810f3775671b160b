// The quantised formats of ggml, in blocks of 32 or 256 values, and FP8: what a block of a file holds, and how rows
// of f32 become blocks. Pure functions: any thread, no allocation, the same bits on every machine.
// "Quantised" is a type with dtype_block() > 1; README.md of base/ says how the encoders choose.
#pragma once

#include "tensor.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

// The values of the 16 nibbles in IQ4_NL and IQ4_XS; in MXFP4 twice the values.
extern const int8_t quants_iq4[16], quants_mxfp4[16];

// Whether a quantised type has a minimum beside its scale: values are unsigned then.
static inline bool quants_has_minimum(enum dtype t) {
    return t == DTYPE_Q4_1 || t == DTYPE_Q5_1 || t == DTYPE_Q2_K || t == DTYPE_Q4_K || t == DTYPE_Q5_K;
}

// Where in a block the f16 scale is; the f16 minimum follows it, where there is one. MXFP4 has a byte there,
// e of 2^(e - 128).
static inline int quants_scale_offset(enum dtype t) {
    return t == DTYPE_Q6_K ? 208 : t == DTYPE_Q3_K ? 108 : t == DTYPE_Q2_K ? 80 : 0;
}

// Scales within a block of 256, of p, which is where they begin: the s-th of 8 scales and minima of Q4_K and Q5_K, 12
// bytes (bytes 0..3 and 4..7 hold the first four of each, and in their upper two bits those of the last four; bytes 8..11
// the lower four bits of these), the s-th of 16 of Q3_K, 12 bytes, and the s-th of 8 of IQ4_XS, 6 bytes.
static inline int quants_q4k_scale(const uint8_t *p, int s) {
    return s < 4 ? p[s] & 63 : (p[4 + s] & 15) | p[s - 4] >> 6 << 4;
}

static inline int quants_q4k_min(const uint8_t *p, int s) {
    return s < 4 ? p[4 + s] & 63 : p[4 + s] >> 4 | p[s] >> 6 << 4;
}

static inline int quants_q3k_scale(const uint8_t *p, int s) {
    return ((p[s % 8] >> s / 8 * 4 & 15) | (p[8 + s % 4] >> s / 4 * 2 & 3) << 4) - 32;
}

static inline int quants_iq4xs_scale(const uint8_t *p, int s) {
    return ((p[2 + s / 2] >> s % 2 * 4 & 15) | (p[s / 4] >> s % 4 * 2 & 3) << 4) - 32;
}

// Element k of a row of FP8, as BF16.
uint16_t quants_fp8(const void *row, int64_t k);

// y (n) = a row of blocks as f32; n is a multiple of the block. Where a format has a minimum, and in FP8, there is one
// rounding, else none.
void quants_decode(float *y, const void *src, enum dtype dtype, int64_t n);

// dst (dtype_row_bytes(dtype, n) bytes) = the row x (n) in blocks; n is a multiple of the block. Not for
// Q2_K, Q3_K, IQ4_XS, MXFP4 and FP8, which are only read. The values are finite and of magnitude at most
// quants_limit(dtype); beyond it they are cut to what the format holds.
void quants_encode(void *dst, enum dtype dtype, const float *x, int64_t n);

// The largest magnitude that a block of a quantised type can hold with either sign.
float quants_limit(enum dtype dtype);

#ifdef __cplusplus
}
#endif
