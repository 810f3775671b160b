// Products of many tokens on AMX's matrix tiles; everything else of its tables is AVX-512's. Compiled with those options
// and AVX-512's whatever the rest is compiled for; with AMX_EMULATED, for tests, tiles are plain C.
//
// - A packed panel already is what the instructions take as B: a row of a tile is an int8 quad, or a bf16 pair, of
//   each of the panel's 16 rows. A is some tokens' activations, where they lie.
// - A block of 32 k, or of 16 where there is a scale for each, is one instruction: its sums are whole numbers, which
//   become floats as rule 4 says, so the bits are those of the other tables. That is three vector instructions for 16
//   sums, and binds: tiles of 8 tokens and two panels keep what is summed up in registers meanwhile.
// - Weights that are not bytes in memory are made signed bytes once for all tokens, RANGE blocks at a time.
// - Bf16 stays in tiles over all of K. tdpbf16ps adds in an order of its own (kernels/README.md, rule 2), hence a table of
//   its own, in which every number of tokens goes this way.
#include "amx_tiles.h"
#include "vec_avx512.h"

#define CPU_CONSTANT_TILES 1
#include "body_inline.h"
#include "quants.h"

#include "body_gemm.h"

#if defined(AMX_EMULATED)
#define AMX_FILL cpu_kernels_fill_amx_emulated
#else
#define AMX_FILL cpu_kernels_fill_amx
#endif

enum {
    // Fewer tokens than this are bound by memory, and go to AVX-512. Two groups at least. Not measured: a machine with
    // AMX and bench_tiles can tell.
    LEAST_TOKENS = REGISTER_TOKENS + 1,
    MAX_GROUPS = MAX_TILE_TOKENS / REGISTER_TOKENS, // of tokens
    RANGE = 8,                                      // blocks of 32 k
    PAIRS = 16,                                     // of bf16 in a tile's row
    BF16_GROUPS = MAX_TILE_TOKENS / TILE_ROWS,
};

// ---- shapes of tiles
//
// Tiles 0 to 3 are sums, 4 and 5 activations of n tokens, 6 and 7 weights of two panels; k: bytes of a token. Constants,
// so that no store to them can be lost.
#define CONFIG(n, k)                                                                                         \
    {                                                                                                        \
        1, 0, {0}, {64, 64, 64, 64, k, k, 64, 64}, { n, n, n, n, n, n, (k) / 4, (k) / 4 }                    \
    }
#define CONFIGS_4(n, k) CONFIG(n, k), CONFIG(n + 1, k), CONFIG(n + 2, k), CONFIG(n + 3, k)
#define CONFIGS(k)                                                                                           \
    { CONFIGS_4(1, k), CONFIGS_4(5, k), CONFIGS_4(9, k), CONFIGS_4(13, k) }
enum shape { SHAPE_16, SHAPE_32, SHAPE_BF16, NUM_SHAPES };
static const struct tile_config configs[NUM_SHAPES][TILE_ROWS] = {CONFIGS(16), CONFIGS(32), CONFIGS(64)};

// Each thread has tiles of its own, and what it was told last: telling it again would cost as much as some products.
static void configure(enum shape shape, int tokens) {
    static _Thread_local const struct tile_config *current;
    const struct tile_config *c = &configs[shape][tokens - 1];
    if (c == current)
        return;
    TILE_CONFIGURE(c);
    current = c;
}

// ---- prefetches: the bytes of a tile in even steps (kernels.h)

struct ahead {
    uintptr_t at, goal;
    size_t step;
    bool far;
};

INLINE void prefetch_ahead(struct ahead *p) {
    for (p->goal += p->step; p->at < p->goal; p->at += 64)
        prefetch_line(p->at, p->far);
}

static void prefetch_rows(const struct gemm_tile *job) { // of y, as whole_tile() does
    for (int t = 0; t < job->num_tokens; t++)
        for (int g = 0; g < TILE_PANELS; g++)
            __builtin_prefetch(job->y + (size_t)t * job->ldy + (size_t)g * job->next_panel, 1);
}

