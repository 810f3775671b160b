// Sampling parameters of requests that give none.
#pragma once

#include "config.h"
#include "engine.h"
#include "sampling.h"

// Starts with the values of an API without advice, then takes the model's (--generation-config), then the operator's
// (--override-generation-config), and logs which are not the first. STATUS_INVALID: one of the two flags. Any thread.
enum status sampling_defaults(struct sampling_params *out, const struct config *c,
                              const struct engine_info *info, struct err *err);
