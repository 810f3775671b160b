// The quantised formats of ggml, in blocks of 32 or 256 numbers: what a block of a file holds, and how rows
// of f32 become blocks. Pure functions: any thread, no allocation, the same bits on every machine.
// "Quantised" is a type with dtype_block() > 1; README.md of base/ says how the encoders choose.
#pragma once

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

// y (n) = a row of blocks as f32; n is a multiple of the block. Where a format has a minimum there is one
// rounding, else none.
void quants_decode(float *y, const void *src, enum dtype dtype, int64_t n);

// dst (dtype_row_bytes(dtype, n) bytes) = the row x (n) in blocks; n is a multiple of the block. The numbers
// are finite and of magnitude at most quants_limit(dtype); beyond it they are cut to what the format holds.
void quants_encode(void *dst, enum dtype dtype, const float *x, int64_t n);

// The largest magnitude that a block of a quantised type can hold with either sign.
float quants_limit(enum dtype dtype);

#ifdef __cplusplus
}
#endif
