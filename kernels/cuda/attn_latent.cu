// Latent attention on tensor cores, for latents of 512 elements and keys of 64 behind them. A block has 16 heads of a row, as
// rows of the mma, so that they share what is read of a token: its vector, which is key and value. In a tile of 32 tokens
// warps divide the tokens for scores and the latent's elements for sums; probabilities pass through shared memory.
//
// Rows that decode are cut into KV splits as in attn_decode.cu; rows of prompts are many, and go over their whole context.
#include "attn.cuh"

enum {
    LATENT = 512,
    VECTOR = LATENT + 64,
    HEADS = 16,
    TOKENS = CUDA_LATENT_TOKENS,
    WARPS = 4,
    THREADS = WARPS * 32
};
enum { PROB_ROW = TOKENS * 2 + 16 }; // bytes: rows of an ldmatrix lie in different banks

struct latent_shared {
    enum {
        STAGE = TOKENS * VECTOR * 2, // 8 bits: half, and the tile that they become behind both stages
        RING = HEADS * VECTOR * 2,
        PROBS = RING + 2 * STAGE,
        STATS = PROBS + HEADS * PROB_ROW, // (WARPS, HEADS) maxima, and at the end sums
        SCALES = STATS + WARPS * HEADS * 4,
        ALL = SCALES + 2 * TOKENS * 4
    };
};

KD_FN int place_of(int r, int c) { return r * VECTOR * 2 + ((c ^ (r & 7)) << 4); }

struct latent_part { // of a sequence, tokens [begin, end)
    int row, seq, begin, end;
};

// Copies a tile's vectors, and scales where there are some.
template <bool EIGHT>
KD_FN void fetch_vectors(unsigned char *dst, float *scales, const struct cuda_attend_latent &a,
                         const struct latent_part &it, int tile) {
    enum { SIZE = EIGHT ? 1 : 2, CHUNKS = VECTOR * SIZE / 16, PER_TOKEN = THREADS / TOKENS };
    if (tile * TOKENS < it.end) {
        int r = (int)threadIdx.x / PER_TOKEN, pos = tile * TOKENS + r;
        bool ok = pos >= it.begin && pos < it.end;
        size_t at = kv_place(a.kv, a.blocks, it.seq, ok ? pos : it.begin, 0) * SIZE;
#pragma unroll
        for (int c = (int)threadIdx.x % PER_TOKEN; c < CHUNKS; c += PER_TOKEN)
            kd_copy16(dst + (EIGHT ? (r * CHUNKS + c) * 16 : place_of(r, c)),
                      (const unsigned char *)a.kv.keys + at + c * 16, ok);
        if (scales && threadIdx.x < TOKENS / 4) { // 4 tokens lie in one block
            pos = tile * TOKENS + (int)threadIdx.x * 4;
            ok = pos + 3 >= it.begin && pos < it.end;
            kd_copy16(scales + threadIdx.x * 4,
                      a.kv.key_scales + kv_vector(a.kv, a.blocks, it.seq, ok ? pos : it.begin / 4 * 4, 0),
                      ok);
        }
    }
    kd_copy_commit();
}

// Scores of 16 heads and the warp's 8 tokens.
template <bool HALF> KD_FN void make_scores(float s[4], const unsigned char *q, const unsigned char *keys) {
    int lane = kd_lane(), token = kd_warp() * 8 + (lane & 7);
#pragma unroll 3
    for (int kk = 0; kk < VECTOR / 32; kk++) {
        uint32_t x[4], b[4];
        kd_ldmatrix4(b, keys + place_of(token, kk * 4 + (lane >> 3)));
        kd_ldmatrix4(x, q + place_of(lane & 15, kk * 4 + (lane >> 4)));
        mma16<HALF>(s, x, b);
        kd_ldmatrix4(x, q + place_of(lane & 15, kk * 4 + 2 + (lane >> 4)));
        mma16<HALF>(s, x, b + 2);
    }
}

