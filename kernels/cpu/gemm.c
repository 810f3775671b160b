// Matrix products over row groups of packed weights: which thread does what, in which order, and what happens
// to a finished 16 x 8 tile. The arithmetic of a tile is body.h's.
#include "device.h"
#include "log.h"

#include <math.h>
#include <string.h>

enum {
    NUM_SEGMENTS = 8,         // of K, in row-parallel matrices (README rule 3)
    TOKEN_PANEL = 64,         // tokens whose activations stay in the L2 cache
    PANEL_BYTES = 384 * 1024, // of weights that stay there while all tokens pass
    SMALL = 1 << 16,          // multiply-adds that are done sooner than another thread wakes
    TILE = GEMM_TOKENS * LANES,
};

// ---- activations

struct prepare {
    struct device *dev;
    const float *x;
    int cols, num_rows;
    const struct head_row *rows;
    const float *norm;
    unsigned dtypes;
    size_t bf16_cols; // even
};

static void prepare_share(void *ctx, int thread, int num_threads) {
    const struct prepare *job = ctx;
    const struct cpu_kernels *k = job->dev->kernels;
    int begin, end, n = job->cols;
    pool_share(job->num_rows, thread, num_threads, &begin, &end);
    for (int t = begin; t < end; t++) {
        const float *x = job->x + (size_t)(job->rows ? job->rows[t].row : t) * (size_t)n;
        if (job->norm) {
            float *y = job->dev->norm + (size_t)t * (size_t)n;
            k->rmsnorm(y, x, job->norm, n, job->dev->model.norm_eps);
            x = y;
        }
        if (job->dtypes & 1u << DTYPE_BF16) {
            uint16_t *y = job->dev->bf16 + (size_t)t * job->bf16_cols;
            k->to_bf16(y, x, n);
            if (n % 2)
                y[n] = 0;
        }
        if (job->dtypes & DTYPES_QUANTISED)
            k->to_q8(job->dev->q8 + (size_t)t * (size_t)(n / 32), x, n);
    }
}

struct activations cpu_activations(struct device *dev, const float *x, int num_rows,
                                   const struct head_row *rows, const struct weight *w,
                                   const struct weight *norm) {
    int cols = w->part[0].cols;
    struct prepare job = {
        dev, x, cols, num_rows, rows, norm ? norm->vector : NULL, 0, (size_t)(cols + 1) / 2 * 2};
    for (int i = 0; i < w->num_parts; i++)
        job.dtypes |= 1u << w->part[i].dtype;
    pool_run(dev->pool, prepare_share, &job, (long long)num_rows * cols > SMALL / 8);

    struct activations a = {.num_rows = num_rows};
    a.data[DTYPE_F32] = a.data[DTYPE_F16] = norm ? dev->norm : x;
    a.stride[DTYPE_F32] = a.stride[DTYPE_F16] = (size_t)cols * sizeof(float);
    a.data[DTYPE_BF16] = dev->bf16;
    a.stride[DTYPE_BF16] = job.bf16_cols * sizeof(uint16_t);
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (DTYPES_QUANTISED & 1u << i) {
            a.data[i] = dev->q8;
            a.stride[i] = (size_t)(cols / 32) * sizeof(struct act_q8);
        }
    return a;
}

// ---- products

enum finish { FINISH_COPY, FINISH_ADD, FINISH_SWIGLU };

struct matmul {
    const struct cpu_kernels *kernels;
    const struct activations *x;
    const struct weight *w;
    enum finish finish;
    float *y[3];
    int ldy[3];
};

// tile (n, 16) = tokens [t, t+n) times one row group over all of K
static void whole_tile(const struct matmul *job, const struct weight_part *p, int group, int t, int n,
                       float *tile) {
    const char *x = (const char *)job->x->data[p->dtype] + (size_t)t * job->x->stride[p->dtype];
    job->kernels->gemm[p->dtype](p->data + (size_t)group * p->strip_bytes, x, job->x->stride[p->dtype], 0,
                                 p->num_blocks, tile, n);
}

