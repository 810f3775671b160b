// Messages to a prompt: the model's template renders them, and what a client wrote never becomes a control
// token. Pure; any thread.
#pragma once

#include "buf.h"
#include "chat_source.h"
#include "fields.h"

// Renders `messages` of root, with `tools` (unless `tool_choice` is none) and the template's own variables where it has
// them, and appends the tokens to out. continue_final: the prompt ends with the text of the last message, which the
// completion goes on from, and nothing is generated before it. *thinking (or NULL): whether the prompt has begun the
// reasoning of the model's format.
bool chat_prompt(const struct served_model *m, const json_t *root, bool add_generation_prompt,
                 bool continue_final, struct token_buf *out, bool *thinking, struct api_error *e);
// Whether the template, or the request, has the model reason before it answers: a template that has no marks of reasoning, or
// whose prompt closes it, or whose variable for it is off, has it not. Renders the prompt again.
bool chat_thinks(const struct served_model *m, const json_t *root, bool add_generation_prompt,
                 bool continue_final, bool *thinks, struct api_error *e);
// The same as text, which is for people: it does not say what a client wrote.
bool chat_text(const struct served_model *m, const json_t *root, bool add_generation_prompt,
               bool continue_final, struct buf *out, struct api_error *e);
