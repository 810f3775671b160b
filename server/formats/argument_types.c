#include "argument_types.h"

#include "json_strings.h"

#include <stdlib.h>

enum { MAX_DEPTH = 24, MAX_VISITS = 4000 };

// A walk over the schema of all arguments.
struct type_walk {
    const json_t *root;
    int visits; // schemas that may yet be looked at
};

// ---- references

// The element of an object or array that a part of a JSON pointer names, up to `end`.
static const json_t *element_of(const json_t *v, const char *part, const char *end) {
    char name[256];
    size_t len = 0;
    for (; part < end && len + 1 < sizeof name; part++) {
        unsigned code = 0;
        if (*part == '~' && part + 1 < end) {
            name[len++] = *++part == '1' ? '/' : '~';
        } else if (*part == '%' && part + 2 < end) { // pointers in URIs
            for (int i = 1; i < 3; i++) {
                const char hex[] = "0123456789abcdef", *at = strchr(hex, part[i] | 32);
                code = code * 16 + (at ? (unsigned)(at - hex) : 0);
            }
            name[len++] = (char)code;
            part += 2;
        } else {
            name[len++] = *part;
        }
    }
    name[len] = 0;
    if (part < end || memchr(name, 0, len))
        return NULL;
    return json_is_array(v) ? json_array_get(v, (size_t)strtoul(name, NULL, 10)) : json_object_get(v, name);
}

// The definition that bears an anchor. NULL: there is none.
static const json_t *anchor_of(const json_t *root, const char *name) {
    static const char *const lists[] = {"$defs", "definitions"};
    const char *key;
    json_t *v;
    for (size_t i = 0; i < 2; i++)
        json_object_foreach((json_t *)json_object_get(root, lists[i]), key, v) {
            const char *anchor = json_name(json_object_get(v, "$anchor"));
            const char *id = json_name(json_object_get(v, "$id"));
            if ((anchor && strcmp(anchor, name) == 0) || (id && *id == '#' && strcmp(id + 1, name) == 0))
                return v;
        }
    return NULL;
}

// The schema that a reference leads to. NULL: it is none, or leads out of the whole.
static const json_t *target_of(const struct type_walk *w, const char *ref) {
    const json_t *at = w->root;
    if (!ref || *ref != '#')
        return NULL;
    if (ref[1] && ref[1] != '/')
        return anchor_of(w->root, ref + 1);
    for (const char *part = ref + 1; at && *part == '/';) {
        const char *name = part + 1;
        part = name + strcspn(name, "/");
        at = element_of(at, name, part);
    }
    return at;
}

// ---- types of a schema

static unsigned type_of_value(const json_t *v) {
    switch (json_typeof(v)) {
    case JSON_NULL: return GRAMMAR_NULL;
    case JSON_TRUE:
    case JSON_FALSE: return GRAMMAR_BOOLEAN;
    case JSON_STRING: return GRAMMAR_STRING;
    case JSON_ARRAY: return GRAMMAR_ARRAY;
    case JSON_OBJECT: return GRAMMAR_OBJECT;
    case JSON_INTEGER: return ARGUMENT_INTEGER;
    default:
        return json_real_value(v) == (double)(int64_t)json_real_value(v) // 3.0 is an integer, too
                   ? ARGUMENT_FRACTION | ARGUMENT_INTEGER
                   : ARGUMENT_FRACTION;
    }
}

static unsigned type_named(const char *name) {
    static const struct {
        const char *name;
        unsigned types;
    } types[] = {{"null", GRAMMAR_NULL},        {"boolean", GRAMMAR_BOOLEAN},
                 {"integer", ARGUMENT_INTEGER}, {"number", ARGUMENT_INTEGER | ARGUMENT_FRACTION},
                 {"string", GRAMMAR_STRING},    {"array", GRAMMAR_ARRAY},
                 {"object", GRAMMAR_OBJECT}};
    for (size_t i = 0; name && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].types;
    return ARGUMENT_ANY;
}

