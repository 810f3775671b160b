// See lora.h. Rows that have an adapter are sorted by it, so that each adapter's matrices are read once for all its
// rows; each place there is a slot. Slots are taken in chunks, and the groups of a chunk by the threads.
#include "lora.h"

#include "float_env.h"
#include "log.h"
#include "minmax.h"

#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_SLOTS = 512,
    GROUP_SLOTS = 64, // at most, so that threads share a long prompt's
    RUN_PAIRS = 8,    // of panels of B in a work item
    SMALL = 1 << 15,  // multiply-adds that are done sooner than another thread wakes
    TILE = TILE_PANELS * MAX_TILE_TOKENS * LANES,
};

struct lora_matrix {
    struct weight_part a, b; // a.rows 0: none
    float scale;
};

struct lora_adapter {
    struct region region;
    struct lora_matrix matrices[]; // (L, ADAPTER_TARGETS)
};

struct lora_group { // slots [begin, end) of a chunk
    int adapter, begin, end;
};

static size_t align64(size_t n) { return (n + 63) / 64 * 64; }

// ---- memory

enum status cpu_lora_open(struct device *dev) {
    int n = dev->limits.max_adapters;
    dev->adapters = n > 0 ? calloc((size_t)n, sizeof *dev->adapters) : NULL;
    return n > 0 && !dev->adapters ? STATUS_NOMEM : STATUS_OK;
}

void cpu_lora_close(struct device *dev) {
    for (int i = 0; dev->adapters && i < dev->limits.max_adapters; i++)
        cpu_adapter_free(dev, i);
    free(dev->adapters);
}

// The widest input of a matrix.
static size_t widest_input(const struct device *dev) {
    size_t in = (size_t)dev->model.hidden;
    for (int i = 0; i < dev->model.num_attn; i++)
        if ((size_t)attn_out_size(&dev->model.attn[i]) > in)
            in = (size_t)attn_out_size(&dev->model.attn[i]);
    for (int i = 0; i < dev->model.num_ffn; i++)
        if (dev->model.ffn[i].experts == 0 && (size_t)dev->model.ffn[i].hidden > in)
            in = (size_t)dev->model.ffn[i].hidden;
    return in;
}

// Floats of A x, and pairs of bf16, from one target to the next.
static size_t low_stride(const struct device *dev) {
    return align64((size_t)dev->limits.max_adapter_rank + 1);
}

void cpu_lora_arena(struct device *dev, struct cpu_arena *c) {
    struct lora_rows *l = &dev->lora;
    size_t T = (size_t)dev->limits.max_tokens, n = (size_t)dev->limits.max_adapters;
    size_t slots = T < CHUNK_SLOTS ? T : CHUNK_SLOTS, in = widest_input(dev);
    if (n == 0)
        return;
    l->rows = arena_take(c, T, sizeof *l->rows);
    l->groups = arena_take(c, n + T / GROUP_SLOTS + T / CHUNK_SLOTS + 2, sizeof *l->groups);
    l->next = arena_take(c, n, sizeof *l->next);
    l->x.floats = arena_take(c, slots, activation_stride(in * sizeof(float)));
    l->x.bf16 = arena_take(c, slots, activation_stride((in + 1) * sizeof(uint16_t)));
    l->low = arena_take(c, slots * 3 * low_stride(dev), sizeof *l->low);
    l->low_bf16 = arena_take(c, slots * 3 * low_stride(dev), sizeof *l->low_bf16);
}

// ---- adapters

static void pack_matrix(struct weight_part *p, const struct tensor *t, char *data) {
    p->data = data;
    for (int g = 0; g < p->num_panels; g++)
        pack_panel(p->data + (size_t)g * p->panel_bytes, t->data, p->dtype, p->rows, p->cols, g * LANES);
}

static struct weight_part part_of(const struct tensor *t) {
    return cpu_part_shape(t->dtype, (int)t->shape[0], (int)t->shape[1]);
}

static size_t part_bytes(const struct weight_part *p) {
    return align64((size_t)p->num_panels * p->panel_bytes);
}

