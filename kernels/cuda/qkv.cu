// After the QKV GEMM: bias, norms, rotation, and keys and values into their slots (a warp takes a head). And copies of
// whole pages.
#include "hadamard.h"
#include "rope.h"
#include "store.cuh"

enum { QKV_WARPS = 4 };

KD_FN float clipped(float x, float most) {
    return x > most ? most : x < -most ? -most : x;
} // a NaN stays one

// Columns [i, i + 4) of those before n of a row, with their bias where there is one, clipped.
KD_FN float4 read_biased(const struct cuda_qkv &a, int row, int i, int n, bool whole) {
    int of_bf16 = row - (a.rows - a.num_bf16);
    float4 v = read_sums(a.x + (size_t)row * (size_t)a.ldx, i, n, of_bf16 >= 0, whole);
    if (of_bf16 >= 0)
        v = scale_sums(a.scales, v, of_bf16, i, n, whole);
    if (a.bias)
        v = add4(v, read4(a.bias, i, n, whole));
    if (a.clip > 0)
        v = {clipped(v.x, a.clip), clipped(v.y, a.clip), clipped(v.z, a.clip), clipped(v.w, a.clip)};
    return v;
}

struct norm_of { // y = (x - mean) * rms * weight
    float mean, rms;
};

// The norm of a head, by a warp whose lanes take 4 elements each in turns.
KD_FN norm_of head_norm(const float *x, int d, enum norm_kind kind, float eps) {
    float sum = 0, mean = 0;
    for (int i = kd_lane() * 4; i < d && kind == NORM_LAYER; i += 128) {
        float4 v = *(const float4 *)(const void *)(x + i);
        sum += (v.x + v.y) + (v.z + v.w);
    }
    if (kind == NORM_LAYER)
        mean = kd_div(kd_warp_sum(sum), (float)d);
    sum = 0;
    for (int i = kd_lane() * 4; i < d; i += 128)
        sum = add_squares(sum, centre4(*(const float4 *)(const void *)(x + i), mean, i, d));
    return {mean, kd_rsqrt(kd_add(kd_div(kd_warp_sum(sum), (float)d), eps))};
}

// weight: (d) or NULL
KD_FN void normalise_head(float *x, int d, norm_of n, const float *weight, bool whole) {
    for (int i = kd_lane() * 4; i < d; i += 128) {
        float4 v = centre4(*(const float4 *)(const void *)(x + i), n.mean, i, d), w = {1, 1, 1, 1};
        *(float4 *)(void *)(x + i) = scale4(v, n.rms, weight ? read4(weight, i, d, whole) : w);
    }
}

enum { WHOLE_THREADS = 256 };

// The norm of all heads of a row's q (blockIdx.y 0) or k.
__global__ void __launch_bounds__(WHOLE_THREADS) find_whole_norms(struct cuda_qkv a) {
    KD_SHARED(float, scratch); // (32)
    kd_grid_release();
    kd_grid_wait();
    bool key = blockIdx.y > 0;
    int first = key ? a.num_heads * a.kv.head_dim : 0;
    int n = (key ? a.kv.num_heads : a.num_heads) * a.kv.head_dim;
    bool whole = a.kv.head_dim % 4 == 0 && a.ldx % 4 == 0;
    float sum = 0, mean = 0;
    for (int i = 4 * (int)threadIdx.x; i < n && a.kind == NORM_LAYER; i += 4 * WHOLE_THREADS) {
        float4 v = read_biased(a, (int)blockIdx.x, first + i, first + n, whole);
        sum += (v.x + v.y) + (v.z + v.w);
    }
    if (a.kind == NORM_LAYER)
        mean = kd_div(block_sum(sum, scratch), (float)n);
    sum = 0;
    for (int i = 4 * (int)threadIdx.x; i < n; i += 4 * WHOLE_THREADS)
        sum = add_squares(sum,
                          centre4(read_biased(a, (int)blockIdx.x, first + i, first + n, whole), mean, i, n));
    sum = block_sum(sum, scratch);
    float *to = a.whole + ((size_t)blockIdx.x * 2 + blockIdx.y) * 2;
    if (threadIdx.x == 0) {
        to[0] = mean;
        to[1] = kd_rsqrt(kd_add(kd_div(sum, (float)n), a.eps));
    }
}

// Rule 17's turn of a head in shared memory, by a warp.
KD_FN void turn_head(float *x, int d, float scale) {
    int size = hadamard_size(d);
    for (int h = 1; h < size; h *= 2) {
        for (int i = kd_lane(); i < d / 2; i += 32) {
            float *a = x + i / h * 2 * h + i % h, v = a[0], w = a[h];
            a[0] = kd_add(v, w);
            a[h] = kd_add(v, -w);
        }
        __syncwarp();
    }
    for (int i = kd_lane(); i < d; i += 32)
        x[i] = kd_mul(x[i], scale);
    __syncwarp();
}

