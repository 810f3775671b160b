// Deterministic automata over the bytes of text.
//
// All functions are pure. An automaton is immutable once made and has one owner, who calls dfa_free(). A
// function that returns one returns NULL with err: STATUS_NOMEM; STATUS_LIMIT, a bound was reached.
#pragma once

#include "status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DFA_DEAD = -1,
    DFA_STATE_BITS = 20,      // no automaton of plain text has more states than these number
    DFA_MAX_STATES = 1 << 16, // of one that is found by looking from state to state
};

// From every state some state is reachable where text may end: there is no way into a dead end but DFA_DEAD.
struct dfa {
    int num_states;  // state 0 is where text begins; 0: no text at all
    int num_classes; // bytes that no state tells apart share one
    uint8_t class_of[256];
    int32_t *next;  // (num_states, num_classes) the state, or DFA_DEAD
    int32_t *label; // (num_states) -1: text may not end here; else the number of the text, 0 if unused
};

void dfa_free(struct dfa *d); // NULL is allowed

static inline int32_t dfa_step(const struct dfa *d, int32_t state, unsigned char byte) {
    return d->next[(size_t)state * (size_t)d->num_classes + d->class_of[byte]];
}
// The label of a text, -1: not accepted.
int32_t dfa_match(const struct dfa *d, const char *text, size_t len);
bool dfa_is_empty(const struct dfa *d); // accepts nothing
// How many texts it accepts, at most `most`: finite languages only; `most` too where it has no end.
int64_t dfa_count(const struct dfa *d, int64_t most);

// Plain text: UTF-8 that a JSON string takes as it is. Marks in out (num_states) the states from where any plain text is
// taken, by way of states in `within` (num_states; NULL: all). It may miss some. false: out of memory.
bool dfa_mark_plain(const struct dfa *d, const uint8_t *within, uint8_t *out);
bool dfa_takes_plain_char(const struct dfa *d); // each, alone
// Marks the states behind which no plain byte, or several, lead to where text may end. It may miss some.
void dfa_mark_quiet(const struct dfa *d, uint8_t *out);

// Labels of the results of these are 0.
// Any of n texts, whatever their bytes; 20,000 words take some 10 ms. STATUS_LIMIT: 2^20 states, 64 MiB.
struct dfa *dfa_literals(const char *const *texts, const size_t *lens, int n, struct err *err);
struct dfa *dfa_any(struct err *err); // valid UTF-8
struct dfa *dfa_intersect(const struct dfa *a, const struct dfa *b, struct err *err);
struct dfa *dfa_union(const struct dfa *a, const struct dfa *b, struct err *err);
// Valid UTF-8 that a does not accept.
struct dfa *dfa_complement(const struct dfa *a, struct err *err);
// Texts of a that do not begin with another one of a.
struct dfa *dfa_shortest(const struct dfa *a, struct err *err);
// Texts of at least min and at most max (-1: any number of) code points.
struct dfa *dfa_length(int min, int max, struct err *err);

// Runs n automata (n <= 64) side by side over valid UTF-8: text that ends gets as label the number of the set of
// automata that accept it. *sets: (the largest label + 1) bit i: automaton i accepts; the caller frees it. Sets that
// `keep` refuses are not accepted; keep NULL: all sets, the empty one too.
struct dfa *dfa_classify(const struct dfa *const *list, int n, bool (*keep)(void *arg, uint64_t set),
                         void *arg, uint64_t **sets, struct err *err);

// A regular expression (ECMA 262 with u: \d, \w, \s, \p of general categories, classes, groups, lazy and greedy
// repeats mean the same, anchors at the ends of alternatives). anchored: it must match the whole text; else some part
// of it, as JSON Schema's `pattern` does. STATUS_INVALID with err: malformed, or not regular (lookaround,
// back-references, \b), with what and where.
struct dfa *dfa_regex(const char *pattern, size_t len, bool anchored, struct err *err);
