// Kernels over rows: embedding, RMSNorm and change of activation dtype, SwiGLU. Bound by memory or by
// launching.
#include "blocks.h"
#include "common.cuh"

enum { ROW_THREADS = 128 };

__global__ void __launch_bounds__(ROW_THREADS) embed_rows(struct cuda_embed a) {
    kd_grid_release();
    kd_grid_wait();
    int row = (int)blockIdx.x;
    int id = a.ids[row];
    if (id < 0)
        id = a.sampled[-1 - id];
    float *y = a.resid + (size_t)row * (size_t)a.hidden;
    if (id < 0 || id >= a.vocab) { // a damaged upload: the row fails in the open
        for (int i = (int)threadIdx.x; i < a.hidden; i += ROW_THREADS)
            y[i] = NAN;
        return;
    }
    size_t first = (size_t)id * (size_t)a.hidden;
    const uint8_t *bytes = (const uint8_t *)a.table;
    for (int i = (int)threadIdx.x; i < a.hidden; i += ROW_THREADS) {
        if (a.dtype == DTYPE_F32 || a.dtype == DTYPE_F16 || a.dtype == DTYPE_BF16) {
            y[i] = load_kv(a.table, first + (size_t)i, a.dtype);
        } else {
            const uint8_t *r = bytes + (size_t)id * quant_row_bytes(a.dtype, a.hidden);
            struct quant e = quant_element(a.dtype, r, i);
            float v = kd_mul(kd_half_to_float(e.d), (float)(e.scale * e.q));
            y[i] = e.min ? kd_add(v, -kd_mul(kd_half_to_float(e.dmin), (float)e.min)) : v;
        }
        if (a.factor != 1)
            y[i] = kd_mul(y[i], a.factor);
    }
}

__global__ void __launch_bounds__(ROW_THREADS) add_rows(struct cuda_add a) {
    KD_SHARED(float, scratch); // (32)
    kd_grid_release();
    kd_grid_wait();
    size_t first = (size_t)blockIdx.x * (size_t)a.n;
    float *x = a.x + first, *y = a.resid + first, sum = 0, rms = 1;
    for (int i = (int)threadIdx.x; i < a.n; i += ROW_THREADS) {
        x[i] = a.bias ? kd_add(x[i], a.bias[i]) : x[i];
        sum = kd_fma(x[i], x[i], sum);
    }
    if (a.norm)
        rms = kd_rsqrt(kd_add(kd_div(block_sum(sum, scratch), (float)a.n), a.eps));
    for (int i = (int)threadIdx.x; i < a.n; i += ROW_THREADS)
        y[i] = kd_add(y[i], kd_mul(a.factor, a.norm ? kd_mul(kd_mul(x[i], rms), a.norm[i]) : x[i]));
}

