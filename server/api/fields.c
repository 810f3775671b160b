#include "fields.h"

#include "loras.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

bool json_depth_ok(const char *text, size_t len, int max) {
    int depth = 0, values = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > max)
                return false;
            values++;
        } else if (c == ']' || c == '}') {
            depth--;
        } else if (c == ',') {
            values++;
        }
        if (values > MAX_JSON_VALUES)
            return false;
    }
    return true;
}

// JSON allows integers that 64 bits with a sign do not hold: names the member that has one.
static void fail_overflow(const char *body, size_t len, struct api_error *e) {
    json_t *root = json_loadb(body, len, JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, NULL), *v;
    const char *key;
    json_object_foreach(root, key, v) {
        if (json_is_real(v) && fabs(json_real_value(v)) >= 0x1p63) {
            api_fail(e, 400, "out_of_range", key, "'%.64s' must be an integer of 64 bits, -2^63 to 2^63 - 1.",
                     key);
            break;
        }
    }
    json_decref(root);
}

json_t *body_load(const char *body, size_t len, struct api_error *e) {
    if (len == 0)
        return api_fail(e, 400, NULL, NULL, "The body is empty; a JSON object is needed."), NULL;
    if (!json_depth_ok(body, len, MAX_JSON_DEPTH))
        return api_fail(e, 400, NULL, NULL,
                        "The body is nested deeper than %d levels, or has over %d values.", MAX_JSON_DEPTH,
                        MAX_JSON_VALUES),
               NULL;
    json_error_t je;
    json_t *root = json_loadb(body, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &je);
    if (!root && json_error_code(&je) == json_error_numeric_overflow)
        fail_overflow(body, len, e); // the first error stands
    if (!root && json_error_code(&je) == json_error_out_of_memory) {
        api_fail_memory(e);
    } else if (!root) {
        char *near = strstr(je.text, " near "); // the rest quotes the body
        if (near)
            *near = '\0';
        api_fail(e, 400, NULL, NULL, "The body is not valid JSON: line %d column %d: %.120s.", je.line,
                 je.column, je.text);
    } else if (!json_is_object(root)) {
        api_fail(e, 400, "invalid_type", NULL, "The body must be a JSON object.");
        json_decref(root);
        root = NULL;
    }
    return root;
}

const json_t *field_get(const json_t *root, const char *name) {
    const json_t *v = json_object_get(root, name);
    return json_is_null(v) ? NULL : v;
}

bool field_whole(const json_t *v, double *out, int64_t *exact) {
    if (json_is_integer(v)) {
        *exact = json_integer_value(v);
        *out = (double)*exact;
        return true;
    }
    if (json_is_real(v)) { // 10.0 is an integer, too
        double d = json_real_value(v);
        if (!isfinite(d) || d != floor(d) || d < -9.2e18 || d > 9.2e18)
            return false;
        *exact = (int64_t)d;
        *out = d;
        return true;
    }
    return false;
}

static bool read_field(void *base, const struct field *f, const json_t *v, struct api_error *e) {
    void *at = (char *)base + f->at;
    double d = 0;
    int64_t n = 0;
    if (f->type == F_BOOL) {
        if (!json_is_boolean(v))
            return api_fail(e, 400, "invalid_type", f->name, "'%s' must be true or false.", f->name);
        *(bool *)at = json_is_true(v);
        return true;
    }
    if (f->type == F_FLOAT) {
        if (!json_is_number(v))
            return api_fail(e, 400, "invalid_type", f->name, "'%s' must be a number.", f->name);
        d = json_number_value(v);
    } else if (!field_whole(v, &d, &n)) {
        return api_fail(e, 400, "invalid_type", f->name, "'%s' must be an integer.", f->name);
    }
    if (!isfinite(d) || d < f->min || d > f->max || (f->above_min && (float)d <= (float)f->min)) {
        return api_fail(e, 400, "out_of_range", f->name, "'%s' must be %s %.10g and at most %.10g.", f->name,
                        f->above_min ? "above" : "at least", f->min, f->max);
    }
    if (f->type == F_FLOAT)
        *(float *)at = (float)d;
    else if (f->type == F_INT64)
        *(int64_t *)at = n;
    else
        *(int *)at = (int)n;
    return true;
}

bool fields_read(void *base, const struct field *fields, int n, const json_t *root, struct api_error *e) {
    for (int i = 0; i < n; i++) {
        const json_t *v = field_get(root, fields[i].name);
        if (v && !read_field(base, &fields[i], v, e))
            return false;
    }
    return true;
}

const char *field_model(const struct served_model *m, const json_t *root, struct lora **lora,
                        struct api_error *e) {
    const json_t *v = field_get(root, "model");
    if (!v)
        return m->names[0];
    const char *name = json_name(v);
    if (!name) {
        api_fail(e, 400, "invalid_type", "model", "'model' must be a string, without NUL.");
        return NULL;
    }
    for (size_t i = 0; i < m->num_names; i++)
        if (strcmp(m->names[i], name) == 0)
            return m->names[i];
    struct lora *found = m->loras ? loras_find(m->loras, name, strlen(name)) : NULL;
    if (found && lora)
        return (*lora = found)->name;
    lora_release(found);
    if (found)
        return name;
    api_fail(e, 404, "model_not_found", "model", "The model '%.200s' does not exist.", name);
    return NULL;
}

bool fields_wish_retention(const json_t *v) {
    const char *ttl = json_string_value(json_object_get(json_object_get(v, "cache_control"), "ttl")), *name;
    json_t *object = (json_t *)(uintptr_t)v, *inner;
    bool found = ttl && strcmp(ttl, "1h") == 0;
    size_t i;
    // Within what clients mark: their other objects are schemas, arguments and the like.
    json_object_foreach(object, name, inner) if (!found && json_is_array(inner)) found =
        fields_wish_retention(inner);
    json_array_foreach(v, i, inner) if (!found) found = fields_wish_retention(inner);
    return found;
}
