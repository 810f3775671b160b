#include "str_ops.h"

#include "utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool text_is_space(uint32_t c) { // Python's str.isspace()
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

static uint32_t to_upper(uint32_t c) {
    if ((c >= 'a' && c <= 'z') || (c >= 0xe0 && c <= 0xfe && c != 0xf7) ||
        (c >= 0x3b1 && c <= 0x3cb && c != 0x3c2) || (c >= 0x430 && c <= 0x44f))
        return c - 32;
    if (c == 0xff)
        return 0x178;
    if (c >= 0x450 && c <= 0x45f)
        return c - 80;
    if ((c >= 0x100 && c <= 0x137) || (c >= 0x14a && c <= 0x177) || (c >= 0x460 && c <= 0x481) ||
        (c >= 0x48a && c <= 0x4bf))
        return c == 0x131 ? 'I' : c == 0x130 || !(c & 1) ? c : c - 1;
    if ((c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17e))
        return c & 1 ? c : c - 1;
    return c == 0x3c2 ? 0x3a3 : c == 0xb5 ? 0x39c : c;
}

static uint32_t to_lower(uint32_t c) {
    if ((c >= 'A' && c <= 'Z') || (c >= 0xc0 && c <= 0xde && c != 0xd7) ||
        (c >= 0x391 && c <= 0x3ab && c != 0x3a2) || (c >= 0x410 && c <= 0x42f))
        return c + 32;
    if (c == 0x178)
        return 0xff;
    if (c >= 0x400 && c <= 0x40f)
        return c + 80;
    if ((c >= 0x100 && c <= 0x137) || (c >= 0x14a && c <= 0x177) || (c >= 0x460 && c <= 0x481) ||
        (c >= 0x48a && c <= 0x4bf))
        return c == 0x130 ? 'i' : c & 1 ? c : c + 1;
    if ((c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17e))
        return c & 1 ? c + 1 : c;
    return c;
}

bool text_is_upper(uint32_t c) { return to_lower(c) != c; }
bool text_is_lower(uint32_t c) { return to_upper(c) != c || c == 0xdf; }
bool text_is_digit(uint32_t c) { return c >= '0' && c <= '9'; }

bool text_is_alpha(uint32_t c) {
    return text_is_upper(c) || text_is_lower(c) ||
           (c >= 0xc0 && c != 0xd7 && c != 0xf7 && !text_is_space(c) && !(c >= 0x2000 && c < 0x2c00) &&
            !(c >= 0x3001 && c <= 0x303f) && !(c >= 0xff00 && c <= 0xff20) && c < 0x1f000);
}

bool text_is_word(uint32_t c) { return text_is_alpha(c) || text_is_digit(c) || c == '_'; }

bool text_one_case(struct jinja *j, const struct str *s, bool upper) {
    bool any = false;
    jinja_bytes(j, s->len);
    for (size_t i = 0, n; i < s->len; i += n) {
        uint32_t c = utf8_decode(s->p + i, &n);
        if (upper ? text_is_lower(c) : text_is_upper(c))
            return false;
        any |= upper ? text_is_upper(c) : text_is_lower(c);
    }
    return any;
}

struct str *text_case(struct jinja *j, const struct str *s, enum text_case_to to) {
    struct marked b = {0};
    bool word = true; // at the beginning of a word
    jinja_bytes(j, s->len);
    for (size_t i = 0, n; i < s->len; i += n) {
        uint32_t c = utf8_decode(s->p + i, &n);
        bool up = to == CASE_UPPER || ((to == CASE_CAPITALIZE || to == CASE_TITLE) && word) ||
                  (to == CASE_SWAP && text_is_lower(c));
        if (up && c == 0xdf) {
            marked_put(j, &b, to == CASE_UPPER || to == CASE_SWAP ? "SS" : "Ss", 2, str_mark(s, i));
        } else {
            marked_put_code(j, &b, up ? to_upper(c) : to_lower(c), str_mark(s, i));
        }
        word = to == CASE_TITLE && !text_is_alpha(c);
    }
    return marked_str(j, &b);
}

static bool in_chars(const struct str *chars, uint32_t c) {
    for (size_t i = 0, n; i < chars->len; i += n)
        if (utf8_decode(chars->p + i, &n) == c)
            return true;
    return false;
}

