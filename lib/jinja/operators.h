// Operators, attributes, items and slices of values.
#pragma once

#include "value.h"

struct value jinja_attr(struct jinja *j, struct value v, const struct str *name); // v.name
struct value jinja_item(struct jinja *j, struct value v, struct value key);       // v[key]
struct value jinja_slice(struct jinja *j, struct value v, struct value from, struct value to,
                         struct value step);
struct value jinja_binary(struct jinja *j, int op, struct value a, struct value b); // + - * / // % **
