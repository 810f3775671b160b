// The tokenizer for clients, in the dialects of vLLM (prompt, messages) and llama.cpp (content). Pure; any
// thread.
#pragma once

#include "api_error.h"
#include "buf.h"
#include "completion_request.h"

bool tokenize_response(const struct served_model *m, const char *body, size_t len, struct buf *out,
                       struct api_error *e);
bool detokenize_response(const struct served_model *m, const char *body, size_t len, struct buf *out,
                         struct api_error *e);
// llama-server's /apply-template: the prompt of messages as text.
bool template_response(const struct served_model *m, const char *body, size_t len, struct buf *out,
                       struct api_error *e);
void write_template_info(struct buf *b,
                         const struct served_model *m); // "chat_template", "bos_token", "eos_token"
void write_tokenizer_info(struct buf *b, const struct served_model *m);
