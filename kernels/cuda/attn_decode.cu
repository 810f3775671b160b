// Attention of one row per sequence over a paged cache: all heads of a group together, so that keys and
// values are read once. A KV split is a sequence's part of CUDA_SPLIT absolute positions; their partials are
// combined in ascending order. Neither the batch nor the number of splits touches a bit of a row.
//
// Caches of 8 bits take half of a stage and, with scales, 128 bytes more; tensor cores get them as 16 bits
// from a tile of the warp's own.
//
// Within a split warp w takes pages of 16 tokens w, w + 4, ... (counted from position 0), each through a ring
// of its own of asynchronous copies: no barrier of the block in the loop. Groups of up to 2 heads go through
// CUDA cores, larger ones through mma with the heads as rows. Rows past the end of a sequence are zeroed on
// load: 0 * NaN is NaN.
#include "attn.cuh"

enum { PAGE = 16, STAGES = CUDA_DECODE_RING };
static_assert(KV_TILE % PAGE == 0, "scales are read by whole pages: a window keeps those of its first token");
template <int HD> constexpr int DECODE_WARPS = CUDA_DECODE_WARPS(HD);

// Copies keys and values of a page to shared memory. SWIZZLE: 16-byte pieces are xored by row for ldmatrix.
// EIGHT: bytes as they are; scales: where those of 16 keys, then of 16 values go, or NULL.
template <int HD, bool SWIZZLE, bool EIGHT>
KD_FN void fetch_page(unsigned char *dst, float *scales, const struct cuda_decode &a,
                      const struct cuda_split &it, int page, int h, int lane) {
    enum { SIZE = EIGHT ? 1 : 2, CHUNKS = HD * SIZE / 16, BYTES = PAGE * HD * SIZE };
    if (page * PAGE < it.end) {
        // A page lies within a block: the block size is a multiple of 16.
        size_t vector = kv_vector(a.kv, a.blocks, it.seq, page * PAGE, h), base = vector * HD * SIZE;
        const unsigned char *k = (const unsigned char *)a.kv.keys + base,
                            *v = (const unsigned char *)a.kv.values + base;
        for (int i = lane; i < PAGE * CHUNKS; i += 32) {
            int r = i / CHUNKS, c = i % CHUNKS, to = r * HD * SIZE + (SWIZZLE ? (c ^ (r & 7)) : c) * 16;
            bool ok = page * PAGE + r >= it.begin && page * PAGE + r < it.end;
            kd_copy16(dst + to, k + i * 16, ok);
            kd_copy16(dst + BYTES + to, v + i * 16, ok);
        }
        if (EIGHT && scales && lane < 8) // those of slots without a token may be anything
            kd_copy16(scales + lane * 4,
                      (lane < 4 ? a.kv.key_scales : a.kv.value_scales) + vector + lane % 4 * 4, true);
    }
    kd_copy_commit();
}

// Adds the warps' results and writes the split's partial. out (WARPS, heads, HD), stats (WARPS, heads, 2) in
// shared memory.
template <int HD>
KD_FN void combine_warps(const struct cuda_decode &a, int split, int head0, int heads, const float *out,
                         const float *stats) {
    int H = a.kv.num_heads * a.group;
    for (int e = (int)threadIdx.x; e < heads * HD; e += DECODE_WARPS<HD> * 32) {
        int g = e / HD, i = e % HD;
        float max = -INFINITY, sum = 0, o = 0;
        for (int w = 0; w < DECODE_WARPS<HD>; w++)
            max = fmaxf(max, stats[(w * heads + g) * 2]);
        for (int w = 0; w < DECODE_WARPS<HD>; w++) {
            float f = rescale(stats[(w * heads + g) * 2], max);
            sum += f * stats[(w * heads + g) * 2 + 1];
            o += f * out[(w * heads + g) * HD + i];
        }
        size_t at = (size_t)split * (size_t)H + (size_t)(head0 + g);
        a.partial[at * HD + (size_t)i] = o;
        if (i == 0) {
            a.stats[at * 2] = max;
            a.stats[at * 2 + 1] = sum;
        }
    }
}

