// The CPU backend: its life, and each phase as a few parallel passes.
#include "device.h"
#include "float_env.h"
#include "log.h"
#include "request.h"
#include "rope.h"
#include "sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_ROWS = 64 }; // the head computes so many rows at a time

static int max_int(int a, int b) { return a > b ? a : b; }
static int min_int(int a, int b) { return a < b ? a : b; }

// ---- life

static const char *config_problem(const struct device_config *c) {
    if (c->world > 1 && (NUM_SEGMENTS % c->world != 0 || c->rank < 0 || c->rank >= c->world || !c->comm))
        return "ranks are 1, 2, 4 or 8, and each has a comm";
    if (c->kv_dtype != DTYPE_F32 && c->kv_dtype != DTYPE_F16 && c->kv_dtype != DTYPE_BF16 &&
        c->kv_dtype != DTYPE_I8)
        return "the kv cache can be F32, F16, BF16 or I8";
    if (c->model->head_dim % 2 != 0 && (c->kv_dtype == DTYPE_BF16 || c->kv_dtype == DTYPE_I8))
        return "a kv cache of BF16 or I8 needs heads of an even size";
    if (c->block_size < 1 || c->block_size > 1 << 16)
        return "the block size must be from 1 to 65536 tokens";
    return NULL;
}

static const char *model_problem(const struct model_config *m) {
    if (m->num_layers < 1 || m->hidden < 1 || m->num_heads < 1 || m->head_dim < 1 || m->ffn < 1 ||
        m->vocab < 1)
        return "a dimension of the model is not positive";
    if (m->num_kv_heads < 1 || m->num_heads % m->num_kv_heads != 0)
        return "the number of heads is no multiple of the number of kv heads";
    if (m->head_dim > 1024 || m->rope.dim > m->head_dim || m->rope.dim < 0 || m->rope.dim % 2 != 0)
        return "the head size is over 1024, or the rotated part of a head is odd or larger than it";
    return NULL;
}

static struct device *cpu_open(const struct backend_host *host, const struct device_config *config,
                               struct err *err) {
    (void)host;
    const char *problem = config_problem(config), *misfit = model_problem(config->model);
    if (problem) {
        err_set(err, STATUS_INVALID, "%s", problem);
        return NULL;
    }
    if (misfit) {
        err_set(err, STATUS_FORMAT, "the cpu backend cannot run this model: %s", misfit);
        return NULL;
    }
    const struct cpu_kernels *kernels = cpu_kernels_find(config->variant);
    if (!kernels) {
        err_set(err, STATUS_DEVICE,
                "this machine has no cpu variant '%s' (there are auto, scalar, avx2, avxvnni, avx512)",
                config->variant);
        return NULL;
    }
    struct device *dev = calloc(1, sizeof *dev);
    if (dev)
        dev->pool = pool_open(config->num_threads);
    if (!dev || !dev->pool) {
        free(dev);
        err_set(err, STATUS_NOMEM, "cannot start the threads that compute (--threads %d%s)",
                config->num_threads, config->num_threads > 0 ? "" : ", as many as there are processors");
        return NULL;
    }
    dev->model = *config->model;
    dev->rank = config->world > 1 ? config->rank : 0;
    dev->world = config->world > 1 ? config->world : 1;
    dev->comm = config->world > 1 ? config->comm : NULL;
    dev->has_head = device_has_head(config);
    dev->kernels = kernels;
    dev->kv_dtype = config->kv_dtype;
    dev->block_size = config->block_size;
    dev->tiled = config->block_size % ATTN_TILE == 0;
    return dev;
}

static void cpu_close(struct device *dev) {
    if (!dev)
        return;
    cpu_head_close(dev);
    for (int i = 0; dev->samplers && i < pool_size(dev->pool); i++)
        sampler_close(dev->samplers[i]);
    free(dev->samplers);
    free(dev->attn);
    pool_close(dev->pool);
    while (dev->weights) {
        struct weight *next = dev->weights->next;
        cpu_weight_free(dev->weights);
        dev->weights = next;
    }
    region_free(&dev->arena);
    region_free(&dev->kv);
    free(dev);
}

