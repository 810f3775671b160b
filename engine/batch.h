// A plan of the scheduler as the flat arrays of one step: what a device uploads in one copy.
#pragma once

#include "backend.h"
#include "plan.h"

struct batch {
    struct step_limits limits;
    struct kv_config kv;
    int vocab;
    size_t bytes;          // of `packed`
    unsigned char *packed; // 64-byte aligned, owned; every pointer of `step` points into it
    struct step step;
    struct step_out out; // of this step, once collected
    int32_t *first_row;  // (max_seqs + 1) logits rows of each plan item
    int32_t *start;      // (max_seqs + 1) good tokens of each plan item, for struct outcome
    token_id *tokens;    // (max_seqs)
    uint8_t *failed;     // (max_seqs)
    int32_t *sample_row; // (max_seqs) first logits row that samples for the item, -1: none

    // (num_masks), room for max_seqs, in the order of the items: the input and output of batch_masks()
    struct mask_job *masks;
    int num_masks;
    uint64_t ticket;  // of the worker that computes them
    int64_t masks_ns; // that it took
};

// The masks of one item's sampling rows, one behind the other.
struct mask_job {
    struct request *req;    // with filter, allowed, or both
    int item;               // of the plan
    const token_id *drafts; // (num_drafts) the request's
    int num_drafts;
    uint32_t *bits; // (1 + num_drafts, words) in `packed`
    // Result: the leading rows whose masks are computed. The others are not used.
    int num_done;
    bool limit; // MASK_LIMIT for the first
};

// Allocates all that any plan within the limits needs: max_seqs bounds items and sampling rows alike.
// STATUS_NOMEM leaves nothing allocated.
enum status batch_init(struct batch *b, const struct step_limits *limits, int vocab,
                       const struct kv_config *kv);
void batch_destroy(struct batch *b);
// The most logit entries that a step within the limits has.
size_t batch_max_entries(const struct step_limits *limits, int vocab);

// Fills b->step from a plan. Where prev_plan is still unresolved, prev is its batch, and tokens that are
// pending are taken from its logits rows on the device; else both are NULL. Masks are left to batch_masks(),
// where num_masks > 0. No allocation. Engine thread.
void batch_fill(struct batch *b, const struct plan *plan, const struct kv_cache *kv, const struct batch *prev,
                const struct plan *prev_plan);

// Computes the masks of the step, as far as they are not late; until then nothing may read them. One thread, any.
void batch_masks(struct batch *b);
// Whether the first row's mask was not there in time.
static inline bool mask_job_is_late(const struct mask_job *m) { return m->num_done == 0 && !m->limit; }

// Turns the device's results into the outcome that sched_update() takes: compares sampled tokens with drafts.
// Arrays belong to b.
void batch_outcome(struct batch *b, const struct plan *plan, const struct step_out *out,
                   struct outcome *outcome);
