// The CPU backend: opening and closing it, and each phase as a few parallel passes. Over 600 lines: every
// phase, once.
#include "device.h"
#include "float_env.h"
#include "hadamard.h"
#include "kv.h"
#include "log.h"
#include "lora.h"
#include "minmax.h"
#include "rope.h"
#include "sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_ROWS = 64 }; // the head computes so many rows at a time

// ---- lifecycle

static const char *config_problem(const struct device_config *c) {
    if (c->world > 1 && (NUM_SEGMENTS % c->world != 0 || c->rank < 0 || c->rank >= c->world || !c->comm))
        return "ranks are 1, 2, 4 or 8, and each has a comm";
    if (c->kv_dtype != DTYPE_F32 && c->kv_dtype != DTYPE_F16 && c->kv_dtype != DTYPE_BF16 &&
        c->kv_dtype != DTYPE_I8)
        return "the kv cache can be F32, F16, BF16 or I8";
    for (int i = 0; i < c->model->num_attn; i++)
        if (c->model->attn[i].head_dim % 2 != 0 && (c->kv_dtype == DTYPE_BF16 || c->kv_dtype == DTYPE_I8))
            return "a kv cache of BF16 or I8 needs heads of an even size";
    if (c->block_size < 1 || c->block_size > 1 << 16 || c->block_size % ATTN_TILE != 0)
        return "the block size must be a multiple of 16, up to 65536 tokens";
    return NULL;
}

static const char *attn_problem(const struct model_config *m, const struct attn_spec *a) {
    if (a->heads < 1 || a->head_dim < 1)
        return "a dimension of the model is not positive";
    if (a->kv_heads < 1 || a->heads % a->kv_heads != 0)
        return "the number of heads is no multiple of the number of kv heads";
    if (a->kind != m->attn[0].kind || a->kv_lora != m->attn[0].kv_lora)
        return "some layers have latent attention and some not, or of another size";
    if (a->rope < -1 || a->rope >= m->num_ropes)
        return "a layer names a rotary embedding that the model lacks";
    const struct rope_config *r = a->rope < 0 ? NULL : &m->ropes[a->rope];
    if (a->head_dim > MAX_HEAD_DIM || (r && (r->dim > a->head_dim || r->dim < 0 || r->dim % 2 != 0)))
        return "the head size is over 1024, or the rotated part of a head is odd or larger than it";
    bool latent = a->kind == ATTN_LATENT;
    if (latent && (a->kv_heads != 1 || a->kv_lora < 1 || a->q_lora < 0 || a->nope_dim < 1 || a->v_dim < 1 ||
                   a->head_dim != a->kv_lora + a->rope_dim || (r && r->dim != a->rope_dim)))
        return "sizes of latent attention do not fit together";
    return NULL;
}

static const char *ffn_problem(const struct ffn_spec *f) {
    if (f->hidden < 0)
        return "a dimension of the model is not positive";
    if (f->experts > MAX_EXPERTS || (f->experts > 0 && (f->top_k < 1 || f->top_k > f->experts)))
        return "a row goes to no expert, or there are more than 1024, or more are chosen than there are";
    if (f->experts > 0 && f->groups > 1 &&
        (f->experts % f->groups != 0 || f->experts / f->groups < 2 || f->top_groups < 1 ||
         f->top_groups > f->groups || f->top_k > f->experts / f->groups * f->top_groups))
        return "its groups of experts do not suit the number that is chosen";
    return NULL;
}

static const char *model_problem(const struct model_config *m) {
    if (m->num_layers < 1 || m->hidden < 1 || m->vocab < 1 || m->num_attn < 1 || m->num_ffn < 1 ||
        m->kv_layers + m->state_layers < 1)
        return "a dimension of the model is not positive";
    const char *problem = NULL;
    for (int i = 0; i < m->num_attn && !problem; i++)
        problem = attn_problem(m, &m->attn[i]);
    for (int i = 0; i < m->num_ffn && !problem; i++)
        problem = ffn_problem(&m->ffn[i]);
    for (int i = 0; i < m->num_layers && !problem; i++) {
        const struct layer_spec *l = &m->layers[i];
        bool attn = l->attn != MODEL_NO_SPEC, mix = m->num_mix > 0 && l->mix != MODEL_NO_SPEC;
        if ((attn && (l->attn >= m->num_attn || l->kv_group >= m->num_groups ||
                      l->kv_layer + attn_kv_places(&m->attn[l->attn]) > m->kv_layers)) ||
            (mix && (l->mix >= m->num_mix || l->state_group >= m->num_groups ||
                     l->state_layer >= m->state_layers)) ||
            l->ffn >= m->num_ffn)
            problem = "a layer names a spec, or a place in the cache, that the model lacks";
    }
    for (int i = 0; i < m->num_mix && !problem; i++)
        problem = cpu_mix_problem(&m->mix[i]);
    return problem;
}