static void cpu_info(struct device *dev, struct device_info *info) {
    memset(info, 0, sizeof *info);
    int n = pool_size(dev->pool);
    snprintf(info->name, sizeof info->name, "cpu %s, %d thread%s", dev->kernels->name, n, n == 1 ? "" : "s");
    info->memory_free = memory_available();
    info->weight_bytes = dev->weight_bytes;
}

static size_t cpu_kv_block_bytes(struct device *dev) { return cpu_kv_bytes(dev, 1); }

void *cpu_carve(struct carver *c, size_t n, size_t size) {
    void *p = c->base ? c->base + c->used : NULL;
    c->used += (n * size + 63) / 64 * 64;
    return p;
}

static void carve_workspace(struct device *dev, struct carver *c) {
    const struct model_config *m = &dev->model;
    const struct step_limits *l = &dev->limits;
    size_t T = (size_t)l->max_tokens, R = (size_t)l->max_rows, D = (size_t)m->hidden;
    size_t q = (size_t)device_q_size(dev), kv = (size_t)device_kv_size(dev), F = (size_t)m->ffn;
    size_t rows = T > (size_t)dev->head_rows ? T : (size_t)dev->head_rows;
    size_t wide = (size_t)max_int(max_int(m->hidden, device_q_size(dev)), m->ffn) + 1;
    size_t pairs = (size_t)m->rope.dim / 2;
    dev->resid = cpu_carve(c, T * D, sizeof(float));
    dev->q = cpu_carve(c, T * q, sizeof(float));
    dev->h = cpu_carve(c, T * (q > F ? q : F), sizeof(float));
    dev->key = cpu_carve(c, T * kv, sizeof(float));
    dev->value = cpu_carve(c, T * kv, sizeof(float));
    // Normalised rows pass through `floats` whatever type comes of them.
    bool floats = dev->dtypes & (1u << DTYPE_F32 | 1u << DTYPE_F16);
    dev->floats = cpu_carve(c, rows, activation_stride((floats ? wide : D) * sizeof(float)));
    if (dev->dtypes & 1u << DTYPE_BF16)
        dev->bf16 = cpu_carve(c, rows, activation_stride((wide + 1) * sizeof(uint16_t)));
    if (dev->dtypes & DTYPES_QUANTISED)
        dev->q8 = cpu_carve(c, rows, activation_stride((wide / 32 + 1) * sizeof(struct act_q8)));
    if (dev->world > 1)
        dev->partial = cpu_carve(c, T * D, sizeof(float));
    if (dev->has_head)
        cpu_head_carve(dev, c);
    dev->rope_cos = cpu_carve(c, (size_t)l->max_context * pairs, sizeof(float));
    dev->rope_sin = cpu_carve(c, (size_t)l->max_context * pairs, sizeof(float));
    for (int i = 0; i < 2; i++) {
        struct result *r = &dev->result[i];
        r->ids = cpu_carve(c, R, sizeof *r->ids);
        r->logprob = cpu_carve(c, R, sizeof *r->logprob);
        r->top_ids = cpu_carve(c, R * MAX_TOP_LOGPROBS, sizeof *r->top_ids);
        r->top_logprobs = cpu_carve(c, R * MAX_TOP_LOGPROBS, sizeof *r->top_logprobs);
        r->failed = cpu_carve(c, R, 1);
        if (l->keep_logits && dev->has_head)
            r->logits = cpu_carve(c, R * (size_t)m->vocab, sizeof *r->logits);
    }
    if (pool_size(dev->pool) > 1)
        dev->attn_slots = cpu_carve(c, cpu_attn_slots(dev), cpu_attn_slot_bytes(dev));
    for (int i = 0; i < pool_size(dev->pool); i++) {
        size_t bytes = cpu_attn_scratch(dev, &dev->attn[i], NULL);
        char *memory = cpu_carve(c, bytes, 1);
        cpu_attn_scratch(dev, &dev->attn[i], memory);
    }
}

