// The skinny GEMM: y (m, n) = x (m, k) W^T for few rows (any number works), bound by reading W once.
//
// Weight rows are the mma's M, tokens its N ("swap AB"), so one block serves up to 32 tokens. A lane
// reads 16 contiguous bytes of a weight row straight into fragments of two mma: both operands use the same
// permutation of k, which leaves the result as it is, and no weight goes through shared memory.
//
// One block: 16 rows of W. Its 8 warps are 8 fixed segments of K, added as ((0+1)+(2+3))+((4+5)+(6+7)): an
// output element is the same sequence of operations for every m, so a token's bits do not depend on its
// batch. A ring of RING steps per warp keeps 8 warps x 32 lanes x RING x 16 or 32 bytes in flight; its first
// loads are issued before the kernel before has ended.
#include "common.cuh"

enum { SEGMENTS = 8, GEMM_THREADS = SEGMENTS * 32, RING = 4 };

struct fragment { // of 16 rows and one step of K
    uint4 a, b;   // b: plain layouts only
};

template <enum weight_layout F> struct format_traits {
    static constexpr bool plain = F == LAYOUT_BF16 || F == LAYOUT_F16;
    static constexpr bool nibbles = F == LAYOUT_Q4_0 || F == LAYOUT_Q4_K;
    static constexpr bool has_min = F == LAYOUT_Q4_K || F == LAYOUT_Q5_K;
    static constexpr int step = nibbles ? 64 : 32; // columns
    static constexpr int groups = nibbles ? 2 : 1; // of 32 columns in a step
};

template <enum weight_layout F>
KD_FN fragment load_fragment(const struct cuda_matrix &w, int tile, int s, int lane) {
    fragment f;
    if (format_traits<F>::plain) {
        const uint16_t *p = (const uint16_t *)w.data + (size_t)(tile * 16 + lane / 4) * (size_t)w.cols +
                            s * 32 + lane % 4 * 8;
        f.a = kd_load_once(p);
        f.b = kd_load_once(p + (size_t)8 * (size_t)w.cols);
    } else {
        size_t steps = (size_t)(w.cols / format_traits<F>::step);
        f.a = kd_load_once((const uint4 *)w.data + ((size_t)tile * steps + (size_t)s) * 32 + lane);
        f.b = f.a;
    }
    return f;
}

// Two unsigned bytes, `offset` less, as bf16 pairs.
KD_FN uint32_t bytes_to_bf16(uint32_t word, int low, float offset) {
    float a = kd_bits_float(0x4b000000u | (word >> (8 * low) & 255u)) - (8388608.0f + offset); // 2^23 + byte
    float b = kd_bits_float(0x4b000000u | (word >> (8 * low + 8) & 255u)) - (8388608.0f + offset);
    return kd_pack_bf16(a, b);
}

// Nibbles i and i + 4 of a word, `offset` less, as bf16 pairs. 0x4300 is 128; 128 + n is exact.
KD_FN uint32_t nibbles_to_bf16(uint32_t word, int i, uint32_t minus_128_offset) {
    return kd_fma_bf16x2((word >> (4 * i) & 0x000f000fu) | 0x43004300u, 0x3f803f80u, minus_128_offset);
}

// The A operands of the two mma of 32 columns (group g of the step), as integers for quantised layouts.
template <enum weight_layout F> KD_FN void decode(const fragment &f, int g, uint32_t a0[4], uint32_t a1[4]) {
    if (format_traits<F>::plain) {
        a0[0] = f.a.x, a0[1] = f.b.x, a0[2] = f.a.y, a0[3] = f.b.y;
        a1[0] = f.a.z, a1[1] = f.b.z, a1[2] = f.a.w, a1[3] = f.b.w;
    } else if (format_traits<F>::nibbles) {
        uint32_t top = g == 0 ? f.a.x : f.a.z, bottom = g == 0 ? f.a.y : f.a.w; // rows r and r + 8
        uint32_t minus = F == LAYOUT_Q4_0 ? 0xc308c308u : 0xc300c300u;          // -136, -128
        a0[0] = nibbles_to_bf16(top, 0, minus), a0[1] = nibbles_to_bf16(bottom, 0, minus);
        a0[2] = nibbles_to_bf16(top, 1, minus), a0[3] = nibbles_to_bf16(bottom, 1, minus);
        a1[0] = nibbles_to_bf16(top, 2, minus), a1[1] = nibbles_to_bf16(bottom, 2, minus);
        a1[2] = nibbles_to_bf16(top, 3, minus), a1[3] = nibbles_to_bf16(bottom, 3, minus);
    } else {
        float offset = F == LAYOUT_Q8_0 ? 128.0f : F == LAYOUT_Q6_K ? 32.0f : 0.0f;
        a0[0] = bytes_to_bf16(f.a.x, 0, offset), a0[1] = bytes_to_bf16(f.a.z, 0, offset);
        a0[2] = bytes_to_bf16(f.a.x, 2, offset), a0[3] = bytes_to_bf16(f.a.z, 2, offset);
        a1[0] = bytes_to_bf16(f.a.y, 0, offset), a1[1] = bytes_to_bf16(f.a.w, 0, offset);
        a1[2] = bytes_to_bf16(f.a.y, 2, offset), a1[3] = bytes_to_bf16(f.a.w, 2, offset);
    }
}

