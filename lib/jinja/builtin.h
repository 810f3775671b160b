// Functions that templates call by name, as tables, and how arguments are bound to their parameters.
#pragma once

#include "value.h"

struct kwarg {
    const struct str *name;
    struct value v;
};

struct call {
    struct value self;  // of a method, input of a filter or test
    struct value *args; // (num)
    struct kwarg *kw;
    size_t num, num_kw;
};

// `params`: names, space separated; after a call is bound, args has one value for each, V_ABSENT where not
// given. A leading '!' refuses keywords, "*" leaves the arguments alone. `min` of them are required. fn NULL:
// known, but the sandbox refuses it. A table ends with a row without a name.
struct builtin {
    const char *name;
    struct value (*fn)(struct jinja *j, struct call *c);
    const char *params;
    size_t min;
};

struct library {
    const struct builtin *filters, *tests, *globals;
    const struct builtin *methods[NUM_VALUE_KINDS]; // of each type; NULL: none
};

const struct builtin *builtin_find(const struct builtin *table, const char *name, size_t len); // NULL: none
const struct builtin *builtin_method(const struct library *lib, enum value_kind kind, const char *name,
                                     size_t len);
struct value builtin_call(struct jinja *j, const struct builtin *f, struct call *c); // binds and calls