static bool takes_bf16_cache(const struct device_config *c) {
    bool even = true;
    for (int i = 0; i < c->model->num_attn; i++)
        even &= c->model->attn[i].head_dim % 2 == 0;
    return even && c->kv_either && c->kv_dtype == DTYPE_F16;
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
                "this machine has no cpu variant '%s' (there are auto, scalar, avx2, avxvnni, avx512, "
                "avx512-fma, amx)",
                config->variant);
        return NULL;
    }
    struct device *dev = calloc(1, sizeof *dev);
    if (dev)
        dev->pool = pool_open(config->num_threads);
    if (!dev || !dev->pool) {
        free(dev);
        err_set(err, STATUS_NOMEM, "cannot start the threads that compute (--threads %d%s)",
                config->num_threads, config->num_threads > 0 ? "" : ", as many as there are CPUs");
        return NULL;
    }
    const struct model_config *m = &dev->model;
    dev->model = *config->model;
    dev->kv_size = model_kv_size(m);
    dev->kv_heads = model_kv_heads(m);
    for (int i = 0; i < m->num_attn; i++) {
        const struct attn_spec *a = &m->attn[i];
        dev->max_q = max_int(dev->max_q, attn_q_size(a));
        dev->max_heads_in = max_int(dev->max_heads_in, a->heads * (a->nope_dim + a->rope_dim));
        dev->max_heads_out = max_int(dev->max_heads_out, attn_out_size(a));
        dev->max_q_lora = max_int(dev->max_q_lora, a->q_lora);
        dev->max_group = max_int(dev->max_group, a->heads / a->kv_heads);
        dev->max_kv = max_int(dev->max_kv, attn_kv_size(a));
        dev->max_kv_heads = max_int(dev->max_kv_heads, a->kv_heads);
        dev->max_head_dim = max_int(dev->max_head_dim, a->head_dim);
    }
    for (int i = 0; i < m->num_ffn; i++) {
        const struct ffn_spec *f = &m->ffn[i];
        dev->max_ffn = max_int(dev->max_ffn, f->experts > 0 ? f->shared_hidden : f->hidden);
        if (f->experts == 0)
            continue;
        dev->max_slot = max_int(dev->max_slot, f->hidden);
        dev->max_experts = max_int(dev->max_experts, f->experts);
        dev->max_top_k = max_int(dev->max_top_k, f->top_k);
        dev->any_shared |= f->shared_hidden > 0;
        dev->any_weighed |= f->weigh_input;
        dev->max_latent = max_int(dev->max_latent, f->latent);
    }
    for (int i = 0; i < m->num_mix; i++)
        dev->max_mix = max_int(dev->max_mix, mix_values(&m->mix[i]));
    dev->rank = config->world > 1 ? config->rank : 0;
    dev->world = config->world > 1 ? config->world : 1;
    dev->comm = config->world > 1 ? config->comm : NULL;
    dev->has_head = device_has_head(config);
    dev->kernels = kernels;
    dev->kv_dtype = kernels->tiles && takes_bf16_cache(config) ? DTYPE_BF16 : config->kv_dtype;
    dev->block_size = config->block_size;
    return dev;
}

static void cpu_close(struct device *dev) {
    if (!dev)
        return;
    cpu_head_close(dev);
    cpu_lora_close(dev);
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
    for (int i = 0; i < MODEL_MAX_ROPES; i++)
        rope_table_close(&dev->ropes[i]);
    region_free(&dev->arena);
    region_free(&dev->kv);
    region_free(&dev->host_kv);
    free(dev);
}

static void cpu_info(struct device *dev, struct device_info *info) {
    memset(info, 0, sizeof *info);
    int n = pool_size(dev->pool);
    snprintf(info->name, sizeof info->name, "cpu %s, %d thread%s", dev->kernels->name, n, n == 1 ? "" : "s");
    info->memory_free = memory_available();
    info->kv_dtype = dev->kv_dtype;
    info->weight_bytes = dev->weight_bytes;
}

static size_t cpu_kv_block_bytes(struct device *dev) { return cpu_kv_bytes(dev, 1); }

// Floats of a row between the two halves of a feed-forward part.
static size_t h_size(const struct device *dev) {
    size_t size = (size_t)max_int(dev->max_heads_in, dev->max_heads_out);
    for (int i = 0; i < dev->model.num_ffn; i++) {
        const struct ffn_spec *f = &dev->model.ffn[i];
        size_t n = f->experts > 0 ? (size_t)f->shared_hidden + (size_t)f->top_k * (size_t)f->hidden
                                  : (size_t)f->hidden;
        size = n > size ? n : size;
    }
    return (size_t)dev->model.layer_embed > size ? (size_t)dev->model.layer_embed : size;
}

// Whether something is done to what attention and feed-forward give before it is added to the residual stream.
static bool adds_apart(const struct device *dev) {
    return model_scale(dev->model.residual_scale) != 1 || dev->model.post_norms ||
           dev->model.block == BLOCK_SUM_NORM;
}

static bool has_gate(const struct model_config *m) {
    bool gate = false;
    for (int i = 0; i < m->num_attn; i++)
        gate |= m->attn[i].gate;
    return gate;
}

