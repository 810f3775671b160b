// The reference backend: every phase composed of the primitives of ref.h, one row after another, keys and
// values in the canonical order of kv_export. Slow and plain on purpose.
#include "ref.h"

#include "log.h"
#include "request.h"

#include <stdlib.h>
#include <string.h>

struct weight {
    struct weight *next; // all weights of the device
    enum weight_role role;
    int num_parts;
    struct ref_matrix part[3];
    void *memory[3], *bias[3];
};

struct result { // what step_out points to
    int32_t *ids, *top_ids;
    float *logprob, *top_logprobs, *logits;
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
    struct workspace ws;
    float *norm, *wide, *scores; // (D), (max(H*d + 2*K*d, 2*F)), (V)
    float *keys, *values;        // (max_context, d)
    char *kv;                    // (num_blocks, L, 2) halves of blocks as kv_export gives them
    struct result result[2];     // of steps with odd and even seq
    uint64_t num_begun, num_synced;
    bool out_of_memory;
    int rank, world;
    struct comm *comm; // NULL: one rank
    bool apart;        // the ranks have lost each other
};

static int q_size(const struct model_config *m) { return m->num_heads * m->head_dim; }
static int max_int(int a, int b) { return a > b ? a : b; }

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
    if (config->block_size < 1 || m->num_kv_heads < 1 || m->num_heads % m->num_kv_heads != 0 ||
        m->head_dim > 1024) {
        err_set(err, STATUS_INVALID, "block size %d, %d heads, %d kv heads, head size %d", config->block_size,
                m->num_heads, m->num_kv_heads, m->head_dim);
        return NULL;
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

static void ref_close(struct device *dev) {
    if (!dev)
        return;
    while (dev->weights) {
        struct weight *next = dev->weights->next;
        weight_free(dev->weights);
        dev->weights = next;
    }
    for (int i = 0; i < 2; i++) {
        struct result *r = &dev->result[i];
        free(r->ids), free(r->top_ids), free(r->logprob), free(r->top_logprobs), free(r->logits),
            free(r->failed);
    }
    free(dev->ws.resid), free(dev->ws.q), free(dev->ws.h);
    free(dev->norm), free(dev->wide), free(dev->scores), free(dev->keys), free(dev->values), free(dev->kv);
    free(dev);
}

static void ref_info(struct device *dev, struct device_info *info) {
    memset(info, 0, sizeof *info);
    snprintf(info->name, sizeof info->name, "ref");
    info->memory_free = (size_t)1 << 30;
    info->weight_bytes = dev->weight_bytes;
}

static struct weight *ref_weight_load(struct device *dev, const struct weight_desc *desc, struct err *err) {
    struct weight *w = calloc(1, sizeof *w);
    if (!w) {
        err_set(err, STATUS_NOMEM, "no memory for a weight");
        return NULL;
    }
    w->role = desc->role;
    for (int i = 0; i < 3 && desc->part[i].data; i++) {
        const struct tensor *t = &desc->part[i];
        int64_t rows = t->ndim == 1 ? 1 : t->shape[0], cols = t->ndim == 1 ? t->shape[0] : t->shape[1];
        if (t->ndim < 1 || t->ndim > 2 || rows < 1 || cols < 1 || rows > INT32_MAX || cols > INT32_MAX ||
            !dtype_is_weight(t->dtype) || cols % dtype_block(t->dtype) != 0) {
            err_set(err, STATUS_INVALID, "weight part %d: %lld x %lld %s cannot be loaded", i,
                    (long long)rows, (long long)cols, dtype_name(t->dtype));
            weight_free(w);
            return NULL;
        }
        size_t bytes = (size_t)rows * dtype_row_bytes(t->dtype, cols);
        w->memory[i] = malloc(bytes);
        if (desc->bias[i].data)
            w->bias[i] = malloc((size_t)rows * sizeof(float));
        if (!w->memory[i] || (desc->bias[i].data && !w->bias[i])) {
            err_set(err, STATUS_NOMEM, "no memory for a weight of %zu bytes", bytes);
            weight_free(w);
            return NULL;
        }
        memcpy(w->memory[i], t->data, bytes);
        if (w->bias[i])
            memcpy(w->bias[i], desc->bias[i].data, (size_t)rows * sizeof(float));
        w->part[i] = (struct ref_matrix){w->memory[i], t->dtype, (int)rows, (int)cols, w->bias[i]};
        w->num_parts++;
        dev->weight_bytes += bytes;
    }
    w->next = dev->weights;
    dev->weights = w;
    return w;
}

static size_t ref_kv_block_bytes(struct device *dev) {
    const struct model_config *m = &dev->model;
    return 2u * (size_t)m->num_layers * (size_t)(dev->block_size * m->num_kv_heads) *
           backend_kv_vector_bytes(dev->kv_dtype, m->head_dim);
}

static void *zeroed(struct device *dev, size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size);
    dev->out_of_memory |= !p;
    return p;
}

