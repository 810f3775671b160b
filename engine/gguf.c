// See gguf.h. The numbers in brackets are those of the check list in README.md. Over 600 lines because the
// one pass that checks a file and the getters that rely on those checks are best read together.
#include "gguf.h"

#include "hash.h"
#include "log.h"
#include "utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MIN_KV_BYTES = 8 + 1 + 4 + 1, MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, FIRST_READ = 1 << 20 };
#define MAX_NE ((uint64_t)1 << 40)
#define KEY(s) (int)((s).len < 96 ? (s).len : 96), (s).data // for %.*s

struct kept {
    struct kept *next;
    const struct gguf_info *info;
    void *data;
};

struct gguf {
    char name[104];
    const unsigned char *data; // `avail` bytes of the file from its start
    unsigned char *owned;      // the same, where we read them
    uint64_t avail, size;
    int fd; // -1: all is in memory
    uint32_t version;
    uint64_t alignment, data_offset, trailing;
    uint64_t num_kv, num_tensors;
    struct gguf_kv *kv;
    struct gguf_info *tensors;
    uint64_t seed;
    uint32_t *kv_index, *tensor_index; // hash tables of 1 + index, 0: free; sizes are powers of two
    uint64_t kv_mask, tensor_mask;
    struct kept **kept;
};

// The types of ggml, by number. A size of 0: never used, or removed from the format.
static const struct {
    const char *name;
    uint16_t block, bytes;
    uint8_t dtype;
} types[] = {
#define NO DTYPE_COUNT
    [0] = {"F32", 1, 4, DTYPE_F32},
    [1] = {"F16", 1, 2, DTYPE_F16},
    [2] = {"Q4_0", 32, 18, DTYPE_Q4_0},
    [3] = {"Q4_1", 32, 20, DTYPE_Q4_1},
    [6] = {"Q5_0", 32, 22, DTYPE_Q5_0},
    [7] = {"Q5_1", 32, 24, DTYPE_Q5_1},
    [8] = {"Q8_0", 32, 34, DTYPE_Q8_0},
    [9] = {"Q8_1", 32, 36, NO},
    [10] = {"Q2_K", 256, 84, DTYPE_Q2_K},
    [11] = {"Q3_K", 256, 110, DTYPE_Q3_K},
    [12] = {"Q4_K", 256, 144, DTYPE_Q4_K},
    [13] = {"Q5_K", 256, 176, DTYPE_Q5_K},
    [14] = {"Q6_K", 256, 210, DTYPE_Q6_K},
    [15] = {"Q8_K", 256, 292, NO},
    [16] = {"IQ2_XXS", 256, 66, NO},
    [17] = {"IQ2_XS", 256, 74, NO},
    [18] = {"IQ3_XXS", 256, 98, NO},
    [19] = {"IQ1_S", 256, 50, NO},
    [20] = {"IQ4_NL", 32, 18, DTYPE_IQ4_NL},
    [21] = {"IQ3_S", 256, 110, NO},
    [22] = {"IQ2_S", 256, 82, NO},
    [23] = {"IQ4_XS", 256, 136, DTYPE_IQ4_XS},
    [24] = {"I8", 1, 1, NO},
    [25] = {"I16", 1, 2, NO},
    [26] = {"I32", 1, 4, DTYPE_I32},
    [27] = {"I64", 1, 8, NO},
    [28] = {"F64", 1, 8, NO},
    [29] = {"IQ1_M", 256, 56, NO},
    [30] = {"BF16", 1, 2, DTYPE_BF16},
    [34] = {"TQ1_0", 256, 54, NO},
    [35] = {"TQ2_0", 256, 66, NO},
    [39] = {"MXFP4", 32, 17, DTYPE_MXFP4},
#undef NO
};

static const unsigned char value_bytes[GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

const char *gguf_type_name(enum gguf_type t) {
    static const char *const names[GGUF_TYPE_COUNT] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                       "bool", "string", "array", "u64", "i64", "f64"};
    return (unsigned)t < GGUF_TYPE_COUNT ? names[t] : "?";
}

enum status gguf_bad(const struct gguf *g, struct err *err, const char *fmt, ...) {
    char text[sizeof err->msg];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(err, STATUS_FORMAT, "%s: %s", g->name, text);
}

// ---- reading, one pass

