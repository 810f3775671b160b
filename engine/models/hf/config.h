// config.json and generation_config.json of a folder as keys of GGUF.
#pragma once

#include "keys.h"
#include "settings.h"
#include "json/jdoc.h"

// Reads them; generation and modelopt (hf_quant_config.json) may be NULL. STATUS_FORMAT: what Quire does not compute is
// refused by its key, byte and value; STATUS_NOMEM. Sizes are positive and below 2^31 afterwards; their ranges are
// model_config.c's business.
enum status hf_config_read(const struct jdoc *config, const struct jdoc *generation,
                           const struct jdoc *modelopt, struct hf_keys *keys, struct hf_config *c,
                           struct err *err);
