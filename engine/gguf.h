// GGUF files (versions 2 and 3, little-endian): a checked header, typed getters, and reads of tensor data.
//
// A file is hostile until proved otherwise: every count is bounded by the bytes that are left, every product
// and sum is checked, nothing recurses, nothing asserts. README.md lists the checks by number. Once parsed, a
// gguf never changes but for what gguf_keep() adds; one thread at a time.
//
// gguf_open() reads with pread and maps nothing: a file that is cut while we load is an error, never a
// signal.
#pragma once

#include "status.h"
#include "tensor.h"

#include <stdbool.h>

enum {
    GGUF_MAX_KV = 65536,
    GGUF_MAX_TENSORS = 65536,
    GGUF_MAX_KEY = 65535,        // bytes
    GGUF_MAX_STRING = 16 << 20,  // bytes
    GGUF_MAX_ARRAY = 1 << 28,    // elements
    GGUF_MAX_NAME = 63,          // bytes of a tensor's name
    GGUF_MAX_HEADER = 512 << 20, // bytes before the tensor data
};

enum gguf_type { // as the file numbers them
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPE_COUNT,
};

struct gguf_str { // borrowed bytes, not NUL-terminated, any content
    const char *data;
    size_t len;
};

struct gguf_kv {
    struct gguf_str key; // valid UTF-8 without NUL
    enum gguf_type type;
    enum gguf_type elem;        // of an array
    uint64_t count;             // elements of an array, 1 otherwise
    const unsigned char *value; // encoded; strings with their length before them
    uint64_t offset;            // of the value in the file
};

struct gguf_info { // one tensor
    struct gguf_str name;
    const char *type_name; // as ggml calls it: "Q8_0", "Q4_K"
    // Shape outermost first. dtype is DTYPE_COUNT for a type that Quire does not compute with; data is NULL
    // unless the gguf was made by gguf_parse().
    struct tensor view;
    uint64_t offset, bytes; // in the file
    uint64_t elements;
};

struct gguf_array {
    enum gguf_type elem;
    uint64_t count;
    const unsigned char *next; // strings: where gguf_next_string() goes on
};

struct gguf;

// Parses size bytes that outlive the gguf and are not modified; name is for messages. gguf_open() opens a
// regular file. NULL with err: STATUS_FORMAT, STATUS_IO, STATUS_NOMEM.
struct gguf *gguf_parse(const void *data, size_t size, const char *name, struct err *err);
struct gguf *gguf_open(const char *path, struct err *err);
void gguf_close(struct gguf *g); // NULL is allowed

size_t gguf_size(const struct gguf *g);      // bytes of the file
int gguf_fd(const struct gguf *g);           // the open file; -1 after gguf_parse()
uint32_t gguf_version(const struct gguf *g); // 2 or 3
size_t gguf_trailing(const struct gguf *g);  // bytes after the last tensor's padding: harmless, but odd
const char *gguf_name(const struct gguf *g); // for messages: the last part of the path

// Iteration in file order.
size_t gguf_num_kv(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i);
size_t gguf_num_tensors(const struct gguf *g);
const struct gguf_info *gguf_info_at(const struct gguf *g, size_t i);

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key);           // NULL: absent
const struct gguf_info *gguf_find_tensor(const struct gguf *g, const char *name); // NULL: absent
const struct tensor *gguf_tensor(const struct gguf *g, const char *name);         // its view

// Typed getters. An absent key leaves *value as it is (so preset the default) and is STATUS_OK, unless it is
// required. A key of another type or outside the range is STATUS_FORMAT: the message names key, expected and
// found. An integer of any width will do where an integer is expected, a float of either width where a float
// is.
enum status gguf_get_int(const struct gguf *g, const char *key, bool required, int64_t min, int64_t max,
                         int64_t *value, struct err *err);
enum status gguf_get_float(const struct gguf *g, const char *key, bool required, double *value,
                           struct err *err); // finite
enum status gguf_get_bool(const struct gguf *g, const char *key, bool *value, struct err *err);
enum status gguf_get_str(const struct gguf *g, const char *key, bool required, size_t max_len,
                         struct gguf_str *value, struct err *err);
// elem GGUF_I32 accepts any integer elements; others must match. An absent key: count 0.
enum status gguf_get_array(const struct gguf *g, const char *key, bool required, enum gguf_type elem,
                           struct gguf_array *array, struct err *err);
struct gguf_str gguf_next_string(struct gguf_array *a);         // at most count times
int64_t gguf_array_int(const struct gguf_array *a, uint64_t i); // u64 above INT64_MAX: -1
float gguf_array_float(const struct gguf_array *a, uint64_t i); // of F32

// A scalar as text, for people; strings cut to `max` bytes, arrays as "[type; count]". Returns buf.
const char *gguf_kv_text(const struct gguf_kv *kv, char *buf, size_t size);
const char *gguf_type_name(enum gguf_type t);
size_t gguf_value_bytes(const struct gguf_kv *kv); // of the encoded value, lengths of strings included
uint32_t gguf_type_number(enum dtype t);           // what a file calls a tensor's type

// Copies bytes [at, at + bytes) of a tensor to dst. STATUS_IO: the file is shorter than it was, or a read
// failed. Any thread, several at a time.
enum status gguf_read(const struct gguf *g, const struct gguf_info *info, uint64_t at, uint64_t bytes,
                      void *dst, struct err *err);
// Reads a tensor into memory that the gguf owns until it is closed, 64-byte aligned. NULL with err.
const void *gguf_keep(const struct gguf *g, const struct gguf_info *info, struct err *err);

// STATUS_FORMAT with the file's name before the sentence.
enum status gguf_bad(const struct gguf *g, struct err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