// Tokens in the fewest groups of at most `most`, all of the same size: where it does not come out even the last begins
// within the one before it, and what they share is calculated twice.
struct groups {
    int num, size;
};
static struct groups cut_tokens(int tokens, int most) {
    int num = (tokens + most - 1) / most;
    return (struct groups){num, (tokens + num - 1) / num};
}
static int group_begin(const struct groups *g, int i, int tokens) {
    return i < g->num - 1 ? i * g->size : tokens - g->size;
}

// The sums of a group and one panel to y. sum: of segment 0 and the group's first token.
static void finish_group(const struct gemm_tile *job, const struct groups *groups, int i, int panel,
                         const float *sum) {
    int begin = group_begin(groups, i, job->num_tokens), first = i * groups->size;
    segments_finish(sum + (first - begin) * LANES, job->num_segments, job->add,
                    job->y + (size_t)first * job->ldy + (size_t)panel * job->next_panel, job->ldy,
                    groups->size - (first - begin));
}

// ---- quantised formats

// Some blocks of 32 k of two panels. An int8 quad of k 4j .. 4j+3 is at[block][panel] + 64 j.
struct range {
    _Alignas(64) uint8_t q[RANGE][TILE_PANELS][8][64];
    _Alignas(64) float scale[2 * RANGE][TILE_PANELS][LANES], offset[2 * RANGE][TILE_PANELS][LANES];
    const uint8_t *at[RANGE][TILE_PANELS];
};

// What read_quads() has more than the weight; Q8_0 is left as it is.
INLINE int quads_bias(const enum dtype t) {
    switch (t) {
    case DTYPE_Q4_0: return 8;
    case DTYPE_Q5_0:
    case DTYPE_MXFP4: return 16;
    case DTYPE_Q6_K: return 32;
    case DTYPE_Q3_K: return 4;
    case DTYPE_IQ4_NL:
    case DTYPE_IQ4_XS: return 128;
    default: return 0;
    }
}

INLINE void unpack_range(struct range *r, const struct gemm_tile *job, int block, int count,
                         const enum dtype type) {
    const int parts = dtype_block(type) / 32, halves = has_halves(type) ? 2 : 1;
    const __m512i bias = _mm512_set1_epi8((char)quads_bias(type));
    for (int i = 0; i < count; i++)
        UNROLL for (int g = 0; g < TILE_PANELS; g++) {
            const void *from = (const char *)job->w[g] + (size_t)((block + i) / parts) * block_bytes(type);
            struct tile_weights p;
            UNROLL for (int half = 0; half < halves; half++) {
                read_weights(&p, 0, from, 0, type, (block + i) % parts, half);
                rows_store(r->scale[halves * i + half][g], p.scale[0]);
                if (quants_has_minimum(type))
                    rows_store(r->offset[halves * i + half][g], p.offset[0]);
            }
            r->at[i][g] = type == DTYPE_Q8_0 ? p.at[0] : r->q[i][g][0];
            UNROLL for (int j = 0; j < 8 && type != DTYPE_Q8_0; j++)
                _mm512_store_si512(r->q[i][g][j], _mm512_sub_epi8(read_quads(&p, 0, type, j).v, bias));
        }
}

// Products of a block of 32, or of half of it, which go to `to`. Tiles of two of them are in use at a time.
INLINE void dot_tiles(int32_t (*to)[REGISTER_TOKENS][LANES], const int8_t *x, size_t ldx, const uint8_t *w0,
                      const uint8_t *w1, const bool odd, const bool u8) {
#define DOT_TILES(c0, c1, a)                                                                                 \
    TILE_LOAD(a, x, ldx);                                                                                    \
    TILE_LOAD(6, w0, 64);                                                                                    \
    TILE_LOAD(7, w1, 64);                                                                                    \
    TILE_ZERO(c0);                                                                                           \
    TILE_ZERO(c1);                                                                                           \
    if (u8) {                                                                                                \
        TILE_DOT_S8_U8(c0, a, 6);                                                                            \
        TILE_DOT_S8_U8(c1, a, 7);                                                                            \
    } else {                                                                                                 \
        TILE_DOT_S8(c0, a, 6);                                                                               \
        TILE_DOT_S8(c1, a, 7);                                                                               \
    }                                                                                                        \
    TILE_STORE(c0, to[0], LANES * 4);                                                                        \
    TILE_STORE(c1, to[1], LANES * 4)
    if (odd) {
        DOT_TILES(2, 3, 5);
    } else {
        DOT_TILES(0, 1, 4);
    }
#undef DOT_TILES
}

