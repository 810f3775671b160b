// The state of the engine thread that queries (service_query) read, on that thread and between two steps.
#pragma once

#include "engine_view.h"
#include "predict.h"
#include "prompt_view.h"
#include "scheduler.h"

// How the prefix match of a request ended when it began to run.
struct past_prompt {
    uint64_t id;
    int num_prompt, num_cached, num_next;
    bool all_rows;
    int num_fetched; // as prompt_view's
    int64_t fetch_ns;
    struct kv_hash parent; // of the tokens behind the match: the num_next of past_tokens
    struct kv_ending ending;
};

struct service_inside {
    struct scheduler *sched;
    struct kv_cache *kv;
    struct tiers *tiers; // NULL: there is no store
    struct cache_log *log;
    const struct predictor *predictor;
    const struct pace *pace;
    const struct service_stats *stats;  // counters; what publish_stats() sets is that of the last step
    int64_t now;                        // monotonic ns
    struct view_step steps[VIEW_STEPS]; // a ring
    uint64_t num_steps;                 // ever; the last one is steps[(num_steps - 1) % VIEW_STEPS]
    struct past_prompt *past;           // (PROMPT_PAST) a ring, as steps
    token_id *past_tokens;              // (PROMPT_PAST, block_size), names in spans
    uint64_t num_past;
};

// The last request of this id that began; NULL: it is not known, or no more.
struct past_prompt *inside_past(const struct service_inside *in, uint64_t id);
// Notes how a request's match ended, before its first step is launched.
void inside_remember(struct service_inside *in, struct request *r);
