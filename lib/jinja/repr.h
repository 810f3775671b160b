// Values as Python prints them.
#pragma once

#include "value.h"

int value_format_float(char out[32], double f); // as Python's repr(); returns the length
void value_put_int(struct jinja *j, struct marked *out, int64_t i);
void value_put_float(struct jinja *j, struct marked *out, double f);
// For printers that go down into values: counts a step, and fails at JINJA_MAX_VALUE_DEPTH.
void value_check_depth(struct jinja *j, int depth);
void value_repr(struct jinja *j, struct marked *out, struct value v, int depth);
struct str *value_str(struct jinja *j, struct value v); // Python's str()

_Noreturn void jinja_fail_undefined(struct jinja *j, struct value u); // its sentence names what is undefined
int64_t value_index(struct jinja *j, struct value v);                 // an integer, or fails
