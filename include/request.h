// One request, from submission to its last token.
//
// Ownership: request_new() makes it on any thread; a service_submit() that succeeds gives it to the engine
// thread, which frees it after its last event. Nothing else keeps the pointer; other threads know it by its
// id.
#pragma once

#include "adapter.h"
#include "filter.h"
#include "kv_cache.h"
#include "pooling.h"
#include "sampling.h"
#include "token_counts.h"
#include "token_history.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MAX_STOP_TOKENS = 64, MAX_LOGIT_BIAS = 1024 };

enum request_state { REQUEST_NEW, REQUEST_WAITING, REQUEST_RUNNING, REQUEST_FINISHED };

// Why a request ended. CANCELLED: the client left; ERROR: the engine failed it (non-finite logits, device);
// FORBIDDEN: the request allows no token to come next; LIMIT: its filter's mask takes too much work.
enum finish_reason {
    FINISH_NONE,
    FINISH_STOP,
    FINISH_LENGTH,
    FINISH_CANCELLED,
    FINISH_ERROR,
    FINISH_FORBIDDEN,
    FINISH_LIMIT,
};

struct logit_bias {
    token_id token;
    float add;
};

// How many of a request's drafts were right of those that steps tried, the later ones count more
struct draft_rate {
    float right, tried;
};

// Looks for stop strings in the output. Owned and called as a token_filter is; text.h makes one.
struct stop_matcher {
    void *state;
    // The next token of the output; true: it completes a stop string.
    bool (*ends)(void *state, token_id token);
    void (*free)(void *state);
};

// A client's parameters of a request; the argument of request_new(), which copies everything that pointers name
// except filter, matcher and drafter: it takes these over.
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
    // Alternatives to report instead of the best; NULL: the best. sampling.logprobs says how many.
    const token_id *logprob_ids;
    // Masks and sequences in the form of token_history.h; masks have (vocab + 31) / 32 words.
    struct token_history_params history; // its arrays are copied, too
    const uint32_t *allowed;             // the only tokens that may come; NULL: all
    int num_mask_words;                  // of allowed and history.dry_breakers
    const token_id *bad_words;           // sequences that must not come in the output; NULL: none
    int priority;                        // lower first; used by the priority policy only
    const void *salt;                    // names the prefix-cache domain; NULL: the common one
    int num_salt;                        // bytes
    bool retain;                         // its pages stay longer in the prefix cache than others
    struct adapter *adapter;             // computed with beside the model; NULL: none. The request holds it
    // Other than NONE: a vector is wanted in place of output, so max_output is 0.
    enum pooling pooling;
    int vector_size; // the most floats of the vector while it is made
    int second_text; // tokens from this position on have type 1; 0: none
    // Ranges of the prompt that are no tokens; ascending, disjoint, within it. Ids there may be any of the vocabulary: the
    // prefix cache does not look at them, but penalties, drafts and log-probabilities of the prompt do.
    const struct kv_span *spans; // (num_spans)
    int num_spans;
    // (rows of all spans, embed_size) what stands there in place of the ids' rows of the embedding table: as they are in it,
    // before they are scaled; NULL: those of the ids do. Contents of equal hashes are equal.
    const float *embeds;
    int embed_size; // engine_info.embed_size; with embeds
    // Moved into the request where request_new() succeeds; NULL: none.
    struct token_filter *filter;
    struct stop_matcher *matcher;
    struct drafter *drafter;
    bool draft;   // a draft model may draft for it
    int mtp_size; // or with it an MTP layer: engine_info.mtp_size of its engine; 0: none
};

// Of the rows of a request that an MTP layer has not taken yet, the last so many wait for it.
enum { MTP_ROWS = 32 };

struct request {
    uint64_t id;
    enum request_state state;
    enum finish_reason finish;

    // tokens[0..num_tokens) are known or pending: the prompt, then what was sampled. The scheduler's whole
    // task is to let num_computed catch up with num_tokens. The last num_pending of them are what planned
    // steps sample: -1, or of a step that verifies drafts first the drafts, then -1. The num_drafts behind
    // num_tokens are for the next plan.
    token_id *tokens; // (num_prompt + max_output)
    int num_prompt;
    int num_tokens;
    int num_pending, num_drafts;
    int second_text;   // tokens from this position on have type 1; 0: none
    int max_tokens;    // num_prompt + max_output
    int min_tokens;    // num_prompt + min_output
    int num_computed;  // tokens whose keys and values are in the cache, or will be when planned steps end
    int num_resolved;  // of those, by steps that have ended
    int num_cached;    // prompt tokens that the prefix cache gave when the request first ran; -1: not run yet
    int num_in_flight; // planned steps that name this request and have not been resolved
    bool late;         // the mask of its next token is not there (S16), or pages that it would hit (S18)
    bool asked;        // sched_to_fetch() gave it since it waits
    struct request *next_late; // the engine's, of those whose masks it computes
    uint64_t last_plan;        // the id of the last plan that named it
    int num_preemptions;
    int expect_cached;       // prompt tokens that would have hit when it came
    int num_lost;            // tokens computed when it was preempted; 0: it runs again
    int num_prompt_logprobs; // leading prompt positions whose rows gave one: row p that of token p + 1
    int priority;
    uint64_t arrival; // order of sched_add(), set there

