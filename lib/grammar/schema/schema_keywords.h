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
#define KEYWORDS(X)                                                                                          \
    X(REF, "$ref", SHAPE_STRING)                                                                             \
    X(DYNAMIC_REF, "$dynamicRef", SHAPE_STRING)                                                              \
    X(RECURSIVE_REF, "$recursiveRef", SHAPE_STRING)                                                          \
    X(TYPE, "type", SHAPE_TYPE)                                                                              \
    X(ENUM, "enum", SHAPE_LIST)                                                                              \
    X(CONST, "const", SHAPE_ANY)                                                                             \
    X(MULTIPLE_OF, "multipleOf", SHAPE_NUMBER)                                                               \
    X(MINIMUM, "minimum", SHAPE_NUMBER)                                                                      \
    X(MAXIMUM, "maximum", SHAPE_NUMBER)                                                                      \
    X(EXCLUSIVE_MINIMUM, "exclusiveMinimum", SHAPE_BOUND)                                                    \
    X(EXCLUSIVE_MAXIMUM, "exclusiveMaximum", SHAPE_BOUND)                                                    \
    X(MIN_LENGTH, "minLength", SHAPE_COUNT)                                                                  \
    X(MAX_LENGTH, "maxLength", SHAPE_COUNT)                                                                  \
    X(PATTERN, "pattern", SHAPE_STRING)                                                                      \
    X(FORMAT, "format", SHAPE_STRING)                                                                        \
    X(PREFIX_ITEMS, "prefixItems", SHAPE_SCHEMAS)                                                            \
    X(ITEMS, "items", SHAPE_ITEMS)                                                                           \
    X(ADDITIONAL_ITEMS, "additionalItems", SHAPE_SCHEMA)                                                     \
    X(UNEVALUATED_ITEMS, "unevaluatedItems", SHAPE_SCHEMA)                                                   \
    X(CONTAINS, "contains", SHAPE_SCHEMA)                                                                    \
    X(MIN_CONTAINS, "minContains", SHAPE_COUNT)                                                              \
    X(MAX_CONTAINS, "maxContains", SHAPE_COUNT)                                                              \
    X(MIN_ITEMS, "minItems", SHAPE_COUNT)                                                                    \
    X(MAX_ITEMS, "maxItems", SHAPE_COUNT)                                                                    \
    X(UNIQUE_ITEMS, "uniqueItems", SHAPE_BOOLEAN)                                                            \
    X(PROPERTIES, "properties", SHAPE_MAP)                                                                   \
    X(PATTERN_PROPERTIES, "patternProperties", SHAPE_MAP)                                                    \
    X(ADDITIONAL_PROPERTIES, "additionalProperties", SHAPE_SCHEMA)                                           \
    X(UNEVALUATED_PROPERTIES, "unevaluatedProperties", SHAPE_SCHEMA)                                         \
    X(PROPERTY_NAMES, "propertyNames", SHAPE_SCHEMA)                                                         \
    X(REQUIRED, "required", SHAPE_STRINGS)                                                                   \
    X(MIN_PROPERTIES, "minProperties", SHAPE_COUNT)                                                          \
    X(MAX_PROPERTIES, "maxProperties", SHAPE_COUNT)                                                          \
    X(DEPENDENCIES, "dependencies", SHAPE_DEPENDENCIES)                                                      \
    X(DEPENDENT_REQUIRED, "dependentRequired", SHAPE_NAMES)                                                  \
    X(DEPENDENT_SCHEMAS, "dependentSchemas", SHAPE_MAP)                                                      \
    X(ALL_OF, "allOf", SHAPE_SCHEMAS)                                                                        \
    X(ANY_OF, "anyOf", SHAPE_SCHEMAS)                                                                        \
    X(ONE_OF, "oneOf", SHAPE_SCHEMAS)                                                                        \
    X(NOT, "not", SHAPE_SCHEMA)                                                                              \
    X(IF, "if", SHAPE_SCHEMA)                                                                                \
    X(THEN, "then", SHAPE_SCHEMA)                                                                            \
    X(ELSE, "else", SHAPE_SCHEMA)
enum keyword {
#define X(id, name, shape) KEYWORD_##id,
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
// The number of a SHAPE_COUNT keyword, `otherwise` where it is absent.
int64_t keyword_count(const struct schema *s, const struct keywords *k, enum keyword which,
                      int64_t otherwise);
// The types that `type` allows, bit i: type i. *integers: of numbers only integers.
unsigned keyword_type_set(const struct schema *s, const struct jdoc_value *type, bool *integers);
