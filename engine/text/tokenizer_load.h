// The tokenizer of a model file that is open already.
#pragma once

#include "models/model_file.h"
#include "tokenizer.h"

// A tokenizer that keeps nothing of f: it may be closed. NULL with err: STATUS_FORMAT, STATUS_NOMEM.
struct tokenizer *tokenizer_load(const struct model_file *f, struct err *err);