    struct kv_seq seq;        // its pages of the cache, and its spans
    struct kv_hash root;      // set by sched_add() from salt, which has the adapter's domain, too
    struct kv_hash next_hash; // hash of the block that others may wait for (S10), where it is full and known
    bool has_next_hash;
    struct sampling_params sampling;
    float mirostat_mu; // bits of surprise that a token may have at most; moves with each token
    token_id *stop;    // (num_stop)
    int num_stop;
    struct logit_bias *bias; // (num_bias)
    int num_bias;
    token_id *logprob_ids;               // (sampling.logprobs), or NULL
    struct token_history_params history; // arrays owned
    uint32_t *allowed;                   // or NULL
    token_id *bad_words;                 // or NULL
    int32_t *scratch;                    // (max_tokens) of token_history_adjust(), where it is on
    unsigned char *salt;                 // (num_salt) of adapter and salt
    int num_salt;
    struct adapter *adapter; // held, or NULL
    enum pooling pooling;
    float *embeds; // as in request_params, or NULL
    int embed_size;
    // (vector_size) with pooling, else NULL: the engine's, whole when the request has ended well
    float *vector;
    struct token_filter *filter;
    struct drafter *drafter;
    struct draft_rate draft_rate; // the service's
    struct request *draft;        // the draft model's copy, while there is one; NULL: none
    // Of the copy of an MTP layer, whose first token is token mtp_first of the request: beside each token the row of the
    // one before it, for request_mtp_row(). Else mtp_size is 0.
    float *mtp_rows; // (MTP_ROWS + MAX_DRAFTS, mtp_size)
    int mtp_size, mtp_first;
    struct stop_matcher *matcher;

    struct token_counts counts; // for penalties and the history; empty unless one is on

    // Times in nanoseconds of the monotonic clock, written and read by the service; the scheduler knows no
    // time.
    int64_t time_submitted, time_scheduled, time_first_token, time_cancelled;
    int64_t fetch_ns;     // that it waited for pages of the store; 0: it did not
    int64_t predicted_ns; // from submission to the first token, when it came; -1: not known

    struct request *prev, *next; // the scheduler's queues
};

// Copies everything it needs and allocates all memory the request will ever use, its block table for
// block_size included. NULL when out of memory. Only the links of the scheduler's queues are not set yet. Any thread.
struct request *request_new(const struct request_params *p, int block_size);
void request_free(struct request *r); // NULL is allowed

// Whether the request has a filter, drafts, penalties, bad words or Mirostat, which must see each token before the next is
// sampled: it is not scheduled asynchronously (S6).
bool request_sees_tokens(const struct request *r);

// Between two steps: tokens that may follow the known ones, for the request's next plan to verify; they
// replace drafts that no plan took. Returns how many were taken: at most MAX_DRAFTS, none beyond its length,
// none of a request that does not run, has a step in flight, or does not see its tokens.
int request_draft(struct request *r, const token_id *drafts, int n);

// The embeddings of positions [position, position + *n), which are of one span; of at most n positions from `position` on,
// which is in a span. NULL: it has none.
static inline const float *request_embeds(const struct request *r, int position, int *n) {
    const struct kv_span *spans = r->seq.spans;
    int s = kv_find_span(spans, r->seq.num_spans, position), row = position - spans[s].first;
    int left = spans[s].len - row;
    for (int i = 0; i < s; i++)
        row += spans[i].len;
    *n = *n < left ? *n : left;
    return r->embeds ? r->embeds + (size_t)row * (size_t)r->embed_size : NULL;
}

// Where the row beside token `position` of the request is, counted without mtp_first.
static inline float *request_mtp_row(const struct request *copy, int position) {
    return copy->mtp_rows + (size_t)(position % (MTP_ROWS + MAX_DRAFTS)) * (size_t)copy->mtp_size;
}

// Whether the request is after the rows of all its prompt tokens, so that none may come from the prefix cache.
bool request_needs_all_rows(const struct request *r);

// Whether the token is one of the request's stop tokens.
bool request_is_stop(const struct request *r, token_id token);

#ifdef __cplusplus
}
#endif
