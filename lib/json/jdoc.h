// JSON texts (RFC 8259) as a flat list of values.
//
// A text is hostile until proved otherwise: its size and depth are bounded by the caller and JDOC_MAX_DEPTH, memory by
// its size (16 bytes for at least two of the text), no key may be there twice, strings are UTF-8. NaN and Infinity,
// which Python writes, are numbers; reading one as a finite number fails with its byte.
#pragma once

#include "status.h"
#include "text_view.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { JDOC_MAX_DEPTH = 64, JDOC_NAME_BYTES = 368 };

enum jdoc_type { JDOC_NULL, JDOC_FALSE, JDOC_TRUE, JDOC_NUMBER, JDOC_STRING, JDOC_ARRAY, JDOC_OBJECT };

// In the text's order. The elements of an array follow it; the members of an object follow it as key, value, key, value.
struct jdoc_value {
    uint32_t at;   // byte of the text; of a string, its first
    uint32_t len;  // bytes of a number or a decoded string; elements or members otherwise
    uint32_t next; // index of the value behind this one and all in it
    uint8_t type;  // enum jdoc_type
};

struct jdoc {
    char name[JDOC_NAME_BYTES]; // of the file, for messages
    char *text;                 // owned; strings are decoded in place
    size_t len;
    struct jdoc_value *values; // (num) owned; values[0] is the whole
    size_t num, cap;
};

// Reads len bytes of text, which the document owns from now on (from malloc, one more than len), also on failure.
// STATUS_FORMAT with name and byte, STATUS_NOMEM. jdoc_free() is right in any case.
enum status jdoc_parse(struct jdoc *j, const char *name, char *text, size_t len, struct err *err);
void jdoc_free(struct jdoc *j);

// STATUS_FORMAT: the file's name, then the sentence.
enum status jdoc_bad(const struct jdoc *j, struct err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// The value of a key of an object. NULL: absent, or v is NULL or no object; jdoc_get(): or null.
const struct jdoc_value *jdoc_find(const struct jdoc *j, const struct jdoc_value *v, const char *key);
const struct jdoc_value *jdoc_get(const struct jdoc *j, const struct jdoc_value *v, const char *key);
// The first element of an array or key of an object (its value is the next one in the list), and the one after it; NULL:
// none, or v is NULL or neither.
const struct jdoc_value *jdoc_first(const struct jdoc *j, const struct jdoc_value *v);
const struct jdoc_value *jdoc_after(const struct jdoc *j, const struct jdoc_value *v,
                                    const struct jdoc_value *element, bool object);

struct text_view jdoc_text(const struct jdoc *j,
                           const struct jdoc_value *v); // a string or number as it is written
bool jdoc_is(const struct jdoc *j, const struct jdoc_value *v, const char *text); // a string, and this one
double jdoc_number(const struct jdoc *j, const struct jdoc_value *v);             // NaN: no number
bool jdoc_integer(const struct jdoc *j, const struct jdoc_value *v,
                  int64_t *i); // false: no integer below 2^53
const char *jdoc_type_name(const struct jdoc_value *v);

#define JDOC_EACH(j, e, v)                                                                                   \
    for (const struct jdoc_value *e = jdoc_first(j, v); e; e = jdoc_after(j, v, e, false))
#define JDOC_EACH_KEY(j, e, v)                                                                               \
    for (const struct jdoc_value *e = jdoc_first(j, v); e; e = jdoc_after(j, v, e, true))

#ifdef __cplusplus
}
#endif
