// An automaton over code points, which becomes one over the bytes of UTF-8. One owner.
#pragma once

#include "../grammar_build.h"
#include "dfa.h"

struct code_arrow {
    int32_t class, to;
};

struct code_dfa { // zeroed: empty
    // Code points that no state tells apart share a class.
    int num_classes, num_ranges;
    struct code_range *ranges; // (num_ranges) ascending
    int32_t *class_of;         // (num_ranges)
    // State 0 is the start, and every state can be reached from it.
    int num_states, cap_states;
    bool *ends;     // (num_states) text may end here
    int32_t *first; // (num_states + 1) arrows of each
    struct code_arrow *arrows;
    int num_arrows, cap_arrows;
};

void code_dfa_free(struct code_dfa *d);
// The smallest automaton over bytes, which the caller owns. NULL with err: STATUS_NOMEM, STATUS_LIMIT.
struct dfa *code_dfa_bytes(const struct code_dfa *d, struct err *err);
