// Each phase of backend.h as a few launches. Differences between layers come from the layer's specs.
#include "device.h"

#include "log.h"
#include "minmax.h"

#include <math.h>
#include <string.h>

static void embed_layers(struct device *dev, const struct model *model) {
    struct cuda_embed_layers a = {.ids = dev->inputs.ids,
                                  .sampled = dev->ids,
                                  .table = model->layer_embed->table,
                                  .dtype = model->layer_embed->dtype,
                                  .norm = model->layer_embed_norm->table,
                                  .norm_bias = model->layer_embed_norm->bias,
                                  .kind = dev->model.norm,
                                  .x = dev->own.embed,
                                  .factor = 1 / sqrtf((float)dev->model.hidden),
                                  .own_factor = sqrtf((float)dev->model.layer_embed),
                                  .eps = dev->model.norm_eps,
                                  .rows = dev->work.num_tokens,
                                  .layers = dev->model.num_layers,
                                  .n = dev->model.layer_embed,
                                  .vocab = dev->model.layer_vocab};
    cuda_normalise(dev, &dev->hidden, dev->resid, NULL, a.rows, NULL, cuda_dtypes_of(model->layer_embed_in));
    cuda_multiply(dev, model->layer_embed_in, &dev->hidden, a.rows, a.x, a.layers * a.n);
    cuda_embed_layers(dev->rt, &a);
}

// x (rows, D) = norm(x)
static void normalise_in_place(struct device *dev, float *x, const struct weight *norm, int rows) {
    struct cuda_norm a = cuda_norm_of(dev, x, norm, rows);
    a.out = x;
    a.act_dtype = ACT_DTYPE_F32;
    a.ldout = a.n;
    cuda_norm(dev->rt, &a);
}

// The embeddings that rows bring, through memory of the step's own: copies read it while the next step is filled.
static void embed_own(struct device *dev, const struct cuda_embed *all, const struct step *step) {
    size_t n = (size_t)step->num_embeds, values = n * (size_t)dev->model.hidden;
    float *host = dev->own_embeds.host[dev->num_begun & 1];
    int32_t *rows = (int32_t *)(void *)(host + values);
    memcpy(host, step->embeds, values * sizeof *host);
    memcpy(rows, step->embed_rows, n * sizeof *rows);
    rt_upload(dev->rt, dev->own_embeds.device, host, (values + n) * sizeof *host);
    cuda_embed_own(dev->rt,
                   &(struct cuda_embed_own){
                       .all = *all,
                       .embed_rows = (const int32_t *)(const void *)(dev->own_embeds.device + values),
                       .embeds = dev->own_embeds.device,
                       .num = step->num_embeds});
}

void cuda_phase_embed(struct device *dev, const struct model *model, const struct step *step) {
    struct cuda_embed a = {.ids = dev->inputs.ids,
                           .sampled = dev->ids,
                           .table = model->embed->table,
                           .dtype = model->embed->dtype,
                           .resid = dev->resid,
                           .factor = model_scale(dev->model.embed_scale),
                           .rows = dev->work.num_tokens,
                           .hidden = dev->model.hidden,
                           .vocab = dev->model.vocab,
                           .type_table = model->types ? model->types->table : NULL,
                           .position_table = model->positions ? model->positions->table : NULL,
                           .types = dev->limits.has_types ? dev->inputs.types : NULL,
                           .positions = dev->inputs.positions};
    cuda_embed(dev->rt, &a);
    if (step->num_embeds > 0)
        embed_own(dev, &a, step);
    if (model->embed_norm)
        normalise_in_place(dev, dev->resid, model->embed_norm, a.rows);
    if (dev->model.layer_embed > 0)
        embed_layers(dev, model);
    if (dev->model.altup_streams > 0)
        cuda_altup_in(dev, model);
}

