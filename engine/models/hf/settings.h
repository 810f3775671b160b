// Settings of a configuration that the reading of the folder's tensors and vocabulary needs.
#pragma once

#include "families.h"

enum { HF_MAX_EOS = 64 };

enum hf_method {  // of quantisation, where tensors do not say all
    HF_NO_METHOD, // or one whose tensors say all: fp8, mxfp4, compressed-tensors, modelopt
    HF_GPTQ,
    HF_AWQ,
};

struct hf_quantization {
    enum hf_method method;
    int64_t bits;                   // of a packed integer: 4 or 8
    int64_t group;                  // columns of a scale; 0: all (GPTQ, AWQ)
    int64_t block_rows, block_cols; // of a scale of FP8; 0: not said
    bool symmetric, ordered;        // GPTQ: every zero point is the middle; columns have groups of their own
    bool less_one;                  // zero points are stored as z - 1
};

struct hf_config {
    const struct hf_family *family;
    const char *arch;                                                  // the family's, but for a few
    int64_t layers, hidden, heads, kv_heads, head_dim, context, vocab; // vocab 0: not said
    int64_t skipped_positions;                                         // rows of their table that none has
    bool ungrouped;         // keys of groups of experts mean nothing
    bool tied, more_layers; // behind the model's own, of speculation: the first may draft, others are skipped
    int64_t rope_dim;       // of latent attention; 0: heads are the same for keys and values
    int64_t experts;        // among which FORM_EXPERTS divides rows; 0: none
    int64_t state_heads, state_groups, state_rows, state_columns; // of recurrent layers
    float factors[NUM_FACTORS], state_factors[HF_STATE_PARTS];    // of weights
    struct hf_quantization quantization;
    int dense;             // matrices behind the pooling, in N_Dense/model.safetensors from N = 2 on
    int64_t window_dim;    // of heads in layers with a window; 0: as head_dim
    bool kv_heads_differ;  // from layer to layer
    int64_t full_kv_heads; // of layers without one, where a list says so; 0: other keys do
    // LongRoPE's, or what divides frequencies; (num_factors) each, from hf_alloc(); NULL: none
    const float *short_factors, *long_factors, *freq_factors;
    int64_t num_factors;
    int64_t eos[HF_MAX_EOS]; // that end a generation
    int num_eos;
};
