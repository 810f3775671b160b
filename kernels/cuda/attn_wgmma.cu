// Attention of many rows per sequence on Hopper's tensor cores (sm_90a), beside the kernel of
// attn_prefill.cu, which every device has: 128 packed rows (token, head of the group) a block, 64 for each of
// two warpgroups; tiles of 128 tokens of the cache, which both read, through a ring of two. As in
// FlashAttention-3 (Shah et al., 2024) the scores of the next tile are computed while the values of this one
// are multiplied, so that the softmax of a warpgroup has wgmma beside it, its own and the other's. Tiles
// of the cache begin at absolute positions, and one that a row does not see leaves the row as it is, as
// there.
//
// Caches of bf16 and f16, heads of 64 and 128.
#include "attn.cuh"
#include "wgmma.h"

#ifdef KD_WGMMA

enum { WIDE_ROWS = CUDA_WIDE_TILE, GROUP_ROWS = 64, WIDE_TOKENS = CUDA_WIDE_TOKENS, WIDE_THREADS = 256 };
static_assert(WIDE_ROWS == WIDE_THREADS / 128 * GROUP_ROWS, "a warpgroup has 64 rows");

// A matrix of HD columns in shared memory: blocks of 64 columns, one behind the other, with rows of 128 bytes
// as wgmma.h says.
template <int HD> struct wide_shared {
    enum {
        QUERY = WIDE_ROWS * HD * 2,
        TILE = WIDE_TOKENS * HD * 2,
        ALL = QUERY + 4 * TILE + KD_PATTERN_ALIGN
    };
};
enum { ROW_BYTES = 128, PATTERN = 8 * ROW_BYTES };

#ifdef KD_WGMMA_CODE

// Where piece c (16 bytes) of row r lies in a matrix of so many rows.
KD_FN unsigned piece_of(unsigned rows, unsigned r, unsigned c) {
    return c / 8 * rows * ROW_BYTES + r * ROW_BYTES + ((c % 8 ^ r % 8) << 4);
}

// Where 16 tokens of the cache begin, in units of 16 vectors: lane i has those of part i % 8 of a tile. A
// part of which nothing is read has some other place that is there.
KD_FN unsigned find_pages(const struct cuda_prefill &a, int seq, int tile, int begin, int end, int h) {
    int pos = tile * WIDE_TOKENS + kd_lane() % (WIDE_TOKENS / 16) * 16;
    if (pos + 15 < begin || pos >= end)
        pos = begin / 16 * 16;
    return (unsigned)(kv_vector(a.kv, a.blocks, seq, pos, h) / 16);
}

// Starts copies of keys (or values) of one tile; zeros where the sequence has no token.
template <int HD>
KD_FN void fetch_wide(unsigned char *dst, const void *cache, unsigned pages, int tile, int begin, int end) {
    enum : unsigned { PIECES = HD / 8, STEP = WIDE_THREADS / PIECES }; // rows further a copy, whole patterns
    unsigned row = threadIdx.x / PIECES, c = threadIdx.x % PIECES;
    const uint4 *from = (const uint4 *)cache + row % 16 * PIECES + c;
    dst += piece_of(WIDE_TOKENS, row, c);
    int pos = tile * WIDE_TOKENS + (int)row;
#pragma unroll
    for (unsigned n = 0; n < WIDE_TOKENS / STEP; n++) {
        unsigned page = __shfl_sync(ALL_LANES, pages, (int)((row + n * STEP) / 16));
        bool ok = pos + (int)(n * STEP) >= begin && pos + (int)(n * STEP) < end;
        kd_copy16(dst + n * STEP * ROW_BYTES, from + (size_t)page * (16 * PIECES), ok);
    }
}

// s (64 rows, tokens of a tile) = queries of this warpgroup times keys.
template <int HD, bool HALF>
KD_FN void start_scores(float (&s)[WIDE_TOKENS / 8][4], uint64_t queries, uint64_t keys) {
#pragma unroll
    for (int k = 0; k < HD / 16; k++)
        kd_wgmma<WIDE_TOKENS, HALF, false, false>(
            s, kd_further(queries, (uint32_t)(k / 4 * WIDE_ROWS * ROW_BYTES + k % 4 * 32)),
            kd_further(keys, (uint32_t)(k / 4 * WIDE_TOKENS * ROW_BYTES + k % 4 * 32)), k > 0);
    kd_wgmma_commit();
}