static enum status ref_reserve(struct device *dev, const struct step_limits *limits, struct workspace *ws,
                               struct err *err) {
    const struct model_config *m = &dev->model;
    size_t T = (size_t)limits->max_tokens, R = (size_t)limits->max_rows, V = (size_t)m->vocab;
    size_t inner = (size_t)max_int(q_size(m), m->ffn);
    dev->limits = *limits;
    dev->ws.resid = zeroed(dev, T * (size_t)m->hidden, sizeof(float));
    dev->ws.q = zeroed(dev, T * (size_t)q_size(m), sizeof(float));
    dev->ws.h = zeroed(dev, T * inner, sizeof(float));
    dev->norm = zeroed(dev, (size_t)m->hidden, sizeof(float));
    dev->wide = zeroed(dev, (size_t)max_int(max_int(q_size(m), 2 * m->ffn), m->hidden), sizeof(float));
    dev->scores = zeroed(dev, V, sizeof(float));
    dev->keys = zeroed(dev, (size_t)limits->max_context * (size_t)m->head_dim, sizeof(float));
    dev->values = zeroed(dev, (size_t)limits->max_context * (size_t)m->head_dim, sizeof(float));
    dev->kv = zeroed(dev, (size_t)limits->num_blocks, ref_kv_block_bytes(dev));
    for (int i = 0; i < 2; i++) {
        struct result *r = &dev->result[i];
        r->ids = zeroed(dev, R, sizeof *r->ids);
        r->logprob = zeroed(dev, R, sizeof *r->logprob);
        r->top_ids = zeroed(dev, R * MAX_TOP_LOGPROBS, sizeof *r->top_ids);
        r->top_logprobs = zeroed(dev, R * MAX_TOP_LOGPROBS, sizeof *r->top_logprobs);
        r->failed = zeroed(dev, R, 1);
        if (limits->keep_logits)
            r->logits = zeroed(dev, R * V, sizeof *r->logits);
    }
    if (dev->out_of_memory)
        return err_set(err, STATUS_NOMEM, "no memory for a workspace of %d tokens and %d blocks",
                       limits->max_tokens, limits->num_blocks);
    *ws = dev->ws;
    return STATUS_OK;
}

// ---- phases

static bool ref_step_begin(struct device *dev, const struct step *step) {
    CHECK(step->num_tokens <= dev->limits.max_tokens && step->num_rows <= dev->limits.max_rows &&
          step->num_seqs <= dev->limits.max_seqs);
    CHECK(dev->num_begun - dev->num_synced < 2);
    dev->num_begun++;
    return false;
}

static void ref_step_end(struct device *dev) { (void)dev; }

static void ref_embed(struct device *dev, void *resid, const struct weight *table, const struct step *step) {
    int D = dev->model.hidden;
    const struct result *before = &dev->result[(dev->num_begun - 1) & 1];
    for (int t = 0; t < step->num_tokens; t++) {
        int32_t id = step->ids[t];
        if (id < 0) {
            CHECK(-1 - id < before->num_rows);
            id = before->ids[-1 - id];
        }
        CHECK(id < table->part[0].rows);
        float *row = (float *)resid + (size_t)t * (size_t)D;
        for (int i = 0; i < D; i++)
            row[i] = ref_element(&table->part[0], id, i);
    }
}

static char *kv_block(struct device *dev, int64_t block) {
    return dev->kv + (size_t)block * ref_kv_block_bytes(dev);
}

// Where the key (which = 0) or value (1) of a kv head of a slot is; *scale: where its scale is, with I8.
static char *kv_at(struct device *dev, int layer, int which, int64_t slot, int head, char **scale) {
    const struct model_config *m = &dev->model;
    size_t row = dtype_row_bytes(dev->kv_dtype, m->head_dim);
    size_t all = (size_t)(dev->block_size * m->num_kv_heads);
    size_t vector = (size_t)(slot % dev->block_size * m->num_kv_heads + head);
    char *half =
        kv_block(dev, slot / dev->block_size) +
        ((size_t)layer * 2 + (size_t)which) * all * backend_kv_vector_bytes(dev->kv_dtype, m->head_dim);
    *scale = half + all * row + vector * sizeof(float);
    return half + vector * row;
}

