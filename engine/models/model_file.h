// A model file as loaders see it, whatever its format: tensors by name, and keys with typed values.
//
// A format opens its files and fills a model_file: lists of keys and tensors, and how bytes are read. Everything
// else (lookup, typed getters, messages) is here, once. The names of tensors and keys are the business of
// architectures.h.
//
// A model_file never changes once opened but for what model_file_keep() adds. model_file_read() may be called by any
// thread, several at a time; the rest by one thread at a time.
#pragma once

#include "status.h"
#include "tensor.h"
#include "text_view.h"

#include <stdbool.h>

enum meta_type { // as GGUF numbers them; a format that knows numbers alone has META_I64 and META_F64
    META_U8,
    META_I8,
    META_U16,
    META_I16,
    META_U32,
    META_I32,
    META_F32,
    META_BOOL,
    META_STRING,
    META_ARRAY,
    META_U64,
    META_I64,
    META_F64,
    META_TYPE_COUNT,
};

struct meta {             // one key
    struct text_view key; // valid UTF-8 without NUL
    const char *label;    // the file's own name, for messages, if it is another; else NULL
    enum meta_type type;
    enum meta_type elem; // of an array; arrays do not nest
    uint64_t count;      // elements of an array, 1 otherwise
    // Little-endian values; a string has its length before it, in 8 bytes. Where that is in the file: `offset`.
    const unsigned char *value;
    uint64_t offset;
};

struct model_tensor {
    struct text_view name;
    struct text_view label; // the file's own name, for messages, if it is another
    const char *type_name;  // as the format calls it: "Q8_0", "Q4_K"
    // Shape outermost first. dtype is DTYPE_COUNT for a type that Quire does not compute with; data is NULL unless
    // the whole file is in memory.
    struct tensor view;
    uint64_t offset, bytes; // in the file
    uint64_t elements;
};

struct meta_array {
    enum meta_type elem;
    uint64_t count;
    const unsigned char *next; // strings: where meta_next_str() goes on
};

struct model_file;
struct model_file_index; // names to keys and tensors

struct model_file_ops {
    // Copies bytes [at, at + bytes) of the file to dst; of several files, as if one followed the other. NULL, or a
    // sentence: why the byte *stopped cannot be read. Any thread.
    const char *(*read)(const struct model_file *f, uint64_t at, uint64_t bytes, void *dst,
                        uint64_t *stopped);
    // The name of the file in which an address lies, and *at becomes its byte there. NULL: there is one file.
    const char *(*place)(const struct model_file *f, uint64_t *at);
    void (*close)(struct model_file *f); // frees all but what model_file.c made
    // The file's own name for the tensor `name`. false: the same. NULL: always the same.
    bool (*label)(const struct model_file *f, const char *name, char *buf, size_t size);
    // Of its files the one with number i, open; -1: there are no more. NULL: it lies in none.
    int (*descriptor)(const struct model_file *f, int i);
};

struct model_file {
    const struct model_file_ops *ops;
    char name[104];    // for messages: the last part of the path
    char format[32];   // for people: "GGUF version 3"
    uint64_t size;     // bytes
    uint64_t trailing; // bytes after the last tensor: harmless, but odd
    uint64_t num_meta, num_tensors;
    struct meta *meta; // in the file's order
    struct model_tensor *tensors;
    struct model_file_index *index; // filled by model_file_room()
    struct kept **kept;             // of model_file_keep()
    int num_mtp;                    // of a folder: MTP layers behind those that its keys count
};

// Opens a model: a .gguf file, or a Hugging Face folder. NULL with err: STATUS_FORMAT, STATUS_IO, STATUS_NOMEM.
struct model_file *model_file_open(const char *path, struct err *err);
void model_file_close(struct model_file *f); // NULL is allowed

// STATUS_FORMAT with the file's name before the sentence.
enum status model_file_bad(const struct model_file *f, struct err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// Reads bytes [at, at + bytes) of a descriptor, for formats. NULL, or why it stopped, at the byte *stopped.
// Any thread.
const char *model_file_pread(int fd, uint64_t at, uint64_t bytes, void *dst, uint64_t *stopped);

// ---- tensors

// The file's own name of a tensor.
static inline struct text_view model_tensor_label(const struct model_tensor *t) {
    return t->label.len ? t->label : t->name;
}
// An address for people: "byte 12", "byte 12 of model.safetensors". Returns buf.
enum { MODEL_PLACE_BYTES = 300 };
const char *model_file_place(const struct model_file *f, uint64_t at, char buf[MODEL_PLACE_BYTES]);
const struct model_tensor *model_file_find(const struct model_file *f, const char *name); // NULL: absent
// The file's own name of a tensor, which it need not have, for messages. Returns buf or name.
enum { MODEL_LABEL_BYTES = 160 };
const char *model_file_label(const struct model_file *f, const char *name, char buf[MODEL_LABEL_BYTES]);
// Copies bytes [at, at + bytes) of a tensor to dst. STATUS_IO: the file is shorter than it was, or a read failed.
enum status model_file_read(const struct model_file *f, const struct model_tensor *t, uint64_t at,
                            uint64_t bytes, void *dst, struct err *err);
// Reads a tensor into memory that the file owns until it is closed, 64-byte aligned. NULL with err.
const void *model_file_keep(const struct model_file *f, const struct model_tensor *t, struct err *err);

// ---- keys

const struct meta *meta_find(const struct model_file *f, const char *key); // NULL: absent

// Typed getters. An absent key leaves *value as it is (so preset the default) and is STATUS_OK, unless it is required.
// A key of another type or outside the range is STATUS_FORMAT: the message names file, key, expected and found. An
// integer of any width will do where an integer is expected, a float of either width where a float is.
enum status meta_int(const struct model_file *f, const char *key, bool required, int64_t min, int64_t max,
                     int64_t *value, struct err *err);
enum status meta_float(const struct model_file *f, const char *key, bool required, double *value,
                       struct err *err); // finite
enum status meta_bool(const struct model_file *f, const char *key, bool *value, struct err *err);
enum status meta_str(const struct model_file *f, const char *key, bool required, size_t max_len,
                     struct text_view *value, struct err *err);
// elem META_I32 accepts any integer elements; others must match. An absent key: count 0.
enum status meta_array(const struct model_file *f, const char *key, bool required, enum meta_type elem,
                       struct meta_array *array, struct err *err);
struct text_view meta_next_str(struct meta_array *a);           // at most count times
int64_t meta_array_int(const struct meta_array *a, uint64_t i); // u64 above INT64_MAX: -1; of bools 0 or 1
float meta_array_float(const struct meta_array *a, uint64_t i); // of F32

// A scalar as text, for people; strings cut to `size` bytes, arrays as "[type; count]". Returns buf.
const char *meta_text(const struct meta *m, char *buf, size_t size);
const char *meta_type_name(enum meta_type t);
size_t meta_type_bytes(enum meta_type t);      // 0: strings and arrays
size_t meta_value_bytes(const struct meta *m); // of the encoded value, lengths of strings included

// ---- for a format, while it fills a model_file

// A file without keys and tensors. STATUS_NOMEM. Closed by model_file_close(), which calls ops->close() where there are
// ops.
enum status model_file_init(struct model_file *f, const char *path, struct err *err);
// Room for as many keys and tensors, all zero, in place of those there are. STATUS_NOMEM.
enum status model_file_room(struct model_file *f, uint64_t num_meta, uint64_t num_tensors, struct err *err);
// Enters key or tensor i under its name. false: the name is there already.
bool model_file_add_meta(struct model_file *f, uint64_t i);
bool model_file_add_tensor(struct model_file *f, uint64_t i);
