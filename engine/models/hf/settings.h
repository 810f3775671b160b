// What a configuration says that the folder's tensors and vocabulary need.
#pragma once

#include "families.h"

enum { HF_MAX_EOS = 64 };

struct hf_config {
    const struct hf_family *family;
    const char *arch;                                                  // the family's, but for a few
    int64_t layers, hidden, heads, kv_heads, head_dim, context, vocab; // vocab 0: not said
    bool tied, more_layers; // behind the model's own, of speculation; skipped
    int64_t state_heads, state_groups, state_rows, state_columns; // of recurrent layers
    float factors[NUM_FACTORS], state_factors[HF_STATE_PARTS];    // of weights
    int64_t block_rows, block_cols; // of a scale of quantised matrices; 0: not said
    // LongRoPE's, (num_factors) each, from hf_alloc(); NULL: none
    const float *short_factors, *long_factors;
    int64_t num_factors;
    int64_t eos[HF_MAX_EOS]; // that end a generation
    int num_eos;
};