// The activation dtypes that the matrices of the feed-forward read.
static unsigned ffn_dtypes(const struct layer *layer) {
    return cuda_dtypes_of(layer->gate_up) | cuda_dtypes_of(layer->router) |
           cuda_dtypes_of(layer->shared_gate) | cuda_dtypes_of(layer->expert_gate_up);
}
static void normalise_ffn(struct device *dev, const struct layer *layer) {
    cuda_normalise(dev, &dev->hidden, dev->resid, layer->ffn_norm, dev->work.num_tokens, NULL,
                   ffn_dtypes(layer));
}

void cuda_phase_qkv(struct device *dev, const struct layer *layer, const struct step *step) {
    const struct attn_spec *attn = &layer->attn;
    const struct rope_config *rope = attn->rope >= 0 ? &dev->model.ropes[attn->rope] : NULL;
    int T = dev->work.num_tokens;
    // By the only norm the feed-forward's input, too: `hidden` stays as it is.
    unsigned dtypes = dev->model.block == BLOCK_ONE_NORM ? ffn_dtypes(layer) : 0;
    if (attn->kind == ATTN_LATENT) {
        dtypes |= cuda_dtypes_of(layer->latent) |
                  cuda_dtypes_of(layer->latent_qdown ? layer->latent_qdown : layer->latent_q);
        cuda_normalise(dev, &dev->hidden, dev->resid, layer->attn_norm, T, NULL, dtypes);
        cuda_latent_in(dev, layer);
        return;
    }
    dtypes |= cuda_dtypes_of(layer->qkv) | cuda_dtypes_of(layer->attn_gate);
    cuda_normalise(dev, &dev->hidden, dev->resid, layer->attn_norm, T, NULL, dtypes);
    if (layer->attn_gate)
        cuda_multiply(dev, layer->attn_gate, &dev->hidden, T, dev->gate, spec_q_size(attn));
    struct cuda_qkv a = {.ldx = spec_qkv_size(attn),
                         .rows = T,
                         .num_heads = attn->heads,
                         .bias = layer->qkv->bias,
                         .clip = attn->clip,
                         .qk_norm = attn->qk_norm,
                         .kind = dev->model.norm,
                         .whole = dev->whole_norms,
                         .v_norm = attn->v_norm,
                         .q_norm = layer->q_norm ? layer->q_norm->table : NULL,
                         .k_norm = layer->k_norm ? layer->k_norm->table : NULL,
                         .rope_cos = rope ? dev->ropes[attn->rope].cos : NULL,
                         .rope_sin = rope ? dev->ropes[attn->rope].sin : NULL,
                         .rope_pairs = rope ? rope->dim / 2 : 0,
                         .rope_interleaved = rope && rope->interleaved,
                         .rope_positions = step->rope_positions ? dev->inputs.rope_positions : NULL,
                         .eps = dev->model.norm_eps,
                         .temperatures = dev->temperatures[attn->index],
                         .positions = dev->inputs.positions,
                         .slots = dev->inputs.groups[layer->kv_group].slots,
                         .q = dev->q,
                         .kv = cuda_kv_of(dev, attn, layer->kv_layer)};
    if (rope)
        a.sections = rope->sections;
    if (attn->shares_kv)
        a.kv.num_heads = 0;
    cuda_multiply_qkv(dev, layer->qkv, &dev->hidden, dev->qkv, &a);
    cuda_lora_add(dev, layer, ADAPTER_Q, &dev->hidden,
                  (struct cuda_lora){.num_targets = attn->shares_kv ? 1 : 3,
                                     .act_dtype = cuda_act_dtype_of(layer->qkv->matrix[0].layout),
                                     .y = dev->qkv,
                                     .ldy = a.ldx,
                                     .widest = spec_q_size(attn),
                                     .column = {0, spec_q_size(attn), a.ldx - attn_kv_size(attn)}});
    cuda_qkv(dev->rt, &a);
}

