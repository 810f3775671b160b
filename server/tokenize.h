// The tokenizer for clients, in the dialects of vLLM (prompt) and llama.cpp (content). Pure; any thread.
#pragma once

#include "openai.h"

bool tokenize_answer(const struct openai_model *m, const char *body, size_t len, struct buf *out,
                     struct api_error *e);
bool detokenize_answer(const struct openai_model *m, const char *body, size_t len, struct buf *out,
                       struct api_error *e);
void write_tokenizer_info(struct buf *b, const struct openai_model *m);