struct cursor {
    struct gguf *g;
    uint64_t pos;
    uint64_t need; // > 0: the header goes on beyond what we have read; read this many bytes and start again
    struct err *err;
};

static bool refuse(struct cursor *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(struct cursor *c, const char *fmt, ...) {
    char text[sizeof c->err->msg];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    gguf_bad(c->g, c->err, "%s", text);
    return false;
}

// n bytes at the cursor, or NULL: beyond the end of the file (err), or of what has been read (need).
static const unsigned char *take(struct cursor *c, uint64_t n, const char *what) {
    const struct gguf *g = c->g;
    if (n > g->size - c->pos) {
        gguf_bad(g, c->err,
                 "the file ends within %s at byte %" PRIu64 ": %" PRIu64 " bytes expected, %" PRIu64 " left",
                 what, c->pos, n, g->size - c->pos);
        return NULL;
    }
    if (n > g->avail - c->pos) {
        c->need = c->pos + n;
        return NULL;
    }
    const unsigned char *p = g->data + c->pos;
    c->pos += n;
    return p;
}

static bool take_u32(struct cursor *c, const char *what, uint32_t *v) {
    const unsigned char *p = take(c, 4, what);
    if (p)
        memcpy(v, p, 4);
    return p != NULL;
}

static bool take_u64(struct cursor *c, const char *what, uint64_t *v) {
    const unsigned char *p = take(c, 8, what);
    if (p)
        memcpy(v, p, 8);
    return p != NULL;
}

// (3) A length and that many bytes.
static bool take_str(struct cursor *c, const char *what, uint64_t max, struct gguf_str *s) {
    uint64_t len, at = c->pos;
    if (!take_u64(c, what, &len))
        return false;
    if (len > max || len > c->g->size - c->pos) {
        gguf_bad(c->g, c->err, "%s at byte %" PRIu64 " has length %" PRIu64 ", expected at most %" PRIu64,
                 what, at, len, len > max ? max : c->g->size - c->pos);
        return false;
    }
    const unsigned char *p = take(c, len, what);
    if (p)
        *s = (struct gguf_str){(const char *)p, (size_t)len};
    return p != NULL;
}

// Enters a name into an index; false: it is there already. The table is at most half full.
static bool index_add(const struct gguf *g, uint32_t *index, uint64_t mask, uint32_t id, struct gguf_str name,
                      bool tensor) {
    uint64_t slot = hash_bytes(g->seed, name.data, name.len) & mask;
    for (; index[slot]; slot = (slot + 1) & mask) {
        uint32_t other = index[slot] - 1;
        struct gguf_str o = tensor ? g->tensors[other].name : g->kv[other].key;
        if (o.len == name.len && memcmp(o.data, name.data, name.len) == 0)
            return false;
    }
    index[slot] = id + 1;
    return true;
}

static uint32_t *index_new(uint64_t n, uint64_t *mask) {
    uint64_t size = 2;
    while (size < 2 * n)
        size *= 2;
    *mask = size - 1;
    return calloc(size, sizeof(uint32_t));
}

// (4) The value of a key: its extent, no more. Arrays do not nest.
static bool take_value(struct cursor *c, struct gguf_kv *kv) {
    const struct gguf *g = c->g;
    uint32_t type, elem = 0;
    uint64_t at = c->pos, count = 1;
    if (!take_u32(c, "a value's type", &type))
        return false;
    if (type >= GGUF_TYPE_COUNT) {
        return refuse(c, "key %.*s has value type %" PRIu32 " at byte %" PRIu64 ", expected 0 to 12",
                      KEY(kv->key), type, at);
    }
    kv->type = (enum gguf_type)type;
    if (type == GGUF_ARRAY) {
        at = c->pos;
        if (!take_u32(c, "an array's type", &elem) || !take_u64(c, "an array's count", &count))
            return false;
        if (elem >= GGUF_TYPE_COUNT || elem == GGUF_ARRAY) {
            return refuse(
                c, "key %.*s is an array of type %" PRIu32 " at byte %" PRIu64 ", expected 0 to 12 but 9",
                KEY(kv->key), elem, at);
        }
        uint64_t least = elem == GGUF_STRING ? 8 : value_bytes[elem];
        uint64_t left = (g->size - c->pos) / least;
        if (count > GGUF_MAX_ARRAY || count > left) {
            return refuse(c,
                          "key %.*s is an array of %" PRIu64 " elements at byte %" PRIu64
                          ", expected at most %" PRIu64,
                          KEY(kv->key), count, at, left < GGUF_MAX_ARRAY ? left : (uint64_t)GGUF_MAX_ARRAY);
        }
    }
    kv->elem = (enum gguf_type)elem;
    kv->count = count;
    kv->offset = c->pos;
    kv->value = g->data + (c->pos < g->avail ? c->pos : g->avail);
    uint32_t leaf = type == GGUF_ARRAY ? elem : type;
    if (leaf != GGUF_STRING) {
        const unsigned char *p =
            take(c, count * value_bytes[leaf], "a value"); // count is bounded: no overflow
        if (!p)
            return false;
        if (leaf == GGUF_BOOL && type != GGUF_ARRAY && p[0] > 1) {
            return refuse(c, "key %.*s is a bool of value %d at byte %" PRIu64 ", expected 0 or 1",
                          KEY(kv->key), p[0], kv->offset);
        }
        return true;
    }
    struct gguf_str s;
    for (uint64_t i = 0; i < count; i++)
        if (!take_str(c, "a string value", GGUF_MAX_STRING, &s)) {
            if (c->err && c->err->code && !strstr(c->err->msg, "key ")) { // say whose string it was
                struct err inner = *c->err;
                c->err->code = STATUS_OK;
                err_set(c->err, STATUS_FORMAT, "%.280s (key %.*s)", inner.msg, KEY(kv->key));
            }
            return false;
        }
    return true;
}

static bool take_kvs(struct cursor *c) {
    struct gguf *g = c->g;
    for (uint64_t i = 0; i < g->num_kv; i++) {
        struct gguf_kv *kv = &g->kv[i];
        uint64_t at = c->pos;
        if (!take_str(c, "a key", GGUF_MAX_KEY, &kv->key))
            return false;
        if (kv->key.len == 0 || memchr(kv->key.data, 0, kv->key.len) ||
            !utf8_valid((const unsigned char *)kv->key.data, kv->key.len)) {
            return refuse(c, "key %" PRIu64 " at byte %" PRIu64 " is empty, holds a NUL or is not UTF-8", i,
                          at);
        }
        if (!take_value(c, kv))
            return false;
        if (!index_add(g, g->kv_index, g->kv_mask, (uint32_t)i, kv->key, false)) { // (5)
            return refuse(c, "key %.*s at byte %" PRIu64 " is there twice", KEY(kv->key), at);
        }
    }
    return true;
}

// (8) One tensor. `end` is the padded end of the tensors before it, from the start of the data.
static bool take_tensor(struct cursor *c, uint32_t i, uint64_t *end) {
    struct gguf *g = c->g;
    struct gguf_info *t = &g->tensors[i];
    uint64_t at = c->pos, ne[TENSOR_MAX_DIMS] = {0}, total = 1, rows = 1, bytes, offset;
    uint32_t ndim, type;
    if (!take_str(c, "a tensor's name", GGUF_MAX_NAME, &t->name))
        return false;
    int len = (int)t->name.len;
    const char *name = t->name.data;
    if (len == 0 || memchr(name, 0, t->name.len) || !utf8_valid((const unsigned char *)name, t->name.len))
        return refuse(
            c, "tensor %" PRIu32 " at byte %" PRIu64 ": the name is empty, holds a NUL or is not UTF-8", i,
            at);
    if (!index_add(g, g->tensor_index, g->tensor_mask, i, t->name, true))
        return refuse(c, "tensor %.*s at byte %" PRIu64 " is there twice", len, name, at);
    if (!take_u32(c, "a tensor's dimensions", &ndim))
        return false;
    if (ndim < 1 || ndim > TENSOR_MAX_DIMS)
        return refuse(c, "tensor %.*s at byte %" PRIu64 " has %" PRIu32 " dimensions, expected 1 to 4", len,
                      name, at, ndim);
    for (uint32_t d = 0; d < ndim; d++) {
        if (!take_u64(c, "a tensor's shape", &ne[d]))
            return false;
        if (ne[d] < 1 || ne[d] > MAX_NE)
            return refuse(c,
                          "tensor %.*s at byte %" PRIu64 " has size %" PRIu64 " in dimension %" PRIu32
                          ", expected 1 to 2^40",
                          len, name, at, ne[d], d);
        if (__builtin_mul_overflow(total, ne[d], &total) || total > INT64_MAX)
            return refuse(c, "tensor %.*s at byte %" PRIu64 " has more than 2^63 elements", len, name, at);
        if (d > 0)
            rows *= ne[d]; // a factor of total
    }
    if (!take_u32(c, "a tensor's type", &type) || !take_u64(c, "a tensor's offset", &offset))
        return false;
    if (type >= sizeof types / sizeof types[0] || !types[type].bytes)
        return refuse(c,
                      "tensor %.*s at byte %" PRIu64 " has type %" PRIu32 ", which no version of GGUF has or "
                      "which was removed",
                      len, name, at, type);
    if (ne[0] % types[type].block)
        return refuse(c,
                      "tensor %.*s at byte %" PRIu64 " has rows of %" PRIu64 " elements, expected a multiple "
                      "of %d (type %s)",
                      len, name, at, ne[0], types[type].block, types[type].name);
    if (__builtin_mul_overflow(ne[0] / types[type].block, (uint64_t)types[type].bytes, &bytes) ||
        __builtin_mul_overflow(bytes, rows, &bytes))
        return refuse(c, "tensor %.*s at byte %" PRIu64 " has more than 2^64 bytes", len, name, at);
    // One tensor follows the other: this also makes them aligned and keeps them apart.
    if (offset != *end)
        return refuse(
            c, "tensor %.*s has its data at offset %" PRIu64 ", expected %" PRIu64 " (alignment %" PRIu64 ")",
            len, name, offset, *end, g->alignment);
    uint64_t padded; // (9)
    if (__builtin_add_overflow(offset, bytes, &padded) || padded > INT64_MAX ||
        __builtin_add_overflow(padded, g->alignment - 1, &padded))
        return refuse(c, "tensor %.*s at byte %" PRIu64 " ends beyond 2^63", len, name, at);
    *end = padded & ~(g->alignment - 1);
    t->type_name = types[type].name;
    t->offset = offset; // from the data's start until take_tensors() knows it
    t->bytes = bytes;
    t->elements = total;
    t->view.dtype = (enum dtype)types[type].dtype;
    t->view.ndim = (int)ndim;
    for (uint32_t d = 0; d < ndim; d++)
        t->view.shape[d] = (int64_t)ne[ndim - 1 - d];
    return true;
}

static bool take_tensors(struct cursor *c) {
    struct gguf *g = c->g;
    uint64_t end = 0;
    for (uint32_t i = 0; i < g->num_tensors; i++)
        if (!take_tensor(c, i, &end))
            return false;
    if (g->num_tensors == 0)
        return true; // a vocabulary: it may end anywhere
    // (9) (10) The data starts at the next multiple of the alignment, and every tensor lies inside the file.
    g->data_offset =
        (c->pos + g->alignment - 1) & ~(g->alignment - 1); // pos <= file size, alignment <= 64 KiB
    for (uint64_t i = 0; i < g->num_tensors; i++) {
        struct gguf_info *t = &g->tensors[i];
        uint64_t stop;
        if (__builtin_add_overflow(t->offset, g->data_offset, &t->offset) ||
            __builtin_add_overflow(t->offset, t->bytes, &stop) || stop > g->size) {
            return refuse(c,
                          "tensor %.*s has %" PRIu64 " bytes at %" PRIu64 ", but the file ends at %" PRIu64
                          ": is it cut short?",
                          KEY(t->name), t->bytes, t->offset, g->size);
        }
        if (g->fd < 0)
            t->view.data = g->data + t->offset;
    }
    g->trailing = g->data_offset + end < g->size ? g->size - g->data_offset - end : 0;
    return true;
}

static bool take_header(struct cursor *c) {
    struct gguf *g = c->g;
    const unsigned char *magic;
    if (g->size < 24) // (1)
        return refuse(c, "%" PRIu64 " bytes are no GGUF file: at least 24 expected", g->size);
    if (!(magic = take(c, 4, "the magic")))
        return false;
    if (memcmp(magic, "GGUF", 4) != 0)
        return refuse(c, "no GGUF file: magic %02x %02x %02x %02x at byte 0, expected 47 47 55 46", magic[0],
                      magic[1], magic[2], magic[3]);
    if (!take_u32(c, "the version", &g->version))
        return false;
    if ((g->version & 0xffff) == 0)
        return refuse(c, "version %" PRIu32 " at byte 4 looks big-endian, expected a little-endian file",
                      g->version);
    if (g->version != 2 && g->version != 3)
        return refuse(c, "GGUF version %" PRIu32 " at byte 4 is not supported, expected 2 or 3", g->version);
    if (!take_u64(c, "the number of tensors", &g->num_tensors) ||
        !take_u64(c, "the number of keys", &g->num_kv))
        return false;
    uint64_t left = g->size - c->pos; // (2)
    if (g->num_tensors > GGUF_MAX_TENSORS || g->num_tensors > left / MIN_TENSOR_BYTES)
        return refuse(c, "%" PRIu64 " tensors at byte 8 do not fit: at most %" PRIu64 " expected",
                      g->num_tensors,
                      left / MIN_TENSOR_BYTES < GGUF_MAX_TENSORS ? left / MIN_TENSOR_BYTES
                                                                 : (uint64_t)GGUF_MAX_TENSORS);
    if (g->num_kv > GGUF_MAX_KV || g->num_kv > left / MIN_KV_BYTES)
        return refuse(c, "%" PRIu64 " keys at byte 16 do not fit: at most %" PRIu64 " expected", g->num_kv,
                      left / MIN_KV_BYTES < GGUF_MAX_KV ? left / MIN_KV_BYTES : (uint64_t)GGUF_MAX_KV);
    g->kv = calloc(g->num_kv + 1, sizeof *g->kv);
    g->tensors = calloc(g->num_tensors + 1, sizeof *g->tensors);
    g->kv_index = index_new(g->num_kv, &g->kv_mask);
    g->tensor_index = index_new(g->num_tensors, &g->tensor_mask);
    if (!g->kv || !g->tensors || !g->kv_index || !g->tensor_index)
        return err_set(c->err, STATUS_NOMEM, "%s: out of memory for the header", g->name), false;
    if (!take_kvs(c))
        return false;
    int64_t alignment = 32; // (7)
    if (gguf_get_int(g, "general.alignment", false, 8, 65536, &alignment, c->err))
        return false;
    if (alignment & (alignment - 1))
        return refuse(c, "key general.alignment is %" PRId64 ", expected a power of two", alignment);
    g->alignment = (uint64_t)alignment;
    return take_tensors(c);
}

static void forget(struct gguf *g) { // what a pass has allocated
    free(g->kv);
    free(g->tensors);
    free(g->kv_index);
    free(g->tensor_index);
    g->kv = NULL;
    g->tensors = NULL;
    g->kv_index = g->tensor_index = NULL;
    g->num_kv = g->num_tensors = 0;
}

static struct gguf *gguf_new(const char *name, struct err *err) {
    struct gguf *g = calloc(1, sizeof *g);
    struct kept **kept = calloc(1, sizeof(struct kept *));
    if (!g || !kept) {
        free(g);
        free(kept);
        err_set(err, STATUS_NOMEM, "out of memory for a file's header");
        return NULL;
    }
    size_t len = strlen(name);
    bool cut = len >= sizeof g->name;
    snprintf(g->name, sizeof g->name, "%s%s", cut ? "..." : "",
             cut ? name + len - (sizeof g->name - 4) : name);
    g->fd = -1;
    g->seed = hash_seed();
    g->kept = kept;
    return g;
}

struct gguf *gguf_parse(const void *data, size_t size, const char *name, struct err *err) {
    struct err local = {0};
    struct gguf *g = gguf_new(name, err);
    if (!g)
        return NULL;
    g->data = data;
    g->avail = g->size = size;
    struct cursor c = {.g = g, .err = err ? err : &local};
    if (take_header(&c))
        return g;
    gguf_close(g);
    return NULL;
}

// Extends what has been read of the file to `want` bytes.
static bool read_more(struct gguf *g, uint64_t want, struct err *err) {
    unsigned char *p = realloc(g->owned, want + 1);
    if (!p)
        return err_set(err, STATUS_NOMEM, "%s: out of memory for a header of %" PRIu64 " bytes", g->name,
                       want),
               false;
    g->data = g->owned = p;
    while (g->avail < want) {
        ssize_t n = pread(g->fd, p + g->avail, want - g->avail, (off_t)g->avail);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(err, STATUS_IO, "%s: cannot read at byte %" PRIu64 ": %s", g->name, g->avail,
                           n < 0 ? strerror(errno) : "the file has become shorter"),
                   false;
        g->avail += (uint64_t)n;
    }
    return true;
}

struct gguf *gguf_open(const char *path, struct err *err) {
    struct err local = {0};
    struct stat st;
    if (!err)
        err = &local;
    struct gguf *g = gguf_new(path, err);
    if (!g)
        return NULL;
    g->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // NONBLOCK: a FIFO must not hang us before fstat
    if (g->fd < 0 || fstat(g->fd, &st) != 0) {
        err_set(err, STATUS_IO, "cannot open %s: %s", g->name, strerror(errno));
        goto fail;
    }
    if (!S_ISREG(st.st_mode)) {
        err_set(err, STATUS_IO, "cannot open %s: not a regular file", g->name);
        goto fail;
    }
    g->size = (uint64_t)st.st_size;
    // How long the header is, only the header tells: read some, and twice as much while it goes on.
    for (uint64_t want = FIRST_READ;;) {
        if (!read_more(g, want < g->size ? want : g->size, err))
            goto fail;
        struct cursor c = {.g = g, .err = err};
        if (take_header(&c))
            break;
        if (c.need == 0)
            goto fail;
        if (c.need > GGUF_MAX_HEADER) {
            gguf_bad(g, err, "the header is longer than %d bytes", GGUF_MAX_HEADER);
            goto fail;
        }
        forget(g);
        want = c.need > 2 * g->avail ? c.need : 2 * g->avail;
    }
    posix_fadvise(g->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    if (g->trailing)
        log_msg(LOG_WARN, "msg=\"bytes after the last tensor\" file=\"%s\" bytes=%" PRIu64, g->name,
                g->trailing);
    return g;
fail:
    gguf_close(g);
    return NULL;
}

void gguf_close(struct gguf *g) {
    if (!g)
        return;
    for (struct kept *k = *g->kept, *next; k; k = next) {
        next = k->next;
        free(k->data);
        free(k);
    }
    free(g->kept);
    forget(g);
    free(g->owned);
    if (g->fd >= 0)
        close(g->fd);
    free(g);
}

enum status gguf_read(const struct gguf *g, const struct gguf_info *info, uint64_t at, uint64_t bytes,
                      void *dst, struct err *err) {
    CHECK(at <= info->bytes && bytes <= info->bytes - at);
    at += info->offset;
    if (g->fd < 0) {
        memcpy(dst, g->data + at, bytes);
        return STATUS_OK;
    }
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pread(g->fd, (char *)dst + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(err, STATUS_IO, "%s: cannot read tensor %.*s at byte %" PRIu64 ": %s", g->name,
                           KEY(info->name), at + done,
                           n < 0 ? strerror(errno) : "the file was cut while it was being loaded");
        done += (uint64_t)n;
    }
    return STATUS_OK;
}

const void *gguf_keep(const struct gguf *g, const struct gguf_info *info, struct err *err) {
    for (struct kept *k = *g->kept; k; k = k->next)
        if (k->info == info)
            return k->data;
    struct kept *k = calloc(1, sizeof *k);
    void *data = info->bytes <= SIZE_MAX - 64 ? aligned_alloc(64, (info->bytes + 63) / 64 * 64) : NULL;
    if (!k || !data) {
        err_set(err, STATUS_NOMEM, "%s: out of memory for tensor %.*s", g->name, KEY(info->name));
        goto fail;
    }
    if (gguf_read(g, info, 0, info->bytes, data, err))
        goto fail;
    *k = (struct kept){.next = *g->kept, .info = info, .data = data};
    *g->kept = k;
    return data;
fail:
    free(k);
    free(data);
    return NULL;
}

// ---- getters

size_t gguf_size(const struct gguf *g) { return (size_t)g->size; }
int gguf_fd(const struct gguf *g) { return g->fd; }
uint32_t gguf_version(const struct gguf *g) { return g->version; }
size_t gguf_trailing(const struct gguf *g) { return (size_t)g->trailing; }
const char *gguf_name(const struct gguf *g) { return g->name; }
size_t gguf_num_kv(const struct gguf *g) { return (size_t)g->num_kv; }
const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i) { return &g->kv[i]; }
size_t gguf_num_tensors(const struct gguf *g) { return (size_t)g->num_tensors; }
const struct gguf_info *gguf_info_at(const struct gguf *g, size_t i) { return &g->tensors[i]; }

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key) {
    size_t len = strlen(key);
    for (uint64_t s = hash_bytes(g->seed, key, len) & g->kv_mask; g->kv_index[s]; s = (s + 1) & g->kv_mask) {
        const struct gguf_kv *kv = &g->kv[g->kv_index[s] - 1];
        if (kv->key.len == len && memcmp(kv->key.data, key, len) == 0)
            return kv;
    }
    return NULL;
}

