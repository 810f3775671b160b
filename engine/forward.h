// The forward pass of a transformer, written once for every backend.
#pragma once

#include "backend.h"

// Runs one step: from token ids to sampled tokens. The results come with ops->sync(). The device's thread.
//
// in and out, (T, D): of a stage, what comes from the stage before and goes to the next; NULL: this stage
// embeds; this stage has the head. in is read and out written until ops->sync().
// Llama: Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", 2023; grouped-query
// attention: Ainslie et al., "GQA: Training Generalized Multi-Query Transformer Models", 2023.
void model_forward(const struct backend_ops *ops, struct device *dev, const struct model *model,
                   const struct step *step, const float *in, float *out);