// Partials of a row's splits, which begin with `first` and lie (H) apart, become its result, ascending.
template <int HD>
KD_FN void combine_splits(const struct cuda_decode &a, int row, int first, int num, int head0, int heads) {
    enum { LANES = HD / 4, SEARCH = LANES < 32 ? LANES : 32 }; // lanes: 4 elements each
    size_t H = (size_t)(a.kv.num_heads * a.group);
#pragma unroll 1
    for (int e = (int)threadIdx.x; e / 32 * 32 < heads * LANES; e += DECODE_WARPS<HD> * 32) { // whole warps
        int head = head0 + (e / LANES < heads ? e / LANES : 0), i = e % LANES;
        size_t at = (size_t)first * H + (size_t)head;
        const float2 *stats = (const float2 *)(void *)a.stats + at;
        const float4 *p = (const float4 *)(void *)a.partial + at * LANES + (size_t)i;
        float max = -INFINITY, sum = 0;
        float4 o = {0, 0, 0, 0};
#pragma unroll 1
        for (int s = i % SEARCH; s < num; s += SEARCH)
            max = fmaxf(max, stats[(size_t)s * H].x);
        for (int bits = SEARCH / 2; bits > 0; bits >>= 1)
            max = fmaxf(max, __shfl_xor_sync(ALL_LANES, max, bits));
#pragma unroll 4
        for (int s = 0; s < num; s++) {
            float2 stat = stats[(size_t)s * H];
            float4 v = p[(size_t)s * H * LANES];
            float f = rescale(stat.x, max);
            sum = kd_fma(f, stat.y, sum);
            o.x = kd_fma(f, v.x, o.x), o.y = kd_fma(f, v.y, o.y);
            o.z = kd_fma(f, v.z, o.z), o.w = kd_fma(f, v.w, o.w);
        }
        sum += sink_part(a.sinks, head, max);
        if (e < heads * LANES)
            store_act4(act_row(a.out, (size_t)row, a.ldout, a.act_dtype), head * HD + i * 4,
                       {o.x / sum, o.y / sum, o.z / sum, o.w / sum}, a.act_dtype);
    }
}

// Ends a block: combines its warps; the last of a row's blocks to arrive combines the partials of all.
template <int HD>
KD_FN void finish_split(const struct cuda_decode &a, int head0, int heads, float *out, const float *stats) {
    int split = (int)blockIdx.x, row = a.splits[a.split0 + split].row; // again: few registers in the loop
    int first = a.first_split[row] - a.split0, num = a.first_split[row + 1] - a.split0 - first;
    __syncthreads(); // out and stats are there
    combine_warps<HD>(a, split, head0, heads, out, stats);
    __syncthreads(); // all have left theirs, and have read out
    bool *is_last = (bool *)(void *)out;
    if (threadIdx.x == 0) {
        size_t at = (size_t)first * (size_t)(a.kv.num_heads * a.group) + (size_t)head0;
        *is_last = kd_count(&a.arrived[at], (uint32_t)num - 1) == (uint32_t)num - 1;
    }
    __syncthreads();
    if (*is_last)
        combine_splits<HD>(a, row, first, num, head0, heads);
}

// ---- CUDA cores: G heads, 1 or 2

template <int HD, int G> struct small_shared {
    enum { STAGE = 2 * PAGE * HD * 2, WARP = STAGES * STAGE + G * PAGE * 4, ALL = DECODE_WARPS<HD> * WARP };
};

