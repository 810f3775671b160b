// Products of BF16 weights on AMX's matrix tiles; everything else of its table is AVX-512's. Compiled with those options and
// AVX-512's whatever the rest is compiled for; with AMX_EMULATED, for tests, tiles are plain C.
//
// A packed panel already is what the instruction takes as B: a row of a tile is a bf16 pair of each of the panel's 16 rows.
// A is some tokens' activations, where they lie. Sums stay in tiles over all of K, in an order of their own
// (kernels/README.md, rule 2), so every number of tokens goes this way.
//
// Quantised types stay AVX-512's: their sums would have to leave the tiles every 32 k, to be scaled, which takes as long as
// vpdpbusd does for all of it.
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

enum { PAIRS = 16, GROUPS = MAX_TILE_TOKENS / TILE_ROWS }; // of bf16 in a tile's row; of tokens

// Tiles 0 to 3 are sums, of two groups of n tokens and two panels; 4 a group's activations, 5 a panel's weights. 6 and 7
// have no shape: a core has few tiles more than have names, and its two threads share them, so that the fewer are in use
// the more loads and products go on at once (tests/bench/lab/tiles.c: beside a busy thread eight take 24 ns a product, six
// 15 and four 12, but with four activations would be read for each panel). Constants, so that no store to them can be
// lost.
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

// Each thread has tiles of its own, and what it was told last: telling it again takes as long as twenty products.
static void configure(int groups, int tokens) {
    static _Thread_local const struct tile_config *current;
    const struct tile_config *c = &configs[groups - 1][tokens - 1];
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
                         const float *sum) {
    int begin = group_begin(groups, i, job->num_tokens), first = i * groups->size;
    segments_finish(sum + (first - begin) * LANES, job->num_segments, job->add,
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

static void gemm_bf16(const struct gemm_tile *job) {
    const struct groups groups = cut_tokens(job->num_tokens);
    struct segments segments[GROUPS][TILE_PANELS]; // in each the rows of a tile, 16
    _Static_assert(sizeof segments[0][0].sum[0] == TILE_ROWS * TILE_BYTES, "a tile");
    const char *x[GROUPS] = {NULL};
    for (int i = 0; i < groups.num; i++)
        x[i] = (const char *)job->x + (size_t)group_begin(&groups, i, job->num_tokens) * job->ldx;
    configure(groups.num, groups.size);
    prefetch_rows(job);
    for (int i = 0; i < job->num_segments; i++) {
        int pair = job->bounds[i], end = job->bounds[i + 1];
        TILE_ZERO(0);
        TILE_ZERO(1);
        if (groups.num > 1) {
            TILE_ZERO(2);
            TILE_ZERO(3);
        }
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

void AMX_FILL(struct cpu_kernels *k) {
    k->name = "amx";
    k->gemm[DTYPE_BF16] = gemm_bf16;
    k->tile_tokens[DTYPE_BF16] = MAX_TILE_TOKENS;
}