const struct gguf_info *gguf_find_tensor(const struct gguf *g, const char *name) {
    size_t len = strlen(name);
    for (uint64_t s = hash_bytes(g->seed, name, len) & g->tensor_mask; g->tensor_index[s];
         s = (s + 1) & g->tensor_mask) {
        const struct gguf_info *t = &g->tensors[g->tensor_index[s] - 1];
        if (t->name.len == len && memcmp(t->name.data, name, len) == 0)
            return t;
    }
    return NULL;
}

const struct tensor *gguf_tensor(const struct gguf *g, const char *name) {
    const struct gguf_info *t = gguf_find_tensor(g, name);
    return t ? &t->view : NULL;
}

// An integer of any width; false: another type. Above INT64_MAX: -1 and *big.
static bool read_int(enum gguf_type type, const unsigned char *p, int64_t *v, bool *big) {
    uint64_t u = 0;
    if (type == GGUF_F32 || type == GGUF_F64 || type == GGUF_BOOL || type >= GGUF_TYPE_COUNT ||
        !value_bytes[type])
        return false;
    memcpy(&u, p, value_bytes[type]); // little-endian host
    *big = type == GGUF_U64 && u > INT64_MAX;
    int unused = 64 - 8 * value_bytes[type];
    bool is_signed = type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
    *v = *big ? -1 : is_signed ? (int64_t)(u << unused) >> unused : (int64_t)u;
    return true;
}