static struct cuda_blocks blocks_of(const struct device *dev, const struct layer *layer) {
    return (struct cuda_blocks){dev->inputs.groups[layer->kv_group].block_start,
                                dev->inputs.groups[layer->kv_group].block_ids};
}

// For rows that see the tokens after them.
static const int32_t *context_of(const struct device *dev, const struct layer *layer) {
    return layer->attn.bidirectional ? dev->inputs.context_len : NULL;
}

// The arguments that all attention kernels have.
#define ATTENTION_ARGS(dev, layer)                                                                           \
    .q = (dev)->q, .kv = cuda_kv_of(dev, &(layer)->attn, (layer)->kv_layer),                                 \
    .blocks = blocks_of(dev, layer), .group = (layer)->attn.heads / (layer)->attn.kv_heads,                  \
    .softcap = (layer)->attn.softcap,                                                                        \
    .scale = (layer)->attn.scale / ((layer)->attn.softcap > 0 ? (layer)->attn.softcap : 1),                  \
    .sinks = (layer)->sinks ? (layer)->sinks->table : NULL,                                                  \
    .out = (dev)->attn.data[cuda_written_dtype(&(dev)->attn)],                                               \
    .act_dtype = cuda_written_dtype(&(dev)->attn), .ldout = (dev)->attn.ld

static void attend_rows(struct device *dev, const struct layer *layer, int row0, int rows) {
    if (layer->attn.kind == ATTN_LATENT) {
        cuda_latent_attend(dev, layer, row0, rows);
        return;
    }
    struct cuda_attend a = {ATTENTION_ARGS(dev, layer),
                            .seq_of = dev->inputs.seq_of,
                            .positions = dev->inputs.positions,
                            .context_len = context_of(dev, layer),
                            .row0 = row0,
                            .rows = rows,
                            .window = layer->attn.window,
                            .chunked = layer->attn.chunked};
    cuda_attend(dev->rt, &a);
}

static void attend_tiles(struct device *dev, const struct layer *layer) {
    int spec = layer->attn.index;
    struct cuda_prefill a = {ATTENTION_ARGS(dev, layer),
                             .tiles = dev->inputs.attn[spec].tiles,
                             .num_tiles = dev->inputs.attn[spec].counts + 1,
                             .context_len = context_of(dev, layer),
                             .max_tiles = dev->work.attn[spec].num_tiles,
                             .tile_rows = dev->work_config.tile_rows,
                             .window = layer->attn.window,
                             .chunked = layer->attn.chunked};
    cuda_prefill(dev->rt, &a);
}

// Rows in as many launches as their splits need.
static void attend_splits(struct device *dev, const struct layer *layer) {
    int spec = layer->attn.index, rows = dev->work.num_decode;
    const struct work_attn *list = &dev->work.attn[spec];
    const int32_t *first = list->first_split;
    for (int row = 0, end; row < rows; row = end) {
        int splits = list->num_splits;
        end = rows;
        if (!list->one_launch) {
            work_launch(first, rows, dev->max_splits, row, &end);
            splits = first[end] - first[row];
        }
        struct cuda_decode a = {ATTENTION_ARGS(dev, layer),
                                .splits = dev->inputs.attn[spec].splits,
                                .num_splits = dev->inputs.attn[spec].counts,
                                .first_split = dev->inputs.attn[spec].first_split,
                                .split0 = list->one_launch ? 0 : first[row],
                                .max_splits = dev->bucket ? dev->bucket->max_splits[spec] : splits,
                                .partial = dev->partial,
                                .stats = dev->stats,
                                .arrived = dev->arrived};
        if (layer->attn.kind == ATTN_LATENT)
            cuda_latent_decode(dev, layer, &a);
        else
            cuda_decode(dev->rt, &a);
    }
}