static void fill_rope(struct device *dev) {
    const struct rope_config *r = &dev->model.rope;
    double magnitude = rope_magnitude(r);
    int pairs = r->dim / 2;
    for (int i = 0; i < pairs; i++) {
        double frequency = rope_frequency(r, i);
        for (int p = 0; p < dev->limits.max_context; p++) {
            size_t at = (size_t)p * (size_t)pairs + (size_t)i;
            dev->rope_cos[at] = (float)(cos(p * frequency) * magnitude);
            dev->rope_sin[at] = (float)(sin(p * frequency) * magnitude);
        }
    }
}

static enum status cpu_reserve(struct device *dev, const struct step_limits *limits, struct workspace *ws,
                               struct err *err) {
    CHECK(!dev->arena.data);
    CHECK(limits->max_tokens > 0 && limits->max_rows > 0 && limits->max_context > 0 &&
          limits->num_blocks > 0);
    int n = pool_size(dev->pool);
    dev->limits = *limits;
    dev->head_rows = min_int(limits->max_rows, HEAD_ROWS);
    dev->attn = calloc((size_t)n, sizeof *dev->attn);
    dev->samplers = calloc((size_t)n, sizeof(struct sampler *));
    bool ok = dev->attn && dev->samplers;
    for (int i = 0; ok && dev->has_head && i < n; i++)
        ok = (dev->samplers[i] = sampler_open(dev->model.vocab)) != NULL;
    ok = ok && (!dev->has_head || cpu_head_open(dev) == STATUS_OK);
    struct carver carver = {NULL, 0};
    if (ok) {
        carve_workspace(dev, &carver);
        dev->arena = region_alloc(carver.used);
        dev->kv = region_alloc(cpu_kv_region(dev, limits->num_blocks));
    }
    if (!ok || !dev->arena.data || !dev->kv.data)
        return err_set(err, STATUS_NOMEM, "no memory for a workspace of %d tokens and a cache of %d blocks",
                       limits->max_tokens, limits->num_blocks);
    carver = (struct carver){dev->arena.data, 0};
    carve_workspace(dev, &carver);
    fill_rope(dev);
    *ws = (struct workspace){dev->resid, dev->q, dev->h};
    return STATUS_OK;
}

// ---- phases

static bool cpu_step_begin(struct device *dev, const struct step *step) {
    const struct step_limits *l = &dev->limits;
    CHECK(step->num_tokens <= l->max_tokens && step->num_seqs <= l->max_seqs &&
          step->num_rows <= l->max_rows);
    CHECK(step->num_decode >= 0 && step->num_decode <= step->num_seqs &&
          step->max_context_len <= l->max_context);
    CHECK(dev->num_begun - dev->num_synced < 2); // results of two steps are kept
    dev->num_begun++;
    return false;
}

static void cpu_step_end(struct device *dev) { (void)dev; }

struct embed {
    struct device *dev;
    float *resid;
    const struct weight *table;
    const struct step *step;
};

static void embed_share(void *ctx, int thread, int num_threads) {
    const struct embed *job = ctx;
    const struct result *before = &job->dev->result[(job->dev->num_begun - 1) & 1];
    int begin, end;
    pool_share(job->step->num_tokens, thread, num_threads, &begin, &end);
    for (int t = begin; t < end; t++) {
        int32_t id = job->step->ids[t];
        if (id < 0) {
            CHECK(-1 - id < before->num_rows);
            id = before->ids[-1 - id];
        }
        cpu_embedding_row(job->resid + (size_t)t * (size_t)job->dev->model.hidden, job->table, id);
    }
}

static void cpu_embed(struct device *dev, void *resid, const struct weight *table, const struct step *step) {
    struct embed job = {dev, resid, table, step};
    pool_run(dev->pool, embed_share, &job, (long long)step->num_tokens * dev->model.hidden > 1 << 15);
}

struct finish_qkv {
    struct device *dev;
    float *q;
    const struct layer *layer;
    const struct step *step;
};

