// The model's chat templates as text: where they come from, and what they name. Any thread, once they are open.
#pragma once

#include "completion_request.h"

// Reads the template: the built-in one that path names, that of the file at path, or the model's own where
// path is NULL. A model without one is no error: m->chat stays NULL, and m->chat_problem says why. STATUS_IO,
// STATUS_FORMAT: the file's.
enum status chat_open(struct served_model *m, const char *path, struct err *err);
void chat_close(struct served_model *m);
// Chooses the format of the model's output: that of a name, "none" for none, by the template where name is NULL. Where tools are
// generic it is that of their calls. STATUS_INVALID: there is no such format.
enum status chat_set_format(struct served_model *m, const char *name, struct err *err);

// Whether the template has `.word` or the string 'word': then it may want members of messages of that name.
bool chat_template_names(const struct served_model *m, const char *word);
// Whether the template has the variable `name`.
bool chat_template_uses(const struct served_model *m, const char *name);
bool chat_calls_tools(const struct served_model *m); // by its templates, or as generic tools
// The template's variable that turns reasoning on or off; the one that an effort of reasoning sets, which may be the same.
// NULL: it has none.
const char *chat_thinking_variable(const struct served_model *m);
const char *chat_effort_variable(const struct served_model *m);
