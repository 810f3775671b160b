// Tools for chat templates that know none: they are described in words, and calls and results of before are texts. Pure; any
// thread.
#pragma once

#include "messages.h"

// Rewrites `messages` of a chat, and leaves its `tools` out, where the model's tools are generic. Calls of before stay where the
// template has them.
bool generic_tools_rewrite(json_t *root, const struct served_model *m, struct api_error *e);