// The last of a row's blocks to arrive combines their partials, ascending.
KD_FN void combine(const struct cuda_attend_latent &a, int row, int head0, int heads, bool *is_last) {
    int first = a.first_split[row] - a.split0, num = a.first_split[row + 1] - a.split0 - first;
    size_t H = (size_t)a.num_heads, at = (size_t)first * H + (size_t)head0;
    __syncthreads(); // all have left theirs
    if (threadIdx.x == 0)
        *is_last = kd_count(&a.arrived[at], (uint32_t)num - 1) == (uint32_t)num - 1;
    __syncthreads();
    if (!*is_last)
        return;
    for (int e = (int)threadIdx.x; e < heads * LATENT / 4; e += THREADS) {
        int g = e / (LATENT / 4), i = e % (LATENT / 4);
        const float2 *stats = (const float2 *)(void *)a.stats + at + (size_t)g;
        const float4 *p = (const float4 *)(void *)a.partial + (at + (size_t)g) * (LATENT / 4) + (size_t)i;
        float max = -INFINITY, sum = 0;
        float4 o = {0, 0, 0, 0};
        for (int s = 0; s < num; s++)
            max = fmaxf(max, stats[(size_t)s * H].x);
        for (int s = 0; s < num; s++) {
            float f = rescale(stats[(size_t)s * H].x, max);
            float4 v = p[(size_t)s * H * (LATENT / 4)];
            sum = kd_fma(f, stats[(size_t)s * H].y, sum);
            o.x = kd_fma(f, v.x, o.x), o.y = kd_fma(f, v.y, o.y);
            o.z = kd_fma(f, v.z, o.z), o.w = kd_fma(f, v.w, o.w);
        }
        store_act4(act_row(a.out, (size_t)row * H + (size_t)(head0 + g), a.ldout, a.act_dtype), i * 4,
                   {o.x / sum, o.y / sum, o.z / sum, o.w / sum}, a.act_dtype);
    }
}

template <bool HALF, bool EIGHT>
__global__ void __launch_bounds__(THREADS, 2) latent_heads(struct cuda_attend_latent a) {
    typedef latent_shared sizes;
    enum { STAGE = EIGHT ? sizes::STAGE / 2 : sizes::STAGE, MINE = LATENT / WARPS / 8 }; // tiles of 8 columns
    constexpr bool SCALED = EIGHT && !HALF;
    KD_SHARED(unsigned char, shared);
    kd_grid_release();
    kd_grid_wait();
    int lane = kd_lane(), warp = kd_warp(), head0 = (int)blockIdx.y * HEADS;
    int heads = a.num_heads - head0 < HEADS ? a.num_heads - head0 : HEADS;
    struct latent_part it;
    if (a.splits) {
        if (a.split0 + (int)blockIdx.x >= *a.num_splits)
            return;
        const struct cuda_split s = a.splits[a.split0 + (int)blockIdx.x];
        it = {s.row, s.seq, s.begin, s.end};
    } else {
        it.row = a.row0 + (int)blockIdx.x, it.seq = a.seq_of[it.row], it.end = a.positions[it.row] + 1;
        it.begin = a.window > 0 && it.end > a.window ? it.end - a.window : 0;
    }
    size_t query = (size_t)it.row * (size_t)a.num_heads + (size_t)head0;
    unsigned char *ring = shared + sizes::RING, *wide = ring + 2 * STAGE, *probs = shared + sizes::PROBS;
    float *stats = (float *)(void *)(shared + sizes::STATS),
          *scales = SCALED ? (float *)(void *)(shared + sizes::SCALES) : NULL;
    const uint16_t *q = (const uint16_t *)a.q + query * VECTOR;
    for (int i = (int)threadIdx.x; i < HEADS * VECTOR / 8; i += THREADS) {
        int r = i / (VECTOR / 8), c = i % (VECTOR / 8);
        kd_copy16(shared + place_of(r, c), q + (r < heads ? i * 8 : 0), r < heads);
    }
    int tile = it.begin / TOKENS, last = (it.end + TOKENS - 1) / TOKENS, stage = 0;
    fetch_vectors<EIGHT>(ring, scales, a, it, tile);
    float o[MINE][4], max[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < MINE; i++)
        for (int e = 0; e < 4; e++)
            o[i][e] = 0;
    for (; tile < last; tile++, stage ^= 1) {
        fetch_vectors<EIGHT>(ring + (stage ^ 1) * STAGE, SCALED ? scales + (stage ^ 1) * TOKENS : NULL, a, it,
                             tile + 1);
        kd_copy_wait<1>();
        __syncthreads();
        const unsigned char *vectors = EIGHT ? wide : ring + stage * STAGE;
        if (EIGHT) {
            widen_rows<VECTOR, HALF>(wide, ring + stage * STAGE, TOKENS, (int)threadIdx.x, THREADS);
            __syncthreads();
        }
        float s[4] = {0, 0, 0, 0}, top[2] = {-INFINITY, -INFINITY};
        make_scores<HALF>(s, shared, vectors);
        int t = warp * 8 + lane % 4 * 2; // of the tile; the other is the next
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int pos = tile * TOKENS + t + (e & 1);
            if (SCALED)
                s[e] *= scales[stage * TOKENS + t + (e & 1)];
            s[e] = pos >= it.begin && pos < it.end ? s[e] * (a.scale * LOG2_E) : -INFINITY;
            top[e >> 1] = fmaxf(top[e >> 1], s[e]);
        }
#pragma unroll
        for (int e = 0; e < 2; e++) {
            top[e] = fmaxf(top[e], __shfl_xor_sync(ALL_LANES, top[e], 1));
            top[e] = fmaxf(top[e], __shfl_xor_sync(ALL_LANES, top[e], 2));
            if (lane % 4 == 0)
                stats[warp * HEADS + lane / 4 + 8 * e] = top[e];
        }
        __syncthreads(); // the maxima of all warps are there
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int r = lane / 4 + 8 * e;
            top[e] = max[e];
            for (int w = 0; w < WARPS; w++)
                top[e] = fmaxf(top[e], stats[w * HEADS + r]);
            float f = rescale(max[e], top[e]), p[2];
            max[e] = top[e];
            sum[e] *= f;
#pragma unroll
            for (int k = 0; k < 2; k++) {
                p[k] = rescale(s[2 * e + k], top[e]);
                sum[e] += p[k];
                int pos = tile * TOKENS + t + k;
                if (SCALED) // 0 * NaN is NaN
                    p[k] = pos >= it.begin && pos < it.end ? p[k] * scales[stage * TOKENS + t + k] : 0;
            }
            *(uint32_t *)(void *)(probs + r * PROB_ROW + t * 2) = pack16<HALF>(p[0], p[1]);
#pragma unroll
            for (int i = 0; i < MINE; i++) {
                o[i][2 * e] *= f;
                o[i][2 * e + 1] *= f;
            }
        }
        __syncthreads(); // the probabilities of all warps are there
