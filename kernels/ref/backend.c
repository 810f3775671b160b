// The reference backend: every phase composed of the primitives of ref_ops.h, one row after another. Slow and plain on
// purpose. Here: the device's lifecycle, weights and memory, the head, the tables of operations; phases are in ref_embed.c,
// ref_attention.c and ref_ffn.c.
#include "ref_attention.h"
#include "ref_embed.h"
#include "ref_ffn.h"
#include "ref_kv.h"
#include "ref_rows.h"
#include "ref_sizes.h"

#include "inspect.h"
#include "log.h"
#include "weight_check.h"

#include <stdlib.h>
#include <string.h>

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
    const struct ref_altup s = ref_streams_of(dev, NULL, NULL, model->stream_out);
    if (step->masks && step->masks_wait)
        step->masks_wait(step->masks_arg);
    for (int r = 0; r < step->num_rows; r++) {
        const struct logits_row *row = &step->rows[r];
        CHECK(row->row >= 0 && row->row < step->num_tokens && row->num_logprobs <= MAX_TOP_LOGPROBS);
        const float *x = dev->resid + (size_t)row->row * (size_t)D;
        if (s.num > 0)
            ref_altup_merge(dev->wide, ref_streams_at(dev, row->row), x, &s);
        ref_normalise(dev, s.num > 0 ? dev->wide : x, model->out_norm);
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

const struct backend_inspect inspect_ref = {ref_view, ref_kv_export, ref_kv_import};
