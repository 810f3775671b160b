// The skinny GEMM: y (m, n) = x (m, k) W^T for up to 16 rows (F32: any number), bound by reading W
// once; gemm_staged.cu takes more.
//
// One block: 16 rows of W and up to 16 tokens. Its 8 warps are 8 fixed segments of K, added as
// ((0+1)+(2+3))+((4+5)+(6+7)). Each warp has a ring of RING k-steps in shared memory, weights and scales, which
// asynchronous copies fill RING - 1 steps ahead; the first are issued before the kernel before has ended.
#include "gemm_common.cuh"

enum { GEMM_THREADS = SEGMENTS * 32, RING = CUDA_GEMM_RING };

// One warp's segment for 16 rows and NT * 8 tokens.
template <enum weight_layout F, int NT, class Rows>
KD_FN void multiply_segment(float c[NT][4], unsigned char *ring, const struct cuda_gemm &a, const Rows &rows,
                            int tile, int m0, int segment, int lane) {
    typedef format_traits<F> traits;
    int s, end, stage = 0;
    find_segment(a, traits::step, segment, &s, &end);
#pragma unroll
    for (int u = 0; u < RING - 1; u++) {
        if (s + u < end)
            copy_stage<F>(ring + u * traits::stage, a.w, tile, s + u, lane);
        kd_copy_commit();
    }
    kd_grid_wait(); // weights do not depend on the kernel before, x does
    const uint16_t *x[NT];
#pragma unroll
    for (int j = 0; j < NT; j++) {
        int m = m0 + j * 8 + lane / 4;
        x[j] = (const uint16_t *)a.x + (size_t)row_in(rows, m < rows.num ? m : rows.num - 1) * (size_t)a.ldx;
    }
#pragma unroll 1
    for (; s < end; s++) {
        const unsigned char *here = ring + stage * traits::stage;
        tokens xs[NT][traits::groups];
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int g = 0; g < traits::groups; g++)
                xs[j][g] = read_tokens<F>(x[j] + s * traits::step + g * 32, lane);
        kd_copy_wait<RING - 2>();
        __syncwarp(); // other lanes' copies have landed, and the stage before has been read
        fragment f = read_stage<F>(here, lane);
        if (s + RING - 1 < end)
            copy_stage<F>(ring + (stage == 0 ? RING - 1 : stage - 1) * traits::stage, a.w, tile, s + RING - 1,
                          lane);
        kd_copy_commit();
#pragma unroll
        for (int g = 0; g < traits::groups; g++) {
            uint32_t a0[4], a1[4];
            decode<F>(f, g, a0, a1);
            group_scale scale = read_scale<F>(here, g, lane);
#pragma unroll
            for (int j = 0; j < NT; j++)
                multiply_group<F>(c[j], a0, a1, scale, xs[j][g]);
        }
        stage = stage == RING - 1 ? 0 : stage + 1;
    }
}

// F32: a lane takes a row and half of the tokens, one fma per k. For small models and tests, not for speed.
template <int NT, class Rows>
KD_FN void multiply_segment_f32(float *red, const struct cuda_gemm &a, const Rows &rows, int tile, int m0,
                                int segment, int lane) {
    kd_grid_wait();
    int row = lane % 16, begin, end;
    find_segment(a, 4, segment, &begin, &end);
    begin *= 4, end *= 4;
    const float *w = (const float *)a.w.data + (size_t)(tile * 16 + row) * (size_t)a.w.cols;
    for (int j = lane / 16; j < NT * 8; j += 2) {
        int m = m0 + j;
        const float *x =
            (const float *)a.x + (size_t)row_in(rows, m < rows.num ? m : rows.num - 1) * (size_t)a.ldx;
        float sum = 0;
        for (int k = begin; k < end; k++)
            sum = kd_fma(w[k], x[k], sum);
        red[(segment * NT * 8 + j) * 16 + row] = sum;
    }
}

