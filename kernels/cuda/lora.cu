// Adds what adapters give to the rows that have one: two small kernels after a matrix's own. A block reads its part of A or B once
// for the up to 8 rows of a group. Of rank 16 an adapter of an 8B model is less than a hundredth of it: launching bounds both.
#include "common.cuh"

enum { LORA_THREADS = 128, LORA_WARPS = LORA_THREADS / 32 };
enum { LORA_RANKS = 16 }; // blocks that share the rows of A

// Elements [i, i + 8), i a multiple of 8.
KD_FN void load8(float v[8], const void *p, size_t i, enum dtype t) {
    if (t == DTYPE_F32) {
        float4 low = *(const float4 *)(const void *)((const float *)p + i),
               high = *(const float4 *)(const void *)((const float *)p + i + 4);
        v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
        v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
        return;
    }
    uint4 all = *(const uint4 *)(const void *)((const uint16_t *)p + i);
    const uint32_t two[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
    for (int k = 0; k < 8; k++) {
        uint16_t h = (uint16_t)(two[k / 2] >> 16 * (k % 2));
        v[k] = t == DTYPE_F16 ? kd_half_to_float(h) : kd_bf16_to_float(h);
    }
}
KD_FN float add8(const float a[8], const float b[8], float sum) {
#pragma unroll
    for (int k = 0; k < 8; k++)
        sum = kd_fma(a[k], b[k], sum);
    return sum;
}

KD_FN int padded_rank(const struct cuda_lora_matrix &m) { return (m.rank + 7) / 8 * 8; }
KD_FN float *low_of(const struct cuda_lora &a, int row, int target) {
    return a.low + ((size_t)row * 3 + (size_t)target) * (size_t)a.ld_low;
}

// A block: one row of A, and then each LORA_RANKS further, times the rows of a group. Elements of low up to the padded rank.
__global__ void __launch_bounds__(LORA_THREADS) lora_shrink(struct cuda_lora a) {
    KD_SHARED(float, scratch); // (LORA_WARPS, CUDA_LORA_ROWS)
    kd_grid_release();
    kd_grid_wait();
    const struct cuda_lora_group *g = &a.groups[blockIdx.x];
    if (!g->adapter)
        return;
    const struct cuda_lora_matrix m = g->adapter[a.first + (int)blockIdx.y];
    const char *w = (const char *)g->adapter + m.a;
    enum dtype x_dtype = a.act_dtype == ACT_DTYPE_F32   ? DTYPE_F32
                         : a.act_dtype == ACT_DTYPE_F16 ? DTYPE_F16
                                                        : DTYPE_BF16;
#pragma unroll 1
    for (int r = (int)blockIdx.z; r < padded_rank(m); r += LORA_RANKS) {
        float sum[CUDA_LORA_ROWS] = {};
#pragma unroll 1
        for (int k = 8 * (int)threadIdx.x; r < m.rank && k < m.cols; k += 8 * LORA_THREADS) {
            float v[8], x[8];
            load8(v, w, (size_t)r * (size_t)m.cols + (size_t)k, m.a_dtype);
#pragma unroll
            for (int i = 0; i < CUDA_LORA_ROWS; i++)
                if (g->rows[i] >= 0) {
                    load8(x, a.x, (size_t)g->rows[i] * (size_t)a.ldx + (size_t)k, x_dtype);
                    sum[i] = add8(v, x, sum[i]);
                }
        }
#pragma unroll
        for (int i = 0; i < CUDA_LORA_ROWS; i++) {
            float all = g->rows[i] >= 0 ? kd_warp_sum(sum[i]) : 0;
            if (kd_lane() == 0)
                scratch[kd_warp() * CUDA_LORA_ROWS + i] = all;
        }
        __syncthreads();
        int i = (int)threadIdx.x, row = i < CUDA_LORA_ROWS ? g->rows[i] : -1;
        if (row >= 0) {
            float t = scratch[i];
            for (int k = 1; k < LORA_WARPS; k++)
                t = kd_add(t, scratch[k * CUDA_LORA_ROWS + i]);
            low_of(a, row, (int)blockIdx.y)[r] = a.scale ? kd_mul(t, a.scale[row]) : t;
        }
        __syncthreads();
    }
}

// A thread: one row of B times the group's rows of low.
__global__ void __launch_bounds__(LORA_THREADS) lora_expand(struct cuda_lora a) {
    kd_grid_release();
    kd_grid_wait();
    const struct cuda_lora_group *g = &a.groups[blockIdx.x];
    int n = (int)(blockIdx.y * LORA_THREADS + threadIdx.x), target = (int)blockIdx.z;
    if (!g->adapter)
        return;
    const struct cuda_lora_matrix m = g->adapter[a.first + target];
    if (m.rank == 0 || n >= m.rows)
        return;
    const char *w = (const char *)g->adapter + m.b;
    int rank = padded_rank(m), first = target == 0 ? a.column[0] : target == 1 ? a.column[1] : a.column[2];
    int column = first + (a.interleaved ? n / 8 * 16 + n % 8 : n);
    float sum[CUDA_LORA_ROWS] = {};
    for (int k = 0; k < rank; k += 8) {
        float v[8], t[8];
        load8(v, w, (size_t)n * (size_t)rank + (size_t)k, m.b_dtype);
#pragma unroll
        for (int i = 0; i < CUDA_LORA_ROWS; i++)
            if (g->rows[i] >= 0) {
                load8(t, low_of(a, g->rows[i], target), (size_t)k, DTYPE_F32);
                sum[i] = add8(v, t, sum[i]);
            }
    }
#pragma unroll
    for (int i = 0; i < CUDA_LORA_ROWS; i++)
        if (g->rows[i] >= 0) {
            float *y = a.y + (size_t)g->rows[i] * (size_t)a.ldy + (size_t)column;
            *y = kd_add(*y, kd_mul(m.scale, sum[i]));
        }
}

extern "C" void cuda_lora(struct rt *rt, const struct cuda_lora *a) {
    struct rt_grid shrink = rt_grid_of(a->num_groups, a->num_targets, LORA_THREADS,
                                       LORA_WARPS * CUDA_LORA_ROWS * sizeof(float)),
                   expand = rt_grid_of(a->num_groups, (a->widest + LORA_THREADS - 1) / LORA_THREADS,
                                       LORA_THREADS, 0);
    shrink.grid.z = LORA_RANKS;
    expand.grid.z = (unsigned)a->num_targets;
    rt_launch(rt, lora_shrink, shrink, *a);
    rt_launch(rt, lora_expand, expand, *a);
}
