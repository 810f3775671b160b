// What is asked: conversations of one or more turns, from a file or made up.
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
    const char *text; // what the user says; NULL: made up, by the segments
    struct segment *segments;
    uint32_t num_segments;
    uint32_t input, output; // tokens of the segments; max_tokens
};

struct item {
    int64_t at; // ns from the start of the run; traces
    struct turn *turns;
    uint32_t num_turns;
};

struct dataset;

// Reads the file that the options name. NULL: `message` says why (file, line, what).
struct dataset *dataset_open(const struct options *o, char *message, size_t size);
void dataset_free(struct dataset *d);
// Items that a run has at most; SIZE_MAX where they are made up.
size_t dataset_size(const struct dataset *d);
// The i-th item. Its texts live as long as the dataset. The same i gives the same item. i < dataset_size().
// Files of prompts (not traces) begin anew at their end.
struct item dataset_item(const struct dataset *d, size_t i);
void item_free(struct item *it);

// What an endless prefix cache would have of prompts made of segments, in the order of the calls.
struct prefix_ideal;
struct prefix_ideal *prefix_ideal_new(void);
void prefix_ideal_free(struct prefix_ideal *p);
// Tokens of this turn's prompt that begin some prompt before; remembers it. Never the whole prompt: a server
// computes at least the last token. 0 for texts.
uint32_t prefix_ideal_add(struct prefix_ideal *p, const struct turn *t);

// For dataset_file.c and dataset_trace.c.
struct dataset {
    const struct options *o;
    enum dataset_kind kind;
    char *text;         // the file
    void *json;         // json_t of the file, where the texts live in it
    struct item *items; // [num]
    size_t num, cap;
    bool repeats; // begins anew at its end
};
struct item *dataset_add(struct dataset *d, uint32_t num_turns); // ends the program where there is no memory
bool dataset_read_prompts(struct dataset *d, char *message, size_t size);
bool dataset_read_trace(struct dataset *d, char *message, size_t size);
