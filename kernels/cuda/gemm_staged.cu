// The GEMM for more than 16 rows: y (m, n) = x (m, k) W^T, with weights and tokens staged in shared memory.
//
// One block: 128 rows of W, a tile of 16 for each of 8 warps, and NT * 8 tokens; so tokens are read once per
// 128 rows of W, and W once per NT * 8 tokens. All warps go through K together, behind a ring of DEPTH k-steps
// that asynchronous copies fill DEPTH - 1 steps ahead. Where there are too few tiles for the GPU, up to 8
// blocks share a tile's segments, and the last of them to arrive adds their sums.
//
// Order of sums: that of gemm.cu. A segment begins at 0, and complete subtrees of the tree
// ((0+1)+(2+3))+((4+5)+(6+7)) wait on a stack, the lowest level in registers, the others in shared memory.
#include "gemm_common.cuh"

enum { DEPTH = CUDA_STAGED_RING };

// Bytes of shared memory.
template <enum weight_layout F, int NT> struct staged_shape {
    static constexpr int panel = NT * 8 * 64; // bytes of 32 columns of all tokens
    static constexpr int weights = ROW_TILES * format_traits<F>::stage;
    static constexpr int step = weights + format_traits<F>::groups * panel;
    static constexpr int ring = DEPTH * step;
    static constexpr int level = NT * 16 * STAGED_THREADS; // of the stack, and of all sums
};

// The tokens of k-step s, 32 columns a panel.
template <enum weight_layout F, int NT, class Rows>
KD_FN void copy_tokens(unsigned char *panels, const struct cuda_gemm &a, const Rows &rows, int m0, int s) {
    typedef format_traits<F> traits;
    int token = (int)threadIdx.x / 4, piece = (int)threadIdx.x % 4, m = m0 + token;
    if (token >= NT * 8)
        return;
    const uint16_t *x = (const uint16_t *)a.x +
                        (size_t)row_in(rows, m < rows.num ? m : rows.num - 1) * (size_t)a.ldx +
                        s * traits::step + piece * 8;
#pragma unroll
    for (int g = 0; g < traits::groups; g++)
        kd_copy16(panels + g * staged_shape<F, NT>::panel + threadIdx.x * 16, x + g * 32, m < rows.num);
}

// The row of x, in a group of slots, that this thread copies from: found once.
struct slot_row {
    int num, row;
};
KD_FN int row_in(const slot_row &r, int) { return r.row; }

// c += W x over the k-step in `here`: a warp's tile by all tokens.
template <enum weight_layout F, int NT>
KD_FN void multiply_tile(float c[NT][4], const unsigned char *here, int warp, int lane) {
    typedef format_traits<F> traits;
    const unsigned char *stage = here + warp * traits::stage;
    fragment f = read_stage<F>(stage, lane);
#pragma unroll
    for (int g = 0; g < traits::groups; g++) {
        const unsigned char *panel = here + staged_shape<F, NT>::weights + g * staged_shape<F, NT>::panel;
        uint32_t a0[4], a1[4];
        decode<F>(f, g, a0, a1);
        group_scale scale = read_scale<F>(stage, g, lane);
#pragma unroll
        for (int j = 0; j < NT; j++)
            multiply_group<F>(
                c[j], a0, a1, scale,
                read_tokens<F>((const uint16_t *)(const void *)(panel + (j * 8 + lane / 4) * 64), lane));
    }
}

