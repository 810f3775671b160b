// See ref_attention.h.
#include "ref_attention.h"

#include "ref_kv.h"
#include "ref_rows.h"
#include "ref_sizes.h"

#include "hadamard.h"
#include "log.h"
#include "rope.h"

#include <math.h>
#include <string.h>

// Norm of each head by its own weight where the layer has one, and rotation.
static void finish_heads(struct device *dev, const struct attn_spec *a, float *x, int num_heads,
                         const struct weight *norm, const int32_t positions[ROPE_AXES]) {
    bool whole = a->qk_norm == QK_NORM_WHOLE, unit = a->qk_norm == QK_NORM_UNIT;
    for (int i = 0; i < num_heads * a->head_dim; i++)
        x[i] = attn_clipped(a, x[i]);
    if (whole)
        ref_norm_row(dev, x, x, norm, 0, num_heads * a->head_dim);
    for (int h = 0; h < num_heads; h++, x += a->head_dim) {
        if (a->rope >= 0 && a->qk_norm == QK_NORM_ROTATED)
            ref_rope(x, &dev->model.ropes[a->rope], positions);
        if (norm && !whole)
            ref_norm_row(dev, x, x, norm, a->qk_norm == QK_NORM_EACH ? h * a->head_dim : 0, a->head_dim);
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

static void latent_row(struct device *dev, const struct layer *layer, int t, int position, int64_t slot) {
    const struct attn_spec *a = &layer->attn;
    struct ref_latent w = ref_latent_weights(layer, dev->model.norm_eps);
    ref_latent_in(dev->q + (size_t)t * (size_t)q_size(a), dev->keys, &w, a,
                  a->rope >= 0 ? &dev->model.ropes[a->rope] : NULL, dev->norm, position, dev->wide);
    if (slot >= 0)
        ref_kv_store(dev, layer, 0, slot, dev->keys);
}

void ref_qkv(struct device *dev, const struct layer *layer, const struct step *step) {
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
        ref_normalise(dev, x, layer->attn_norm);
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
            ref_kv_store(dev, layer, which, slots[t], dev->wide);
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
            ref_kv_fetch(dev, layer, 0, slot, kvh, dev->keys + (size_t)p * (size_t)d);
            if (a->kind != ATTN_LATENT)
                ref_kv_fetch(dev, layer, 1, slot, kvh, dev->values + (size_t)p * (size_t)d);
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

void ref_attn_prefill(struct device *dev, const struct layer *layer, const struct step *step) {
    for (int s = step->num_decode; s < step->num_seqs; s++)
        attend_sequence(dev, layer, step, s);
}

void ref_attn_decode(struct device *dev, const struct layer *layer, const struct step *step) {
    for (int s = 0; s < step->num_decode; s++)
        attend_sequence(dev, layer, step, s);
}

void ref_attn_out(struct device *dev, const struct layer *layer, const struct step *step) {
    int width = q_size(&layer->attn);
    for (int t = 0; t < step->num_tokens && layer->attn_gate; t++) {
        float *h = dev->h + (size_t)t * (size_t)width;
        ref_normalise(dev, dev->resid + (size_t)t * (size_t)dev->model.hidden, layer->attn_norm);
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
    ref_add_projection(dev, dev->h, layer, ADAPTER_OUT, layer->attn_out, layer->attn_post_norm, step);
    for (size_t i = 0; layer->laurel_norm && i < (size_t)step->num_tokens * (size_t)dev->model.hidden; i++)
        dev->resid[i] = (float)(((double)dev->resid[i] + (double)dev->laurel[i]) / sqrt(2));
}

void ref_mix_phase(struct device *dev, const struct layer *layer, const struct step *step) {
    const struct ref_mix m = ref_mix_weights(layer, dev->model.norm_eps);
    const struct step_group *pages = &step->groups[layer->state_group];
    size_t size = (size_t)model_state_size(&dev->model), v = (size_t)mix_values(&layer->mix);
    for (int s = 0; s < step->num_seqs; s++) {
        float *state = (float *)(void *)ref_kv_block(dev, pages->block_ids[pages->block_start[s]]) +
                       (size_t)layer->state_layer * size;
        if (step->positions[step->query_start[s]] == 0)
            memset(state, 0, size * sizeof *state);
        for (int t = step->query_start[s]; t < step->query_start[s + 1]; t++) {
            ref_normalise(dev, dev->resid + (size_t)t * (size_t)dev->model.hidden, layer->attn_norm);
            ref_project(dev->mix_in, dev->norm, layer->mix_in);
            ref_project(dev->mix_gate, dev->norm, layer->mix_gate);
            ref_mix(dev->mixed + (size_t)t * v, dev->mix_in, dev->mix_in + mix_in_size(&layer->mix),
                    dev->mix_gate, state, &m);
        }
    }
}

void ref_mix_out(struct device *dev, const struct layer *layer, const struct step *step) {
    ref_add_projection(dev, dev->mixed, layer, ADAPTER_TARGETS, layer->mix_out, NULL, step);
}
