// See ref_rows.h.
#include "ref_rows.h"

#include <string.h>

void ref_norm_row(const struct device *dev, float *y, const float *x, const struct weight *norm, int first,
                  int n) {
    const float *w = (const float *)norm->part[0].data + first;
    if (dev->model.norm == NORM_LAYER)
        ref_layernorm(y, x, w, norm->part[0].bias, n, dev->model.norm_eps);
    else
        ref_rmsnorm(y, x, w, n, dev->model.norm_eps);
}

void ref_normalise(struct device *dev, const float *x, const struct weight *norm) {
    if (norm)
        ref_norm_row(dev, dev->norm, x, norm, 0, dev->model.hidden);
    else
        memcpy(dev->norm, x, (size_t)dev->model.hidden * sizeof *x);
}

void ref_gate_and_up(struct device *dev, float *h, const float *x, const struct ref_matrix *gate,
                     const struct ref_matrix *up, enum act act) {
    ref_matvec(dev->wide, x, gate);
    if (up)
        ref_matvec(dev->wide + gate->rows, x, up);
    ref_act(h, act, dev->wide, up ? dev->wide + gate->rows : NULL, gate->rows);
}

void ref_sum_ranks(struct device *dev, float *x) {
    if (dev->comm)
        dev->apart |= dev->comm->ops->all_reduce(dev->comm, x, (size_t)dev->model.hidden) != STATUS_OK;
}

void ref_add_wide(struct device *dev, float *x, const float *bias, const struct weight *post_norm) {
    int D = dev->model.hidden;
    float scale = model_scale(dev->model.residual_scale);
    for (int i = 0; bias && i < D; i++)
        dev->wide[i] += bias[i];
    bool sum = dev->model.block == BLOCK_SUM_NORM;
    if (post_norm && !sum)
        ref_norm_row(dev, dev->wide, dev->wide, post_norm, 0, D);
    for (int i = 0; i < D; i++)
        x[i] += scale * dev->wide[i];
    if (post_norm && sum)
        ref_norm_row(dev, x, x, post_norm, 0, D);
}

void ref_add_projection(struct device *dev, const float *h, const struct layer *layer,
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
        ref_sum_ranks(dev, dev->wide);
        ref_add_wide(dev, dev->resid + (size_t)t * (size_t)part.rows, dev->comm ? w->part[0].bias : NULL,
                     post_norm);
    }
}
