// The reference backend: every phase composed of the primitives of ref_ops.h, one row after another, keys and
// values in the canonical order of kv_export. Slow and plain on purpose. Over 600 lines: every phase, once.
#include "ref_adapters.h"
#include "ref_latent.h"
#include "ref_mix.h"
#include "ref_sizes.h"
#include "ref_streams.h"
#include "ref_weight.h"

#include "hadamard.h"
#include "inspect.h"
#include "log.h"
#include "rope.h"
#include "weight_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct ref_result { // step_out points to these
    int32_t *ids, *rank, *top_ids;
    float *logprob, *share, *top_logprobs, *logits, *hidden;
    uint8_t *failed;
    int num_rows;
};

struct device {
    struct model_config model;
    enum dtype kv_dtype;
    int block_size;
    struct weight *weights;
    size_t weight_bytes;
    struct step_limits limits;
    float *resid, *q, *h;  // (T, D), (T, H*d), (T, max(H*d, H*v, F, S + top_k*F))
    float *norm, *weighed; // (D)
    float *shared;         // (D) what the shared expert gives
    float *wide, *scores;  // (max(H*d, U + H*(n+r), 2*F, D)), (V)
    float *before;         // (T, D) if model_keeps_before(): the residual stream without attention's part
    float *mixed, *mix_in, *mix_gate; // (T, heads*P), (2, channels or 3*D), (heads*P + 2*heads)
    float *layer_embed, *layer_row;   // (T, L*P) what layers take of each token; (L*P)
    float *altup, *laurel, *low;      // (T, N, D) of which the first is predicted; (T, D); (R)
    float *stream;                    // (D)
    int *experts;                     // (T, top_k) of the rows of this layer,
    float *expert_weights;            // and their weights
    double *sum;                      // (D) over them
    float *keys, *values;             // (max_context, d)
    char *host_kv;                    // (num_host_pages, ...) likewise
    char *kv; // (num_blocks, kv_layers, 2) keys or values of a block as kv_export gives them
    struct ref_result result[2]; // of steps with odd and even seq
    uint64_t num_begun, num_synced;
    bool out_of_memory;
    int rank, world;
    struct comm *comm; // NULL: one rank
    bool apart;        // the ranks have lost each other
    struct ref_adapters adapters;
};

static struct device *ref_open(const struct backend_host *host, const struct device_config *config,
                               struct err *err) {
    (void)host;
    const struct model_config *m = config->model;
    if (config->kv_dtype != DTYPE_F32 && config->kv_dtype != DTYPE_F16 && config->kv_dtype != DTYPE_BF16 &&
        config->kv_dtype != DTYPE_I8 && config->kv_dtype != DTYPE_F8_E4M3) {
        err_set(err, STATUS_INVALID, "kv cache dtype %s is not F32, F16, BF16, I8 or F8_E4M3",
                dtype_name(config->kv_dtype));
        return NULL;
    }
    for (int i = 0; i < m->num_attn; i++) {
        const struct attn_spec *a = &m->attn[i];
        if (config->block_size < 1 || a->kv_heads < 1 || a->heads % a->kv_heads != 0 || a->head_dim > 1024) {
            err_set(err, STATUS_INVALID, "block size %d, %d heads, %d kv heads, head size %d",
                    config->block_size, a->heads, a->kv_heads, a->head_dim);
            return NULL;
        }
    }
    struct device *dev = calloc(1, sizeof *dev);
    if (!dev) {
        err_set(err, STATUS_NOMEM, "no memory for a device");
        return NULL;
    }
    dev->model = *m;
    dev->kv_dtype = config->kv_dtype;
    dev->block_size = config->block_size;
    dev->rank = config->rank;
    dev->world = config->world > 1 ? config->world : 1;
    dev->comm = config->comm;
    CHECK(dev->world == 1 || dev->comm);
    return dev;
}

static void weight_free(struct weight *w) {
    for (int i = 0; i < 3; i++) {
        free(w->memory[i]);
        free(w->bias[i]);
    }
    free(w);
}

static enum status ref_adapter_load(struct device *dev, int slot, const struct adapter_desc *desc,
                                    struct err *err) {
    return ref_adapters_load(&dev->adapters, slot, desc, err);
}

static void ref_adapter_free(struct device *dev, int slot) { ref_adapters_unload(&dev->adapters, slot); }

static void ref_close(struct device *dev) {
    if (!dev)
        return;
    ref_adapters_close(&dev->adapters);
    while (dev->weights) {
        struct weight *next = dev->weights->next;
        weight_free(dev->weights);
        dev->weights = next;
    }
    for (int i = 0; i < 2; i++) {
        struct ref_result *r = &dev->result[i];
        free(r->ids), free(r->rank), free(r->share), free(r->top_ids), free(r->logprob),
            free(r->top_logprobs), free(r->logits), free(r->hidden), free(r->failed);
    }
    free(dev->resid), free(dev->q), free(dev->h), free(dev->mixed), free(dev->mix_in), free(dev->mix_gate);
    free(dev->experts), free(dev->expert_weights), free(dev->sum), free(dev->layer_embed),
        free(dev->layer_row), free(dev->altup), free(dev->laurel), free(dev->low), free(dev->stream);
    free(dev->before), free(dev->norm), free(dev->weighed), free(dev->shared), free(dev->wide),
        free(dev->scores), free(dev->keys), free(dev->values), free(dev->kv), free(dev->host_kv);
    free(dev);
}

static void ref_info(struct device *dev, struct device_info *info) {
    memset(info, 0, sizeof *info);
    snprintf(info->name, sizeof info->name, "ref");
    info->memory_free = (size_t)1 << 30;
    info->weight_bytes = dev->weight_bytes;
    info->kv_dtype = dev->kv_dtype;
}

