// Attention of many rows per sequence, on tensor cores, as in FlashAttention-2 (Dao, 2023): 64 packed rows
// (token, head of the group) a block, so that one key head's cache is read once for its whole group; tiles of
// 32 tokens of the cache through a ring of two, so that two blocks share an SM (of heads of 256: one); softmax
// in registers. Tiles of the cache begin at absolute positions, and a tile that a row does not see leaves the
// row as it is: how a prompt was cut into chunks changes no bit.
//
// And attention of any shape, one row and head a block: cuda_attend().
#include "attn.cuh"

enum { ROWS = CUDA_TILE, TOKENS = CUDA_PREFILL_TOKENS, PREFILL_THREADS = 128 };

template <int HD> KD_FN int swizzled(int r, int c) { return r * HD * 2 + ((c ^ (r & 7)) << 4); }

template <int HD> struct prefill_shared {
    // 8 bits: two stages of bytes, then the tiles that they become; scales of both stages behind.
    enum {
        QUERY = ROWS * HD * 2,
        TILE = TOKENS * HD * 2,
        SCALES = QUERY + 4 * TILE,
        ALL = SCALES + 2 * 2 * TOKENS * 4
    };
};

// EIGHT: bytes as they are; scales: where those of the keys, then of the values go, or NULL.
template <int HD, bool EIGHT>
KD_FN void fetch_tile(unsigned char *dst, float *scales, const struct cuda_prefill &a, int seq, int tile,
                      int begin, int end, int h) {
    enum { SIZE = EIGHT ? 1 : 2, CHUNKS = HD * SIZE / 16, TILE = TOKENS * HD * SIZE };
    if (tile * TOKENS < end) {
        for (int i = (int)threadIdx.x; i < TOKENS * CHUNKS; i += PREFILL_THREADS) {
            int r = i / CHUNKS, c = i % CHUNKS, pos = tile * TOKENS + r;
            bool ok = pos >= begin && pos < end;
            size_t at = kv_place(a.kv, a.blocks, seq, ok ? pos : begin, h) * SIZE + (size_t)(c * 16);
            int to = EIGHT ? i * 16 : swizzled<HD>(r, c);
            kd_copy16(dst + to, (const unsigned char *)a.kv.keys + at, ok);
            kd_copy16(dst + TILE + to, (const unsigned char *)a.kv.values + at, ok);
        }
        if (EIGHT && scales && threadIdx.x < 2 * TOKENS / 4) { // 4 tokens lie in one block
            int i = (int)threadIdx.x, pos = tile * TOKENS + i % (TOKENS / 4) * 4;
            bool ok = pos + 3 >= begin && pos < end;
            size_t at = kv_vector(a.kv, a.blocks, seq, ok ? pos : begin / 4 * 4, h);
            kd_copy16(scales + i * 4, (i < TOKENS / 4 ? a.kv.key_scales : a.kv.value_scales) + at, ok);
        }
    }
    kd_copy_commit();
}

// Blocks that an SM should hold: one less where scales of int8 take a few registers more.
template <int HD, bool SCALED> constexpr int prefill_blocks() {
    return HD == 256 ? 1 : (HD == 64 ? 4 : 3) - SCALED;
}

