// Layers with experts: routing of rows, GEMMs of the experts, and the weighted sum (rule 20).
//
// Rows are taken in chunks. In a chunk the rows of an expert lie together, so that its weights are read once for all of
// them; each place there is a slot.
#include "device.h"

#include "minmax.h"

#include <math.h>
#include <string.h>

enum { CHUNK_ROWS = 512, COLUMNS = 64 };

static size_t size_of_row(const struct layer *layer, int t) { return (size_t)t * (size_t)layer->ffn.top_k; }

// The first expert that this rank has.
static int first_expert(const struct device *dev, const struct ffn_spec *f) {
    return backend_expert_bound(f->experts, NUM_SEGMENTS / dev->world * dev->rank);
}

static int shared_size(const struct layer *layer) {
    return layer->gate_up ? layer->gate_up->part[0].rows : 0;
}

// The outputs of gate and up of the slots of rows from t on: behind those of the shared expert, (T, S).
static float *slots_of(struct device *dev, const struct layer *layer, int num_tokens, int t) {
    return dev->h + (size_t)num_tokens * (size_t)shared_size(layer) +
           size_of_row(layer, t) * (size_t)layer->ffn.hidden;
}

void cpu_experts_arena(struct device *dev, struct cpu_arena *a) {
    struct routing *r = &dev->routing;
    size_t T = (size_t)dev->limits.max_tokens, E = (size_t)dev->max_experts, k = (size_t)dev->max_top_k;
    size_t chunks = (T + CHUNK_ROWS - 1) / CHUNK_ROWS, slots = (T < CHUNK_ROWS ? T : CHUNK_ROWS) * k;
    size_t D = (size_t)dev->model.hidden, wide = (D > (size_t)dev->max_slot ? D : (size_t)dev->max_slot) + 1;
    unsigned dtypes = dev->expert_dtypes;
    if (E == 0)
        return;
    r->logits = arena_take(a, T * E, sizeof *r->logits);
    r->gates = arena_take(a, T, sizeof *r->gates);
    r->experts = arena_take(a, T * k, sizeof *r->experts);
    r->weights = arena_take(a, T * k, sizeof *r->weights);
    r->slot = arena_take(a, T * k, sizeof *r->slot);
    r->rows = arena_take(a, T * k, sizeof *r->rows);
    r->scales = arena_take(a, dev->any_weighed ? T * k : 0, sizeof *r->scales);
    r->groups = arena_take(a, chunks * E, sizeof *r->groups);
    r->num_groups = arena_take(a, chunks, sizeof *r->num_groups);
    r->out = arena_take(a, slots * D, sizeof *r->out);
    dev->latent = arena_take(a, T * (size_t)dev->max_latent, sizeof(float));
    if (dtypes & (1u << DTYPE_F32 | 1u << DTYPE_F16) || dev->any_weighed)
        dev->slots.floats = arena_take(a, slots, activation_stride(wide * sizeof(float)));
    if (dtypes & 1u << DTYPE_BF16)
        dev->slots.bf16 = arena_take(a, slots, activation_stride((wide + 1) * sizeof(uint16_t)));
    if (dtypes & DTYPES_QUANTISED)
        dev->slots.q8 = arena_take(a, slots, activation_stride((wide / 32 + 1) * sizeof(struct act_q8)));
    if (dtypes & DTYPES_QUANTISED && dev->kernels->to_pairs)
        dev->slots.pairs = arena_take(a, slots, activation_stride((wide + 1) * sizeof(uint16_t)));
}

// ---- routing

// The n largest of the scores, ties to the lower id, best first. `may`: whose scores count, or NULL for all.
static int choose(int32_t *best, int n, const float *score, int num, const bool *may) {
    int found = 0;
    for (int e = 0; e < num; e++) {
        if ((may && !may[e]) || (found == n && !(score[e] > score[best[n - 1]])))
            continue;
        int at = found < n ? found++ : n - 1;
        for (; at > 0 && score[e] > score[best[at - 1]]; at--)
            best[at] = best[at - 1];
        best[at] = e;
    }
    return found;
}

// Whether each expert lies in one of the best groups (rule 20).
static void mark_groups(bool *may, const float *score, const struct ffn_spec *f) {
    float sum[MAX_EXPERTS];
    int32_t best[MAX_EXPERTS];
    int size = f->experts / f->groups;
    for (int g = 0; g < f->groups; g++) {
        choose(best, 2, score + g * size, size, NULL);
        sum[g] = score[g * size + best[0]];
        if (f->gating != GATING_SOFTMAX)
            sum[g] += score[g * size + best[1]];
    }
    memset(may, 0, (size_t)f->experts * sizeof *may);
    choose(best, f->top_groups, sum, f->groups, NULL);
    for (int i = 0; i < f->top_groups; i++)
        memset(may + best[i] * size, 1, (size_t)size * sizeof *may);
}