#pragma unroll
        for (int n = 0; n < TOKENS / 16; n++) {
            uint32_t p[4];
            kd_ldmatrix4(p, probs + (lane & 15) * PROB_ROW + (n * 2 + (lane >> 4)) * 16);
#pragma unroll
            for (int i = 0; i < MINE; i += 2) {
                uint32_t b[4];
                kd_ldmatrix4_trans(b,
                                   vectors + place_of(n * 16 + (lane & 15), warp * MINE + i + (lane >> 4)));
                mma16<HALF>(o[i], p, b);
                mma16<HALF>(o[i + 1], p, b + 2);
            }
        }
        __syncthreads(); // the stage is written again
    }
    kd_copy_wait<0>();
#pragma unroll
    for (int e = 0; e < 2; e++) {
        sum[e] += __shfl_xor_sync(ALL_LANES, sum[e], 1);
        sum[e] += __shfl_xor_sync(ALL_LANES, sum[e], 2);
        if (lane % 4 == 0)
            stats[warp * HEADS + lane / 4 + 8 * e] = sum[e];
    }
    __syncthreads();
    size_t split = blockIdx.x * (size_t)a.num_heads + (size_t)head0;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int r = lane / 4 + 8 * e;
        float all = 0;
        for (int w = 0; w < WARPS; w++)
            all += stats[w * HEADS + r];
        if (r >= heads)
            continue;
        char *out = act_row(a.out, query + (size_t)r, a.ldout, a.act_dtype);
        float *partial = a.partial + (split + (size_t)r) * LATENT;
#pragma unroll
        for (int i = 0; i < MINE; i++)
            for (int k = 0; k < 2; k++) {
                int column = (warp * MINE + i) * 8 + lane % 4 * 2 + k;
                if (a.splits)
                    partial[column] = o[i][2 * e + k];
                else
                    store_act(out, column, o[i][2 * e + k] / all, a.act_dtype);
            }
        if (a.splits && warp == 0 && lane % 4 == 0) {
            a.stats[(split + (size_t)r) * 2] = max[e];
            a.stats[(split + (size_t)r) * 2 + 1] = all;
        }
    }
    if (a.splits)
        combine(a, it.row, head0, heads, (bool *)(void *)probs);
}

extern "C" {

bool cuda_latent_fast(const struct cuda_kv *kv, int kv_lora) {
    return kv_lora == LATENT && kv->head_dim == VECTOR && kv->block_size % 16 == 0 && kv->dtype != DTYPE_F32;
}

void cuda_attend_latent_fast(struct rt *rt, const struct cuda_attend_latent *a) {
    bool half = cuda_query_dtype(a->kv.dtype) == DTYPE_F16,
         eight = a->kv.dtype == DTYPE_I8 || a->kv.dtype == DTYPE_F8_E4M3;
    if ((a->splits ? a->max_splits : a->rows) == 0)
        return;
    struct rt_grid g = rt_grid_of(a->splits ? a->max_splits : a->rows, (a->num_heads + HEADS - 1) / HEADS,
                                  THREADS, latent_shared::ALL);
    if (half)
        eight ? rt_launch(rt, latent_heads<true, true>, g, *a)
              : rt_launch(rt, latent_heads<true, false>, g, *a);
    else
        eight ? rt_launch(rt, latent_heads<false, true>, g, *a)
              : rt_launch(rt, latent_heads<false, false>, g, *a);
}

} // extern "C"