static struct weight *ref_weight_load(struct device *dev, const struct weight_desc *desc, struct err *err) {
    if (!weight_check(&dev->model, desc, err))
        return NULL;
    struct weight *w = calloc(1, sizeof *w);
    if (!w) {
        err_set(err, STATUS_NOMEM, "no memory for a weight");
        return NULL;
    }
    w->role = desc->role;
    w->total = desc->total;
    for (int i = 0; i < 3 && desc->part[i].data; i++) {
        const struct tensor *t = &desc->part[i];
        int64_t rows = 1, cols = t->shape[t->ndim - 1];
        for (int d = 0; d < t->ndim - 1; d++) // of all experts
            rows *= t->shape[d];
        size_t bytes = (size_t)rows * (size_t)cols * sizeof(float),
               bias = desc->bias[i].data ? sizeof(float) : 0;
        for (int d = 0; d < desc->bias[i].ndim; d++)
            bias *= (size_t)desc->bias[i].shape[d];
        w->memory[i] = malloc(bytes);
        if (bias)
            w->bias[i] = malloc(bias);
        if (!w->memory[i] || (bias && !w->bias[i])) {
            err_set(err, STATUS_NOMEM, "no memory for a weight of %zu bytes", bytes);
            weight_free(w);
            return NULL;
        }
        w->part[i] =
            ref_decode(w->memory[i], &(struct ref_matrix){t->data, t->dtype, (int)rows, (int)cols, NULL});
        if (w->bias[i])
            memcpy(w->bias[i], desc->bias[i].data, bias);
        w->part[i].bias = w->bias[i];
        w->num_parts++;
        dev->weight_bytes += bytes;
    }
    w->next = dev->weights;
    dev->weights = w;
    return w;
}

// Bytes of the keys, or the values, of a place
static size_t kv_place_bytes(const struct device *dev) {
    return (size_t)dev->block_size * backend_kv_place_bytes(&dev->model, dev->kv_dtype);
}

static size_t ref_kv_block_bytes(struct device *dev) {
    const struct model_config *m = &dev->model;
    size_t keys = (size_t)(attn_kv_vectors(&m->attn[0]) * m->kv_layers) * kv_place_bytes(dev);
    size_t states = (size_t)m->state_layers * (size_t)model_state_size(m) * sizeof(float);
    return states == 0 ? keys : (keys > states ? keys + 3 : states) / 4 * 4;
}

static void *zeroed(struct device *dev, size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size);
    dev->out_of_memory |= !p;
    return p;
}

static enum status ref_reserve(struct device *dev, const struct step_limits *limits, struct err *err) {
    const struct model_config *m = &dev->model;
    size_t T = (size_t)limits->max_tokens, R = (size_t)limits->max_rows, V = (size_t)m->vocab;
    size_t q = (size_t)max_q_size(m), F = (size_t)max_ffn(m), d = (size_t)max_head_dim(m);
    size_t D = (size_t)m->hidden, scratch = (size_t)max_attn_size(m, true),
           out = (size_t)max_attn_size(m, false);
    size_t wide = scratch > 2 * F ? scratch : 2 * F, P = (size_t)m->layer_embed, own = m->mtp_layer ? D : P;
    wide = wide > 2 * own ? wide : 2 * own;
    int v = 0, in = 0, gate = 0;
    dev->limits = *limits;
    dev->resid = zeroed(dev, T * D + 4 * COMM_MAX_SUM, sizeof(float)); // all whole parts of ranks
    dev->q = zeroed(dev, T * q, sizeof(float));
    dev->h = zeroed(dev, T * (out > F ? out : F) + P, sizeof(float));
    dev->experts = zeroed(dev, T * (size_t)max_top_k(m), sizeof *dev->experts);
    dev->expert_weights = zeroed(dev, T * (size_t)max_top_k(m), sizeof(float));
    dev->sum = zeroed(dev, D, sizeof *dev->sum);
    dev->norm = zeroed(dev, D, sizeof(float));
    dev->weighed = zeroed(dev, D, sizeof(float));
    dev->shared = zeroed(dev, D, sizeof(float));
    dev->before = zeroed(dev, model_keeps_before(m) ? T * D : 0, sizeof(float));
    dev->wide = zeroed(dev, wide > D ? wide : D, sizeof(float));
    dev->scores = zeroed(dev, V, sizeof(float));
    for (int i = 0; i < m->num_mix; i++) {
        v = max_int(v, mix_values(&m->mix[i]));
        in = max_int(in, mix_in_size(&m->mix[i]));
        gate = max_int(gate, mix_gate_size(&m->mix[i]));
    }
    dev->layer_embed = zeroed(dev, T * P * (size_t)m->num_layers, sizeof(float));
    dev->layer_row = zeroed(dev, P * (size_t)m->num_layers, sizeof(float));
    dev->altup = zeroed(dev, T * D * (size_t)m->altup_streams, sizeof(float));
    dev->laurel = zeroed(dev, m->altup_streams > 0 ? T * D : 0, sizeof(float));
    dev->low = zeroed(dev, (size_t)m->laurel_rank, sizeof(float));
    dev->stream = zeroed(dev, D, sizeof(float));
    dev->mixed = zeroed(dev, T * (size_t)v, sizeof(float));
    dev->mix_in = zeroed(dev, 2 * (size_t)in, sizeof(float));
    dev->mix_gate = zeroed(dev, (size_t)gate, sizeof(float));
    dev->out_of_memory |= !ref_adapters_open(&dev->adapters, m->num_layers, limits, wide > D ? wide : D);
    dev->keys = zeroed(dev, (size_t)limits->max_context * d, sizeof(float));
    dev->values = zeroed(dev, (size_t)limits->max_context * d, sizeof(float));
    dev->kv = zeroed(dev, (size_t)limits->num_blocks, ref_kv_block_bytes(dev));
    dev->host_kv = zeroed(dev, (size_t)limits->num_host_pages, ref_kv_block_bytes(dev));
    for (int i = 0; i < 2; i++) {
        struct ref_result *r = &dev->result[i];
        r->ids = zeroed(dev, R, sizeof *r->ids);
        r->logprob = zeroed(dev, R, sizeof *r->logprob);
        r->rank = zeroed(dev, R, sizeof *r->rank);
        r->share = zeroed(dev, R, sizeof *r->share);
        r->top_ids = zeroed(dev, R * MAX_TOP_LOGPROBS, sizeof *r->top_ids);
        r->top_logprobs = zeroed(dev, R * MAX_TOP_LOGPROBS, sizeof *r->top_logprobs);
        r->failed = zeroed(dev, R, 1);
        if (limits->keep_logits)
            r->logits = zeroed(dev, R * V, sizeof *r->logits);
        if (limits->keep_hidden)
            r->hidden = zeroed(dev, R * D, sizeof *r->hidden);
    }
    if (dev->out_of_memory)
        return err_set(err, STATUS_NOMEM, "no memory for steps of %d tokens and %d blocks",
                       limits->max_tokens, limits->num_blocks);
    return STATUS_OK;
}

// ---- phases

