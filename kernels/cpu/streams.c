// Streams beside the residual one, and sparse gates: rule 23 of kernels/README.md.
//
// dev->resid is the first stream, on which layers work. dev->altup has what a layer has predicted of it, which its
// correction needs, and the others.
#include "device.h"
#include "float_env.h"

#include <math.h>
#include <string.h>

enum { N = ALTUP_STREAMS };

static float *stream_at(const struct device *dev, int stream, int row) {
    size_t D = (size_t)dev->model.hidden, T = (size_t)dev->limits.max_tokens;
    return dev->altup + ((size_t)stream * T + (size_t)row) * D;
}

static float *merged_at(const struct device *dev, int stream, int row) {
    size_t D = (size_t)dev->model.hidden;
    return dev->merged + ((size_t)stream * (size_t)dev->head_rows + (size_t)row) * D;
}

void cpu_altup_arena(struct device *dev, struct cpu_arena *a) {
    const struct model_config *m = &dev->model;
    size_t T = (size_t)dev->limits.max_tokens, D = (size_t)m->hidden, F = (size_t)dev->max_ffn;
    bool sparse = false, apart = false;
    for (int i = 0; i < m->num_ffn; i++)
        sparse |= m->ffn[i].sparse, apart |= m->ffn[i].act == ACT_XIELU;
    for (int i = 0; i < 2 && (sparse || apart || dev->limits.max_adapters > 0); i++)
        dev->gate_up[i] = arena_take(a, T * F, sizeof(float));
    dev->gate_sums = arena_take(a, sparse ? T : 0, sizeof(float));
    dev->gate_mean = arena_take(a, sparse ? T : 0, sizeof(float));
    if (m->altup_streams == 0)
        return;
    dev->altup = arena_take(a, N * T * D, sizeof(float));
    dev->laurel = arena_take(a, T * D, sizeof(float));
    dev->low = arena_take(a, T * (size_t)m->laurel_rank, sizeof(float));
    dev->stream_coefs = arena_take(a, T * N, sizeof(float));
    dev->merged = arena_take(a, dev->has_head ? N * (size_t)dev->head_rows * D : 0, sizeof(float));
}

struct altup_job {
    struct device *dev;
    const struct layer *layer;
    const struct logits_row *rows; // of merging
    int num_rows;
};

static void run(struct device *dev, pool_fn *worker, struct altup_job *job) {
    pool_run(dev->pool, worker, job, (long long)job->num_rows * dev->model.hidden > 1 << 12);
}

// x (D) of the magnitude that `like` (D) has.
static void match(const struct device *dev, float *x, const float *like) {
    const int D = dev->model.hidden;
    float has = dev->kernels->squares(x, 0, D) / (float)D,
          wants = dev->kernels->squares(like, 0, D) / (float)D;
    float scale = sqrtf(wants) / sqrtf(has > 1e-5f ? has : 1e-5f);
    for (int i = 0; i < D; i++)
        x[i] *= scale;
}

static void embed_worker(void *ctx, int thread, int num_threads) {
    const struct altup_job *job = ctx;
    int begin, end;
    pool_partition(job->num_rows, thread, num_threads, &begin, &end);
    for (int t = begin; t < end; t++)
        for (int n = 1; n < N; n++)
            match(job->dev, stream_at(job->dev, n, t),
                  job->dev->resid + (size_t)t * (size_t)job->dev->model.hidden);
}

void cpu_altup_embed(struct device *dev, const struct model *model, int num_tokens) {
    struct altup_job job = {.dev = dev, .num_rows = num_tokens};
    for (int n = 1; n < N; n++) {
        const struct weight *w = model->stream_in[n - 1];
        struct gemm_input x = cpu_gemm_input(dev, dev->resid, num_tokens, NULL, w, NULL);
        cpu_matmul(dev, (float *[3]){stream_at(dev, n, 0)}, (int[3]){dev->model.hidden}, &x, w);
    }
    run(dev, embed_worker, &job);
}

// Router logits of the rows of dev->resid.
static void route(struct device *dev, const struct layer *layer, int num_tokens) {
    struct gemm_input x =
        cpu_gemm_input(dev, dev->resid, num_tokens, NULL, layer->stream_router, layer->stream_norm);
    cpu_matmul(dev, (float *[3]){dev->stream_coefs}, (int[3]){N}, &x, layer->stream_router);
}

// c = W tanh(logits / D), of `rows` rows
static void coefficients(const struct device *dev, float *c, const struct weight *w, int rows, int t) {
    float m[N];
    for (int k = 0; k < N; k++)
        m[k] = dev->stream_coefs[t * N + k] * (1.0f / (float)dev->model.hidden);
    dev->kernels->softcap(m, N, 1);
    for (int i = 0; i < rows; i++) {
        const float *row = w->vector + (size_t)i * N;
        c[i] = ((row[0] * m[0] + row[1] * m[1]) + row[2] * m[2]) + row[3] * m[3];
    }
}

