// A step as the device takes it: what the host works out (KV splits and tiles of attention, how rows are
// sampled, passes of entries) and the one buffer in which all of it travels.
#pragma once

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

// Rows that a graph of n rows that decode is padded to; 0: too many for a graph.
int work_graph_rows(int n);
// Logits rows that are sampled at a time: logits are kept for so many. No graph has more.
int work_head_rows(const struct step_limits *limits);

// Where kernels find a step. Fixed arrays in device memory, but for entries, passes and masks, which stay in
// the upload and are counted from its beginning.
struct cuda_inputs {
    int32_t *ids, *positions, *seq_of; // (T)
    int32_t *types;                    // (T) with step_limits.has_types
    int32_t *rope_positions;           // (ROPE_AXES, T) with step_limits.has_axes
    int32_t *context_len;              // (S)
    struct cuda_lora_group *lora;      // (work_lora_groups()) with step_limits.max_adapters
    struct {                           // of a KV group
        int64_t *slots;                // (T)
        int32_t *block_start, *block_ids;
    } groups[KV_MAX_GROUPS];
    struct { // of a distinct attn_spec
        struct cuda_split *splits;
        int32_t *first_split; // (T + 1) rows that decode
        struct cuda_tile *tiles;
        int32_t *counts; // splits, tiles
    } attn[MODEL_MAX_SPECS];
    struct logits_row *rows;
    struct cuda_row_prep *prep;
    const void *upload;
};

// The parameters of the work lists of one attn_spec.
struct work_attn_config {
    int group; // query heads per kv head
    // bidirectional attention: the part up to a row's own token, the last that a decoding row sees
    int window;
    bool chunked;
    bool lists; // attention goes through the kernels with splits and tiles
};

struct work_config {
    int page_scale[KV_MAX_GROUPS]; // block ids and the pages of slots are times this
    int block_size, vocab, num_groups, num_attn;
    struct work_attn_config attn[MODEL_MAX_SPECS];
    bool exact;     // rows that decode go through prefill
    int max_splits; // that one launch may have
    int tile_rows;  // of cuda_prefill
    struct step_limits limits;
    void *const *adapters; // (limits.max_adapters) on the device
};

// The sizes that the host needs to launch.
struct step_work {
    int num_tokens, num_decode, num_rows; // with padding
    struct work_attn {
        int num_splits, num_tiles;
        bool one_launch;            // all splits fit in one launch
        const int32_t *first_split; // on the host, in the upload
    } attn[MODEL_MAX_SPECS];
    bool one_launch;            // of every spec
    int num_lora;               // groups of rows with an adapter
    int num_adjusted;           // rows with entries or a mask, the most of those sampled at a time
    size_t bytes;               // of the upload
    size_t entries;             // where in the upload entries, passes and masks begin
    bool entries_apart;         // not all fit: work_entries() brings those of some rows at a time
    struct cuda_row_prep *prep; // (num_rows) in the upload
};

// Groups of rows with an adapter that a step may have, at most.
int work_lora_groups(const struct work_config *c, int rows);

// Bytes of the largest upload.
size_t work_max_bytes(const struct work_config *c);
// Sets the pointers of `in` (its upload apart) to pieces of base, or counts: returns the bytes.
size_t work_inputs(const struct work_config *c, struct cuda_inputs *in, void *base);

// Fills the upload (host memory) for a step, padded to num_tokens rows (of which all sequences decode) where
// that is more than the step has. seen: (vocab) scratch, zero before the first step, with *stamp.
void work_fill(struct step_work *p, const struct work_config *c, const struct cuda_inputs *in,
               unsigned char *upload, const struct step *step, int num_tokens, uint32_t *seen,
               uint32_t *stamp);

// Lays out entries, passes and masks of the step's rows from `first` on, of `num` or as many as have room, behind the
// rest of the upload, and completes their prep. Returns their number, which is not 0.
int work_entries(struct step_work *p, const struct work_config *c, unsigned char *upload,
                 const struct step *step, int first, int num, uint32_t *seen, uint32_t *stamp);

// Fixed arrays in an upload.
int work_num_parts(const struct work_config *c);

// The rows of one launch of decode: from row on, with at most max_splits splits; sets their end.
void work_launch(const int32_t *first_split, int rows, int max_splits, int row, int *end_row);

// How to sample a row without entries and mask.
struct cuda_row_prep work_row_prep(const struct logits_row *row);
// Cuts entries [start, end) into passes of distinct tokens: writes the first entry of each, plus offset, and
// returns how many (the caller ends the last).
int work_passes(int32_t *passes, const struct logit_entry *entries, int start, int end, int offset,
                uint32_t *seen, uint32_t *stamp);

#ifdef __cplusplus
}
#endif