static void kv_store(struct device *dev, int layer, int which, int64_t slot, const float *x) { // x (K, d)
    int d = dev->model.head_dim;
    char *scale;
    for (int h = 0; h < dev->model.num_kv_heads; h++, x += d) {
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

static void kv_fetch(struct device *dev, int layer, int which, int64_t slot, int head, float *x) { // x (d)
    char *scale, *src = kv_at(dev, layer, which, slot, head, &scale);
    for (int i = 0; i < dev->model.head_dim; i++)
        if (dev->kv_dtype == DTYPE_I8)
            x[i] = (float)((int8_t *)src)[i] * ref_fetch(scale, DTYPE_F32);
        else
            x[i] = ref_fetch(src + dtype_row_bytes(dev->kv_dtype, i), dev->kv_dtype);
}

// Norm of each head by its own weight where the model has one, and rotation.
static void heads_finish(struct device *dev, float *x, int num_heads, const struct weight *norm,
                         int position) {
    int d = dev->model.head_dim;
    for (int h = 0; h < num_heads; h++, x += d) {
        if (norm)
            ref_rmsnorm(x, x, (const float *)norm->part[0].data, d, dev->model.norm_eps);
        ref_rope(x, &dev->model.rope, position);
    }
}

static void ref_qkv(struct device *dev, void *q, const void *resid, const struct layer *layer,
                    const struct step *step) {
    const struct model_config *m = &dev->model;
    for (int t = 0; t < step->num_tokens; t++) {
        const float *x = (const float *)resid + (size_t)t * (size_t)m->hidden;
        float *head = (float *)q + (size_t)t * (size_t)q_size(m);
        ref_rmsnorm(dev->norm, x, (const float *)layer->attn_norm->part[0].data, m->hidden, m->norm_eps);
        ref_matvec(head, dev->norm, &layer->qkv->part[0]);
        heads_finish(dev, head, m->num_heads, layer->q_norm, step->positions[t]);
        if (step->slots[t] < 0)
            continue;
        for (int which = 0; which < 2; which++) {
            ref_matvec(dev->wide, dev->norm, &layer->qkv->part[1 + which]);
            if (which == 0)
                heads_finish(dev, dev->wide, m->num_kv_heads, layer->k_norm, step->positions[t]);
            kv_store(dev, layer->index, which, step->slots[t], dev->wide);
        }
    }
}

// Attention of the rows of sequence s.
static void attend(struct device *dev, float *h, const float *q, int layer, const struct step *step, int s) {
    const struct model_config *m = &dev->model;
    int d = m->head_dim, group = m->num_heads / m->num_kv_heads;
    const int32_t *blocks = step->block_ids + step->block_start[s];
    int first = step->positions[step->query_start[s]] + 1 - m->window; // that any row sees, with a window
    for (int kvh = 0; kvh < m->num_kv_heads; kvh++) {
        CHECK(step->context_len[s] <= dev->limits.max_context);
        for (int p = m->window > 0 ? max_int(0, first) : 0; p < step->context_len[s]; p++) {
            int64_t slot = (int64_t)blocks[p / dev->block_size] * dev->block_size + p % dev->block_size;
            kv_fetch(dev, layer, 0, slot, kvh, dev->keys + (size_t)p * (size_t)d);
            kv_fetch(dev, layer, 1, slot, kvh, dev->values + (size_t)p * (size_t)d);
        }
        for (int t = step->query_start[s]; t < step->query_start[s + 1]; t++) {
            int end = step->positions[t] + 1, begin = m->window > 0 ? max_int(0, end - m->window) : 0;
            for (int g = 0; g < group; g++) {
                size_t head = (size_t)t * (size_t)q_size(m) + (size_t)((kvh * group + g) * d);
                ref_attention(h + head, q + head, dev->keys + (size_t)begin * (size_t)d,
                              dev->values + (size_t)begin * (size_t)d, end - begin, d, d,
                              (double)m->attn_scale);
            }
        }
    }
}

static void ref_attn_prefill(struct device *dev, void *h, const void *q, const struct layer *layer,
                             const struct step *step) {
    for (int s = step->num_decode; s < step->num_seqs; s++)
        attend(dev, h, q, layer->index, step, s);
}

static void ref_attn_decode(struct device *dev, void *h, const void *q, const struct layer *layer,
                            const struct step *step) {
    for (int s = 0; s < step->num_decode; s++)
        attend(dev, h, q, layer->index, step, s);
}

static void ref_proj_add(struct device *dev, void *resid, const void *h, const struct weight *w,
                         const struct step *step) {
    struct ref_matrix part = w->part[0];
    if (dev->comm)
        part.bias = NULL; // every rank has it, the sum takes it once
    for (int t = 0; t < step->num_tokens; t++) {
        float *x = (float *)resid + (size_t)t * (size_t)part.rows;
        ref_matvec(dev->wide, (const float *)h + (size_t)t * (size_t)part.cols, &part);
        if (dev->comm)
            dev->apart |= dev->comm->ops->all_reduce(dev->comm, dev->wide, (size_t)part.rows) != STATUS_OK;
        for (int i = 0; i < part.rows; i++)
            x[i] += dev->wide[i] + (dev->comm && w->bias[0] ? w->part[0].bias[i] : 0);
    }
}

static void ref_mlp_in(struct device *dev, void *h, const void *resid, const struct layer *layer,
                       const struct step *step) {
    int D = dev->model.hidden, F = layer->gate_up->part[0].rows; // ranks may have unequal shares
    for (int t = 0; t < step->num_tokens; t++) {
        ref_rmsnorm(dev->norm, (const float *)resid + (size_t)t * (size_t)D,
                    (const float *)layer->ffn_norm->part[0].data, D, dev->model.norm_eps);
        ref_matvec(dev->wide, dev->norm, &layer->gate_up->part[0]);
        ref_matvec(dev->wide + F, dev->norm, &layer->gate_up->part[1]);
        ref_swiglu((float *)h + (size_t)t * (size_t)F, dev->wide, dev->wide + F, F);
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

static void ref_head(struct device *dev, const void *resid, const struct model *model,
                     const struct step *step) {
    int D = dev->model.hidden, V = dev->model.vocab;
    float scale = dev->model.logit_scale == 0 ? 1 : dev->model.logit_scale;
    struct result *out = &dev->result[dev->num_begun & 1];
    out->num_rows = step->num_rows;
    for (int r = 0; r < step->num_rows; r++) {
        const struct head_row *row = &step->rows[r];
        CHECK(row->row >= 0 && row->row < step->num_tokens && row->num_logprobs <= MAX_TOP_LOGPROBS);
        ref_rmsnorm(dev->norm, (const float *)resid + (size_t)row->row * (size_t)D,
                    (const float *)model->out_norm->part[0].data, D, dev->model.norm_eps);
        all_logits(dev, model->head);
        for (int i = 0; i < V; i++)
            dev->scores[i] *= scale;
        struct ref_sample s;
        if (!ref_sample(&s, dev->scores, V, row, step->edits, step->masks ? step->masks[r] : NULL))
            dev->out_of_memory = true;
        out->ids[r] = s.id;
        out->logprob[r] = s.logprob;
        out->failed[r] = s.failed;
        for (int i = 0; i < s.num_top; i++) {
            out->top_ids[r * MAX_TOP_LOGPROBS + i] = s.top_ids[i];
            out->top_logprobs[r * MAX_TOP_LOGPROBS + i] = s.top_logprobs[i];
        }
        if (out->logits)
            memcpy(out->logits + (size_t)r * (size_t)V, dev->scores, (size_t)V * sizeof(float));
    }
}

static void ref_resid_export(struct device *dev, float *dst, const void *resid, const struct step *step) {
    memcpy(dst, resid, (size_t)step->num_tokens * (size_t)dev->model.hidden * sizeof *dst);
}

static void ref_resid_import(struct device *dev, void *resid, const float *src, const struct step *step) {
    memcpy(resid, src, (size_t)step->num_tokens * (size_t)dev->model.hidden * sizeof *src);
}

static enum status ref_sync(struct device *dev, struct step_out *out, struct err *err) {
    CHECK(dev->num_synced < dev->num_begun);
    const struct result *r = &dev->result[++dev->num_synced & 1];
    *out = (struct step_out){r->ids,    r->logprob, r->top_ids,      r->top_logprobs,
                             r->failed, r->logits,  MAX_TOP_LOGPROBS};
    if (dev->apart)
        return err_set(err, STATUS_DEVICE, "%s", dev->comm->ops->error(dev->comm));
    return dev->out_of_memory ? err_set(err, STATUS_DEVICE, "ref: out of memory in a step") : STATUS_OK;
}

static void ref_kv_export(struct device *dev, int32_t block, void *dst) {
    memcpy(dst, kv_block(dev, block), ref_kv_block_bytes(dev));
}

static void ref_kv_import(struct device *dev, int32_t block, const void *src) {
    memcpy(kv_block(dev, block), src, ref_kv_block_bytes(dev));
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
    .step_begin = ref_step_begin,
    .embed = ref_embed,
    .qkv = ref_qkv,
    .attn_prefill = ref_attn_prefill,
    .attn_decode = ref_attn_decode,
    .proj_add = ref_proj_add,
    .mlp_in = ref_mlp_in,
    .head = ref_head,
    .resid_export = ref_resid_export,
    .resid_import = ref_resid_import,
    .step_end = ref_step_end,
    .sync = ref_sync,
    .kv_export = ref_kv_export,
    .kv_import = ref_kv_import,
};
