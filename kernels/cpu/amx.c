// GEMM and attention on AMX's matrix tiles; the rest of its table is AVX-512's. Compiled with the options of both
// whatever the other files are compiled for; with AMX_EMULATED, for tests, tiles are plain C.
//
// BF16: a packed panel already is what the instruction takes as B: a row of a tile is a bf16 pair of each of the panel's 16
// rows. A is some tokens' activations, where they lie. Sums stay in tiles over all of a piece of K, in an order of their own
// (kernels/README.md, rule 2), so every number of tokens goes this way.
//
// Quantised types, of many tokens: a weight and an activation without their scales have at most eight bits each, so
// bf16 holds both, and the sum over a scale's 32 or 16 k is exact in any order: rule 4's bits. It leaves the tiles
// for one fma with the product of the scales. That needs weights as bf16, twice the room and two instructions for
// three of them: some k of two panels are unpacked at a time, which stay in the L1 cache while all tokens pass. Tiles of
// bytes would need no unpacking for Q8_0, but three operations in place of the two, and half of each MMA would be zeros.
#include "amx_tiles.h"
#include "vec_avx512.h"

#define CPU_CONSTANT_TILES 1
#include "body_inline.h"
#include "quants.h"

#include <math.h>

#include "body_gemm.h"

#if defined(AMX_EMULATED)
#define AMX_FILL cpu_kernels_fill_amx_emulated
#else
#define AMX_FILL cpu_kernels_fill_amx
#endif

enum {
    PAIRS = 16,
    GROUPS = MAX_TILE_TOKENS / TILE_ROWS,
    MANY_GROUPS = MANY_TOKENS / TILE_ROWS
}; // of bf16 in a tile's row; of tokens

// Tiles 0 to 3 are sums, of two groups of n tokens and two panels; 4 a group's activations, 5 a panel's weights. 6 and 7
// have no shape: a core has few more tiles than the names, and its two threads share them, so the fewer are in use the more
// loads and MMAs run at once (beside a busy thread eight take 24 ns an MMA, six 15 and four 12, but
// with four each panel would read the activations again). Constants, so that no store to them can be lost.
#define CONFIG(n, groups)                                                                                    \
    {                                                                                                        \
        1, 0, {0}, {64, 64, groups > 1 ? 64 : 0, groups > 1 ? 64 : 0, 64, 64}, {                             \
            n, n, groups > 1 ? n : 0, groups > 1 ? n : 0, n, PAIRS                                           \
        }                                                                                                    \
    }
#define CONFIGS_4(n, groups)                                                                                 \
    CONFIG(n, groups), CONFIG(n + 1, groups), CONFIG(n + 2, groups), CONFIG(n + 3, groups)
#define CONFIGS(groups)                                                                                      \
    { CONFIGS_4(1, groups), CONFIGS_4(5, groups), CONFIGS_4(9, groups), CONFIGS_4(13, groups) }
static const struct tile_config configs[GROUPS][TILE_ROWS] = {CONFIGS(1), CONFIGS(2)};

// Tiles of half an MMA: 8 pairs.
#define HALF(n)                                                                                              \
    {                                                                                                        \
        1, 0, {0}, {64, 64, 64, 64, 32, 64}, { n, n, n, n, n, PAIRS / 2 }                                    \
    }
#define HALVES(n) HALF(n), HALF(n + 1), HALF(n + 2), HALF(n + 3)
static const struct tile_config halves[TILE_ROWS] = {HALVES(1), HALVES(5), HALVES(9), HALVES(13)};

// Configures this thread's tiles, unless they are so configured: doing it again takes as long as twenty MMAs.
static void configure(const struct tile_config *c) {
    static _Thread_local const struct tile_config *current;
    if (c == current)
        return;
    TILE_CONFIGURE(c);
    current = c;
}

static void prefetch_rows(const struct gemm_tile *job) { // of y, as whole_tile() does
    for (int t = 0; t < job->num_tokens; t++)
        for (int g = 0; g < TILE_PANELS; g++)
            __builtin_prefetch(job->y + (size_t)t * job->ldy + (size_t)g * job->next_panel, 1);
}