static void lay_out_arena(struct device *dev, struct cpu_arena *c) {
    const struct model_config *m = &dev->model;
    const struct step_limits *l = &dev->limits;
    size_t T = (size_t)l->max_tokens, R = (size_t)l->max_rows, D = (size_t)m->hidden;
    size_t q = (size_t)dev->max_q, kv = (size_t)dev->max_kv;
    size_t rows = T > (size_t)dev->head_rows ? T : (size_t)dev->head_rows;
    size_t narrow = (size_t)max_int(m->hidden, dev->max_q_lora); // rows that are normalised
    size_t wide =
        (size_t)max_int(max_int((int)narrow, dev->max_heads_out), max_int(dev->max_ffn, dev->max_mix)) + 1;
    wide = wide > (size_t)m->layer_embed ? wide : (size_t)m->layer_embed + 1;
    wide = wide > (size_t)m->laurel_rank ? wide : (size_t)m->laurel_rank + 1;
    wide = m->mtp_layer > 0 && wide < 2 * D + 1 ? 2 * D + 1 : wide;
    size_t own = (size_t)m->num_layers * (size_t)m->layer_embed;
    dev->layer_embed = arena_take(c, T * own, sizeof(float));
    dev->layer_rows = arena_take(c, (size_t)pool_size(dev->pool) * own, sizeof(float));
    dev->resid = arena_take(c, T * D + 4 * COMM_MAX_SUM, sizeof(float)); // all whole parts of ranks
    dev->mtp = arena_take(c, m->mtp_layer > 0 ? T * 2 * D : 0, sizeof(float));
    dev->q = arena_take(c, T * q, sizeof(float));
    dev->h = arena_take(c, T * h_size(dev), sizeof(float));
    dev->key = arena_take(c, T * kv, sizeof(float));
    dev->value = arena_take(c, T * kv, sizeof(float));
    dev->gate = arena_take(c, has_gate(m) ? T * q : 0, sizeof(float));
    dev->q_latent = arena_take(c, T * (size_t)dev->max_q_lora, sizeof(float));
    dev->by_head = arena_take(c, (size_t)pool_size(dev->pool), cpu_latent_scratch(dev));
    // Normalised rows pass through `floats` whatever type comes of them.
    bool floats = dev->dtypes & (1u << DTYPE_F32 | 1u << DTYPE_F16);
    dev->rows.floats = arena_take(c, rows, activation_stride((floats ? wide : narrow) * sizeof(float)));
    if (dev->dtypes & 1u << DTYPE_BF16)
        dev->rows.bf16 = arena_take(c, rows, activation_stride((wide + 1) * sizeof(uint16_t)));
    if (dev->dtypes & DTYPES_QUANTISED)
        dev->rows.q8 = arena_take(c, rows, activation_stride((wide / 32 + 1) * sizeof(struct act_q8)));
    if (dev->dtypes & DTYPES_QUANTISED && dev->kernels->to_pairs)
        dev->rows.pairs = arena_take(c, rows, activation_stride((wide + 1) * sizeof(uint16_t)));
    if (dev->kernels->to_pairs && rows > MAX_TILE_TOKENS)
        dev->piece_sums = arena_take(c, (size_t)pool_size(dev->pool) * PIECE_SUMS, sizeof(float));
    if (m->num_mix > 0)
        cpu_mix_arena(dev, c);
    if (dev->world > 1 || adds_apart(dev) || dev->max_experts > 0 || m->layer_embed > 0)
        dev->partial = arena_take(c, T * D * (dev->any_shared ? 2 : 1), sizeof(float));
    cpu_experts_arena(dev, c);
    cpu_lora_arena(dev, c);
    cpu_altup_arena(dev, c);
    if (model_keeps_before(m))
        dev->before = arena_take(c, T * D, sizeof(float));
    if (dev->has_head)
        cpu_head_arena(dev, c);
    for (int i = 0; i < 2; i++) {
        struct cpu_result *r = &dev->result[i];
        r->ids = arena_take(c, R, sizeof *r->ids);
        r->logprob = arena_take(c, R, sizeof *r->logprob);
        r->rank = arena_take(c, R, sizeof *r->rank);
        r->share = arena_take(c, R, sizeof *r->share);
        r->top_ids = arena_take(c, R * MAX_TOP_LOGPROBS, sizeof *r->top_ids);
        r->top_logprobs = arena_take(c, R * MAX_TOP_LOGPROBS, sizeof *r->top_logprobs);
        r->failed = arena_take(c, R, 1);
        if (l->keep_logits && dev->has_head)
            r->logits = arena_take(c, R * (size_t)m->vocab, sizeof *r->logits);
        if (l->keep_hidden && dev->has_head)
            r->hidden = arena_take(c, R * D, sizeof *r->hidden);
    }
    if (pool_size(dev->pool) > 1)
        dev->attn_partials = arena_take(c, cpu_attn_partials(dev), cpu_attn_partial_bytes(dev));
    for (int i = 0; i < pool_size(dev->pool); i++) {
        size_t bytes = cpu_attn_scratch(dev, &dev->attn[i], NULL);
        char *memory = arena_take(c, bytes, 1);
        cpu_attn_scratch(dev, &dev->attn[i], memory);
    }
}

static enum status cpu_reserve(struct device *dev, const struct step_limits *limits, struct err *err) {
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
    ok = ok && (!dev->has_head || cpu_head_open(dev) == STATUS_OK) && cpu_lora_open(dev) == STATUS_OK;
    for (int i = 0; ok && i < dev->model.num_ropes; i++)
        ok = rope_table_open(&dev->ropes[i], &dev->model.ropes[i], limits->max_context);
    struct cpu_arena arena = {NULL, 0};
    if (ok) {
        lay_out_arena(dev, &arena);
        dev->arena = region_alloc(arena.used);
        dev->kv = region_alloc(cpu_kv_region(dev, limits->num_blocks));
        if (limits->num_host_pages > 0)
            dev->host_kv = region_alloc((size_t)limits->num_host_pages * cpu_kv_bytes(dev, 1));
    }
    if (!ok || !dev->arena.data || !dev->kv.data || (limits->num_host_pages > 0 && !dev->host_kv.data))
        return err_set(err, STATUS_NOMEM,
                       "no memory for steps of %d tokens and a cache of %d blocks; lower "
                       "--max-num-batched-tokens or --num-kv-blocks",
                       limits->max_tokens, limits->num_blocks);
    arena = (struct cpu_arena){dev->arena.data, 0};
    lay_out_arena(dev, &arena);
    const bool own_cache = dev->kv_dtype == DTYPE_BF16 || dev->kv_dtype == DTYPE_I8;
    if (dev->kernels->tiles && (dev->dtypes & 1u << DTYPE_BF16 || own_cache))
        log_msg(LOG_INFO,
                "msg=\"%s on AMX: as exact as elsewhere, in other bits; --cpu-variant avx512 "
                "gives those, several times as slowly\"",
                dev->dtypes & 1u << DTYPE_BF16 ? "BF16 weights" : "a cache of bf16 or int8");
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
    CHECK(!step->rope_positions || l->has_axes);
    for (int i = 0; i < dev->model.num_ropes; i++)
        rope_table_fill(&dev->ropes[i], dev->pool, step->max_context_len);
    cpu_lora_begin(dev, step);
    dev->num_begun++;
    dev->result[dev->num_begun & 1].experts = (struct expert_counts){0};
    return false;
}

