// Latent attention (kernels/README.md, rule 21): what follows its GEMMs (a warp takes a head, or what the cache keeps), and
// attention of any shape.
#include "attn.cuh"
#include "store.cuh"

enum { LATENT_WARPS = 4 };

__global__ void __launch_bounds__(LATENT_WARPS * 32) finish_latent(struct cuda_latent a) {
    KD_SHARED(float, shared); // (LATENT_WARPS, stride)
    kd_grid_release();
    kd_grid_wait();
    int C = a.kv_lora, d = a.kv.head_dim, r = d - C, lane = kd_lane(), H = a.num_heads;
    int head = (int)blockIdx.y * LATENT_WARPS + kd_warp(); // H: the latent
    size_t row = blockIdx.x, query = row * (size_t)H + (size_t)head;
    if (head > H)
        return;
    float *x = shared + kd_warp() * ((d + 3) & ~3);
    const float *latent = head == H ? a.vector + row * (size_t)d : a.absorbed + query * (size_t)C;
    const float *key = head == H ? latent + C : a.heads + query * (size_t)(a.nope_dim + r) + a.nope_dim;
    float sum = 0;
    for (int i = lane; i < C; i += 32) {
        x[i] = latent[i];
        sum = kd_fma(x[i], x[i], sum);
    }
    for (int i = lane; i < r; i += 32)
        x[C + i] = key[i];
    if (head == H) {
        float rms = kd_rsqrt(kd_add(kd_div(kd_warp_sum(sum), (float)C), a.eps));
        for (int i = lane; i < C; i += 32)
            x[i] = x[i] * rms * a.norm[i];
    }
    __syncwarp();
    size_t at = (size_t)a.positions[row] * (size_t)(r / 2);
    for (int i = lane; a.rope_cos && i < r / 2; i += 32) {
        float c = a.rope_cos[at + (size_t)i], s = a.rope_sin[at + (size_t)i];
        int ia = C + (a.rope_interleaved ? 2 * i : i), ib = a.rope_interleaved ? ia + 1 : ia + r / 2;
        float v = x[ia], w = x[ib];
        x[ia] = v * c - w * s;
        x[ib] = v * s + w * c;
    }
    __syncwarp();
    if (head < H) {
        for (int i = lane; a.temperatures && i < d; i += 32)
            x[i] = kd_mul(x[i], a.temperatures[a.positions[row]]);
        __syncwarp();
        store_head(a.q, query * (size_t)d, cuda_query_dtype(a.kv.dtype), x, d);
        return;
    }
    int64_t slot = a.slots[row]; // with one kv head the number of its vector
    if (slot < 0)
        return;
    if (a.kv.dtype == DTYPE_I8)
        store_int8((int8_t *)a.kv.keys + (size_t)slot * (size_t)d, a.kv.key_scales + slot, x, d);
    else
        store_head(a.kv.keys, (size_t)slot * (size_t)d, a.kv.dtype, x, d);
}

// Warp w takes the tokens w, w + 4, ... by absolute position, lanes take dimensions.
__global__ void __launch_bounds__(LATENT_WARPS * 32) attend_latent(struct cuda_attend_latent a) {
    KD_SHARED(float, shared); // (LATENT_WARPS, C) sums, then (LATENT_WARPS, 2)
    kd_grid_release();
    kd_grid_wait();
    int row = a.row0 + (int)blockIdx.x, head = (int)blockIdx.y, d = a.kv.head_dim, C = a.kv_lora;
    int seq = a.seq_of[row], lane = kd_lane(), warp = kd_warp();
    size_t query = (size_t)row * (size_t)a.num_heads + (size_t)head;
    char *out = act_row(a.out, query, a.ldout, a.act_dtype);
    if (seq < 0) { // padding
        for (int i = (int)threadIdx.x; i < C; i += LATENT_WARPS * 32)
            store_act(out, i, 0, a.act_dtype);
        return;
    }
    int end = a.positions[row] + 1, begin = a.window > 0 && end > a.window ? end - a.window : 0;
    float *acc = shared + warp * C, *stats = shared + LATENT_WARPS * C, max = -INFINITY, sum = 0;
    for (int i = lane; i < C; i += 32)
        acc[i] = 0;
    for (int t = begin + ((warp - begin) & (LATENT_WARPS - 1)); t < end; t += LATENT_WARPS) {
        size_t at = kv_place(a.kv, a.blocks, seq, t, 0);
        float s = 0, value_scale = 1;
#pragma unroll 1
        for (int i = lane; i < d; i += 32)
            s = kd_fma(load_kv(a.q, query * (size_t)d + (size_t)i, cuda_query_dtype(a.kv.dtype)),
                       load_kv(a.kv.keys, at + (size_t)i, a.kv.dtype), s);
        s = kd_warp_sum(s) * (a.scale * LOG2_E);
        if (a.kv.dtype == DTYPE_I8) {
            value_scale = a.kv.key_scales[at / (size_t)d];
            s *= value_scale;
        }
        float top = fmaxf(max, s), f = rescale(max, top), p = kd_exp2(s - top);
        max = top;
        sum = sum * f + p;
#pragma unroll 1
        for (int i = lane; i < C; i += 32)
            acc[i] = acc[i] * f + p * value_scale * load_kv(a.kv.keys, at + (size_t)i, a.kv.dtype);
    }
    if (lane == 0) {
        stats[warp * 2] = max;
        stats[warp * 2 + 1] = sum;
    }
    __syncthreads();
    float top = -INFINITY, total = 0;
    for (int w = 0; w < LATENT_WARPS; w++)
        top = fmaxf(top, stats[w * 2]);
    for (int w = 0; w < LATENT_WARPS; w++)
        total += rescale(stats[w * 2], top) * stats[w * 2 + 1];
    for (int i = (int)threadIdx.x; i < C; i += LATENT_WARPS * 32) {
        float o = 0;
        for (int w = 0; w < LATENT_WARPS; w++)
            o += rescale(stats[w * 2], top) * shared[w * C + i];
        store_act(out, i, o / total, a.act_dtype);
    }
}

extern "C" {

void cuda_latent(struct rt *rt, const struct cuda_latent *a) {
    size_t shared = (size_t)LATENT_WARPS * (size_t)((a->kv.head_dim + 3) & ~3) * sizeof(float);
    if (a->rows > 0)
        rt_launch(rt, finish_latent,
                  rt_grid_of(a->rows, a->num_heads / LATENT_WARPS + 1, LATENT_WARPS * 32, shared), *a);
}

void cuda_attend_latent(struct rt *rt, const struct cuda_attend_latent *a) {
    size_t shared = (size_t)LATENT_WARPS * (size_t)(a->kv_lora + 2) * sizeof(float);
    if (a->rows > 0)
        rt_launch(rt, attend_latent, rt_grid_of(a->rows, a->num_heads, LATENT_WARPS * 32, shared), *a);
}

} // extern "C"