struct group_scale {               // of rows r (0) and r + 8 (1)
    float d[2], second[2], min[2]; // second: columns 16..32 of Q6_K
};

// Scales of the 32 columns number g32 of the row.
template <enum weight_layout F>
KD_FN group_scale load_scale(const struct cuda_matrix &w, int tile, int g32, int lane) {
    size_t groups = (size_t)(w.cols / 32),
           at = ((size_t)tile * groups + (size_t)g32) * 8 + (size_t)(lane / 4);
    uint32_t s = ((const uint32_t *)w.scales)[at];
    group_scale r = {};
    if (F == LAYOUT_Q8_0 || F == LAYOUT_Q4_0) {
        r.d[0] = kd_half_to_float((uint16_t)s);
        r.d[1] = kd_half_to_float((uint16_t)(s >> 16));
        return r;
    }
    size_t super = ((size_t)tile * (size_t)(w.cols / 256) + (size_t)(g32 / 8)) * 8 + (size_t)(lane / 4);
    if (F == LAYOUT_Q6_K) {
        uint32_t d = ((const uint32_t *)w.supers)[super];
        for (int i = 0; i < 2; i++) {
            float both = kd_half_to_float((uint16_t)(d >> (16 * i)));
            r.d[i] = both * (float)(int8_t)(s >> (8 * i));
            r.second[i] = both * (float)(int8_t)(s >> (16 + 8 * i));
        }
    } else {
        uint2 d = ((const uint2 *)w.supers)[super];
        for (int i = 0; i < 2; i++) {
            r.d[i] = kd_half_to_float((uint16_t)(d.x >> (16 * i))) * (float)(s >> (8 * i) & 255u);
            r.min[i] = kd_half_to_float((uint16_t)(d.y >> (16 * i))) * (float)(s >> (16 + 8 * i) & 255u);
        }
    }
    return r;
}

// c += W x over one step.
template <enum weight_layout F, int NT>
KD_FN void multiply_step(float c[NT][4], const fragment &f, const struct cuda_matrix &w, int tile, int s,
                         const uint16_t *const x[NT], int lane) {
    typedef format_traits<F> traits;
#pragma unroll
    for (int g = 0; g < traits::groups; g++) {
        uint32_t a0[4], a1[4];
        group_scale scale = {};
        decode<F>(f, g, a0, a1);
        int column = s * traits::step + g * 32;
        if (!traits::plain)
            scale = load_scale<F>(w, tile, column / 32, lane);
#pragma unroll
        for (int j = 0; j < NT; j++) {
            uint32_t x0[2], x1[2];
            if (F == LAYOUT_Q6_K) { // each mma is one scale's 16 columns
                uint2 first = *(const uint2 *)(x[j] + column + lane % 4 * 4);
                uint2 second = *(const uint2 *)(x[j] + column + 16 + lane % 4 * 4);
                x0[0] = first.x, x0[1] = first.y, x1[0] = second.x, x1[1] = second.y;
            } else {
                uint4 v = *(const uint4 *)(x[j] + column + lane % 4 * 8);
                x0[0] = v.x, x0[1] = v.y, x1[0] = v.z, x1[1] = v.w;
            }
            if (F == LAYOUT_F16) {
                kd_mma_half(c[j], a0, x0);
                kd_mma_half(c[j], a1, x1);
            } else if (traits::plain) {
                kd_mma_bf16(c[j], a0, x0);
                kd_mma_bf16(c[j], a1, x1);
            } else {
                float whole[4] = {0, 0, 0, 0}, second[4] = {0, 0, 0, 0};
                kd_mma_bf16(whole, a0, x0);
                kd_mma_bf16(F == LAYOUT_Q6_K ? second : whole, a1, x1);
                if (traits::has_min) { // the sum of x by a matrix of ones: no second pass over x
                    const uint32_t ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
                    kd_mma_bf16(second, ones, x0);
                    kd_mma_bf16(second, ones, x1);
                }
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    c[j][e] = kd_fma(whole[e], scale.d[e / 2], c[j][e]);
                    if (F == LAYOUT_Q6_K)
                        c[j][e] = kd_fma(second[e], scale.second[e / 2], c[j][e]);
                    if (traits::has_min)
                        c[j][e] = kd_fma(second[e], -scale.min[e / 2], c[j][e]);
                }
            }
        }
    }
}

