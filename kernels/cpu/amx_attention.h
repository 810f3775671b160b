// Attention over a cache of bf16, or of int8 that becomes bf16 on the way, on AMX's tiles: part of amx.c. A tile of the
// cache is what the instruction takes as B as it lies: of keys 8 pairs of dimensions times 16 tokens, of values the pairs
// of its 16 tokens times 16 dimensions. A is queries, or what the softmax made of their scores. Sums go in an order of
// their own (kernels/README.md, rules 8 and 9), the same for any number of queries.
#include "body_softmax.h"

// HALF_PAIRS: pairs of an MMA. STRIPE: dimensions of so many tiles go together.
enum { HALF_PAIRS = PAIRS / 2, STRIPE = 4 };
_Static_assert((int)HALF_PAIRS == ATTN_TILE / 2 && (int)STRIPE == STEP_TILES,
               "a tile of values; tiles 0 to 3 are sums");

// B of an MMA: `rows` of 8 rows of n of 16 pairs each, `stride` bytes from row to row. Whole rows of bf16 are read as
// they lie; others are copied to `wide` as bf16, with zeros for missing rows and pairs.
INLINE const void *load_pairs(uint16_t (*wide)[2 * LANES], const char *from, size_t *stride, int rows, int n,
                              const enum dtype dtype) {
    if (dtype == DTYPE_BF16 && rows >= HALF_PAIRS && n >= LANES)
        return from;
    for (int r = 0; r < HALF_PAIRS; r++) {
        if (r < rows)
            pairs_store(wide[r], kv_load_pairs_part(from + (size_t)r * *stride, dtype, n));
        else
            memset(wide[r], 0, sizeof wide[r]);
    }
    *stride = sizeof wide[0];
    return wide;
}

// Queries side by side become rows of d, zeros after.
static void queries_to_rows(uint16_t *rows, size_t ld, const struct attn_chunk *c) {
    const __m512i index =
        _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                           _mm512_set1_epi32(ATTN_QUERIES));
    for (int line = 0; line < c->head_dim / 2; line += LANES) {
        __mmask16 there = (__mmask16)lanes_below(c->head_dim / 2 - line);
        for (int t = 0; t < c->num_queries; t++) {
            const float *from = c->q + line * ATTN_QUERIES + t;
            __m512i pairs = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), there, index, from, 4);
            _mm512_storeu_si512(rows + (size_t)t * ld + (size_t)line * 2, pairs);
        }
    }
}

// scores (n, 64) of `num` tiles from `tile`
INLINE void tile_scores(float *scores, const uint16_t *q, size_t ld, const struct attn_chunk *c, int tile,
                        const int num, const enum dtype dtype) {
    const size_t line = kv_bytes_of(dtype) * 2 * LANES;
    const int lines = c->head_dim / 2, product_lines = (int)(HALF_PAIRS * line / 64);
    uint16_t wide[HALF_PAIRS][2 * LANES];
    struct prefetch_cursor prefetch = prefetch_start(&c->prefetch[tile / STEP_TILES][tile % STEP_TILES], num,
                                                     kv_tile_bytes(c->head_dim, dtype));
#define B_OF_KEYS(t)                                                                                         \
    if (t < num) {                                                                                           \
        size_t stride = line;                                                                                \
        const char *keys = (const char *)c->keys[tile + t] + (size_t)i * line;                               \
        const void *b = load_pairs(wide, keys, &stride, lines - i, LANES, dtype);                            \
        TILE_LOAD(5, b, stride);                                                                             \
        TILE_DOT_BF16(t, 4, 5);                                                                              \
        prefetch_lines(&prefetch, product_lines);                                                            \
    }
#define ZERO(t)                                                                                              \
    if (t < num)                                                                                             \
        TILE_ZERO(t);
#define SCORES(t)                                                                                            \
    if (t < num)                                                                                             \
        TILE_STORE(t, scores + (tile + t) * ATTN_TILE % ATTN_STEP, ATTN_STEP * sizeof(float));
#define EACH_TILE(what) what(0) what(1) what(2) what(3)
    EACH_TILE(ZERO)
    for (int i = 0; i < lines; i += HALF_PAIRS) {
        TILE_LOAD(4, q + 2 * i, ld * sizeof *q);
        EACH_TILE(B_OF_KEYS)
    }
    EACH_TILE(SCORES)
}

