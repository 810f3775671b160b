// A step as the device takes it: what the host works out (items of attention, tiles, draws, rounds of edits)
// and the one buffer in which all of it travels.
#pragma once

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

// Rows of the head that are sampled at a time: logits are kept for so many.
enum { CUDA_HEAD_ROWS = 64 };

// Where kernels find a step. Fixed arrays in device memory, but for the last three, which stay in the upload
// and are counted from its beginning.
struct cuda_inputs {
    int32_t *ids, *positions, *seq_of; // (T)
    int64_t *slots;                    // (T)
    int32_t *block_start, *block_ids;
    struct cuda_item *items;
    int32_t *first_item; // (T + 1) rows that decode
    struct cuda_tile *tiles;
    int32_t *counts; // items, tiles
    struct head_row *rows;
    struct cuda_draw *draws;
    const void *upload;
};

struct plan_config {
    int block_size, group, window, vocab;
    bool items;    // decode and prefill go through the kernels with items and tiles
    bool exact;    // rows that decode go through prefill
    int max_items; // that one launch may have
    int tile_rows; // of cuda_prefill
    struct step_limits limits;
};

// What the host needs to know to launch.
struct plan {
    int num_tokens, num_decode, num_rows; // with padding
    int num_items, num_tiles;
    int num_edited; // rows, the most of any CUDA_HEAD_ROWS
    size_t bytes;   // of the upload
    bool one_round; // items fit in one launch
};

// Bytes of the largest upload, and of each fixed array.
size_t plan_max_bytes(const struct plan_config *c);
// Sets the pointers of `in` (its upload apart) to pieces of base, or counts: returns the bytes.
size_t plan_inputs(const struct plan_config *c, struct cuda_inputs *in, void *base);

// Fills the upload (host memory) for a step, padded to num_tokens rows (of which all sequences decode) where
// that is more than the step has. seen: (vocab) scratch, zero before the first step, with *stamp.
void plan_fill(struct plan *p, const struct plan_config *c, const struct cuda_inputs *in,
               unsigned char *upload, const struct step *step, int num_tokens, uint32_t *seen,
               uint32_t *stamp);

int plan_num_parts(void);
// first_item of a filled upload, on the host.
const int32_t *plan_first_item(const unsigned char *upload);

// The items of one launch of decode, from item and row on, at most max_items; the end of both.
void plan_round(const int32_t *first_item, int rows, int max_items, int row, int *end_row);

// A draw without edits and mask.
struct cuda_draw plan_draw(const struct head_row *row);
// Splits edits [start, end) into rounds of distinct tokens: writes the first edit of each, plus offset, and
// returns how many (the caller ends the last).
int plan_rounds(int32_t *rounds, const struct logit_edit *edits, int start, int end, int offset,
                uint32_t *seen, uint32_t *stamp);

#ifdef __cplusplus
}
#endif
