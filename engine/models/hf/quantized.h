// Quantised matrices of folders: what belongs to one, and what it becomes.
//
// FP8 (E4M3) and int8, of a scale for the whole, for each row or for blocks, become BF16: the product in F32, rounded to
// nearest even, as transformers dequantises them. Packed int4 of one scale for 32 or more columns becomes Q4_0 with the
// same values; a scale that F16 cannot hold is refused. MXFP4 of several matrices is ours in another order. Activations
// are not quantised, whatever a file says of them.
#pragma once

#include "config.h"
#include "shards.h"

#include "tensor.h"

enum hf_scheme {
    HF_PLAIN,  // not quantised
    HF_SCALED, // numbers of eight bits times scales, to BF16
    HF_INT4,   // to Q4_0
    HF_MXFP4,  // blocks of 16 bytes, and their exponents
};

struct hf_quant {
    enum hf_scheme scheme;
    enum dtype dtype;                  // it becomes
    const struct hf_source **scales;   // one for each source
    int64_t cols;                      // elements of a row
    int64_t block_rows, block_cols;    // of a scale
    int64_t scale_cols;                // scales of a row
    uint64_t row_bytes, out_row_bytes; // in the file, and made
};

// Whether a tensor is a part of a quantised matrix beside its numbers, and not looked at by itself.
bool hf_quantized_is_part(const struct hf_shards *shards, struct text_view name);
// Fills q for num sources, alike, HF_PLAIN for those that are not quantised. f is for messages. false: err.
bool hf_quantized_make(const struct hf_shards *shards, const struct hf_config *c, struct hf_keys *keys,
                       const struct hf_source *const *sources, int num, struct hf_quant *q,
                       const struct model_file *f, struct err *err);
// Copies bytes [skip, skip + bytes) of what a row of a source becomes. NULL, or why, at the address *stopped. Any thread.
const char *hf_quantized_row(const struct hf_files *d, const struct hf_quant *q, const struct hf_source *s,
                             const struct hf_source *scale, uint64_t row, uint64_t skip, uint64_t bytes,
                             char *dst, uint64_t *stopped);