// This block's segments, [first, first + num): c becomes their sum. tile: of W, or -1 where the warp has none and copies
// what is never multiplied.
template <enum weight_layout F, int NT, class Rows>
KD_FN void multiply_segments(float c[NT][4], float lowest[NT][4], unsigned char *ring, float4 *levels,
                             const struct cuda_gemm &a, const Rows &rows, int tile, int m0, int first,
                             int num) {
    typedef format_traits<F> traits;
    typedef staged_shape<F, NT> shape;
    int lane = kd_lane(), warp = kd_warp(), copied = tile < 0 ? 0 : tile;
    int s, end, stop, stage = 0;
    find_segment(a, traits::step, first + num - 1, &s, &stop);
    find_segment(a, traits::step, first, &s, &end);
#pragma unroll
    for (int u = 0; u < DEPTH - 1; u++)
        if (s + u < stop)
            copy_stage<F>(ring + u * shape::step + warp * traits::stage, a.w, copied, s + u, lane);
    kd_grid_wait(); // weights do not depend on the kernel before, x does
#pragma unroll
    for (int u = 0; u < DEPTH - 1; u++) {
        if (s + u < stop)
            copy_tokens<F, NT>(ring + u * shape::step + shape::weights, a, rows, m0, s + u);
        kd_copy_commit();
    }
#pragma unroll 1
    for (int n = 1; n <= num; n++) {
        int begin;
        find_segment(a, traits::step, first + n - 1, &begin, &end);
#pragma unroll
        for (int j = 0; j < NT; j++)
            for (int e = 0; e < 4; e++)
                c[j][e] = 0;
#pragma unroll 1
        for (; s < end; s++) {
            kd_copy_wait<DEPTH - 2>();
            __syncthreads(); // others' copies have landed, and the stage before has been read
            if (s + DEPTH - 1 < stop) {
                unsigned char *next = ring + (stage == 0 ? DEPTH - 1 : stage - 1) * shape::step;
                copy_stage<F>(next + warp * traits::stage, a.w, copied, s + DEPTH - 1, lane);
                copy_tokens<F, NT>(next + shape::weights, a, rows, m0, s + DEPTH - 1);
            }
            kd_copy_commit();
            if (tile >= 0)
                multiply_tile<F, NT>(c, ring + stage * shape::step, warp, lane);
            stage = stage == DEPTH - 1 ? 0 : stage + 1;
        }
        add_leaf<NT>(c, lowest, levels, n, num);
    }
}

// Blocks that an SM should hold: two, except where 128 registers are too few.
template <enum weight_layout F, int NT> constexpr int blocks_wanted() {
    bool plain = format_traits<F>::plain || F == LAYOUT_Q8_0 || F == LAYOUT_FP8; // in what it takes to decode
    return (NT == 8 && !plain) || F == LAYOUT_Q4_K ? 1 : 2;
}

template <enum weight_layout F, int NT>
__global__ void __launch_bounds__(STAGED_THREADS, blocks_wanted<F, NT>()) gemm_staged(struct cuda_gemm a) {
    KD_SHARED(unsigned char, shared); // the ring, later sums (ROW_TILES, NT * 8, 16); levels of add_leaf()
    kd_grid_release();
    typedef staged_shape<F, NT> shape;
    int m0 = (int)blockIdx.x * NT * 8, tile = (int)blockIdx.y * ROW_TILES + kd_warp();
    int num = (a.segments.num ? a.segments.num : SEGMENTS) / (int)gridDim.z;
    float4 *levels = (float4 *)(void *)(shared + shape::ring);
    float c[NT][4], lowest[NT][4] = {};
    if (tile >= a.w.rows / 16)
        tile = -1;
    multiply_segments<F, NT>(c, lowest, shared, levels, a, all_rows{a.m}, tile, m0, (int)blockIdx.z * num,
                             num);
    if (gridDim.z > 1 && !add_parts<NT>(c, lowest, levels, (int *)(void *)shared, a))
        return;
    finish_tile<NT>(c, (float *)(void *)shared, a, all_rows{a.m}, tile, m0);
}

// The same for a group of slots, all of one expert, as gemm_experts() of gemm.cu.
template <enum weight_layout F, int NT>
__global__ void __launch_bounds__(STAGED_THREADS, blocks_wanted<F, NT>())
    gemm_staged_experts(struct cuda_expert_gemm a) {
    KD_SHARED(unsigned char, shared);
    kd_grid_release();
    kd_grid_wait();
    if ((int)blockIdx.x >= *a.num_groups)
        return;
    const struct cuda_expert_group group = a.groups[blockIdx.x];
    const slot_rows rows = {a, a.slots + group.begin, group.num};
    int tiles = a.gemm.w.rows / 16 / a.num_experts, tile = (int)blockIdx.y * ROW_TILES + kd_warp();
    int token = (int)threadIdx.x / 4;
    const slot_row copied = {group.num, row_in(rows, token < group.num ? token : group.num - 1)};
    float4 *levels = (float4 *)(void *)(shared + staged_shape<F, NT>::ring);
    float c[NT][4], lowest[NT][4] = {};
    if (tile >= tiles)
        tile = -1;
    multiply_segments<F, NT>(c, lowest, shared, levels, a.gemm, copied,
                             tile < 0 ? tile : group.expert * tiles + tile, 0, 0, SEGMENTS);
    finish_tile<NT>(c, (float *)(void *)shared, a.gemm, rows, tile, 0);
}