// Adds tiles [tile, end) of values, which all queries attend to as a whole, to `num` times 16 dimensions of out from i on.
INLINE void tile_values(float *out, struct attn_probs *w, const struct attn_chunk *c, int tile, int end,
                        int i, const int num, const enum dtype dtype) {
    const int d = c->value_dim;
    const size_t ld = (size_t)out_stride(c) * sizeof(float), pair = 2 * kv_bytes_of(dtype);
    uint16_t wide[HALF_PAIRS][2 * LANES];
#define OUT(t)                                                                                               \
    if (t < num)                                                                                             \
        TILE_LOAD(t, out + i + t * LANES, ld);
#define B_OF_VALUES(t)                                                                                       \
    if (t < num) {                                                                                           \
        size_t stride = (size_t)d * pair;                                                                    \
        const char *values = (const char *)c->values[tile] + (size_t)(i + t * LANES) * pair;                 \
        const void *b = load_pairs(wide, values, &stride, HALF_PAIRS, d - i - t * LANES, dtype);             \
        TILE_LOAD(5, b, stride);                                                                             \
        TILE_DOT_BF16(t, 4, 5);                                                                              \
        prefetch_lines(&w->prefetch, (int)(HALF_PAIRS * LANES * pair / 64));                                 \
    }
#define BACK(t)                                                                                              \
    if (t < num)                                                                                             \
        TILE_STORE(t, out + i + t * LANES, ld);
    EACH_TILE(OUT)
    for (; tile < end; tile++) {
        TILE_LOAD(4, w->pairs + tile * ATTN_TILE % ATTN_STEP, ATTN_STEP * sizeof *w->pairs);
        EACH_TILE(B_OF_VALUES)
    }
    EACH_TILE(BACK)
}

#define TILES_CASE(loop, num, ...)                                                                           \
    case num:                                                                                                \
        loop(__VA_ARGS__, num, dtype);                                                                       \
        break;
#define TILES(loop, count, ...)                                                                              \
    switch (count) {                                                                                         \
        TILES_CASE(loop, 1, __VA_ARGS__)                                                                     \
        TILES_CASE(loop, 2, __VA_ARGS__)                                                                     \
        TILES_CASE(loop, 3, __VA_ARGS__)                                                                     \
    default: loop(__VA_ARGS__, 4, dtype);                                                                    \
    }

// The same of one query and some tokens of one tile, of which others may hold anything
INLINE void few_values(float *out, const struct attn_probs *w, const struct attn_chunk *c, int begin, int end,
                       int t, const enum dtype dtype) {
    const __m512i high = _mm512_set1_epi32((int)0xffff0000);
    const int d = c->value_dim, tile = begin / ATTN_TILE;
    const size_t pair = 2 * kv_bytes_of(dtype);
    for (int i = 0; i < d; i += LANES) {
        struct v16 sum[2] = {v16_set1(0), v16_set1(0)}; // of even tokens and of odd ones
        for (int token = begin / 2 * 2; token < end; token += 2) {
            const char *from = (const char *)c->values[tile] + (size_t)(token % ATTN_TILE / 2 * d + i) * pair;
            const __m512i v = kv_load_pairs_part(from, dtype, d - i).v;
            const uint16_t *p = w->pairs + t * ATTN_STEP + token % ATTN_STEP;
            if (token >= begin)
                sum[0].v = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(v, 16)),
                                           _mm512_set1_ps(bf16_to_float(p[0])), sum[0].v);
            if (token + 1 < end)
                sum[1].v = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(v, high)),
                                           _mm512_set1_ps(bf16_to_float(p[1])), sum[1].v);
        }
        float *at = out + t * out_stride(c) + i;
        v16_store(at, v16_add(v16_load(at), v16_add(sum[0], sum[1])));
    }
}

// Up to two chunks of the same keys and values, whose out lie behind each other: their queries share tiles.
struct both {
    struct attn_chunk *chunk[2];
    int num;
    struct attn_probs w[2];
    struct attn_range r[2];
};

