// Reads how a folder of sentence-transformers turns hidden states into one vector.
#pragma once

#include "config.h"
#include "files.h"

// Reads modules.json and the files of its modules where they are, and what config.json says of classifiers; sets c->dense.
// tokenizer_config: without values where it is absent. false: err; modules that Quire does not compute are refused by name.
bool hf_sentence_read(struct hf_files *d, const struct jdoc *config, const struct jdoc *tokenizer,
                      const struct jdoc *tokenizer_config, struct hf_keys *keys, struct hf_config *c,
                      struct err *err);