// o (64 rows, HD) += probabilities times values.
template <int HD, bool HALF>
KD_FN void start_outputs(float (&o)[HD / 8][4], const uint32_t (&p)[WIDE_TOKENS / 16][4], uint64_t values) {
#pragma unroll
    for (int k = 0; k < WIDE_TOKENS / 16; k++)
        kd_wgmma<HD, HALF, true>(o, p[k], kd_further(values, (uint32_t)(k * 2 * PATTERN)), true);
    kd_wgmma_commit();
}

// The two rows of a thread.
struct wide_rows {
    int first[2], last[2]; // tokens that they see
    int from, to;          // and that all rows of the warp see
    float max[2], sum[2];  // of scores in base 2, and of probabilities
};

// Scores become unnormalised probabilities; f: the rescale factors of sums and outputs of the tiles before.
KD_FN void softmax_tile(float (&s)[WIDE_TOKENS / 8][4], float f[2], struct wide_rows &rows, int tile,
                        const struct cuda_prefill &a) {
    float scale = score_factor(a.scale, a.softcap);
    cap_scores(s, a.scale, a.softcap);
    int first = tile * WIDE_TOKENS;
    if (first < rows.from || first + WIDE_TOKENS - 1 > rows.to) {
#pragma unroll
        for (int n = 0; n < WIDE_TOKENS / 8; n++)
            for (int e = 0; e < 4; e++) {
                int token = first + n * 8 + kd_lane() % 4 * 2 + (e & 1);
                bool seen = token <= rows.last[e >> 1] && token >= rows.first[e >> 1];
                s[n][e] = seen ? s[n][e] : -INFINITY;
            }
    }
    float top[2] = {-INFINITY, -INFINITY}, base[2];
#pragma unroll
    for (int n = 0; n < WIDE_TOKENS / 8; n++)
        for (int e = 0; e < 4; e++)
            top[e >> 1] = fmaxf(top[e >> 1], s[n][e]);
#pragma unroll
    for (int e = 0; e < 2; e++) {
        top[e] = fmaxf(top[e], __shfl_xor_sync(ALL_LANES, top[e], 1));
        top[e] = fmaxf(top[e], __shfl_xor_sync(ALL_LANES, top[e], 2));
        top[e] = fmaxf(rows.max[e], top[e] * scale);
        f[e] = rescale(rows.max[e], top[e]); // 1 where nothing larger was seen
        rows.max[e] = top[e];
        rows.sum[e] *= f[e];
        base[e] = top[e] == -INFINITY ? 0 : -top[e]; // nothing seen yet: probabilities of 0, no NaN
    }
#pragma unroll
    for (int n = 0; n < WIDE_TOKENS / 8; n++)
        for (int e = 0; e < 4; e++) {
            s[n][e] = kd_exp2(kd_fma(s[n][e], scale, base[e >> 1]));
            rows.sum[e >> 1] += s[n][e];
        }
}

// Probabilities in the type of the cache, as wgmma takes them in registers.
template <bool HALF>
KD_FN void pack_probs(uint32_t (&p)[WIDE_TOKENS / 16][4], const float (&s)[WIDE_TOKENS / 8][4]) {
#pragma unroll
    for (int n = 0; n < WIDE_TOKENS / 8; n++) {
        p[n / 2][n % 2 * 2] = pack16<HALF>(s[n][0], s[n][1]);
        p[n / 2][n % 2 * 2 + 1] = pack16<HALF>(s[n][2], s[n][3]);
    }
}

// Ends a tile's softmax: outputs of the tiles before are there, and on the same scale; probabilities are
// packed, and what was being copied, values of this tile and keys of the next, can be read.
template <bool HALF, int N>
KD_FN void finish_softmax(float (&o)[N][4], uint32_t (&p)[WIDE_TOKENS / 16][4],
                          float (&s)[WIDE_TOKENS / 8][4], const float f[2]) {
    kd_wgmma_wait<0>(); // outputs of the tiles before
    kd_wgmma_hold(o);
    kd_wgmma_hold(p);
#pragma unroll
    for (int i = 0; i < N; i++)
        for (int e = 0; e < 4; e++)
            o[i][e] *= f[e >> 1];
    pack_probs<HALF>(p, s);
    kd_copy_wait<0>();
    kd_shared_fence();
    __syncthreads(); // and no thread reads the values of the tile before and the keys of this one any more
    kd_wgmma_hold(s);
    kd_wgmma_hold(o);
    kd_wgmma_hold(p);
    kd_wgmma_fence();
}

