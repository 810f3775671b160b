// The GEMM of BF16 and F16 weights on Hopper's tensor cores (sm_90a), for any number of rows, beside those of
// gemm.cu and gemm_staged.cu: y (m, n) = x (m, k) W^T. Weights are wgmma's 64 rows and tokens its N columns, both in shared
// memory, so that no warp loads fragments and a block has twice the tile of gemm_staged.cu.
//
// One block: MB * 128 rows of W, MB times 64 for each of two warpgroups, and NT * 8 tokens, behind a ring of k-steps that
// asynchronous copies fill. Segments of K, their order, the blocks that share them and the epilogue are those of
// gemm_staged.cu. The levels of sums that wait limit the tile: all of them and the ring fill an SM's shared memory.
//
// It takes every number of rows of a matrix, or none, so that a row's bits are those of one kernel. They do not depend on
// the batch if a wgmma's do not on its N.
#include "gemm_common.cuh"
#include "wgmma.h"

#include <stdlib.h>
#include <string.h>

#ifdef KD_WGMMA

enum { WGMMA_STEP = 32 }; // columns of a k-step, in rows of 64 bytes

// Bytes of shared memory.
template <int MB, int NT> struct wgmma_shape {
    static constexpr int weights = MB * 128 * KD_NARROW_ROW, step = weights + NT * 8 * KD_NARROW_ROW;
    static constexpr int level = MB * NT * 16 * STAGED_THREADS; // of the stack
    static constexpr int room = (227 << 10) - MOST_LEVELS * level - KD_PATTERN_ALIGN;
    static constexpr int depth = room / step < CUDA_WGMMA_RING ? room / step : CUDA_WGMMA_RING,
                         ring = depth * step;
    static_assert(depth >= 4, "copies in flight");
    static_assert(ring >= NT * 16 * STAGED_THREADS, "sums lie where the ring was");
};

#ifdef KD_WGMMA_CODE

// Starts copies of 32 columns of ROWS rows, of which `exist` are there; zeros for the others.
template <int ROWS> KD_FN void copy_rows(unsigned char *to, const uint16_t *from, int ld, int exist) {
    enum { STRIDE = STAGED_THREADS / 4 }; // rows further a copy
    int row = (int)threadIdx.x / 4, c = (int)threadIdx.x % 4;
    to += row * KD_NARROW_ROW + ((c ^ row / 2 % 4) << 4); // as kd_narrow_along_k() says
#pragma unroll
    for (int i = 0; i < ROWS; i += STRIDE)
        if (ROWS >= STRIDE || row < ROWS)
            kd_copy16(to + i * KD_NARROW_ROW,
                      from + (size_t)(row + i < exist ? row + i : 0) * (size_t)ld + c * 8, row + i < exist);
}

// This block's segments, [first, first + num): c becomes their sum.
template <int MB, int NT, bool HALF>
KD_FN void multiply_segments(float (&c)[MB * NT][4], float lowest[MB * NT][4], unsigned char *ring,
                             float4 *levels, const struct cuda_gemm &a, int first, int num) {
    typedef wgmma_shape<MB, NT> shape;
    enum { DEPTH = shape::depth };
    int n0 = (int)blockIdx.y * MB * 128, m0 = (int)blockIdx.x * NT * 8, rows = a.w.rows - n0,
        tokens = a.m - m0;
    const uint16_t *w = (const uint16_t *)a.w.data + (size_t)n0 * (size_t)a.w.cols,
                   *x = (const uint16_t *)a.x + (size_t)m0 * (size_t)a.ldx;
    int s, end, stop, stage = 0;
    find_segment(a, WGMMA_STEP, first + num - 1, &s, &stop);
    find_segment(a, WGMMA_STEP, first, &s, &end);
#pragma unroll
    for (int u = 0; u < DEPTH - 1; u++)
        if (s + u < stop)
            copy_rows<MB * 128>(ring + u * shape::step, w + (s + u) * WGMMA_STEP, a.w.cols, rows);
    kd_grid_wait(); // weights do not depend on the kernel before, x does
#pragma unroll
    for (int u = 0; u < DEPTH - 1; u++) {
        if (s + u < stop)
            copy_rows<NT * 8>(ring + u * shape::step + shape::weights, x + (s + u) * WGMMA_STEP, a.ldx,
                              tokens);
        kd_copy_commit();
    }
    uint64_t from_w = kd_narrow_along_k(ring + kd_warp() / 4 * 64 * KD_NARROW_ROW, 8 * KD_NARROW_ROW),
             from_x = kd_narrow_along_k(ring + shape::weights, 8 * KD_NARROW_ROW);
#pragma unroll 1
    for (int n = 1; n <= num; n++) {
        int begin;
        find_segment(a, WGMMA_STEP, first + n - 1, &begin, &end);
#pragma unroll
        for (int j = 0; j < MB * NT; j++)
            for (int e = 0; e < 4; e++)
                c[j][e] = 0;
        kd_wgmma_hold(c);
#pragma unroll 1
        for (; s < end; s++) {
            kd_copy_wait<DEPTH - 2>();
            kd_shared_fence();
            __syncthreads(); // others' copies have landed, and the stage before has been multiplied
            kd_wgmma_fence();
#pragma unroll
            for (int i = 0; i < MB * 2; i++) {
                int b = i % MB, k = i / MB * 32; // 16 columns
                kd_wgmma<NT * 8, HALF, false, false>(
                    reinterpret_cast<float(&)[NT][4]>(c[b * NT]),
                    kd_further(from_w, (uint32_t)(stage * shape::step + b * 128 * KD_NARROW_ROW + k)),
                    kd_further(from_x, (uint32_t)(stage * shape::step + k)), true);
            }
            kd_wgmma_commit();
            if (s + DEPTH - 1 < stop) {
                unsigned char *next = ring + (stage == 0 ? DEPTH - 1 : stage - 1) * shape::step;
                copy_rows<MB * 128>(next, w + (s + DEPTH - 1) * WGMMA_STEP, a.w.cols, rows);
                copy_rows<NT * 8>(next + shape::weights, x + (s + DEPTH - 1) * WGMMA_STEP, a.ldx, tokens);
            }
            kd_copy_commit();
            kd_wgmma_wait<0>();
            stage = stage == DEPTH - 1 ? 0 : stage + 1;
        }
        kd_wgmma_hold(c);
        add_leaf<MB * NT>(c, lowest, levels, n, num);
    }
}