static void cpu_step_end(struct device *dev) { (void)dev; }

struct embed {
    struct device *dev;
    const struct model *model;
    const struct step *step;
};

// x (D) plus a row of a table
static void add_row(float *x, const struct weight *table, int row, int D) {
    CHECK(row >= 0 && row < table->part[0].rows);
    for (int i = 0; i < D; i++)
        x[i] += table->vector[(size_t)row * (size_t)D + (size_t)i];
}

static int32_t token_of(const struct device *dev, const struct step *step, int t) {
    const struct cpu_result *before = &dev->result[(dev->num_begun - 1) & 1];
    int32_t id = step->ids[t];
    CHECK(id >= 0 || -1 - id < before->num_rows);
    return id < 0 ? before->ids[-1 - id] : id;
}

// Row t of the residual stream, of its token's row of the table or of its own.
static inline void embed_row(const struct embed *job, int t, const float *own) {
    const struct model *m = job->model;
    int D = job->dev->model.hidden;
    float *row = job->dev->resid + (size_t)t * (size_t)D, scale = model_scale(job->dev->model.embed_scale);
    if (own)
        memcpy(row, own, (size_t)D * sizeof *row);
    else
        cpu_embedding_row(row, m->embed, token_of(job->dev, job->step, t));
    for (int i = 0; scale != 1 && i < D; i++)
        row[i] *= scale;
    if (m->types)
        add_row(row, m->types, job->step->types ? job->step->types[t] : 0, D);
    if (m->positions)
        add_row(row, m->positions, job->step->positions[t], D);
    if (m->embed_norm)
        device_norm(job->dev, row, row, m->embed_norm, 0, D);
}

static void embed_worker(void *ctx, int thread, int num_threads) {
    const struct embed *job = ctx;
    const struct step *step = job->step;
    int begin, end, e = 0;
    pool_partition(step->num_tokens, thread, num_threads, &begin, &end);
    while (e < step->num_embeds && step->embed_rows[e] < begin)
        e++;
    for (int t = begin; t < end; e++) {
        int stop = e < step->num_embeds && step->embed_rows[e] < end ? step->embed_rows[e] : end;
        for (; t < stop; t++)
            embed_row(job, t, NULL);
        if (t < end)
            embed_row(job, t++, step->embeds + (size_t)e * (size_t)job->dev->model.hidden);
    }
}

struct layer_embed {
    struct device *dev;
    const struct weight *table, *norm;
    const struct step *step;
};

// Rows of all layers, from what the projection gave.
static void layer_embed_worker(void *ctx, int thread, int num_threads) {
    const struct layer_embed *job = ctx;
    struct device *dev = job->dev;
    int begin, end, P = dev->model.layer_embed, n = dev->model.num_layers * P;
    float in = 1.0f / sqrtf((float)dev->model.hidden), own = sqrtf((float)P), half = sqrtf(0.5f);
    pool_partition(job->step->num_tokens, thread, num_threads, &begin, &end);
    for (int t = begin; t < end; t++) {
        float *x = dev->layer_embed + (size_t)t * (size_t)n,
              *row = dev->layer_rows + (size_t)thread * (size_t)n;
        int32_t id = token_of(dev, job->step, t);
        cpu_embedding_row(row, job->table, id < dev->model.layer_vocab ? id : 0);
        for (int i = 0; i < n; i++)
            x[i] *= in;
        for (int l = 0; l < n; l += P)
            device_norm(dev, x + l, x + l, job->norm, 0, P);
        for (int i = 0; i < n; i++)
            x[i] = (x[i] + row[i] * own) * half;
    }
}

static void embed_layers(struct device *dev, const struct model *model, const struct step *step) {
    int n = dev->model.num_layers * dev->model.layer_embed;
    struct gemm_input x =
        cpu_gemm_input(dev, dev->resid, step->num_tokens, NULL, model->layer_embed_in, NULL);
    cpu_matmul(dev, (float *[3]){dev->layer_embed}, (int[3]){n}, &x, model->layer_embed_in);
    struct layer_embed job = {dev, model->layer_embed, model->layer_embed_norm, step};
    pool_run(dev->pool, layer_embed_worker, &job, (long long)step->num_tokens * n > 1 << 15);
}

