// Continuous batching: decides which tokens of which requests the next step computes.
//
// A pure state machine. It reads no clock, no random source and no file, starts no thread, calls no engine,
// and allocates nothing after sched_open(). Equal calls give equal plans, so a recorded run can be replayed
// and a test needs no model. scheduler/README.md has the policy, its rules by number, and the proof that what
// is admitted ends.
//
// There is no prefill phase and no decode phase. A request has num_tokens known tokens of which num_computed
// are in the cache; scheduling is letting the second catch up with the first. A long prompt is served in
// chunks, a cache hit is a head start, a decode is a difference of one, a preemption sets num_computed back
// to zero.
//
// All calls come from one thread, the engine thread, but for sched_admissible().
#pragma once

#include "plan.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct scheduler;

enum sched_policy { SCHED_FCFS, SCHED_PRIORITY };

enum { SCHED_MAX_PREEMPTIONS = 8 };

struct sched_config {
    enum sched_policy policy;
    int max_running; // requests in one step (--max-num-seqs)
    // Token budget of one step over all requests (--max-num-batched-tokens), at least max_running.
    int max_step_tokens;
    int max_waiting;            // requests; beyond this sched_add() refuses
    int64_t max_waiting_tokens; // sum of waiting prompts; beyond this sched_add() refuses
    int max_model_len;          // prompt + output of one request
    int depth;                  // plans that may be unresolved at a time, up to PLAN_MAX_DEPTH; 0 counts as 1
    bool whole; // a prompt is computed in one step or not at all; max_model_len is at most max_step_tokens
    // A request whose sampled token is not back yet may be planned again: the device puts the token in.
    // Otherwise the plans in flight are micro-batches that share the decodes and the prompts round robin
    // (S13).
    bool async;
    int embed_size; // floats of an embedding; 0: requests bring none
    bool has_axes;  // spans may have grids
};

// An event of one request: a token, or its end. A value: safe to hand to another thread.
//
// A request has exactly one event whose finish is not FINISH_NONE, its last. It carries the last token (a
// stop token too), unless a later plan already names the request: then the token comes at once with
// FINISH_NONE (req->finish says why it will end), and the last event, without a token, follows with that
// plan's sched_update().
struct token_event {
    struct request *req;       // valid until the caller frees it after its last event
    int item;                  // index in the plan; -1: no item of this plan caused it, the request only left
    int index;                 // which of the tokens that the item gave: 0, and more with drafts
    token_id token;            // -1: no token (the request only ended)
    enum finish_reason finish; // not FINISH_NONE: the last event; the request has left the scheduler
};

struct sched_stats {
    int running, waiting;   // requests
    int waiting_deferred;   // of the waiting ones: deferred by the last step that asked
    int64_t waiting_tokens; // sum of num_tokens over waiting
    uint64_t preemptions;
    uint64_t prefix_queries, prefix_hits; // tokens, counted once per request
    uint64_t deferred;                    // times a request waited for a block that another was computing
    uint64_t drafts, accepted;            // drafted tokens that steps verified, and those that were right
    uint64_t verified;                    // steps of a request that verified drafts
    uint64_t accepted_at[MAX_DRAFTS];     // of those, the ones whose draft i was right
    uint64_t lost;                        // tokens computed again after preemptions
};

// The cache is borrowed. NULL with err: STATUS_INVALID or STATUS_NOMEM.
struct scheduler *sched_open(const struct sched_config *config, struct kv_cache *kv, struct err *err);
// NULL is allowed. Requests that are still inside are the caller's: sched_abandon() gives them out.
void sched_close(struct scheduler *s);

// Whether a request of this shape can ever run: within max_model_len and within all blocks. Pure; needs no
// scheduler. STATUS_INVALID with numbers in err where not. Any thread.
enum status sched_admissible(const struct sched_config *config, const struct kv_config *kv, int num_prompt,
                             int max_output, struct err *err);

// Whether what stands in the request's spans can be computed (S17): embeddings are of the size that the model takes, grids
// are there where it rotates by axes, and whole spans fit into a step beside all others that decode. STATUS_INVALID, with
// numbers, where not. Any thread.
enum status sched_takes_spans(const struct sched_config *config, const struct request *r, struct err *err);

// Queues a request. STATUS_LIMIT: the queue is full, try later; an empty queue takes a prompt of any length.
// STATUS_INVALID: it could never run.
enum status sched_add(struct scheduler *s, struct request *r);

// Plans the next step and takes the blocks it needs. While others decode, prompts get at most max_chunk (>=
// 1) tokens of it, which bounds how long running streams stall. May be called while up to depth - 1 earlier
// plans are unresolved: it advances num_computed and appends a pending token per sampling item, behind its
// drafts. The plan is valid until it is resolved. NULL: nothing to do now, which never happens while a
// request is queued, none is late and no plan is unresolved.
const struct plan *sched_step(struct scheduler *s, int max_chunk);

// Running requests that decode, or will when their steps in flight have ended; not those whose prompts go on.
// This is the next plan's num_decoding.
int sched_num_decoding(const struct scheduler *s);

// Applies the outcome of the oldest unresolved plan, which is plan_id (CHECK): resolves tokens, publishes
// full blocks, ends what is finished, returns blocks. Writes an event per token and one per request that ends
// without one, into events (room for sched_max_events()); returns how many.
int sched_update(struct scheduler *s, uint64_t plan_id, const struct outcome *out,
                 struct token_event *events);
static inline int sched_max_events(int max_running) { return plan_max_samples(max_running) + max_running; }

// S16: an item that gave ITEM_LATE makes its request late; this ends it, when the mask is there. From then on it is planned
// again. Nothing happens to one that is not late.
void sched_ready(struct scheduler *s, struct request *r);
int sched_num_late(const struct scheduler *s); // requests

// S18: a waiting request near the head of the queue that may hit pages which can be had from elsewhere: each once while it
// waits. NULL: none. sched_hold() lets it wait for them, until sched_ready().
struct request *sched_to_fetch(struct scheduler *s);
void sched_hold(struct scheduler *s, struct request *r);

// Removes a request wherever it is. True: it has left the scheduler and is the caller's again. False: planned
// steps still name it; its blocks return, and its last event (token -1, finish `why`) comes, with the
// sched_update() of the last of them. Calling it again on such a request changes nothing.
bool sched_remove(struct scheduler *s, struct request *r, enum finish_reason why);

// Ends everything at once: unresolved plans never resolve (the device is dead, or the service stops). Calls
// left() once for each request that the scheduler still has, which is the caller's then; finish is
// FINISH_ERROR where it had not ended. After it the scheduler is empty and plans nothing; its blocks are not
// back.
void sched_abandon(struct scheduler *s, void (*left)(void *arg, struct request *r), void *arg);

// Any request that waits or runs; NULL: none.
struct request *sched_any(const struct scheduler *s);

// Whether nothing is waiting or running, and no plan is unresolved.
bool sched_idle(const struct scheduler *s);

void sched_stats(const struct scheduler *s, struct sched_stats *out);

#ifdef __cplusplus
}
#endif
