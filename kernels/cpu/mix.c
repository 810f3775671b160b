// Recurrent layers between their input and output matrices (rule 19): who computes what, and in which order. Sequences
// and channels, or heads, are independent of each other; tokens follow each other.
#include "kv.h"
#include "log.h"
#include "minmax.h"

#include <math.h>

enum {
    CONV_CHANNELS = 256,
    SMALL_MIX = 1 << 13
}; // of a work item; operations that are done sooner than a thread wakes

static int in_size(const struct mix_spec *m) { return m->kind == MIX_CONV ? 3 * m->heads : mix_channels(m); }
static int gate_size(const struct mix_spec *m) {
    return m->kind == MIX_CONV ? 0 : mix_values(m) + 2 * m->heads;
}

const char *cpu_mix_problem(const struct mix_spec *m) {
    if (m->heads < 1 || m->head_dim < 1 || m->taps < 2 || m->taps > MIX_MAX_TAPS)
        return "a dimension of a recurrent layer is not positive, or its convolution is too long";
    if (m->kind == MIX_CONV)
        return NULL;
    if (m->groups < 1 || m->heads % m->groups != 0 || m->key_dim < 1)
        return "the heads of a recurrent layer are no multiple of its groups";
    return m->head_dim % LANES != 0 ? "the head size of a recurrent layer is no multiple of 16" : NULL;
}

void cpu_mix_arena(struct device *dev, struct cpu_arena *a) {
    size_t T = (size_t)dev->limits.max_tokens;
    int in = 0, gate = 0, unit = 0;
    for (int i = 0; i < dev->model.num_mix; i++) {
        const struct mix_spec *m = &dev->model.mix[i];
        in = max_int(in, in_size(m));
        gate = max_int(gate, gate_size(m));
        unit = max_int(unit, m->key_dim);
    }
    dev->mix_in = arena_take(a, T * (size_t)in, sizeof(float));
    dev->mix_gate = arena_take(a, T * (size_t)gate, sizeof(float));
    dev->mixed = arena_take(a, T * (size_t)dev->max_mix, sizeof(float));
    for (int i = 0; i < 2; i++)
        dev->units[i] = arena_take(a, (size_t)unit, sizeof(float));
}

struct mix_job {
    struct device *dev;
    const struct layer *layer;
    const struct step *step;
    int pieces; // work items of a sequence
};

static float *state_of(const struct mix_job *job, int seq) {
    const struct step_group *pages = &job->step->groups[job->layer->state_group];
    int32_t page = pages->block_ids[pages->block_start[seq]];
    CHECK(page >= 0 && page < job->dev->limits.num_blocks);
    return kv_state(job->dev, job->layer->state_layer, page);
}

static void conv_item(const struct mix_job *job, int seq, int piece) {
    struct device *dev = job->dev;
    const struct mix_spec *m = &job->layer->mix;
    const struct weight *w = job->layer->mix_conv;
    int channels = mix_channels(m), first = piece * CONV_CHANNELS, row = job->step->query_start[seq];
    float *in = dev->mix_in + (size_t)row * (size_t)in_size(m) + first;
    struct mix_conv c = {
        .y = in,
        .x = in,
        .ldx = (size_t)in_size(m),
        .ldy = (size_t)in_size(m),
        .num_tokens = job->step->query_start[seq + 1] - row,
        .channels = min_int(CONV_CHANNELS, channels - first),
        .window = state_of(job, seq) + first,
        .begins = job->step->positions[row] == 0,
        .ldw = (size_t)channels,
        .taps = m->taps,
        .w = w->vector + first,
        .bias = w->bias[0] ? w->bias[0] + first : NULL,
    };
    if (m->kind == MIX_CONV) {
        c.in_gate = in;
        c.out_gate = in + channels;
        c.x = in + 2 * channels;
        c.y = dev->mixed + (size_t)row * (size_t)channels + first;
        c.ldy = (size_t)channels;
    }
    dev->kernels->mix_conv(&c);
}

static float softplus(float x) { return x > 20 ? x : (float)log1p(exp((double)x)); }

// Makes q and k of each group as long as they shall be, and of each head dt and decay from its values.
static void prepare_row(const struct mix_job *job, int t) {
    struct device *dev = job->dev;
    const struct mix_spec *m = &job->layer->mix;
    const struct weight *heads = job->layer->mix_heads;
    const float *a = (const float *)(void *)heads->part[0].data,
                *bias = (const float *)(void *)heads->part[1].data;
    float *x = dev->mix_in + (size_t)t * (size_t)in_size(m);
    float *dt = dev->mix_gate + (size_t)t * (size_t)gate_size(m) + mix_values(m), *decay = dt + m->heads;
    float eps = 1e-6f / (float)m->key_dim;
    for (int g = 0; g < 2 * m->groups && m->kind == MIX_DELTA; g++, x += m->key_dim)
        dev->kernels->rmsnorm(x, x, dev->units[g / m->groups], m->key_dim, eps);
    for (int h = 0; h < m->heads; h++) {
        float step = softplus((m->kind == MIX_DELTA ? decay[h] : dt[h]) + bias[h]);
        decay[h] = (float)exp((double)step * (double)a[h]);
        dt[h] = m->kind == MIX_DELTA ? (float)(1 / (1 + exp(-(double)dt[h]))) : step;
    }
}

