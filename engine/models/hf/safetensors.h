// The header of a safetensors file: eight bytes of its length, then a JSON object from names to type, shape and place.
#pragma once

#include "json/jdoc.h"

enum {
    ST_MAX_HEADER = 100 << 20, // bytes, as in the format's own library
    ST_MAX_DIMS = 8,
};

enum st_type {
    ST_BOOL,
    ST_U8,
    ST_I8,
    ST_F8_E4M3,
    ST_F8_E5M2,
    ST_F8_E8M0,
    ST_I16,
    ST_U16,
    ST_F16,
    ST_BF16,
    ST_I32,
    ST_U32,
    ST_F32,
    ST_I64,
    ST_U64,
    ST_F64,
    ST_TYPE_COUNT
};

struct st_tensor {
    struct text_view name; // in the header's text
    enum st_type type;
    int ndim;
    int64_t shape[ST_MAX_DIMS]; // outermost first; 0 is allowed
    uint64_t at, bytes;         // at: byte of the file
};

struct st_header {
    struct jdoc json;
    struct st_tensor *tensors; // (num) owned, by address
    size_t num;
};

// Reads a header of len bytes, without the eight before it, of a file of size bytes. The document owns text from now on
// (from malloc, one more than len), also on failure. Tensors lie one after the other and fill the file. STATUS_FORMAT
// names tensor, byte, what was expected and found; STATUS_NOMEM. st_free() is right in any case.
enum status st_parse(struct st_header *h, const char *name, char *text, size_t len, uint64_t size,
                     struct err *err);
void st_free(struct st_header *h);

const char *st_type_name(enum st_type t);
size_t st_type_bytes(enum st_type t);
