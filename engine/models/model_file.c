// See model_file.h.
#include "model_file.h"

#include "hash.h"
#include "log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define KEY(s) (int)((s).len < 96 ? (s).len : 96), (s).data // for %.*s

struct kept {
    struct kept *next;
    const struct model_tensor *tensor;
    void *data;
};

struct model_file_index { // hash tables of 1 + index, 0: free; sizes are powers of two, at most half full
    uint64_t seed;
    uint32_t *meta, *tensors;
    uint64_t meta_mask, tensor_mask;
};

enum status model_file_bad(const struct model_file *f, struct err *err, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    enum status status = err_set_named(err, STATUS_FORMAT, f->name, fmt, ap);
    va_end(ap);
    return status;
}

const char *model_file_pread(int fd, uint64_t at, uint64_t bytes, void *dst, uint64_t *stopped) {
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char *)dst + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        *stopped = at + done;
        if (n <= 0)
            return n < 0 ? strerror(errno) : "the file was cut while it was being loaded";
        done += (uint64_t)n;
    }
    return NULL;
}

// ---- lists and names

enum status model_file_init(struct model_file *f, const char *path, struct err *err) {
    size_t len = strlen(path);
    bool cut = len >= sizeof f->name;
    *f = (struct model_file){.index = calloc(1, sizeof *f->index), .kept = calloc(1, sizeof(struct kept *))};
    snprintf(f->name, sizeof f->name, "%s%s", cut ? "..." : "",
             cut ? path + len - (sizeof f->name - 4) : path);
    if (!f->index || !f->kept)
        return err_set(err, STATUS_NOMEM, "out of memory for a file's header");
    f->index->seed = hash_seed();
    return STATUS_OK;
}

static void free_lists(struct model_file *f) {
    free(f->meta);
    free(f->tensors);
    f->meta = NULL;
    f->tensors = NULL;
    f->num_meta = f->num_tensors = 0;
    if (!f->index)
        return;
    free(f->index->meta);
    free(f->index->tensors);
    f->index->meta = f->index->tensors = NULL;
}

static uint32_t *index_new(uint64_t n, uint64_t *mask) {
    uint64_t size = 2;
    while (size < 2 * n)
        size *= 2;
    *mask = size - 1;
    return calloc(size, sizeof(uint32_t));
}

enum status model_file_room(struct model_file *f, uint64_t num_meta, uint64_t num_tensors, struct err *err) {
    struct model_file_index *x = f->index;
    free_lists(f);
    f->meta = calloc(num_meta + 1, sizeof *f->meta);
    f->tensors = calloc(num_tensors + 1, sizeof *f->tensors);
    x->meta = index_new(num_meta, &x->meta_mask);
    x->tensors = index_new(num_tensors, &x->tensor_mask);
    if (!f->meta || !f->tensors || !x->meta || !x->tensors)
        return err_set(err, STATUS_NOMEM, "%s: out of memory for the header", f->name);
    f->num_meta = num_meta;
    f->num_tensors = num_tensors;
    return STATUS_OK;
}

static struct text_view name_of(const struct model_file *f, bool tensor, uint64_t i) {
    return tensor ? f->tensors[i].name : f->meta[i].key;
}

// The slot of the name: it holds 1 + index, or 0 where nothing is called so.
static uint32_t *find_slot(const struct model_file *f, bool tensor, const char *name, size_t len) {
    const struct model_file_index *x = f->index;
    uint32_t *table = tensor ? x->tensors : x->meta;
    uint64_t mask = tensor ? x->tensor_mask : x->meta_mask;
    uint64_t s = hash_bytes(x->seed, name, len) & mask;
    for (; table[s]; s = (s + 1) & mask) {
        struct text_view other = name_of(f, tensor, table[s] - 1);
        if (other.len == len && memcmp(other.data, name, len) == 0)
            break;
    }
    return &table[s];
}

static bool add_name(struct model_file *f, bool tensor, uint64_t i) {
    struct text_view name = name_of(f, tensor, i);
    uint32_t *slot = find_slot(f, tensor, name.data, name.len);
    if (*slot)
        return false;
    *slot = (uint32_t)i + 1;
    return true;
}

bool model_file_add_meta(struct model_file *f, uint64_t i) { return add_name(f, false, i); }
bool model_file_add_tensor(struct model_file *f, uint64_t i) { return add_name(f, true, i); }

const struct meta *meta_find(const struct model_file *f, const char *key) {
    uint32_t i = *find_slot(f, false, key, strlen(key));
    return i ? &f->meta[i - 1] : NULL;
}

const struct model_tensor *model_file_find(const struct model_file *f, const char *name) {
    uint32_t i = *find_slot(f, true, name, strlen(name));
    return i ? &f->tensors[i - 1] : NULL;
}