static void mtp_worker(void *ctx, int thread, int num_threads) {
    const struct embed *job = ctx;
    struct device *dev = job->dev;
    const struct model *m = job->model;
    int begin, end, D = dev->model.hidden, hidden_at = dev->model.mtp_hidden_first ? 0 : D;
    float scale = model_scale(dev->model.embed_scale);
    pool_partition(job->step->num_tokens, thread, num_threads, &begin, &end);
    for (int t = begin; t < end; t++) {
        float *row = dev->mtp + (size_t)t * 2 * (size_t)D, *embed = row + (D - hidden_at);
        cpu_embedding_row(embed, m->embed, token_of(dev, job->step, t));
        for (int i = 0; scale != 1 && i < D; i++)
            embed[i] *= scale;
        device_norm(dev, embed, embed, m->mtp_embed_norm, 0, D);
        device_norm(dev, row + hidden_at, job->step->embeds + (size_t)t * (size_t)D, m->mtp_hidden_norm, 0,
                    D);
    }
}

static void embed_mtp(struct embed *job) {
    struct device *dev = job->dev;
    const struct weight *w = job->model->mtp_proj;
    int T = job->step->num_tokens, D = dev->model.hidden;
    CHECK(job->step->num_embeds == T);
    pool_run(dev->pool, mtp_worker, job, (long long)T * D > 1 << 15);
    struct gemm_input x = cpu_gemm_input(dev, dev->mtp, T, NULL, w, NULL);
    cpu_matmul(dev, (float *[3]){dev->resid}, (int[3]){D}, &x, w);
}

static void cpu_embed(struct device *dev, const struct model *model, const struct step *step) {
    struct embed job = {dev, model, step};
    if (dev->model.mtp_layer > 0) {
        embed_mtp(&job);
        return;
    }
    pool_run(dev->pool, embed_worker, &job, (long long)step->num_tokens * dev->model.hidden > 1 << 15);
    if (dev->model.layer_embed > 0)
        embed_layers(dev, model, step);
    if (dev->model.altup_streams > 0)
        cpu_altup_embed(dev, model, step->num_tokens);
}

struct finish_qkv {
    struct device *dev;
    const struct layer *layer;
    const struct step *step;
};

static void clip_heads(float *x, int n, const struct attn_spec *a) {
    for (int i = 0; a->clip > 0 && i < n; i++)
        x[i] = attn_clipped(a, x[i]);
}

// Bias, norm of each head and rotation, in the order that the spec says, of the heads of one row.
static void finish_heads(const struct device *dev, float *x, int num_heads, const struct attn_spec *a,
                         const float *bias, const struct weight *norm, const struct rope_turn *turn) {
    int d = a->head_dim;
    bool rotated = a->qk_norm == QK_NORM_ROTATED;
    for (int i = 0; bias && i < num_heads * d; i++)
        x[i] += bias[i];
    clip_heads(x, num_heads * d, a);
    if (a->qk_norm == QK_NORM_WHOLE) {
        device_norm(dev, x, x, norm, 0, num_heads * d);
        norm = NULL;
    }
    for (int h = 0; h < num_heads; h++, x += d) {
        if (a->rope >= 0 && rotated)
            rotate_head(x, turn);
        if (norm)
            device_norm(dev, x, x, norm, a->qk_norm == QK_NORM_EACH ? h * d : 0, d);
        if (a->rope >= 0 && !rotated)
            rotate_head(x, turn);
        if (a->qk_norm == QK_NORM_UNIT)
            dev->kernels->rmsnorm(x, x, NULL, d, dev->model.norm_eps);
    }
}

// Rule 17: an int8 cache's keys are turned, and queries so that scores stay.
static void turn_heads(const struct device *dev, float *x, int num_heads, int d, float scale) {
    for (int h = 0; h < num_heads && dev->kv_dtype == DTYPE_I8; h++)
        dev->kernels->hadamard(x + h * d, d, scale);
}

static void finish_row(const struct finish_qkv *job, int t) {
    struct device *dev = job->dev;
    const struct layer *layer = job->layer;
    const struct attn_spec *a = &layer->attn;
    float *const *bias = layer->qkv->bias;
    int position = job->step->positions[t], kv = attn_kv_size(a);
    int64_t slot = job->step->groups[layer->kv_group].slots[t];
    struct rope_turn turn;
    CHECK(position >= 0 && position < dev->limits.max_context);
    if (a->rope >= 0) {
        CHECK(position < dev->ropes[a->rope].filled);
        rope_turn_set(&turn, &dev->ropes[a->rope], job->step, t);
    }
    float *q = dev->q + (size_t)t * (size_t)attn_q_size(a);
    float *key = dev->key + (size_t)t * (size_t)kv;
    float *value = dev->value + (size_t)t * (size_t)kv;
    finish_heads(dev, q, a->heads, a, bias[0], layer->q_norm, &turn);
    float temperature = attn_temperature(a, position);
    for (int i = 0; temperature != 1 && i < attn_q_size(a); i++)
        q[i] *= temperature;
    turn_heads(dev, q, a->heads, a->head_dim, 1.0f / (float)hadamard_size(a->head_dim));
    if (a->shares_kv)
        return;
    finish_heads(dev, key, a->kv_heads, a, bias[1], layer->k_norm, &turn);
    turn_heads(dev, key, a->kv_heads, a->head_dim, 1);
    for (int i = 0; bias[2] && i < kv; i++)
        value[i] += bias[2][i];
    clip_heads(value, kv, a);
    for (int h = 0; a->v_norm && h < kv; h += a->head_dim)
        dev->kernels->rmsnorm(value + h, value + h, NULL, a->head_dim, dev->model.norm_eps);
    if (slot >= 0)
        cpu_kv_write(dev, layer, slot, key, value);
}

