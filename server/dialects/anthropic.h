// Anthropic's Messages API: /v1/messages and /v1/messages/count_tokens. Pure; any thread.
#pragma once

#include "api/dialect.h"

extern const struct api_form anthropic_form;
extern const struct dialect anthropic_messages;

// The part of a body that a chat completion has no field for.
struct anthropic_extras {
    bool hides_reasoning;
    bool billing; // a line of Claude Code's was left out of the system prompt
};

// Sets the members of `chat`, an object, to those of the chat completion that a body stands for.
bool anthropic_rewrite(json_t *chat, const struct served_model *m, const json_t *root,
                       struct anthropic_extras *extras, struct api_error *e);
// Of `tools` and `tool_choice` of a body (anthropic_tools.c). referenced: an object whose members are the deferred tools that
// are to be seen.
bool anthropic_rewrite_tools(json_t *chat, const json_t *tools, const json_t *referenced,
                             struct api_error *e);
// Whether a tool of that type runs on Anthropic's servers: here it is left out, and told.
bool anthropic_tool_is_hosted(const char *type);
bool anthropic_rewrite_choice(json_t *chat, const json_t *choice, struct api_error *e);
// parse() of the dialect (anthropic_request.c).
bool anthropic_parse(struct completion_request *r, const struct served_model *m, const char *body, size_t len,
                     struct api_error *e);
// How many tokens the prompt of a message with this body has. As job_fn says (job.h).
bool anthropic_count_response(const struct served_model *m, const char *body, size_t len, struct buf *out,
                              char *ignored, struct api_error *e);