static enum status missing(const struct gguf *g, const char *key, struct err *err) {
    return gguf_bad(g, err, "key %s is missing", key);
}

static enum status wrong_type(const struct gguf *g, const struct gguf_kv *kv, const char *expected,
                              struct err *err) {
    bool array = kv->type == GGUF_ARRAY;
    return gguf_bad(g, err, "key %.*s at byte %" PRIu64 " is of type %s%s, expected %s", KEY(kv->key),
                    kv->offset, array ? "array of " : "", gguf_type_name(array ? kv->elem : kv->type),
                    expected);
}

enum status gguf_get_int(const struct gguf *g, const char *key, bool required, int64_t min, int64_t max,
                         int64_t *value, struct err *err) {
    const struct gguf_kv *kv = gguf_find(g, key);
    int64_t v;
    bool big;
    if (!kv)
        return required ? missing(g, key, err) : STATUS_OK;
    if (!read_int(kv->type, kv->value, &v, &big))
        return wrong_type(g, kv, "an integer", err);
    if (big || v < min || v > max)
        return gguf_bad(g, err,
                        "key %s is %" PRId64 "%s at byte %" PRIu64 ", expected %" PRId64 " to %" PRId64, key,
                        v, big ? " (as a signed number)" : "", kv->offset, min, max);
    *value = v;
    return STATUS_OK;
}