void model_file_close(struct model_file *f) {
    if (!f)
        return;
    for (struct kept *k = f->kept ? *f->kept : NULL, *next; k; k = next) {
        next = k->next;
        free(k->data);
        free(k);
    }
    free(f->kept);
    free_lists(f);
    free(f->index);
    f->ops->close(f);
}

// ---- tensors

const char *model_file_label(const struct model_file *f, const char *name, char buf[MODEL_LABEL_BYTES]) {
    return f->ops->label && f->ops->label(f, name, buf, MODEL_LABEL_BYTES) ? buf : name;
}

enum status model_file_read(const struct model_file *f, const struct model_tensor *t, uint64_t at,
                            uint64_t bytes, void *dst, struct err *err) {
    uint64_t stopped;
    char place[MODEL_PLACE_BYTES];
    CHECK(at <= t->bytes && bytes <= t->bytes - at);
    const char *why = f->ops->read(f, t->offset + at, bytes, dst, &stopped);
    if (!why)
        return STATUS_OK;
    return err_set(err, STATUS_IO, "%s: cannot read tensor %.*s at %s: %s", f->name,
                   KEY(model_tensor_label(t)), model_file_place(f, stopped, place), why);
}

const char *model_file_place(const struct model_file *f, uint64_t at, char buf[MODEL_PLACE_BYTES]) {
    const char *file = f->ops->place ? f->ops->place(f, &at) : NULL;
    snprintf(buf, MODEL_PLACE_BYTES, "byte %" PRIu64 "%s%.256s", at, file ? " of " : "", file ? file : "");
    return buf;
}

const void *model_file_keep(const struct model_file *f, const struct model_tensor *t, struct err *err) {
    for (struct kept *k = *f->kept; k; k = k->next)
        if (k->tensor == t)
            return k->data;
    struct kept *k = calloc(1, sizeof *k);
    void *data = t->bytes <= SIZE_MAX - 64 ? aligned_alloc(64, (t->bytes + 63) / 64 * 64) : NULL;
    if (!k || !data) {
        err_set(err, STATUS_NOMEM, "%s: out of memory for tensor %.*s", f->name, KEY(t->name));
        goto fail;
    }
    if (model_file_read(f, t, 0, t->bytes, data, err))
        goto fail;
    *k = (struct kept){.next = *f->kept, .tensor = t, .data = data};
    *f->kept = k;
    return data;
fail:
    free(k);
    free(data);
    return NULL;
}

// ---- keys

static const unsigned char value_bytes[META_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

size_t meta_type_bytes(enum meta_type t) { return (unsigned)t < META_TYPE_COUNT ? value_bytes[t] : 0; }

const char *meta_type_name(enum meta_type t) {
    static const char *const names[META_TYPE_COUNT] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                       "bool", "string", "array", "u64", "i64", "f64"};
    return (unsigned)t < META_TYPE_COUNT ? names[t] : "?";
}

// An integer of any width; false: another type. Above INT64_MAX: -1 and *big.
static bool decode_int(enum meta_type type, const unsigned char *p, int64_t *v, bool *big) {
    uint64_t u = 0;
    if (type == META_F32 || type == META_F64 || type == META_BOOL || type >= META_TYPE_COUNT ||
        !value_bytes[type])
        return false;
    memcpy(&u, p, value_bytes[type]); // little-endian host
    *big = type == META_U64 && u > INT64_MAX;
    int unused = 64 - 8 * value_bytes[type];
    bool is_signed = type == META_I8 || type == META_I16 || type == META_I32 || type == META_I64;
    *v = *big ? -1 : is_signed ? (int64_t)(u << unused) >> unused : (int64_t)u;
    return true;
}

static enum status missing(const struct model_file *f, const char *key, struct err *err) {
    return model_file_bad(f, err, "key %s is missing", key);
}

static enum status wrong_type(const struct model_file *f, const struct meta *m, const char *expected,
                              struct err *err) {
    bool array = m->type == META_ARRAY;
    return model_file_bad(f, err, "key %.*s at byte %" PRIu64 " is of type %s%s, expected %s", KEY(m->key),
                          m->offset, array ? "array of " : "", meta_type_name(array ? m->elem : m->type),
                          expected);
}

enum status meta_int(const struct model_file *f, const char *key, bool required, int64_t min, int64_t max,
                     int64_t *value, struct err *err) {
    const struct meta *m = meta_find(f, key);
    int64_t v;
    bool big;
    if (!m)
        return required ? missing(f, key, err) : STATUS_OK;
    if (!decode_int(m->type, m->value, &v, &big))
        return wrong_type(f, m, "an integer", err);
    if (big || v < min || v > max)
        return model_file_bad(f, err,
                              "key %s is %" PRId64 "%s at byte %" PRIu64 ", expected %" PRId64 " to %" PRId64,
                              key, v, big ? " (as a signed number)" : "", m->offset, min, max);
    *value = v;
    return STATUS_OK;
}

