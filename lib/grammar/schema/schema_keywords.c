// See schema_keywords.h.
#include "schema_keywords.h"

#include <math.h>

static const struct {
    const char *name;
    enum shape shape;
} table[NUM_KEYWORDS] = {
#define X(id, name, shape) {name, shape},
    KEYWORDS(X)
#undef X
};

static bool check_strings(struct schema *s, const struct jdoc_value *v) {
    if (v->type != JDOC_ARRAY)
        return schema_fail(s, v, STATUS_INVALID, "expected a list of strings, found %s", jdoc_type_name(v));
    JDOC_EACH(&s->doc, e, v)
    if (e->type != JDOC_STRING)
        return schema_fail(s, e, STATUS_INVALID, "expected a string, found %s", jdoc_type_name(e));
    return true;
}

static bool check_schema(struct schema *s, const struct jdoc_value *v) {
    if (v->type == JDOC_OBJECT || v->type == JDOC_TRUE || v->type == JDOC_FALSE)
        return true;
    return schema_fail(s, v, STATUS_INVALID, "expected a schema, found %s", jdoc_type_name(v));
}

static bool check_schemas(struct schema *s, const struct jdoc_value *v, bool object) {
    if (v->type != (object ? JDOC_OBJECT : JDOC_ARRAY))
        return schema_fail(s, v, STATUS_INVALID, "expected %s of schemas, found %s",
                           object ? "an object" : "a list", jdoc_type_name(v));
    for (const struct jdoc_value *e = jdoc_first(&s->doc, v); e; e = jdoc_after(&s->doc, v, e, object))
        if (!check_schema(s, object ? e + 1 : e))
            return false;
    return true;
}

static bool check_dependencies(struct schema *s, const struct jdoc_value *v, bool schemas) {
    if (v->type != JDOC_OBJECT)
        return schema_fail(s, v, STATUS_INVALID, "expected an object, found %s", jdoc_type_name(v));
    JDOC_EACH_KEY(&s->doc, k, v)
    if (!(schemas && k[1].type != JDOC_ARRAY ? check_schema(s, k + 1) : check_strings(s, k + 1)))
        return false;
    return true;
}

static bool check_type_name(struct schema *s, const struct jdoc_value *v) {
    static const char *const names[] = {"null", "boolean", "number", "integer", "string", "array", "object"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (jdoc_is(&s->doc, v, names[i]))
            return true;
    return schema_fail(s, v, STATUS_INVALID, "expected the name of a type");
}

static bool check_type(struct schema *s, const struct jdoc_value *v) {
    if (v->type != JDOC_ARRAY)
        return check_type_name(s, v);
    JDOC_EACH(&s->doc, e, v)
    if (!check_type_name(s, e))
        return false;
    return true;
}

static bool count_of(const struct schema *s, const struct jdoc_value *v, int64_t *count) {
    double d = jdoc_number(&s->doc, v);
    if (!(d >= 0) || d != floor(d))
        return false;
    *count = d < (double)MAX_REPEAT * 1000 ? (int64_t)d : (int64_t)MAX_REPEAT * 1000;
    return true;
}

static bool check_shape(struct schema *s, const struct jdoc_value *v, enum shape shape) {
    int64_t count;
    const char *expected = NULL;
    switch (shape) {
    case SHAPE_ANY: return true;
    case SHAPE_SCHEMA: return check_schema(s, v);
    case SHAPE_ITEMS: return v->type == JDOC_ARRAY ? check_schemas(s, v, false) : check_schema(s, v);
    case SHAPE_SCHEMAS: return check_schemas(s, v, false);
    case SHAPE_MAP: return check_schemas(s, v, true);
    case SHAPE_DEPENDENCIES:
    case SHAPE_NAMES: return check_dependencies(s, v, shape == SHAPE_DEPENDENCIES);
    case SHAPE_STRINGS: return check_strings(s, v);
    case SHAPE_TYPE: return check_type(s, v);
    case SHAPE_COUNT: expected = count_of(s, v, &count) ? NULL : "an integer that is not negative"; break;
    case SHAPE_BOUND:
        if (v->type == JDOC_TRUE || v->type == JDOC_FALSE)
            return true;
        // fall through
    case SHAPE_NUMBER: expected = isfinite(jdoc_number(&s->doc, v)) ? NULL : "a finite number"; break;
    case SHAPE_BOOLEAN:
        expected = v->type == JDOC_TRUE || v->type == JDOC_FALSE ? NULL : "true or false";
        break;
    case SHAPE_STRING: expected = v->type == JDOC_STRING ? NULL : "a string"; break;
    case SHAPE_LIST: expected = v->type == JDOC_ARRAY ? NULL : "a list";
    }
    return !expected ||
           schema_fail(s, v, STATUS_INVALID, "expected %s, found %s", expected, jdoc_type_name(v));
}

static int find_keyword(const struct schema *s, const struct jdoc_value *key) {
    for (int i = 0; i < NUM_KEYWORDS; i++)
        if (jdoc_is(&s->doc, key, table[i].name))
            return i;
    return -1;
}

bool keywords_read(struct schema *s, const struct jdoc_value *v, struct keywords *k) {
    struct keywords **kept = &s->keywords[v - s->doc.values];
    if (*kept) {
        *k = **kept;
        return true;
    }
    *k = (struct keywords){.self = v, .draft = schema_draft(s, v)};
    const struct jdoc_value *ref = k->draft <= DRAFT_7 ? schema_get(s, v, "$ref") : NULL;
    JDOC_EACH_KEY(&s->doc, key, v) {
        int i = ref && key + 1 != ref ? -1 : find_keyword(s, key);
        if (i < 0)
            continue;
        if (!check_shape(s, key + 1, table[i].shape))
            return false;
        k->of[i] = key + 1;
    }
    if (!schema_step(s, 1 + v->len) || !(*kept = schema_alloc(s, sizeof **kept)))
        return false;
    **kept = *k;
    return true;
}

int64_t keyword_count(const struct schema *s, const struct keywords *k, enum keyword which,
                      int64_t otherwise) {
    int64_t count = otherwise;
    if (k->of[which])
        count_of(s, k->of[which], &count);
    return count;
}

static unsigned one_type(const struct schema *s, const struct jdoc_value *v, bool *integers, bool *numbers) {
    static const char *const names[] = {"null", "boolean", "number", "string", "array", "object"};
    if (jdoc_is(&s->doc, v, "integer")) {
        *integers = true;
        return 1u << TYPE_NUMBER;
    }
    *numbers = *numbers || jdoc_is(&s->doc, v, "number");
    for (int i = 0; i < NUM_TYPES; i++)
        if (jdoc_is(&s->doc, v, names[i]))
            return 1u << i;
    return 0;
}

unsigned keyword_type_set(const struct schema *s, const struct jdoc_value *type, bool *integers) {
    bool numbers = false;
    unsigned all = 0;
    *integers = false;
    if (type->type == JDOC_STRING)
        all = one_type(s, type, integers, &numbers);
    if (type->type == JDOC_ARRAY)
        JDOC_EACH(&s->doc, e, type)
    all |= one_type(s, e, integers, &numbers);
    *integers = *integers && !numbers;
    return all;
}
