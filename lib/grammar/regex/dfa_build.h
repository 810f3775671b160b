// How automata are made: state by state, then made the smallest. One owner.
#pragma once

#include "dfa.h"

// States are numbered as they are added. State 0 is the start, and every state can be reached from it. Labels are
// below the number of states.
struct dfa_build {
    struct dfa *d; // NULL: failed
    int cap;       // states that there is room for
};

// Starts one whose classes of bytes are class_of. false with err: STATUS_NOMEM.
bool dfa_build_begin(struct dfa_build *b, const uint8_t class_of[256], int num_classes, struct err *err);
// Adds a state without ways out, and returns its number; -1 with err: STATUS_NOMEM, STATUS_LIMIT.
int dfa_build_state(struct dfa_build *b, int32_t label, struct err *err);
static inline void dfa_build_arrow(struct dfa_build *b, int from, int class, int to) {
    b->d->next[(size_t)from * (size_t)b->d->num_classes + (size_t) class] = to;
}
void dfa_build_free(struct dfa_build *b);
// The smallest automaton that accepts the same, which the caller owns; b is freed in any case.
struct dfa *dfa_build_end(struct dfa_build *b, struct err *err);
// Gives bytes that no state tells apart one class.
void dfa_merge_classes(struct dfa *d);