// Tokens from x on (the block of act_q8 where the range begins) times a range: sum is what they are added to. While
// vectors work on one step, tiles do the next.
struct multiply {
    float (*sum)[REGISTER_TOKENS][LANES]; // of each panel
    const struct range *range;
    const char *x;
    size_t ldx;
    int count; // of blocks
    struct ahead *ahead;
};

INLINE const struct act_q8 *multiplied(const struct multiply *m, int t, int block) {
    return (const struct act_q8 *)(const void *)(m->x + (size_t)t * m->ldx) + block;
}

INLINE void multiply_step(int32_t (*to)[REGISTER_TOKENS][LANES], const struct multiply *m, int step,
                          const int halves, const bool u8) {
    int block = step / halves, k = step % halves * 16;
    const uint8_t *w0 = m->range->at[block][0] + 16 * k, *w1 = m->range->at[block][1] + 16 * k;
    const int8_t *x = multiplied(m, 0, block)->q + k;
    if (step % 2)
        dot_tiles(to, x, m->ldx, w0, w1, true, u8);
    else
        dot_tiles(to, x, m->ldx, w0, w1, false, u8);
}

INLINE void multiply_range(const struct multiply *m, const int n, const int halves, const bool minimum,
                           const bool u8) {
    _Alignas(64) int32_t dots[2][TILE_PANELS][REGISTER_TOKENS][LANES];
    struct sums s;
    UNROLL for (int g = 0; g < TILE_PANELS; g++) UNROLL for (int t = 0; t < n; t++) s.acc[g][t] =
        rows_load(m->sum[g][t]);
    multiply_step(dots[0], m, 0, halves, u8);
    for (int step = 0; step < m->count * halves; step++) {
        if (step + 1 < m->count * halves)
            multiply_step(dots[(step + 1) % 2], m, step + 1, halves, u8);
        prefetch_ahead(m->ahead);
        struct rows scale[TILE_PANELS], offset[TILE_PANELS];
        UNROLL for (int g = 0; g < TILE_PANELS; g++) {
            scale[g] = rows_load(m->range->scale[step][g]);
            offset[g] = minimum ? rows_load(m->range->offset[step][g]) : scale[g];
        }
        UNROLL for (int t = 0; t < n; t++) {
            const struct act_q8 *x = multiplied(m, t, step / halves);
            const __m512i start = _mm512_set1_epi32(u8 ? x->minus128 : act_base_bits(x));
            float one = !minimum ? 0 : halves == 1 ? x->s : act_scale(x) * (float)act_sum(x, step % 2);
            UNROLL for (int g = 0; g < TILE_PANELS; g++) {
                struct dots dot = {_mm512_add_epi32(_mm512_load_si512(dots[step % 2][g][t]), start)};
                s.acc[g][t] = rows_fma(s.acc[g][t], rows_from_dots(dot, x->base), scale[g]);
                if (minimum)
                    s.acc[g][t] = rows_fma1(s.acc[g][t], offset[g], one);
            }
        }
    }
    UNROLL for (int g = 0; g < TILE_PANELS; g++) UNROLL for (int t = 0; t < n; t++)
        rows_store(m->sum[g][t], s.acc[g][t]);
}

typedef void multiply_fn(const struct multiply *m);
typedef void unpack_fn(struct range *r, const struct gemm_tile *job, int block, int count);

// Of 5 to 8 tokens, which is what at least LEAST_TOKENS are cut into.
#define MULTIPLY_N(name, n, halves, minimum, u8)                                                             \
    static void name##_##n(const struct multiply *m) { multiply_range(m, n, halves, minimum, u8); }