// 16 rows of W, `tile` of them all and `out` of the result's, by tokens from m0 on. red: (SEGMENTS, NT * 8, 16),
// where the rings were.
template <enum weight_layout F, int NT, class Rows>
KD_FN void multiply_tile(float *red, const struct cuda_gemm &a, const Rows &rows, int tile, int out, int m0) {
    int lane = kd_lane(), segment = kd_warp();
    if (F == LAYOUT_F32) {
        multiply_segment_f32<NT>(red, a, rows, tile, m0, segment, lane);
    } else {
        float c[NT][4];
#pragma unroll
        for (int j = 0; j < NT; j++)
            for (int e = 0; e < 4; e++)
                c[j][e] = 0;
        multiply_segment<F, NT>(c, (unsigned char *)(void *)red + segment * RING * format_traits<F>::stage, a,
                                rows, tile, m0, segment, lane);
        __syncthreads(); // every warp is done with its ring
#pragma unroll
        for (int j = 0; j < NT; j++)
            for (int e = 0; e < 4; e++)
                red[(segment * NT * 8 + j * 8 + lane % 4 * 2 + (e & 1)) * 16 + lane / 4 + 8 * (e >> 1)] =
                    c[j][e];
    }
    __syncthreads();
    finish<NT>(a, rows, red, a.segments.num, out, m0, (int)threadIdx.x, GEMM_THREADS);
}

template <enum weight_layout F, int NT>
__global__ void __launch_bounds__(GEMM_THREADS, 2) gemm(struct cuda_gemm a) {
    KD_SHARED(float, red);
    kd_grid_release();
    multiply_tile<F, NT>(red, a, all_rows{a.m}, (int)blockIdx.y, (int)blockIdx.y, (int)blockIdx.x * NT * 8);
}

// The same for slots: a block has a group of them, all of one expert. Which weights it reads the kernel before has
// found, so that none are copied ahead.
template <enum weight_layout F, int NT>
__global__ void __launch_bounds__(GEMM_THREADS, 2) gemm_experts(struct cuda_expert_gemm a) {
    KD_SHARED(float, red);
    kd_grid_release();
    kd_grid_wait();
    if ((int)blockIdx.x >= *a.num_groups)
        return;
    const struct cuda_expert_group group = a.groups[blockIdx.x];
    int m0 = (int)blockIdx.z * NT * 8; // F32 takes larger groups, too
    if (m0 >= group.num)
        return;
    multiply_tile<F, NT>(red, a.gemm, slot_rows{a, a.slots + group.begin, group.num},
                         group.expert * (int)gridDim.y + (int)blockIdx.y, (int)blockIdx.y, m0);
}

// Tiles of tokens are neighbours in the grid, so that the second reads weights from the cache.
template <enum weight_layout F, int NT> static struct rt_grid grid_of(int x, int y) {
    size_t rings = F == LAYOUT_F32 ? 0 : (size_t)SEGMENTS * RING * format_traits<F>::stage,
           sums = sizeof(float) * SEGMENTS * NT * 8 * 16;
    return rt_grid_of(x, y, GEMM_THREADS, rings > sums ? rings : sums);
}

template <enum weight_layout F, int NT> static void launch(struct rt *rt, const struct cuda_gemm *a) {
    rt_launch(rt, gemm<F, NT>, grid_of<F, NT>((a->m + NT * 8 - 1) / (NT * 8), a->w.rows / 16), *a);
}

template <enum weight_layout F> static void pick_group(struct rt *rt, const struct cuda_expert_gemm *a) {
    int y = a->gemm.w.rows / 16 / a->num_experts;
    if (a->group_rows == 8)
        rt_launch(rt, gemm_experts<F, 1>, grid_of<F, 1>(a->max_groups, y), *a);
    else if (a->group_rows == 16 || F == LAYOUT_F32) {
        struct rt_grid g = grid_of<F, 2>(a->max_groups, y);
        g.grid.z = (unsigned)a->group_rows / 16;
        rt_launch(rt, gemm_experts<F, 2>, g, *a);
    } else {
        gemm_launch_staged_experts(rt, a);
    }
}

