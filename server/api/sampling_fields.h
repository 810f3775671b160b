// Fields that say how tokens are chosen and shown, and how much of a prompt is kept, beyond what a table reads. Pure; any thread.
#pragma once

#include "fields.h"

extern const struct sampling_params sampling_plain; // of a request that says nothing
// Of a person's chats, where neither the model nor the operator says anything: llama.cpp's
extern const struct sampling_params sampling_chat;
// temperature, top_k, top_p and min_p, as fields of a request. The caller's; NULL: out of memory.
json_t *sampling_object(const struct sampling_params *s);
// Reads into out what an operator or a model may say for all requests. strict: nothing else may be in the object.
bool sampling_read_defaults(struct sampling_params *out, const json_t *object, bool strict,
                            struct api_error *e);
// Whether all names of llama-server's list of samplers are of stages that there are here.
bool sampling_knows_stages(const json_t *samplers);
bool sampling_read(struct completion_request *r, const struct served_model *m, const json_t *root,
                   struct api_error *e);
// Cuts a prompt to what truncate_prompt_tokens keeps.
void prompt_truncate(const struct completion_request *r, const struct served_model *m,
                     struct token_buf *prompt);
