// config.json and generation_config.json of a folder as keys of GGUF.
#pragma once

#include "families.h"
#include "jdoc.h"
#include "keys.h"

enum { HF_MAX_EOS = 64 };

struct hf_config {
    const struct hf_family *family;
    int64_t layers, hidden, heads, kv_heads, head_dim, context, vocab; // vocab 0: not said
    bool tied;
    int64_t block_rows, block_cols; // of a scale of quantised matrices; 0: not said
    // LongRoPE's, (num_factors) each, from hf_alloc(); NULL: none
    const float *short_factors, *long_factors;
    int64_t num_factors;
    int64_t eos[HF_MAX_EOS]; // that end a generation
    int num_eos;
};

// Reads both; generation may be NULL. STATUS_FORMAT: what Quire does not compute is refused by its key, byte and value;
// STATUS_NOMEM. Sizes are positive and below 2^31 afterwards; their ranges are model_config.c's business.
enum status hf_config_read(const struct jdoc *config, const struct jdoc *generation, struct hf_keys *keys,
                           struct hf_config *c, struct err *err);