void cuda_phase_attn_decode(struct device *dev, const struct layer *layer, const struct step *step) {
    if (!dev->fast[layer->attn.index] || (dev->exact && device_is_latent(dev)))
        attend_rows(dev, layer, 0, dev->work.num_decode);
    else if (!dev->exact)
        attend_splits(dev, layer);
    else if (step->num_decode == step->num_seqs) // else attn_prefill() runs the same kernel, for every row
        attend_tiles(dev, layer);
}

void cuda_phase_attn_prefill(struct device *dev, const struct layer *layer, const struct step *step) {
    int row = step->query_start[step->num_decode];
    if (dev->fast[layer->attn.index] && !device_is_latent(dev))
        attend_tiles(dev, layer);
    else // of latent attention a row's heads are a tile
        attend_rows(dev, layer, row, step->num_tokens - row);
}

// resid = (resid + factor * post_norm(added + bias)) * scale, or the norm is of the sum; scale may be NULL
static void add_by(struct device *dev, float factor, const float *bias, const struct weight *post_norm,
                   const struct weight *scale) {
    struct cuda_add a = {.x = dev->added,
                         .bias = bias,
                         .norm = post_norm ? post_norm->table : NULL,
                         .norm_bias = post_norm ? post_norm->bias : NULL,
                         .kind = dev->model.norm,
                         .resid = dev->resid,
                         .factor = factor,
                         .scale = scale ? scale->table : NULL,
                         .eps = dev->model.norm_eps,
                         .rows = dev->work.num_tokens,
                         .n = dev->model.hidden,
                         .of_sum = dev->model.block == BLOCK_SUM_NORM};
    cuda_add(dev->rt, &a);
}
static void add_scaled(struct device *dev, const float *bias, const struct weight *post_norm,
                       const struct weight *scale) {
    add_by(dev, model_scale(dev->model.residual_scale), bias, post_norm, scale);
}

// A row-parallel matrix of a layer, the target of its adapters (ADAPTER_TARGETS: it is none), and what becomes of its output.
struct projection {
    const struct layer *layer;
    enum adapter_target target;
    const struct weight *w, *post_norm, *scale;
    const struct activation *x;
};

// y (T, D) += what adapters give: of a rank its part, as the rest of the sum
static void add_lora(struct device *dev, const struct projection *p, float *y) {
    int D = dev->model.hidden;
    if (p->target != ADAPTER_TARGETS)
        cuda_lora_add(dev, p->layer, p->target, p->x,
                      (struct cuda_lora){.num_targets = 1,
                                         .act_dtype = cuda_act_dtype_of(p->w->matrix[0].layout),
                                         .y = y,
                                         .ldy = D,
                                         .widest = D});
}

// y (T, D) = this device's part of x w^T
static void project(struct device *dev, const struct projection *p, float *y) {
    cuda_multiply(dev, p->w, p->x, dev->work.num_tokens, y, dev->model.hidden);
    add_lora(dev, p, y);
}

// resid += all_reduce(x w^T) + bias, or as add_scaled()
static void add_projection(struct device *dev, struct projection p) {
    int rows = dev->work.num_tokens;
    bool alone = dev->peers.world == 1;
    if (alone && !dev->added) {
        cuda_multiply_add(dev, p.w, p.x, rows, dev->resid);
        add_lora(dev, &p, dev->resid);
        return;
    }
    project(dev, &p, alone ? dev->added : dev->peers.part);
    if (!alone)
        cuda_peers_sum(dev, p.w, dev->added ? dev->added : dev->resid, !dev->added, p.w->bias, rows);
    if (dev->added)
        add_scaled(dev, alone ? p.w->bias : NULL, p.post_norm, p.scale);
}