template <int HD, bool HALF, bool EIGHT>
__global__ void __launch_bounds__(PREFILL_THREADS, prefill_blocks<HD, EIGHT && !HALF>())
    prefill_tiles(struct cuda_prefill a) {
    typedef prefill_shared<HD> sizes;
    enum { CHUNKS = HD / 8, STAGE = EIGHT ? sizes::TILE : 2 * sizes::TILE };
    constexpr bool SCALED = EIGHT && !HALF;
    KD_SHARED(unsigned char, shared);
    kd_grid_release();
    kd_grid_wait();
    if ((int)blockIdx.x >= *a.num_tiles)
        return;
    const struct cuda_tile t = a.tiles[blockIdx.x];
    int lane = kd_lane(), warp = kd_warp(), h = (int)blockIdx.y, G = a.group;
    unsigned char *sq = shared, *ring = shared + sizes::QUERY;
    const uint16_t *q = (const uint16_t *)a.q;
    for (int i = (int)threadIdx.x; i < ROWS * CHUNKS; i += PREFILL_THREADS) {
        int r = i / CHUNKS, c = i % CHUNKS, packed = t.first + r;
        bool ok = packed < t.num_rows;
        if (!ok)
            packed = 0;
        size_t row = (size_t)(t.row + packed / G) * (size_t)a.kv.num_heads + (size_t)h;
        kd_copy16(sq + swizzled<HD>(r, c), q + (row * (size_t)G + (size_t)(packed % G)) * HD + c * 8, ok);
    }
    int final = t.first + ROWS < t.num_rows ? t.first + ROWS - 1 : t.num_rows - 1;
    int context = a.context_len ? a.context_len[t.seq] : 0;
    // the end of the last row's keys
    int end = seen_from(t.position + final / G, context, a.window, a.chunked).end;
    int begin = seen_from(t.position + t.first / G, context, a.window, a.chunked).begin;
    int tile = begin / TOKENS, num_tiles = (end + TOKENS - 1) / TOKENS, stage = 0;
    unsigned char *wide = ring + 2 * STAGE;
    float *scales = SCALED ? (float *)(void *)(shared + sizes::SCALES) : NULL;
    fetch_tile<HD, EIGHT>(ring, scales, a, t.seq, tile, begin, end, h);
    float factor = score_factor(a.scale, a.softcap);
    float o[HD / 8][4], max[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    int first[2], last[2]; // tokens that a row sees
#pragma unroll
    for (int i = 0; i < HD / 8; i++)
        for (int e = 0; e < 4; e++)
            o[i][e] = 0;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int packed = t.first + warp * 16 + lane / 4 + 8 * e;
        struct seen_tokens seen = seen_from(t.position + (packed < t.num_rows ? packed : t.num_rows - 1) / G,
                                            context, a.window, a.chunked);
        first[e] = seen.begin, last[e] = seen.end - 1;
    }
    for (; tile < num_tiles; tile++, stage ^= 1) {
        fetch_tile<HD, EIGHT>(ring + (stage ^ 1) * STAGE, SCALED ? scales + (stage ^ 1) * 2 * TOKENS : NULL,
                              a, t.seq, tile + 1, begin, end, h);
        kd_copy_wait<1>();
        __syncthreads();
        const float *scale = SCALED ? scales + stage * 2 * TOKENS : NULL;
        if (EIGHT) {
            widen_rows<HD, HALF>(wide, ring + stage * STAGE, 2 * TOKENS, (int)threadIdx.x, PREFILL_THREADS);
            __syncthreads();
        }
        const unsigned char *keys = EIGHT ? wide : ring + stage * STAGE, *values = keys + sizes::TILE;
        float s[TOKENS / 8][4];
#pragma unroll
        for (int n = 0; n < TOKENS / 8; n++)
            for (int e = 0; e < 4; e++)
                s[n][e] = 0;
#pragma unroll
        for (int kk = 0; kk < HD / 16; kk++) {
            uint32_t x[4], b[4];
            kd_ldmatrix4(x, sq + swizzled<HD>(warp * 16 + (lane & 15), kk * 2 + (lane >> 4)));
#pragma unroll
            for (int n = 0; n < TOKENS / 16; n++) { // 16 tokens, both 8 of k
                kd_ldmatrix4(
                    b, keys + swizzled<HD>(n * 16 + (lane & 7) + (lane >> 4 << 3), kk * 2 + (lane >> 3 & 1)));
                mma16<HALF>(s[2 * n], x, b);
                mma16<HALF>(s[2 * n + 1], x, b + 2);
            }
        }
        if (SCALED) {
#pragma unroll
            for (int n = 0; n < TOKENS / 8; n++)
                for (int e = 0; e < 4; e++)
                    s[n][e] *= scale[n * 8 + lane % 4 * 2 + (e & 1)];
        }
        cap_scores(s, a.scale, a.softcap);
        float top[2] = {max[0], max[1]};
#pragma unroll
        for (int n = 0; n < TOKENS / 8; n++)
            for (int e = 0; e < 4; e++) {
                int token = tile * TOKENS + n * 8 + lane % 4 * 2 + (e & 1);
                bool seen = token <= last[e >> 1] && token >= first[e >> 1];
                s[n][e] = seen ? s[n][e] * factor : -INFINITY;
                top[e >> 1] = fmaxf(top[e >> 1], s[n][e]);
            }
#pragma unroll
        for (int e = 0; e < 2; e++) {
            top[e] = fmaxf(top[e], __shfl_xor_sync(ALL_LANES, top[e], 1));
            top[e] = fmaxf(top[e], __shfl_xor_sync(ALL_LANES, top[e], 2));
            float f = rescale(max[e], top[e]); // 1 where nothing was seen in this tile
            max[e] = top[e];
            sum[e] *= f;
#pragma unroll
            for (int i = 0; i < HD / 8; i++) {
                o[i][2 * e] *= f;
                o[i][2 * e + 1] *= f;
            }
        }
        uint32_t p[TOKENS / 16][4];
#pragma unroll
        for (int n = 0; n < TOKENS / 8; n++) {
            for (int e = 0; e < 4; e++) {
                s[n][e] = rescale(s[n][e], max[e >> 1]);
                sum[e >> 1] += s[n][e];
                int token = tile * TOKENS + n * 8 + lane % 4 * 2 + (e & 1);
                if (SCALED) // 0 * NaN is NaN
                    s[n][e] = token >= begin && token < end ? s[n][e] * scale[TOKENS + token % TOKENS] : 0;
            }
            p[n / 2][n % 2 * 2] = pack16<HALF>(s[n][0], s[n][1]);
            p[n / 2][n % 2 * 2 + 1] = pack16<HALF>(s[n][2], s[n][3]);
        }
#pragma unroll
        for (int n = 0; n < TOKENS / 16; n++)
#pragma unroll
            for (int i = 0; i < HD / 16; i++) {
                uint32_t b[4];
                kd_ldmatrix4_trans(b, values + swizzled<HD>(n * 16 + (lane & 15), i * 2 + (lane >> 4)));
                mma16<HALF>(o[2 * i], p[n], b);
                mma16<HALF>(o[2 * i + 1], p[n], b + 2);
            }
        __syncthreads(); // the stage is written again
    }
    kd_copy_wait<0>();
#pragma unroll
    for (int e = 0; e < 2; e++) {
        sum[e] += __shfl_xor_sync(ALL_LANES, sum[e], 1);
        sum[e] += __shfl_xor_sync(ALL_LANES, sum[e], 2);
        int packed = t.first + warp * 16 + lane / 4 + 8 * e;
        if (packed >= t.num_rows)
            continue;
        sum[e] += sink_part(a.sinks, h * G + packed % G, max[e]);
        char *out = act_row(a.out, (size_t)(t.row + packed / G), a.ldout, a.act_dtype);
        int column = (h * G + packed % G) * HD + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < HD / 8; i++)
            for (int k = 0; k < 2; k++)
                store_act(out, column + i * 8 + k, o[i][2 * e + k] / sum[e], a.act_dtype);
    }
}