enum status gguf_get_float(const struct gguf *g, const char *key, bool required, double *value,
                           struct err *err) {
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return required ? missing(g, key, err) : STATUS_OK;
    float f = 0;
    double v = 0;
    if (kv->type == GGUF_F32) {
        memcpy(&f, kv->value, sizeof f);
        v = (double)f;
    } else if (kv->type == GGUF_F64) {
        memcpy(&v, kv->value, sizeof v);
    } else {
        return wrong_type(g, kv, "a float", err);
    }
    if (!isfinite(v))
        return gguf_bad(g, err, "key %s is %g at byte %" PRIu64 ", expected a finite number", key, v,
                        kv->offset);
    *value = v;
    return STATUS_OK;
}

enum status gguf_get_bool(const struct gguf *g, const char *key, bool *value, struct err *err) {
    const struct gguf_kv *kv = gguf_find(g, key);
    if (kv && kv->type != GGUF_BOOL)
        return wrong_type(g, kv, "a bool", err);
    if (kv)
        *value = kv->value[0] != 0;
    return STATUS_OK;
}

static struct gguf_str read_str(const unsigned char *p) {
    uint64_t len;
    memcpy(&len, p, 8);
    return (struct gguf_str){(const char *)p + 8, (size_t)len};
}

enum status gguf_get_str(const struct gguf *g, const char *key, bool required, size_t max_len,
                         struct gguf_str *value, struct err *err) {
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return required ? missing(g, key, err) : STATUS_OK;
    if (kv->type != GGUF_STRING)
        return wrong_type(g, kv, "a string", err);
    struct gguf_str s = read_str(kv->value);
    if (s.len > max_len)
        return gguf_bad(g, err, "key %s is a string of %zu bytes, expected at most %zu", key, s.len, max_len);
    *value = s;
    return STATUS_OK;
}