void cuda_phase_attn_out(struct device *dev, const struct layer *layer, const struct step *step) {
    (void)step;
    struct activation *x = &dev->attn;
    enum act_dtype written = cuda_written_dtype(x);
    int rows = dev->work.num_tokens, n = spec_q_size(&layer->attn);
    if (layer->attn_gate)
        cuda_gate(dev->rt, &(struct cuda_gate){x->data[ACT_DTYPE_F32], dev->gate, rows, n, x->ld});
    if (layer->attn.kind == ATTN_LATENT) {
        cuda_latent_out(dev, layer);
    } else {
        // Clears columns that a layer with more heads has left: the GEMM and a row's largest must not see them.
        cuda_clear(dev->rt, &(struct cuda_clear){x->data[written], written, rows, n, x->n, x->ld});
        cuda_convert(dev, x, rows);
    }
    if (dev->model.block == BLOCK_PARALLEL)
        normalise_ffn(dev, layer);
    add_projection(dev, (struct projection){.layer = layer,
                                            .target = ADAPTER_OUT,
                                            .w = layer->attn_out,
                                            .post_norm = layer->attn_post_norm,
                                            .x = x});
    if (dev->model.altup_streams > 0)
        cuda_altup_attended(dev, layer);
}

void cuda_phase_mix(struct device *dev, const struct layer *layer, const struct step *step) {
    (void)step;
    cuda_normalise(dev, &dev->hidden, dev->resid, layer->attn_norm, dev->work.num_tokens, NULL,
                   cuda_dtypes_of(layer->mix_in) | cuda_dtypes_of(layer->mix_gate));
    cuda_mix_rows(dev, layer);
}

void cuda_phase_mix_out(struct device *dev, const struct layer *layer, const struct step *step) {
    (void)step;
    add_projection(dev,
                   (struct projection){.target = ADAPTER_TARGETS, .w = layer->mix_out, .x = &dev->mix.out});
}

void cuda_phase_ffn_in(struct device *dev, const struct layer *layer, const struct step *step) {
    (void)step;
    if (!block_is_parallel(dev->model.block))
        normalise_ffn(dev, layer);
    if (layer->gate_up) // with experts the shared one's
        cuda_multiply_ffn(dev, layer, &dev->hidden, dev->work.num_tokens, &dev->ffn);
    if (layer->ffn.experts == 0)
        return;
    if (layer->ffn.own_norms)
        cuda_normalise(dev, &dev->hidden, dev->resid, layer->router_norm, dev->work.num_tokens, NULL,
                       cuda_dtypes_of(layer->router));
    cuda_experts_route(dev, layer);
    if (layer->ffn.own_norms)
        cuda_normalise(dev, &dev->hidden, dev->resid, layer->expert_norm, dev->work.num_tokens, NULL,
                       cuda_dtypes_of(layer->expert_gate_up));
    cuda_experts_in(dev, layer);
}

// added = norm(added) + norm(what the shared expert gives + bias)
static void add_own_norms(struct device *dev, const struct layer *layer) {
    const struct weight *norm = layer->shared_post_norm;
    int rows = dev->work.num_tokens;
    normalise_in_place(dev, dev->added, layer->expert_post_norm, rows);
    struct cuda_add a = {.x = dev->experts.shared,
                         .bias = layer->down->bias,
                         .norm = norm->table,
                         .norm_bias = norm->bias,
                         .kind = dev->model.norm,
                         .resid = dev->added,
                         .factor = 1,
                         .eps = dev->model.norm_eps,
                         .rows = rows,
                         .n = dev->model.hidden};
    cuda_add(dev->rt, &a);
}

void cuda_phase_ffn_out(struct device *dev, const struct layer *layer, const struct step *step) {
    (void)step;
    const struct weight *scale =
        dev->model.layer_embed == 0 ? layer->layer_scale : NULL; // the layer ends here
    if (layer->ffn.experts == 0) {
        add_projection(dev, (struct projection){.layer = layer,
                                                .target = ADAPTER_DOWN,
                                                .w = layer->down,
                                                .post_norm = layer->ffn_post_norm,
                                                .scale = scale,
                                                .x = &dev->ffn});
        return;
    }
    cuda_experts_out(dev, layer);
    if (layer->ffn.own_norms)
        add_own_norms(dev, layer);
    if (dev->added)
        add_scaled(dev, NULL, layer->ffn_post_norm, scale);
}

