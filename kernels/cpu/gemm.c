// Matrix products over row groups of packed weights: which thread does what, in which order, and what happens
// to a finished 16 x 8 tile. The arithmetic of a tile is body.h's.
#include "device.h"
#include "log.h"

#include <math.h>
#include <string.h>

enum {
    ACTIVATION_PANEL = 1 << 18, // bytes of activations, and
    WEIGHT_PANEL = 3 << 17,     // of weights, that stay in the L2 cache together
    SMALL = 1 << 16,            // multiply-adds that are done sooner than another thread wakes
    TILE = TILE_GROUPS * MAX_TILE_TOKENS * LANES,
};

// ---- activations

struct prepare {
    struct device *dev;
    const float *x;
    int cols, num_rows;
    const struct head_row *rows;
    const float *norm;
    unsigned dtypes;
    struct activations *out;
};

static void *row_of(const struct prepare *job, enum dtype dtype, int t) {
    return (char *)(uintptr_t)job->out->data[dtype] + (size_t)t * job->out->stride[dtype];
}

static void prepare_share(void *ctx, int thread, int num_threads) {
    const struct prepare *job = ctx;
    const struct cpu_kernels *k = job->dev->kernels;
    int begin, end, n = job->cols;
    pool_share(job->num_rows, thread, num_threads, &begin, &end);
    for (int t = begin; t < end; t++) {
        const float *x = job->x + (size_t)(job->rows ? job->rows[t].row : t) * (size_t)n;
        float *floats = row_of(job, DTYPE_F32, t);
        if (job->norm) {
            k->rmsnorm(floats, x, job->norm, n, job->dev->model.norm_eps);
            x = floats;
        } else if (job->dtypes & (1u << DTYPE_F32 | 1u << DTYPE_F16)) {
            memcpy(floats, x, (size_t)n * sizeof *x);
        }
        if (job->dtypes & 1u << DTYPE_BF16) {
            uint16_t *y = row_of(job, DTYPE_BF16, t);
            k->to_bf16(y, x, n);
            if (n % 2)
                y[n] = 0;
        }
        if (job->dtypes & DTYPES_QUANTISED)
            k->to_q8(row_of(job, DTYPE_Q8_0, t), x, n);
    }
}

struct activations cpu_activations(struct device *dev, const float *x, int num_rows,
                                   const struct head_row *rows, const struct weight *w,
                                   const struct weight *norm) {
    int cols = w->part[0].cols;
    struct activations a = {.num_rows = num_rows};
    struct prepare job = {dev, x, cols, num_rows, rows, norm ? norm->vector : NULL, 0, &a};
    for (int i = 0; i < w->num_parts; i++)
        job.dtypes |= 1u << w->part[i].dtype;
    for (int i = 0; i < DTYPE_COUNT; i++) {
        bool q8 = DTYPES_QUANTISED & 1u << i, bf16 = i == DTYPE_BF16;
        a.data[i] = q8 ? dev->q8 : bf16 ? dev->bf16 : dev->floats;
        a.stride[i] = activation_stride(q8     ? (size_t)(cols / 32) * sizeof(struct act_q8)
                                        : bf16 ? (size_t)(cols + 1) / 2 * 2 * sizeof(uint16_t)
                                               : (size_t)cols * sizeof(float));
    }
    pool_run(dev->pool, prepare_share, &job, (long long)num_rows * cols > SMALL / 8);
    return a;
}

// ---- products

enum finish { FINISH_COPY, FINISH_ADD, FINISH_PART, FINISH_SWIGLU };

struct matmul {
    const struct cpu_kernels *kernels;
    const struct activations *x;
    const struct weight *w;
    enum finish finish;
    float *y[3];
    int ldy[3];
};

// A pair of row groups of one part against tokens [t, t + n). The second may be missing: it is then the first
// again, and what comes out of it is dropped.
struct place {
    int part, group, num_groups; // 1 or 2
    int t, n;                    // n <= MAX_TILE_TOKENS
    int tile, num_tiles;         // which of how many that follow each other on these groups
};