// Where segment i of 8 begins, in steps.
KD_FN int segment_begin(int steps, int i) { return (int)((long long)steps * i / SEGMENTS); }

// Steps [*begin, *end) of a warp's segment. step: columns of one.
KD_FN void find_segment(const struct cuda_gemm &a, int step, int i, int *begin, int *end) {
    struct cuda_segments s = a.segments;
    if (s.num == 0) {
        *begin = segment_begin(a.w.cols / step, i);
        *end = segment_begin(a.w.cols / step, i + 1);
        return;
    }
    int here = segment_begin(s.cols / step, s.first); // where this rank's part of the whole matrix begins
    *begin = segment_begin(s.cols / step, s.first + i) - here;
    *end = i < s.num ? segment_begin(s.cols / step, s.first + i + 1) - here : *begin;
}

// One warp's segment for 16 rows and NT * 8 tokens.
template <enum weight_layout F, int NT>
KD_FN void multiply_segment(float c[NT][4], const struct cuda_gemm &a, int tile, int m0, int segment,
                            int lane) {
    int s, end;
    find_segment(a, format_traits<F>::step, segment, &s, &end);
    fragment ring[RING];
#pragma unroll
    for (int u = 0; u < RING; u++)
        if (s + u < end)
            ring[u] = load_fragment<F>(a.w, tile, s + u, lane);
    kd_grid_wait(); // weights do not depend on the kernel before, x does
    const uint16_t *x[NT];
#pragma unroll
    for (int j = 0; j < NT; j++) {
        int m = m0 + j * 8 + lane / 4;
        x[j] = (const uint16_t *)a.x + (size_t)(m < a.m ? m : a.m - 1) * (size_t)a.ldx;
    }
    for (; s < end; s += RING) {
#pragma unroll
        for (int u = 0; u < RING; u++)
            if (s + u < end) {
                fragment f = ring[u];
                if (s + u + RING < end)
                    ring[u] = load_fragment<F>(a.w, tile, s + u + RING, lane);
                multiply_step<F, NT>(c, f, a.w, tile, s + u, x, lane);
            }
    }
}

// F32: a lane takes a row and half of the tokens, one fma per k. For small models and tests, not for speed.
template <int NT>
KD_FN void multiply_segment_f32(float *red, const struct cuda_gemm &a, int tile, int m0, int segment,
                                int lane) {
    kd_grid_wait();
    int row = lane % 16, begin, end;
    find_segment(a, 4, segment, &begin, &end);
    begin *= 4, end *= 4;
    const float *w = (const float *)a.w.data + (size_t)(tile * 16 + row) * (size_t)a.w.cols;
    for (int j = lane / 16; j < NT * 8; j += 2) {
        int m = m0 + j;
        const float *x = (const float *)a.x + (size_t)(m < a.m ? m : a.m - 1) * (size_t)a.ldx;
        float sum = 0;
        for (int k = begin; k < end; k++)
            sum = kd_fma(w[k], x[k], sum);
        red[(segment * NT * 8 + j) * 16 + row] = sum;
    }
}

