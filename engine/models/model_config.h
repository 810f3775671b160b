// The hyperparameters of a model from the keys of its file, checked before anything is sized by them.
#pragma once

#include "engine.h"
#include "model.h"
#include "model_file.h"

// Fills *config. Refuses by name, never ignores, what Quire does not compute: an architecture, mixture
// of experts, an unknown kind of RoPE scaling, per-layer sizes. Whether there are biases, and a
// head of its own, is read from the tensors. config->rope.freq_factors points into g. STATUS_FORMAT names the
// key, what was expected, and what was found.
enum status model_config_read(const struct model_file *f, struct model_config *config, struct err *err);

// The template of a reranker's prompt, with {query} and {document} in it: (len) valid as long as the file; NULL:
// none.
const char *model_config_rank_template(const struct model_file *f, size_t *len);

// Reads the keys general.sampling.*; one of another type counts as absent.
void model_config_advice(const struct model_file *f, struct sampling_advice *advice);
