// The tokenizer of a .gguf file that is open already.
#pragma once

#include "gguf.h"
#include "tokenizer.h"

// A tokenizer that keeps nothing of g: g may be closed. NULL with err: STATUS_FORMAT, STATUS_NOMEM.
struct tokenizer *tokenizer_from_gguf(const struct gguf *g, struct err *err);