// A schema that names no type means the one that its other keywords speak of, though JSON Schema lets it be any.
static unsigned types_meant(const json_t *schema) {
    static const struct {
        const char *keyword;
        unsigned types;
    } keywords[] = {{"properties", GRAMMAR_OBJECT},
                    {"required", GRAMMAR_OBJECT},
                    {"additionalProperties", GRAMMAR_OBJECT},
                    {"patternProperties", GRAMMAR_OBJECT},
                    {"propertyNames", GRAMMAR_OBJECT},
                    {"minProperties", GRAMMAR_OBJECT},
                    {"maxProperties", GRAMMAR_OBJECT},
                    {"items", GRAMMAR_ARRAY},
                    {"prefixItems", GRAMMAR_ARRAY},
                    {"contains", GRAMMAR_ARRAY},
                    {"minItems", GRAMMAR_ARRAY},
                    {"maxItems", GRAMMAR_ARRAY},
                    {"uniqueItems", GRAMMAR_ARRAY},
                    {"minLength", GRAMMAR_STRING},
                    {"maxLength", GRAMMAR_STRING},
                    {"pattern", GRAMMAR_STRING},
                    {"format", GRAMMAR_STRING},
                    {"minimum", ARGUMENT_INTEGER | ARGUMENT_FRACTION},
                    {"maximum", ARGUMENT_INTEGER | ARGUMENT_FRACTION},
                    {"exclusiveMinimum", ARGUMENT_INTEGER | ARGUMENT_FRACTION},
                    {"exclusiveMaximum", ARGUMENT_INTEGER | ARGUMENT_FRACTION},
                    {"multipleOf", ARGUMENT_INTEGER | ARGUMENT_FRACTION}};
    unsigned types = 0;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (json_object_get(schema, keywords[i].keyword))
            types |= keywords[i].types;
    return types ? types : ARGUMENT_ANY;
}

static unsigned types_of(struct type_walk *w, const json_t *schema, int depth);

static unsigned types_of_any(struct type_walk *w, const json_t *list, int depth) {
    unsigned types = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        types |= types_of(w, json_array_get(list, i), depth);
    return types ? types : ARGUMENT_ANY;
}

static unsigned types_of(struct type_walk *w, const json_t *schema, int depth) {
    const json_t *type = json_object_get(schema, "type"), *values = json_object_get(schema, "enum"),
                 *one = json_object_get(schema, "const"), *all = json_object_get(schema, "allOf"),
                 *target = target_of(w, json_name(json_object_get(schema, "$ref")));
    static const char *const lists[] = {"anyOf", "oneOf"};
    if (json_is_false(schema))
        return 0;
    if (!json_is_object(schema) || depth > MAX_DEPTH || w->visits-- <= 0)
        return ARGUMENT_ANY;
    unsigned types = ARGUMENT_ANY, some = 0;
    for (size_t i = 0; i < json_array_size(type); i++)
        some |= type_named(json_name(json_array_get(type, i)));
    if (type)
        types &= json_is_array(type) ? some : type_named(json_name(type));
    if (one)
        types &= type_of_value(one);
    some = 0;
    for (size_t i = 0; i < json_array_size(values); i++)
        some |= type_of_value(json_array_get(values, i));
    types &= json_array_size(values) ? some : ARGUMENT_ANY;
    if (target)
        types &= types_of(w, target, depth + 1);
    for (size_t i = 0; i < json_array_size(all); i++)
        types &= types_of(w, json_array_get(all, i), depth + 1);
    for (size_t k = 0; k < 2; k++)
        types &= types_of_any(w, json_object_get(schema, lists[k]), depth + 1);
    if (types == ARGUMENT_ANY)
        types = types_meant(schema);
    return json_is_true(json_object_get(schema, "nullable")) ? types | GRAMMAR_NULL : types; // OpenAPI's
}

// ---- members of the whole

// The types of members that are not named; false: no keyword speaks of them.
static bool types_of_others(struct type_walk *w, const json_t *schema, unsigned *types) {
    const json_t *others = json_object_get(schema, "additionalProperties");
    const char *pattern;
    json_t *v;
    bool found = json_is_object(others);
    *types = found ? types_of(w, others, 0) : 0;
    json_object_foreach(json_object_get(schema, "patternProperties"), pattern, v) {
        *types |= types_of(w, v, 0);
        found = true;
    }
    return found;
}