// num: of the segments that there are, as struct cuda_segments says.
KD_FN float add_segments(const float *red, int stride, int num) {
    if (num == 1)
        return red[0];
    if (num == 2)
        return red[0] + red[stride];
    if (num == 4)
        return (red[0] + red[stride]) + (red[2 * stride] + red[3 * stride]);
    float s0 = red[0] + red[stride], s1 = red[2 * stride] + red[3 * stride];
    float s2 = red[4 * stride] + red[5 * stride], s3 = red[6 * stride] + red[7 * stride];
    return (s0 + s1) + (s2 + s3);
}

// Elements of the tile as they come: i = token * 16 + row.
template <int NT> KD_FN void finish(const struct cuda_gemm &a, const float *red, int tile, int m0) {
    enum { ALL = NT * 8 * 16 };
    if (a.epilogue == EPILOGUE_SWIGLU) {
        for (int i = (int)threadIdx.x; i < ALL / 2; i += GEMM_THREADS) {
            int m = m0 + i / 8, n = tile * 8 + i % 8, at = i / 8 * 16 + i % 8;
            if (m >= a.m || n >= a.n)
                continue;
            float scale = a.scale ? a.scale[m] : 1;
            float gate = add_segments(red + at, ALL, 8) * scale,
                  up = add_segments(red + at + 8, ALL, 8) * scale;
            store_act(act_row(a.h, (size_t)m, a.ldy, a.act_dtype), n, kd_silu(gate) * up, a.act_dtype);
        }
        return;
    }
    for (int i = (int)threadIdx.x; i < ALL; i += GEMM_THREADS) { // whole warps: ALL is a multiple of 128
        int m = m0 + i / 16, n = tile * 16 + i % 16;
        bool exists = m < a.m && n < a.n;
        float v = add_segments(red + i, ALL, a.segments.num) * (a.scale && m < a.m ? a.scale[m] : 1);
        if (a.bias && exists)
            v += a.bias[n];
        if (a.epilogue == EPILOGUE_LOGITS) {
            v *= a.factor;
            float largest = exists ? v : -INFINITY;
            unsigned nan = __ballot_sync(ALL_LANES, largest != largest);
            for (int bits = 8; bits > 0; bits >>= 1)
                largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, bits));
            if (nan >> (kd_lane() & 16) & 0xffffu)
                largest = NAN;
            if (i % 16 == 0 && m < a.m)
                a.max[(size_t)m * (size_t)a.ldmax + (size_t)tile] = largest;
        }
        float *y = a.y + (size_t)m * (size_t)a.ldy + (size_t)n;
        if (exists)
            *y = a.epilogue == EPILOGUE_ADD ? *y + v : v;
    }
}

// Blocks that an SM should hold: two, except where 128 registers are too few.
template <enum weight_layout F, int NT> constexpr int blocks_wanted() {
    return (format_traits<F>::has_min || format_traits<F>::nibbles) && NT == 4 ? 1 : 2;
}

template <enum weight_layout F, int NT>
__global__ void __launch_bounds__(GEMM_THREADS, blocks_wanted<F, NT>()) gemm(struct cuda_gemm a) {
    KD_SHARED(float, red); // (SEGMENTS, NT * 8, 16)
    kd_grid_release();
    int lane = kd_lane(), segment = kd_warp(), m0 = (int)blockIdx.x * NT * 8, tile = (int)blockIdx.y;
    if (F == LAYOUT_F32) {
        multiply_segment_f32<NT>(red, a, tile, m0, segment, lane);
    } else {
        float c[NT][4];
#pragma unroll
        for (int j = 0; j < NT; j++)
            for (int e = 0; e < 4; e++)
                c[j][e] = 0;
        multiply_segment<F, NT>(c, a, tile, m0, segment, lane);
#pragma unroll
        for (int j = 0; j < NT; j++)
            for (int e = 0; e < 4; e++)
                red[(segment * NT * 8 + j * 8 + lane % 4 * 2 + (e & 1)) * 16 + lane / 4 + 8 * (e >> 1)] =
                    c[j][e];
    }
    __syncthreads();
    finish<NT>(a, red, tile, m0);
}

template <enum weight_layout F, int NT> static void launch(struct rt *rt, const struct cuda_gemm *a) {
    // Tiles of tokens are neighbours in the grid, so that the second reads weights from the cache.
    struct rt_grid g = rt_grid_of((a->m + NT * 8 - 1) / (NT * 8), a->w.rows / 16, GEMM_THREADS,
                                  sizeof(float) * SEGMENTS * NT * 8 * 16);
    rt_launch(rt, gemm<F, NT>, g, *a);
}