void cuda_phase_layer_out(struct device *dev, const struct layer *layer, const struct step *step) {
    (void)step;
    int rows = dev->work.num_tokens, P = dev->model.layer_embed;
    struct own *own = &dev->own;
    if (P == 0)
        return;
    struct cuda_act a = {.x = own->gate,
                         .act = layer->ffn.act,
                         .gated = true,
                         .out = own->h.data[cuda_written_dtype(&own->h)],
                         .act_dtype = cuda_written_dtype(&own->h),
                         .rows = rows,
                         .n = P,
                         .ldx = round_up(P, 8),
                         .ldout = own->h.ld,
                         .ups = own->embed + (size_t)layer->index * (size_t)P,
                         .ld_ups = dev->model.num_layers * P};
    bool altup = dev->model.altup_streams > 0;
    if (altup)
        cuda_altup_out(dev, layer);
    cuda_normalise(dev, &dev->hidden, altup ? dev->added : dev->resid, NULL, rows, NULL,
                   cuda_dtypes_of(layer->embed_gate));
    cuda_multiply(dev, layer->embed_gate, &dev->hidden, rows, own->gate, a.ldx);
    cuda_act(dev->rt, &a);
    cuda_convert(dev, &own->h, rows);
    cuda_multiply(dev, layer->embed_out, &own->h, rows, dev->added, dev->model.hidden);
    if (altup)
        cuda_altup_add(dev, layer);
    else
        add_by(dev, 1, NULL, layer->embed_norm, layer->layer_scale);
}

// Hidden states of logits rows [first, first + n), or rows of the streams' mean, to the host, where they are kept.
static void download_hidden(struct device *dev, const float *from, const struct weight *norm, int first,
                            int n) {
    float *to = dev->result[dev->num_begun & 1].hidden;
    size_t D = (size_t)dev->model.hidden;
    if (!to)
        return;
    struct cuda_norm a = cuda_norm_of(dev, from, norm, n);
    a.of = from == dev->resid ? &dev->inputs.rows[first].row : NULL;
    a.of_stride = sizeof *dev->inputs.rows / sizeof(int32_t);
    a.out = dev->last_hidden;
    a.act_dtype = ACT_DTYPE_F32;
    a.ldout = dev->model.hidden;
    cuda_norm(dev->rt, &a);
    rt_download(dev->rt, to + (size_t)first * D, dev->last_hidden, (size_t)n * D * sizeof(float));
}

static void download_logits(struct device *dev, int first, int n) {
    float *to = dev->result[dev->num_begun & 1].logits;
    size_t V = (size_t)dev->model.vocab;
    for (int r = 0; to && r < n; r++)
        rt_download(dev->rt, to + (size_t)(first + r) * V, dev->logits + (size_t)r * (size_t)dev->logits_ld,
                    V * sizeof(float));
}

static void compute_logits(struct device *dev, const struct weight *w, int n) {
    int begin = dev->peers.begin[dev->peers.rank]; // of the tokens that this rank has
    cuda_multiply_last(dev, w, n,
                       (struct cuda_gemm){.epilogue = EPILOGUE_LOGITS,
                                          .y = dev->logits + begin,
                                          .ldy = dev->logits_ld,
                                          .n = w->rows[0],
                                          .bias = w->bias,
                                          .max = dev->max + begin / CUDA_GROUP,
                                          .ldmax = dev->num_maxima,
                                          .factor = model_scale(dev->model.logit_scale),
                                          .softcap = dev->model.logit_softcap});
}