static bool ref_step_begin(struct device *dev, const struct step *step) {
    CHECK(step->num_tokens <= dev->limits.max_tokens && step->num_rows <= dev->limits.max_rows &&
          step->num_seqs <= dev->limits.max_seqs);
    CHECK(dev->num_begun - dev->num_synced < 2);
    ref_adapters_begin(&dev->adapters, step);
    dev->num_begun++;
    return false;
}

static void ref_step_end(struct device *dev) { (void)dev; }

// y = x normalised as the model does, by weights of the norm from `first` on
static void norm_row(const struct device *dev, float *y, const float *x, const struct weight *norm, int first,
                     int n) {
    const float *w = (const float *)norm->part[0].data + first;
    if (dev->model.norm == NORM_LAYER)
        ref_layernorm(y, x, w, norm->part[0].bias, n, dev->model.norm_eps);
    else
        ref_rmsnorm(y, x, w, n, dev->model.norm_eps);
}

static int32_t token_of(const struct device *dev, const struct weight *table, const struct step *step,
                        int t) {
    const struct ref_result *before = &dev->result[(dev->num_begun - 1) & 1];
    int32_t id = step->ids[t];
    if (id < 0) {
        CHECK(-1 - id < before->num_rows);
        id = before->ids[-1 - id];
    }
    CHECK(id < table->part[0].rows);
    return id;
}

// Makes each layer's own embedding of each token.
static void embed_layers(struct device *dev, const struct model *model, const struct step *step) {
    int D = dev->model.hidden, L = dev->model.num_layers, P = dev->model.layer_embed;
    for (int t = 0; t < step->num_tokens; t++) {
        float *to = dev->layer_embed + (size_t)t * (size_t)(L * P);
        int32_t id = token_of(dev, model->embed, step, t);
        id = id < dev->model.layer_vocab ? id : 0;
        ref_matvec(dev->layer_row, dev->resid + (size_t)t * (size_t)D, &model->layer_embed_in->part[0]);
        for (int i = 0; i < L * P; i++)
            dev->layer_row[i] = (float)((double)dev->layer_row[i] / sqrt(D));
        for (int l = 0; l < L; l++)
            norm_row(dev, to + l * P, dev->layer_row + l * P, model->layer_embed_norm, 0, P);
        for (int i = 0; i < L * P; i++) {
            double own = (double)ref_element(&model->layer_embed->part[0], id, i) * sqrt(P);
            to[i] = (float)(((double)to[i] + own) / sqrt(2));
        }
    }
}

// coefs: of a layer, and matrices (N - 1) of the model, or NULL
static struct ref_altup streams_of(const struct device *dev, const struct layer *layer,
                                   const struct weight *coefs, const struct weight *const *matrices) {
    struct ref_altup s = {dev->model.altup_streams, dev->model.hidden, .eps = dev->model.norm_eps};
    s.scratch = dev->stream;
    for (int n = 0; n < s.num - 1 && matrices; n++)
        s.matrices[n] = matrices[n]->part;
    if (coefs)
        s.norm = layer->stream_norm->part[0].data, s.router = layer->stream_router->part,
        s.coefs = coefs->part;
    return s;
}

static float *streams_at(const struct device *dev, int t) {
    return dev->altup + (size_t)(t * dev->model.altup_streams) * (size_t)dev->model.hidden;
}

static void ref_layer_in(struct device *dev, const struct layer *layer, const struct step *step) {
    int D = dev->model.hidden;
    const struct ref_altup s = streams_of(dev, layer, layer->stream_predict, NULL);
    for (int t = 0; t < step->num_tokens; t++) {
        float *x = dev->resid + (size_t)t * (size_t)D, *laurel = dev->laurel + (size_t)t * (size_t)D;
        ref_altup_predict(streams_at(dev, t), x, &s);
        norm_row(dev, dev->norm, x, layer->attn_norm, 0, D);
        ref_matvec(dev->low, dev->norm, &layer->laurel_left->part[0]);
        ref_matvec(laurel, dev->low, &layer->laurel_right->part[0]);
        norm_row(dev, laurel, laurel, layer->laurel_norm, 0, D);
        for (int i = 0; i < D; i++)
            laurel[i] += dev->norm[i];
    }
}

// Gates that do not lie high enough among all of the row, x (F of the rank), become 0.
static void cut_gates(struct device *dev, const struct layer *layer, float *x) {
    int F = layer->gate_up->part[0].rows;
    double all = layer->down->total ? (double)layer->down->total : F;
    float sum[2] = {0, 0};
    double mean = 0;
    for (int pass = 0; pass < 2; pass++) {
        double own = 0;
        for (int i = 0; i < F; i++)
            own += pass == 0 ? (double)x[i] : ((double)x[i] - mean) * ((double)x[i] - mean);
        sum[pass] = (float)own;
        if (dev->comm)
            dev->apart |= dev->comm->ops->all_reduce(dev->comm, &sum[pass], 1) != STATUS_OK;
        mean = pass == 0 ? (double)sum[0] / all : mean;
    }
    double least = mean + sqrt((double)sum[1] / all) * (double)layer->ffn.deviations;
    for (int i = 0; i < F; i++)
        x[i] = (double)x[i] < least ? 0 : (float)((double)x[i] - least);
}

// The residual stream of an MTP layer.
static void embed_mtp(struct device *dev, const struct model *model, const struct step *step) {
    int D = dev->model.hidden, hidden_at = dev->model.mtp_hidden_first ? 0 : D;
    float *embed = dev->wide + (D - hidden_at);
    CHECK(step->num_embeds == step->num_tokens);
    for (int t = 0; t < step->num_tokens; t++) {
        for (int i = 0, id = token_of(dev, model->embed, step, t); i < D; i++)
            embed[i] = ref_element(&model->embed->part[0], id, i) * model_scale(dev->model.embed_scale);
        norm_row(dev, embed, embed, model->mtp_embed_norm, 0, D);
        norm_row(dev, dev->wide + hidden_at, step->embeds + (size_t)t * (size_t)D, model->mtp_hidden_norm, 0,
                 D);
        ref_matvec(dev->resid + (size_t)t * (size_t)D, dev->wide, &model->mtp_proj->part[0]);
    }
}

