// A plan of the scheduler as the flat arrays of one step: what a device uploads in one copy.
#pragma once

#include "backend.h"
#include "scheduler.h"

struct batch {
    struct step_limits limits;
    int vocab, block_size;
    size_t bytes;          // of `packed`
    unsigned char *packed; // 64-byte aligned, owned; every pointer of `step` points into it
    struct step step;
    struct step_out out; // of this step, once collected
    int32_t *first_row;  // (max_seqs + 1) head rows of each plan item
    int32_t *start;      // (max_seqs + 1) drawn tokens of each plan item, for struct outcome
    token_id *tokens;    // (max_seqs)
    uint8_t *failed;     // (max_seqs)
    int32_t *draw_row;   // (max_seqs) head row that draws for the item, -1: none
};

// Allocates all that any plan within the limits needs. STATUS_NOMEM leaves nothing allocated.
enum status batch_init(struct batch *b, const struct step_limits *limits, int vocab, int block_size);
void batch_destroy(struct batch *b);
// The most logit edits that a step within the limits has.
size_t batch_max_edits(const struct step_limits *limits, int vocab);

// Fills b->step from a plan. Where prev_plan is still unresolved, prev is its batch, and tokens that are
// pending are taken from its head rows on the device; else both are NULL. No allocation. Engine thread.
void batch_fill(struct batch *b, const struct plan *plan, const struct kv_cache *kv, const struct batch *prev,
                const struct plan *prev_plan);

// Turns the device's results into the outcome that sched_update() takes; arrays belong to b.
void batch_outcome(struct batch *b, const struct plan *plan, const struct step_out *out,
                   struct outcome *outcome);