#endif

template <int MB, int NT, bool HALF>
__global__ void __launch_bounds__(STAGED_THREADS, 1) gemm_wgmma(struct cuda_gemm a) {
#ifdef KD_WGMMA_CODE
    KD_SHARED(unsigned char, unaligned); // the ring, later sums (ROW_TILES, NT * 8, 16); levels of add_leaf()
    kd_grid_release();
    unsigned char *shared = kd_aligned(unaligned);
    float4 *levels = (float4 *)(void *)(shared + wgmma_shape<MB, NT>::ring);
    int num = (a.segments.num ? a.segments.num : SEGMENTS) / (int)gridDim.z;
    float c[MB * NT][4], lowest[MB * NT][4] = {};
    multiply_segments<MB, NT, HALF>(c, lowest, shared, levels, a, (int)blockIdx.z * num, num);
    if (gridDim.z > 1 && !add_parts<MB * NT>(c, lowest, levels, (int *)(void *)shared, a))
        return;
#pragma unroll
    for (int b = 0; b < MB; b++) {
        int tile = ((int)blockIdx.y * MB + b) * ROW_TILES + kd_warp();
        finish_tile<NT>(c + b * NT, (float *)(void *)shared, a, all_rows{a.m},
                        tile < a.w.rows / 16 ? tile : -1, (int)blockIdx.x * NT * 8);
    }
#endif
}

template <int MB, int NT> static void launch(struct rt *rt, const struct cuda_gemm *a) {
    typedef wgmma_shape<MB, NT> shape;
    // Half as many blocks as of gemm_staged.cu: an SM has one, and each leaves twice as much.
    int x = (a->m + NT * 8 - 1) / (NT * 8), y = (a->w.rows + MB * 128 - 1) / (MB * 128),
        parts = num_parts(a, x * y, a->parts.max_blocks / 2);
    // Tiles of tokens are neighbours in the grid, so that the second reads weights from the cache.
    struct rt_grid g = rt_grid_of(
        x, y, STAGED_THREADS, (size_t)(shape::ring + num_levels(a, parts) * shape::level + KD_PATTERN_ALIGN));
    static_assert(MB * 128 * NT * 8 <= 2 * CUDA_PART, "what a block leaves");
    g.grid.z = (unsigned)parts;
    if (a->w.layout == LAYOUT_F16)
        rt_launch(rt, gemm_wgmma<MB, NT, true>, g, *a);
    else
        rt_launch(rt, gemm_wgmma<MB, NT, false>, g, *a);
}

bool gemm_takes_wgmma(const struct cuda_gemm *a) {
    return a->parts.wgmma && (a->w.layout == LAYOUT_BF16 || a->w.layout == LAYOUT_F16);
}

void gemm_launch_wgmma(struct rt *rt, const struct cuda_gemm *a) {
    if (a->m <= 32)
        launch<2, 4>(rt, a);
    else if (a->m <= 64)
        launch<2, 8>(rt, a);
    else
        launch<1, 16>(rt, a);
}

#else // built without sm_90a

bool gemm_takes_wgmma(const struct cuda_gemm *) { return false; }
void gemm_launch_wgmma(struct rt *rt, const struct cuda_gemm *) {
    rt_fail(rt, "the GEMM of sm_90a is not in this build");
}

#endif

extern "C" {

bool cuda_has_wgmma(struct rt *rt) {
#ifdef KD_WGMMA
    struct rt_info info;
    rt_describe(rt, &info);
    return info.major == 9 && info.minor == 0;
#else
    (void)rt;
    return false;
#endif
}

bool cuda_takes_wgmma(struct rt *rt) {
    const char *asked = getenv("QUIRE_CUDA_WGMMA");
    return asked && strcmp(asked, "1") == 0 && cuda_has_wgmma(rt);
}

} // extern "C"