template <enum weight_layout F> static void pick_tokens(struct rt *rt, const struct cuda_gemm *a) {
    if (a->m <= 8)
        launch<F, 1>(rt, a);
    else if (a->m <= 16 || F == LAYOUT_F32)
        launch<F, 2>(rt, a);
    else
        gemm_launch_staged(rt, a);
}

template <enum weight_layout F> __global__ void __launch_bounds__(128) dequantise(struct cuda_dequant a) {
    kd_grid_release();
    kd_grid_wait();
    typedef format_traits<F> traits;
    int lane = kd_lane(), tile = (int)blockIdx.y, s = (int)blockIdx.x * 4 + kd_warp();
    if (s >= a.w.cols / traits::step)
        return;
    size_t at = (size_t)tile * (size_t)(a.w.cols / traits::step) + (size_t)s;
    fragment f;
    f.a = f.b = kd_load_once((const uint4 *)a.w.data + at * 32 + lane);
    for (int g = 0; g < traits::groups; g++) {
        uint32_t v[2][4];
        int column = s * traits::step + g * 32;
        group_scale scale =
            make_scale<F>(scale_words<F>((const char *)a.w.scales + at * traits::scales, g, lane),
                          (const char *)a.w.supers +
                              (factors_at<F>(a.w, tile, s) * 8 + (size_t)lane / 4) * (traits::supers / 8));
        decode<F>(f, g, v[0], v[1]);
        for (int mma = 0; mma < 2; mma++)
            for (int r = 0; r < 4; r++) {
                int row = lane / 4 + 8 * (r & 1), half = r >> 1;
                int k =
                    traits::halves ? mma * 16 + lane % 4 * 4 + half * 2 : lane % 4 * 8 + mma * 4 + half * 2;
                bool second = traits::halves && mma;
                float d = second ? scale.second[r & 1] : scale.d[r & 1];
                float min = second ? scale.second_min[r & 1] : scale.min[r & 1];
                float low = kd_bf16_to_float((uint16_t)v[mma][r]) * d - min;
                float high = kd_bf16_to_float((uint16_t)(v[mma][r] >> 16)) * d - min;
                *(uint32_t *)((uint16_t *)a.out + (size_t)(tile * 16 + row) * (size_t)a.w.cols + column + k) =
                    kd_pack_bf16(low, high);
            }
    }
}

// FP8 in the order of columns, and the scales of rows, blocks or groups of columns.
__global__ void __launch_bounds__(128) unpack_fp8(struct cuda_dequant a) {
    kd_grid_release();
    kd_grid_wait();
    int lane = kd_lane(), tile = (int)blockIdx.y, s = (int)blockIdx.x * 4 + kd_warp(), steps = a.w.cols / 32;
    if (s >= steps)
        return;
    uint4 v = kd_load_once((const uint4 *)a.w.data + ((size_t)tile * (size_t)steps + (size_t)s) * 32 + lane);
    uint8_t *out =
        (uint8_t *)a.out + (size_t)(tile * 16 + lane / 4) * (size_t)a.w.cols + s * 32 + lane % 4 * 8;
    const uint32_t order = 0x2031; // as pack_quants() has them
    *(uint2 *)(void *)out = {kd_pick_bytes(v.x, 0, order), kd_pick_bytes(v.y, 0, order)};
    *(uint2 *)(void *)(out + 8 * (size_t)a.w.cols) = {kd_pick_bytes(v.z, 0, order),
                                                      kd_pick_bytes(v.w, 0, order)};
    int row = tile * 16 + lane, groups = (a.w.cols / 128 + 3) / 4 * 4; // of a block's row
    const float *scales = (const float *)a.w.supers + factors_at<LAYOUT_FP8>(a.w, tile, s) * 16;
    size_t at = a.w.e4m3 == E4M3_ROWS     ? (size_t)row
                : a.w.e4m3 == E4M3_BLOCKS ? (size_t)(row / 128) * (size_t)groups + (size_t)(s / 4)
                                          : (size_t)(s / 4) * (size_t)a.w.rows + (size_t)row;
    bool first = a.w.e4m3 == E4M3_ROWS ? s == 0 : s % 4 == 0; // k-step that has the scale
    if (first && lane < 16 && (a.w.e4m3 != E4M3_BLOCKS || row % 128 == 0))
        a.scale[at] = scales[lane % 8 * 2 + lane / 8];
}

