// Weights as the CPU backend keeps them: panels of 16 rows (layouts in kernels.h and README.md).
#pragma once

#include "kernels.h"
#include "tensor.h"

#include <stddef.h>

// A bit for each type whose activations are act_q8
#define X(type, packed) | 1u << DTYPE_##type
enum { DTYPES_QUANTISED = 0 QUANTISED_MAP(X) };
#undef X

// The type of a file's matrix in panels: FP8 becomes BF16.
enum dtype pack_dtype(enum dtype dtype);

// Bytes of a block of a panel: dtype_sum_block() elements of each of 16 rows.
size_t pack_block_bytes(enum dtype dtype);

// Packs rows [row, row + 16) of a matrix (rows, cols) as a file has it into ceil(cols / dtype_sum_block) blocks.
// Rows and columns past the matrix become zero.
void pack_panel(void *dst, const void *src, enum dtype dtype, int rows, int cols, int row);

// y (cols) = one row of a panel in f32: exactly what the file says.
void pack_read_row(float *y, const void *panel, enum dtype dtype, int cols, int lane);
