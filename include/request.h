// One request, from submission to its last token.
//
// Ownership: request_new() makes it on any thread; a service_submit() that succeeds gives it to the engine
// thread, which frees it after its last event. Nothing else keeps the pointer; other threads know it by its
// id.
#pragma once

#include "kv_cache.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MAX_STOP_TOKENS = 64, MAX_LOGIT_BIAS = 1024, MAX_TOP_LOGPROBS = 20 };

enum request_state { REQUEST_NEW, REQUEST_WAITING, REQUEST_RUNNING, REQUEST_FINISHED };

// What ended a request. CANCELLED: the client left; ERROR: the engine failed it (non-finite logits, device).
enum finish_reason { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_CANCELLED, FINISH_ERROR };

struct logit_bias {
    token_id token;
    float add;
};

// How the next token is drawn. Ranges are checked at the API; request_new() takes them as they are.
struct sampling_params {
    float temperature;        // 0: greedy, ties to the lower id
    float top_p;              // (0, 1]; 1: off
    float min_p;              // [0, 1]; 0: off
    int top_k;                // 0: off
    uint64_t seed;            // the draw for output i is a function of (seed, i) only, never of the batch
    float repetition_penalty; // > 0; 1: off. Tokens of prompt and output: logit / p if positive, else * p
    float frequency_penalty;  // 0: off. Subtracted once per occurrence in the output
    float presence_penalty;   // 0: off. Subtracted where the token occurs in the output
    int logprobs;             // -1: none; 0..MAX_TOP_LOGPROBS: the chosen token's, and this many of the best
    bool
        prompt_logprobs; // also for every prompt token but the first; turns prefix reuse off for this request
};

// A grammar: which tokens may come next. Owned by the request; called by the engine thread only, through the
// service, never by the scheduler. request_free() calls free(state), then frees the struct itself, which
// therefore comes from malloc().
struct token_filter {
    void *state;
    bool (*accept)(void *state, token_id token);          // false: the token was not allowed
    void (*mask)(void *state, uint32_t *bits, int vocab); // bit set: allowed
    void (*free)(void *state);
};

// What a client asked for; the argument of request_new(). All pointers are copied from.
struct request_params {
    uint64_t id;            // unique for the life of the service
    const token_id *prompt; // (num_prompt)
    int num_prompt;         // >= 1
    int max_output;         // >= 0 tokens to generate; 0 computes the prompt only
    int min_output;         // stop tokens are not allowed before this many
    struct sampling_params sampling;
    const token_id *stop;          // (num_stop) any of these ends the output with FINISH_STOP
    int num_stop;                  // <= MAX_STOP_TOKENS
    const struct logit_bias *bias; // (num_bias)
    int num_bias;                  // <= MAX_LOGIT_BIAS
    int priority;                  // lower first; used by the priority policy only
    const void *salt;              // names the prefix-cache domain; NULL: the common one
    int num_salt;                  // bytes
    struct token_filter *filter;   // moved into the request where request_new() succeeds; NULL: none
};

struct token_count {
    token_id token;
    int32_t prompt, output; // occurrences
};

struct request {
    uint64_t id;
    enum request_state state;
    enum finish_reason finish;

    // tokens[0..num_tokens) are known or pending: the prompt, then what was sampled. The scheduler's whole
    // task is to let num_computed catch up with num_tokens. The last num_pending of them were planned but
    // their values are not back yet (run-ahead); they hold -1.
    token_id *tokens; // (num_prompt + max_output)
    int num_prompt;
    int num_tokens;
    int num_pending;
    int max_tokens;    // num_prompt + max_output
    int min_tokens;    // num_prompt + min_output
    int num_computed;  // tokens whose keys and values are in the cache, or will be when planned steps end
    int num_resolved;  // of those, by steps that have ended
    int num_cached;    // prompt tokens that the prefix cache gave when the request first ran; -1: not run yet
    int num_in_flight; // planned steps that name this request and have not been resolved
    int num_stale;     // of those, the ones that ran on a rejected token: their outcome is dropped
    uint64_t last_plan; // the id of the last plan that named it
    int num_preemptions;
    int num_scored; // leading prompt positions whose rows were scored: row p gives token p + 1
    int priority;
    uint64_t arrival; // order of sched_add(), set there

    struct block_table blocks;
    struct kv_hash root;      // set by sched_add() from salt
    struct kv_hash next_hash; // hash of the first block not yet published, where it is full and known
    bool has_next_hash;
    struct sampling_params sampling;
    token_id *stop; // (num_stop)
    int num_stop;
    struct logit_bias *bias; // (num_bias)
    int num_bias;
    unsigned char *salt; // (num_salt)
    int num_salt;
    struct token_filter *filter;

    // Occurrences of tokens, for penalties; NULL unless one is on. A dense list, and an index by token id
    // with open addressing. Neither is touched where no token is, so a large max_output costs address space
    // only. Kept up to date by request_count_token().
    struct token_count *counts; // (num_counts), room for max_tokens
    int32_t *count_index;       // (count_cap, a power of two) 1 + place in counts; 0: free
    int count_cap, num_counts;

    // Times in nanoseconds of the monotonic clock, written and read by the service; the scheduler knows no
    // time.
    int64_t time_submitted, time_scheduled, time_first_token;

    struct request *prev, *next; // the scheduler's queues
};

// Copies everything it needs and allocates all memory the request will ever use, its block table for
// block_size included. NULL when out of memory. The result has no open ends but queues.
struct request *request_new(const struct request_params *p, int block_size);
void request_free(struct request *r); // NULL is allowed

// Adds one occurrence of an output token to the penalty counts. O(1); no allocation.
void request_count_token(struct request *r, token_id token);

// Whether the token is one of the request's stop tokens.
bool request_is_stop(const struct request *r, token_id token);

#ifdef __cplusplus
}
#endif