static void finish_qkv_worker(void *ctx, int thread, int num_threads) {
    const struct finish_qkv *job = ctx;
    (void)num_threads;
    for (int begin, end; pool_take(job->dev->pool, thread, 1, &begin, &end);)
        for (int t = begin; t < end; t++)
            finish_row(job, t);
}

// The rows that went into a GEMM, before they got its types: raw, or normalised, ldx floats apart.
static struct lora_input floats_of(const struct gemm_input *x, const float *raw, int ldx,
                                   const struct weight *norm) {
    if (!norm)
        return (struct lora_input){.x = raw, .ldx = (size_t)ldx};
    return (struct lora_input){.x = x->data[DTYPE_F32], .ldx = x->stride[DTYPE_F32] / sizeof(float)};
}

static void cpu_qkv(struct device *dev, const struct layer *layer, const struct step *step) {
    if (layer->attn.kind == ATTN_LATENT) {
        cpu_latent_in(dev, layer, step);
        return;
    }
    struct gemm_input x =
        cpu_gemm_input(dev, dev->resid, step->num_tokens, NULL, layer->qkv, layer->attn_norm);
    float *y[3] = {dev->q, dev->key, dev->value};
    int width = attn_q_size(&layer->attn), kv = attn_kv_size(&layer->attn), ldy[3] = {width, kv, kv};
    cpu_matmul(dev, y, ldy, &x, layer->qkv);
    struct lora_input in = floats_of(&x, dev->resid, dev->model.hidden, layer->attn_norm);
    cpu_lora_add(dev, layer, ADAPTER_Q, layer->qkv->num_parts, &in, y, ldy);
    if (layer->attn.gate) {
        x = cpu_gemm_input(dev, dev->resid, step->num_tokens, NULL, layer->attn_gate, layer->attn_norm);
        cpu_matmul(dev, (float *[3]){dev->gate}, (int[3]){width}, &x, layer->attn_gate);
    }
    struct finish_qkv job = {dev, layer, step};
    pool_run_items(dev->pool, finish_qkv_worker, &job, step->num_tokens,
                   (long long)step->num_tokens * width > 1 << 12);
}

static void cpu_attn_prefill(struct device *dev, const struct layer *layer, const struct step *step) {
    cpu_attend(dev, layer, step, step->num_decode, step->num_seqs);
}

static void cpu_attn_decode(struct device *dev, const struct layer *layer, const struct step *step) {
    cpu_attend(dev, layer, step, 0, step->num_decode);
}

// How partial rows are changed and added to the residual stream.
struct add_rows {
    struct device *dev;
    float *second; // as many rows, added to the partial ones; or NULL
    // its expert_post_norm and shared_post_norm first normalise partial and second; or NULL
    const struct layer *own;
    const float *bias;         // or NULL
    const struct weight *norm; // or NULL
    int num_tokens;
};

static void add_worker(void *ctx, int thread, int num_threads) {
    const struct add_rows *job = ctx;
    struct device *dev = job->dev;
    int begin, end, D = dev->model.hidden;
    float scale = model_scale(dev->model.residual_scale);
    bool of_sum = dev->model.block == BLOCK_SUM_NORM;
    pool_partition(job->num_tokens, thread, num_threads, &begin, &end);
    for (int t = begin; t < end; t++) {
        size_t at = (size_t)t * (size_t)D;
        float *x = dev->partial + at, *resid = dev->resid + at;
        if (job->own) {
            device_norm(dev, x, x, job->own->expert_post_norm, 0, D);
            device_norm(dev, job->second + at, job->second + at, job->own->shared_post_norm, 0, D);
        }
        for (int i = 0; job->second && i < D; i++)
            x[i] += job->second[at + (size_t)i];
        if (!adds_apart(dev)) {
            for (int i = 0; i < D; i++)
                resid[i] += x[i];
            continue;
        }
        for (int i = 0; job->bias && i < D; i++)
            x[i] += job->bias[i];
        if (job->norm && !of_sum)
            device_norm(dev, x, x, job->norm, 0, D);
        for (int i = 0; i < D; i++)
            resid[i] += scale * x[i];
        if (job->norm && of_sum)
            device_norm(dev, resid, resid, job->norm, 0, D);
    }
}

static void bias_worker(void *ctx, int thread, int num_threads) {
    const struct add_rows *job = ctx;
    int begin, end, D = job->dev->model.hidden;
    pool_partition(job->num_tokens, thread, num_threads, &begin, &end);
    for (int t = begin; t < end; t++)
        for (int i = 0; i < D; i++)
            job->dev->resid[(size_t)t * (size_t)D + (size_t)i] += job->bias[i];
}

// The sum over ranks of what each has of the tree, x (n).
static void sum_of_ranks(struct device *dev, float *x, size_t n) {
    if (dev->world == 1 || n == 0)
        return;
    uint64_t env = float_env_enter(); // a sum of two parts is a sum of rule 3: subnormals are zero
    device_comm_ok(dev, dev->comm->ops->all_reduce(dev->comm, x, n));
    float_env_leave(env);
}