static void ref_embed(struct device *dev, const struct model *model, const struct step *step) {
    const struct weight *table = model->embed;
    int D = dev->model.hidden;
    if (model->mtp_proj) {
        embed_mtp(dev, model, step);
        return;
    }
    for (int t = 0, e = 0; t < step->num_tokens; t++) {
        const float *own = NULL;
        if (e < step->num_embeds && step->embed_rows[e] == t)
            own = step->embeds + (size_t)e++ * (size_t)D;
        int32_t id = own ? 0 : token_of(dev, table, step, t);
        float *row = dev->resid + (size_t)t * (size_t)D;
        for (int i = 0; i < D; i++) {
            row[i] =
                (own ? own[i] : ref_element(&table->part[0], id, i)) * model_scale(dev->model.embed_scale);
            if (model->types)
                row[i] += ref_element(&model->types->part[0], step->types ? step->types[t] : 0, i);
            if (model->positions)
                row[i] += ref_element(&model->positions->part[0], step->positions[t], i);
        }
        if (model->embed_norm)
            norm_row(dev, row, row, model->embed_norm, 0, D);
    }
    if (dev->model.layer_embed > 0)
        embed_layers(dev, model, step);
    const struct ref_altup s = streams_of(dev, NULL, NULL, model->stream_in);
    for (int t = 0; t < step->num_tokens && s.num > 0; t++)
        ref_altup_embed(streams_at(dev, t), dev->resid + (size_t)t * (size_t)D, &s);
}

static char *kv_block(struct device *dev, int64_t block) {
    return dev->kv + (size_t)block * ref_kv_block_bytes(dev);
}

// Where the key (which = 0) or value (1) of a kv head of a slot is; *scale: where its scale is, with I8.
static char *kv_at(struct device *dev, const struct layer *layer, int which, int64_t slot, int head,
                   char **scale) {
    const struct attn_spec *a = &layer->attn;
    size_t row = dtype_row_bytes(dev->kv_dtype, a->head_dim);
    size_t all = (size_t)(dev->block_size * a->kv_heads);
    size_t vector = (size_t)(slot % dev->block_size * a->kv_heads + head);
    size_t index = (size_t)(layer->kv_layer * attn_kv_vectors(a) + which * attn_kv_places(a));
    char *half = kv_block(dev, slot / dev->block_size) + index * kv_place_bytes(dev);
    *scale = half + all * row + vector * sizeof(float);
    return half + vector * row;
}

// x (K, d)
static void kv_store(struct device *dev, const struct layer *layer, int which, int64_t slot, const float *x) {
    int d = layer->attn.head_dim;
    char *scale;
    for (int h = 0; h < layer->attn.kv_heads; h++, x += d) {
        char *dst = kv_at(dev, layer, which, slot, h, &scale);
        if (dev->kv_dtype == DTYPE_I8) {
            float s;
            ref_quantise((int8_t *)dst, &s, x, d);
            memcpy(scale, &s, sizeof s);
        } else {
            for (int i = 0; i < d; i++)
                ref_store(dst + dtype_row_bytes(dev->kv_dtype, i), dev->kv_dtype, x[i]);
        }
    }
}

// x (d)
static void kv_fetch(struct device *dev, const struct layer *layer, int which, int64_t slot, int head,
                     float *x) {
    char *scale, *src = kv_at(dev, layer, which, slot, head, &scale);
    for (int i = 0; i < layer->attn.head_dim; i++)
        if (dev->kv_dtype == DTYPE_I8)
            x[i] = (float)((int8_t *)src)[i] * ref_fetch(scale, DTYPE_F32);
        else
            x[i] = ref_fetch(src + dtype_row_bytes(dev->kv_dtype, i), dev->kv_dtype);
}

// Norm of each head by its own weight where the layer has one, and rotation.
static void finish_heads(struct device *dev, const struct attn_spec *a, float *x, int num_heads,
                         const struct weight *norm, const int32_t positions[ROPE_AXES]) {
    bool whole = a->qk_norm == QK_NORM_WHOLE, unit = a->qk_norm == QK_NORM_UNIT;
    for (int i = 0; i < num_heads * a->head_dim; i++)
        x[i] = attn_clipped(a, x[i]);
    if (whole)
        norm_row(dev, x, x, norm, 0, num_heads * a->head_dim);
    for (int h = 0; h < num_heads; h++, x += a->head_dim) {
        if (a->rope >= 0 && a->qk_norm == QK_NORM_ROTATED)
            ref_rope(x, &dev->model.ropes[a->rope], positions);
        if (norm && !whole)
            norm_row(dev, x, x, norm, a->qk_norm == QK_NORM_EACH ? h * a->head_dim : 0, a->head_dim);
        if (a->rope >= 0 && a->qk_norm != QK_NORM_ROTATED)
            ref_rope(x, &dev->model.ropes[a->rope], positions);
        if (unit)
            ref_rmsnorm(x, x, NULL, a->head_dim, dev->model.norm_eps);
    }
}

// As an int8 cache wants its keys, and the queries that meet them.
static void turn_heads(const struct device *dev, float *x, int num_heads, int d, double scale) {
    for (int h = 0; h < num_heads && dev->kv_dtype == DTYPE_I8; h++)
        ref_hadamard(x + h * d, d, scale);
}

// x into dev->norm, normalised where there is a norm
static void normalise(struct device *dev, const float *x, const struct weight *norm) {
    if (norm)
        norm_row(dev, dev->norm, x, norm, 0, dev->model.hidden);
    else
        memcpy(dev->norm, x, (size_t)dev->model.hidden * sizeof *x);
}

static void latent_row(struct device *dev, const struct layer *layer, int t, int position, int64_t slot) {
    const struct attn_spec *a = &layer->attn;
    struct ref_latent w = ref_latent_weights(layer, dev->model.norm_eps);
    ref_latent_in(dev->q + (size_t)t * (size_t)q_size(a), dev->keys, &w, a,
                  a->rope >= 0 ? &dev->model.ropes[a->rope] : NULL, dev->norm, position, dev->wide);
    if (slot >= 0)
        kv_store(dev, layer, 0, slot, dev->keys);
}