// With HD 256, 3 blocks fit an SM. Without this bound ptxas would spill to make room for more.
template <int HD, bool HALF, bool EIGHT, int G>
__global__ void __launch_bounds__(DECODE_WARPS<HD> * 32, HD == 256 ? 3 : 0)
    decode_small(struct cuda_decode a) {
    typedef small_shared<HD, G> sizes;
    enum { PER_ROW = HD / 8, ROWS = 32 / PER_ROW, PER_LANE = HD / 32, SIZE = EIGHT ? 1 : 2 };
    constexpr bool SCALED = EIGHT && !HALF;
    KD_SHARED(unsigned char, shared);
    kd_grid_release();
    kd_grid_wait();
    int split = (int)blockIdx.x, h = (int)blockIdx.y, lane = kd_lane(), warp = kd_warp();
    if (a.split0 + split >= *a.num_splits)
        return;
    const struct cuda_split it = a.splits[a.split0 + split];
    int column = lane % PER_ROW, sub = lane / PER_ROW;
    unsigned char *mine = shared + warp * sizes::WARP;
    float *scores = (float *)(void *)(mine + STAGES * sizes::STAGE); // (G, PAGE)
    float q[G][8], acc[G][PER_LANE], max[G], sum[G];
#pragma unroll
    for (int g = 0; g < G; g++) {
        const uint16_t *from = (const uint16_t *)a.q +
                               (((size_t)it.row * (size_t)a.kv.num_heads + (size_t)h) * G + (size_t)g) * HD +
                               column * 8;
#pragma unroll
        for (int i = 0; i < 8; i++)
            q[g][i] = from16<HALF>(from[i]) * (a.softcap > 0 ? a.scale : a.scale * LOG2_E);
#pragma unroll
        for (int i = 0; i < PER_LANE; i++)
            acc[g][i] = 0;
        max[g] = -INFINITY;
        sum[g] = 0;
    }
    int first = it.begin / PAGE, last = (it.end + PAGE - 1) / PAGE; // pages
    int page = first + ((warp - first) & (DECODE_WARPS<HD> - 1)), stage = 0;
    // A stage holds bytes and their scales where it else holds 16-bit elements.
    float *scales = SCALED ? (float *)(void *)(mine + 2 * PAGE * HD) : NULL;
    enum { NEXT = sizes::STAGE / 4 }; // floats from the scales of a stage to those of the other
    fetch_page<HD, false, EIGHT>(mine, scales, a, it, page, h, lane);
    for (; page < last; page += DECODE_WARPS<HD>, stage ^= 1) {
        fetch_page<HD, false, EIGHT>(mine + (stage ^ 1) * sizes::STAGE,
                                     SCALED ? scales + (stage ^ 1) * NEXT : NULL, a, it,
                                     page + DECODE_WARPS<HD>, h, lane);
        kd_copy_wait<1>();
        __syncwarp();
        const unsigned char *keys = mine + stage * sizes::STAGE, *values = keys + PAGE * HD * SIZE;
        const float *scale = SCALED ? scales + stage * NEXT : NULL;
#pragma unroll
        for (int r = 0; r < PAGE; r += ROWS) {
            const unsigned char *k = keys + ((r + sub) * HD + column * 8) * SIZE;
            float s[G];
#pragma unroll
            for (int g = 0; g < G; g++)
                s[g] = 0;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float x = EIGHT ? from8<HALF>(k[i]) : from16<HALF>(((const uint16_t *)(const void *)k)[i]);
#pragma unroll
                for (int g = 0; g < G; g++)
                    s[g] = kd_fma(q[g][i], x, s[g]);
            }
#pragma unroll
            for (int g = 0; g < G; g++) {
#pragma unroll
                for (int bits = PER_ROW / 2; bits > 0; bits >>= 1)
                    s[g] += __shfl_xor_sync(ALL_LANES, s[g], bits);
                int t = page * PAGE + r + sub;
                if (SCALED)
                    s[g] *= scale[r + sub];
                if (column == 0)
                    scores[g * PAGE + r + sub] = t >= it.begin && t < it.end ? s[g] : -INFINITY;
            }
        }
        __syncwarp();
        if (a.softcap > 0) {
            for (int i = lane; i < G * PAGE; i += 32)
                if (page * PAGE + i % PAGE >= it.begin && page * PAGE + i % PAGE < it.end)
                    scores[i] = cap_score(scores[i]) * (a.softcap * LOG2_E);
            __syncwarp();
        }
#pragma unroll
        for (int g = 0; g < G; g++) {
            float before = max[g], part = 0;
            for (int t = 0; t < PAGE; t++)
                max[g] = fmaxf(max[g], scores[g * PAGE + t]);
            float f = rescale(before, max[g]);
#pragma unroll
            for (int i = 0; i < PER_LANE; i++)
                acc[g][i] *= f;
            for (int t = 0; t < PAGE; t++)
                part += rescale(scores[g * PAGE + t], max[g]);
            sum[g] = sum[g] * f + part;
        }
        for (int t = 0; t < PAGE; t++) {
            const unsigned char *v = values + (t * HD + lane * PER_LANE) * SIZE;
#pragma unroll
            for (int g = 0; g < G; g++) {
                float p = rescale(scores[g * PAGE + t], max[g]);
                if (SCALED) // 0 * NaN is NaN
                    p = page * PAGE + t >= it.begin && page * PAGE + t < it.end ? p * scale[PAGE + t] : 0;
#pragma unroll
                for (int i = 0; i < PER_LANE; i++)
                    acc[g][i] = kd_fma(
                        p, EIGHT ? from8<HALF>(v[i]) : from16<HALF>(((const uint16_t *)(const void *)v)[i]),
                        acc[g][i]);
            }
        }
        __syncwarp(); // the stage and the scores are written again
    }
    kd_copy_wait<0>();
    __syncthreads(); // every warp is done with its stages
    float *out = (float *)(void *)shared, *stats = out + DECODE_WARPS<HD> * G * HD;
