// Attention over the cache, and recurrent layers, which stand in its place: phases of backend_ops.
#pragma once

#include "ref_device.h"

void ref_qkv(struct device *dev, const struct layer *layer, const struct step *step);
void ref_attn_prefill(struct device *dev, const struct layer *layer, const struct step *step);
void ref_attn_decode(struct device *dev, const struct layer *layer, const struct step *step);
void ref_attn_out(struct device *dev, const struct layer *layer, const struct step *step);

void ref_mix_phase(struct device *dev, const struct layer *layer, const struct step *step);
void ref_mix_out(struct device *dev, const struct layer *layer, const struct step *step);