// ---- any shape: warp w takes the tokens w, w + 4, ... by absolute position, lanes take dimensions

enum { ANY_WARPS = 4 };

__global__ void __launch_bounds__(ANY_WARPS * 32) attend_any(struct cuda_attend a) {
    KD_SHARED(float, shared); // (ANY_WARPS, d) sums, then (ANY_WARPS, 2)
    kd_grid_release();
    kd_grid_wait();
    int row = a.row0 + (int)blockIdx.x, head = (int)blockIdx.y, d = a.kv.head_dim,
        H = a.kv.num_heads * a.group;
    int seq = a.seq_of[row], lane = kd_lane(), warp = kd_warp();
    char *out = act_row(a.out, (size_t)row, a.ldout, a.act_dtype);
    if (seq < 0) { // padding
        for (int i = (int)threadIdx.x; i < d; i += ANY_WARPS * 32)
            store_act(out, head * d + i, 0, a.act_dtype);
        return;
    }
    struct seen_tokens seen =
        seen_from(a.positions[row], a.context_len ? a.context_len[seq] : 0, a.window, a.chunked);
    size_t q = ((size_t)row * (size_t)H + (size_t)head) * (size_t)d;
    float *acc = shared + warp * d, *stats = shared + ANY_WARPS * d, max = -INFINITY, sum = 0;
    float scale = a.softcap > 0 ? a.scale : a.scale * LOG2_E;
    for (int i = lane; i < d; i += 32)
        acc[i] = 0;
    for (int t = seen.begin + ((warp - seen.begin) & (ANY_WARPS - 1)); t < seen.end; t += ANY_WARPS) {
        size_t at = kv_place(a.kv, a.blocks, seq, t, head / a.group);
        float s = 0;
#pragma unroll 1
        for (int i = lane; i < d; i += 32)
            s = kd_fma(load_kv(a.q, q + (size_t)i, cuda_query_dtype(a.kv.dtype)),
                       load_kv(a.kv.keys, at + (size_t)i, a.kv.dtype), s);
        s = kd_warp_sum(s) * scale;
        float value_scale = 1;
        if (a.kv.dtype == DTYPE_I8) {
            size_t vector = at / (size_t)d;
            s *= a.kv.key_scales[vector];
            value_scale = a.kv.value_scales[vector];
        }
        if (a.softcap > 0)
            s = cap_score(s) * (a.softcap * LOG2_E);
        float top = fmaxf(max, s), f = rescale(max, top), p = kd_exp2(s - top);
        max = top;
        sum = sum * f + p;
#pragma unroll 1
        for (int i = lane; i < d; i += 32)
            acc[i] = acc[i] * f + p * value_scale * load_kv(a.kv.values, at + (size_t)i, a.kv.dtype);
    }
    if (lane == 0) {
        stats[warp * 2] = max;
        stats[warp * 2 + 1] = sum;
    }
    __syncthreads();
    float top = -INFINITY, total = 0;
    for (int w = 0; w < ANY_WARPS; w++)
        top = fmaxf(top, stats[w * 2]);
    for (int w = 0; w < ANY_WARPS; w++)
        total += rescale(stats[w * 2], top) * stats[w * 2 + 1];
    total += sink_part(a.sinks, head, top);
    for (int i = (int)threadIdx.x; i < d; i += ANY_WARPS * 32) {
        float o = 0;
        for (int w = 0; w < ANY_WARPS; w++)
            o += rescale(stats[w * 2], top) * shared[w * d + i];
        store_act(out, head * d + i, o / total, a.act_dtype);
    }
}

