// What decides with a request which tokens come next: filters, which forbid some, and drafters, which guess them.
#pragma once

#include "token.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { MAX_DRAFTS = 8 }; // tokens of one request that a step verifies

// What a filter says of a mask. MORE: it is not whole yet, ask again. LIMIT: it never will be, it takes too much.
enum mask_result { MASK_DONE, MASK_MORE, MASK_LIMIT };

// A grammar: which tokens may come next. Owned by the request; never called by the scheduler. request_free()
// calls free(state), then frees the struct itself, which therefore comes from malloc().
//
// Threads: one at a time. The engine thread accepts sampled tokens; while a step that samples for the request
// is in flight, the engine's mask worker computes the masks of its rows, and for that accepts drafts and
// takes them back. It goes on with a mask that was not whole in time (ITEM_LATE).
struct token_filter {
    void *state;
    bool (*accept)(void *state, token_id token); // false: the token was not allowed; nothing changes
    // bit set: allowed, and then it is accepted. Takes what it worked, in steps of about 50 ns, off *work: MASK_MORE where
    // nothing is left. What a mask comes to does not depend on how often it is asked for.
    enum mask_result (*mask)(void *state, uint32_t *bits, int vocab, int64_t *work);
    void (*rollback)(void *state, int n); // undoes the last n <= MAX_DRAFTS accepts; NULL: no drafts for it
    void (*free)(void *state);
    bool (*done)(void *state); // nothing may follow: the request is over; NULL: only its mask says so
};

// Guesses the tokens that come next, for a step to verify several at once (speculative decoding). What a
// request gets does not depend on it. Owned by the request like a filter; called by the engine thread between
// two steps.
struct drafter {
    void *state;
    // Writes at most max tokens of the vocabulary that may follow tokens[0..n), in order; returns how many.
    int (*propose)(void *state, const token_id *tokens, int n, token_id *drafts, int max);
    void (*free)(void *state);
};

#ifdef __cplusplus
}
#endif
