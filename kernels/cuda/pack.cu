// Weights as the file has them into the order of the lanes that multiply them (README, "Layouts"), once, at
// load. One thread takes 32 columns of one row: no two threads write the same byte.
#include "blocks.h"
#include "common.cuh"

enum { PACK_THREADS = 128 };

KD_FN int packed_row(const struct cuda_pack &a, int r) {
    return a.row0 + (a.interleave ? r / 8 * 16 + r % 8 + (a.interleave == 2 ? 8 : 0) : r);
}

KD_FN void pack_plain(const struct cuda_pack &a, int r, int g32) {
    size_t from = (size_t)r * (size_t)a.cols, to = (size_t)packed_row(a, r) * (size_t)a.w.cols;
    for (int k = g32 * 32; k < g32 * 32 + 32 && k < a.cols; k++)
        if (a.dtype == DTYPE_F32)
            ((float *)a.w.data)[to + (size_t)k] = ((const float *)a.raw)[from + (size_t)k];
        else
            ((uint16_t *)a.w.data)[to + (size_t)k] = ((const uint16_t *)a.raw)[from + (size_t)k];
}

KD_FN void pack_quants(const struct cuda_pack &a, int r, int g32) {
    const uint8_t *row = (const uint8_t *)a.raw + (size_t)r * quant_row_bytes(a.dtype, a.cols);
    bool nibbles = cuda_layout_has_nibbles(a.w.layout);
    int n = packed_row(a, r), tile = n / 16, in_tile = n % 16, lower = in_tile / 8;
    int step = nibbles ? g32 / 2 : g32, steps = a.w.cols / (nibbles ? 64 : 32);
    bool fp8 = a.w.layout == LAYOUT_FP8 || a.w.layout == LAYOUT_FP8_32,
         halves = a.w.layout == LAYOUT_Q6_K || a.w.layout == LAYOUT_Q2_K;
    int offset = a.w.layout == LAYOUT_Q8_0 || a.w.layout == LAYOUT_Q6_K   ? 128
                 : a.w.layout == LAYOUT_Q4_0 || a.w.layout == LAYOUT_Q2_K ? 8
                                                                          : 0;
    uint32_t *words = (uint32_t *)a.w.data + (((size_t)tile * (size_t)steps + (size_t)step) * 32) * 4;
    struct quant e = {}, second = {}; // the first of each 16 columns, which have scales in common
    for (int t = 0; t < 4; t++) {     // lanes in_tile % 8 * 4 + t
        uint32_t *lane = words + (in_tile % 8 * 4 + t) * 4;
        uint32_t word[2] = {0, 0};
        for (int i = 0; i < 8; i++) { // the lane's 8 columns, in the order of its fragments
            int k = halves ? i / 4 * 16 + t * 4 + i % 4 : t * 8 + i;
            struct quant one = quant_element(a.dtype, row, g32 * 32 + k);
            uint32_t q = (uint32_t)(one.q + offset);
            if (k == 0)
                e = one;
            if (k == 16)
                second = one;
            if (a.w.layout == LAYOUT_IQ4)
                word[0] |= q << (i * 4);
            else if (nibbles)
                word[0] |= q << (i / 2 * 4 + i % 2 * 16);
            else if (fp8) // the upper bytes of both halves first
                word[i / 4] |= q << (8 * (i % 4 < 2 ? 1 + i % 2 * 2 : i % 2 * 2));
            else
                word[i / 4] |= q << (8 * (i % 4));
        }
        if (nibbles) {
            lane[g32 % 2 * 2 + lower] = word[0];
        } else {
            lane[lower * 2] = word[0];
            lane[lower * 2 + 1] = word[1];
        }
    }
    size_t at = ((size_t)tile * (size_t)(a.w.cols / 32) + (size_t)g32) * 8 + (size_t)(in_tile % 8);
    // Groups of 32 columns that have the same factors.
    int shared = a.w.layout == LAYOUT_Q5_1 || a.w.layout == LAYOUT_FP8_32 ? 1 : fp8 ? 4 : 8;
    size_t super = ((size_t)tile * (size_t)(a.w.cols / 32 / shared) + (size_t)(g32 / shared)) * 8 +
                   (size_t)(in_tile % 8);
    uint8_t *bytes = (uint8_t *)a.w.scales + at * 4;
    if (a.w.layout == LAYOUT_Q8_0 || a.w.layout == LAYOUT_Q4_0) {
        ((uint16_t *)a.w.scales)[at * 2 + (size_t)lower] = e.d;
    } else if (a.w.layout == LAYOUT_Q6_K) {
        bytes[lower] = (uint8_t)e.scale;
        bytes[2 + lower] = (uint8_t)second.scale;
        if (g32 % 8 == 0)
            ((uint16_t *)a.w.supers)[super * 2 + (size_t)lower] = e.d;
    } else if (a.w.layout == LAYOUT_IQ4) {
        ((float *)a.w.scales)[at * 2 + (size_t)lower] = kd_half_to_float(e.d) * (float)e.scale; // exact
    } else if (fp8) {
        if (g32 % shared == 0)
            ((uint32_t *)a.w.supers)[super * 2 + (size_t)lower] = (uint32_t)e.scale;
    } else if (a.w.layout == LAYOUT_MXFP4) { // a word has both groups of a step
        at = ((size_t)tile * (size_t)steps + (size_t)step) * 8 + (size_t)(in_tile % 8);
        ((uint8_t *)a.w.scales)[at * 4 + (size_t)(g32 % 2 * 2 + lower)] = (uint8_t)e.scale;
    } else {
        if (a.w.layout == LAYOUT_Q2_K) { // a word of each row
            bytes += at * 4 + (size_t)lower * 4;
            bytes[0] = (uint8_t)e.scale;
            bytes[1] = (uint8_t)second.scale;
            bytes[2] = (uint8_t)e.min;
            bytes[3] = (uint8_t)second.min;
        } else {
            bytes[lower] = (uint8_t)e.scale;
            bytes[2 + lower] = (uint8_t)e.min;
        }
        if (g32 % shared == 0) {
            ((uint16_t *)a.w.supers)[super * 4 + (size_t)lower] = e.d;
            ((uint16_t *)a.w.supers)[super * 4 + 2 + (size_t)lower] = e.dmin;
        }
    }
}