// The tiles of the step that some query attends to, [*low, *high), and those that all do as a whole
static void tiles_of_step(const struct both *b, int *low, int *high, int *whole, int *past) {
    *low = *past = CHUNK_TILES;
    *high = *whole = 0;
    for (int i = 0; i < b->num; i++) {
        const struct attn_range *r = &b->r[i];
        int first = r->low / ATTN_TILE, end = (r->high + ATTN_TILE - 1) / ATTN_TILE;
        int begins = (r->all_low + ATTN_TILE - 1) / ATTN_TILE, ends = r->all_high / ATTN_TILE;
        *low = first < *low ? first : *low;
        *high = end > *high ? end : *high;
        *whole = begins > *whole ? begins : *whole;
        *past = ends < *past ? ends : *past;
    }
}

// Tiles of values that all queries attend to as a whole go together, others a query at a time.
INLINE void step_values(struct both *b, int tile, int end, int whole, int past, const enum dtype dtype) {
    const struct attn_chunk *c = b->chunk[0];
    const int d = c->value_dim;
    while (tile < end) {
        if (tile >= whole && tile < past) {
            for (int i = 0; i < d; i += STRIPE * LANES)
                TILES(tile_values, (d - i + LANES - 1) / LANES, c->out, &b->w[0], c, tile, past, i)
            tile = past;
            continue;
        }
        for (int u = 0; u < b->num; u++)
            for (int t = 0; t < b->chunk[u]->num_queries; t++) {
                int from = clamp_int(b->r[u].begin[t], tile * ATTN_TILE, (tile + 1) * ATTN_TILE);
                int to = clamp_int(b->r[u].end[t], tile * ATTN_TILE, (tile + 1) * ATTN_TILE);
                if (from < to)
                    few_values(b->chunk[u]->out, &b->w[u], c, from, to, t, dtype);
            }
        tile++;
    }
}

INLINE void attend_tiles(struct both *b, const enum dtype dtype) {
    _Alignas(64) uint16_t q[2 * ATTN_QUERIES * MAX_HEAD_DIM], pairs[2 * ATTN_QUERIES * ATTN_STEP];
    _Alignas(64) float p[2 * ATTN_QUERIES * ATTN_STEP];
    const struct attn_chunk *c = b->chunk[0];
    const size_t ld = (size_t)((c->head_dim + 2 * LANES - 1) / (2 * LANES) * 2 * LANES);
    int queries = 0;
    for (int i = 0; i < b->num; i++) {
        attend_start(b->chunk[i]);
        queries_to_rows(q + (size_t)queries * ld, ld, b->chunk[i]);
        b->w[i].p = p + queries * ATTN_STEP;
        b->w[i].pairs = pairs + queries * ATTN_STEP;
        queries += b->chunk[i]->num_queries;
    }
    configure(&halves[queries - 1]);
    for (int first = c->step0 * ATTN_STEP; first < c->step1 * ATTN_STEP; first += ATTN_STEP) {
        int tile, end, whole, past;
        for (int i = 0; i < b->num; i++)
            attended_range(&b->r[i], b->chunk[i], first);
        tiles_of_step(b, &tile, &end, &whole, &past);
        if (tile >= end)
            continue;
        TILES(tile_scores, end - tile, p, q, ld, c, tile)
        for (int i = 0; i < b->num; i++) { // nothing changes where its queries attend to nothing
            scores_to_probs(&b->w[i], b->chunk[i], dtype, first, &b->r[i]);
            rescale_out(&b->w[i], b->chunk[i]);
        }
        step_values(b, tile, end, whole, past, dtype);
    }
}

static void attend_bf16(struct both *b) { attend_tiles(b, DTYPE_BF16); }
static void attend_i8(struct both *b) { attend_tiles(b, DTYPE_I8); }

static void attend_two(struct attn_chunk *first, struct attn_chunk *second) {
    struct both b = {.chunk = {first, second}, .num = second ? 2 : 1};
    if (first->kv_dtype == DTYPE_I8)
        attend_i8(&b);
    else
        attend_bf16(&b);
}

static void attend(struct attn_chunk *c) {
    if (c->kv_dtype == DTYPE_BF16 || c->kv_dtype == DTYPE_I8)
        attend_two(c, NULL);
    else
        cpu_kernels_avx512.attend(c);
}
