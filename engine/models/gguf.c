// See gguf.h. The numbers in brackets are those of the check list in README.md.
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

struct gguf {
    struct model_file file;    // first: they are one object
    const unsigned char *data; // `avail` bytes of the file from its start
    unsigned char *owned;      // the same, where we read them
    uint64_t avail;
    int fd; // -1: all is in memory
    uint32_t version;
    uint64_t alignment;
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
    [40] = {"NVFP4", 64, 36, NO},
    [41] = {"Q1_0", 128, 18, NO},
    [42] = {"Q2_0", 64, 18, NO},
#undef NO
};

// ---- reading, one pass

struct cursor {
    struct gguf *g;
    uint64_t pos;
    uint64_t need; // > 0: the header goes on beyond what we have read; read this many bytes and start again
    struct err *err;
};

static bool refuse(struct cursor *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(struct cursor *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    err_set_named(c->err, STATUS_FORMAT, c->g->file.name, fmt, ap);
    va_end(ap);
    return false;
}

// n bytes at the cursor, or NULL: beyond the end of the file (err), or of what has been read (need).
static const unsigned char *take_bytes(struct cursor *c, uint64_t n, const char *what) {
    const struct gguf *g = c->g;
    if (n > g->file.size - c->pos) {
        model_file_bad(&g->file, c->err,
                       "the file ends within %s at byte %" PRIu64 ": %" PRIu64 " bytes expected, %" PRIu64
                       " left",
                       what, c->pos, n, g->file.size - c->pos);
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
    const unsigned char *p = take_bytes(c, 4, what);
    if (p)
        memcpy(v, p, 4);
    return p != NULL;
}

static bool take_u64(struct cursor *c, const char *what, uint64_t *v) {
    const unsigned char *p = take_bytes(c, 8, what);
    if (p)
        memcpy(v, p, 8);
    return p != NULL;
}

// (3) A length and that many bytes.
static bool take_str(struct cursor *c, const char *what, uint64_t max, struct text_view *s) {
    uint64_t len, at = c->pos;
    if (!take_u64(c, what, &len))
        return false;
    if (len > max || len > c->g->file.size - c->pos) {
        model_file_bad(&c->g->file, c->err,
                       "%s at byte %" PRIu64 " has length %" PRIu64 ", expected at most %" PRIu64, what, at,
                       len, len > max ? max : c->g->file.size - c->pos);
        return false;
    }
    const unsigned char *p = take_bytes(c, len, what);
    if (p)
        *s = (struct text_view){(const char *)p, (size_t)len};
    return p != NULL;
}

// (4) The value of a key: its extent, no more. Arrays do not nest.
static bool take_value(struct cursor *c, struct meta *kv) {
    const struct gguf *g = c->g;
    uint32_t type, elem = 0;
    uint64_t at = c->pos, count = 1;
    if (!take_u32(c, "a value's type", &type))
        return false;
    if (type >= META_TYPE_COUNT) {
        return refuse(c, "key %.*s has value type %" PRIu32 " at byte %" PRIu64 ", expected 0 to 12",
                      KEY(kv->key), type, at);
    }
    kv->type = (enum meta_type)type;
    if (type == META_ARRAY) {
        at = c->pos;
        if (!take_u32(c, "an array's type", &elem) || !take_u64(c, "an array's count", &count))
            return false;
        if (elem >= META_TYPE_COUNT || elem == META_ARRAY) {
            return refuse(
                c, "key %.*s is an array of type %" PRIu32 " at byte %" PRIu64 ", expected 0 to 12 but 9",
                KEY(kv->key), elem, at);
        }
        uint64_t least = elem == META_STRING ? 8 : meta_type_bytes((enum meta_type)elem);
        uint64_t left = (g->file.size - c->pos) / least;
        if (count > GGUF_MAX_ARRAY || count > left) {
            return refuse(c,
                          "key %.*s is an array of %" PRIu64 " elements at byte %" PRIu64
                          ", expected at most %" PRIu64,
                          KEY(kv->key), count, at, left < GGUF_MAX_ARRAY ? left : (uint64_t)GGUF_MAX_ARRAY);
        }
    }
    kv->elem = (enum meta_type)elem;
    kv->count = count;
    kv->offset = c->pos;
    kv->value = g->data + (c->pos < g->avail ? c->pos : g->avail);
    uint32_t leaf = type == META_ARRAY ? elem : type;
    if (leaf != META_STRING) {
        // count is bounded: no overflow
        const unsigned char *p = take_bytes(c, count * meta_type_bytes((enum meta_type)leaf), "a value");
        if (!p)
            return false;
        if (leaf == META_BOOL && type != META_ARRAY && p[0] > 1) {
            return refuse(c, "key %.*s is a bool of value %d at byte %" PRIu64 ", expected 0 or 1",
                          KEY(kv->key), p[0], kv->offset);
        }
        return true;
    }
    struct text_view s;
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
    for (uint64_t i = 0; i < g->file.num_meta; i++) {
        struct meta *kv = &g->file.meta[i];
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
        if (!model_file_add_meta(&g->file, i)) { // (5)
            return refuse(c, "key %.*s at byte %" PRIu64 " is there twice", KEY(kv->key), at);
        }
    }
    return true;
}

// (8) One tensor. `end` is the padded end of the tensors before it, from the start of the data.
static bool take_tensor(struct cursor *c, uint32_t i, uint64_t *end) {
    struct gguf *g = c->g;
    struct model_tensor *t = &g->file.tensors[i];
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
    if (!model_file_add_tensor(&g->file, i))
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
    for (uint32_t i = 0; i < g->file.num_tensors; i++)
        if (!take_tensor(c, i, &end))
            return false;
    if (g->file.num_tensors == 0)
        return true; // a vocabulary: it may end anywhere
    // (9) (10) The data starts at the next multiple of the alignment, and every tensor lies inside the file.
    // No overflow: pos <= file size, alignment <= 64 KiB.
    uint64_t start = (c->pos + g->alignment - 1) & ~(g->alignment - 1);
    for (uint64_t i = 0; i < g->file.num_tensors; i++) {
        struct model_tensor *t = &g->file.tensors[i];
        uint64_t stop;
        if (__builtin_add_overflow(t->offset, start, &t->offset) ||
            __builtin_add_overflow(t->offset, t->bytes, &stop) || stop > g->file.size) {
            return refuse(c,
                          "tensor %.*s has %" PRIu64 " bytes at %" PRIu64 ", but the file ends at %" PRIu64
                          ": is it cut short?",
                          KEY(t->name), t->bytes, t->offset, g->file.size);
        }
        if (g->fd < 0)
            t->view.data = g->data + t->offset;
    }
    g->file.trailing = start + end < g->file.size ? g->file.size - start - end : 0;
    return true;
}

// A file that is no GGUF file, by its first nine bytes, and the way out
static const char *kind_of(const unsigned char *at) {
    static const struct {
        int from, len;
        const char *bytes, *kind;
    } kinds[] = {
        {0, 4, "PK\3\4",
         "weights of PyTorch, or another zip file: take the repository's safetensors, or convert it to GGUF"},
        {0, 1, "\x80", "a pickle of PyTorch: take the repository's safetensors, or convert it to GGUF"},
        {8, 1, "{", "a safetensors file: give the folder in which it lies with its config.json"},
        {0, 7, "version", "a pointer of git-lfs: `git lfs pull` fetches what it stands for"},
        {0, 1, "<", "a web page: the download brought a page in place of the file"},
        {0, 1, "{", "JSON: give the folder in which it lies with the weights"},
        {0, 4, "lmgg", "an old file of llama.cpp, from before GGUF: convert it, or download it anew"},
        {0, 4, "tjgg", "an old file of llama.cpp, from before GGUF: convert it, or download it anew"},
        {0, 2, "\x1f\x8b", "a gzip file: unpack it"},
        {0, 4, "\x28\xb5\x2f\xfd", "a zstd file: unpack it"},
        {0, 1, "\x08", "perhaps ONNX, which Quire does not read: take the repository's safetensors or GGUF"},
        {0, 4, "\0\0\0\0", "zeros: the download was not finished"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (memcmp(at + kinds[i].from, kinds[i].bytes, (size_t)kinds[i].len) == 0)
            return kinds[i].kind;
    return "something else: its first bytes are not \"GGUF\"";
}

static bool take_header(struct cursor *c) {
    struct gguf *g = c->g;
    const unsigned char *magic;
    uint64_t num_kv, num_tensors;
    if (g->file.size < 24) // (1)
        return refuse(c, "%" PRIu64 " bytes are no GGUF file: at least 24 expected", g->file.size);
    if (!(magic = take_bytes(c, 9, "the magic")))
        return false;
    if (memcmp(magic, "GGUF", 4) != 0)
        return refuse(c, "no GGUF file, but %s", kind_of(magic));
    c->pos = 4;
    if (!take_u32(c, "the version", &g->version))
        return false;
    if ((g->version & 0xffff) == 0)
        return refuse(c, "version %" PRIu32 " at byte 4 looks big-endian, expected a little-endian file",
                      g->version);
    if (g->version != 2 && g->version != 3)
        return refuse(c, "GGUF version %" PRIu32 " at byte 4 is not supported, expected 2 or 3", g->version);
    if (!take_u64(c, "the number of tensors", &num_tensors) || !take_u64(c, "the number of keys", &num_kv))
        return false;
    uint64_t left = g->file.size - c->pos; // (2)
    if (num_tensors > GGUF_MAX_TENSORS || num_tensors > left / MIN_TENSOR_BYTES)
        return refuse(c, "%" PRIu64 " tensors at byte 8 do not fit: at most %" PRIu64 " expected",
                      num_tensors,
                      left / MIN_TENSOR_BYTES < GGUF_MAX_TENSORS ? left / MIN_TENSOR_BYTES
                                                                 : (uint64_t)GGUF_MAX_TENSORS);
    if (num_kv > GGUF_MAX_KV || num_kv > left / MIN_KV_BYTES)
        return refuse(c, "%" PRIu64 " keys at byte 16 do not fit: at most %" PRIu64 " expected", num_kv,
                      left / MIN_KV_BYTES < GGUF_MAX_KV ? left / MIN_KV_BYTES : (uint64_t)GGUF_MAX_KV);
    if (model_file_room(&g->file, num_kv, num_tensors, c->err))
        return false;
    if (!take_kvs(c))
        return false;
    int64_t alignment = 32; // (7)
    if (meta_int(&g->file, "general.alignment", false, 8, 65536, &alignment, c->err))
        return false;
    if (alignment & (alignment - 1))
        return refuse(c, "key general.alignment is %" PRId64 ", expected a power of two", alignment);
    g->alignment = (uint64_t)alignment;
    snprintf(g->file.format, sizeof g->file.format, "GGUF version %" PRIu32, g->version);
    return take_tensors(c);
}

static const char *read_bytes(const struct model_file *f, uint64_t at, uint64_t bytes, void *dst,
                              uint64_t *stopped) {
    const struct gguf *g = (const struct gguf *)f;
    if (g->fd < 0) {
        memcpy(dst, g->data + at, bytes);
        return NULL;
    }
    return model_file_pread(g->fd, at, bytes, dst, stopped);
}

static int descriptor_of(const struct model_file *f, int i) {
    return i == 0 ? ((const struct gguf *)f)->fd : -1;
}

static void close_file(struct model_file *f) {
    struct gguf *g = (struct gguf *)f;
    free(g->owned);
    if (g->fd >= 0)
        close(g->fd);
    free(g);
}

static struct gguf *gguf_new(const char *path, struct err *err) {
    static const struct model_file_ops ops = {
        .read = read_bytes, .close = close_file, .descriptor = descriptor_of};
    struct gguf *g = calloc(1, sizeof *g);
    if (!g) {
        err_set(err, STATUS_NOMEM, "out of memory for a file's header");
        return NULL;
    }
    enum status st = model_file_init(&g->file, path, err);
    g->file.ops = &ops;
    g->fd = -1;
    if (st == STATUS_OK)
        return g;
    model_file_close(&g->file);
    return NULL;
}

struct model_file *gguf_parse(const void *data, size_t size, const char *name, struct err *err) {
    struct err local = {0};
    struct gguf *g = gguf_new(name, err);
    if (!g)
        return NULL;
    g->data = data;
    g->avail = g->file.size = size;
    struct cursor c = {.g = g, .err = err ? err : &local};
    if (take_header(&c))
        return &g->file;
    model_file_close(&g->file);
    return NULL;
}

// Extends what has been read of the file to `want` bytes.
static bool read_more(struct gguf *g, uint64_t want, struct err *err) {
    unsigned char *p = realloc(g->owned, want + 1);
    if (!p)
        return err_set(err, STATUS_NOMEM, "%s: out of memory for a header of %" PRIu64 " bytes", g->file.name,
                       want),
               false;
    g->data = g->owned = p;
    while (g->avail < want) {
        ssize_t n = pread(g->fd, p + g->avail, want - g->avail, (off_t)g->avail);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(err, STATUS_IO, "%s: cannot read at byte %" PRIu64 ": %s", g->file.name, g->avail,
                           n < 0 ? strerror(errno) : "the file has become shorter"),
                   false;
        g->avail += (uint64_t)n;
    }
    return true;
}

struct model_file *gguf_open(const char *path, struct err *err) {
    struct err local = {0};
    struct stat st;
    if (!err)
        err = &local;
    struct gguf *g = gguf_new(path, err);
    if (!g)
        return NULL;
    g->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // NONBLOCK: a FIFO must not hang us before fstat
    if (g->fd < 0 || fstat(g->fd, &st) != 0) {
        err_set(err, STATUS_IO, "cannot open %s: %s", g->file.name, strerror(errno));
        goto fail;
    }
    if (!S_ISREG(st.st_mode)) {
        err_set(err, STATUS_IO, "cannot open %s: not a regular file", g->file.name);
        goto fail;
    }
    g->file.size = (uint64_t)st.st_size;
    // How long the header is, only the header tells: read some, and twice as much while it goes on.
    for (uint64_t want = FIRST_READ;;) {
        if (!read_more(g, want < g->file.size ? want : g->file.size, err))
            goto fail;
        struct cursor c = {.g = g, .err = err};
        if (take_header(&c))
            break;
        if (c.need == 0)
            goto fail;
        if (c.need > GGUF_MAX_HEADER) {
            model_file_bad(&g->file, err, "the header is longer than %d bytes", GGUF_MAX_HEADER);
            goto fail;
        }
        want = c.need > 2 * g->avail ? c.need : 2 * g->avail;
    }
    posix_fadvise(g->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    if (g->file.trailing)
        log_msg(LOG_WARN, "msg=\"bytes after the last tensor\" file=\"%s\" bytes=%" PRIu64, g->file.name,
                g->file.trailing);
    return &g->file;
fail:
    model_file_close(&g->file);
    return NULL;
}

uint32_t gguf_type_number(enum dtype t) {
    for (uint32_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].bytes && types[i].dtype == t)
            return i;
    CHECK(!"a type without a number");
}
