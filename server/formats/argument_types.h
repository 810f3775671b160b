// The types of a tool's arguments, for models that write them as plain text: the parser that reads them and the grammar
// that constrains them ask the same function. Pure; any thread.
#pragma once

#include "grammar/grammar.h"

#include <jansson.h>

enum {
    ARGUMENT_FRACTION = GRAMMAR_NUMBER,
    ARGUMENT_INTEGER = 1 << 6, // alone: no number with a fraction
    ARGUMENT_ANY = (1 << 7) - 1,
};

// The types that an argument of this name may have (GRAMMAR_* and ARGUMENT_*), as the schema of all arguments says, also by way of
// $ref, allOf, anyOf and oneOf. key NULL: a name that it does not know. It may be too much, where a schema says more than
// types, but not too little. An argument that no schema speaks of is a string; one of any type is a string, an object or an
// array.
unsigned argument_types(const json_t *parameters, const char *key, size_t len);
// The types of a text that is a whole value of JSON, blanks around it left out; 0: it is none.
unsigned argument_type_of(const char *text, size_t len);
// The types of a number as JSON writes it, of any size; 0: it is none.
unsigned argument_number_type(const char *text, size_t len);