// Predicts the layer's input for all streams.
static void predict_worker(void *ctx, int thread, int num_threads) {
    const struct altup_job *job = ctx;
    struct device *dev = job->dev;
    int begin, end, D = dev->model.hidden;
    pool_partition(job->num_rows, thread, num_threads, &begin, &end);
    for (int t = begin; t < end; t++) {
        float c[N * N], *x[N] = {dev->resid + (size_t)t * (size_t)D}, *first = stream_at(dev, 0, t);
        for (int n = 1; n < N; n++)
            x[n] = stream_at(dev, n, t);
        coefficients(dev, c, job->layer->stream_predict, N * N, t);
        for (int i = 0; i < D; i++) {
            float x0 = x[0][i], x1 = x[1][i], x2 = x[2][i], x3 = x[3][i];
            first[i] = x0 + (((c[0] * x0 + c[1] * x1) + c[2] * x2) + c[3] * x3);
            x[1][i] = x1 + (((c[4] * x0 + c[5] * x1) + c[6] * x2) + c[7] * x3);
            x[2][i] = x2 + (((c[8] * x0 + c[9] * x1) + c[10] * x2) + c[11] * x3);
            x[3][i] = x3 + (((c[12] * x0 + c[13] * x1) + c[14] * x2) + c[15] * x3);
        }
        memcpy(x[0], first, (size_t)D * sizeof(float));
    }
}

static void laurel_worker(void *ctx, int thread, int num_threads) {
    const struct altup_job *job = ctx;
    struct device *dev = job->dev;
    int begin, end, D = dev->model.hidden;
    pool_partition(job->num_rows, thread, num_threads, &begin, &end);
    for (int t = begin; t < end; t++) {
        size_t at = (size_t)t * (size_t)D;
        float *y = dev->laurel + at, *x = dev->partial + at;
        device_norm(dev, x, dev->resid + at, job->layer->attn_norm, 0, D);
        device_norm(dev, y, y, job->layer->laurel_norm, 0, D);
        for (int i = 0; i < D; i++)
            y[i] += x[i];
    }
}

void cpu_layer_in(struct device *dev, const struct layer *layer, const struct step *step) {
    int T = step->num_tokens;
    struct altup_job job = {.dev = dev, .layer = layer, .num_rows = T};
    route(dev, layer, T);
    run(dev, predict_worker, &job);
    struct gemm_input x = cpu_gemm_input(dev, dev->resid, T, NULL, layer->laurel_left, layer->attn_norm);
    cpu_matmul(dev, (float *[3]){dev->low}, (int[3]){dev->model.laurel_rank}, &x, layer->laurel_left);
    x = cpu_gemm_input(dev, dev->low, T, NULL, layer->laurel_right, NULL);
    cpu_matmul(dev, (float *[3]){dev->laurel}, (int[3]){dev->model.hidden}, &x, layer->laurel_right);
    run(dev, laurel_worker, &job);
}

static void laurel_add_worker(void *ctx, int thread, int num_threads) {
    const struct altup_job *job = ctx;
    struct device *dev = job->dev;
    int begin, end, D = dev->model.hidden;
    const float half = sqrtf(0.5f);
    pool_partition(job->num_rows, thread, num_threads, &begin, &end);
    for (size_t i = (size_t)begin * (size_t)D; i < (size_t)end * (size_t)D; i++)
        dev->resid[i] = (dev->resid[i] + dev->laurel[i]) * half;
}

void cpu_laurel_add(struct device *dev, int num_tokens) {
    struct altup_job job = {.dev = dev, .num_rows = num_tokens};
    run(dev, laurel_add_worker, &job);
}

static void correct_worker(void *ctx, int thread, int num_threads) {
    const struct altup_job *job = ctx;
    struct device *dev = job->dev;
    int begin, end, D = dev->model.hidden;
    const float *scale = job->layer->stream_scale->vector;
    pool_partition(job->num_rows, thread, num_threads, &begin, &end);
    for (int t = begin; t < end; t++) {
        float c[N], *resid = dev->resid + (size_t)t * (size_t)D, *first = stream_at(dev, 0, t);
        float *x1 = stream_at(dev, 1, t), *x2 = stream_at(dev, 2, t), *x3 = stream_at(dev, 3, t);
        float *scaled = dev->partial + (size_t)t * (size_t)D;
        coefficients(dev, c, job->layer->stream_correct, N, t);
        for (int n = 0; n < N; n++)
            c[n] += 1;
        for (int i = 0; i < D; i++) {
            float more = resid[i] - first[i];
            resid[i] = first[i] + more * c[0];
            x1[i] += more * c[1];
            x2[i] += more * c[2];
            x3[i] += more * c[3];
            scaled[i] = resid[i] * scale[i];
        }
    }
}

void cpu_altup_correct(struct device *dev, const struct layer *layer, int num_tokens) {
    struct altup_job job = {.dev = dev, .layer = layer, .num_rows = num_tokens};
    route(dev, layer, num_tokens);
    run(dev, correct_worker, &job);
}

