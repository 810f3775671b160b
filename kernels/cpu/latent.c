// Latent attention (rule 21): what comes before and after attention over the cache, which sees one kv head. Matrices of
// heads multiply rows of their own head each.
#include "device.h"
#include "kv.h"
#include "log.h"
#include "minmax.h"
#include "rope.h"

#include <string.h>

enum { BLOCK_ROWS = 64 }; // that a work item multiplies by the matrix of a head

static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

struct by_head {
    struct device *dev;
    const struct weight *w;
    const float *x; // of head h of row t: x + t * ldx + h * head_x
    size_t ldx, head_x;
    float *y;
    size_t ldy, head_y;
    int num_rows, blocks; // of rows
};

static size_t row_bytes(enum dtype dtype, int cols) {
    return activation_stride(DTYPES_QUANTISED & 1u << dtype ? (size_t)(cols / 32) * sizeof(struct act_q8)
                             : dtype == DTYPE_BF16          ? (size_t)(cols + 1) / 2 * 2 * sizeof(uint16_t)
                                                            : (size_t)cols * sizeof(float));
}

size_t cpu_latent_scratch(const struct device *dev) {
    size_t bytes = 0;
    for (int i = 0; i < dev->model.num_attn; i++) {
        const struct attn_spec *a = &dev->model.attn[i];
        int cols = a->kv_lora > a->nope_dim ? a->kv_lora : a->nope_dim;
        for (int t = 0; t < DTYPE_COUNT && a->kind == ATTN_LATENT; t++)
            bytes = max_size(bytes, BLOCK_ROWS * row_bytes((enum dtype)t, cols));
    }
    return bytes;
}

static void prepare_row(const struct by_head *job, char *to, const float *x) {
    const struct weight_part *p = &job->w->part[0];
    const struct cpu_kernels *k = job->dev->kernels;
    if (DTYPES_QUANTISED & 1u << p->dtype) {
        k->to_q8((struct act_q8 *)(void *)to, x, p->cols);
    } else if (p->dtype == DTYPE_BF16) {
        k->to_bf16((uint16_t *)(void *)to, x, p->cols);
        if (p->cols % 2)
            ((uint16_t *)(void *)to)[p->cols] = 0;
    } else {
        memcpy(to, x, (size_t)p->cols * sizeof *x);
    }
}

// Rows [t0, t1) by the matrix of a head. scratch: the rows as its type needs them.
static void multiply_head(const struct by_head *job, char *scratch, int head, int t0, int t1) {
    const struct weight_part *p = &job->w->part[0];
    const struct cpu_kernels *k = job->dev->kernels;
    const int bounds[] = {0, p->num_blocks};
    size_t ldx = row_bytes(p->dtype, p->cols);
    const char *panels = p->data + (size_t)(head * p->num_panels) * p->panel_bytes;
    int most = k->tile_tokens[p->dtype];
    struct prefetch_plan plan = prefetch_plan(p->panel_bytes, p->num_blocks, (t1 - t0 + most - 1) / most);
    for (int t = t0; t < t1; t++)
        prepare_row(job, scratch + (size_t)(t - t0) * ldx,
                    job->x + (size_t)t * job->ldx + (size_t)head * job->head_x);
    for (int g = 0; g < p->num_panels; g += TILE_PANELS)
        for (int t = t0; t < t1; t += most) {
            const char *first = panels + (size_t)g * p->panel_bytes;
            int n = min_int(most, t1 - t), width = min_int(TILE_PANELS * LANES, p->rows - g * LANES);
            float tile[MAX_TILE_TOKENS * TILE_PANELS * LANES];
            k->gemm[p->dtype](
                &(struct gemm_tile){.w = {first, g + 1 < p->num_panels ? first + p->panel_bytes : first},
                                    .x = scratch + (size_t)(t - t0) * ldx,
                                    .ldx = ldx,
                                    .num_tokens = n,
                                    .bounds = bounds,
                                    .num_segments = 1,
                                    .y = tile,
                                    .ldy = TILE_PANELS * LANES,
                                    .next_panel = LANES,
                                    .prefetch = prefetch_of_tile(&plan, first, n, (t - t0) / most)});
            for (int i = 0; i < n; i++)
                memcpy(job->y + (size_t)(t + i) * job->ldy + (size_t)head * job->head_y + g * LANES,
                       tile + i * TILE_PANELS * LANES, (size_t)width * sizeof *tile);
        }
}

static void by_head_worker(void *ctx, int thread, int num_threads) {
    const struct by_head *job = ctx;
    char *scratch = job->dev->by_head + (size_t)thread * cpu_latent_scratch(job->dev);
    (void)num_threads;
    for (int begin, end; pool_take(job->dev->pool, thread, 1, &begin, &end);)
        for (int i = begin; i < end; i++) {
            int t = i % job->blocks * BLOCK_ROWS;
            multiply_head(job, scratch, i / job->blocks, t, min_int(t + BLOCK_ROWS, job->num_rows));
        }
}