// Tokens in the fewest groups of at most a tile's rows, all of the same size: where it does not come out even the last
// begins within the one before it, and what they share is calculated twice.
struct groups {
    int num, size;
};
static struct groups cut_tokens(int tokens) {
    int num = (tokens + TILE_ROWS - 1) / TILE_ROWS;
    return (struct groups){num, (tokens + num - 1) / num};
}
static int group_begin(const struct groups *g, int i, int tokens) {
    return i < g->num - 1 ? i * g->size : tokens - g->size;
}

// The sums of a group and one panel to y. sum: of segment 0 and the group's first token.
static void finish_group(const struct gemm_tile *job, const struct groups *groups, int i, int panel,
                         const float *sum, int num_segments) {
    int begin = group_begin(groups, i, job->num_tokens), first = i * groups->size;
    segments_finish(sum + (first - begin) * LANES, num_segments, job->add,
                    job->y + (size_t)first * job->ldy + (size_t)panel * job->next_panel, job->ldy,
                    groups->size - (first - begin));
}

// The tile's bytes of PAIRS pairs, as prefetch_weights() does of one
static void prefetch_pairs(const struct gemm_tile *job, int pair, int count) {
    const struct prefetch *p = &job->prefetch;
    const bool few = job->num_tokens <= FEW_TOKENS;
    uintptr_t at = p->at + (size_t)pair * p->step + (few ? SOON_MORE : 0);
    if (few && pair >= p->turn)
        at += p->gap;
    for (size_t i = 0; i < (size_t)count * p->step; i += 64) {
        prefetch_line(at + i, few ? job->num_tokens > 1 : true);
        if (few)
            prefetch_line(at + p->gap + i, job->num_tokens > 1);
    }
}

// PAIRS pairs from memory, where both panels have so many
INLINE void dot_pairs(const char *x0, const char *x1, size_t ldx, const char *w0, const char *w1) {
    TILE_LOAD(4, x0, ldx);
    TILE_LOAD(5, w0, 64);
    TILE_DOT_BF16(0, 4, 5);
    TILE_LOAD(5, w1, 64);
    TILE_DOT_BF16(1, 4, 5);
    if (x1) {
        TILE_LOAD(4, x1, ldx);
        TILE_DOT_BF16(3, 4, 5);
        TILE_LOAD(5, w0, 64);
        TILE_DOT_BF16(2, 4, 5);
    }
}

// The last pairs, fewer than PAIRS: zeros after them.
static void dot_last_pairs(const char *const x[GROUPS], const struct gemm_tile *job, int size, int pair,
                           int count) {
    _Alignas(64) char rows[GROUPS][TILE_ROWS][TILE_BYTES] = {0}, w[TILE_PANELS][PAIRS][TILE_BYTES] = {0};
    for (int g = 0; g < TILE_PANELS; g++)
        memcpy(w[g], (const char *)job->w[g] + (size_t)pair * 64, (size_t)count * 64);
    for (int i = 0; i < GROUPS && x[i]; i++)
        for (int t = 0; t < size; t++)
            memcpy(rows[i][t], x[i] + (size_t)t * job->ldx + (size_t)pair * 4, (size_t)count * 4);
    dot_pairs(rows[0][0], x[1] ? rows[1][0] : NULL, TILE_BYTES, w[0][0], w[1][0]);
}

// Sums of all groups and panels, from y or to it
#define TILES_OF_Y(do_tile, job, groups)                                                                     \
    {                                                                                                        \
        const size_t ld = (job)->ldy * sizeof(float);                                                        \
        float *first = (job)->y;                                                                             \
        do_tile(0, first, ld);                                                                               \
        do_tile(1, first + (job)->next_panel, ld);                                                           \
        if ((groups)->num > 1) {                                                                             \
            first += (size_t)group_begin(groups, 1, (job)->num_tokens) * (job)->ldy;                         \
            do_tile(2, first, ld);                                                                           \
            do_tile(3, first + (job)->next_panel, ld);                                                       \
        }                                                                                                    \
    }