#endif

template <int HD, bool HALF>
__global__ void __launch_bounds__(WIDE_THREADS, 1) prefill_wide(struct cuda_prefill a) {
#ifdef KD_WGMMA_CODE
    typedef wide_shared<HD> sizes;
    enum : unsigned { PIECES = HD / 8 };
    KD_SHARED(unsigned char, unaligned);
    kd_grid_release();
    kd_grid_wait();
    if ((int)blockIdx.x >= *a.num_tiles)
        return;
    unsigned char *shared = kd_aligned(unaligned), *keys = shared + sizes::QUERY,
                  *values = keys + 2 * sizes::TILE;
    const struct cuda_tile t = a.tiles[blockIdx.x];
    int lane = kd_lane(), warp = kd_warp(), h = (int)blockIdx.y, G = a.group;
    int last = t.first + WIDE_ROWS < t.num_rows ? t.first + WIDE_ROWS - 1 : t.num_rows - 1;
    int context = a.context_len ? a.context_len[t.seq] : 0;
    // the end of the last row's keys
    int end = seen_from(t.position + last / G, context, a.window, a.chunked).end;
    int begin = seen_from(t.position + t.first / G, context, a.window, a.chunked).begin;
    int tile = begin / WIDE_TOKENS, num_tiles = (end + WIDE_TOKENS - 1) / WIDE_TOKENS, stage = 0;

    const uint16_t *q = (const uint16_t *)a.q;
#pragma unroll
    for (unsigned n = 0; n < WIDE_ROWS * PIECES / WIDE_THREADS; n++) {
        unsigned i = threadIdx.x + n * WIDE_THREADS, r = i / PIECES, c = i % PIECES;
        int packed = t.first + (int)r;
        bool ok = packed < t.num_rows;
        if (!ok)
            packed = 0;
        size_t row = (size_t)(t.row + packed / G) * (size_t)a.kv.num_heads + (size_t)h;
        kd_copy16(shared + piece_of(WIDE_ROWS, r, c),
                  q + (row * (size_t)G + (size_t)(packed % G)) * HD + c * 8, ok);
    }
    // Pages are looked up a tile before their keys are fetched, so that no copy waits for a table.
    unsigned pages = find_pages(a, t.seq, tile, begin, end, h),
             next_pages = find_pages(a, t.seq, tile + 1, begin, end, h);
    fetch_wide<HD>(keys, a.kv.keys, pages, tile, begin, end);
    kd_copy_commit();
    fetch_wide<HD>(values, a.kv.values, pages, tile, begin, end);
    if (tile + 1 < num_tiles)
        fetch_wide<HD>(keys + sizes::TILE, a.kv.keys, next_pages, tile + 1, begin, end);
    kd_copy_commit();
    pages = next_pages;
    next_pages = find_pages(a, t.seq, tile + 2, begin, end, h);

    struct wide_rows rows;
    int first_row = t.first + warp * 16, most = t.num_rows - 1;
    rows.to =
        seen_from(t.position + (first_row < most ? first_row : most) / G, context, a.window, a.chunked).end -
        1;
    rows.from = seen_from(t.position + (first_row + 15 < most ? first_row + 15 : most) / G, context, a.window,
                          a.chunked)
                    .begin;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int packed = first_row + lane / 4 + 8 * e;
        struct seen_tokens seen =
            seen_from(t.position + (packed < most ? packed : most) / G, context, a.window, a.chunked);
        rows.first[e] = seen.begin, rows.last[e] = seen.end - 1;
        rows.max[e] = -INFINITY;
        rows.sum[e] = 0;
    }
    float s[WIDE_TOKENS / 8][4], o[HD / 8][4], f[2];
    uint32_t p[WIDE_TOKENS / 16][4];
