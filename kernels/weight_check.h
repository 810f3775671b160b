// Checks the shapes and types of a weight, for every backend that packs weights.
#pragma once

#include "backend.h"

// Whether shapes and types are those of the role in this model; else false, with STATUS_INVALID in err.
bool weight_check(const struct model_config *m, const struct weight_desc *desc, struct err *err);
