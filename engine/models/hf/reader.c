#include "reader.h"

#include <math.h>
#include <string.h>

struct hf_found hf_found_in(const struct jdoc *j, const struct jdoc_value *object, const char *key) {
    const struct jdoc_value *v = jdoc_find(j, object, key);
    bool null = v && v->type == JDOC_NULL;
    return (struct hf_found){.j = j, .v = null ? NULL : v, .null = null ? v : NULL};
}

struct hf_found hf_find_key(const struct hf_reader *r, const char *key) {
    struct hf_found f = hf_found_in(r->j, r->text, key);
    for (const struct hf_alias *a = r->c->family->aliases; !f.v && !f.null && a && a->key; a++)
        if (strcmp(a->key, key) == 0) {
            f = hf_found_in(r->j, r->text, a->theirs);
            f.key = a->theirs;
        }
    return f.v || f.null || !r->defaults.num ? f : hf_found_in(&r->defaults, r->defaults.values, key);
}

bool hf_refuse_value(const struct hf_reader *r, const char *key, struct hf_found f, const char *expected) {
    const struct jdoc_value *v = f.v ? f.v : f.null;
    struct text_view s = jdoc_text(f.j, v);
    bool shown = v->type == JDOC_NUMBER || v->type == JDOC_STRING;
    const char *name = f.key ? f.key : key, *is = shown ? "" : jdoc_type_name(v);
    int len = shown ? (int)(s.len < 64 ? s.len : 64) : 0;
    if (f.j == &r->defaults)
        jdoc_bad(r->j, r->err, "key %.64s is missing, which is %s%.*s, expected %s", name, is, len, s.data,
                 expected);
    else
        jdoc_bad(r->j, r->err, "key %.64s at byte %u is %s%.*s, expected %s", name, v->at, is, len, s.data,
                 expected);
    return false;
}

bool hf_take_number(const struct hf_reader *r, const char *key, struct hf_found f, double *v) {
    double d = f.v ? jdoc_number(f.j, f.v) : 0;
    if ((f.v && !isfinite(d)) || (f.null && !hf_key_may_be_null(key)))
        return hf_refuse_value(r, key, f, "a finite number");
    if (f.v)
        *v = d;
    return true;
}

bool hf_read_number(const struct hf_reader *r, const char *key, double *v) {
    return hf_take_number(r, key, hf_find_key(r, key), v);
}

bool hf_read_size(const struct hf_reader *r, const char *key, bool required, int64_t *v) {
    struct hf_found f = hf_find_key(r, key);
    if (f.null && !hf_key_may_be_null(key))
        return hf_refuse_value(r, key, f, "an integer");
    if (!f.v && required) {
        jdoc_bad(r->j, r->err, "key %s is missing", key);
        return false;
    }
    const struct jdoc_value *list = f.v && f.v->type == JDOC_ARRAY ? f.v : NULL;
    int64_t other;
    f.v = list && list->len ? jdoc_first(f.j, list) : f.v;
    if (list && list->len && jdoc_integer(f.j, f.v, v))
        JDOC_EACH(f.j, e, list)
    if (!jdoc_integer(f.j, e, &other) || other != *v)
        return hf_refuse_value(r, key, (struct hf_found){.j = f.j, .v = e},
                               "the same integer for all layers");
    if (f.v && (!jdoc_integer(f.j, f.v, v) || *v < 0 || *v > INT32_MAX))
        return hf_refuse_value(r, key, f, "an integer from 0 to 2^31");
    return true;
}

bool hf_read_flag(const struct hf_reader *r, const char *key, bool *v) {
    struct hf_found f = hf_find_key(r, key);
    if (f.v && f.v->type != JDOC_TRUE && f.v->type != JDOC_FALSE)
        return hf_refuse_value(r, key, f, "true or false");
    if (f.v || f.null)
        *v = f.v && f.v->type == JDOC_TRUE;
    return true;
}

const char *hf_our_key(const struct hf_reader *r, const char *suffix) {
    return hf_text(r->keys, "%s.%s", r->c->arch, suffix);
}

void hf_add_float(const struct hf_reader *r, const char *suffix, double v, const char *label) {
    hf_float(r->keys, hf_our_key(r, suffix), v, label);
}

void hf_add_int(const struct hf_reader *r, const char *suffix, int64_t v, const char *label) {
    hf_int(r->keys, hf_our_key(r, suffix), v, label);
}

// Whether a value says that what its key is about is off, or changes nothing.
bool hf_is_neutral(const struct jdoc *j, const struct jdoc_value *v) {
    double d = jdoc_number(j, v);
    return v->type == JDOC_NULL || v->type == JDOC_FALSE || d == 0 || d == 1 ||
           (v->type >= JDOC_STRING && v->len == 0);
}