__global__ void __launch_bounds__(QKV_WARPS * 32) finish_qkv(struct cuda_qkv a) {
    KD_SHARED(float, shared); // (QKV_WARPS, stride)
    kd_grid_release();
    kd_grid_wait();
    int d = a.kv.head_dim, stride = (d + 3) & ~3, lane = kd_lane(), row = (int)blockIdx.x;
    int head = (int)blockIdx.y * QKV_WARPS + kd_warp(), num_kv = a.kv.num_heads;
    int kind = head < a.num_heads ? 0 : head < a.num_heads + num_kv ? 1 : 2; // q, k, v
    if (head >= a.num_heads + 2 * num_kv)
        return;
    bool whole = d % 4 == 0 && a.ldx % 4 == 0;
    float *x = shared + kd_warp() * stride;
    const float *norm = kind == 0 ? a.q_norm : kind == 1 ? a.k_norm : NULL;
    if (norm && (a.qk_norm == QK_NORM_WHOLE || a.qk_norm == QK_NORM_EACH))
        norm += (size_t)(head - (kind == 1 ? a.num_heads : 0)) * (size_t)d;
    for (int i = lane * 4; i < d; i += 128)
        *(float4 *)(void *)(x + i) = read_biased(a, row, head * d + i, head * d + d, whole);
    if (norm && a.qk_norm == QK_NORM_WHOLE) {
        const float *w = a.whole + ((size_t)row * 2 + (size_t)kind) * 2;
        normalise_head(x, d, {w[0], w[1]}, norm, whole);
    } else if (norm && a.qk_norm != QK_NORM_ROTATED) {
        normalise_head(x, d, head_norm(x, d, a.kind, a.eps), norm, whole);
    }
    __syncwarp();
    if (kind < 2) {
        size_t at = (size_t)a.positions[row] * (size_t)a.rope_pairs;
        for (int i = lane; i < a.rope_pairs; i += 32) {
            if (a.rope_positions) {
                int turn = a.rope_positions[rope_axis(&a.sections, i) * a.rows + row];
                at = (size_t)turn * (size_t)a.rope_pairs;
            }
            float c = a.rope_cos[at + (size_t)i], s = a.rope_sin[at + (size_t)i];
            int ia = a.rope_interleaved ? 2 * i : i, ib = a.rope_interleaved ? ia + 1 : i + a.rope_pairs;
            float v = x[ia], w = x[ib];
            x[ia] = v * c - w * s;
            x[ib] = v * s + w * c;
        }
    }
    __syncwarp();
    bool unit = kind == 2 ? a.v_norm : a.qk_norm == QK_NORM_UNIT; // without weights
    if (unit || (norm && a.qk_norm == QK_NORM_ROTATED)) {
        normalise_head(x, d, head_norm(x, d, unit ? NORM_RMS : a.kind, a.eps), norm, whole);
        __syncwarp();
    }
    if (kind == 0 && a.temperatures) {
        float temperature = a.temperatures[a.positions[row]];
        for (int i = lane; i < d; i += 32)
            x[i] = kd_mul(x[i], temperature);
        __syncwarp();
    }
    if (kind < 2 && a.kv.dtype == DTYPE_I8)
        turn_head(x, d, kind == 0 ? 1.0f / (float)hadamard_size(d) : 1);
    if (kind == 0) {
        size_t to = ((size_t)row * (size_t)a.num_heads + (size_t)head) * (size_t)d;
        store_head(a.q, to, cuda_query_dtype(a.kv.dtype), x, d);
        return;
    }
    int64_t slot = a.slots[row];
    if (slot < 0)
        return;
    int kv_head = head - a.num_heads - (kind == 2 ? num_kv : 0), B = a.kv.block_size;
    size_t vector = ((size_t)(slot / B) * (size_t)num_kv + (size_t)kv_head) * (size_t)B + (size_t)(slot % B),
           to = vector * (size_t)d;
    if (a.kv.dtype == DTYPE_I8) {
        store_int8((int8_t *)(kind == 1 ? a.kv.keys : a.kv.values) + to,
                   (kind == 1 ? a.kv.key_scales : a.kv.value_scales) + vector, x, d);
        return;
    }
    store_head(kind == 1 ? a.kv.keys : a.kv.values, to, a.kv.dtype, x, d);
}

enum { COPY_THREADS = 256, COPY_BLOCKS = 16 }; // blocks of each array

__global__ void __launch_bounds__(COPY_THREADS) copy_page(struct cuda_page_copy a) {
    kd_grid_release();
    kd_grid_wait();
    char *array = a.pages + (size_t)blockIdx.y * a.stride;
    const char *from = array + (size_t)a.from * a.page_bytes;
    char *to = array + (size_t)a.to * a.page_bytes;
    size_t first = (size_t)blockIdx.x * COPY_THREADS + threadIdx.x, step = (size_t)gridDim.x * COPY_THREADS;
    if (a.page_bytes % 16 == 0 && a.stride % 16 == 0) {
        for (size_t i = first; i < a.page_bytes / 16; i += step)
            ((uint4 *)(void *)to)[i] = ((const uint4 *)(const void *)from)[i];
    } else {
        for (size_t i = first; i < a.page_bytes; i += step)
            to[i] = from[i];
    }
}

extern "C" {

void cuda_page_copy(struct rt *rt, const struct cuda_page_copy *a) {
    size_t work = (a->page_bytes + 16 * COPY_THREADS - 1) / (16 * COPY_THREADS);
    int blocks = work < COPY_BLOCKS ? (int)work : COPY_BLOCKS;
    if (a->from != a->to)
        rt_launch(rt, copy_page, rt_grid_of(blocks, a->num, COPY_THREADS, 0), *a);
}

void cuda_qkv(struct rt *rt, const struct cuda_qkv *a) {
    int heads = a->num_heads + 2 * a->kv.num_heads;
    size_t shared = (size_t)QKV_WARPS * (size_t)((a->kv.head_dim + 3) & ~3) * sizeof(float);
    if (a->rows > 0 && a->qk_norm == QK_NORM_WHOLE)
        rt_launch(rt, find_whole_norms, rt_grid_of(a->rows, 2, WHOLE_THREADS, 32 * sizeof(float)), *a);
    if (a->rows > 0)
        rt_launch(rt, finish_qkv,
                  rt_grid_of(a->rows, (heads + QKV_WARPS - 1) / QKV_WARPS, QKV_WARPS * 32, shared), *a);
}

} // extern "C"