__global__ void __launch_bounds__(ROW_THREADS) norm_rows(struct cuda_norm a) {
    KD_SHARED(float, scratch); // (32)
    kd_grid_release();
    kd_grid_wait();
    int row = (int)blockIdx.x, from = a.of ? a.of[(size_t)row * (size_t)a.of_stride] : row;
    char *out = act_row(a.out, (size_t)row, a.ldout, a.act_dtype);
    if (from < 0) {
        for (int i = (int)threadIdx.x; i < a.n; i += ROW_THREADS)
            // 0 is 0 in both 16-bit dtypes.
            store_act(out, i, 0, a.act_dtype == ACT_DTYPE_F32 ? ACT_DTYPE_F32 : ACT_DTYPE_BF16);
        if (a.act_dtype == ACT_DTYPE_F16 && threadIdx.x == 0)
            a.scale[row] = 1;
        return;
    }
    const float *x = a.x + (size_t)from * (size_t)a.ldx;
    float rms = 1;
    if (a.weight) {
        float sum = 0;
        for (int i = (int)threadIdx.x; i < a.n; i += ROW_THREADS)
            sum = kd_fma(x[i], x[i], sum);
        rms = kd_rsqrt(kd_add(kd_div(block_sum(sum, scratch), (float)a.n), a.eps));
    }
    float factor = 1;
    if (a.act_dtype == ACT_DTYPE_F16) {
        float largest = 0;
        for (int i = (int)threadIdx.x; i < a.n; i += ROW_THREADS) {
            float v = a.weight ? x[i] * rms * a.weight[i] : x[i];
            largest = fmaxf(largest, fabsf(v));
        }
        largest = block_max(largest, scratch); // a NaN stays one under any factor
        // 2^e with largest * 2^e in [2^14, 2^15); rows of zeros, of subnormals and of infinities keep 1
        int e = (int)(kd_float_bits(largest) >> 23) - 127;
        if (e > -110 && e < 128)
            factor = kd_bits_float((uint32_t)(14 - e + 127) << 23);
        if (threadIdx.x == 0)
            a.scale[row] = kd_div(1, factor);
    }
    for (int i = (int)threadIdx.x; i < a.n; i += ROW_THREADS) {
        float v = a.weight ? x[i] * rms * a.weight[i] : x[i];
        if (a.act_dtype == ACT_DTYPE_F16)
            ((uint16_t *)out)[i] = kd_float_to_half(v * factor);
        else
            store_act(out, i, v, a.act_dtype);
    }
}

__global__ void __launch_bounds__(ROW_THREADS) swiglu_rows(struct cuda_swiglu a) {
    kd_grid_release();
    kd_grid_wait();
    int i = (int)(blockIdx.x * ROW_THREADS + threadIdx.x), row = (int)blockIdx.y;
    if (i >= a.n)
        return;
    const float *x = a.x + (size_t)row * (size_t)a.ldx;
    int gate = a.interleaved ? i / 8 * 16 + i % 8 : i, up = a.interleaved ? gate + 8 : a.up + i;
    store_act(act_row(a.out, (size_t)row, a.ldout, a.act_dtype), i, kd_silu(x[gate]) * x[up], a.act_dtype);
}

__global__ void __launch_bounds__(ROW_THREADS) finish_rows(struct cuda_finish a) {
    kd_grid_release();
    kd_grid_wait();
    int i = (int)(blockIdx.x * ROW_THREADS + threadIdx.x);
    size_t row = blockIdx.y;
    if (i >= a.n)
        return;
    float v = a.x[row * (size_t)a.ldx + (size_t)i] * (a.scale ? a.scale[row] : 1) + (a.bias ? a.bias[i] : 0);
    float *y = &a.y[row * (size_t)a.ldy + (size_t)i];
    *y = a.add ? *y + v : v;
}

extern "C" {

void cuda_finish(struct rt *rt, const struct cuda_finish *a) {
    if (a->rows > 0)
        rt_launch(rt, finish_rows,
                  rt_grid_of((a->n + ROW_THREADS - 1) / ROW_THREADS, a->rows, ROW_THREADS, 0), *a);
}

void cuda_add(struct rt *rt, const struct cuda_add *a) {
    if (a->rows > 0)
        rt_launch(rt, add_rows, rt_grid_of(a->rows, 1, ROW_THREADS, 32 * sizeof(float)), *a);
}

void cuda_embed(struct rt *rt, const struct cuda_embed *a) {
    if (a->rows > 0)
        rt_launch(rt, embed_rows, rt_grid_of(a->rows, 1, ROW_THREADS, 0), *a);
}

void cuda_norm(struct rt *rt, const struct cuda_norm *a) {
    if (a->rows > 0)
        rt_launch(rt, norm_rows, rt_grid_of(a->rows, 1, ROW_THREADS, 32 * sizeof(float)), *a);
}

void cuda_swiglu(struct rt *rt, const struct cuda_swiglu *a) {
    if (a->rows > 0)
        rt_launch(rt, swiglu_rows,
                  rt_grid_of((a->n + ROW_THREADS - 1) / ROW_THREADS, a->rows, ROW_THREADS, 0), *a);
}

} // extern "C"
