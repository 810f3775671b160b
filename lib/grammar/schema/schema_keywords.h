// The keywords of JSON Schema that say something of a value, in the order of their names.
#pragma once

#include "schema_state.h"

enum shape {
    SHAPE_ANY,
    SHAPE_SCHEMA,
    SHAPE_SCHEMAS, // a list, not empty
    SHAPE_ITEMS,   // a schema, or a list
    SHAPE_MAP,     // names to schemas
    SHAPE_DEPENDENCIES,
    SHAPE_COUNT,
    SHAPE_NUMBER,
    SHAPE_BOUND, // a number; true or false in draft 4
    SHAPE_BOOLEAN,
    SHAPE_STRING,
    SHAPE_STRINGS,
    SHAPE_NAMES, // names to lists of strings
    SHAPE_LIST,
    SHAPE_TYPE
};
#define ANY_TYPE 0x3f
#define KEYWORDS(X)                                                                                          \
    X(REF, "$ref", SHAPE_STRING, ANY_TYPE)                                                                   \
    X(DYNAMIC_REF, "$dynamicRef", SHAPE_STRING, ANY_TYPE)                                                    \
    X(RECURSIVE_REF, "$recursiveRef", SHAPE_STRING, ANY_TYPE)                                                \
    X(TYPE, "type", SHAPE_TYPE, ANY_TYPE)                                                                    \
    X(ENUM, "enum", SHAPE_LIST, ANY_TYPE)                                                                    \
    X(CONST, "const", SHAPE_ANY, ANY_TYPE)                                                                   \
    X(MULTIPLE_OF, "multipleOf", SHAPE_NUMBER, 1 << TYPE_NUMBER)                                             \
    X(MINIMUM, "minimum", SHAPE_NUMBER, 1 << TYPE_NUMBER)                                                    \
    X(MAXIMUM, "maximum", SHAPE_NUMBER, 1 << TYPE_NUMBER)                                                    \
    X(EXCLUSIVE_MINIMUM, "exclusiveMinimum", SHAPE_BOUND, 1 << TYPE_NUMBER)                                  \
    X(EXCLUSIVE_MAXIMUM, "exclusiveMaximum", SHAPE_BOUND, 1 << TYPE_NUMBER)                                  \
    X(MIN_LENGTH, "minLength", SHAPE_COUNT, 1 << TYPE_STRING)                                                \
    X(MAX_LENGTH, "maxLength", SHAPE_COUNT, 1 << TYPE_STRING)                                                \
    X(PATTERN, "pattern", SHAPE_STRING, 1 << TYPE_STRING)                                                    \
    X(FORMAT, "format", SHAPE_STRING, 1 << TYPE_STRING)                                                      \
    X(PREFIX_ITEMS, "prefixItems", SHAPE_SCHEMAS, 1 << TYPE_ARRAY)                                           \
    X(ITEMS, "items", SHAPE_ITEMS, 1 << TYPE_ARRAY)                                                          \
    X(ADDITIONAL_ITEMS, "additionalItems", SHAPE_SCHEMA, 1 << TYPE_ARRAY)                                    \
    X(UNEVALUATED_ITEMS, "unevaluatedItems", SHAPE_SCHEMA, 1 << TYPE_ARRAY)                                  \
    X(CONTAINS, "contains", SHAPE_SCHEMA, 1 << TYPE_ARRAY)                                                   \
    X(MIN_CONTAINS, "minContains", SHAPE_COUNT, 1 << TYPE_ARRAY)                                             \
    X(MAX_CONTAINS, "maxContains", SHAPE_COUNT, 1 << TYPE_ARRAY)                                             \
    X(MIN_ITEMS, "minItems", SHAPE_COUNT, 1 << TYPE_ARRAY)                                                   \
    X(MAX_ITEMS, "maxItems", SHAPE_COUNT, 1 << TYPE_ARRAY)                                                   \
    X(UNIQUE_ITEMS, "uniqueItems", SHAPE_BOOLEAN, 1 << TYPE_ARRAY)                                           \
    X(PROPERTIES, "properties", SHAPE_MAP, 1 << TYPE_OBJECT)                                                 \
    X(PATTERN_PROPERTIES, "patternProperties", SHAPE_MAP, 1 << TYPE_OBJECT)                                  \
    X(ADDITIONAL_PROPERTIES, "additionalProperties", SHAPE_SCHEMA, 1 << TYPE_OBJECT)                         \
    X(UNEVALUATED_PROPERTIES, "unevaluatedProperties", SHAPE_SCHEMA, 1 << TYPE_OBJECT)                       \
    X(PROPERTY_NAMES, "propertyNames", SHAPE_SCHEMA, 1 << TYPE_OBJECT)                                       \
    X(REQUIRED, "required", SHAPE_STRINGS, 1 << TYPE_OBJECT)                                                 \
    X(MIN_PROPERTIES, "minProperties", SHAPE_COUNT, 1 << TYPE_OBJECT)                                        \
    X(MAX_PROPERTIES, "maxProperties", SHAPE_COUNT, 1 << TYPE_OBJECT)                                        \
    X(DEPENDENCIES, "dependencies", SHAPE_DEPENDENCIES, 1 << TYPE_OBJECT)                                    \
    X(DEPENDENT_REQUIRED, "dependentRequired", SHAPE_NAMES, 1 << TYPE_OBJECT)                                \
    X(DEPENDENT_SCHEMAS, "dependentSchemas", SHAPE_MAP, 1 << TYPE_OBJECT)                                    \
    X(ALL_OF, "allOf", SHAPE_SCHEMAS, ANY_TYPE)                                                              \
    X(ANY_OF, "anyOf", SHAPE_SCHEMAS, ANY_TYPE)                                                              \
    X(ONE_OF, "oneOf", SHAPE_SCHEMAS, ANY_TYPE)                                                              \
    X(NOT, "not", SHAPE_SCHEMA, ANY_TYPE)                                                                    \
    X(IF, "if", SHAPE_SCHEMA, ANY_TYPE)                                                                      \
    X(THEN, "then", SHAPE_SCHEMA, ANY_TYPE)                                                                  \
    X(ELSE, "else", SHAPE_SCHEMA, ANY_TYPE)
enum keyword {
#define X(id, name, shape, types) KEYWORD_##id,
    KEYWORDS(X)
#undef X
        NUM_KEYWORDS
};

// The keywords of one schema, each value or NULL. Keywords behind a $ref whose draft lets it stand alone are left out.
struct keywords {
    const struct jdoc_value *self;
    const struct jdoc_value *of[NUM_KEYWORDS];
    enum draft draft;
};
// Reads a schema, and whether its keywords have the values that they should. false: failed.
bool keywords_read(struct schema *s, const struct jdoc_value *v, struct keywords *k);
unsigned keyword_types(enum keyword k); // bit i: it speaks of type i
// The number of a SHAPE_COUNT keyword, `otherwise` where it is absent.
int64_t keyword_count(const struct schema *s, const struct keywords *k, enum keyword which,
                      int64_t otherwise);
// The types that `type` allows, bit i: type i. *integers: of numbers only integers.
unsigned keyword_type_set(const struct schema *s, const struct jdoc_value *type, bool *integers);
