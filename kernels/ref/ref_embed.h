// Embeddings, of the model and of its layers, and the streams beside the residual one: what comes before a layer's
// parts and behind them.
#pragma once

#include "ref_device.h"
#include "ref_streams.h"

// The streams as ref_streams.h takes them. coefs: of a layer, and matrices (N - 1) of the model, or NULL
struct ref_altup ref_streams_of(const struct device *dev, const struct layer *layer,
                                const struct weight *coefs, const struct weight *const *matrices);
// Those of row t.  (N, D)
float *ref_streams_at(const struct device *dev, int t);

// As backend_ops has them.
void ref_embed(struct device *dev, const struct model *model, const struct step *step);
void ref_layer_in(struct device *dev, const struct layer *layer, const struct step *step);
void ref_layer_out(struct device *dev, const struct layer *layer, const struct step *step);
