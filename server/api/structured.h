// Constraints on a request's output: a schema, an expression, a grammar, choices, tags; and calls of tools that it must
// make. Read from the fields of all APIs, compiled apart from the loop.
#pragma once

#include "api_error.h"
#include "completion_request.h"

// Reads response_format, structured_outputs, guided_* and the like into r->structured, where there are any.
bool structured_read(struct completion_request *r, const struct served_model *m, const json_t *root,
                     struct api_error *e);
// Makes `schema` the output's, as the field `param` asks; NULL: any object.
bool structured_schema(struct completion_request *r, const json_t *schema, const char *param,
                       struct api_error *e);
// Whether the request constrains its output.
bool structured_binds(const struct completion_request *r);
// When tools, reasoning and the prompt are read: all of it as one grammar.
bool structured_finish(struct completion_request *r, const struct served_model *m, struct api_error *e);
// Compiles it, if there is any; up to a second of work. Any thread.
bool structured_compile(struct completion_request *r, const struct served_model *m, struct api_error *e);
// Errors that come later speak of this field, not of the one that a dialect has put into its words.
void structured_name(struct completion_request *r, const char *param);
