// Walks a grammar byte by byte. Where a text may stand in the grammar is a set of threads; each set that is met becomes
// a numbered state, so that the same set is worked out once and afterwards a step is a look into a table (a
// deterministic automaton that is built as it is used).
//
// A matcher has one user at a time. States are numbers until matcher_trim() forgets them all.
#pragma once

#include "network.h"

struct matcher;
enum { MATCHER_DEAD = -1, MATCHER_FAILED = -2, MAX_THREADS = 4096 };

struct matcher *matcher_new(struct grammar *g); // g outlives it; NULL: out of memory
void matcher_free(struct matcher *m);           // NULL is allowed
const struct grammar *matcher_grammar(const struct matcher *m);

// Where texts begin. MATCHER_FAILED as below.
int32_t matcher_start(struct matcher *m);
// Where a byte leads. MATCHER_DEAD: no text of the grammar goes on so. MATCHER_FAILED: out of memory, or more than
// MAX_THREADS ways to read the text.
int32_t matcher_step(struct matcher *m, int32_t state, unsigned char byte);
int32_t matcher_text(struct matcher *m, int32_t state, const char *text,
                     size_t len);               // of all bytes of a text
bool matcher_at_limit(const struct matcher *m); // MATCHER_FAILED just now: because of MAX_THREADS
bool matcher_may_end(const struct matcher *m, int32_t state);
bool matcher_may_go_on(struct matcher *m, int32_t state);

// How many plain characters (dfa.h), whichever, may come in a row, as far as one automaton or key shows; INT_MAX: any
// number.
int matcher_takes_plain(const struct matcher *m, int32_t state);

// Forgets all states where they take more than `bytes`. true: it did.
bool matcher_trim(struct matcher *m, size_t bytes);
size_t matcher_bytes(const struct matcher *m);
// What a user keeps for a state: a slot of two numbers, 0 at first.
int32_t *matcher_notes(struct matcher *m, int32_t state);

// The inner loop of a walk: the state behind a class of bytes, or MATCHER_UNKNOWN where matcher_step() has to be asked.
enum { MATCHER_UNKNOWN = -3 };
const int32_t *matcher_row(const struct matcher *m, int32_t state); // (num_classes); until the next step

// Whether the grammar takes a text, from its beginning to its end. For tests and tools.
bool grammar_takes(struct grammar *g, const char *text, size_t len);
