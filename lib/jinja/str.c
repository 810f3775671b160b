#include "str.h"

#include "utf8.h"

#include <string.h>

void marked_reserve(struct jinja *j, struct marked *b, size_t more) {
    if (more <= b->cap - b->len)
        return;
    if (more > j->a->limit)
        jinja_fail(j, STATUS_LIMIT, "the chat template needs too much memory");
    size_t cap = 2 * (b->len + more) + 32;
    char *p = jinja_alloc(j, cap);
    uint8_t *marks = jinja_alloc(j, cap);
    if (b->len) {
        memcpy(p, b->p, b->len);
        memcpy(marks, b->marks, b->len);
    }
    *b = (struct marked){.p = p, .marks = marks, .len = b->len, .cap = cap};
}

void marked_put(struct jinja *j, struct marked *b, const char *p, size_t n, bool mark) {
    if (n == 0)
        return;
    marked_reserve(j, b, n);
    memcpy(b->p + b->len, p, n);
    memset(b->marks + b->len, mark, n);
    b->len += n;
}

void marked_puts(struct jinja *j, struct marked *b, const char *text) {
    marked_put(j, b, text, strlen(text), false);
}

void marked_put_part(struct jinja *j, struct marked *b, const struct str *s, size_t from, size_t to) {
    size_t at = b->len;
    if (from == to)
        return;
    marked_put(j, b, s->p + from, to - from, s->mark);
    if (s->marks)
        memcpy(b->marks + at, s->marks + from, to - from);
    jinja_bytes(j, to - from);
}

void marked_put_str(struct jinja *j, struct marked *b, const struct str *s) {
    marked_put_part(j, b, s, 0, s->len);
}

void marked_put_code(struct jinja *j, struct marked *b, uint32_t code, bool mark) {
    char text[4];
    size_t n = utf8_encode(text, code);
    marked_put(j, b, text, n, mark);
}

struct str *marked_str(struct jinja *j, struct marked *b) {
    if (!b->p)
        return str_new(j, "", 0);
    struct str *s = jinja_alloc(j, sizeof *s);
    struct marked *own = jinja_alloc(j, sizeof *own);
    *own = *b;
    *s = (struct str){.p = b->p, .marks = b->marks, .len = b->len, .buf = own};
    return s;
}

struct str *marked_blend(struct jinja *j, struct marked *b) {
    struct str *s = marked_str(j, b);
    if (b->len && memchr(b->marks, 1, b->len)) {
        s->marks = NULL;
        s->buf = NULL;
        s->mark = true;
    }
    return s;
}

struct str *str_new(struct jinja *j, const char *p, size_t len) {
    struct str *s = jinja_alloc(j, sizeof *s);
    *s = (struct str){.p = p, .len = len};
    return s;
}

struct str *str_part(struct jinja *j, const struct str *s, size_t from, size_t to) {
    struct str *t = jinja_alloc(j, sizeof *t);
    *t = *s;
    t->p += from;
    t->marks = s->marks ? s->marks + from : NULL;
    t->len = to - from;
    return t;
}

struct str *str_concat(struct jinja *j, const struct str *a, const struct str *b) {
    struct marked *buf = a->buf;
    if (!buf || a->p + a->len != buf->p + buf->len || buf->cap - buf->len < b->len) {
        buf = jinja_alloc(j, sizeof *buf);
        marked_reserve(j, buf, a->len + b->len);
        marked_put_str(j, buf, a);
    }
    // Appended where a ends: a keeps its length, and the next append to a finds its end taken.
    if (a->len + b->len == 0)
        return str_new(j, "", 0);
    size_t from = buf->len - a->len;
    marked_put_str(j, buf, b);
    struct str *s = jinja_alloc(j, sizeof *s);
    *s = (struct str){.p = buf->p + from, .marks = buf->marks + from, .len = a->len + b->len, .buf = buf};
    return s;
}

bool str_is(const struct str *s, const char *text) {
    return s->len == strlen(text) && memcmp(s->p, text, s->len) == 0;
}

bool str_equal(const struct str *a, const struct str *b) {
    return a == b || (a->len == b->len && memcmp(a->p, b->p, a->len) == 0);
}

size_t str_find(const struct str *s, size_t from, const struct str *what) {
    if (what->len > s->len - from)
        return SIZE_MAX;
    const char *p = what->len ? memmem(s->p + from, s->len - from, what->p, what->len) : s->p + from;
    return p ? (size_t)(p - s->p) : SIZE_MAX;
}

size_t str_count(struct jinja *j, const struct str *s) {
    size_t n = 0;
    jinja_bytes(j, s->len);
    for (size_t i = 0; i < s->len; i++)
        n += !utf8_continues(s->p[i]);
    return n;
}