#pragma unroll
    for (int g = 0; g < G; g++) {
#pragma unroll
        for (int i = 0; i < PER_LANE; i++)
            out[(warp * G + g) * HD + lane * PER_LANE + i] = acc[g][i];
        if (lane == 0) {
            stats[(warp * G + g) * 2] = max[g];
            stats[(warp * G + g) * 2 + 1] = sum[g];
        }
    }
    finish_split<HD>(a, (int)blockIdx.y * G, G, out, stats);
}

// ---- mma: up to 16 heads of a group as rows

template <int HD> struct large_shared {
    enum {
        STAGE = 2 * PAGE * HD * 2,
        QUERY = 16 * HD * 2,
        RINGS = DECODE_WARPS<HD> * STAGES * STAGE,
        COMBINE = DECODE_WARPS<HD> * 16 * (HD + 2) * 4,
        SCALES = QUERY + (RINGS > COMBINE ? RINGS : COMBINE), // where those of 8-bit caches are
        ALL = SCALES + DECODE_WARPS<HD> * STAGES * 2 * PAGE * 4
    };
};

template <int HD, bool HALF, bool EIGHT>
__global__ void __launch_bounds__(DECODE_WARPS<HD> * 32) decode_large(struct cuda_decode a) {
    typedef large_shared<HD> sizes;
    enum { CHUNKS = HD / 8, STAGE = EIGHT ? sizes::STAGE / 2 : sizes::STAGE };
    constexpr bool SCALED = EIGHT && !HALF;
    KD_SHARED(unsigned char, shared);
    kd_grid_release();
    kd_grid_wait();
    int split = (int)blockIdx.x, h = (int)blockIdx.y, lane = kd_lane(), warp = kd_warp();
    int head0 = (int)blockIdx.z * 16, heads = a.group - head0 < 16 ? a.group - head0 : 16;
    if (a.split0 + split >= *a.num_splits)
        return;
    const struct cuda_split it = a.splits[a.split0 + split];
    unsigned char *sq = shared, *rings = shared + sizes::QUERY, *mine = rings + warp * STAGES * sizes::STAGE;
    const uint16_t *q =
        (const uint16_t *)a.q +
        (((size_t)it.row * (size_t)a.kv.num_heads + (size_t)h) * (size_t)a.group + (size_t)head0) * HD;
    for (int i = (int)threadIdx.x; i < 16 * CHUNKS; i += DECODE_WARPS<HD> * 32) {
        int r = i / CHUNKS, c = i % CHUNKS;
        kd_copy16(sq + r * HD * 2 + ((c ^ (r & 7)) << 4), q + (r < heads ? i * 8 : 0), r < heads);
    }
    kd_copy_commit();
    int first = it.begin / PAGE, last = (it.end + PAGE - 1) / PAGE;
    int page = first + ((warp - first) & (DECODE_WARPS<HD> - 1)), stage = 0;
    // 8 bits: two stages of bytes, then the tile that they become.
    unsigned char *wide = mine + 2 * STAGE;
    float *scales = SCALED ? (float *)(void *)(shared + sizes::SCALES) + warp * STAGES * 2 * PAGE : NULL;
    fetch_page<HD, !EIGHT, EIGHT>(mine, scales, a, it, page, h, lane);
    kd_copy_wait<1>();
    __syncthreads(); // the queries of all threads have landed
    float factor = score_factor(a.scale, a.softcap);
    float o[HD / 8][4], max[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < HD / 8; i++)
        for (int e = 0; e < 4; e++)
            o[i][e] = 0;
    for (; page < last; page += DECODE_WARPS<HD>, stage ^= 1) {
        fetch_page<HD, !EIGHT, EIGHT>(mine + (stage ^ 1) * STAGE,
                                      SCALED ? scales + (stage ^ 1) * 2 * PAGE : NULL, a, it,
                                      page + DECODE_WARPS<HD>, h, lane);
        kd_copy_wait<1>();
        __syncwarp();
        const float *scale = SCALED ? scales + stage * 2 * PAGE : NULL;
        if (EIGHT) {
            widen_rows<HD, HALF>(wide, mine + stage * STAGE, 2 * PAGE, lane, 32);
            __syncwarp();
        }
        const unsigned char *keys = EIGHT ? wide : mine + stage * STAGE, *values = keys + PAGE * HD * 2;
        float s[2][4] = {};
#pragma unroll
        for (int kk = 0; kk < HD / 16; kk++) {
            uint32_t x[4], b[4];
            int r = lane & 15, c = kk * 2 + (lane >> 4);
            kd_ldmatrix4(x, sq + r * HD * 2 + ((c ^ (r & 7)) << 4));
            r = (lane & 7) + (lane >> 4 << 3);
            c = kk * 2 + (lane >> 3 & 1);
            kd_ldmatrix4(b, keys + r * HD * 2 + ((c ^ (r & 7)) << 4));
            mma16<HALF>(s[0], x, b);
            mma16<HALF>(s[1], x, b + 2);
        }
        if (SCALED) {
#pragma unroll
            for (int n = 0; n < 2; n++)
                for (int e = 0; e < 4; e++)
                    s[n][e] *= scale[n * 8 + lane % 4 * 2 + (e & 1)];
        }
        cap_scores(s, a.scale, a.softcap);
        float top[2] = {max[0], max[1]};
#pragma unroll
        for (int n = 0; n < 2; n++)
            for (int e = 0; e < 4; e++) {
                int t = page * PAGE + n * 8 + lane % 4 * 2 + (e & 1);
                s[n][e] = t >= it.begin && t < it.end ? s[n][e] * factor : -INFINITY;
                top[e >> 1] = fmaxf(top[e >> 1], s[n][e]);
            }
#pragma unroll
        for (int e = 0; e < 2; e++) {
            top[e] = fmaxf(top[e], __shfl_xor_sync(ALL_LANES, top[e], 1));
            top[e] = fmaxf(top[e], __shfl_xor_sync(ALL_LANES, top[e], 2));
            float f = rescale(max[e], top[e]);
            max[e] = top[e];
            sum[e] *= f;
#pragma unroll
            for (int i = 0; i < HD / 8; i++) {
                o[i][2 * e] *= f;
                o[i][2 * e + 1] *= f;
            }
        }
#pragma unroll
        for (int n = 0; n < 2; n++)
            for (int e = 0; e < 4; e++) {
                s[n][e] = rescale(s[n][e], max[e >> 1]);
                sum[e >> 1] += s[n][e];
                int t = page * PAGE + n * 8 + lane % 4 * 2 + (e & 1);
                if (SCALED) // 0 * NaN is NaN
                    s[n][e] = t >= it.begin && t < it.end ? s[n][e] * scale[PAGE + t % PAGE] : 0;
            }
        uint32_t p[4] = {pack16<HALF>(s[0][0], s[0][1]), pack16<HALF>(s[0][2], s[0][3]),
                         pack16<HALF>(s[1][0], s[1][1]), pack16<HALF>(s[1][2], s[1][3])};
#pragma unroll
        for (int i = 0; i < HD / 16; i++) {
            uint32_t b[4];
            int r = lane & 15, c = i * 2 + (lane >> 4);
            kd_ldmatrix4_trans(b, values + r * HD * 2 + ((c ^ (r & 7)) << 4));
            mma16<HALF>(o[2 * i], p, b);
            mma16<HALF>(o[2 * i + 1], p, b + 2);
        }
        __syncwarp(); // the stage is written again
    }
    kd_copy_wait<0>();
    __syncthreads(); // every warp is done with its stages
    float *out = (float *)(void *)rings, *stats = out + DECODE_WARPS<HD> * heads * HD;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int r = lane / 4 + 8 * e;
        sum[e] += __shfl_xor_sync(ALL_LANES, sum[e], 1);
        sum[e] += __shfl_xor_sync(ALL_LANES, sum[e], 2);
        if (r >= heads)
            continue;
#pragma unroll
        for (int i = 0; i < HD / 8; i++)
            for (int k = 0; k < 2; k++)
                out[(warp * heads + r) * HD + i * 8 + lane % 4 * 2 + k] = o[i][2 * e + k];
        if (lane % 4 == 0) {
            stats[(warp * heads + r) * 2] = max[e];
            stats[(warp * heads + r) * 2 + 1] = sum[e];
        }
    }
    finish_split<HD>(a, h * a.group + head0, heads, out, stats);
}

