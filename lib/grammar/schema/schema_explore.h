// An automaton from a description of its states: whatever can be reached from the start is walked, once each.
#pragma once

#include "../regex/dfa.h"

struct explore {
    size_t state_size; // bytes of a state, compared and hashed as they are: no padding
    uint8_t class_of[256];
    int num_classes;
    int num_labels; // all labels are below it
    const void *arg;
    bool (*step)(const void *arg, const void *state, int class, void *next); // next: zeroed; false: nowhere
    int32_t (*label)(const void *arg, const void *state);                    // -1: text may not end here
};

// The automaton that begins in `start`. NULL with err: STATUS_NOMEM, STATUS_LIMIT.
struct dfa *explore(const struct explore *x, const void *start, struct err *err);
