// The quantised formats of ggml as the CPU backend takes them: out of a file's blocks into 16-row blocks
// (kernels.h), and rows of embedding tables into f32.
#pragma once

#include "tensor.h"

#include <stddef.h>

// Bytes of one 16-row block of a quantised type; 0 for any other.
size_t cpu_quant_bytes(enum dtype dtype);

// Packs rows [row, row + 16) of a matrix (rows, num_blocks blocks) as the file has it; rows past the end are
// zero.
void cpu_quant_pack(void *dst, const void *src, enum dtype dtype, int rows, int num_blocks, int row);

// y (n) = one row, the same values as the reference's; n is a multiple of the type's block.
void cpu_dequantise(float *y, const void *src, enum dtype dtype, int n);