// key NULL: members that are not named. false: nothing speaks of them.
static bool types_of_member(struct type_walk *w, const json_t *schema, const char *key, int depth,
                            unsigned *types) {
    static const char *const lists[] = {"allOf", "anyOf", "oneOf"};
    *types = ARGUMENT_ANY;
    if (!json_is_object(schema) || depth > MAX_DEPTH || w->visits-- <= 0)
        return false;
    const json_t *own = key ? json_object_get(json_object_get(schema, "properties"), key) : NULL,
                 *target = target_of(w, json_name(json_object_get(schema, "$ref")));
    unsigned more;
    bool found = own != NULL;
    if (own)
        *types = types_of(w, own, 0);
    else if (!key)
        found = types_of_others(w, schema, types);
    if (target && types_of_member(w, target, key, depth + 1, &more)) {
        *types = found ? *types & more : more;
        found = true;
    }
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        const json_t *list = json_object_get(schema, lists[k]);
        unsigned sum = k == 0 ? ARGUMENT_ANY : 0;
        bool any = false;
        for (size_t i = 0; i < json_array_size(list); i++)
            if (types_of_member(w, json_array_get(list, i), key, depth + 1, &more)) {
                sum = k == 0 ? sum & more : sum | more;
                any = true;
            }
        if (any)
            *types = found ? *types & sum : sum;
        found |= any;
    }
    return found;
}

unsigned argument_types(const json_t *parameters, const char *key, size_t len) {
    struct type_walk w = {parameters, MAX_VISITS};
    unsigned types;
    bool found = false;
    char name[256]; // keys are no strings of C; longer ones are not looked for
    if (key && len < sizeof name && !memchr(key, 0, len)) {
        memcpy(name, key, len);
        name[len] = 0;
        found = types_of_member(&w, parameters, name, 0, &types);
    }
    if (!found && !types_of_member(&w, parameters, NULL, 0, &types))
        return GRAMMAR_STRING;
    return types == ARGUMENT_ANY ? GRAMMAR_STRING | GRAMMAR_ARRAY | GRAMMAR_OBJECT : types;
}

// ---- values

static const char *skip_digits(const char *at, const char *end) {
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

unsigned argument_number_type(const char *at, size_t len) {
    const char *end = at + len;
    at += at < end && *at == '-';
    const char *whole = skip_digits(at, end), *rest = whole;
    bool zeros = true; // behind the point
    if (whole == at || (*at == '0' && whole > at + 1))
        return 0;
    if (rest < end && *rest == '.') {
        rest = skip_digits(rest + 1, end);
        if (rest[-1] == '.')
            return 0;
        for (const char *digit = whole + 1; digit < rest; digit++)
            zeros &= *digit == '0';
    }
    if (rest == end)
        return zeros ? rest == whole ? ARGUMENT_INTEGER : ARGUMENT_INTEGER | ARGUMENT_FRACTION
                     : ARGUMENT_FRACTION;
    if ((*rest | 32) != 'e')
        return 0;
    rest++;
    rest += rest < end && (*rest == '-' || *rest == '+');
    return rest < end && skip_digits(rest, end) == end ? ARGUMENT_FRACTION : 0;
}

unsigned argument_type_of(const char *text, size_t len) {
    static const char *const words[] = {"null", "true", "false"};
    while (len && strchr(" \t\n\r", *text) && *text)
        text++, len--;
    while (len && strchr(" \t\n\r", text[len - 1]) && text[len - 1])
        len--;
    for (size_t i = 0; i < 3; i++)
        if (len == strlen(words[i]) && memcmp(text, words[i], len) == 0)
            return i ? GRAMMAR_BOOLEAN : GRAMMAR_NULL;
    if (!len || !strchr("[{\"", *text) || !*text)
        return argument_number_type(text, len);
    json_t *v = json_loadb(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    unsigned type = v ? type_of_value(v) : 0;
    json_decref(v);
    return type;
}