static void sort_ids(int32_t *ids, int n) {
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && ids[k] < ids[k - 1]; k--) {
            int32_t id = ids[k];
            ids[k] = ids[k - 1];
            ids[k - 1] = id;
        }
}

// y = x divided by its sum, ascending
static void divide(float *y, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += y[i];
    for (int i = 0; i < n; i++)
        y[i] /= sum + 1e-20f;
}

static float largest(const float *x, int n) {
    float max = x[0];
    for (int i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

// The best of all scores, which logits become, and their weights.
static void choose_at_once(const struct device *dev, const struct layer *layer, float *logits,
                           int32_t *experts, float *weights) {
    const struct ffn_spec *f = &layer->ffn;
    int E = f->experts, k = f->top_k;
    float key[MAX_EXPERTS];
    bool may[MAX_EXPERTS];
    if (f->gating == GATING_SOFTMAX) {
        float sum = 0;
        dev->kernels->exp(logits, logits, E, largest(logits, E));
        for (int e = 0; e < E; e++)
            sum += logits[e];
        for (int e = 0; e < E; e++)
            logits[e] /= sum;
    } else if (f->gating == GATING_SIGMOID) {
        for (int e = 0; e < E; e++)
            logits[e] = 0 - logits[e];
        dev->kernels->exp(logits, logits, E, 0);
        for (int e = 0; e < E; e++)
            logits[e] = 1 / (1 + logits[e]);
    }
    for (int e = 0; e < E; e++)
        key[e] = layer->select_bias ? logits[e] + layer->select_bias->vector[e] : logits[e];
    if (f->groups > 1)
        mark_groups(may, key, f);
    choose(experts, k, key, E, f->groups > 1 ? may : NULL);
    sort_ids(experts, k);
    for (int i = 0; i < k; i++)
        weights[i] = logits[experts[i]];
    if (f->gating == GATING_SOFTMAX_CHOSEN)
        dev->kernels->exp(weights, weights, k, largest(weights, k));
    if (f->renormalise || f->gating == GATING_SOFTMAX_CHOSEN)
        divide(weights, k);
}

// The largest of the logits that are left, so often, each weighed among those left that are near it.
static void choose_in_turn(const struct device *dev, const struct ffn_spec *f, const float *logits,
                           int32_t *experts, float *weights) {
    float weight[MAX_EXPERTS], near[MAX_EXPERTS];
    bool left[MAX_EXPERTS];
    memset(left, 1, (size_t)f->experts * sizeof *left);
    for (int k = 0; k < f->top_k; k++) {
        int n = 0;
        float sum = 0;
        choose(&experts[k], 1, logits, f->experts, left);
        const float best = logits[experts[k]];
        for (int e = 0; e < f->experts; e++)
            if (left[e] && !((best - logits[e]) / fmaxf(fabsf(logits[e]), best) > f->near))
                near[n++] = logits[e];
        dev->kernels->exp(near, near, n, best);
        for (int i = 0; i < n; i++)
            sum += near[i];
        weight[experts[k]] = 1 / sum;
        left[experts[k]] = false;
    }
    sort_ids(experts, f->top_k);
    for (int k = 0; k < f->top_k; k++)
        weights[k] = weight[experts[k]];
}

// Experts and weights of one row; logits may become scores.
static void route_row(const struct device *dev, const struct layer *layer, float *logits, int32_t *experts,
                      float *weights) {
    const struct ffn_spec *f = &layer->ffn;
    for (int e = 0; e < f->experts; e++)
        logits[e] *= model_scale(f->router_scale);
    for (int e = 0; f->router_bias && e < f->experts; e++)
        logits[e] += layer->router->bias[0][e];
    if (f->gating == GATING_IN_TURN)
        choose_in_turn(dev, f, logits, experts, weights);
    else
        choose_at_once(dev, layer, logits, experts, weights);
    for (int i = 0; i < f->top_k; i++)
        weights[i] *= model_scale(f->scale);
    for (int i = 0; i < f->top_k && f->expert_scale; i++)
        weights[i] *= layer->expert_scale->vector[experts[i]];
}

struct expert_route {
    struct device *dev;
    const struct layer *layer;
};

static void route_worker(void *ctx, int thread, int num_threads) {
    const struct expert_route *job = ctx;
    const struct layer *layer = job->layer;
    struct device *dev = job->dev;
    struct routing *r = &dev->routing;
    int S = shared_size(layer);
    (void)num_threads;
    for (int begin, end; pool_take(dev->pool, thread, 1, &begin, &end);)
        for (int t = begin; t < end; t++) {
            route_row(dev, layer, r->logits + (size_t)t * (size_t)layer->ffn.experts,
                      r->experts + size_of_row(layer, t), r->weights + size_of_row(layer, t));
            float *h = dev->h + (size_t)t * (size_t)S, scale = model_scale(layer->ffn.shared_scale);
            if (layer->shared_gate) {
                float gate = 0 - r->gates[t];
                dev->kernels->exp(&gate, &gate, 1, 0);
                scale *= 1 / (1 + gate);
            }
            for (int i = 0; scale != 1 && i < S; i++)
                h[i] *= scale;
        }
}

// Slots of rows [t0, t1), and in the step's result what they cost all ranks. Returns how many.
static int make_groups(struct device *dev, const struct layer *layer, int t0, int t1) {
    const struct ffn_spec *f = &layer->ffn;
    struct routing *r = &dev->routing;
    int first = first_expert(dev, f), own = layer->expert_down->num_experts, next[MAX_EXPERTS] = {0};
    int chunk = t0 / CHUNK_ROWS, *num_groups = &r->num_groups[chunk], slots = 0, busiest = 0;
    struct expert_counts *counts = &dev->result[dev->num_begun & 1].experts;
    struct expert_rows *groups = r->groups + (size_t)chunk * (size_t)dev->max_experts;
    size_t begin = size_of_row(layer, t0), end = size_of_row(layer, t1);
    for (size_t i = begin; i < end; i++)
        next[r->experts[i]]++;
    *num_groups = 0;
    for (int e = 0; e < f->experts; e++) {
        int n = next[e];
        counts->reads += n > 0;
        busiest = n > busiest ? n : busiest;
        if (n == 0 || e < first || e >= first + own)
            continue;
        groups[(*num_groups)++] = (struct expert_rows){e - first, slots, slots + n};
        next[e] = slots;
        slots += n;
    }
    counts->rows += end - begin;
    counts->busiest += (uint64_t)busiest;
    for (size_t i = begin; i < end; i++) {
        int e = r->experts[i];
        r->slot[i] = e >= first && e < first + own ? next[e]++ : -1;
        if (r->slot[i] >= 0)
            r->rows[begin + (size_t)r->slot[i]] = (int32_t)(i / (size_t)f->top_k);
        if (r->slot[i] >= 0 && f->weigh_input) {
            r->scales[begin + (size_t)r->slot[i]] = r->weights[i];
            r->weights[i] = 1;
        }
    }
    return slots;
}

void cpu_experts_in(struct device *dev, const struct layer *layer, int num_tokens) {
    const struct ffn_spec *f = &layer->ffn;
    struct routing *r = &dev->routing;
    struct gemm_input x;
    if (layer->gate_up) {
        x = cpu_gemm_input(dev, device_ffn_input(dev), num_tokens, NULL, layer->gate_up, layer->ffn_norm);
        cpu_matmul_act(dev, dev->h, shared_size(layer), &x, layer->gate_up, f->act);
    }
    const struct weight *norm = f->own_norms ? layer->router_norm : layer->ffn_norm;
    if (f->early_router) {
        x = cpu_gemm_input(dev, dev->before, num_tokens, NULL, layer->router, NULL);
        cpu_matmul(dev, (float *[3]){r->logits}, (int[3]){f->experts}, &x, layer->router);
    }
    x = cpu_gemm_input(dev, device_ffn_input(dev), num_tokens, NULL, layer->router, norm);
    if (!f->early_router)
        cpu_matmul(dev, (float *[3]){r->logits}, (int[3]){f->experts}, &x, layer->router);
    if (layer->shared_gate)
        cpu_matmul(dev, (float *[3]){r->gates}, (int[3]){1}, &x, layer->shared_gate);
    struct expert_route job = {dev, layer};
    pool_run_items(dev->pool, route_worker, &job, num_tokens, (long long)num_tokens * f->experts > 1 << 10);
    if (f->own_norms) // F32 as the router's
        x = cpu_gemm_input(dev, device_ffn_input(dev), num_tokens, NULL, layer->router, layer->expert_norm);
    const float *floats = x.data[DTYPE_F32];
    size_t ldx = x.stride[DTYPE_F32] / sizeof *floats;
    if (f->latent) {
        x = cpu_gemm_input(dev, device_ffn_input(dev), num_tokens, NULL, layer->expert_in, layer->ffn_norm);
        cpu_matmul(dev, (float *[3]){dev->latent}, (int[3]){f->latent}, &x, layer->expert_in);
        floats = dev->latent, ldx = (size_t)f->latent;
    }
    for (int t = 0; t < num_tokens; t += CHUNK_ROWS) {
        int slots = make_groups(dev, layer, t, min_int(t + CHUNK_ROWS, num_tokens));
        const float *scales = f->weigh_input ? r->scales + size_of_row(layer, t) : NULL;
        x = cpu_gemm_slots(dev, floats, ldx, slots, r->rows + size_of_row(layer, t), scales,
                           layer->expert_gate_up);
        cpu_matmul_experts_gated(
            dev, slots_of(dev, layer, num_tokens, t), f->hidden, &x, layer->expert_gate_up, f->act,
            r->groups + (size_t)(t / CHUNK_ROWS) * (size_t)dev->max_experts, r->num_groups[t / CHUNK_ROWS]);
    }
}

// ---- the sum

struct combine {
    struct device *dev;
    const struct layer *layer;
    int first; // row
};

// The experts of a row in their order, each segment by itself: columns [c0, c1) of the row.
static void sum_segments(const struct combine *job, int t, int c0, int c1, float (*sum)[COLUMNS]) {
    const struct device *dev = job->dev;
    const struct routing *r = &dev->routing;
    const struct weight *down = job->layer->expert_down;
    int E = job->layer->ffn.experts, D = ffn_expert_dim(&job->layer->ffn, dev->model.hidden), n = c1 - c0;
    int each = NUM_SEGMENTS / dev->world, segment = 0, first = first_expert(dev, &job->layer->ffn);
    memset(sum, 0, (size_t)each * sizeof *sum);
    for (int k = 0; k < job->layer->ffn.top_k; k++) {
        size_t i = size_of_row(job->layer, t) + (size_t)k;
        if (r->slot[i] < 0)
            continue;
        while (r->experts[i] >= backend_expert_bound(E, each * dev->rank + segment + 1))
            segment++;
        const float *x = r->out + (size_t)r->slot[i] * (size_t)D + c0;
        const float *bias =
            down->bias[0] ? down->bias[0] + (size_t)(r->experts[i] - first) * (size_t)D + c0 : NULL;
        float w = r->weights[i], *y = sum[segment];
        for (int c = 0; c < n; c++)
            y[c] += w * (bias ? x[c] + bias[c] : x[c]);
    }
}

static void combine_worker(void *ctx, int thread, int num_threads) {
    const struct combine *job = ctx;
    struct device *dev = job->dev;
    int D = ffn_expert_dim(&job->layer->ffn, dev->model.hidden);
    float *sums = job->layer->ffn.latent ? dev->latent : dev->partial;
    (void)num_threads;
    for (int begin, end; pool_take(dev->pool, thread, 1, &begin, &end);)
        for (int t = job->first + begin; t < job->first + end; t++)
            for (int c0 = 0; c0 < D; c0 += COLUMNS) {
                float sum[NUM_SEGMENTS][COLUMNS];
                int c1 = min_int(c0 + COLUMNS, D);
                sum_segments(job, t, c0, c1, sum);
                for (int n = NUM_SEGMENTS / dev->world; n > 1; n /= 2) // the tree of rule 3
                    for (int i = 0; i < n / 2; i++)
                        for (int c = 0; c < c1 - c0; c++)
                            sum[i][c] = sum[2 * i][c] + sum[2 * i + 1][c];
                memcpy(sums + (size_t)t * (size_t)D + c0, sum[0], (size_t)(c1 - c0) * sizeof(float));
            }
}

void cpu_experts_out(struct device *dev, const struct layer *layer, int num_tokens) {
    struct routing *r = &dev->routing;
    int D = dev->model.hidden, F = layer->ffn.hidden, dim = ffn_expert_dim(&layer->ffn, D);
    struct gemm_input x;
    if (layer->down) {
        x = cpu_gemm_input(dev, dev->h, num_tokens, NULL, layer->down, NULL);
        cpu_matmul_part(dev, dev->partial + (size_t)num_tokens * (size_t)D, D, &x, layer->down);
    }
    for (int t = 0; t < num_tokens; t += CHUNK_ROWS) {
        const struct expert_rows *groups = r->groups + (size_t)(t / CHUNK_ROWS) * (size_t)dev->max_experts;
        int rows = min_int(CHUNK_ROWS, num_tokens - t), n = r->num_groups[t / CHUNK_ROWS];
        int slots = n > 0 ? groups[n - 1].end : 0;
        x = cpu_gemm_slots(dev, slots_of(dev, layer, num_tokens, t), (size_t)F, slots, NULL, NULL,
                           layer->expert_down);
        cpu_matmul_experts(dev, r->out, dim, &x, layer->expert_down, groups, n);
        struct combine job = {dev, layer, t};
        pool_run_items(dev->pool, combine_worker, &job, rows, (long long)rows * dim > 1 << 13);
    }
}

void cpu_experts_back(struct device *dev, const struct layer *layer, int num_tokens) {
    struct gemm_input x = cpu_gemm_input(dev, dev->latent, num_tokens, NULL, layer->expert_out, NULL);
    cpu_matmul(dev, (float *[3]){dev->partial}, (int[3]){dev->model.hidden}, &x, layer->expert_out);
}
