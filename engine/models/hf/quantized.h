// Quantised matrices of folders: what belongs to one, and what it becomes.
//
// Integers s * (q - z) keep their values: Q4_0 where they have four bits and z is the middle, else Q8_0 where q - z has
// eight. That asks for groups of a multiple of 32 columns in order, and for scales that F16 holds: one that it does not
// hold is refused. Where groups or scales (F32) are others, the type is that of the scales, or BF16. FP8 (E4M3) keeps its
// bytes, with a scale for 32 columns of a row; where 32 does not divide rows, or 128 the columns of a scale that is not a
// whole row's, it becomes BF16 like NVFP4: products in F32, rounded to nearest even. MXFP4 is ours in another order. Activations are not quantised as
// a file says, but as the type that comes out asks for.
#pragma once

#include "config.h"
#include "shards.h"

#include "tensor.h"

enum hf_scheme {
    HF_PLAIN, // not quantised
    HF_FP8,   // E4M3
    HF_INT8,
    // integers of four or eight bits along the columns of words of 32, each stored plus the middle of their range
    HF_WORDS,
    HF_WORDS_GPTQ, // the same down the columns: each word has several columns of one row
    HF_WORDS_AWQ,  // each word has eight rows of one column, in an order of its own
    HF_FP4,        // E2M1, two to a byte
};

enum hf_part_kind { HF_SCALES, HF_ZEROS, HF_ORDER, HF_GLOBAL, HF_NUM_PARTS };

// How a tensor of a matrix lies in its file: lines of rows, or lines of columns with the rows across.
struct hf_grid {
    bool across;
    uint64_t rows;  // of a unit
    uint64_t unit;  // bytes: a line, or what a unit of rows has of one
    uint64_t lines; // where rows lie across
};

struct hf_quant {
    enum hf_scheme scheme;
    enum dtype dtype;                             // it becomes
    const struct hf_source **parts[HF_NUM_PARTS]; // one for each source; NULL: none
    struct hf_grid grid, grids[HF_NUM_PARTS];     // of values, of scales and zero points
    enum st_type types[HF_NUM_PARTS];
    int64_t cols, block_cols, num_scales; // of a row, of a scale; scales of a row
    int bits;                             // of integers in words
    bool symmetric, less_one, divides;    // divides: the global scale
    uint64_t out_row_bytes;               // made
};

// Whether a tensor is a part of a quantised matrix beside its values, and not looked at by itself.
bool hf_quantized_is_part(const struct hf_shards *shards, struct text_view name);
// The name without what a format adds to that of values, as .qweight.
struct text_view hf_quantized_stem(struct text_view name);
// Fills q for num sources, alike, HF_PLAIN for those that are not quantised. *s, of the first one's shape, gets that of the
// matrix. f is for messages. false: err.
bool hf_quantized_make(const struct hf_shards *shards, const struct hf_config *c, struct hf_keys *keys,
                       const struct hf_source *const *sources, int num, struct st_tensor *s,
                       struct hf_quant *q, const struct model_file *f, struct err *err);
// The address of a row's first number.
uint64_t hf_quantized_origin(const struct hf_quant *q, const struct hf_source *s, uint64_t row);

// ---- reading, any thread

struct hf_band; // rows of a matrix in memory
enum { HF_BAND_ROWS = 512, HF_BAND_ELEMENTS = 1 << 22 };

// Reads rows [first, first + num) of source `which` of sources. NULL: *why, at the address *stopped.
struct hf_band *hf_band_read(const struct hf_files *d, const struct hf_quant *q,
                             const struct hf_source *const *sources, int which, uint64_t first, uint64_t num,
                             const char **why, uint64_t *stopped);
// Converts a row of the band into `out`, of out_row_bytes. NULL, or the reason why not.
const char *hf_band_row(struct hf_band *b, uint64_t row, unsigned char *out);
void hf_band_free(struct hf_band *b);
