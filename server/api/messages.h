// Messages to a prompt: the model's template renders them, and what a client wrote never becomes a control
// token. Pure; any thread.
#pragma once

#include "buf.h"
#include "fields.h"

// Reads the template: the built-in one that path names, that of the file at path, or the model's own where
// path is NULL. A model without one is no error: m->chat stays NULL, and m->chat_problem says why. STATUS_IO,
// STATUS_FORMAT: the file's.
enum status chat_open(struct served_model *m, const char *path, struct err *err);
void chat_close(struct served_model *m);
// Chooses the format of the model's output: that of a name, "none" for none, by the template where name is NULL.
// STATUS_INVALID: there is no such format.
enum status chat_set_format(struct served_model *m, const char *name, struct err *err);

// Whether the template has `.word` or the string 'word': then it may want members of messages of that name.
bool chat_template_names(const struct served_model *m, const char *word);
// Whether the template has the variable `name`.
bool chat_template_uses(const struct served_model *m, const char *name);
bool chat_reads_tools(const struct served_model *m); // by a template of its own, or the one
// The template's variable that turns reasoning on or off; the one that an effort of reasoning sets, which may be the same.
// NULL: it has none.
const char *chat_thinking_variable(const struct served_model *m);
const char *chat_effort_variable(const struct served_model *m);

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
