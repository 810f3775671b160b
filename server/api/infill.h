// Prompts for the text between two others, by the tokens that the model has for that. Pure; any thread.
#pragma once

#include "completion_request.h"
#include "fields.h"

// The texts of one prompt, lent. Strings, but for extra; NULL: none.
struct infill_texts {
    const json_t *prefix, *suffix;
    const json_t *prompt; // the beginning of what is asked for
    const json_t *extra;  // [{"filename", "text"}] of the same repository
    const char *field;    // that asked for it, in messages
    bool cut;             // text that the context has no room for is left out
};

// Appends the ids. False: e says why.
bool infill_prompt(struct token_buf *out, const struct completion_request *r, const struct served_model *m,
                   const struct infill_texts *texts, struct api_error *e);
// Reads the prompt of /infill, of a body's object: input_prefix, input_suffix, input_extra and prompt, which infill_take()
// has made members of `prompt`, so that the other fields are those of /v1/completions.
bool infill_read(struct completion_request *r, const struct served_model *m, const json_t *root,
                 struct api_error *e);
bool infill_take(json_t *root, struct api_error *e);
