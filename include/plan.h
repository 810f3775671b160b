// A step as the scheduler plans it, and its outcome as the engine returns it. Values; the plan belongs to the
// scheduler and is valid until it is resolved, the outcome to the engine and valid until the next but one launch.
#pragma once

#include "request.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLAN_MAX_DEPTH = 8 }; // steps in flight at most

// One request's share of a step: compute tokens[first .. first + num_new). The last num_drafts of them are
// drafts, and its last 1 + num_drafts rows sample: row j the token that comes if the first j drafts are
// right. So of a sampled tokens that equal their drafts, a + 1 are good, and the next item of the request
// begins behind the last right draft.
struct plan_item {
    struct request *req;
    int first;      // position of the first token to compute
    int num_new;    // >= 1
    int num_drafts; // <= MAX_DRAFTS; 0 where it does not need a token
    // Rows [first_logit, num_new) of this chunk want logits, or hidden states for pooling, with POOLING_CLS the first of them;
    // num_new: none.
    int first_logit;
    bool needs_token; // the chunk reaches the last known token: the rows from there on sample
    // Every logits row that does not sample, of position p, gives that of prompt token p + 1.
    bool wants_prompt_logprobs;
};

// items[0..num_decode) have num_new == 1 and sample: the decode kernel takes them; the rest are prefill.
struct plan {
    uint64_t id;             // counts from 1
    struct plan_item *items; // (max_running)
    int num_items, num_decode;
    int num_decoding; // running requests that decode, here or in plans in flight; not those whose prompts go on
    int num_tokens;   // sum of num_new
    int num_rows;     // that want them
    struct kv_move *moves; // (num_moves) before the step, in any order: no target is in two of them
    int num_moves;
};

// The most rows of a step that sample. Rows beyond those of the requests verify drafts: a server with few
// requests may verify many, and no step needs more room for masks and penalties than one of max_running
// requests.
static inline int plan_max_samples(int max_running) {
    return max_running > 1 + MAX_DRAFTS ? max_running : 1 + MAX_DRAFTS;
}

// Why an item gave no token. Its request ends with FINISH_ERROR, FINISH_FORBIDDEN, FINISH_LIMIT; or its mask is late (S16).
enum item_failure { ITEM_GOOD, ITEM_NOT_FINITE, ITEM_FORBIDDEN, ITEM_LIMIT, ITEM_LATE };

// The tokens of a step, in the order of its plan. An item that needs a token has 1 + the number of its leading drafts
// that were right; others have none.
struct outcome {
    const int32_t *start;   // (num_items + 1) into tokens
    const token_id *tokens; // (start[num_items])
    const uint8_t *failed;  // (num_items) enum item_failure
};

#ifdef __cplusplus
}
#endif