enum status cpu_adapter_load(struct device *dev, int slot, const struct adapter_desc *desc, struct err *err) {
    CHECK(slot >= 0 && slot < dev->limits.max_adapters && !dev->adapters[slot]);
    size_t n = (size_t)dev->model.num_layers * ADAPTER_TARGETS, bytes = 0;
    struct lora_adapter *a = calloc(1, sizeof *a + n * sizeof a->matrices[0]);
    for (size_t i = 0; a && i < n; i++) {
        const struct adapter_matrix *from = &desc->matrices[i];
        struct lora_matrix *m = &a->matrices[i];
        if (!from->a.data)
            continue;
        CHECK(from->a.shape[0] <= dev->limits.max_adapter_rank && from->a.shape[0] == from->b.shape[1]);
        *m = (struct lora_matrix){part_of(&from->a), part_of(&from->b), from->scale};
        bytes += part_bytes(&m->a) + part_bytes(&m->b);
    }
    if (a)
        a->region = region_alloc(bytes > 0 ? bytes : 64);
    if (!a || !a->region.data) {
        free(a);
        return err_set(err, STATUS_NOMEM, "no memory for an adapter of %zu bytes", bytes);
    }
    char *at = a->region.data;
    for (size_t i = 0; i < n; i++) {
        struct lora_matrix *m = &a->matrices[i];
        if (!desc->matrices[i].a.data)
            continue;
        pack_matrix(&m->a, &desc->matrices[i].a, at);
        at += part_bytes(&m->a);
        pack_matrix(&m->b, &desc->matrices[i].b, at);
        at += part_bytes(&m->b);
    }
    dev->adapters[slot] = a;
    return STATUS_OK;
}

void cpu_adapter_free(struct device *dev, int slot) {
    struct lora_adapter *a = dev->adapters[slot];
    dev->adapters[slot] = NULL;
    if (a)
        region_free(&a->region);
    free(a);
}

// ---- the rows of a step

void cpu_lora_begin(struct device *dev, const struct step *step) {
    struct lora_rows *l = &dev->lora;
    int num = 0, n = dev->limits.max_adapters;
    l->num_groups = 0;
    if (!step->adapters)
        return;
    memset(l->next, 0, (size_t)n * sizeof *l->next);
    for (int s = 0; s < step->num_seqs; s++) {
        int a = step->adapters[s];
        CHECK(a < n && (a < 0 || dev->adapters[a]));
        if (a >= 0)
            l->next[a] += step->query_start[s + 1] - step->query_start[s];
    }
    for (int a = 0; a < n; a++) {
        int begin = num, end = num += l->next[a];
        l->next[a] = begin;
        while (begin < end) {
            int room = CHUNK_SLOTS - begin % CHUNK_SLOTS,
                size = min_int(GROUP_SLOTS, min_int(room, end - begin));
            l->groups[l->num_groups++] = (struct lora_group){a, begin, begin + size};
            begin += size;
        }
    }
    for (int s = 0; s < step->num_seqs; s++)
        for (int t = step->query_start[s]; step->adapters[s] >= 0 && t < step->query_start[s + 1]; t++)
            l->rows[l->next[step->adapters[s]]++] = t;
}

// ---- GEMM

struct lora_job {
    struct device *dev;
    const struct layer *layer;
    enum adapter_target first;
    int num; // of targets
    const struct lora_input *in;
    float *const *y;
    const int *ldy;
    const struct lora_group *groups; // of the chunk
    int num_groups, slot;            // and its first slot
    unsigned dtypes;                 // that A's inputs need
    int runs[3], num_runs;           // work items of a group: of each target's B
    int columns;                     // of A, and bytes of an input as floats and as bf16
    size_t floats, bf16;
};

static const struct lora_matrix *matrix_of(const struct device *dev, const struct layer *layer, int adapter,
                                           int target) {
    return &dev->adapters[adapter]->matrices[(size_t)layer->index * ADAPTER_TARGETS + (size_t)target];
}

static const struct lora_matrix *group_matrix(const struct lora_job *job, const struct lora_group *g,
                                              int target) {
    return matrix_of(job->dev, job->layer, g->adapter, (int)job->first + target);
}

static float *low_of(const struct device *dev, int slot, int target) {
    return dev->lora.low + (size_t)(slot * 3 + target) * low_stride(dev);
}
static uint16_t *low_bf16_of(const struct device *dev, int slot, int target) {
    return dev->lora.low_bf16 + (size_t)(slot * 3 + target) * low_stride(dev);
}

