// Python's two ways to fill a format.
#pragma once

#include "builtin.h"

void text_padded(struct jinja *j, struct marked *out, const struct str *s, size_t width, char align); // < ^ >
struct value text_percent(struct jinja *j, const struct str *format, struct value args); // format % args
struct value str_format(struct jinja *j, struct call *c); // format.format(args)