static void ref_qkv(struct device *dev, const struct layer *layer, const struct step *step) {
    const struct attn_spec *a = &layer->attn;
    const int64_t *slots = step->groups[layer->kv_group].slots;
    int D = dev->model.hidden;
    for (int t = 0; t < step->num_tokens; t++) {
        const float *x = dev->resid + (size_t)t * (size_t)D;
        float *head = dev->q + (size_t)t * (size_t)q_size(a);
        int32_t turn[ROPE_AXES];
        for (int i = 0; i < ROPE_AXES; i++)
            turn[i] =
                step->rope_positions ? step->rope_positions[i * step->num_tokens + t] : step->positions[t];
        normalise(dev, x, layer->attn_norm);
        if (a->kind == ATTN_LATENT) {
            latent_row(dev, layer, t, step->positions[t], slots[t]);
            continue;
        }
        ref_matvec(head, dev->norm, &layer->qkv->part[0]);
        ref_adapters_add(&dev->adapters, head, dev->norm, layer->index, ADAPTER_Q, t);
        finish_heads(dev, a, head, a->heads, layer->q_norm, turn);
        for (int i = 0; i < q_size(a); i++)
            head[i] *= attn_temperature(a, step->positions[t]);
        turn_heads(dev, head, a->heads, a->head_dim, 1.0 / hadamard_size(a->head_dim));
        if (slots[t] < 0 || a->shares_kv)
            continue;
        CHECK(slots[t] < (int64_t)dev->limits.num_blocks * dev->block_size);
        for (int which = 0; which < 2; which++) {
            ref_matvec(dev->wide, dev->norm, &layer->qkv->part[1 + which]);
            ref_adapters_add(&dev->adapters, dev->wide, dev->norm, layer->index,
                             which ? ADAPTER_V : ADAPTER_K, t);
            if (which == 0) {
                finish_heads(dev, a, dev->wide, a->kv_heads, layer->k_norm, turn);
                turn_heads(dev, dev->wide, a->kv_heads, a->head_dim, 1);
            }
            for (int i = 0; which == 1 && i < attn_kv_size(a); i++)
                dev->wide[i] = attn_clipped(a, dev->wide[i]);
            for (int h = 0; which == 1 && a->v_norm && h < a->kv_heads; h++)
                ref_rmsnorm(dev->wide + h * a->head_dim, dev->wide + h * a->head_dim, NULL, a->head_dim,
                            dev->model.norm_eps);
            kv_store(dev, layer, which, slots[t], dev->wide);
        }
    }
}

// Attention of the rows of sequence s.
static void attend_sequence(struct device *dev, const struct layer *layer, const struct step *step, int s) {
    const struct attn_spec *a = &layer->attn;
    const struct step_group *pages = &step->groups[layer->kv_group];
    const int32_t *blocks = pages->block_ids + pages->block_start[s];
    int d = a->head_dim, group = a->heads / a->kv_heads;
    const float *values = a->kind == ATTN_LATENT ? dev->keys : dev->values;
    int context = step->context_len[s], first, begin, end;
    attn_seen(a, step->positions[step->query_start[s]], context, &first, &end);
    const float *sinks = layer->sinks ? layer->sinks->part[0].data : NULL;
    for (int kvh = 0; kvh < a->kv_heads; kvh++) {
        CHECK(context <= dev->limits.max_context);
        for (int p = first; p < context; p++) {
            int64_t slot = (int64_t)blocks[p / dev->block_size] * dev->block_size + p % dev->block_size;
            kv_fetch(dev, layer, 0, slot, kvh, dev->keys + (size_t)p * (size_t)d);
            if (a->kind != ATTN_LATENT)
                kv_fetch(dev, layer, 1, slot, kvh, dev->values + (size_t)p * (size_t)d);
        }
        for (int t = step->query_start[s]; t < step->query_start[s + 1]; t++) {
            attn_seen(a, step->positions[t], context, &begin, &end);
            for (int g = 0; g < group; g++) {
                size_t head = (size_t)t * (size_t)q_size(a) + (size_t)((kvh * group + g) * d);
                ref_attention(dev->h + head, dev->q + head, dev->keys + (size_t)begin * (size_t)d,
                              values + (size_t)begin * (size_t)d, end - begin, d, d, (double)a->scale,
                              (double)a->softcap, sinks ? (double)sinks[kvh * group + g] : -INFINITY);
            }
        }
    }
}

static void ref_attn_prefill(struct device *dev, const struct layer *layer, const struct step *step) {
    for (int s = step->num_decode; s < step->num_seqs; s++)
        attend_sequence(dev, layer, step, s);
}

static void ref_attn_decode(struct device *dev, const struct layer *layer, const struct step *step) {
    for (int s = 0; s < step->num_decode; s++)
        attend_sequence(dev, layer, step, s);
}

static void ref_mix_phase(struct device *dev, const struct layer *layer, const struct step *step) {
    const struct ref_mix m = ref_mix_weights(layer, dev->model.norm_eps);
    const struct step_group *pages = &step->groups[layer->state_group];
    size_t size = (size_t)model_state_size(&dev->model), v = (size_t)mix_values(&layer->mix);
    for (int s = 0; s < step->num_seqs; s++) {
        float *state = (float *)(void *)kv_block(dev, pages->block_ids[pages->block_start[s]]) +
                       (size_t)layer->state_layer * size;
        if (step->positions[step->query_start[s]] == 0)
            memset(state, 0, size * sizeof *state);
        for (int t = step->query_start[s]; t < step->query_start[s + 1]; t++) {
            normalise(dev, dev->resid + (size_t)t * (size_t)dev->model.hidden, layer->attn_norm);
            ref_project(dev->mix_in, dev->norm, layer->mix_in);
            ref_project(dev->mix_gate, dev->norm, layer->mix_gate);
            ref_mix(dev->mixed + (size_t)t * v, dev->mix_in, dev->mix_in + mix_in_size(&layer->mix),
                    dev->mix_gate, state, &m);
        }
    }
}

// The sum over the ranks of x (D).
static void sum_ranks(struct device *dev, float *x) {
    if (dev->comm)
        dev->apart |= dev->comm->ops->all_reduce(dev->comm, x, (size_t)dev->model.hidden) != STATUS_OK;
}

// x += residual_scale * post_norm(dev->wide + bias), bias or NULL; or the norm is of the sum
static void add_wide(struct device *dev, float *x, const float *bias, const struct weight *post_norm) {
    int D = dev->model.hidden;
    float scale = model_scale(dev->model.residual_scale);
    for (int i = 0; bias && i < D; i++)
        dev->wide[i] += bias[i];
    bool sum = dev->model.block == BLOCK_SUM_NORM;
    if (post_norm && !sum)
        norm_row(dev, dev->wide, dev->wide, post_norm, 0, D);
    for (int i = 0; i < D; i++)
        x[i] += scale * dev->wide[i];
    if (post_norm && sum)
        norm_row(dev, x, x, post_norm, 0, D);
}