// Bias, norm of each head, rotation, of the heads of one row.
static void finish_heads(const struct device *dev, float *x, int num_heads, const float *bias,
                         const struct weight *norm, int position) {
    const struct rope_config *r = &dev->model.rope;
    int d = dev->model.head_dim, pairs = r->dim / 2;
    for (int i = 0; bias && i < num_heads * d; i++)
        x[i] += bias[i];
    const float *c = dev->rope_cos + (size_t)position * (size_t)pairs;
    const float *s = dev->rope_sin + (size_t)position * (size_t)pairs;
    for (int h = 0; h < num_heads; h++, x += d) {
        if (norm)
            dev->kernels->rmsnorm(x, x, norm->vector, d, dev->model.norm_eps);
        for (int i = 0; i < pairs; i++) {
            float *a = x + (r->interleaved ? 2 * i : i), *b = r->interleaved ? a + 1 : a + pairs;
            float x0 = *a, x1 = *b;
            *a = x0 * c[i] - x1 * s[i];
            *b = x0 * s[i] + x1 * c[i];
        }
    }
}

static void finish_row(const struct finish_qkv *job, int t) {
    struct device *dev = job->dev;
    const struct model_config *m = &dev->model;
    float *const *bias = job->layer->qkv->bias;
    int position = job->step->positions[t];
    CHECK(position >= 0 && position < dev->limits.max_context);
    float *q = job->q + (size_t)t * (size_t)device_q_size(dev);
    float *key = dev->key + (size_t)t * (size_t)device_kv_size(dev);
    float *value = dev->value + (size_t)t * (size_t)device_kv_size(dev);
    finish_heads(dev, q, m->num_heads, bias[0], job->layer->q_norm, position);
    finish_heads(dev, key, m->num_kv_heads, bias[1], job->layer->k_norm, position);
    for (int i = 0; bias[2] && i < device_kv_size(dev); i++)
        value[i] += bias[2][i];
    if (job->step->slots[t] >= 0)
        cpu_kv_write(dev, job->layer->index, job->step->slots[t], key, value);
}

static void finish_qkv_share(void *ctx, int thread, int num_threads) {
    const struct finish_qkv *job = ctx;
    (void)num_threads;
    for (int begin, end; pool_take(job->dev->pool, thread, 1, &begin, &end);)
        for (int t = begin; t < end; t++)
            finish_row(job, t);
}

static void cpu_qkv(struct device *dev, void *q, const void *resid, const struct layer *layer,
                    const struct step *step) {
    struct activations x = cpu_activations(dev, resid, step->num_tokens, NULL, layer->qkv, layer->attn_norm);
    float *y[3] = {q, dev->key, dev->value};
    int ldy[3] = {device_q_size(dev), device_kv_size(dev), device_kv_size(dev)};
    cpu_matmul(dev, y, ldy, &x, layer->qkv);
    struct finish_qkv job = {dev, q, layer, step};
    pool_run_items(dev->pool, finish_qkv_share, &job, step->num_tokens,
                   (long long)step->num_tokens * device_q_size(dev) > 1 << 12);
}

static void cpu_attn_prefill(struct device *dev, void *h, const void *q, const struct layer *layer,
                             const struct step *step) {
    cpu_attend(dev, h, q, layer->index, step, step->num_decode, step->num_seqs);
}

static void cpu_attn_decode(struct device *dev, void *h, const void *q, const struct layer *layer,
                            const struct step *step) {
    cpu_attend(dev, h, q, layer->index, step, 0, step->num_decode);
}

struct add_rows {
    float *resid;
    const float *partial, *bias; // either may be NULL
    int num_tokens, hidden;
};

static void add_share(void *ctx, int thread, int num_threads) {
    const struct add_rows *job = ctx;
    int begin, end;
    pool_share(job->num_tokens, thread, num_threads, &begin, &end);
    for (int t = begin; t < end; t++) {
        size_t at = (size_t)t * (size_t)job->hidden;
        for (int i = 0; job->partial && i < job->hidden; i++)
            job->resid[at + (size_t)i] += job->partial[at + (size_t)i];
        for (int i = 0; job->bias && i < job->hidden; i++)
            job->resid[at + (size_t)i] += job->bias[i];
    }
}

