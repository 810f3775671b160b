// The prompts of a run: conversations of one or more turns, from a file or made up.
#pragma once

#include "dataset_items.h"

struct dataset;

// Reads the file that the options name. NULL: `message` says why (file, line, what).
struct dataset *dataset_open(const struct options *o, char *message, size_t size);
void dataset_free(struct dataset *d);
// Items that a run has at most; SIZE_MAX where they are made up.
size_t dataset_size(const struct dataset *d);
// The i-th item. Its texts live as long as the dataset. The same i gives the same item. i < dataset_size().
// Files of prompts (not traces) begin anew at their end.
struct item dataset_item(const struct dataset *d, size_t i);

// Counts the tokens that an endless prefix cache would have of prompts made of segments, in the order of the calls.
struct prefix_ideal;
struct prefix_ideal *prefix_ideal_new(void);
void prefix_ideal_free(struct prefix_ideal *p);
// Tokens of this turn's prompt that begin some prompt before; remembers it. Never the whole prompt: a server
// computes at least the last token. 0 for texts.
uint32_t prefix_ideal_add(struct prefix_ideal *p, const struct turn *t);