// resid += residual_scale * post_norm(all_reduce(h · Wᵀ) + adapters + bias)
static void add_projection(struct device *dev, const float *h, const struct layer *layer,
                           enum adapter_target target, const struct weight *w, const struct weight *post_norm,
                           const struct step *step) {
    struct ref_matrix part = w->part[0];
    if (dev->comm)
        part.bias = NULL; // every rank has it, the sum takes it once
    for (int t = 0; t < step->num_tokens; t++) {
        ref_matvec(dev->wide, h + (size_t)t * (size_t)part.cols, &part);
        if (target != ADAPTER_TARGETS)
            ref_adapters_add(&dev->adapters, dev->wide, h + (size_t)t * (size_t)part.cols, layer->index,
                             target, t);
        sum_ranks(dev, dev->wide);
        add_wide(dev, dev->resid + (size_t)t * (size_t)part.rows, dev->comm ? w->part[0].bias : NULL,
                 post_norm);
    }
}

static void ref_attn_out(struct device *dev, const struct layer *layer, const struct step *step) {
    int width = q_size(&layer->attn);
    for (int t = 0; t < step->num_tokens && layer->attn_gate; t++) {
        float *h = dev->h + (size_t)t * (size_t)width;
        normalise(dev, dev->resid + (size_t)t * (size_t)dev->model.hidden, layer->attn_norm);
        ref_matvec(dev->wide, dev->norm, &layer->attn_gate->part[0]);
        for (int i = 0; i < width; i++)
            h[i] = (float)((double)h[i] / (1 + exp(-(double)dev->wide[i])));
    }
    memcpy(dev->before, dev->resid,
           model_keeps_before(&dev->model)
               ? (size_t)step->num_tokens * (size_t)dev->model.hidden * sizeof *dev->before
               : 0);
    const struct attn_spec *a = &layer->attn;
    size_t in = (size_t)q_size(a), out = (size_t)attn_out_size(a);
    if (a->kind == ATTN_LATENT) {
        struct ref_latent w = ref_latent_weights(layer, dev->model.norm_eps);
        memcpy(dev->q, dev->h, (size_t)step->num_tokens * in * sizeof(float));
        for (size_t t = 0; t < (size_t)step->num_tokens; t++)
            ref_latent_out(dev->h + t * out, &w, a, dev->q + t * in);
    }
    add_projection(dev, dev->h, layer, ADAPTER_OUT, layer->attn_out, layer->attn_post_norm, step);
    for (size_t i = 0; layer->laurel_norm && i < (size_t)step->num_tokens * (size_t)dev->model.hidden; i++)
        dev->resid[i] = (float)(((double)dev->resid[i] + (double)dev->laurel[i]) / sqrt(2));
}

static void ref_mix_out(struct device *dev, const struct layer *layer, const struct step *step) {
    add_projection(dev, dev->mixed, layer, ADAPTER_TARGETS, layer->mix_out, NULL, step);
}

// h (F) = act(gate) * up, or act(gate) where up is NULL, of the row x
static void gate_and_up(struct device *dev, float *h, const float *x, const struct ref_matrix *gate,
                        const struct ref_matrix *up, enum act act) {
    ref_matvec(dev->wide, x, gate);
    if (up)
        ref_matvec(dev->wide + gate->rows, x, up);
    ref_act(h, act, dev->wide, up ? dev->wide + gate->rows : NULL, gate->rows);
}

// The experts that this rank has, [*first, *first + n).
static int own_experts(const struct device *dev, const struct ffn_spec *f, int *first) {
    int each = COMM_MAX_SUM / dev->world;
    *first = backend_expert_bound(f->experts, each * dev->rank);
    return backend_expert_bound(f->experts, each * (dev->rank + 1)) - *first;
}

// One of the n experts of a part.
static struct ref_matrix expert_matrix(const struct ref_matrix *all, int n, int expert) {
    struct ref_matrix m = *all;
    m.rows /= n;
    m.data = (const char *)m.data + (size_t)expert * (size_t)m.rows * dtype_row_bytes(m.dtype, m.cols);
    m.bias = m.bias ? m.bias + (size_t)expert * (size_t)m.rows : NULL;
    return m;
}

// x (n) = m * x, where x has room for both
static void transform(struct device *dev, float *x, const struct ref_matrix *m) {
    ref_matvec(dev->weighed, x, m);
    memcpy(x, dev->weighed, (size_t)m->rows * sizeof *x);
}

// Row t, of which x is the residual stream and dev->norm what ffn_norm makes of it: which experts, gate and up of the
// shared one and of those of them that this rank has.
static void experts_in(struct device *dev, const struct layer *layer, const float *x, int t) {
    const struct ffn_spec *f = &layer->ffn;
    int S = layer->gate_up ? layer->gate_up->part[0].rows : 0, F = f->hidden, first;
    int n = own_experts(dev, f, &first), *chosen = dev->experts + (size_t)t * (size_t)f->top_k;
    float *h = dev->h + (size_t)t * (size_t)(S + f->top_k * F), gate;
    if (S > 0)
        gate_and_up(dev, h, dev->norm, &layer->gate_up->part[0], f->no_gate ? NULL : &layer->gate_up->part[1],
                    f->act);
    if (S > 0 && layer->shared_gate) {
        ref_matvec(&gate, dev->norm, &layer->shared_gate->part[0]);
        for (int i = 0; i < S; i++)
            h[i] = (float)((double)h[i] / (1 + exp(-(double)gate)));
    }
    for (int i = 0; i < S; i++)
        h[i] *= model_scale(f->shared_scale);
    if (f->own_norms)
        normalise(dev, x, layer->router_norm);
    ref_matvec(dev->wide, f->early_router ? dev->before + (size_t)t * (size_t)dev->model.hidden : dev->norm,
               &layer->router->part[0]);
    for (int e = 0; e < f->experts; e++)
        dev->wide[e] *= model_scale(f->router_scale);
    ref_route(chosen, dev->expert_weights + (size_t)t * (size_t)f->top_k, dev->wide,
              layer->select_bias ? layer->select_bias->part[0].data : NULL,
              f->expert_scale ? layer->expert_scale->part[0].data : NULL, f);
    if (f->own_norms)
        normalise(dev, x, layer->expert_norm);
    if (f->latent)
        transform(dev, dev->norm, &layer->expert_in->part[0]);
    for (int k = 0; k < f->top_k; k++) {
        if (chosen[k] < first || chosen[k] >= first + n)
            continue;
        struct ref_matrix m[2];
        for (int i = 0; i < (f->no_gate ? 1 : 2); i++)
            m[i] = expert_matrix(&layer->expert_gate_up->part[i], n, chosen[k] - first);
        float *weight = &dev->expert_weights[t * f->top_k + k];
        for (int i = 0; i < m[0].cols; i++)
            dev->weighed[i] = f->weigh_input ? dev->norm[i] * *weight : dev->norm[i];
        *weight = f->weigh_input ? 1 : *weight;
        gate_and_up(dev, h + S + k * F, dev->weighed, &m[0], f->no_gate ? NULL : &m[1], f->act);
    }
}

