// Ollama's API: /api/chat, /api/generate, /api/embed and /api/embeddings. Pure; any thread.
#pragma once

#include "api/dialect.h"
#include "api/fields.h"

extern const struct api_form ollama_form;
extern const struct dialect ollama_chat, ollama_generate;
extern const struct vector_dialect ollama_embed, ollama_embeddings;

// parse() of the dialects (ollama_request.c).
bool ollama_parse_chat(struct completion_request *r, const struct served_model *m, const char *body,
                       size_t len, struct api_error *e);
bool ollama_parse_generate(struct completion_request *r, const struct served_model *m, const char *body,
                           size_t len, struct api_error *e);
bool ollama_parse_embed(struct vector_request *r, const struct served_model *m, const char *body, size_t len,
                        struct api_error *e);
bool ollama_parse_embeddings(struct vector_request *r, const struct served_model *m, const char *body,
                             size_t len, struct api_error *e);

// As field_model(), where NAME:latest stands for NAME, too.
const char *ollama_model(const struct served_model *m, const json_t *root, struct api_error *e);
void ollama_write_error(struct buf *b, const struct api_error *e);
