// The tokenizer for clients, in the dialects of vLLM (prompt, messages) and llama.cpp (content). Pure; any
// thread.
#pragma once

#include "api_error.h"
#include "buf.h"
#include "completion_request.h"

// Both as job_fn says (job.h).
bool tokenize_response(const struct served_model *m, const char *body, size_t len, struct buf *out,
                       char *ignored, struct api_error *e);
bool detokenize_response(const struct served_model *m, const char *body, size_t len, struct buf *out,
                         char *ignored, struct api_error *e);
// Writes "chat_template", "bos_token" and "eos_token".
void write_template_info(struct buf *b, const struct served_model *m);
void write_tokenizer_info(struct buf *b, const struct served_model *m);
