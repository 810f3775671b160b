// Drafters that need no model of their own (speculative decoding): see struct drafter of filter.h. They do not
// change a request's output, because a step verifies every draft. Any thread makes one; then it is the request's.
#pragma once

#include "request.h"

#ifdef __cplusplus
extern "C" {
#endif

// Prompt lookup: what followed where the text's last tokens, at least min_match >= 1 of them, stood before, in the
// prompt or in the output. The longest match wins, among equals the latest. Keeps 8 to 16 bytes a token, from the
// first proposal on. Source: Saxena, "Prompt Lookup Decoding", 2023; the index is that of LZ77's hash chains.
// NULL: out of memory.
struct drafter *ngram_drafter(int min_match);

// The same, in predicted[0..n), which is copied, and the text.
struct drafter *predicted_drafter(int min_match, const token_id *predicted, int n);

// Asks `first`, and `second` where that has nothing to say. Takes both over; NULL: out of memory, they are the caller's.
struct drafter *either_drafter(struct drafter *first, struct drafter *second);

// NULL is allowed.
void drafter_free(struct drafter *d);

#ifdef __cplusplus
}
#endif