static void gemm_bf16(const struct gemm_tile *job) {
    const struct groups groups = cut_tokens(job->num_tokens);
    const bool at_once = job->num_segments == 1 && !job->add;
    struct segments segments[GROUPS][TILE_PANELS]; // in each the rows of a tile, 16
    _Static_assert(sizeof segments[0][0].sum[0] == TILE_ROWS * TILE_BYTES, "a tile");
    const char *x[GROUPS] = {NULL};
    for (int i = 0; i < groups.num; i++)
        x[i] = (const char *)job->x + (size_t)group_begin(&groups, i, job->num_tokens) * job->ldx;
    configure(&configs[groups.num - 1][groups.size - 1]);
    prefetch_rows(job);
    for (int i = 0; i < job->num_segments; i++) {
        int pair = job->bounds[i], end = job->bounds[i + 1];
        if (job->resume) {
            TILES_OF_Y(TILE_LOAD, job, &groups)
        } else {
            TILE_ZERO(0);
            TILE_ZERO(1);
            if (groups.num > 1) {
                TILE_ZERO(2);
                TILE_ZERO(3);
            }
        }
        for (; pair + PAIRS <= end; pair += PAIRS) {
            prefetch_pairs(job, pair, PAIRS);
            dot_pairs(x[0] + (size_t)pair * 4, x[1] ? x[1] + (size_t)pair * 4 : NULL, job->ldx,
                      (const char *)job->w[0] + (size_t)pair * 64,
                      (const char *)job->w[1] + (size_t)pair * 64);
        }
        if (pair < end)
            dot_last_pairs(x, job, groups.size, pair, end - pair);
        if (at_once) {
            TILES_OF_Y(TILE_STORE, job, &groups)
            return;
        }
        TILE_STORE(0, segments[0][0].sum[i], LANES * 4);
        TILE_STORE(1, segments[0][1].sum[i], LANES * 4);
        if (groups.num > 1) {
            TILE_STORE(2, segments[1][0].sum[i], LANES * 4);
            TILE_STORE(3, segments[1][1].sum[i], LANES * 4);
        }
    }
    for (int g = 0; g < groups.num; g++)
        for (int panel = 0; panel < TILE_PANELS; panel++)
            finish_group(job, &groups, g, panel, segments[g][panel].sum[0][0][0], job->num_segments);
}

// ---- quantised types

// 32 k each that are unpacked at a time
enum { CHUNK = 8 };

// Weights of two panels as rows of B, with the scales and offsets of each MMA (32 k, or the half that has a scale of
// its own).
struct unpacked {
    _Alignas(64) uint16_t w[TILE_PANELS][CHUNK][PAIRS][2 * LANES];
    float scale[TILE_PANELS][2 * CHUNK][LANES], offset[TILE_PANELS][2 * CHUNK][LANES];
};

// The offset of read_quads(): it returns the weight plus this.
INLINE int excess(const enum dtype t) {
    switch (t) {
    case DTYPE_Q4_0: return 8;
    case DTYPE_Q5_0:
    case DTYPE_MXFP4: return 16;
    case DTYPE_Q6_K: return 32;
    case DTYPE_Q3_K: return 4;
    default: return is_s8(t) ? 128 : 0;
    }
}

// Two rows of B from a quad of each lane, less `less`. A byte is the lowest bits of 2^23 and something.
INLINE void put_pairs(uint16_t (*to)[2 * LANES], struct quads q, const int less) {
    const __m512i low = _mm512_set1_epi32(0xff), high = _mm512_set1_epi32((int)0xffff0000),
                  base = _mm512_set1_epi32(0x4b000000);
    const __m512 minus = _mm512_set1_ps((float)(8388608 + less));
    for (int i = 0; i < 2; i++) {
        __m512i first = i ? _mm512_srli_epi32(q.v, 16) : q.v,
                second = i ? _mm512_srli_epi32(q.v, 24) : _mm512_srli_epi32(q.v, 8);
        first = _mm512_ternarylogic_epi32(first, low, base, 0xea); // (a & b) | c
        second = _mm512_ternarylogic_epi32(second, low, base, 0xea);
        first = _mm512_castps_si512(_mm512_sub_ps(_mm512_castsi512_ps(first), minus));
        second = _mm512_castps_si512(_mm512_sub_ps(_mm512_castsi512_ps(second), minus));
        _mm512_store_si512(to[i],
                           _mm512_ternarylogic_epi32(_mm512_srli_epi32(first, 16), second, high, 0xf8));
    }
}

// The part-th 32 k of a packed block, as the i-th of a chunk
INLINE void unpack(struct unpacked *u, int panel, int i, const void *block, int part, const enum dtype type) {
    const int num_halves = has_halves(type) ? 2 : 1, count = 8 / num_halves;
    for (int half = 0; half < num_halves; half++) {
        struct tile_weights p;
        read_weights(&p, 0, block, 0, type, part, half);
        rows_store(u->scale[panel][i * num_halves + half], p.scale[0]);
        if (quants_has_minimum(type))
            rows_store(u->offset[panel][i * num_halves + half], p.offset[0]);
        UNROLL for (int j = half * count; j < (half + 1) * count; j++)
            put_pairs(&u->w[panel][i][2 * j], read_quads(&p, 0, type, j), excess(type));
    }
}

