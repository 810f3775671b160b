// Bodies of JSON: loaded within bounds, their fields checked by tables. Pure; any thread.
#pragma once

#include "api_error.h"
#include "completion_request.h"
#include "formats/json_strings.h"

#include <jansson.h>
#include <stddef.h>

enum { MAX_JSON_DEPTH = 64, MAX_JSON_VALUES = 2000000 };

enum field_type { F_INT, F_INT64, F_FLOAT, F_BOOL };

struct field {
    const char *name;
    enum field_type type;
    double min, max;
    bool above_min; // min itself is out of range
    size_t at;
};

// A JSON text is at most `max` deep and has at most MAX_JSON_VALUES values (strings heeded; the text need not
// be valid). The parser recurses, and makes some 80 bytes of a value of two.
bool json_depth_ok(const char *text, size_t len, int max);
// The object that a body is; the caller gives it back to json_decref(). NULL: e says why.
json_t *body_load(const char *body, size_t len, struct api_error *e);
const json_t *field_get(const json_t *root, const char *name);  // null is absent: NULL
bool field_whole(const json_t *v, double *out, int64_t *exact); // 10 and 10.0
// Reads those of the n fields that are there into the struct at base.
bool fields_read(void *base, const struct field *fields, int n, const json_t *root, struct api_error *e);
// Whether a part, message or tool anywhere in the body has a cache_control whose ttl is an hour.
bool fields_wish_retention(const json_t *root);
// Which of the model's names is asked for, or which adapter's: the first one where none is. An adapter is held in *lora,
// which owns its name, unless lora is NULL: then the name is root's. NULL: e says why.
const char *field_model(const struct served_model *m, const json_t *root, struct lora **lora,
                        struct api_error *e);