enum status gguf_get_array(const struct gguf *g, const char *key, bool required, enum gguf_type elem,
                           struct gguf_array *array, struct err *err) {
    const struct gguf_kv *kv = gguf_find(g, key);
    *array = (struct gguf_array){.elem = elem};
    if (!kv)
        return required ? missing(g, key, err) : STATUS_OK;
    bool integer =
        kv->elem != GGUF_F32 && kv->elem != GGUF_F64 && kv->elem != GGUF_BOOL && kv->elem != GGUF_STRING;
    if (kv->type != GGUF_ARRAY || (elem == GGUF_I32 ? !integer : kv->elem != elem)) {
        char expected[32];
        snprintf(expected, sizeof expected, "array of %s",
                 elem == GGUF_I32 ? "integers" : gguf_type_name(elem));
        return wrong_type(g, kv, expected, err);
    }
    *array = (struct gguf_array){.elem = kv->elem, .count = kv->count, .next = kv->value};
    return STATUS_OK;
}

struct gguf_str gguf_next_string(struct gguf_array *a) {
    struct gguf_str s = read_str(a->next);
    a->next = (const unsigned char *)s.data + s.len;
    return s;
}

int64_t gguf_array_int(const struct gguf_array *a, uint64_t i) {
    int64_t v = 0;
    bool big;
    return read_int(a->elem, a->next + i * value_bytes[a->elem], &v, &big) ? v : 0;
}

