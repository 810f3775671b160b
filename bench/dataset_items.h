// Conversations, and the list of them that a file is read into.
#pragma once

#include "options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A run of made-up tokens. The same key gives the same tokens: that is how prompts share prefixes.
struct segment {
    uint64_t key;
    uint32_t tokens;
};

struct turn {
    const char *text; // the user's message; NULL: made up, by the segments
    struct segment *segments;
    uint32_t num_segments;
    uint32_t input, output; // tokens of the segments; max_tokens
};

struct item {
    int64_t at; // ns from the start of the run; traces
    struct turn *turns;
    uint32_t num_turns;
};

void item_free(struct item *it);

struct dataset {
    const struct options *o;
    enum dataset_kind kind;
    char *text;         // the file
    void *json;         // json_t of the file, where the texts live in it
    struct item *items; // [num]
    size_t num, cap;
    bool repeats; // begins anew at its end
};

// A new item at the end; ends the program where there is no memory.
struct item *dataset_add(struct dataset *d, uint32_t num_turns);