template <enum weight_layout F> static void pick_tokens(struct rt *rt, const struct cuda_gemm *a) {
    if (a->m <= 8)
        launch<F, 1>(rt, a);
    else if (a->m <= 16)
        launch<F, 2>(rt, a);
    else
        launch<F, 4>(rt, a);
}

template <enum weight_layout F> __global__ void __launch_bounds__(128) dequantise(struct cuda_dequant a) {
    kd_grid_release();
    kd_grid_wait();
    typedef format_traits<F> traits;
    int lane = kd_lane(), tile = (int)blockIdx.y, s = (int)blockIdx.x * 4 + kd_warp();
    if (s >= a.w.cols / traits::step)
        return;
    fragment f = load_fragment<F>(a.w, tile, s, lane);
    for (int g = 0; g < traits::groups; g++) {
        uint32_t v[2][4];
        int column = s * traits::step + g * 32;
        group_scale scale = load_scale<F>(a.w, tile, column / 32, lane);
        decode<F>(f, g, v[0], v[1]);
        for (int mma = 0; mma < 2; mma++)
            for (int r = 0; r < 4; r++) {
                int row = lane / 4 + 8 * (r & 1), half = r >> 1;
                int k =
                    F == LAYOUT_Q6_K ? mma * 16 + lane % 4 * 4 + half * 2 : lane % 4 * 8 + mma * 4 + half * 2;
                float d = F == LAYOUT_Q6_K && mma ? scale.second[r & 1] : scale.d[r & 1];
                float low = kd_bf16_to_float((uint16_t)v[mma][r]) * d - scale.min[r & 1];
                float high = kd_bf16_to_float((uint16_t)(v[mma][r] >> 16)) * d - scale.min[r & 1];
                *(uint32_t *)(a.out + (size_t)(tile * 16 + row) * (size_t)a.w.cols + column + k) =
                    kd_pack_bf16(low, high);
            }
    }
}

template <enum weight_layout F> static void launch_dequant(struct rt *rt, const struct cuda_dequant *a) {
    int steps = a->w.cols / format_traits<F>::step;
    rt_launch(rt, dequantise<F>, rt_grid_of((steps + 3) / 4, a->w.rows / 16, 128, 0), *a);
}

extern "C" {

void cuda_gemm(struct rt *rt, const struct cuda_gemm *a) {
    if (a->m == 0)
        return;
    switch (a->w.layout) {
    case LAYOUT_F32: pick_tokens<LAYOUT_F32>(rt, a); break;
    case LAYOUT_BF16: pick_tokens<LAYOUT_BF16>(rt, a); break;
    case LAYOUT_F16: pick_tokens<LAYOUT_F16>(rt, a); break;
    case LAYOUT_Q8_0: pick_tokens<LAYOUT_Q8_0>(rt, a); break;
    case LAYOUT_Q4_0: pick_tokens<LAYOUT_Q4_0>(rt, a); break;
    case LAYOUT_Q4_K: pick_tokens<LAYOUT_Q4_K>(rt, a); break;
    case LAYOUT_Q5_K: pick_tokens<LAYOUT_Q5_K>(rt, a); break;
    case LAYOUT_Q6_K: pick_tokens<LAYOUT_Q6_K>(rt, a); break;
    case LAYOUT_COUNT: rt_fail(rt, "a matrix has no format"); break;
    }
}

void cuda_dequant(struct rt *rt, const struct cuda_dequant *a) {
    switch (a->w.layout) {
    case LAYOUT_Q8_0: launch_dequant<LAYOUT_Q8_0>(rt, a); break;
    case LAYOUT_Q4_0: launch_dequant<LAYOUT_Q4_0>(rt, a); break;
    case LAYOUT_Q4_K: launch_dequant<LAYOUT_Q4_K>(rt, a); break;
    case LAYOUT_Q5_K: launch_dequant<LAYOUT_Q5_K>(rt, a); break;
    case LAYOUT_Q6_K: launch_dequant<LAYOUT_Q6_K>(rt, a); break;
    default: rt_fail(rt, "only quantised matrices are dequantised"); break;
    }
}

} // extern "C"
