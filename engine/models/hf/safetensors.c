// See safetensors.h.
#include "safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} types[ST_TYPE_COUNT] = {
    [ST_BOOL] = {"BOOL", 1},       [ST_U8] = {"U8", 1},           [ST_I8] = {"I8", 1},
    [ST_F8_E4M3] = {"F8_E4M3", 1}, [ST_F8_E5M2] = {"F8_E5M2", 1}, [ST_F8_E8M0] = {"F8_E8M0", 1},
    [ST_I16] = {"I16", 2},         [ST_U16] = {"U16", 2},         [ST_F16] = {"F16", 2},
    [ST_BF16] = {"BF16", 2},       [ST_I32] = {"I32", 4},         [ST_U32] = {"U32", 4},
    [ST_F32] = {"F32", 4},         [ST_I64] = {"I64", 8},         [ST_U64] = {"U64", 8},
    [ST_F64] = {"F64", 8},
};

const char *st_type_name(enum st_type t) { return types[t].name; }
size_t st_type_bytes(enum st_type t) { return types[t].bytes; }

#define NAME(s) (int)((s).len < 96 ? (s).len : 96), (s).data // for %.*s

static bool read_type(const struct st_header *h, const struct jdoc_value *v, struct st_tensor *t,
                      struct err *err) {
    for (int i = 0; i < ST_TYPE_COUNT; i++)
        if (jdoc_is(&h->json, v, types[i].name)) {
            t->type = (enum st_type)i;
            return true;
        }
    bool text = v && v->type == JDOC_STRING;
    jdoc_bad(&h->json, err, "tensor %.*s has dtype %.*s, which is not known", NAME(t->name),
             text ? (int)(v->len < 32 ? v->len : 32) : 1, text ? h->json.text + v->at : "?");
    return false;
}

// Elements times their bytes; false: too many, or no shape.
static bool read_shape(const struct jdoc *j, const struct jdoc_value *v, struct st_tensor *t,
                       uint64_t *bytes) {
    *bytes = st_type_bytes(t->type);
    if (!v || v->type != JDOC_ARRAY || v->len > ST_MAX_DIMS)
        return false;
    JDOC_EACH(j, e, v) {
        int64_t n;
        if (!jdoc_integer(j, e, &n) || n < 0 || __builtin_mul_overflow(*bytes, (uint64_t)n, bytes))
            return false;
        t->shape[t->ndim++] = n;
    }
    return true;
}

static bool read_offsets(const struct jdoc *j, const struct jdoc_value *v, int64_t offsets[2]) {
    int n = 0;
    JDOC_EACH(j, e, v)
    if (n == 2 || !jdoc_integer(j, e, &offsets[n++]))
        return false;
    return n == 2 && offsets[0] >= 0 && offsets[1] >= offsets[0];
}

static bool read_tensor(struct st_header *h, const struct jdoc_value *key, uint64_t start, uint64_t size,
                        struct err *err) {
    const struct jdoc *j = &h->json;
    struct st_tensor *t = &h->tensors[h->num];
    uint64_t bytes = 0;
    int64_t offsets[2] = {0, 0};
    *t = (struct st_tensor){.name = jdoc_text(j, key)};
    if (t->name.len == 0 || memchr(t->name.data, 0, t->name.len)) {
        jdoc_bad(j, err, "the tensor's name at byte %u is empty or holds a NUL", key->at);
        return false;
    }
    if (!read_type(h, jdoc_get(j, key + 1, "dtype"), t, err))
        return false;
    if (!read_shape(j, jdoc_get(j, key + 1, "shape"), t, &bytes)) {
        jdoc_bad(j, err, "tensor %.*s at byte %u: expected a shape of at most %d sizes, at most 2^63 bytes",
                 NAME(t->name), key->at, ST_MAX_DIMS);
        return false;
    }
    if (!read_offsets(j, jdoc_get(j, key + 1, "data_offsets"), offsets)) {
        jdoc_bad(j, err,
                 "tensor %.*s at byte %u: expected data_offsets of two integers, the first not larger",
                 NAME(t->name), key->at);
        return false;
    }
    t->bytes = (uint64_t)(offsets[1] - offsets[0]);
    t->at = start + (uint64_t)offsets[0]; // below 2^53: no overflow
    if (t->bytes != bytes) {
        jdoc_bad(j, err, "tensor %.*s has %" PRIu64 " bytes, expected %" PRIu64 " of its shape and type %s",
                 NAME(t->name), t->bytes, bytes, st_type_name(t->type));
        return false;
    }
    if (t->at > size || t->bytes > size - t->at) {
        jdoc_bad(j, err,
                 "tensor %.*s has %" PRIu64 " bytes at %" PRIu64 ", but the file ends at %" PRIu64
                 ": is it cut short?",
                 NAME(t->name), t->bytes, t->at, size);
        return false;
    }
    h->num++;
    return true;
}

static int compare_places(const void *a, const void *b) {
    const struct st_tensor *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); // empty ones first
}

enum status st_parse(struct st_header *h, const char *name, char *text, size_t len, uint64_t size,
                     struct err *err) {
    struct err local = {0};
    err = err ? err : &local;
    *h = (struct st_header){.num = 0};
    enum status st = jdoc_parse(&h->json, name, text, len, err);
    if (st)
        return st;
    const struct jdoc *j = &h->json;
    const struct jdoc_value *root = j->values;
    uint64_t start = 8 + (uint64_t)len, end = start;
    if (root->type != JDOC_OBJECT)
        return jdoc_bad(j, err, "the header is %s, expected an object", jdoc_type_name(root));
    if (!(h->tensors = calloc((size_t)root->len + 1, sizeof *h->tensors)))
        return err_set(err, STATUS_NOMEM, "%s: out of memory for %u tensors", name, root->len);
    JDOC_EACH_KEY(j, key, root)
    if (!jdoc_is(j, key, "__metadata__") && !read_tensor(h, key, start, size, err))
        return err->code;
    qsort(h->tensors, h->num, sizeof *h->tensors, compare_places);
    for (size_t i = 0; i < h->num; i++) {
        const struct st_tensor *t = &h->tensors[i];
        if (t->at != end)
            return jdoc_bad(j, err, "tensor %.*s begins at byte %" PRIu64 ", expected %" PRIu64 ", %s",
                            NAME(t->name), t->at, end,
                            t->at < end ? "where the one before it ends" : "so that there is no hole");
        end += t->bytes;
    }
    if (end != size)
        return jdoc_bad(j, err,
                        "the last tensor ends at byte %" PRIu64 ", expected %" PRIu64 ", the file's end", end,
                        size);
    return STATUS_OK;
}

void st_free(struct st_header *h) {
    free(h->tensors);
    jdoc_free(&h->json);
    *h = (struct st_header){.num = 0};
}