enum status meta_float(const struct model_file *f, const char *key, bool required, double *value,
                       struct err *err) {
    const struct meta *m = meta_find(f, key);
    if (!m)
        return required ? missing(f, key, err) : STATUS_OK;
    float single = 0;
    double v = 0;
    if (m->type == META_F32) {
        memcpy(&single, m->value, sizeof single);
        v = (double)single;
    } else if (m->type == META_F64) {
        memcpy(&v, m->value, sizeof v);
    } else {
        return wrong_type(f, m, "a float", err);
    }
    if (!isfinite(v))
        return model_file_bad(f, err, "key %s is %g at byte %" PRIu64 ", expected a finite number", key, v,
                              m->offset);
    *value = v;
    return STATUS_OK;
}

enum status meta_bool(const struct model_file *f, const char *key, bool *value, struct err *err) {
    const struct meta *m = meta_find(f, key);
    if (m && m->type != META_BOOL)
        return wrong_type(f, m, "a bool", err);
    if (m)
        *value = m->value[0] != 0;
    return STATUS_OK;
}

static struct text_view decode_str(const unsigned char *p) {
    uint64_t len;
    memcpy(&len, p, 8);
    return (struct text_view){(const char *)p + 8, (size_t)len};
}

enum status meta_str(const struct model_file *f, const char *key, bool required, size_t max_len,
                     struct text_view *value, struct err *err) {
    const struct meta *m = meta_find(f, key);
    if (!m)
        return required ? missing(f, key, err) : STATUS_OK;
    if (m->type != META_STRING)
        return wrong_type(f, m, "a string", err);
    struct text_view s = decode_str(m->value);
    if (s.len > max_len)
        return model_file_bad(f, err, "key %s is a string of %zu bytes, expected at most %zu", key, s.len,
                              max_len);
    *value = s;
    return STATUS_OK;
}

enum status meta_array(const struct model_file *f, const char *key, bool required, enum meta_type elem,
                       struct meta_array *array, struct err *err) {
    const struct meta *m = meta_find(f, key);
    *array = (struct meta_array){.elem = elem};
    if (!m)
        return required ? missing(f, key, err) : STATUS_OK;
    bool integer =
        m->elem != META_F32 && m->elem != META_F64 && m->elem != META_BOOL && m->elem != META_STRING;
    if (m->type != META_ARRAY || (elem == META_I32 ? !integer : m->elem != elem)) {
        char expected[32];
        snprintf(expected, sizeof expected, "array of %s",
                 elem == META_I32 ? "integers" : meta_type_name(elem));
        return wrong_type(f, m, expected, err);
    }
    *array = (struct meta_array){.elem = m->elem, .count = m->count, .next = m->value};
    return STATUS_OK;
}

struct text_view meta_next_str(struct meta_array *a) {
    struct text_view s = decode_str(a->next);
    a->next = (const unsigned char *)s.data + s.len;
    return s;
}

int64_t meta_array_int(const struct meta_array *a, uint64_t i) {
    int64_t v = 0;
    bool big;
    if (a->elem == META_BOOL)
        return a->next[i] != 0;
    return decode_int(a->elem, a->next + i * value_bytes[a->elem], &v, &big) ? v : 0;
}

float meta_array_float(const struct meta_array *a, uint64_t i) {
    float f;
    memcpy(&f, a->next + i * sizeof f, sizeof f);
    return f;
}

size_t meta_value_bytes(const struct meta *m) {
    enum meta_type leaf = m->type == META_ARRAY ? m->elem : m->type;
    if (leaf != META_STRING)
        return (size_t)m->count * value_bytes[leaf];
    struct meta_array a = {.elem = leaf, .count = m->count, .next = m->value};
    for (uint64_t i = 0; i < m->count; i++)
        meta_next_str(&a);
    return (size_t)(a.next - m->value);
}

const char *meta_text(const struct meta *m, char *buf, size_t size) {
    int64_t v;
    bool big;
    if (m->type == META_ARRAY) {
        snprintf(buf, size, "[%s; %" PRIu64 "]", meta_type_name(m->elem), m->count);
    } else if (m->type == META_STRING) {
        struct text_view s = decode_str(m->value);
        size_t shown = s.len < size ? s.len : size - 1;
        snprintf(buf, size, "%.*s", (int)shown, s.data);
    } else if (m->type == META_F32) {
        float f;
        memcpy(&f, m->value, sizeof f);
        snprintf(buf, size, "%g", (double)f);
    } else if (m->type == META_F64) {
        double d;
        memcpy(&d, m->value, sizeof d);
        snprintf(buf, size, "%g", d);
    } else if (m->type == META_BOOL) {
        snprintf(buf, size, "%s", m->value[0] ? "true" : "false");
    } else if (decode_int(m->type, m->value, &v, &big)) {
        snprintf(buf, size, "%" PRId64, v);
    }
    return buf;
}