bool cpu_comm_ok(struct device *dev, enum status status) {
    if (status != STATUS_OK && dev->failure.code == STATUS_OK)
        err_set(&dev->failure, STATUS_DEVICE, "rank %d of %d: %s", dev->rank, dev->world,
                dev->comm->ops->error(dev->comm));
    return dev->failure.code == STATUS_OK;
}

// The sum over ranks of what each has of the tree, added to the residual stream; the bias comes after the
// whole sum, once.
static void cpu_proj_add(struct device *dev, void *resid, const void *h, const struct weight *w,
                         const struct step *step) {
    struct activations x = cpu_activations(dev, h, step->num_tokens, NULL, w, NULL);
    struct add_rows job = {resid, NULL, w->bias[0], step->num_tokens, dev->model.hidden};
    if (dev->world > 1) {
        cpu_matmul_part(dev, dev->partial, dev->model.hidden, &x, w);
        uint64_t env = float_env_enter(); // a sum of two parts is a sum of rule 3: subnormals are zero
        cpu_comm_ok(dev, dev->comm->ops->all_reduce(dev->comm, dev->partial,
                                                    (size_t)step->num_tokens * (size_t)dev->model.hidden));
        float_env_leave(env);
        job.partial = dev->partial;
    } else {
        cpu_matmul_add(dev, resid, dev->model.hidden, &x, w);
    }
    if (job.partial || job.bias)
        pool_run(dev->pool, add_share, &job, (long long)job.num_tokens * job.hidden > 1 << 15);
}

static void cpu_mlp_in(struct device *dev, void *h, const void *resid, const struct layer *layer,
                       const struct step *step) {
    struct activations x =
        cpu_activations(dev, resid, step->num_tokens, NULL, layer->gate_up, layer->ffn_norm);
    cpu_matmul_swiglu(dev, h, layer->gate_up->part[0].rows, &x, layer->gate_up);
}

// Copied in place: host and device are one.
static void cpu_resid_export(struct device *dev, float *dst, const void *resid, const struct step *step) {
    memcpy(dst, resid, (size_t)step->num_tokens * (size_t)dev->model.hidden * sizeof *dst);
}

static void cpu_resid_import(struct device *dev, void *resid, const float *src, const struct step *step) {
    memcpy(resid, src, (size_t)step->num_tokens * (size_t)dev->model.hidden * sizeof *src);
}

static enum status cpu_sync(struct device *dev, struct step_out *out, struct err *err) {
    CHECK(dev->num_synced < dev->num_begun);
    const struct result *r = &dev->result[++dev->num_synced & 1];
    if (dev->failure.code != STATUS_OK)
        return err_set(err, STATUS_DEVICE, "%s", dev->failure.msg);
    *out = (struct step_out){r->ids,    r->logprob, r->top_ids,      r->top_logprobs,
                             r->failed, r->logits,  MAX_TOP_LOGPROBS};
    return STATUS_OK;
}

static void cpu_kv_export(struct device *dev, int32_t block, void *dst) {
    cpu_kv_copy(dev, block, dst, true);
}

static void cpu_kv_import(struct device *dev, int32_t block, const void *src) {
    cpu_kv_copy(dev, block, (void *)(uintptr_t)src, false);
}

const struct backend_ops backend_cpu = {
    .abi = BACKEND_ABI,
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .info = cpu_info,
    .weight_load = cpu_weight_load,
    .kv_block_bytes = cpu_kv_block_bytes,
    .reserve = cpu_reserve,
    .step_begin = cpu_step_begin,
    .embed = cpu_embed,
    .qkv = cpu_qkv,
    .attn_prefill = cpu_attn_prefill,
    .attn_decode = cpu_attn_decode,
    .proj_add = cpu_proj_add,
    .mlp_in = cpu_mlp_in,
    .head = cpu_head,
    .resid_export = cpu_resid_export,
    .resid_import = cpu_resid_import,
    .step_end = cpu_step_end,
    .sync = cpu_sync,
    .kv_export = cpu_kv_export,
    .kv_import = cpu_kv_import,
};
