// The feed-forward part of a layer, dense or of experts: phases of backend_ops.
#pragma once

#include "ref_device.h"

void ref_ffn_in(struct device *dev, const struct layer *layer, const struct step *step);
void ref_ffn_out(struct device *dev, const struct layer *layer, const struct step *step);
