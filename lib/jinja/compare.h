// The order of values, and what rests on it.
#pragma once

#include "value.h"

// -1, 0, 1; 2: a NaN. `op` is for the sentence of a failure.
int value_order(struct jinja *j, struct value a, struct value b, const char *op, int depth);
bool value_contains(struct jinja *j, struct value where, struct value what);
// op.h: == != < > <= >= in, not in
bool value_compare(struct jinja *j, int op, struct value a, struct value b);
// items in the order of their keys; equal ones keep theirs.
struct list *value_sorted(struct jinja *j, const struct list *keys, const struct list *items, bool reverse);
