// Device functions that several kernels share.
#pragma once

#include "launch.h"
#include "ops.h"

static constexpr unsigned ALL_LANES = 0xffffffffu;

KD_FN int kd_lane() { return (int)(threadIdx.x & 31); }
KD_FN int kd_warp() { return (int)(threadIdx.x >> 5); }

// The sum over a block of up to 1024 threads, in every thread. scratch: 32 floats that no other code uses until
// the next barrier but one. Tree within warps, then over warps ascending.
KD_FN float block_sum(float v, float *scratch) {
    v = kd_warp_sum(v);
    if (kd_lane() == 0)
        scratch[kd_warp()] = v;
    __syncthreads();
    float sum = 0;
    for (int w = 0; w < (int)blockDim.x / 32; w++)
        sum += scratch[w];
    __syncthreads();
    return sum;
}

KD_FN float block_max(float v, float *scratch) {
    v = kd_warp_max(v);
    if (kd_lane() == 0)
        scratch[kd_warp()] = v;
    __syncthreads();
    float m = scratch[0];
    for (int w = 1; w < (int)blockDim.x / 32; w++)
        m = fmaxf(m, scratch[w]);
    __syncthreads();
    return m;
}

// Element i of a row in an activation dtype that needs no factor.
KD_FN void store_act(void *row, int i, float v, enum act_dtype act_dtype) {
    if (act_dtype == ACT_DTYPE_F32)
        ((float *)row)[i] = v;
    else
        ((uint16_t *)row)[i] = kd_float_to_bf16(v);
}
// Elements [i, i + 4), i a multiple of 4, of a row that begins at a multiple of 16 bytes; of ACT_DTYPE_F16 times its
// row's factor.
KD_FN void store_act4(void *row, int i, float4 v, enum act_dtype act_dtype) {
    if (act_dtype == ACT_DTYPE_F32)
        *(float4 *)(void *)((float *)row + i) = v;
    else if (act_dtype == ACT_DTYPE_F16)
        *(uint2 *)(void *)((uint16_t *)row + i) = {kd_pack_half(v.x, v.y), kd_pack_half(v.z, v.w)};
    else
        *(uint2 *)(void *)((uint16_t *)row + i) = {kd_pack_bf16(v.x, v.y), kd_pack_bf16(v.z, v.w)};
}
// Elements [i, i + 4) of a row of n, those that are there. whole: four at once, which the caller knows to be
// there and at a multiple of 16 bytes.
KD_FN float4 read4(const float *x, int i, int n, bool whole) {
    if (whole)
        return *(const float4 *)(const void *)(x + i);
    return {i < n ? x[i] : 0, i + 1 < n ? x[i + 1] : 0, i + 2 < n ? x[i + 2] : 0, i + 3 < n ? x[i + 3] : 0};
}
// The same of sums of cuBLASLt or NCCL, f32 or bf16.
KD_FN float4 read_sums(const void *x, int i, int n, bool bf16, bool whole) {
    const uint16_t *h = (const uint16_t *)x;
    if (!bf16)
        return read4((const float *)x, i, n, whole);
    if (!whole)
        return {i < n ? kd_bf16_to_float(h[i]) : 0, i + 1 < n ? kd_bf16_to_float(h[i + 1]) : 0,
                i + 2 < n ? kd_bf16_to_float(h[i + 2]) : 0, i + 3 < n ? kd_bf16_to_float(h[i + 3]) : 0};
    uint2 v = *(const uint2 *)(const void *)(h + i);
    return {kd_bits_float(v.x << 16), kd_bits_float(v.x & 0xffff0000u), kd_bits_float(v.y << 16),
            kd_bits_float(v.y & 0xffff0000u)};
}
KD_FN void write4(void *row, int i, int n, float4 v, enum act_dtype act_dtype, bool whole) {
    if (whole) {
        store_act4(row, i, v, act_dtype);
        return;
    }
    const float e[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (i + k < n && act_dtype == ACT_DTYPE_F16)
            ((uint16_t *)row)[i + k] = kd_float_to_half(e[k]);
        else if (i + k < n)
            store_act(row, i + k, e[k], act_dtype);
}
// (v - mean) of elements [i, i + 4) of a row of n, and 0 behind it.
KD_FN float4 centre4(float4 v, float mean, int i, int n) {
    return {i < n ? v.x - mean : 0, i + 1 < n ? v.y - mean : 0, i + 2 < n ? v.z - mean : 0,
            i + 3 < n ? v.w - mean : 0};
}
KD_FN float add_squares(float sum, float4 v) {
    return kd_fma(v.w, v.w, kd_fma(v.z, v.z, kd_fma(v.y, v.y, kd_fma(v.x, v.x, sum))));
}
KD_FN float4 add4(float4 v, float4 w) { return {v.x + w.x, v.y + w.y, v.z + w.z, v.w + w.w}; }
KD_FN float4 scale4(float4 v, float rms, float4 w) {
    return {v.x * rms * w.x, v.y * rms * w.y, v.z * rms * w.z, v.w * rms * w.w};
}
// Elements [i, i + 4) of a row of n sums times their scales.
KD_FN float4 scale_sums(const struct cuda_scales &s, float4 v, int row, int i, int n, bool whole) {
    const float4 one = {1, 1, 1, 1};
    return scale4(v, s.row ? s.row[row] : 1, s.column ? read4(s.column, i, n, whole) : one);
}
KD_FN char *act_row(void *p, size_t row, int ld, enum act_dtype act_dtype) {
    return (char *)p + row * (size_t)ld * (act_dtype == ACT_DTYPE_F32 ? 4 : 2);
}

// A key, value or query as the cache holds it.
KD_FN float load_kv(const void *p, size_t i, enum dtype t) {
    if (t == DTYPE_F32)
        return ((const float *)p)[i];
    if (t == DTYPE_I8) // without its scale
        return (float)((const int8_t *)p)[i];
    if (t == DTYPE_F8_E4M3)
        return kd_half_to_float((uint16_t)kd_e4m3_to_half2(((const uint8_t *)p)[i]));
    uint16_t h = ((const uint16_t *)p)[i];
    return t == DTYPE_F16 ? kd_half_to_float(h) : kd_bf16_to_float(h);
}
KD_FN void store_kv(void *p, size_t i, enum dtype t, float v) {
    if (t == DTYPE_F32)
        ((float *)p)[i] = v;
    else if (t == DTYPE_F8_E4M3)
        ((uint8_t *)p)[i] = kd_float_to_e4m3(v);
    else
        ((uint16_t *)p)[i] = t == DTYPE_F16 ? kd_float_to_half(v) : kd_float_to_bf16(v);
}

// exp of kernels/README.md, rule 6, one rounding at a time; of NaN it is a number.
KD_FN float exp_exact(float x) {
    float y = fminf(88.37f, fmaxf(-87.33f, x)), magic = 12582912.0f; // 1.5 * 2^23
    float t = kd_fma(y, 1.44269504088896341f, magic), n = kd_add(t, -magic);
    float f = kd_fma(n, -0.693359375f, y);
    f = kd_fma(n, 2.12194440e-4f, f);
    float p = 1.9875691500e-4f;
    p = kd_fma(p, f, 1.3981999507e-3f);
    p = kd_fma(p, f, 8.3334519073e-3f);
    p = kd_fma(p, f, 4.1665795894e-2f);
    p = kd_fma(p, f, 1.6666665459e-1f);
    p = kd_fma(p, f, 5.0000001201e-1f);
    p = kd_add(kd_fma(p, kd_mul(f, f), f), 1);
    p = kd_mul(p, kd_bits_float((kd_float_bits(t) << 23) + 0x3f800000u));
    return x < -87.33f ? 0 : x > 88.37f ? INFINITY : p;
}

// x times the sigmoid of y
KD_FN float times_sigmoid(float x, float y) { return x / (1 + kd_exp2(-1.4426950408889634f * y)); }

// The activation of a feed-forward, of x alone or with a gate. Not contracted: who calls must not matter.
KD_FN float activate(enum act act, float x) {
    if (act == ACT_SILU)
        return times_sigmoid(x, x);
    if (act == ACT_GELU) // (1 + tanh(y)) / 2 is the sigmoid of 2 y
        return times_sigmoid(x, kd_mul(1.5957691216f, kd_fma(kd_mul(0.044715f, kd_mul(x, x)), x, x)));
    if (act == ACT_GELU_ERF)
        return kd_mul(kd_mul(0.5f, x), erfcf(kd_mul(-0.70710678f, x)));
    return x < 0 ? 0 : act == ACT_RELU ? x : kd_mul(x, x); // ACT_RELU2
}
KD_FN float activate_gated(enum act act, float gate, float up) {
    if (act != ACT_CLAMPED)
        return kd_mul(activate(act, gate), up);
    float g = gate > 7 ? 7 : gate, u = up > 7 ? 7 : up < -7 ? -7 : up; // a NaN stays one
    return kd_mul(times_sigmoid(g, kd_mul(1.702f, g)), kd_add(u, 1));
}

// tanh of kernels/README.md, rule 11, but with exp2; NaN stays NaN.
KD_FN float kd_tanh(float x) {
    return kd_add(1, -kd_div(2, kd_add(1, kd_exp2(kd_mul(x, 2 * 1.4426950408889634f)))));
}

static inline struct rt_grid rt_grid_of(int x, int y, int threads, size_t shared) {
    struct rt_grid g;
    g.grid = dim3((unsigned)x, (unsigned)y);
    g.threads = threads;
    g.shared = shared;
    return g;
}