template <enum weight_layout F> static void launch_dequant(struct rt *rt, const struct cuda_dequant *a) {
    int steps = a->w.cols / format_traits<F>::step;
    struct rt_grid grid = rt_grid_of((steps + 3) / 4, a->w.rows / 16, 128, 0);
    if (F == LAYOUT_FP8 && a->scale)
        rt_launch(rt, unpack_fp8, grid, *a);
    else
        rt_launch(rt, dequantise<F>, grid, *a);
}

extern "C" {

void cuda_gemm(struct rt *rt, const struct cuda_gemm *a) {
    if (a->m == 0)
        return;
    if (gemm_takes_wgmma(a)) {
        gemm_launch_wgmma(rt, a);
        return;
    }
    switch (a->w.layout) {
    case LAYOUT_F32: pick_tokens<LAYOUT_F32>(rt, a); break;
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
    case LAYOUT_COUNT: rt_fail(rt, "a matrix has no format"); break;
    }
}

void cuda_expert_gemm(struct rt *rt, const struct cuda_expert_gemm *a) {
    if (a->max_groups == 0)
        return;
    switch (a->gemm.w.layout) {
    case LAYOUT_F32: pick_group<LAYOUT_F32>(rt, a); break;
    case LAYOUT_BF16: pick_group<LAYOUT_BF16>(rt, a); break;
    case LAYOUT_F16: pick_group<LAYOUT_F16>(rt, a); break;
    case LAYOUT_Q8_0: pick_group<LAYOUT_Q8_0>(rt, a); break;
    case LAYOUT_Q4_0: pick_group<LAYOUT_Q4_0>(rt, a); break;
    case LAYOUT_Q4_K: pick_group<LAYOUT_Q4_K>(rt, a); break;
    case LAYOUT_Q5_1:
    case LAYOUT_Q5_K: pick_group<LAYOUT_Q5_K>(rt, a); break;
    case LAYOUT_Q6_K: pick_group<LAYOUT_Q6_K>(rt, a); break;
    case LAYOUT_MXFP4: pick_group<LAYOUT_MXFP4>(rt, a); break;
    case LAYOUT_Q2_K: pick_group<LAYOUT_Q2_K>(rt, a); break;
    case LAYOUT_IQ4: pick_group<LAYOUT_IQ4>(rt, a); break;
    case LAYOUT_FP8_32:
    case LAYOUT_FP8: pick_group<LAYOUT_FP8>(rt, a); break;
    case LAYOUT_COUNT: rt_fail(rt, "experts have no format"); break;
    }
}

void cuda_dequant(struct rt *rt, const struct cuda_dequant *a) {
    switch (a->w.layout) {
    case LAYOUT_Q8_0: launch_dequant<LAYOUT_Q8_0>(rt, a); break;
    case LAYOUT_Q4_0: launch_dequant<LAYOUT_Q4_0>(rt, a); break;
    case LAYOUT_Q4_K: launch_dequant<LAYOUT_Q4_K>(rt, a); break;
    case LAYOUT_Q5_1:
    case LAYOUT_Q5_K: launch_dequant<LAYOUT_Q5_K>(rt, a); break;
    case LAYOUT_Q6_K: launch_dequant<LAYOUT_Q6_K>(rt, a); break;
    case LAYOUT_MXFP4: launch_dequant<LAYOUT_MXFP4>(rt, a); break;
    case LAYOUT_Q2_K: launch_dequant<LAYOUT_Q2_K>(rt, a); break;
    case LAYOUT_IQ4: launch_dequant<LAYOUT_IQ4>(rt, a); break;
    case LAYOUT_FP8_32:
    case LAYOUT_FP8: launch_dequant<LAYOUT_FP8>(rt, a); break;
    default: rt_fail(rt, "only quantised matrices are dequantised"); break;
    }
}

} // extern "C"
