// The most elements of a row of any layer: sizes of the reference backend's buffers.
#pragma once

#include "minmax.h"
#include "ref_latent.h"
#include "ref_mix.h"

static inline int q_size(const struct attn_spec *a) { return a->heads * a->head_dim; }

// The elements of the widest queries of any attention.
static inline int max_q_size(const struct model_config *m) {
    int size = 0;
    for (int i = 0; i < m->num_attn; i++)
        size = max_int(size, q_size(&m->attn[i]));
    return size;
}

static inline int max_head_dim(const struct model_config *m) {
    int size = 0;
    for (int i = 0; i < m->num_attn; i++)
        size = max_int(size, m->attn[i].head_dim);
    return size;
}

// The widest row that attention gives, and that ref_latent_in() needs.
static inline int max_attn_size(const struct model_config *m, bool scratch) {
    int size = max_q_size(m);
    for (int i = 0; i < m->num_attn; i++) {
        const struct attn_spec *a = &m->attn[i];
        size = max_int(size, scratch ? a->q_lora + a->heads * (a->nope_dim + a->rope_dim) : attn_out_size(a));
    }
    return size;
}

// Numbers of a row between the two halves of a feed-forward part: the shared expert's, then those of the chosen ones.
static inline int ffn_size(const struct ffn_spec *f) {
    return f->experts > 0 ? f->shared_hidden + f->top_k * f->hidden : f->hidden;
}

static inline int max_ffn(const struct model_config *m) {
    int size = 0;
    for (int i = 0; i < m->num_ffn; i++)
        size = max_int(size, max_int(ffn_size(&m->ffn[i]), m->ffn[i].experts));
    return size;
}

// Rows of the first two matrices of a recurrent layer.
static inline int mix_in_size(const struct mix_spec *x) {
    return x->kind == MIX_CONV ? 3 * x->heads : mix_channels(x);
}
static inline int mix_gate_size(const struct mix_spec *x) { return mix_values(x) + 2 * x->heads; }

static inline int max_top_k(const struct model_config *m) {
    int top_k = 0;
    for (int i = 0; i < m->num_ffn; i++)
        top_k = max_int(top_k, m->ffn[i].top_k);
    return top_k;
}