// resid += residual_scale * post_norm(partial + bias), or the norm is of resid; where nothing is added apart without the
// bias. experts: those of the layer; of a shared one there are as many rows again.
static void add_partial(struct device *dev, const struct layer *experts, const float *bias,
                        const struct weight *post_norm, const struct step *step) {
    size_t n = (size_t)step->num_tokens * (size_t)dev->model.hidden;
    bool twice = experts && experts->down, own = experts && experts->ffn.own_norms;
    struct add_rows job = {
        dev, twice ? dev->partial + n : NULL, own ? experts : NULL, bias, post_norm, step->num_tokens};
    pool_run(dev->pool, add_worker, &job, n > 1 << 15);
}

// Adds to the residual stream: w's output for h, summed by the tree; the output of the adapters of `target`; the
// bias, once.
static void add_projection(struct device *dev, const float *h, const struct layer *layer,
                           enum adapter_target target, const struct weight *w, const struct weight *post_norm,
                           const struct step *step) {
    struct gemm_input x = cpu_gemm_input(dev, h, step->num_tokens, NULL, w, NULL);
    struct lora_input in = {h, (size_t)w->part[0].cols, w};
    int D = dev->model.hidden, ldy[3] = {D};
    bool apart = adds_apart(dev);
    if (dev->world > 1 || apart) {
        cpu_matmul_part(dev, dev->partial, D, &x, w);
        sum_of_ranks(dev, dev->partial, (size_t)step->num_tokens * (size_t)D);
    } else {
        cpu_matmul_add(dev, dev->resid, D, &x, w);
    }
    if (dev->world > 1 && !apart)
        add_partial(dev, NULL, NULL, NULL, step);
    if (target != ADAPTER_TARGETS)
        cpu_lora_add(dev, layer, target, 1, &in, (float *[3]){apart ? dev->partial : dev->resid}, ldy);
    struct add_rows job = {dev, .bias = w->bias[0], .num_tokens = step->num_tokens};
    if (apart)
        add_partial(dev, NULL, w->bias[0], post_norm, step);
    else if (job.bias)
        pool_run(dev->pool, bias_worker, &job, (long long)step->num_tokens * D > 1 << 15);
}

struct gate_rows {
    struct device *dev;
    int num_tokens, width;
};

static void gate_worker(void *ctx, int thread, int num_threads) {
    const struct gate_rows *job = ctx;
    int begin, end;
    pool_partition(job->num_tokens, thread, num_threads, &begin, &end);
    for (int t = begin; t < end; t++) {
        size_t at = (size_t)t * (size_t)job->width;
        job->dev->kernels->gate(job->dev->h + at, job->dev->gate + at, job->width);
    }
}

static void cpu_attn_out(struct device *dev, const struct layer *layer, const struct step *step) {
    struct gate_rows job = {dev, step->num_tokens, attn_q_size(&layer->attn)};
    if (layer->attn.gate)
        pool_run(dev->pool, gate_worker, &job, (long long)job.num_tokens * job.width > 1 << 15);
    if (dev->before)
        memcpy(dev->before, dev->resid, (size_t)step->num_tokens * (size_t)dev->model.hidden * sizeof(float));
    if (layer->attn.kind == ATTN_LATENT)
        cpu_latent_out(dev, layer, step->num_tokens);
    add_projection(dev, dev->h, layer, ADAPTER_OUT, layer->attn_out, layer->attn_post_norm, step);
    if (dev->model.altup_streams > 0)
        cpu_laurel_add(dev, step->num_tokens);
}

static void cpu_mix_out(struct device *dev, const struct layer *layer, const struct step *step) {
    add_projection(dev, dev->mixed, layer, ADAPTER_TARGETS, layer->mix_out, NULL, step);
}

static void cpu_ffn_in(struct device *dev, const struct layer *layer, const struct step *step) {
    if (layer->ffn.experts > 0) {
        cpu_experts_in(dev, layer, step->num_tokens);
        return;
    }
    struct gemm_input x =
        cpu_gemm_input(dev, device_ffn_input(dev), step->num_tokens, NULL, layer->gate_up, layer->ffn_norm);
    if (layer->ffn.sparse || layer->ffn.act == ACT_XIELU || cpu_lora_has(dev, layer, ADAPTER_GATE, 2)) {
        struct lora_input in = floats_of(&x, device_ffn_input(dev), dev->model.hidden, layer->ffn_norm);
        cpu_lora_act(dev, layer, &x, &in);
        return;
    }
    cpu_matmul_act(dev, dev->h, layer->gate_up->part[0].rows, &x, layer->gate_up, layer->ffn.act);
}

static void cpu_ffn_out(struct device *dev, const struct layer *layer, const struct step *step) {
    if (layer->ffn.experts > 0) {
        size_t rows = (size_t)step->num_tokens, D = (size_t)dev->model.hidden;
        cpu_experts_out(dev, layer, step->num_tokens);
        if (layer->ffn.latent) {
            sum_of_ranks(dev, dev->latent, rows * (size_t)layer->ffn.latent);
            cpu_experts_back(dev, layer, step->num_tokens);
            sum_of_ranks(dev, dev->partial + rows * D, layer->down ? rows * D : 0);
        } else {
            sum_of_ranks(dev, dev->partial, (layer->down ? 2 : 1) * rows * D);
        }
        const struct weight *bias = layer->expert_sum_bias;
        add_partial(dev, layer, bias ? bias->vector : NULL, layer->ffn_post_norm, step);
        return;
    }
    add_projection(dev, dev->h, layer, ADAPTER_DOWN, layer->down, layer->ffn_post_norm, step);
}

struct layer_out {
    struct device *dev;
    const struct layer *layer;
    int num_tokens;
};

