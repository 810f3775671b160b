// Runs a tree.
#pragma once

#include "tree.h"

// Appends what the template writes to *out, in memory of a. On return a has no limit.
enum status jinja_render(const struct chat_template *t, struct chat_arena *a, const struct dict *globals,
                         struct marked *out, struct err *err);