#define MULTIPLY(name, halves, minimum, u8)                                                                  \
    MULTIPLY_N(name, 5, halves, minimum, u8)                                                                 \
    MULTIPLY_N(name, 6, halves, minimum, u8)                                                                 \
    MULTIPLY_N(name, 7, halves, minimum, u8)                                                                 \
    MULTIPLY_N(name, 8, halves, minimum, u8)                                                                 \
    static multiply_fn *const name[] = {name##_5, name##_6, name##_7, name##_8};
MULTIPLY(multiply_u8, 1, false, true)
MULTIPLY(multiply_s8, 1, false, false)
MULTIPLY(multiply_minimum, 1, true, false)
MULTIPLY(multiply_halves, 2, false, false)
MULTIPLY(multiply_halves_minimum, 2, true, false)
#undef MULTIPLY
#undef MULTIPLY_N
_Static_assert(LEAST_TOKENS == 9 && REGISTER_TOKENS == 8, "groups of 5 to 8");

// In as many tiles as AVX-512 likes.
static void few_tokens(const struct gemm_tile *job, enum dtype type) {
    const struct cpu_kernels *k = &cpu_kernels_avx512;
    int most = k->tile_tokens[type], n = job->num_tokens, num = (n + most - 1) / most;
    if (num == 1) {
        k->gemm[type](job);
        return;
    }
    struct gemm_tile one = *job;
    for (int i = 0, t = 0; i < num; i++, t += one.num_tokens) {
        one.x = (const char *)job->x + (size_t)t * job->ldx;
        one.y = job->y + (size_t)t * job->ldy;
        one.num_tokens = n / num + (i < n % num);
        k->gemm[type](&one);
        one.prefetch = (struct prefetch){0};
    }
}

static void gemm_quantised(const struct gemm_tile *job, enum dtype type, unpack_fn *unpack,
                           multiply_fn *const *multiply) {
    if (job->num_tokens < LEAST_TOKENS) {
        few_tokens(job, type);
        return;
    }
    int parts = dtype_block(type) / 32, halves = has_halves(type) ? 2 : 1;
    const struct groups groups = cut_tokens(job->num_tokens, REGISTER_TOKENS);
    struct range range;
    struct segments segments[MAX_GROUPS];
    struct ahead ahead = {.step = job->prefetch.step / (size_t)(parts * halves * groups.num) + 1,
                          .far = job->prefetch.far};
    ahead.at = ahead.goal = job->prefetch.at + (size_t)job->bounds[0] * job->prefetch.step;
    if (job->prefetch.step == 0)
        ahead.step = 0;
    configure(halves == 2 ? SHAPE_16 : SHAPE_32, groups.size);
    prefetch_rows(job);
    for (int i = 0; i < job->num_segments; i++) {
        int begin = job->bounds[i] * parts, end = job->bounds[i + 1] * parts;
        for (int g = 0; g < groups.num; g++)
            memset(segments[g].sum[i], 0, sizeof segments[g].sum[i]);
        for (int block = begin; block < end; block += RANGE) {
            int count = end - block < RANGE ? end - block : RANGE;
            unpack(&range, job, block, count);
            for (int g = 0; g < groups.num; g++) {
                const char *x =
                    (const char *)job->x + (size_t)group_begin(&groups, g, job->num_tokens) * job->ldx;
                multiply[groups.size - 5](&(struct multiply){.sum = segments[g].sum[i],
                                                             .range = &range,
                                                             .x = x + (size_t)block * sizeof(struct act_q8),
                                                             .ldx = job->ldx,
                                                             .count = count,
                                                             .ahead = &ahead});
            }
        }
    }
    for (int g = 0; g < groups.num; g++)
        for (int panel = 0; panel < TILE_PANELS; panel++)
            finish_group(job, &groups, g, panel, segments[g].sum[0][panel][0]);
}

#define X(type, packed)                                                                                      \
    static void unpack_##type(struct range *r, const struct gemm_tile *job, int block, int count) {          \
        unpack_range(r, job, block, count, DTYPE_##type);                                                    \
    }                                                                                                        \
    static void amx_##type(const struct gemm_tile *job) {                                                    \
        const enum dtype t = DTYPE_##type;                                                                   \
        bool halves = has_halves(t), minimum = quants_has_minimum(t);                                        \
        gemm_quantised(job, t, unpack_##type,                                                                \
                       halves &&minimum  ? multiply_halves_minimum                                           \
                       : halves          ? multiply_halves                                                   \
                       : minimum         ? multiply_minimum                                                  \
                       : t == DTYPE_Q8_0 ? multiply_u8                                                       \
                                         : multiply_s8);                                                     \
    }