// What the kernels take of it: its strips, and the first of its activations.
struct operands {
    const void *w[TILE_GROUPS];
    const char *x;
    size_t ldx;
    struct ahead ahead;
    gemm_fn *gemm;
};

static struct operands operands(const struct matmul *job, const struct place *at, int part) {
    const struct weight_part *p = &job->w->part[part];
    const char *first = p->data + (size_t)at->group * p->strip_bytes;
    size_t ldx = job->x->stride[p->dtype];
    return (struct operands){
        .w = {first, at->num_groups == 2 ? first + p->strip_bytes : first},
        .x = (const char *)job->x->data[p->dtype] + (size_t)at->t * ldx,
        .ldx = ldx,
        .ahead = ahead_share(first, p->strip_bytes, p->num_blocks, at->n, at->tile, at->num_tiles),
        .gemm = job->kernels->gemm[p->dtype]};
}

// tile (TILE_GROUPS, n, 16) over all of K
static void whole_tile(const struct matmul *job, const struct place *at, int part, float *tile) {
    struct operands o = operands(job, at, part);
    o.gemm(o.w, o.x, o.ldx, 0, job->w->part[part].num_blocks, tile, at->n, o.ahead);
}

// The same as a binary tree over 8 segments of K, so that a matrix cut by columns over ranks sums alike: a
// rank has 8, 4, 2 or 1 of them, which are a whole part of the tree.
static void segment_tile(const struct matmul *job, const struct place *at, float *tile) {
    float seg[NUM_SEGMENTS][TILE];
    struct operands o = operands(job, at, at->part);
    const int *bound = job->w->segments;
    for (int i = 0; i < job->w->num_segments; i++)
        o.gemm(o.w, o.x, o.ldx, bound[i], bound[i + 1], seg[i], at->n, o.ahead);
    size_t n = (size_t)(TILE_GROUPS * at->n * LANES);
    if (job->w->num_segments == NUM_SEGMENTS) { // all in one pass
        for (size_t i = 0; i < n; i++)
            tile[i] = ((seg[0][i] + seg[1][i]) + (seg[2][i] + seg[3][i])) +
                      ((seg[4][i] + seg[5][i]) + (seg[6][i] + seg[7][i]));
        return;
    }
    for (int left = job->w->num_segments; left > 1; left /= 2)
        for (int s = 0; s < left / 2; s++)
            for (size_t i = 0; i < n; i++)
                seg[s][i] = seg[2 * s][i] + seg[2 * s + 1][i];
    memcpy(tile, seg[0], n * sizeof *tile);
}

static void do_tile(const struct matmul *job, const struct place *at) {
    float tile[TILE], up[TILE];
    if (job->finish == FINISH_ADD || job->finish == FINISH_PART)
        segment_tile(job, at, tile);
    else
        whole_tile(job, at, at->part, tile);
    if (job->finish == FINISH_SWIGLU) {
        whole_tile(job, at, 1, up);
        job->kernels->swiglu(tile, tile, up, at->num_groups * at->n * LANES);
    }
    for (int g = 0; g < at->num_groups; g++) {
        int column = (at->group + g) * LANES, left = job->w->part[at->part].rows - column;
        size_t width = left < LANES ? (size_t)left : LANES;
        for (int r = 0; r < at->n; r++) {
            float *y = job->y[at->part] + (size_t)(at->t + r) * (size_t)job->ldy[at->part] + column;
            const float *row = tile + (g * at->n + r) * LANES;
            if (job->finish != FINISH_ADD)
                memcpy(y, row, width * sizeof *y);
            else
                for (size_t c = 0; c < width; c++)
                    y[c] += row[c];
        }
    }
}

