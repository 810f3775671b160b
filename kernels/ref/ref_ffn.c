// See ref_ffn.h.
#include "ref_ffn.h"

#include "ref_rows.h"

#include <math.h>
#include <string.h>

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
        ref_gate_and_up(dev, h, dev->norm, &layer->gate_up->part[0],
                        f->no_gate ? NULL : &layer->gate_up->part[1], f->act);
    if (S > 0 && layer->shared_gate) {
        ref_matvec(&gate, dev->norm, &layer->shared_gate->part[0]);
        for (int i = 0; i < S; i++)
            h[i] = (float)((double)h[i] / (1 + exp(-(double)gate)));
    }
    for (int i = 0; i < S; i++)
        h[i] *= model_scale(f->shared_scale);
    if (f->own_norms)
        ref_normalise(dev, x, layer->router_norm);
    ref_matvec(dev->wide, f->early_router ? dev->before + (size_t)t * (size_t)dev->model.hidden : dev->norm,
               &layer->router->part[0]);
    for (int e = 0; e < f->experts; e++)
        dev->wide[e] *= model_scale(f->router_scale);
    ref_route(chosen, dev->expert_weights + (size_t)t * (size_t)f->top_k, dev->wide,
              layer->select_bias ? layer->select_bias->part[0].data : NULL,
              f->expert_scale ? layer->expert_scale->part[0].data : NULL, f);
    if (f->own_norms)
        ref_normalise(dev, x, layer->expert_norm);
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
        ref_gate_and_up(dev, h + S + k * F, dev->weighed, &m[0], f->no_gate ? NULL : &m[1], f->act);
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
    ref_sum_ranks(dev, dev->wide);
    if (!apart)
        return;
    ref_sum_ranks(dev, dev->shared);
    if (f->latent)
        transform(dev, dev->wide, &layer->expert_out->part[0]);
    if (f->own_norms) {
        ref_norm_row(dev, dev->wide, dev->wide, layer->expert_post_norm, 0, D);
        ref_norm_row(dev, dev->shared, dev->shared, layer->shared_post_norm, 0, D);
    }
    for (int i = 0; i < D; i++)
        dev->wide[i] += dev->shared[i];
}

void ref_ffn_in(struct device *dev, const struct layer *layer, const struct step *step) {
    int D = dev->model.hidden;
    const float *x = block_is_parallel(dev->model.block) ? dev->before : dev->resid;
    for (int t = 0; t < step->num_tokens; t++) {
        ref_normalise(dev, x + (size_t)t * (size_t)D, layer->ffn_norm);
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

void ref_ffn_out(struct device *dev, const struct layer *layer, const struct step *step) {
    if (layer->ffn.experts == 0) {
        ref_add_projection(dev, dev->h, layer, ADAPTER_DOWN, layer->down, layer->ffn_post_norm, step);
        return;
    }
    for (int t = 0; t < step->num_tokens; t++) {
        experts_out(dev, layer, t);
        ref_add_wide(dev, dev->resid + (size_t)t * (size_t)dev->model.hidden,
                     layer->expert_sum_bias ? layer->expert_sum_bias->part[0].data : NULL,
                     layer->ffn_post_norm);
    }
}