__global__ void __launch_bounds__(PACK_THREADS) pack_rows(struct cuda_pack a) {
    kd_grid_release();
    kd_grid_wait();
    int groups = (a.cols + 31) / 32;
    long long i = (long long)blockIdx.x * PACK_THREADS + threadIdx.x;
    if (i >= (long long)groups * a.rows)
        return;
    if (a.w.layout <= LAYOUT_F16)
        pack_plain(a, (int)(i / groups), (int)(i % groups));
    else
        pack_quants(a, (int)(i / groups), (int)(i % groups));
}

enum { SCATTER_THREADS = 256, SCATTER_BLOCKS = 16 };

__global__ void __launch_bounds__(SCATTER_THREADS) scatter(struct cuda_scatter a) {
    kd_grid_release();
    kd_grid_wait();
    const struct cuda_part part = ((const struct cuda_part *)a.upload)[blockIdx.y];
    const uint4 *from = (const uint4 *)((const char *)a.upload + part.from);
    for (unsigned i = blockIdx.x * SCATTER_THREADS + threadIdx.x; i < part.num;
         i += SCATTER_BLOCKS * SCATTER_THREADS)
        ((uint4 *)part.to)[i] = from[i];
}

extern "C" {

void cuda_scatter(struct rt *rt, const struct cuda_scatter *a) {
    rt_launch(rt, scatter, rt_grid_of(SCATTER_BLOCKS, a->num_parts, SCATTER_THREADS, 0), *a);
}

enum weight_layout cuda_layout_of(enum dtype t, int cols) {
    switch (t) {
    case DTYPE_F32: return LAYOUT_F32;
    case DTYPE_BF16: return LAYOUT_BF16;
    case DTYPE_F16: return LAYOUT_F16;
    case DTYPE_Q8_0:
    case DTYPE_Q5_0: return LAYOUT_Q8_0;
    case DTYPE_Q4_0: return LAYOUT_Q4_0;
    case DTYPE_Q4_K: return LAYOUT_Q4_K;
    case DTYPE_Q5_K: return LAYOUT_Q5_K;
    case DTYPE_Q4_1:
    case DTYPE_Q5_1: return LAYOUT_Q5_1;
    case DTYPE_Q6_K: return LAYOUT_Q6_K;
    case DTYPE_Q2_K:
    case DTYPE_Q3_K: return LAYOUT_Q2_K;
    case DTYPE_MXFP4: return LAYOUT_MXFP4;
    case DTYPE_IQ4_NL:
    case DTYPE_IQ4_XS: return LAYOUT_IQ4;
    case DTYPE_FP8: return cols % 128 ? LAYOUT_FP8_32 : LAYOUT_FP8;
    default: return LAYOUT_COUNT;
    }
}

int cuda_layout_k_step(enum weight_layout f) { return cuda_layout_has_nibbles(f) ? 64 : 32; }

void cuda_matrix_bytes(enum weight_layout f, int rows, int cols, size_t bytes[3]) {
    size_t all = (size_t)rows * (size_t)cols, groups = all / 32, supers = all / 256;
    bytes[0] = f == LAYOUT_F32              ? all * 4
               : f <= LAYOUT_F16            ? all * 2
               : cuda_layout_has_nibbles(f) ? all / 2
                                            : all;
    bytes[1] = f <= LAYOUT_F16 || f >= LAYOUT_FP8    ? 0
               : f == LAYOUT_MXFP4                   ? groups
               : f == LAYOUT_Q2_K || f == LAYOUT_IQ4 ? groups * 4
                                                     : groups * 2; // an f16, or two 8-bit scales
    bytes[2] = f == LAYOUT_Q4_K || f == LAYOUT_Q5_K || f == LAYOUT_Q2_K ? supers * 4
               : f == LAYOUT_Q5_1 || f == LAYOUT_FP8_32                 ? groups * 4
               : f == LAYOUT_FP8                                        ? groups
               : f == LAYOUT_Q6_K                                       ? supers * 2
                                                                        : 0;
}

void cuda_pack(struct rt *rt, const struct cuda_pack *a) {
    long long threads = (long long)((a->cols + 31) / 32) * a->rows;
    rt_launch(rt, pack_rows,
              rt_grid_of((int)((threads + PACK_THREADS - 1) / PACK_THREADS), 1, PACK_THREADS, 0), *a);
}

} // extern "C"