// The number of rows from r on that are sampled at once. If the step's entries do not all fit, uploads those of these
// rows and waits for it: the next ones take their place.
static int begin_rows(struct device *dev, const struct step *step, int r) {
    struct step_work *w = &dev->work;
    int n = min_int(w->num_rows - r, dev->head_rows);
    if (!w->entries_apart || r >= step->num_rows)
        return n;
    unsigned char *upload = dev->upload[dev->num_begun & 1];
    n = work_entries(w, &dev->work_config, upload, step, r, min_int(step->num_rows - r, n), dev->seen,
                     &dev->stamp);
    CHECK(n > 0);
    rt_upload_now(dev->rt, (char *)dev->staging + w->entries, upload + w->entries, w->bytes - w->entries);
    rt_upload_now(dev->rt, dev->inputs.prep + r, w->prep + r, (size_t)n * sizeof *w->prep);
    return n;
}

void cuda_phase_head(struct device *dev, const struct model *model, const struct step *step) {
    const struct logits_row *rows = dev->inputs.rows;
    for (int r = 0, n; r < dev->work.num_rows; r += n) {
        n = begin_rows(dev, step, r);
        bool altup = dev->model.altup_streams > 0;
        const float *from = altup ? cuda_altup_head(dev, model, rows + r, n) : dev->resid;
        download_hidden(dev, from, model->out_norm, r, n);
        if (!model->head)
            continue;
        cuda_normalise(dev, &dev->last, from, model->out_norm, n, altup ? NULL : rows + r,
                       cuda_dtypes_of(model->head));
        compute_logits(dev, model->head, n);
        struct cuda_sample s = {.rows = rows + r,
                                .prep = dev->inputs.prep + r,
                                .entries = dev->staging,
                                .passes = dev->staging,
                                .mask_bits = dev->staging,
                                .logits = dev->logits,
                                .max = dev->max,
                                .adjusted = dev->adjusted,
                                .adjusted_max = dev->adjusted_max,
                                .sums = dev->sums,
                                .parts = dev->sample_parts,
                                .num_rows = n,
                                // a graph serves rows with entries and without
                                .num_adjusted = dev->bucket ? n : dev->work.num_adjusted,
                                .vocab = dev->model.vocab,
                                .ld = dev->logits_ld,
                                .ldmax = dev->num_maxima,
                                .first = r,
                                .end = dev->model.vocab,
                                .num_slices = CUDA_SAMPLE_SLICES,
                                // of ranks each needs the logits that it keeps
                                .max_topk = dev->peers.world > 1 && dev->limits.keep_logits ? 0 : CUDA_TOPK,
                                .topk = dev->topk,
                                .ids = dev->ids,
                                .top_ids = dev->top_ids,
                                .logprob = dev->logprob,
                                .rank = dev->rank,
                                .share = dev->share,
                                .top_logprobs = dev->top_logprobs,
                                .failed = dev->failed};
        if (dev->peers.world > 1)
            cuda_peers_gather(dev, &s, n);
        rt_range_begin(dev->rt, "sample");
        cuda_sample(dev->rt, &s);
        rt_range_end(dev->rt);
        download_logits(dev, r, n);
    }
}

void cuda_phase_resid_export(struct device *dev, float *dst, const struct step *step) {
    int rank = dev->peers.rank, world = dev->peers.world;
    size_t n = (size_t)step->num_tokens * (size_t)dev->model.hidden;
    rt_download(dev->rt, dst, dev->resid + (size_t)rank * backend_resid_part(n, world),
                backend_resid_count(n, rank, world) * sizeof *dst);
}

void cuda_phase_resid_import(struct device *dev, const float *src, const struct step *step) {
    size_t n = (size_t)step->num_tokens * (size_t)dev->model.hidden;
    if (dev->peers.world > 1)
        cuda_peers_share(dev, dev->resid, src, n);
    else
        rt_upload(dev->rt, dev->resid, src, n * sizeof *src);
}

void *cuda_host_alloc(struct device *dev, size_t bytes) { return rt_alloc_host(dev->rt, bytes); }
void cuda_host_free(struct device *dev, void *p) { rt_free_host(dev->rt, p); }