static void recur_item(const struct mix_job *job, int seq, int piece) {
    struct device *dev = job->dev;
    const struct mix_spec *m = &job->layer->mix;
    int blocks = job->pieces / m->heads, h = piece / blocks, column = piece % blocks * MIX_COLUMNS;
    int group = m->tiled ? h % m->groups : h / (m->heads / m->groups), n = m->groups * m->key_dim;
    int row = job->step->query_start[seq], values = mix_values(m), P = m->head_dim;
    const float *x = dev->mix_in + (size_t)row * (size_t)in_size(m);
    const float *dt = dev->mix_gate + (size_t)row * (size_t)gate_size(m) + values + h;
    struct mix_recur r = {
        .state = state_of(job, seq) + (size_t)(m->taps - 1) * (size_t)mix_channels(m) +
                 (size_t)h * (size_t)(m->key_dim * P) + column,
        .ld_state = (size_t)P,
        .key_dim = m->key_dim,
        .columns = min_int(MIX_COLUMNS, P - column),
        .q = x + group * m->key_dim,
        .k = x + n + group * m->key_dim,
        .v = x + 2 * n + h * P + column,
        .dt = dt,
        .decay = dt + m->heads,
        .y = dev->mixed + (size_t)row * (size_t)values + h * P + column,
        .ldx = (size_t)in_size(m),
        .ld_gate = (size_t)gate_size(m),
        .ldy = (size_t)values,
        .num_tokens = job->step->query_start[seq + 1] - row,
        .delta = m->kind == MIX_DELTA,
    };
    if (m->kind == MIX_SSM)
        r.d = ((const float *)(void *)job->layer->mix_heads->part[2].data)[h];
    for (int i = 0; i < m->key_dim && job->step->positions[row] == 0; i++)
        memset(r.state + (size_t)i * r.ld_state, 0, (size_t)r.columns * sizeof(float));
    dev->kernels->mix_recur(&r);
}

// The output gate and the norm, before it with MIX_DELTA, after it with MIX_SSM.
static void finish_row(const struct mix_job *job, int t) {
    struct device *dev = job->dev;
    const struct cpu_kernels *k = dev->kernels;
    const struct mix_spec *m = &job->layer->mix;
    float *y = dev->mixed + (size_t)t * (size_t)mix_values(m), eps = dev->model.norm_eps;
    const float *z = dev->mix_gate + (size_t)t * (size_t)gate_size(m);
    int v = mix_values(m), P = m->head_dim;
    if (m->kind == MIX_DELTA)
        for (int h = 0; h < m->heads; h++)
            k->rmsnorm(y + h * P, y + h * P, job->layer->mix_norm->vector, P, eps);
    k->act[ACT_SILU](y, (size_t)v, z, y, (size_t)v, 1, v);
    for (int g = 0, n = v / m->groups; g < m->groups && m->norm; g++)
        k->rmsnorm(y + g * n, y + g * n, job->layer->mix_norm->vector + g * n, n, eps);
}

static void conv_worker(void *ctx, int thread, int num_threads) {
    const struct mix_job *job = ctx;
    (void)num_threads;
    for (int begin, end; pool_take(job->dev->pool, thread, 1, &begin, &end);)
        for (int i = begin; i < end; i++)
            conv_item(job, i / job->pieces, i % job->pieces);
}

static void recur_worker(void *ctx, int thread, int num_threads) {
    const struct mix_job *job = ctx;
    (void)num_threads;
    for (int begin, end; pool_take(job->dev->pool, thread, 1, &begin, &end);)
        for (int i = begin; i < end; i++)
            recur_item(job, i / job->pieces, i % job->pieces);
}

static void prepare_worker(void *ctx, int thread, int num_threads) {
    const struct mix_job *job = ctx;
    (void)num_threads;
    for (int begin, end; pool_take(job->dev->pool, thread, 1, &begin, &end);)
        for (int t = begin; t < end; t++)
            prepare_row(job, t);
}

static void finish_worker(void *ctx, int thread, int num_threads) {
    const struct mix_job *job = ctx;
    (void)num_threads;
    for (int begin, end; pool_take(job->dev->pool, thread, 1, &begin, &end);)
        for (int t = begin; t < end; t++)
            finish_row(job, t);
}

// y = the outputs of the weight's parts, beside each other in rows of `size`.
static void project(struct device *dev, float *y, int size, const struct layer *layer, const struct weight *w,
                    int num_tokens) {
    struct gemm_input x = cpu_gemm_input(dev, dev->resid, num_tokens, NULL, w, layer->attn_norm);
    float *parts[3] = {y};
    for (int i = 1; i < w->num_parts; i++)
        parts[i] = parts[i - 1] + w->part[i - 1].rows;
    cpu_matmul(dev, parts, (int[3]){size, size, size}, &x, w);
}

void cpu_mix(struct device *dev, const struct layer *layer, const struct step *step) {
    const struct mix_spec *m = &layer->mix;
    struct mix_job job = {dev, layer, step, (mix_channels(m) + CONV_CHANNELS - 1) / CONV_CHANNELS};
    int T = step->num_tokens;
    long long values = (long long)T * mix_values(m);
    project(dev, dev->mix_in, in_size(m), layer, layer->mix_in, T);
    pool_run_items(dev->pool, conv_worker, &job, step->num_seqs * job.pieces, values > SMALL_MIX);
    if (m->kind == MIX_CONV)
        return;
    project(dev, dev->mix_gate, gate_size(m), layer, layer->mix_gate, T);
    for (int i = 0; i < m->key_dim; i++) {
        dev->units[0][i] = 1 / (float)m->key_dim;
        dev->units[1][i] = 1 / sqrtf((float)m->key_dim);
    }
    pool_run_items(dev->pool, prepare_worker, &job, T, values > SMALL_MIX);
    job.pieces = m->heads * ((m->head_dim + MIX_COLUMNS - 1) / MIX_COLUMNS);
    pool_run_items(dev->pool, recur_worker, &job, step->num_seqs * job.pieces,
                   values * m->key_dim > SMALL_MIX);
    pool_run_items(dev->pool, finish_worker, &job, T, values > SMALL_MIX);
}
