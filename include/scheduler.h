// Continuous batching: decides which tokens of which requests the next step computes.
//
// A pure state machine. It reads no clock, no random source and no file, starts no thread, calls no engine,
// and allocates nothing after sched_init(). Equal calls give equal plans, so a recorded run can be replayed
// and a test needs no model. scheduler/README.md has the policy, its rules by number, and the proof that what
// is admitted ends.
//
// There is no prefill phase and no decode phase. A request has num_tokens known tokens of which num_computed
// are in the cache; scheduling is letting the second catch up with the first. A long prompt is served in
// chunks, a cache hit is a head start, a decode is a difference of one, a preemption sets num_computed back
// to zero.
//
// All calls come from one thread, the engine thread.
#pragma once

#include "request.h"

#ifdef __cplusplus
extern "C" {
#endif

enum sched_policy { SCHED_FCFS, SCHED_PRIORITY };

enum { SCHED_MAX_DEPTH = 8, SCHED_MAX_PREEMPTIONS = 8 };

struct sched_config {
    enum sched_policy policy;
    int max_running;     // requests in one step (--max-num-seqs)
    int max_step_tokens; // token budget of one step over all requests (--max-num-batched-tokens), >=
                         // max_running
    int max_chunk; // prompt tokens of one step while others decode; bounds how long running streams stall;
                   // sched_set_chunk() and pace() change it
    // Asked by each sched_step(), where it is not NULL: max_chunk (>= 1) from this plan on, while
    // num_decoding requests decode.
    int (*pace)(void *arg, int num_decoding);
    void *pace_arg;
    int max_waiting;            // requests; beyond this sched_add() refuses
    int64_t max_waiting_tokens; // sum of waiting prompts; beyond this sched_add() refuses
    int max_model_len;          // prompt + output of one request
    int depth; // plans that may be unresolved at a time, up to SCHED_MAX_DEPTH; 0 counts as 1
    // A request whose drawn token is still on its way may be planned again: the device puts it in. Else the
    // requests that decode are dealt out among the plans in flight, and so are prompts (S13).
    bool run_ahead;
};

// One request's share of a step: compute tokens[first .. first + num_new).
struct plan_item {
    struct request *req;
    int first;        // position of the first token to compute
    int num_new;      // >= 1
    int first_logit;  // rows [first_logit, num_new) of this chunk want logits; num_new: none
    bool needs_token; // the chunk ends at the last known token: its last row draws the next one
    bool wants_score; // every row but one that draws scores a prompt token: row of position p, token p + 1
};

// items[0..num_decode) have num_new == 1 and draw a token: the decode kernel takes them; the rest are
// prefill.
struct plan {
    uint64_t id;             // counts from 1
    struct plan_item *items; // (max_running)
    int num_items, num_decode;
    int num_decoding; // running requests that decode, here or in plans in flight; not those whose prompts go
                      // on
    int num_tokens;   // sum of num_new
    int num_rows;     // sum of num_new - first_logit
};

// What a step gave, in the order of its plan. CSR so that one item may give several tokens (speculation);
// only items that draw may. None: the drawn token was rejected, and the last token is computed and drawn
// again.
struct outcome {
    const int32_t *start;   // (num_items + 1) into tokens
    const token_id *tokens; // (start[num_items])
    const uint8_t
        *failed; // (num_items) nonzero: this request's numbers are not finite; it ends with FINISH_ERROR
};

// What a step did to one request. A value: safe to hand to another thread.
//
// A request has exactly one event whose finish is not FINISH_NONE, its last. It carries the last token (a
// stop token too), unless a later plan already names the request: then the token comes at once with
// FINISH_NONE (req->finish says why it will end), and the last event, without a token, follows with that
// plan's sched_update().
struct token_event {
    struct request *req;       // valid until the caller frees it after its last event
    int item;                  // index in the plan; -1: no item of this plan caused it, the request only left
    token_id token;            // -1: no token (the request only ended)
    enum finish_reason finish; // not FINISH_NONE: the last event; the request has left the scheduler
};

struct request_list {
    struct request *head, *tail;
    int len;
};

struct sched_stats {
    uint64_t preemptions;
    uint64_t prefix_queries, prefix_hits; // tokens, counted once per request
    uint64_t held;                        // times a request waited for a block that another was computing
};

struct scheduler {
    struct sched_config config;
    struct kv_cache *kv; // borrowed
    struct request_list waiting, running;
    int64_t waiting_tokens; // sum of num_tokens over waiting
    uint64_t next_arrival, next_plan, next_resolve;
    int num_leaving; // ended or removed requests that planned steps still name, and whose blocks will return
    struct plan plans[SCHED_MAX_DEPTH]; // plan id modulo their number
    struct sched_stats stats;
};

enum status sched_init(struct scheduler *s, const struct sched_config *config, struct kv_cache *kv);
void sched_destroy(struct scheduler *s); // requests still in the queues are the caller's

// Whether a request of this shape can ever run: within max_model_len and within all blocks. Pure; needs no
// queue. STATUS_INVALID with numbers in err where not. Any thread: it reads only what never changes.
enum status sched_admissible(const struct sched_config *config, int num_blocks, int block_size,
                             int num_prompt, int max_output, struct err *err);

// From the next plan on, prompts get at most max_chunk tokens of a step in which others decode; CHECK(>= 1).
void sched_set_chunk(struct scheduler *s, int max_chunk);

// Queues a request. STATUS_LIMIT: the queue is full, try later; an empty queue takes a prompt of any length.
// STATUS_INVALID: it could never run.
enum status sched_add(struct scheduler *s, struct request *r);

// Plans the next step and takes the blocks it needs. May be called while up to depth - 1 earlier plans are
// unresolved: it advances num_computed and appends a pending token per drawing item. The plan is
// valid until it is resolved. NULL: nothing to do now, which never happens while a request is queued and no
// plan is unresolved.
const struct plan *sched_step(struct scheduler *s);

// Applies the outcome of the oldest unresolved plan, which is plan_id (CHECK): resolves tokens, publishes
// full blocks, ends what is finished, returns blocks. Writes an event per token and one per request that ends
// without one, into events (at most num_items + start[num_items], 2 * max_running while items give one
// token); returns how many.
int sched_update(struct scheduler *s, uint64_t plan_id, const struct outcome *out,
                 struct token_event *events);

// Removes a request wherever it is. True: it has left the scheduler and is the caller's again. False: planned
// steps still name it; its blocks return, and its last event (token -1, finish `why`) comes, with the
// sched_update() of the last of them. Calling it again on such a request changes nothing.
bool sched_remove(struct scheduler *s, struct request *r, enum finish_reason why);

// Gives up the unresolved plans, whose outcomes will never come: calls left() once for each request that only
// they still name. The scheduler is of no use after it; what waits or runs is the caller's, as before.
void sched_drop_flying(struct scheduler *s, void (*left)(void *arg, struct request *r), void *arg);

struct request *sched_find(const struct scheduler *s, uint64_t id); // waiting or running; NULL: none. Linear

// Whether nothing is waiting or running, and no plan is unresolved.
bool sched_idle(const struct scheduler *s);

#ifdef __cplusplus
}
#endif