static void add_worker(void *ctx, int thread, int num_threads) {
    const struct altup_job *job = ctx;
    struct device *dev = job->dev;
    int begin, end, D = dev->model.hidden;
    pool_partition(job->num_rows, thread, num_threads, &begin, &end);
    for (int t = begin; t < end; t++) {
        float *add = dev->partial + (size_t)t * (size_t)D;
        device_norm(dev, add, add, job->layer->embed_norm, 0, D);
        for (int n = 1; n < N; n++) {
            float *x = stream_at(dev, n, t);
            for (int i = 0; i < D; i++)
                x[i] += add[i];
        }
    }
}

void cpu_altup_add(struct device *dev, const struct layer *layer, int num_tokens) {
    struct altup_job job = {.dev = dev, .layer = layer, .num_rows = num_tokens};
    run(dev, add_worker, &job);
}

static void merge_worker(void *ctx, int thread, int num_threads) {
    const struct altup_job *job = ctx;
    struct device *dev = job->dev;
    int begin, end, D = dev->model.hidden;
    pool_partition(job->num_rows, thread, num_threads, &begin, &end);
    for (int r = begin; r < end; r++) {
        const float *first = dev->resid + (size_t)job->rows[r].row * (size_t)D;
        float *y = merged_at(dev, 0, r), *x[N] = {y};
        for (int n = 1; n < N; n++)
            match(dev, x[n] = merged_at(dev, n, r), first);
        for (int i = 0; i < D; i++)
            y[i] = (((first[i] + x[1][i]) + x[2][i]) + x[3][i]) * (1.0f / N);
    }
}

const float *cpu_altup_merge(struct device *dev, const struct model *model, const struct logits_row *rows,
                             int n) {
    struct altup_job job = {.dev = dev, .rows = rows, .num_rows = n};
    for (int s = 1; s < N; s++) {
        const struct weight *w = model->stream_out[s - 1];
        struct gemm_input x = cpu_gemm_input(dev, stream_at(dev, s, 0), n, rows, w, NULL);
        cpu_matmul(dev, (float *[3]){merged_at(dev, s, 0)}, (int[3]){dev->model.hidden}, &x, w);
    }
    run(dev, merge_worker, &job);
    return dev->merged;
}

// ---- sparse gates

struct gates {
    struct device *dev;
    const struct layer *layer;
    int num_rows;
    enum { SUM, SQUARES, CUT } pass;
};

// The tree of rule 3 over the segments of a row that the rank has.
static float segments_sum(const struct gates *job, const float *x, float less) {
    const struct weight *down = job->layer->down;
    const struct cpu_kernels *k = job->dev->kernels;
    float sums[NUM_SEGMENTS];
    int F = job->layer->gate_up->part[0].rows, block = down->part[0].block;
    for (int i = 0; i < down->num_segments; i++) {
        int begin = down->segments[i] * block, end = down->segments[i + 1] * block;
        begin = begin < F ? begin : F;
        end = end < F ? end : F;
        sums[i] =
            job->pass == SUM ? k->sum(x + begin, end - begin) : k->squares(x + begin, less, end - begin);
    }
    for (int n = down->num_segments; n > 1; n /= 2)
        for (int i = 0; i < n / 2; i++)
            sums[i] = sums[2 * i] + sums[2 * i + 1];
    return sums[0];
}

static void gates_worker(void *ctx, int thread, int num_threads) {
    const struct gates *job = ctx;
    struct device *dev = job->dev;
    const int F = job->layer->gate_up->part[0].rows;
    const float all = (float)job->layer->down->all_cols;
    int begin, end;
    pool_partition(job->num_rows, thread, num_threads, &begin, &end);
    for (int t = begin; t < end; t++) {
        float *x = dev->gate_up[0] + (size_t)t * (size_t)F, *sums = dev->gate_sums + t;
        float *mean = dev->gate_mean + t;
        if (job->pass == SUM) {
            *sums = segments_sum(job, x, 0);
        } else if (job->pass == SQUARES) {
            *mean = *sums / all;
            *sums = segments_sum(job, x, *mean);
        } else {
            float least = *mean + sqrtf(*sums / all) * job->layer->ffn.deviations;
            for (int i = 0; i < F; i++) {
                float more = x[i] - least;
                x[i] = more < 0 ? 0 : more; // a NaN stays one
            }
        }
    }
}

void cpu_sparse_gates(struct device *dev, const struct layer *layer, int num_tokens) {
    struct gates job = {.dev = dev, .layer = layer, .num_rows = num_tokens};
    long long work = (long long)num_tokens * layer->gate_up->part[0].rows;
    for (int pass = SUM; pass <= CUT; pass++) {
        job.pass = pass;
        pool_run(dev->pool, gates_worker, &job, work > 1 << 12);
        if (pass != CUT && dev->world > 1) {
            uint64_t env = float_env_enter();
            device_comm_ok(dev, dev->comm->ops->all_reduce(dev->comm, dev->gate_sums, (size_t)num_tokens));
            float_env_leave(env);
        }
    }
}