// The sums of a group of tokens and a panel
struct group_sums {
    _Alignas(64) float sum[TILE_ROWS][LANES];
};

// The MMAs of one chunk that add to a group's sums of a panel
struct group_work {
    const char *x, *w;           // of the first MMA
    const float *scale, *offset; // (MMAs, LANES)
    const float *d, *ones;       // (MMAs, TILE_ROWS): scales of the activations; factors of the offsets
    struct group_sums *sums;
};

enum { IN_FLIGHT = 4 };
struct chunk_job {
    struct group_work work[MANY_GROUPS * TILE_PANELS];
    int num_work, count; // count: MMAs of each
    size_t ldx;
    float d[MANY_GROUPS][2 * CHUNK][TILE_ROWS], ones[MANY_GROUPS][2 * CHUNK][TILE_ROWS];
    _Alignas(64) float dot[IN_FLIGHT][TILE_ROWS][LANES]; // on their way to the sums
};

#define ALL_ROWS _Pragma("GCC unroll 16")
// Issues the next MMA of x and w
#define START(t)                                                                                             \
    TILE_ZERO(t);                                                                                            \
    TILE_LOAD(4, x, ldx);                                                                                    \
    TILE_LOAD(5, w, TILE_BYTES);                                                                             \
    TILE_DOT_BF16(t, 4, 5);                                                                                  \
    x += x_step;                                                                                             \
    w += w_step
#define STORE(t) TILE_STORE(t, dot[t], LANES * 4)
// acc += dot * (d * scale) + offset * ones, with the next scales; the offset only if the type has a minimum
#define ADD(t)                                                                                               \
    {                                                                                                        \
        const struct rows s = rows_load(scale);                                                              \
        ALL_ROWS for (int r = 0; r < TILE_ROWS; r++) {                                                       \
            acc[r] = rows_fma(acc[r], rows_load(dot[t][r]), rows_mul1(s, d[r]));                             \
            if (quants_has_minimum(type))                                                                    \
                acc[r] = rows_fma1(acc[r], rows_load(offset), ones[r]);                                      \
        }                                                                                                    \
        scale += LANES;                                                                                      \
        d += TILE_ROWS;                                                                                      \
        if (quants_has_minimum(type)) {                                                                      \
            offset += LANES;                                                                                 \
            ones += TILE_ROWS;                                                                               \
        }                                                                                                    \
    }
// Issue MMA i, store the tile of MMA i - 2, accumulate the tile of MMA i - 4.
#define STEP(t, old)                                                                                         \
    START(t);                                                                                                \
    STORE(old);                                                                                              \
    ADD(t)
#define STEPS                                                                                                \
    STEP(0, 2)                                                                                               \
    STEP(1, 3)                                                                                               \
    STEP(2, 0)                                                                                               \
    STEP(3, 1)

// Computes all groups and panels of a chunk, each of a multiple of IN_FLIGHT MMAs, as one pipeline: the first
// IN_FLIGHT of one are issued while the last of the one before are accumulated.
INLINE void chunk_dots(struct chunk_job *job, const enum dtype type) {
    const size_t num_halves = has_halves(type) ? 2 : 1, x_step = TILE_BYTES / num_halves,
                 w_step = PAIRS * x_step, ldx = job->ldx;
    float(*const dot)[TILE_ROWS][LANES] = job->dot;
    struct rows acc[TILE_ROWS];
    const struct group_work *a = job->work, *end = a + job->num_work;
    const char *x = a->x, *w = a->w;
    START(0);
    START(1);
    START(2);
    STORE(0);
    START(3);
    STORE(1);
    for (;;) {
        const float *scale = a->scale, *offset = a->offset, *d = a->d, *ones = a->ones;
        float *sums = a->sums->sum[0];
        ALL_ROWS for (int r = 0; r < TILE_ROWS; r++) acc[r] = rows_load(sums + r * LANES);
        for (int i = IN_FLIGHT; i < job->count; i += IN_FLIGHT) {
            STEPS
        }
        if (++a < end) {
            x = a->x;
            w = a->w;
            STEPS
        } else {
            STORE(2);
            STORE(3);
            ADD(0)
            ADD(1)
            ADD(2)
            ADD(3)
        }
        ALL_ROWS for (int r = 0; r < TILE_ROWS; r++) rows_store(sums + r * LANES, acc[r]);
        if (a == end)
            return;
    }
}

