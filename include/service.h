// The engine thread and its two queues: requests and cancellations go in, events come out.
//
// Threads: service_submit(), service_cancel(), service_take() and service_stats() may be called by any one
// thread other than the engine thread (the loop thread of the server). They never wait for the engine.
#pragma once

#include "engine.h"
#include "kv_store.h"
#include "request.h"
#include "scheduler.h"

#ifdef __cplusplus
extern "C" {
#endif

struct service;

struct service_config {
    struct sched_config sched;
    int max_chunk; // prompt tokens of one step while others decode; the bound of what scheduler/pace.h finds
    // Target inter-token latency: the prompt tokens of a step are lowered to what the steps measured so far
    // allow, within the bounds of scheduler/pace.h. 0: always max_chunk. Only with depth 1: a step among
    // several in flight has no time of its own.
    int64_t target_itl_ns;
    enum kv_role kv_role;  // with the engine's store
    bool kv_store_private; // requests with a salt of their own leave nothing in the engine's store
    bool all_drafts;       // steps verify every draft that they have room for, not only those that pay
    const char *record;    // file to which inputs and plans are written for replay, or NULL
    const char *trace;     // file to which steps and the phases of requests are written (trace.h), or NULL
    void (*notify)(void *arg); // on the engine thread, when events are ready; must not wait (uv_async_send)
    void *notify_arg;
};

enum event_kind {
    EVENT_PROMPT, // log-probabilities of prompt token `position` (only with prompt_logprobs), ascending
    EVENT_TOKEN,  // output token `position` (0 is the first)
    EVENT_FINISH, // the last event of a request
};

// A value; safe to keep.
struct service_event {
    uint64_t id;
    enum event_kind kind;
    // EVENT_FINISH: why. EVENT_TOKEN: FINISH_STOP where it is a stop token, which ends the request and is no part
    // of its text; else FINISH_NONE.
    enum finish_reason finish;
    token_id token; // EVENT_FINISH: the stop token that ended it; -1: none did, but a stop string may have
    int position;
    int num_top;   // -1: no log-probabilities
    float logprob; // of token, under the unadjusted distribution, or as sampling.post_sampling says
    int rank;      // its place among all tokens by that, from 1
    token_id top_ids[MAX_TOP_LOGPROBS];
    float top_logprobs[MAX_TOP_LOGPROBS];
    // EVENT_FINISH: what it took; EVENT_TOKEN: num_cached and the last three times, as if this token were the
    // last
    int num_prompt, num_cached, num_output, num_preemptions;
    // EVENT_FINISH with FINISH_STOP, of a request with pooling: its vector, which the receiver frees; else NULL
    float *vector;
    int64_t time_submitted, time_scheduled, time_first_token, time_finished; // monotonic ns; 0: never
    // EVENT_TOKEN, EVENT_FINISH: time to the first token as first predicted; -1: it was not
    int64_t predicted_ns;
};

// Upper bounds of the histogram of tokens per step; the last bucket has none.
enum { STEP_BUCKETS = 14 };
static const int step_bucket_bounds[STEP_BUCKETS - 1] = {1,   8,    16,   32,   64,   128,  256,
                                                         512, 1024, 2048, 4096, 8192, 16384};

// Upper bounds of histograms of times, in us; the last bucket has none.
enum { TIME_BUCKETS = 13 };
static const int time_bucket_bounds[TIME_BUCKETS - 1] = {100,   250,   500,    1000,   2500,    5000,
                                                         10000, 25000, 100000, 250000, 1000000, 10000000};
struct time_counts {
    uint64_t buckets[TIME_BUCKETS]; // not cumulative
    uint64_t ns;                    // their sum
};
enum { STEP_PARTS = 4 }; // of a step: plan, execute, apply, the draft model

// Between the prefix cache and the engine's store.
struct tier_counts {
    uint64_t hit_tokens; // of prompts, that requests had from the store
    uint64_t fetches,
        late_fetches; // requests that waited for pages; those for which none came in two seconds
    uint64_t skipped; // pages that were evicted before they could be written
};

struct service_stats { // a snapshot between two steps; counters since the start
    int running, waiting;
    int waiting_deferred; // of the waiting ones, for a block that another request computes
    int64_t waiting_tokens;
    int free_blocks, num_blocks;
    int num_groups, active_pages[KV_MAX_GROUPS],
        cached_pages[KV_MAX_GROUPS]; // as kv_cache's num_active, num_cached
    uint64_t steps, preemptions, prefix_queries, prefix_hits, prompt_tokens, generation_tokens, evictions,
        deferred;
    uint64_t drafts, draft_tokens, accepted, accepted_at[MAX_DRAFTS],
        lost;                            // as sched_stats' verified, drafts, …
    uint64_t corrupted;                  // requests that ended because their logits were not finite
    uint64_t part_ns[STEP_PARTS];        // time of steps
    struct time_counts cancels;          // time until a cancelled request ends
    struct time_counts masks;            // time of the masks of a step that has some
    struct expert_counts experts;        // of all steps
    struct tier_counts tiers;            // zeros without a store, as
    struct kv_store_stats store;         // max_bytes then is
    uint64_t step_tokens_sum;            // tokens of all steps
    uint64_t step_buckets[STEP_BUCKETS]; // steps by their number of tokens, not cumulative
    int64_t last_progress; // monotonic ns when a step last ended, or when there was nothing to do
    int64_t expected_ns;   // predicted time of the steps in flight, by recent steps; 0: none was measured
    bool busy;             // the engine has work
    bool dead;             // the device failed; every request was or will be ended with FINISH_ERROR
};

// A question to the engine thread: run() is called there between two steps, within the time of the steps in flight,
// and must not take long; then done() by the thread that calls service_answer(). The caller owns the struct, which may
// stand at the head of a larger one, and leaves it alone until done().
struct service_inside; // the engine thread's state, scheduler/inside.h
struct service_query {
    void (*run)(struct service_query *q, const struct service_inside *in);
    void (*done)(struct service_query *q);
    void *arg; // the caller's
};
enum { SERVICE_QUERIES = 16 };

// Starts the engine thread; the engine is borrowed and must outlive the service. NULL with err.
struct service *service_open(struct engine *engine, const struct service_config *config, struct err *err);

// Gives a request to the engine. STATUS_OK: the service owns it, and exactly one EVENT_FINISH will come.
// Otherwise the caller still owns it: STATUS_INVALID: it can never run; STATUS_LIMIT: the queue is full;
// STATUS_STOPPING; STATUS_DEVICE. err has the sentence.
enum status service_submit(struct service *s, struct request *r, struct err *err);

// Ends a request early with `why`. Never fails, never waits; unknown or finished ids are ignored. Its blocks
// are free after the last step in flight that names it (without plans in flight: the first that ends after
// this call); its EVENT_FINISH follows. Tokens may still come before it.
void service_cancel(struct service *s, uint64_t id, enum finish_reason why);

// Takes up to max events; returns how many. notify() coalesces: call until it gives 0.
int service_take(struct service *s, struct service_event *events, int max);

void service_stats(struct service *s, struct service_stats *out);

// Asks. STATUS_LIMIT: SERVICE_QUERIES are unanswered, try later; done() will not come.
enum status service_ask(struct service *s, struct service_query *q);
// Calls done() of those that were answered; after notify(), as service_take().
void service_answer(struct service *s);

// Waits up to timeout_ns for events to be ready (for callers without a loop: the command line). True: there
// are some.
bool service_wait(struct service *s, int64_t timeout_ns);

// Ends every request with FINISH_CANCELLED, stops and joins the thread, calls done() of every query, frees the
// service. Events not taken are lost.
void service_close(struct service *s);

// Reads a file that --record wrote, feeds the same inputs to a scheduler without a model, and compares every
// plan. STATUS_OK: all equal; *num_plans says how many. STATUS_INVALID: err names the first difference.
enum status service_replay(const char *path, uint64_t *num_plans, struct err *err);

#ifdef __cplusplus
}
#endif