template <int HD, bool HALF, bool EIGHT>
static void launch_decode(struct rt *rt, const struct cuda_decode *a) {
    struct rt_grid g = rt_grid_of(a->max_splits, a->kv.num_heads, DECODE_WARPS<HD> * 32, 0);
    if (a->group == 1) {
        g.shared = small_shared<HD, 1>::ALL;
        rt_launch(rt, decode_small<HD, HALF, EIGHT, 1>, g, *a);
    } else if (a->group == 2) {
        g.shared = small_shared<HD, 2>::ALL;
        rt_launch(rt, decode_small<HD, HALF, EIGHT, 2>, g, *a);
    } else {
        g.grid.z = (unsigned)(a->group + 15) / 16;
        g.shared = large_shared<HD>::ALL;
        rt_launch(rt, decode_large<HD, HALF, EIGHT>, g, *a);
    }
}

template <int HD, bool HALF> static void decode_bits(struct rt *rt, const struct cuda_decode *a) {
    bool eight = a->kv.dtype == DTYPE_I8 || a->kv.dtype == DTYPE_F8_E4M3;
    eight ? launch_decode<HD, HALF, true>(rt, a) : launch_decode<HD, HALF, false>(rt, a);
}

extern "C" {

bool cuda_attention_fast(const struct cuda_kv *kv) {
    return (kv->head_dim == 64 || kv->head_dim == 128 || kv->head_dim == 256) && kv->block_size % PAGE == 0 &&
           kv->dtype != DTYPE_F32;
}

void cuda_decode(struct rt *rt, const struct cuda_decode *a) {
    bool half = cuda_query_dtype(a->kv.dtype) == DTYPE_F16;
    if (a->max_splits == 0)
        return;
    if (a->kv.head_dim == 64)
        half ? decode_bits<64, true>(rt, a) : decode_bits<64, false>(rt, a);
    else if (a->kv.head_dim == 128)
        half ? decode_bits<128, true>(rt, a) : decode_bits<128, false>(rt, a);
    else
        half ? decode_bits<256, true>(rt, a) : decode_bits<256, false>(rt, a);
}

} // extern "C"