template <int HD, bool HALF> static void launch_prefill(struct rt *rt, const struct cuda_prefill *a) {
    struct rt_grid g = rt_grid_of(a->max_tiles, a->kv.num_heads, PREFILL_THREADS, prefill_shared<HD>::ALL);
    if (a->kv.dtype == DTYPE_I8 || a->kv.dtype == DTYPE_F8_E4M3)
        rt_launch(rt, prefill_tiles<HD, HALF, true>, g, *a);
    else
        rt_launch(rt, prefill_tiles<HD, HALF, false>, g, *a);
}

extern "C" {

void cuda_prefill(struct rt *rt, const struct cuda_prefill *a) {
    bool half = cuda_query_dtype(a->kv.dtype) == DTYPE_F16;
    if (a->max_tiles == 0)
        return;
    if (a->tile_rows == CUDA_WIDE_TILE) {
        cuda_prefill_wide(rt, a);
        return;
    }
    if (a->kv.head_dim == 64)
        half ? launch_prefill<64, true>(rt, a) : launch_prefill<64, false>(rt, a);
    else if (a->kv.head_dim == 128)
        half ? launch_prefill<128, true>(rt, a) : launch_prefill<128, false>(rt, a);
    else
        half ? launch_prefill<256, true>(rt, a) : launch_prefill<256, false>(rt, a);
}

int cuda_prefill_rows(struct rt *rt, const struct cuda_kv *kv) {
    return cuda_takes_wgmma(rt) && cuda_has_wide_prefill(rt, kv) ? CUDA_WIDE_TILE : CUDA_TILE;
}

void cuda_attend(struct rt *rt, const struct cuda_attend *a) {
    size_t shared = (size_t)ANY_WARPS * (size_t)(a->kv.head_dim + 2) * sizeof(float);
    if (a->rows > 0)
        rt_launch(rt, attend_any, rt_grid_of(a->rows, a->kv.num_heads * a->group, ANY_WARPS * 32, shared),
                  *a);
}

} // extern "C"