#pragma unroll
    for (int i = 0; i < HD / 8; i++)
        for (int e = 0; e < 4; e++)
            o[i][e] = 0;
    uint64_t query = kd_along_k(shared + warp / 4 * GROUP_ROWS * ROW_BYTES, PATTERN),
             key = kd_along_k(keys, PATTERN), value = kd_across_k(values, WIDE_TOKENS * ROW_BYTES, PATTERN);

    kd_copy_wait<1>();
    kd_shared_fence();
    __syncthreads();
    kd_wgmma_fence();
    start_scores<HD, HALF>(s, query, key);
    kd_wgmma_wait<0>();
    kd_wgmma_hold(s);
    softmax_tile(s, f, rows, tile, a);
    // Outputs of the tile before are waited for at the top of the loop, behind a branch from the softmax:
    // ptxas keeps the order of blocks, but within one it would wait first and have the softmax beside
    // nothing.
    for (; tile + 1 < num_tiles; tile++, stage ^= 1) {
        finish_softmax<HALF>(o, p, s, f);
        start_scores<HD, HALF>(s, query, kd_further(key, (uint32_t)((stage ^ 1) * sizes::TILE)));
        start_outputs<HD, HALF>(o, p, kd_further(value, (uint32_t)(stage * sizes::TILE)));
        fetch_wide<HD>(values + (stage ^ 1) * sizes::TILE, a.kv.values, pages, tile + 1, begin, end);
        if (tile + 2 < num_tiles)
            fetch_wide<HD>(keys + stage * sizes::TILE, a.kv.keys, next_pages, tile + 2, begin, end);
        kd_copy_commit();
        pages = next_pages;
        next_pages = find_pages(a, t.seq, tile + 3, begin, end, h);
        kd_wgmma_wait<1>(); // the scores
        kd_wgmma_hold(s);
        softmax_tile(s, f, rows, tile + 1, a);
    }
    finish_softmax<HALF>(o, p, s, f);
    start_outputs<HD, HALF>(o, p, kd_further(value, (uint32_t)(stage * sizes::TILE)));
    kd_wgmma_wait<0>(); // the last outputs
    kd_wgmma_hold(o);
#pragma unroll
    for (int e = 0; e < 2; e++) {
        rows.sum[e] += __shfl_xor_sync(ALL_LANES, rows.sum[e], 1);
        rows.sum[e] += __shfl_xor_sync(ALL_LANES, rows.sum[e], 2);
        int packed = first_row + lane / 4 + 8 * e;
        if (packed >= t.num_rows)
            continue;
        float inverse = 1 / (rows.sum[e] + sink_part(a.sinks, h * G + packed % G, rows.max[e]));
        char *out = act_row(a.out, (size_t)(t.row + packed / G), a.ldout, a.act_dtype);
        int column = (h * G + packed % G) * HD + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < HD / 8; i++)
            for (int k = 0; k < 2; k++)
                store_act(out, column + i * 8 + k, o[i][2 * e + k] * inverse, a.act_dtype);
    }
#endif
}

template <int HD, bool HALF> static void launch_wide(struct rt *rt, const struct cuda_prefill *a) {
    rt_launch(rt, prefill_wide<HD, HALF>,
              rt_grid_of(a->max_tiles, a->kv.num_heads, WIDE_THREADS, wide_shared<HD>::ALL), *a);
}

extern "C" {

bool cuda_has_wide_prefill(struct rt *rt, const struct cuda_kv *kv) {
    return cuda_has_wgmma(rt) && (kv->head_dim == 64 || kv->head_dim == 128) &&
           (kv->dtype == DTYPE_BF16 || kv->dtype == DTYPE_F16) && kv->block_size % 16 == 0;
}

void cuda_prefill_wide(struct rt *rt, const struct cuda_prefill *a) {
    if (a->kv.head_dim == 64)
        a->kv.dtype == DTYPE_F16 ? launch_wide<64, true>(rt, a) : launch_wide<64, false>(rt, a);
    else
        a->kv.dtype == DTYPE_F16 ? launch_wide<128, true>(rt, a) : launch_wide<128, false>(rt, a);
}

} // extern "C"

#else // built without sm_90a

extern "C" {

bool cuda_has_wide_prefill(struct rt *, const struct cuda_kv *) { return false; }
void cuda_prefill_wide(struct rt *rt, const struct cuda_prefill *) {
    rt_fail(rt, "the prefill kernel of sm_90a is not in this build");
}

} // extern "C"

#endif