// The other half of it, into dev->wide: the sum over them and over the ranks.
static void experts_out(struct device *dev, const struct layer *layer, int t) {
    const struct ffn_spec *f = &layer->ffn;
    int S = layer->gate_up ? layer->gate_up->part[0].rows : 0, F = f->hidden, D = dev->model.hidden, first;
    int n = own_experts(dev, f, &first), dim = ffn_expert_dim(f, D);
    const bool apart = f->own_norms || f->latent; // the shared one is added last
    const float *h = dev->h + (size_t)t * (size_t)(S + f->top_k * F);
    double *sum = dev->sum;
    memset(sum, 0, (size_t)D * sizeof *sum);
    memset(dev->shared, 0, (size_t)D * sizeof *dev->shared);
    if (S > 0)
        ref_matvec(dev->shared, h, &layer->down->part[0]);
    for (int i = 0; i < D && !apart; i++)
        sum[i] = (double)dev->shared[i];
    for (int k = 0; k < f->top_k; k++) {
        int expert = dev->experts[t * f->top_k + k];
        if (expert < first || expert >= first + n)
            continue;
        struct ref_matrix m = expert_matrix(&layer->expert_down->part[0], n, expert - first);
        ref_matvec(dev->wide, h + S + k * F, &m);
        for (int i = 0; i < dim; i++)
            sum[i] += (double)dev->expert_weights[t * f->top_k + k] * (double)dev->wide[i];
    }
    for (int i = 0; i < D; i++)
        dev->wide[i] = (float)sum[i];
    sum_ranks(dev, dev->wide);
    if (!apart)
        return;
    sum_ranks(dev, dev->shared);
    if (f->latent)
        transform(dev, dev->wide, &layer->expert_out->part[0]);
    if (f->own_norms) {
        norm_row(dev, dev->wide, dev->wide, layer->expert_post_norm, 0, D);
        norm_row(dev, dev->shared, dev->shared, layer->shared_post_norm, 0, D);
    }
    for (int i = 0; i < D; i++)
        dev->wide[i] += dev->shared[i];
}

static void ref_ffn_in(struct device *dev, const struct layer *layer, const struct step *step) {
    int D = dev->model.hidden;
    const float *x = block_is_parallel(dev->model.block) ? dev->before : dev->resid;
    for (int t = 0; t < step->num_tokens; t++) {
        normalise(dev, x + (size_t)t * (size_t)D, layer->ffn_norm);
        if (layer->ffn.experts > 0) {
            experts_in(dev, layer, x + (size_t)t * (size_t)D, t);
            continue;
        }
        int F = layer->gate_up->part[0].rows; // ranks may have unequal shares
        bool gated = !layer->ffn.no_gate;
        float *gate = dev->wide, *up = gated ? gate + F : gate;
        ref_project(dev->wide, dev->norm, layer->gate_up);
        if (gated)
            ref_adapters_add(&dev->adapters, gate, dev->norm, layer->index, ADAPTER_GATE, t);
        ref_adapters_add(&dev->adapters, up, dev->norm, layer->index, ADAPTER_UP, t);
        if (layer->ffn.sparse)
            cut_gates(dev, layer, gate);
        if (layer->ffn.act == ACT_XIELU)
            ref_xielu(dev->h + (size_t)t * (size_t)F, up, F, &layer->xielu);
        else
            ref_act(dev->h + (size_t)t * (size_t)F, layer->ffn.act, gate, gated ? up : NULL, F);
    }
}

static void ref_ffn_out(struct device *dev, const struct layer *layer, const struct step *step) {
    if (layer->ffn.experts == 0) {
        add_projection(dev, dev->h, layer, ADAPTER_DOWN, layer->down, layer->ffn_post_norm, step);
        return;
    }
    for (int t = 0; t < step->num_tokens; t++) {
        experts_out(dev, layer, t);
        add_wide(dev, dev->resid + (size_t)t * (size_t)dev->model.hidden,
                 layer->expert_sum_bias ? layer->expert_sum_bias->part[0].data : NULL, layer->ffn_post_norm);
    }
}

static void ref_layer_out(struct device *dev, const struct layer *layer, const struct step *step) {
    int D = dev->model.hidden, L = dev->model.num_layers, P = dev->model.layer_embed;
    float scale = layer->layer_scale ? ((const float *)layer->layer_scale->part[0].data)[0] : 1;
    int N = dev->model.altup_streams;
    for (int t = 0; t < step->num_tokens; t++) {
        float *x = dev->resid + (size_t)t * (size_t)D, *streams = streams_at(dev, t);
        if (N > 0) {
            const struct ref_altup s = streams_of(dev, layer, layer->stream_correct, NULL);
            ref_altup_correct(streams, x, &s);
        }
        if (P > 0) {
            const float *own = dev->layer_embed + ((size_t)t * (size_t)L + (size_t)layer->index) * (size_t)P;
            memcpy(dev->norm, x, (size_t)D * sizeof *x);
            for (int i = 0; layer->stream_scale && i < D; i++)
                dev->norm[i] *= ((const float *)layer->stream_scale->part[0].data)[i];
            gate_and_up(dev, dev->h, dev->norm, &layer->embed_gate->part[0], NULL, layer->ffn.act);
            for (int i = 0; i < P; i++)
                dev->h[i] *= own[i];
            ref_matvec(dev->wide, dev->h, &layer->embed_out->part[0]);
            norm_row(dev, dev->norm, dev->wide, layer->embed_norm, 0, D);
            for (int i = 0; i < D && N == 0; i++)
                x[i] += dev->norm[i];
            for (int i = D; i < N * D; i++) // of all but the first
                streams[i] += dev->norm[i % D];
        }
        for (int i = 0; i < D; i++)
            x[i] *= scale;
    }
}

// Logits of the row in dev->norm, whole on every rank.
static void all_logits(struct device *dev, const struct weight *head) {
    int V = dev->model.vocab, begin, end;
    backend_vocab_rows(V, dev->rank, dev->world, &begin, &end);
    ref_matvec(dev->scores + begin, dev->norm, &head->part[0]);
    for (int r = 0; dev->comm && r < dev->world; r++) {
        backend_vocab_rows(V, r, dev->world, &begin, &end);
        dev->apart |= dev->comm->ops->broadcast(dev->comm, dev->scores + begin,
                                                (size_t)(end - begin) * sizeof(float), r) != STATUS_OK;
    }
}

