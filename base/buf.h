// A growing byte buffer and the JSON text that goes into it. One owner, no locks.
//
// Running out of memory is remembered, not reported at each call: after a run of appends the caller looks at
// `failed` once. A failed buffer keeps what it had and takes nothing more.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *data; // not NUL-terminated unless buf_cstr() was called
    size_t len, cap;
    bool failed;
};

void buf_free(struct buf *b); // and zero it
void buf_add(struct buf *b, const void *data, size_t len);
void buf_str(struct buf *b, const char *s);
void buf_char(struct buf *b, char c);
void buf_int(struct buf *b, int64_t v);
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void buf_fmt(struct buf *b, const char *fmt, ...);
// Makes room for `more` bytes beyond len; false: out of memory.
bool buf_reserve(struct buf *b, size_t more);
// Terminates with a NUL that len does not count. NULL: failed.
const char *buf_cstr(struct buf *b);
static inline void buf_clear(struct buf *b) { b->len = 0; }

void buf_base64(struct buf *b, const void *data, size_t len); // with padding

#define buf_lit(b, text) buf_add((b), "" text, sizeof(text) - 1)

// Appends text as the inside of a JSON string: escapes what JSON demands and DEL, replaces what is no valid
// UTF-8 by U+FFFD (one for each maximal part, as the Unicode standard advises). The output is pure, valid
// JSON whatever the input.
void json_escape(struct buf *b, const char *text, size_t len);
// The same with quotes around.
void json_quote(struct buf *b, const char *text, size_t len);
// A number that reads back as the same float; -9999 where it is not finite, as JSON has no infinities.
void json_float(struct buf *b, float v);

// Length of the valid UTF-8 sequence at s (1..4), or 0; then *bad is the length of the part to replace
// (1..3).
size_t utf8_sequence(const unsigned char *s, size_t len, size_t *bad);