static void multiply_heads(struct by_head *job) {
    const struct weight_part *p = &job->w->part[0];
    job->blocks = (job->num_rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    long long work = (long long)p->rows * p->cols * job->w->num_experts * job->num_rows;
    pool_run_items(job->dev->pool, by_head_worker, job, job->w->num_experts * job->blocks, work > 1 << 16);
}

struct latent_finish {
    struct device *dev;
    const struct layer *layer;
    const struct step *step;
};

// Norm and rotation of the latent, which goes into the cache, and rotation of the queries.
static void finish_row(const struct latent_finish *job, int t) {
    struct device *dev = job->dev;
    const struct attn_spec *a = &job->layer->attn;
    int position = job->step->positions[t], C = a->kv_lora, n = a->nope_dim, r = a->rope_dim;
    int64_t slot = job->step->groups[job->layer->kv_group].slots[t];
    const struct rope_table *rope = a->rope < 0 ? NULL : &dev->ropes[a->rope];
    struct rope_turn turn;
    float *vector = dev->key + (size_t)t * (size_t)a->head_dim,
          *q = dev->q + (size_t)t * (size_t)attn_q_size(a);
    const float *heads = dev->h + (size_t)t * (size_t)(a->heads * (n + r));
    float temperature = attn_temperature(a, position);
    CHECK(position >= 0 && position < dev->limits.max_context && (!rope || position < rope->filled));
    dev->kernels->rmsnorm(vector, vector, job->layer->latent_norm->vector, C, dev->model.norm_eps);
    if (rope) {
        rope_turn_set(&turn, rope, job->step, t);
        rotate_head(vector + C, &turn);
    }
    for (int h = 0; h < a->heads; h++, q += a->head_dim) {
        memcpy(q + C, heads + h * (n + r) + n, (size_t)r * sizeof *q);
        if (rope)
            rotate_head(q + C, &turn);
        for (int i = 0; temperature != 1 && i < a->head_dim; i++)
            q[i] *= temperature;
    }
    if (slot >= 0)
        cpu_kv_write(dev, job->layer, slot, vector, NULL);
}

static void finish_worker(void *ctx, int thread, int num_threads) {
    const struct latent_finish *job = ctx;
    (void)num_threads;
    for (int begin, end; pool_take(job->dev->pool, thread, 1, &begin, &end);)
        for (int t = begin; t < end; t++)
            finish_row(job, t);
}

// y (T, rows of w) = x, normalised, times w
static void multiply(struct device *dev, float *y, const float *x, int num_tokens, const struct weight *w,
                     const struct weight *norm) {
    struct gemm_input input = cpu_gemm_input(dev, x, num_tokens, NULL, w, norm);
    cpu_matmul(dev, (float *[3]){y}, (int[3]){w->part[0].rows}, &input, w);
}

void cpu_latent_in(struct device *dev, const struct layer *layer, const struct step *step) {
    const struct attn_spec *a = &layer->attn;
    int T = step->num_tokens, head = a->nope_dim + a->rope_dim;
    multiply(dev, dev->key, dev->resid, T, layer->latent, layer->attn_norm);
    if (a->q_lora > 0) {
        multiply(dev, dev->q_latent, dev->resid, T, layer->latent_qdown, layer->attn_norm);
        multiply(dev, dev->h, dev->q_latent, T, layer->latent_q, layer->latent_qnorm);
    } else {
        multiply(dev, dev->h, dev->resid, T, layer->latent_q, layer->attn_norm);
    }
    multiply_heads(&(struct by_head){.dev = dev,
                                     .w = layer->latent_key,
                                     .x = dev->h,
                                     .ldx = (size_t)(a->heads * head),
                                     .head_x = (size_t)head,
                                     .y = dev->q,
                                     .ldy = (size_t)attn_q_size(a),
                                     .head_y = (size_t)a->head_dim,
                                     .num_rows = T});
    struct latent_finish job = {dev, layer, step};
    pool_run_items(dev->pool, finish_worker, &job, T, (long long)T * attn_q_size(a) > 1 << 12);
}

void cpu_latent_out(struct device *dev, const struct layer *layer, int num_tokens) {
    const struct attn_spec *a = &layer->attn;
    multiply_heads(&(struct by_head){.dev = dev,
                                     .w = layer->latent_value,
                                     .x = dev->q,
                                     .ldx = (size_t)attn_q_size(a),
                                     .head_x = (size_t)a->head_dim,
                                     .y = dev->h,
                                     .ldy = (size_t)attn_out_size(a),
                                     .head_y = (size_t)a->v_dim,
                                     .num_rows = num_tokens});
}
