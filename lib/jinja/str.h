// Strings of templates. Every byte has a mark, 1 where a client wrote it. A string is a view of bytes with a
// parallel array of marks, so slices are free and every operation that moves bytes moves marks.
#pragma once

#include "jinja.h"
#include "utf8.h"

struct marked { // grows at its end; marks run parallel
    char *p;
    uint8_t *marks;
    size_t len, cap;
};

struct str {
    const char *p;
    const uint8_t *marks; // (len); NULL: every byte has `mark`
    size_t len;
    struct marked *buf; // where the bytes lie, if at its end one may append: it has memory; or NULL
    bool mark;
    bool safe; // Markup of Jinja: + escapes what is added
};

void marked_reserve(struct jinja *j, struct marked *b, size_t more);
void marked_put(struct jinja *j, struct marked *b, const char *p, size_t n, bool mark);
void marked_puts(struct jinja *j, struct marked *b, const char *text);
void marked_put_str(struct jinja *j, struct marked *b, const struct str *s);
void marked_put_part(struct jinja *j, struct marked *b, const struct str *s, size_t from, size_t to);
void marked_put_code(struct jinja *j, struct marked *b, uint32_t code, bool mark);
struct str *marked_str(struct jinja *j, struct marked *b); // the buffer becomes the string's
// The same; if a client wrote any byte, all of them are content.
struct str *marked_blend(struct jinja *j, struct marked *b);

struct str *str_new(struct jinja *j, const char *p, size_t len); // does not copy; template text
struct str *str_part(struct jinja *j, const struct str *s, size_t from, size_t to);
struct str *str_concat(struct jinja *j, const struct str *a, const struct str *b);
static inline bool str_mark(const struct str *s, size_t i) { return s->marks ? s->marks[i] != 0 : s->mark; }
bool str_is(const struct str *s, const char *text);
bool str_equal(const struct str *a, const struct str *b);
size_t str_find(const struct str *s, size_t from, const struct str *what); // SIZE_MAX: not found
size_t str_count(struct jinja *j, const struct str *s);                    // code points