struct str *text_strip(struct jinja *j, const struct str *s, const struct str *chars, bool left, bool right) {
    size_t from = 0, to = s->len, n;
    jinja_bytes(j, s->len);
    if (chars)
        jinja_steps(j, (s->len >> 10) * chars->len); // each character is compared with each
    while (left && from < to) {
        uint32_t c = utf8_decode(s->p + from, &n);
        if (!(chars ? in_chars(chars, c) : text_is_space(c)))
            break;
        from += n;
    }
    while (right && to > from) {
        size_t at = to - 1;
        while (utf8_continues(s->p[at]))
            at--;
        uint32_t c = utf8_decode(s->p + at, &n);
        if (!(chars ? in_chars(chars, c) : text_is_space(c)))
            break;
        to = at;
    }
    return str_part(j, s, from, to);
}

struct str *text_replace(struct jinja *j, const struct str *s, const struct str *from, const struct str *to,
                         int64_t count) {
    struct marked b = {0};
    size_t at = 0, n;
    jinja_bytes(j, s->len);
    if (from->len == 0) { // before every character, and at the end
        for (; count != 0; count--) {
            marked_put_str(j, &b, to);
            if (at == s->len)
                return marked_str(j, &b);
            utf8_decode(s->p + at, &n);
            marked_put_part(j, &b, s, at, at + n);
            at += n;
            jinja_steps(j, 1);
        }
    }
    for (; count != 0; count--) {
        size_t found = str_find(s, at, from);
        if (found == SIZE_MAX)
            break;
        marked_put_part(j, &b, s, at, found);
        marked_put_str(j, &b, to);
        at = found + from->len;
        jinja_steps(j, 1);
    }
    marked_put_part(j, &b, s, at, s->len);
    return marked_str(j, &b);
}

struct list *text_lines(struct jinja *j, const struct str *s, bool keep) {
    struct list *l = list_new(j);
    jinja_bytes(j, s->len);
    for (size_t start = 0, i = 0, n; i < s->len;) {
        uint32_t c = utf8_decode(s->p + i, &n);
        bool end =
            (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
        size_t line_end = i;
        i += n;
        if (c == '\r' && i < s->len && s->p[i] == '\n')
            i++;
        if (end || i == s->len) {
            list_add(j, l, value_of_str(str_part(j, s, start, end && !keep ? line_end : i)));
            start = i;
        }
    }
    return l;
}

struct str *text_escape(struct jinja *j, const struct str *s) {
    struct marked b = {0};
    jinja_bytes(j, s->len);
    for (size_t i = 0; i < s->len; i++) {
        const char *e = s->p[i] == '&'    ? "&amp;"
                        : s->p[i] == '<'  ? "&lt;"
                        : s->p[i] == '>'  ? "&gt;"
                        : s->p[i] == '\'' ? "&#39;"
                        : s->p[i] == '"'  ? "&#34;"
                                          : NULL;
        marked_put(j, &b, e ? e : s->p + i, e ? strlen(e) : 1, str_mark(s, i));
    }
    struct str *r = marked_str(j, &b);
    r->safe = true;
    return r;
}

// The digits of a number, without white space around them and underscores between; false: no number, or over
// 400 characters.
static bool number_text(const struct str *s, bool hex, char out[402]) {
    size_t n = 0, from = 0, to = s->len;
    while (from < to && text_is_space((unsigned char)s->p[from]))
        from++;
    while (to > from && text_is_space((unsigned char)s->p[to - 1]))
        to--;
    if (to == from || to - from > 400)
        return false;
    for (size_t i = from; i < to; i++) {
        char c = s->p[i];
        if (c == '_' && i > from && i + 1 < to && text_is_digit((unsigned char)s->p[i - 1]) &&
            text_is_digit((unsigned char)s->p[i + 1]))
            continue;
        if (c == 0 || c == '_' || ((c | 32) == 'x' && !hex) || text_is_space((unsigned char)c) ||
            (unsigned char)c >= 0x80)
            return false;
        out[n++] = c;
    }
    out[n] = 0;
    return true;
}

bool text_parse_int(const struct str *s, int base, int64_t *out) {
    char text[402], *end;
    if (!number_text(s, base == 16, text))
        return false;
    errno = 0;
    *out = strtoll(text, &end, base);
    return *end == 0 && end != text && errno == 0;
}

bool text_parse_float(const struct str *s, double *out) {
    char text[402], *end;
    if (!number_text(s, false, text) || strchr(text, '('))
        return false;
    *out = strtod(text, &end);
    return *end == 0 && end != text;
}
