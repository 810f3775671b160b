// Anthropic's Messages API: /v1/messages and /v1/messages/count_tokens. Pure; any thread.
#pragma once

#include "api/dialect.h"

extern const struct dialect anthropic_messages;

// Sets the members of `chat`, an object, to those of the chat completion that a body stands for. *hides: its reasoning is
// not wanted.
bool anthropic_rewrite(json_t *chat, const struct served_model *m, const json_t *root, bool *hides,
                       struct api_error *e);
// parse() of the dialect (anthropic_request.c).
bool anthropic_parse(struct completion_request *r, const struct served_model *m, const char *body, size_t len,
                     struct api_error *e);
// How many tokens the prompt of a message with this body has. As job_fn says (job.h).
bool anthropic_count_response(const struct served_model *m, const char *body, size_t len, struct buf *out,
                              char *ignored, struct api_error *e);
