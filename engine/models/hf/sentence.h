// What folders of sentence-transformers say of how hidden states become one vector.
#pragma once

#include "config.h"
#include "files.h"

// Reads modules.json and the config.json of its modules where they are, and what config.json says of classifiers; sets c->dense.
// false: err; modules that Quire does not compute are refused by name.
bool hf_sentence_read(struct hf_files *d, const struct jdoc *config, struct hf_keys *keys,
                      struct hf_config *c, struct err *err);