float gguf_array_float(const struct gguf_array *a, uint64_t i) {
    float f;
    memcpy(&f, a->next + i * sizeof f, sizeof f);
    return f;
}

size_t gguf_value_bytes(const struct gguf_kv *kv) {
    enum gguf_type leaf = kv->type == GGUF_ARRAY ? kv->elem : kv->type;
    if (leaf != GGUF_STRING)
        return (size_t)kv->count * value_bytes[leaf];
    struct gguf_array a = {.elem = leaf, .count = kv->count, .next = kv->value};
    for (uint64_t i = 0; i < kv->count; i++)
        gguf_next_string(&a);
    return (size_t)(a.next - kv->value);
}

uint32_t gguf_type_number(enum dtype t) {
    for (uint32_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].bytes && types[i].dtype == t)
            return i;
    CHECK(!"a type without a number");
}

const char *gguf_kv_text(const struct gguf_kv *kv, char *buf, size_t size) {
    int64_t v;
    bool big;
    if (kv->type == GGUF_ARRAY) {
        snprintf(buf, size, "[%s; %" PRIu64 "]", gguf_type_name(kv->elem), kv->count);
    } else if (kv->type == GGUF_STRING) {
        struct gguf_str s = read_str(kv->value);
        size_t shown = s.len < size ? s.len : size - 1;
        snprintf(buf, size, "%.*s", (int)shown, s.data);
    } else if (kv->type == GGUF_F32) {
        float f;
        memcpy(&f, kv->value, sizeof f);
        snprintf(buf, size, "%g", (double)f);
    } else if (kv->type == GGUF_F64) {
        double d;
        memcpy(&d, kv->value, sizeof d);
        snprintf(buf, size, "%g", d);
    } else if (kv->type == GGUF_BOOL) {
        snprintf(buf, size, "%s", kv->value[0] ? "true" : "false");
    } else if (read_int(kv->type, kv->value, &v, &big)) {
        snprintf(buf, size, "%" PRId64, v);
    }
    return buf;
}