// Inputs of the chunk's slots, in the types that its A need.
static void gather_worker(void *ctx, int thread, int num_threads) {
    const struct lora_job *job = ctx;
    struct device *dev = job->dev;
    const struct lora_rows *l = &dev->lora;
    int n = job->columns;
    (void)num_threads;
    for (int begin, end; pool_take(dev->pool, thread, 1, &begin, &end);)
        for (int i = begin; i < end; i++) {
            const float *x = job->in->x + (size_t)l->rows[job->slot + i] * job->in->ldx;
            if (job->dtypes & ~(1u << DTYPE_BF16))
                memcpy(l->x.floats + (size_t)i * job->floats, x, (size_t)n * sizeof *x);
            if (!(job->dtypes & 1u << DTYPE_BF16))
                continue;
            uint16_t *y = (uint16_t *)(void *)(l->x.bf16 + (size_t)i * job->bf16);
            dev->kernels->to_bf16(y, x, n);
            if (n % 2)
                y[n] = 0;
        }
}

// Panels g and, where there is one, g + 1 of a part times n rows, into y[panel][row][lane].
static void run_tile(const struct device *dev, const struct weight_part *p, int g, const void *x, size_t ldx,
                     int n, const int *bounds, int num_segments, float *y) {
    const char *first = p->data + (size_t)g * p->panel_bytes;
    dev->kernels->gemm[p->dtype](
        &(struct gemm_tile){.w = {first, g + 1 < p->num_panels ? first + p->panel_bytes : first},
                            .x = x,
                            .ldx = ldx,
                            .num_tokens = n,
                            .bounds = bounds,
                            .num_segments = num_segments,
                            .y = y,
                            .ldy = LANES,
                            .next_panel = (size_t)n * LANES});
}

// A's sums are cut where those of its matrix are.
static int cut_segments(const struct lora_job *job, const struct weight_part *a,
                        int bounds[NUM_SEGMENTS + 1]) {
    const struct weight *w = job->in->w;
    if (!w) {
        bounds[0] = 0, bounds[1] = a->num_blocks;
        return 1;
    }
    for (int i = 0; i <= w->num_segments; i++)
        bounds[i] = min_int(w->segments[i] * w->part[0].block / a->block, a->num_blocks);
    return w->num_segments;
}

static void down_worker(void *ctx, int thread, int num_threads) {
    const struct lora_job *job = ctx;
    struct device *dev = job->dev;
    _Alignas(64) float tile[TILE];
    int bounds[NUM_SEGMENTS + 1];
    (void)num_threads;
    for (int begin, end; pool_take(dev->pool, thread, 1, &begin, &end);)
        for (int i = begin; i < end; i++) {
            const struct lora_group *g = &job->groups[i / job->num];
            int target = i % job->num;
            const struct weight_part *a = &group_matrix(job, g, target)->a;
            if (a->rows == 0)
                continue;
            bool bf16 = a->dtype == DTYPE_BF16;
            size_t ldx = bf16 ? job->bf16 : job->floats;
            int segments = cut_segments(job, a, bounds), most = dev->kernels->tile_tokens[a->dtype];
            for (int p = 0; p < a->num_panels; p += TILE_PANELS)
                for (int s = g->begin - job->slot; s < g->end - job->slot; s += most) {
                    int n = min_int(most, g->end - job->slot - s);
                    const char *x = (bf16 ? dev->lora.x.bf16 : dev->lora.x.floats) + (size_t)s * ldx;
                    run_tile(dev, a, p, x, ldx, n, bounds, segments, tile);
                    for (int k = 0; k < TILE_PANELS && p + k < a->num_panels; k++)
                        for (int t = 0; t < n; t++)
                            memcpy(low_of(dev, s + t, target) + (p + k) * LANES, tile + (k * n + t) * LANES,
                                   (size_t)min_int(LANES, a->rows - (p + k) * LANES) * sizeof(float));
                }
        }
}

// A x in BF16 for those B that are.
static void round_low(const struct lora_job *job) {
    struct device *dev = job->dev;
    for (int i = 0; i < job->num_groups * job->num; i++) {
        const struct lora_group *g = &job->groups[i / job->num];
        int target = i % job->num;
        const struct weight_part *b = &group_matrix(job, g, target)->b;
        for (int s = g->begin - job->slot; b->rows > 0 && b->dtype == DTYPE_BF16 && s < g->end - job->slot;
             s++) {
            uint16_t *y = low_bf16_of(dev, s, target);
            dev->kernels->to_bf16(y, low_of(dev, s, target), b->cols);
            y[b->cols] = 0;
        }
    }
}

