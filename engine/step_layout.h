// The arrays of a step in one buffer: a device uploads it in one copy (batch.c), and worker processes receive
// it as one message (ranks/step_wire.c).
#pragma once

#include "backend.h"

struct step_counts {
    int tokens, seqs, rows, entries, moves; // T, S, R
    int masks;                              // distinct ones
    int embeds, embed_size;                 // E, D
    bool has_masks, has_adapters, has_types, has_axes;
    int groups;
    int blocks[KV_MAX_GROUPS]; // entries of each group's block_ids
};

// Writable views of the arrays, as struct step names them.
struct step_arrays {
    int32_t *ids, *positions, *rope_positions, *types, *query_start, *context_len, *adapters;
    struct {
        int64_t *slots;
        int32_t *block_start, *block_ids;
    } groups[KV_MAX_GROUPS];
    struct kv_move *moves;
    struct logits_row *rows;
    struct logit_entry *entries;
    const uint32_t **masks;
    uint32_t *mask_bits; // (masks, step_mask_words())
    int32_t *embed_rows;
    float *embeds;
};

static inline size_t step_mask_words(int vocab) { return ((size_t)vocab + 31) / 32; }

// Places the arrays one after another from base + head, each 64-byte aligned. base NULL: only measures.
// Returns the bytes, head included. Pure.
size_t step_layout(const struct step_counts *c, int vocab, size_t head, unsigned char *base,
                   struct step_arrays *a);
// Points a step at the arrays; its numbers, but for num_embeds, are the caller's.
void step_set_arrays(struct step *step, const struct step_counts *c, const struct step_arrays *a);