// Tokens [t0, t1) of a pair of row groups, in the fewest tiles of the size that the kernels like, all of much
// the same size.
static void do_tokens(const struct matmul *job, struct place *at, int t0, int t1) {
    int most = job->kernels->tile_tokens[job->w->part[at->part].dtype], n = t1 - t0;
    int tiles = (n + most - 1) / most;
    for (int i = 0; i < tiles; i++) {
        at->t = t0 + (int)((int64_t)n * i / tiles);
        at->n = t0 + (int)((int64_t)n * (i + 1) / tiles) - at->t;
        at->tile = i;
        at->num_tiles = tiles;
        do_tile(job, at);
    }
}

// Row groups [begin, end) of a part: a panel of weights stays in the cache while all tokens pass, a panel at
// a time.
static void do_groups(const struct matmul *job, int part, int begin, int end) {
    const struct weight_part *p = &job->w->part[part];
    size_t strip = p->strip_bytes + (job->finish == FINISH_SWIGLU ? job->w->part[1].strip_bytes : 0);
    int groups = (int)(WEIGHT_PANEL / strip) / TILE_GROUPS * TILE_GROUPS;
    int tokens = (int)(ACTIVATION_PANEL / job->x->stride[p->dtype]), num_rows = job->x->num_rows;
    groups = groups < TILE_GROUPS ? TILE_GROUPS : groups;
    tokens = tokens < 3 * MAX_TILE_TOKENS ? 3 * MAX_TILE_TOKENS : tokens;
    for (int g0 = begin; g0 < end; g0 += groups)
        for (int t0 = 0; t0 < num_rows; t0 += tokens)
            for (int g = g0; g < g0 + groups && g < end; g += TILE_GROUPS) {
                struct place at = {.part = part, .group = g, .num_groups = end - g < 2 ? 1 : 2};
                do_tokens(job, &at, t0, t0 + tokens < num_rows ? t0 + tokens : num_rows);
            }
}

static void matmul_share(void *ctx, int thread, int num_threads) {
    const struct matmul *job = ctx;
    int num_parts = job->finish == FINISH_SWIGLU ? 1 : job->w->num_parts, first = 0, begin, end;
    int num_groups = job->finish == FINISH_SWIGLU ? job->w->part[0].num_groups : job->w->num_groups;
    pool_share((num_groups + TILE_GROUPS - 1) / TILE_GROUPS, thread, num_threads, &begin, &end);
    begin *= TILE_GROUPS;
    end *= TILE_GROUPS;
    for (int i = 0; i < num_parts; i++) {
        int n = job->w->part[i].num_groups;
        int from = begin > first ? begin - first : 0, to = end - first < n ? end - first : n;
        if (from < to)
            do_groups(job, i, from, to);
        first += n;
    }
}

static void matmul_run(struct device *dev, const struct matmul *job) {
    long long work = (long long)job->w->num_groups * LANES * job->w->part[0].cols * job->x->num_rows;
    pool_run(dev->pool, matmul_share, (void *)(uintptr_t)job, work > SMALL);
}

void cpu_matmul(struct device *dev, float *const y[3], const int ldy[3], const struct activations *x,
                const struct weight *w) {
    struct matmul job = {dev->kernels, x, w, FINISH_COPY, {y[0], y[1], y[2]}, {ldy[0], ldy[1], ldy[2]}};
    matmul_run(dev, &job);
}

void cpu_matmul_add(struct device *dev, float *y, int ldy, const struct activations *x,
                    const struct weight *w) {
    struct matmul job = {dev->kernels, x, w, FINISH_ADD, {y}, {ldy}};
    matmul_run(dev, &job);
}

void cpu_matmul_part(struct device *dev, float *y, int ldy, const struct activations *x,
                     const struct weight *w) {
    struct matmul job = {dev->kernels, x, w, FINISH_PART, {y}, {ldy}};
    matmul_run(dev, &job);
}

void cpu_matmul_swiglu(struct device *dev, float *y, int ldy, const struct activations *x,
                       const struct weight *w) {
    CHECK(w->num_parts == 2 && w->part[0].rows == w->part[1].rows);
    struct matmul job = {dev->kernels, x, w, FINISH_SWIGLU, {y}, {ldy}};
    matmul_run(dev, &job);
}