// Panels [p0, p1) of B times a group's slots, added to the rows that these are.
static void add_panels(const struct lora_job *job, const struct lora_group *g, int target, int p0, int p1) {
    struct device *dev = job->dev;
    const struct lora_matrix *m = group_matrix(job, g, target);
    const struct weight_part *b = &m->b;
    bool bf16 = b->dtype == DTYPE_BF16;
    int most = dev->kernels->tile_tokens[b->dtype], bounds[] = {0, b->num_blocks};
    size_t ldx = 3 * low_stride(dev) * (bf16 ? sizeof(uint16_t) : sizeof(float)),
           ldy = (size_t)job->ldy[target];
    _Alignas(64) float tile[TILE];
    for (int p = p0; p < p1; p += TILE_PANELS)
        for (int s = g->begin; s < g->end; s += most) {
            int n = min_int(most, g->end - s), slot = s - job->slot;
            const void *x =
                bf16 ? (const void *)low_bf16_of(dev, slot, target) : (const void *)low_of(dev, slot, target);
            run_tile(dev, b, p, x, ldx, n, bounds, 1, tile);
            for (int k = 0; k < TILE_PANELS && p + k < b->num_panels; k++)
                for (int t = 0; t < n; t++) {
                    int column = (p + k) * LANES, width = min_int(LANES, b->rows - column);
                    float *y = job->y[target] + (size_t)dev->lora.rows[s + t] * ldy + column;
                    const float *u = tile + (k * n + t) * LANES;
                    for (int c = 0; c < width; c++)
                        y[c] += m->scale * u[c];
                }
        }
}

static void up_worker(void *ctx, int thread, int num_threads) {
    const struct lora_job *job = ctx;
    (void)num_threads;
    for (int begin, end; pool_take(job->dev->pool, thread, 1, &begin, &end);)
        for (int i = begin; i < end; i++) {
            const struct lora_group *g = &job->groups[i / job->num_runs];
            int run = i % job->num_runs, target = 0;
            while (run >= job->runs[target])
                run -= job->runs[target++];
            int panels = group_matrix(job, g, target)->b.num_panels, p = run * RUN_PAIRS * TILE_PANELS;
            add_panels(job, g, target, p, min_int(p + RUN_PAIRS * TILE_PANELS, panels));
        }
}

bool cpu_lora_has(const struct device *dev, const struct layer *layer, enum adapter_target first, int num) {
    for (int g = 0; g < dev->lora.num_groups; g++)
        for (int i = 0; i < num; i++)
            if (matrix_of(dev, layer, dev->lora.groups[g].adapter, (int)first + i)->a.rows > 0)
                return true;
    return false;
}

static void add_chunk(struct lora_job *job) {
    struct device *dev = job->dev;
    int slots = job->groups[job->num_groups - 1].end - job->slot;
    long long a_work = 0, b_work = 0;
    job->dtypes = 0;
    job->num_runs = 0;
    memset(job->runs, 0, sizeof job->runs);
    for (int i = 0; i < job->num_groups * job->num; i++) {
        const struct lora_group *g = &job->groups[i / job->num];
        const struct lora_matrix *m = group_matrix(job, g, i % job->num);
        int n = g->end - g->begin, pairs = (m->b.num_panels + TILE_PANELS - 1) / TILE_PANELS;
        if (m->a.rows == 0)
            continue;
        job->dtypes |= 1u << m->a.dtype;
        job->columns = m->a.cols;
        job->runs[i % job->num] = (pairs + RUN_PAIRS - 1) / RUN_PAIRS;
        a_work += (long long)n * m->a.rows * m->a.cols;
        b_work += (long long)n * m->b.rows * m->b.cols;
    }
    if (job->dtypes == 0)
        return;
    for (int i = 0; i < job->num; i++)
        job->num_runs += job->runs[i];
    job->floats = activation_stride((size_t)job->columns * sizeof(float));
    job->bf16 = activation_stride((size_t)(job->columns + 1) / 2 * 2 * sizeof(uint16_t));
    pool_run_items(dev->pool, gather_worker, job, slots, (long long)slots * job->columns > SMALL / 4);
    pool_run_items(dev->pool, down_worker, job, job->num_groups * job->num, a_work > SMALL);
    if (job->in->w && dev->world > 1) {
        uint64_t env = float_env_enter();
        device_comm_ok(
            dev, dev->comm->ops->all_reduce(dev->comm, dev->lora.low, (size_t)slots * 3 * low_stride(dev)));
        float_env_leave(env);
    }
    round_low(job);
    pool_run_items(dev->pool, up_worker, job, job->num_groups * job->num_runs, b_work > SMALL);
}