// The same for fewer MMAs than the pipeline is deep
INLINE void few_dots(struct chunk_job *job, const enum dtype type) {
    const size_t x_step = TILE_BYTES, w_step = PAIRS * x_step, ldx = job->ldx;
    float(*const dot)[TILE_ROWS][LANES] = job->dot;
    struct rows acc[TILE_ROWS];
    for (int n = 0; n < job->num_work; n++) {
        const struct group_work *a = &job->work[n];
        const char *x = a->x, *w = a->w;
        const float *scale = a->scale, *offset = a->offset, *d = a->d, *ones = a->ones;
        float *sums = a->sums->sum[0];
        ALL_ROWS for (int r = 0; r < TILE_ROWS; r++) acc[r] = rows_load(sums + r * LANES);
        for (int i = 0; i < job->count; i++) {
            START(0);
            STORE(0);
            ADD(0)
        }
        ALL_ROWS for (int r = 0; r < TILE_ROWS; r++) rows_store(sums + r * LANES, acc[r]);
    }
}

// The scales of `parts` times 32 k from the block-th on, and the factors of the minima
INLINE void group_scales(float (*d)[TILE_ROWS], float (*ones)[TILE_ROWS], const char *x, size_t ldx,
                         int tokens, int block, int parts, const enum dtype type) {
    const int num_halves = has_halves(type) ? 2 : 1;
    for (int t = 0; t < tokens; t++) {
        const struct act_q8 *a = (const struct act_q8 *)(const void *)(x + (size_t)t * ldx) + block;
        for (int i = 0; i < parts * num_halves; i++) {
            const struct act_q8 *at = a + i / num_halves;
            d[i][t] = at->d;
            if (quants_has_minimum(type))
                ones[i][t] = num_halves > 1 ? at->d * (float)act_sum(at, i % 2) : at->s;
        }
    }
}

// Segments of K become one sum as they come: two of equal size are added, then two of those.
struct tree {
    struct group_sums level[4][MANY_GROUPS * TILE_PANELS]; // the last one: of the segment at hand
};

static void tree_add(struct tree *tree, int segment, int num_sums) {
    int level = 0;
    for (; segment >> level & 1; level++)
        for (int i = 0; i < num_sums; i++) {
            const float *a = tree->level[level][i].sum[0];
            float *b = tree->level[3][i].sum[0];
            for (int j = 0; j < TILE_ROWS * LANES; j += ROWS)
                rows_store(b + j, rows_add(rows_load(a + j), rows_load(b + j)));
        }
    if (level < 3)
        memcpy(tree->level[level], tree->level[3], sizeof tree->level[0][0] * (size_t)num_sums);
}

// A chunk of 32 k from the first-th on, which is unpacked: of all groups of tokens
INLINE void multiply_chunk(const struct gemm_tile *tile, struct chunk_job *job, const struct unpacked *u,
                           const struct groups *groups, struct group_sums *sums, int first, int parts,
                           const enum dtype type) {
    job->ldx = tile->ld_pairs;
    job->count = parts * (has_halves(type) ? 2 : 1);
    job->num_work = groups->num * TILE_PANELS;
    for (int g = 0; g < groups->num; g++) {
        size_t t = (size_t)group_begin(groups, g, tile->num_tokens);
        group_scales(job->d[g], job->ones[g], (const char *)tile->x + t * tile->ldx, tile->ldx, groups->size,
                     first, parts, type);
        for (int panel = 0; panel < TILE_PANELS; panel++)
            job->work[g * TILE_PANELS + panel] = (struct group_work){
                .x = (const char *)tile->pairs + t * tile->ld_pairs + (size_t)first * TILE_BYTES,
                .w = (const char *)u->w[panel],
                .scale = u->scale[panel][0],
                .offset = u->offset[panel][0],
                .d = job->d[g][0],
                .ones = job->ones[g][0],
                .sums = &sums[g * TILE_PANELS + panel]};
    }
    if (job->count < IN_FLIGHT)
        few_dots(job, type);
    else
        chunk_dots(job, type);
}

