// Sets of code points, as regular expressions write them. One owner. Surrogates are in no finished set.
#pragma once

#include "../grammar_build.h"

enum { CODE_MAX = 0x10ffff };

struct code_set { // zeroed: empty
    struct code_range *ranges;
    int num, cap;
    bool failed; // out of memory
};

void code_set_free(struct code_set *s);
void code_set_add(struct code_set *s, uint32_t first, uint32_t last);
void code_set_finish(struct code_set *s); // sorts and joins ranges
void code_set_negate(struct code_set *s); // of a finished set
// Adds \d, \w, \s as ECMA 262 has them, or with a capital letter all but these. kind: one of "dDwWsS".
void code_set_add_escape(struct code_set *s, char kind);
// Adds what has a property: a general category, gc=..., Any, ASCII, Assigned, White_Space. false: no such, or this
// build does without Unicode's tables.
bool code_set_add_property(struct code_set *s, const char *name, size_t len, bool negated);
// Adds the upper and lower case of what is in a finished set, and finishes it.
void code_set_add_cases(struct code_set *s);