template <enum weight_layout F, int NT> static void launch(struct rt *rt, const struct cuda_gemm *a) {
    typedef staged_shape<F, NT> shape;
    static_assert(shape::ring >= shape::level, "sums lie where the ring was");
    int x = (a->m + NT * 8 - 1) / (NT * 8), y = (a->w.rows / 16 + ROW_TILES - 1) / ROW_TILES,
        parts = num_parts(a, x * y, a->parts.max_blocks);
    // Tiles of tokens are neighbours in the grid, so that the second reads weights from the cache.
    struct rt_grid g =
        rt_grid_of(x, y, STAGED_THREADS, (size_t)shape::ring + (size_t)num_levels(a, parts) * shape::level);
    g.grid.z = (unsigned)parts;
    rt_launch(rt, gemm_staged<F, NT>, g, *a);
}

template <enum weight_layout F> static void pick_tokens(struct rt *rt, const struct cuda_gemm *a) {
    size_t most = (size_t)staged_shape<F, 8>::ring + MOST_LEVELS * staged_shape<F, 8>::level;
    if (a->m <= 32 || a->parts.shared_max < most)
        launch<F, 4>(rt, a);
    else
        launch<F, 8>(rt, a);
}

template <enum weight_layout F> static void launch_experts(struct rt *rt, const struct cuda_expert_gemm *a) {
    enum { NT = 4 };
    typedef staged_shape<F, NT> shape;
    int tiles = a->gemm.w.rows / 16 / a->num_experts;
    rt_launch(rt, gemm_staged_experts<F, NT>,
              rt_grid_of(a->max_groups, (tiles + ROW_TILES - 1) / ROW_TILES, STAGED_THREADS,
                         (size_t)shape::ring + MOST_LEVELS * (size_t)shape::level),
              *a);
}

void gemm_launch_staged_experts(struct rt *rt, const struct cuda_expert_gemm *a) {
    switch (a->gemm.w.layout) {
    case LAYOUT_BF16: launch_experts<LAYOUT_BF16>(rt, a); break;
    case LAYOUT_F16: launch_experts<LAYOUT_F16>(rt, a); break;
    case LAYOUT_Q8_0: launch_experts<LAYOUT_Q8_0>(rt, a); break;
    case LAYOUT_Q4_0: launch_experts<LAYOUT_Q4_0>(rt, a); break;
    case LAYOUT_Q4_K: launch_experts<LAYOUT_Q4_K>(rt, a); break;
    case LAYOUT_Q5_1:
    case LAYOUT_Q5_K: launch_experts<LAYOUT_Q5_K>(rt, a); break;
    case LAYOUT_Q6_K: launch_experts<LAYOUT_Q6_K>(rt, a); break;
    case LAYOUT_MXFP4: launch_experts<LAYOUT_MXFP4>(rt, a); break;
    case LAYOUT_Q2_K: launch_experts<LAYOUT_Q2_K>(rt, a); break;
    case LAYOUT_IQ4: launch_experts<LAYOUT_IQ4>(rt, a); break;
    case LAYOUT_FP8_32:
    case LAYOUT_FP8: launch_experts<LAYOUT_FP8>(rt, a); break;
    default: rt_fail(rt, "a matrix has no staged GEMM"); break;
    }
}

void gemm_launch_staged(struct rt *rt, const struct cuda_gemm *a) {
    switch (a->w.layout) {
    case LAYOUT_BF16: pick_tokens<LAYOUT_BF16>(rt, a); break;
    case LAYOUT_F16: pick_tokens<LAYOUT_F16>(rt, a); break;
    case LAYOUT_Q8_0: pick_tokens<LAYOUT_Q8_0>(rt, a); break;
    case LAYOUT_Q4_0: pick_tokens<LAYOUT_Q4_0>(rt, a); break;
    case LAYOUT_Q4_K: pick_tokens<LAYOUT_Q4_K>(rt, a); break;
    case LAYOUT_Q5_1:
    case LAYOUT_Q5_K: pick_tokens<LAYOUT_Q5_K>(rt, a); break;
    case LAYOUT_Q6_K: pick_tokens<LAYOUT_Q6_K>(rt, a); break;
    case LAYOUT_MXFP4: pick_tokens<LAYOUT_MXFP4>(rt, a); break;
    case LAYOUT_Q2_K: pick_tokens<LAYOUT_Q2_K>(rt, a); break;
    case LAYOUT_IQ4: pick_tokens<LAYOUT_IQ4>(rt, a); break;
    case LAYOUT_FP8_32:
    case LAYOUT_FP8: pick_tokens<LAYOUT_FP8>(rt, a); break;
    default: rt_fail(rt, "a matrix has no staged GEMM"); break;
    }
}