QUANTISED_MAP(X)
#undef X

// ---- bf16

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
    TILE_LOAD(6, w0, 64);
    TILE_LOAD(4, x0, ldx);
    TILE_DOT_BF16(0, 4, 6);
    TILE_LOAD(7, w1, 64);
    TILE_DOT_BF16(1, 4, 7);
    if (x1) {
        TILE_LOAD(5, x1, ldx);
        TILE_DOT_BF16(2, 5, 6);
        TILE_DOT_BF16(3, 5, 7);
    }
}

// The last pairs, fewer than PAIRS: zeros after them.
static void dot_last_pairs(const char *const x[BF16_GROUPS], const struct gemm_tile *job, int size, int pair,
                           int count) {
    _Alignas(64) char rows[BF16_GROUPS][TILE_ROWS][TILE_BYTES] = {0}, w[TILE_PANELS][PAIRS][TILE_BYTES] = {0};
    for (int g = 0; g < TILE_PANELS; g++)
        memcpy(w[g], (const char *)job->w[g] + (size_t)pair * 64, (size_t)count * 64);
    for (int i = 0; i < BF16_GROUPS && x[i]; i++)
        for (int t = 0; t < size; t++)
            memcpy(rows[i][t], x[i] + (size_t)t * job->ldx + (size_t)pair * 4, (size_t)count * 4);
    dot_pairs(rows[0][0], x[1] ? rows[1][0] : NULL, TILE_BYTES, w[0][0], w[1][0]);
}

static void amx_BF16(const struct gemm_tile *job) {
    const struct groups groups = cut_tokens(job->num_tokens, TILE_ROWS);
    struct segments segments[BF16_GROUPS][TILE_PANELS]; // in each the rows of a tile, 16
    _Static_assert(sizeof segments[0][0].sum[0] == TILE_ROWS * TILE_BYTES, "a tile");
    const char *x[BF16_GROUPS] = {NULL};
    for (int i = 0; i < groups.num; i++)
        x[i] = (const char *)job->x + (size_t)group_begin(&groups, i, job->num_tokens) * job->ldx;
    configure(SHAPE_BF16, groups.size);
    prefetch_rows(job);
    for (int i = 0; i < job->num_segments; i++) {
        int pair = job->bounds[i], end = job->bounds[i + 1];
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
        for (; pair + PAIRS <= end; pair += PAIRS) {
            prefetch_pairs(job, pair, PAIRS);
            dot_pairs(x[0] + (size_t)pair * 4, x[1] ? x[1] + (size_t)pair * 4 : NULL, job->ldx,
                      (const char *)job->w[0] + (size_t)pair * 64,
                      (const char *)job->w[1] + (size_t)pair * 64);
        }
        if (pair < end)
            dot_last_pairs(x, job, groups.size, pair, end - pair);
        TILE_STORE(0, segments[0][0].sum[i], LANES * 4);
        TILE_STORE(1, segments[0][1].sum[i], LANES * 4);
        if (groups.num > 1) {
            TILE_STORE(2, segments[1][0].sum[i], LANES * 4);
            TILE_STORE(3, segments[1][1].sum[i], LANES * 4);
        }
    }
    for (int g = 0; g < groups.num; g++)
        for (int panel = 0; panel < TILE_PANELS; panel++)
            finish_group(job, &groups, g, panel, segments[g][panel].sum[0][0][0]);
}

void AMX_FILL(struct cpu_kernels *k, bool bf16) {
    k->name = bf16 ? "amx-bf16" : "amx";
#define X(type, packed)                                                                                      \
    k->gemm[DTYPE_##type] = amx_##type;                                                                      \
    k->tile_tokens[DTYPE_##type] = MAX_TILE_TOKENS;
    QUANTISED_MAP(X)
#undef X
    if (!bf16)
        return;
    k->gemm[DTYPE_BF16] = amx_BF16;
    k->tile_tokens[DTYPE_BF16] = MAX_TILE_TOKENS;
}
