// Filters, which forbid some of the next tokens, and drafters, which guess them; and the tokens' texts, as both see
// them.
#pragma once

#include "token.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { MAX_DRAFTS = 8 }; // tokens of one request that a step verifies

// A filter's answer about a mask. MORE: it is not whole yet, ask again. LIMIT: it will never be whole, it takes too
// much work.
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
    // nothing is left. The final mask does not depend on the number of calls.
    enum mask_result (*mask)(void *state, uint32_t *bits, int vocab, int64_t *work);
    void (*rollback)(void *state, int n); // undoes the last n <= MAX_DRAFTS accepts; NULL: no drafts for it
    void (*free)(void *state);
    bool (*done)(void *state); // nothing may follow: the request is over; NULL: only its mask says so
};

// Guesses the tokens that come next, for a step to verify several at once (speculative decoding). It does
// not change a request's output. Owned by the request like a filter; called by the engine thread between
// two steps.
struct drafter {
    void *state;
    // Writes at most max tokens of the vocabulary that may follow tokens[0..n), in order; returns how many.
    int (*propose)(void *state, const token_id *tokens, int n, token_id *drafts, int max);
    void (*free)(void *state);
};

// Tokens by their text; tokenizer_vocabulary() gives a model's. Immutable: any thread calls the functions, with `state`,
// which outlives every copy of the struct, as do the bytes that they give.
struct vocabulary {
    const void *state;
    int size; // tokens are 0..size - 1
    // The bytes that a token adds to a text; a control token adds none, or with `named` its name. Not NUL-terminated.
    const char *(*bytes)(const void *state, token_id token, bool named, size_t *len);
    bool (*is_end)(const void *state, token_id token);     // it ends the text
    bool (*is_control)(const void *state, token_id token); // it is no text
    // Writes the ids, at most max of them, of a text that follows another; where `named`, names of control tokens are these
    // tokens. Returns how many the text has; -1: it has none, or no memory is left. NULL: no drafts, and no budgets.
    int (*encode)(const void *state, const char *text, size_t len, bool named, token_id *ids, int max);
};

#ifdef __cplusplus
}
#endif