static void sums_from_y(const struct gemm_tile *job, const struct groups *groups, struct group_sums *sums) {
    for (int g = 0; g < groups->num; g++)
        for (int panel = 0; panel < TILE_PANELS; panel++, sums++) {
            const float *y = job->y + (size_t)group_begin(groups, g, job->num_tokens) * job->ldy +
                             (size_t)panel * job->next_panel;
            for (int r = 0; r < groups->size; r++)
                rows_store(sums->sum[r], rows_load(y + (size_t)r * job->ldy));
        }
}

INLINE void gemm_unpacked(const struct gemm_tile *job, const enum dtype type) {
    const int per_block = dtype_block(type) / 32;
    const struct groups groups = cut_tokens(job->num_tokens);
    const size_t num_sums = (size_t)groups.num * TILE_PANELS;
    struct unpacked u;
    struct tree tree;
    struct chunk_job chunk;
    memset(&chunk.d, 0, sizeof chunk.d); // groups may have less than a tile's rows
    if (quants_has_minimum(type))
        memset(&chunk.ones, 0, sizeof chunk.ones);
    memset(&chunk.dot, 0, sizeof chunk.dot);
    configure(has_halves(type) ? &halves[groups.size - 1] : &configs[1][groups.size - 1]);
    for (int segment = 0; segment < job->num_segments; segment++) {
        if (job->resume)
            sums_from_y(job, &groups, tree.level[3]);
        else
            memset(tree.level[3], 0, sizeof tree.level[0][0] * num_sums);
        int end = job->bounds[segment + 1];
        for (int b = job->bounds[segment], blocks; b < end; b += blocks) {
            int left = (end - b) * per_block, parts = left >= CHUNK       ? CHUNK
                                                      : left >= IN_FLIGHT ? IN_FLIGHT
                                                                          : left;
            blocks = parts / per_block;
            for (int i = 0; i < parts; i++)
                for (int panel = 0; panel < TILE_PANELS; panel++)
                    unpack(&u, panel, i,
                           (const char *)job->w[panel] + (size_t)(b + i / per_block) * block_bytes(type),
                           i % per_block, type);
            for (size_t i = 0; i < (size_t)blocks * job->prefetch.step; i += 64)
                prefetch_line(job->prefetch.at + (size_t)b * job->prefetch.step + i, true);
            multiply_chunk(job, &chunk, &u, &groups, tree.level[3], b * per_block, parts, type);
        }
        if (job->num_segments > 1)
            tree_add(&tree, segment, (int)num_sums);
    }
    int level = job->num_segments == 1 || job->num_segments == 8 ? 3 : job->num_segments / 2;
    for (int g = 0; g < groups.num; g++)
        for (int panel = 0; panel < TILE_PANELS; panel++)
            finish_group(job, &groups, g, panel, tree.level[level][g * TILE_PANELS + panel].sum[0], 1);
}

// Few tokens, and what has no pairs, by the table that this one is a copy of.
#define QUANTISED(type, packed)                                                                              \
    static void gemm_##type(const struct gemm_tile *job) {                                                   \
        if (job->pairs)                                                                                      \
            gemm_unpacked(job, DTYPE_##type);                                                                \
        else                                                                                                 \
            cpu_kernels_avx512.gemm[DTYPE_##type](job);                                                      \
    }
QUANTISED_MAP(QUANTISED)

static void to_pairs(uint16_t *y, const struct act_q8 *x, int n) {
    for (int i = 0; i < n; i += 32, x++) {
        for (int j = 0; j < 32; j += 16) {
            __m512 q = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(x->q + j))));
            __m512i bits = _mm512_srli_epi32(_mm512_castps_si512(q), 16);
            _mm256_storeu_si256((void *)(y + i + j), _mm512_cvtepi32_epi16(bits));
        }
    }
}

// ---- attention

#include "amx_attention.h"

void AMX_FILL(struct cpu_kernels *k) {
    k->name = "amx";
    k->tiles = true;
    k->gemm[DTYPE_BF16] = gemm_bf16;
    k->tile_tokens[DTYPE_BF16] = MAX_TILE_TOKENS;
#define ENTRY(type, packed) k->gemm[DTYPE_##type] = gemm_##type;
    QUANTISED_MAP(ENTRY)
#undef ENTRY
    k->to_pairs = to_pairs;
    k->attend = attend;
    k->attend_two = attend_two;
}
