// Walks a grammar byte by byte. Where a text may stand in the grammar is a set of threads; each set that is met becomes
// a numbered state, so that the same set is worked out once and afterwards a step is a look into a table (a
// deterministic automaton that is built as it is used).
//
// A matcher has one user at a time. A state keeps its number until matcher_keep() forgets states without users.
#pragma once

#include "network.h"

struct matcher;
enum {
    MATCHER_DEAD = -1,    // no text of the grammar goes on so
    MATCHER_FAILED = -2,  // out of memory
    MATCHER_UNKNOWN = -3, // not looked at yet
    MATCHER_LIMIT = -4,   // more than MAX_THREADS ways to read the text, or MAX_STEP_WORK to find them
    MAX_THREADS = 4096,
    MAX_STEP_WORK = 1 << 18,
};

struct matcher *matcher_new(struct grammar *g); // g outlives it; NULL: out of memory
void matcher_free(struct matcher *m);           // NULL is allowed
const struct grammar *matcher_grammar(const struct matcher *m);

// Where texts begin: a state, or MATCHER_FAILED or MATCHER_LIMIT.
int32_t matcher_start(struct matcher *m);
// Where a byte leads: a state, or one of the above but MATCHER_UNKNOWN.
int32_t matcher_step(struct matcher *m, int32_t state, unsigned char byte);
int32_t matcher_text(struct matcher *m, int32_t state, const char *text,
                     size_t len); // of all bytes of a text
bool matcher_may_end(const struct matcher *m, int32_t state);
bool matcher_may_go_on(struct matcher *m, int32_t state);

// How many plain characters (dfa.h), whichever, may come in a row, as far as one automaton or key shows, while no state has
// more threads than this one; INT_MAX: any number.
int matcher_takes_plain(const struct matcher *m, int32_t state);

// Forgets all states but these (num), which get new numbers in place. Their users' values stay. false: out of memory,
// nothing is forgotten.
bool matcher_keep(struct matcher *m, int32_t *states, size_t num);
size_t matcher_bytes(const struct matcher *m);
// The caller's own value for a state, 0 at first.
int32_t *matcher_note(struct matcher *m, int32_t state);

// Work is counted in threads that arrive somewhere, about 50 ns each: all that was ever done.
uint64_t matcher_work(const struct matcher *m);

// A walk looks at many texts. Its own work is that of each step that it takes, once, as if none had been known before: so it
// depends on the grammar and the texts alone. One walk at a time.
struct edge {
    int32_t to;
    uint16_t work; // a quarter of it
    uint16_t walk; // the last one that took this step
};
void matcher_walk_begin(struct matcher *m);
uint64_t matcher_walk_work(const struct matcher *m);
// The inner loop: the step behind a class of bytes, which is good as it is where `walk` is matcher_walk(); else
// matcher_walk_step(), as matcher_step(), has to be asked.
uint16_t matcher_walk(const struct matcher *m);
const struct edge *matcher_row(const struct matcher *m, int32_t state); // (num_classes); until the next step
int32_t matcher_walk_step(struct matcher *m, int32_t state, unsigned char byte);

// Whether the grammar takes a text, from its beginning to its end. For tests and tools.
bool grammar_takes(struct grammar *g, const char *text, size_t len);