static void ref_head(struct device *dev, const struct model *model, const struct step *step) {
    int D = dev->model.hidden, V = dev->model.vocab;
    float scale = model_scale(dev->model.logit_scale);
    struct ref_result *out = &dev->result[dev->num_begun & 1];
    out->num_rows = step->num_rows;
    const struct ref_altup s = streams_of(dev, NULL, NULL, model->stream_out);
    if (step->masks && step->masks_wait)
        step->masks_wait(step->masks_arg);
    for (int r = 0; r < step->num_rows; r++) {
        const struct logits_row *row = &step->rows[r];
        CHECK(row->row >= 0 && row->row < step->num_tokens && row->num_logprobs <= MAX_TOP_LOGPROBS);
        const float *x = dev->resid + (size_t)row->row * (size_t)D;
        if (s.num > 0)
            ref_altup_merge(dev->wide, streams_at(dev, row->row), x, &s);
        normalise(dev, s.num > 0 ? dev->wide : x, model->out_norm);
        if (out->hidden)
            memcpy(out->hidden + (size_t)r * (size_t)D, dev->norm, (size_t)D * sizeof(float));
        if (!model->head)
            continue;
        all_logits(dev, model->head);
        for (int i = 0; i < V; i++)
            dev->scores[i] =
                (float)ref_softcap((double)(dev->scores[i] * scale), (double)dev->model.logit_softcap);
        struct ref_sample sample;
        if (!ref_sample(&sample, dev->scores, V, row, step->entries, step->masks ? step->masks[r] : NULL))
            dev->out_of_memory = true;
        out->ids[r] = sample.id;
        out->logprob[r] = sample.logprob;
        out->rank[r] = sample.rank;
        out->share[r] = sample.share;
        out->failed[r] = sample.failed;
        for (int i = 0; i < sample.num_top; i++) {
            out->top_ids[r * MAX_TOP_LOGPROBS + i] = sample.top_ids[i];
            out->top_logprobs[r * MAX_TOP_LOGPROBS + i] = sample.top_logprobs[i];
        }
        if (out->logits)
            memcpy(out->logits + (size_t)r * (size_t)V, dev->scores, (size_t)V * sizeof(float));
    }
}

static void ref_resid_export(struct device *dev, float *dst, const struct step *step) {
    size_t n = (size_t)step->num_tokens * (size_t)dev->model.hidden;
    memcpy(dst, dev->resid + (size_t)dev->rank * backend_resid_part(n, dev->world),
           backend_resid_count(n, dev->rank, dev->world) * sizeof *dst);
}

static void ref_resid_import(struct device *dev, const float *src, const struct step *step) {
    size_t n = (size_t)step->num_tokens * (size_t)dev->model.hidden;
    if (dev->world == 1)
        memcpy(dev->resid, src, n * sizeof *src);
    else
        dev->apart |=
            dev->comm->ops->all_gather(dev->comm, dev->resid, src,
                                       backend_resid_part(n, dev->world) * sizeof *src) != STATUS_OK;
}

static enum status ref_sync(struct device *dev, struct step_out *out, struct err *err) {
    CHECK(dev->num_synced < dev->num_begun);
    const struct ref_result *r = &dev->result[++dev->num_synced & 1];
    *out = (struct step_out){.ids = r->ids,
                             .logprob = r->logprob,
                             .rank = r->rank,
                             .share = r->share,
                             .top_ids = r->top_ids,
                             .top_logprobs = r->top_logprobs,
                             .failed = r->failed,
                             .logits = r->logits,
                             .hidden = r->hidden,
                             .max_top = MAX_TOP_LOGPROBS};
    if (dev->apart)
        return err_set(err, STATUS_DEVICE, "%s", dev->comm->ops->error(dev->comm));
    return dev->out_of_memory ? err_set(err, STATUS_DEVICE, "ref: out of memory in a step") : STATUS_OK;
}

static char *page_in(struct device *dev, int tier, int32_t page) {
    return (tier == KV_HOST ? dev->host_kv : dev->kv) + (size_t)page * ref_kv_block_bytes(dev);
}

static void ref_kv_copy(struct device *dev, const struct kv_move *moves, int num_moves) {
    for (const struct kv_move *v = moves; v < moves + num_moves; v++) {
        CHECK(backend_can_move(&dev->limits, v));
        memmove(page_in(dev, v->to_tier, v->to), page_in(dev, v->from_tier, v->from),
                ref_kv_block_bytes(dev));
    }
}

static void *ref_kv_host_page(struct device *dev, int32_t page) {
    CHECK(page >= 0 && page < dev->limits.num_host_pages);
    return page_in(dev, KV_HOST, page);
}

const struct backend_ops backend_ref = {
    .abi = BACKEND_ABI,
    .name = "ref",
    .open = ref_open,
    .close = ref_close,
    .info = ref_info,
    .weight_load = ref_weight_load,
    .kv_block_bytes = ref_kv_block_bytes,
    .reserve = ref_reserve,
    .adapter_load = ref_adapter_load,
    .adapter_free = ref_adapter_free,
    .step_begin = ref_step_begin,
    .embed = ref_embed,
    .layer_in = ref_layer_in,
    .qkv = ref_qkv,
    .attn_prefill = ref_attn_prefill,
    .attn_decode = ref_attn_decode,
    .attn_out = ref_attn_out,
    .mix = ref_mix_phase,
    .mix_out = ref_mix_out,
    .ffn_in = ref_ffn_in,
    .ffn_out = ref_ffn_out,
    .layer_out = ref_layer_out,
    .head = ref_head,
    .resid_export = ref_resid_export,
    .resid_import = ref_resid_import,
    .step_end = ref_step_end,
    .sync = ref_sync,
    .kv_copy = ref_kv_copy,
    .kv_host_page = ref_kv_host_page,
};

// ---- what tests see (inspect.h)

static void ref_view(struct device *dev, struct activations *view) {
    *view = (struct activations){dev->resid, dev->q, dev->h};
}

static void ref_kv_export(struct device *dev, int32_t block, void *dst) {
    memcpy(dst, kv_block(dev, block), ref_kv_block_bytes(dev));
}

static void ref_kv_import(struct device *dev, int32_t block, const void *src) {
    memcpy(kv_block(dev, block), src, ref_kv_block_bytes(dev));
}

const struct backend_inspect inspect_ref = {ref_view, ref_kv_export, ref_kv_import};