// The same as a binary tree over 8 segments of K, so that a matrix cut by columns over ranks sums alike.
static void segment_tile(const struct matmul *job, const struct weight_part *p, int group, int t, int n,
                         float *tile) {
    float seg[NUM_SEGMENTS][TILE];
    const char *x = (const char *)job->x->data[p->dtype] + (size_t)t * job->x->stride[p->dtype];
    for (int i = 0; i < NUM_SEGMENTS; i++)
        job->kernels->gemm[p->dtype](p->data + (size_t)group * p->strip_bytes, x, job->x->stride[p->dtype],
                                     (int)((int64_t)p->num_blocks * i / NUM_SEGMENTS),
                                     (int)((int64_t)p->num_blocks * (i + 1) / NUM_SEGMENTS), seg[i], n);
    for (int i = 0; i < n * LANES; i++)
        tile[i] = ((seg[0][i] + seg[1][i]) + (seg[2][i] + seg[3][i])) +
                  ((seg[4][i] + seg[5][i]) + (seg[6][i] + seg[7][i]));
}

// One row group of part i against tokens [t, t+n), n <= 8.
static void do_tile(const struct matmul *job, int i, int group, int t, int n) {
    const struct weight_part *p = &job->w->part[i];
    float tile[TILE], up[TILE];
    int width = p->rows - group * LANES < LANES ? p->rows - group * LANES : LANES;
    if (job->finish == FINISH_ADD)
        segment_tile(job, p, group, t, n, tile);
    else
        whole_tile(job, p, group, t, n, tile);
    if (job->finish == FINISH_SWIGLU) {
        whole_tile(job, &job->w->part[1], group, t, n, up);
        job->kernels->swiglu(tile, tile, up, n * LANES);
    }
    for (int r = 0; r < n; r++) {
        float *y = job->y[i] + (size_t)(t + r) * (size_t)job->ldy[i] + group * LANES;
        const float *row = tile + r * LANES;
        if (job->finish != FINISH_ADD)
            memcpy(y, row, (size_t)width * sizeof *y);
        else
            for (int c = 0; c < width; c++)
                y[c] += row[c];
    }
}

// Row groups [begin, end) of part i: a panel of weights stays in the cache while all tokens pass, 64 at a
// time.
static void do_groups(const struct matmul *job, int i, int begin, int end) {
    size_t strip =
        job->w->part[i].strip_bytes + (job->finish == FINISH_SWIGLU ? job->w->part[1].strip_bytes : 0);
    int panel = (int)(PANEL_BYTES / strip) > 0 ? (int)(PANEL_BYTES / strip) : 1, num_rows = job->x->num_rows;
    for (int g0 = begin; g0 < end; g0 += panel)
        for (int t0 = 0; t0 < num_rows; t0 += TOKEN_PANEL)
            for (int g = g0; g < g0 + panel && g < end; g++)
                for (int t = t0; t < t0 + TOKEN_PANEL && t < num_rows; t += GEMM_TOKENS)
                    do_tile(job, i, g, t, num_rows - t < GEMM_TOKENS ? num_rows - t : GEMM_TOKENS);
}

static void matmul_share(void *ctx, int thread, int num_threads) {
    const struct matmul *job = ctx;
    int num_parts = job->finish == FINISH_SWIGLU ? 1 : job->w->num_parts, first = 0, begin, end;
    int num_groups = job->finish == FINISH_SWIGLU ? job->w->part[0].num_groups : job->w->num_groups;
    pool_share(num_groups, thread, num_threads, &begin, &end);
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

void cpu_matmul_swiglu(struct device *dev, float *y, int ldy, const struct activations *x,
                       const struct weight *w) {
    CHECK(w->num_parts == 2 && w->part[0].rows == w->part[1].rows);
    struct matmul job = {dev->kernels, x, w, FINISH_SWIGLU, {y}, {ldy}};
    matmul_run(dev, &job);
}
