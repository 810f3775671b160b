// Helpers of dialects that rewrite their requests as chat completions. Pure; any thread.
#pragma once

#include "fields.h"

void rewrite_json(struct buf *b, const json_t *v); // as text
// These take `value` over, also where they fail; a NULL one is memory that is out.
bool rewrite_set(json_t *object, const char *key, json_t *value, struct api_error *e);
bool rewrite_append(json_t *list, json_t *value, struct api_error *e);
// Sets the member `to` of chat to the member `from` of root, where that is there.
bool rewrite_copy(json_t *chat, const char *to, const json_t *root, const char *from, struct api_error *e);

// The member of a message in which the template wants an earlier reasoning; NULL: it leaves it out.
const char *rewrite_reasoning_member(const struct served_model *m);
// By its template: it has a variable for that, or the marks of reasoning.
bool rewrite_can_reason(const struct served_model *m);
// Sets the template's variable that turns reasoning on or off. A model that always reasons has none.
bool rewrite_thinking(json_t *chat, const struct served_model *m, bool on, struct api_error *e);
