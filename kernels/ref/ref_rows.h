// One row on its way through a layer: norms, gates, and its return to the residual stream.
#pragma once

#include "ref_device.h"

// y = x normalised as the model does, by weights of the norm from `first` on.  (n) each
void ref_norm_row(const struct device *dev, float *y, const float *x, const struct weight *norm, int first,
                  int n);

// x (D) into dev->norm, normalised where there is a norm
void ref_normalise(struct device *dev, const float *x, const struct weight *norm);

// h (F) = act(gate) * up, or act(gate) where up is NULL, of the row x; by way of dev->wide
void ref_gate_and_up(struct device *dev, float *h, const float *x, const struct ref_matrix *gate,
                     const struct ref_matrix *up, enum act act);

// x = its sum over the ranks; dev->apart: they have lost each other.  x (D)
void ref_sum_ranks(struct device *dev, float *x);

// x += residual_scale * post_norm(dev->wide + bias), bias or NULL; or the norm is of the sum
void ref_add_wide(struct device *dev, float *x, const float *bias, const struct weight *post_norm);

// resid += residual_scale * post_norm(all_reduce(h · Wᵀ) + adapters + bias), of all rows of the step. target
// ADAPTER_TARGETS: no adapters
void ref_add_projection(struct device *dev, const float *h, const struct layer *layer,
                        enum adapter_target target, const struct weight *w, const struct weight *post_norm,
                        const struct step *step);
