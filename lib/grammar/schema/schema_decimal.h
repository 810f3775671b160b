// Numbers of a schema as exact decimals.
#pragma once

#include "schema_state.h"

enum { MAX_DIGITS = 400 };

// digits[0 .. num_int) . digits[num_int .. num_int + num_frac), no zeros too many; zero is "0", not negative.
struct decimal {
    bool negative;
    int num_int, num_frac;
    unsigned char digits[2 * MAX_DIGITS + 2];
};

// A value of the schema. false: it is too long, and the schema has failed.
bool decimal_of(struct schema *s, const struct jdoc_value *v, struct decimal *d);