void cpu_lora_add(struct device *dev, const struct layer *layer, enum adapter_target first, int num,
                  const struct lora_input *in, float *const y[3], const int ldy[3]) {
    const struct lora_rows *l = &dev->lora;
    struct lora_job job = {
        .dev = dev, .layer = layer, .first = first, .num = num, .in = in, .y = y, .ldy = ldy};
    for (int g = 0; g < l->num_groups; g += job.num_groups) {
        job.groups = &l->groups[g];
        job.slot = l->groups[g].begin;
        job.num_groups = 1;
        while (g + job.num_groups < l->num_groups &&
               l->groups[g + job.num_groups].begin / CHUNK_SLOTS == job.slot / CHUNK_SLOTS)
            job.num_groups++;
        add_chunk(&job);
    }
}

// ---- gate and up

struct act_rows_job {
    struct device *dev;
    const struct layer *layer;
    int F;
};

// e^x - 1 - x of x in (-1/2, 0], where the subtraction would leave few bits
static float rest_of_exp(float x) {
    static const float c[] = {1.0f / 40320, 1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f};
    float sum = 0;
    for (int i = 0; i < 7; i++)
        sum = sum * x + c[i];
    return sum * x * x;
}

static void xielu_row(const struct device *dev, float *y, const float *x, int n, const struct xielu *p) {
    for (int i = 0; i < n; i++)
        y[i] = x[i] < p->eps ? x[i] : p->eps;
    dev->kernels->exp(y, y, n, 0);
    for (int i = 0; i < n; i++) {
        float v = x[i], low = v < p->eps ? v : p->eps;
        float rest = low > -0.5f ? rest_of_exp(low) + (low - v) : y[i] - 1 - v;
        y[i] = (v > 0 ? p->positive * v * v : p->negative * rest) + p->beta * v;
    }
}

static void act_worker(void *ctx, int thread, int num_threads) {
    const struct act_rows_job *job = ctx;
    struct device *dev = job->dev;
    const struct weight *w = job->layer->gate_up;
    bool gated = w->num_parts == 2;
    (void)num_threads;
    for (int begin, end; pool_take(dev->pool, thread, 1, &begin, &end);)
        for (int t = begin; t < end; t++) {
            size_t at = (size_t)t * (size_t)job->F;
            for (int part = 0; part < w->num_parts; part++)
                for (int i = 0; w->bias[part] && i < job->F; i++)
                    dev->gate_up[part][at + (size_t)i] += w->bias[part][i];
            if (job->layer->ffn.act == ACT_XIELU)
                xielu_row(dev, dev->h + at, dev->gate_up[0] + at, job->F, &job->layer->xielu);
            else
                dev->kernels->act[job->layer->ffn.act](dev->h + at, (size_t)job->F, dev->gate_up[0] + at,
                                                       gated ? dev->gate_up[1] + at : NULL, (size_t)job->F, 1,
                                                       job->F);
        }
}

void cpu_lora_act(struct device *dev, const struct layer *layer, const struct gemm_input *x,
                  const struct lora_input *in) {
    const struct weight *w = layer->gate_up;
    int F = w->part[0].rows, ldy[3] = {F, F, 0};
    float *y[3] = {dev->gate_up[0], dev->gate_up[1], NULL};
    struct act_rows_job job = {dev, layer, F};
    cpu_matmul(dev, y, ldy, x, w);
    cpu_lora_add(dev, layer, w->num_parts == 2 ? ADAPTER_GATE : ADAPTER_UP, w->num_parts, in, y, ldy);
    if (layer->ffn.sparse)
        cpu_sparse_gates(dev, layer, x->num_rows);
    pool_run_items(dev->pool, act_worker, &job, x->num_rows, (long long)x->num_rows * F > SMALL / 8);
}