// act(gate) times the layer's part of the embedding
static void layer_gate_worker(void *ctx, int thread, int num_threads) {
    const struct layer_out *job = ctx;
    int begin, end, P = job->dev->model.layer_embed, L = job->dev->model.num_layers;
    pool_partition(job->num_tokens, thread, num_threads, &begin, &end);
    for (int t = begin; t < end; t++) {
        const float *own =
            job->dev->layer_embed + ((size_t)t * (size_t)L + (size_t)job->layer->index) * (size_t)P;
        for (int i = 0; i < P; i++)
            job->dev->h[(size_t)t * (size_t)P + (size_t)i] *= own[i];
    }
}

static void layer_out_worker(void *ctx, int thread, int num_threads) {
    const struct layer_out *job = ctx;
    struct device *dev = job->dev;
    int begin, end, D = dev->model.hidden;
    float scale = job->layer->layer_scale ? job->layer->layer_scale->vector[0] : 1;
    pool_partition(job->num_tokens, thread, num_threads, &begin, &end);
    for (int t = begin; t < end; t++) {
        float *x = dev->resid + (size_t)t * (size_t)D, *add = dev->partial + (size_t)t * (size_t)D;
        if (dev->model.layer_embed > 0)
            device_norm(dev, add, add, job->layer->embed_norm, 0, D);
        for (int i = 0; dev->model.layer_embed > 0 && i < D; i++)
            x[i] += add[i];
        for (int i = 0; i < D; i++)
            x[i] *= scale;
    }
}

static void cpu_layer_out(struct device *dev, const struct layer *layer, const struct step *step) {
    int T = step->num_tokens, P = dev->model.layer_embed;
    struct layer_out job = {dev, layer, T};
    bool altup = dev->model.altup_streams > 0;
    if (altup)
        cpu_altup_correct(dev, layer, T);
    if (P > 0) {
        struct gemm_input x =
            cpu_gemm_input(dev, altup ? dev->partial : dev->resid, T, NULL, layer->embed_gate, NULL);
        cpu_matmul_act(dev, dev->h, P, &x, layer->embed_gate, layer->ffn.act);
        pool_run(dev->pool, layer_gate_worker, &job, (long long)T * P > 1 << 15);
        x = cpu_gemm_input(dev, dev->h, T, NULL, layer->embed_out, NULL);
        cpu_matmul(dev, (float *[3]){dev->partial}, (int[3]){dev->model.hidden}, &x, layer->embed_out);
    }
    if (altup)
        cpu_altup_add(dev, layer, T);
    else
        pool_run(dev->pool, layer_out_worker, &job, (long long)T * dev->model.hidden > 1 << 15);
}

// Copied in place: host and device are one.
static void cpu_resid_export(struct device *dev, float *dst, const struct step *step) {
    size_t n = (size_t)step->num_tokens * (size_t)dev->model.hidden;
    memcpy(dst, dev->resid + (size_t)dev->rank * backend_resid_part(n, dev->world),
           backend_resid_count(n, dev->rank, dev->world) * sizeof *dst);
}

static void cpu_resid_import(struct device *dev, const float *src, const struct step *step) {
    size_t n = (size_t)step->num_tokens * (size_t)dev->model.hidden;
    if (dev->world == 1)
        memcpy(dev->resid, src, n * sizeof *src);
    else
        device_comm_ok(dev, dev->comm->ops->all_gather(dev->comm, dev->resid, src,
                                                       backend_resid_part(n, dev->world) * sizeof *src));
}

static enum status cpu_sync(struct device *dev, struct step_out *out, struct err *err) {
    CHECK(dev->num_synced < dev->num_begun);
    const struct cpu_result *r = &dev->result[++dev->num_synced & 1];
    if (dev->failure.code != STATUS_OK)
        return err_set(err, STATUS_DEVICE, "%s", dev->failure.msg);
    *out = (struct step_out){.ids = r->ids,
                             .logprob = r->logprob,
                             .rank = r->rank,
                             .share = r->share,
                             .top_ids = r->top_ids,
                             .top_logprobs = r->top_logprobs,
                             .failed = r->failed,
                             .logits = r->logits,
                             .hidden = r->hidden,
                             .max_top = MAX_TOP_LOGPROBS,
                             .experts = r->experts};
    return STATUS_OK;
}

const struct backend_ops backend_cpu = {
    .abi = BACKEND_ABI,
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .info = cpu_info,
    .weight_load = cpu_weight_load,
    .weight_borrow = cpu_weight_borrow,
    .kv_block_bytes = cpu_kv_block_bytes,
    .reserve = cpu_reserve,
    .adapter_load = cpu_adapter_load,
    .adapter_free = cpu_adapter_free,
    .step_begin = cpu_step_begin,
    .embed = cpu_embed,
    .layer_in = cpu_layer_in,
    .qkv = cpu_qkv,
    .attn_prefill = cpu_attn_prefill,
    .attn_decode = cpu_attn_decode,
    .attn_out = cpu_attn_out,
    .mix = cpu_mix,
    .mix_out = cpu_mix_out,
    .ffn_in = cpu_ffn_in,
    .ffn_out = cpu_ffn_out,
    .layer_out = cpu_layer_out,
    .head = cpu_head,
    .resid_export = cpu_resid_export,
    .resid_import = cpu_resid_import,
    .step_end = cpu_step_end,
    .sync = cpu_sync,
    .kv_copy = cpu_kv_copy,
    .kv_host_page = cpu_kv_host_page,
    .kv_host_clear = cpu_kv_host_clear,
};
