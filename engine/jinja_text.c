// Strings: their methods, case, splitting. Lengths and positions that a template sees are in code
// points. Upper and lower case know Latin-1, Latin Extended-A, Greek and Cyrillic; other letters stay as they
// are.
#include "jinja.h"

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

static bool is_upper(uint32_t c) { return to_lower(c) != c; }
static bool is_lower(uint32_t c) { return to_upper(c) != c || c == 0xdf; }
static bool is_digit(uint32_t c) { return c >= '0' && c <= '9'; }
static bool is_alpha(uint32_t c) {
    return is_upper(c) || is_lower(c) ||
           (c >= 0xc0 && c != 0xd7 && c != 0xf7 && !text_is_space(c) && !(c >= 0x2000 && c < 0x2c00) &&
            !(c >= 0x3001 && c <= 0x303f) && !(c >= 0xff00 && c <= 0xff20) && c < 0x1f000);
}

bool text_is_word(uint32_t c) { return is_alpha(c) || is_digit(c) || c == '_'; }

struct str *text_case(struct jinja *j, const struct str *s, char how) {
    struct marked b = {0};
    bool word = true; // at the beginning of a word
    jinja_bytes(j, s->len);
    for (size_t i = 0, n; i < s->len; i += n) {
        uint32_t c = utf8_decode(s->p + i, &n);
        bool up = how == 'u' || ((how == 'c' || how == 't') && word) || (how == 's' && is_lower(c));
        if (up && c == 0xdf) {
            marked_put(j, &b, how == 'u' || how == 's' ? "SS" : "Ss", 2, str_mark(s, i));
        } else {
            marked_put_code(j, &b, up ? to_upper(c) : to_lower(c), str_mark(s, i));
        }
        word = how == 't' && !is_alpha(c);
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
        while (((unsigned char)s->p[at] & 0xc0) == 0x80)
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
        if (c == '_' && i > from && i + 1 < to && is_digit((unsigned char)s->p[i - 1]) &&
            is_digit((unsigned char)s->p[i + 1]))
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

// ---- methods

static const struct str *want_str(struct jinja *j, struct value v) {
    if (v.kind == V_UNDEFINED)
        jinja_fail_undefined(j, v);
    if (v.kind != V_STRING)
        jinja_fail(j, STATUS_INVALID, "expected a str, not %s", value_type(v));
    return v.s;
}

static int64_t want_int(struct jinja *j, struct value v, int64_t absent) {
    if (v.kind == V_ABSENT || v.kind == V_NULL)
        return absent;
    if (!is_integer(v))
        jinja_fail(j, STATUS_INVALID, "expected an int, not %s", value_type(v));
    return as_int(v);
}

static struct value strip(struct jinja *j, struct call *c, bool left, bool right) {
    bool all = c->args[0].kind == V_ABSENT || c->args[0].kind == V_NULL;
    return value_of_str(text_strip(j, c->self.s, all ? NULL : want_str(j, c->args[0]), left, right));
}

static struct value str_strip(struct jinja *j, struct call *c) { return strip(j, c, true, true); }
static struct value str_lstrip(struct jinja *j, struct call *c) { return strip(j, c, true, false); }
static struct value str_rstrip(struct jinja *j, struct call *c) { return strip(j, c, false, true); }
static struct value str_upper(struct jinja *j, struct call *c) {
    return value_of_str(text_case(j, c->self.s, 'u'));
}
static struct value str_lower(struct jinja *j, struct call *c) {
    return value_of_str(text_case(j, c->self.s, 'l'));
}
static struct value str_title(struct jinja *j, struct call *c) {
    return value_of_str(text_case(j, c->self.s, 't'));
}
static struct value str_capitalize(struct jinja *j, struct call *c) {
    return value_of_str(text_case(j, c->self.s, 'c'));
}
static struct value str_swapcase(struct jinja *j, struct call *c) {
    return value_of_str(text_case(j, c->self.s, 's'));
}

static size_t rfind(const struct str *s, size_t from, size_t end, const struct str *what) {
    for (size_t i = end - from < what->len ? from : end - what->len + 1; i-- > from;)
        if (memcmp(s->p + i, what->p, what->len) == 0)
            return i;
    return SIZE_MAX;
}

static struct value split(struct jinja *j, struct call *c, bool right) {
    const struct str *s = c->self.s, *sep = NULL;
    int64_t max = want_int(j, c->args[1], -1);
    struct list *parts = list_new(j), *l = list_new(j);
    size_t from = 0, to = s->len;
    if (c->args[0].kind != V_ABSENT && c->args[0].kind != V_NULL)
        sep = want_str(j, c->args[0]);
    if (sep && sep->len == 0)
        jinja_fail(j, STATUS_INVALID, "empty separator");
    jinja_bytes(j, s->len);
    if (sep && right)
        jinja_steps(j, (s->len >> 10) * (sep->len >> 3)); // the plain search is quadratic
    while (sep && max != 0) {
        size_t at = right ? rfind(s, from, to, sep) : str_find(s, from, sep);
        if (at == SIZE_MAX)
            break;
        list_add(j, parts,
                 value_of_str(right ? str_part(j, s, at + sep->len, to) : str_part(j, s, from, at)));
        if (right)
            to = at;
        else
            from = at + sep->len;
        max -= max > 0;
    }
    while (!sep) { // by white space: none of it in the parts, no part empty
        struct str *rest = text_strip(j, str_part(j, s, from, to), NULL, !right, right);
        if (rest->len == 0)
            return value_of_list(V_LIST, parts);
        from = (size_t)(rest->p - s->p);
        to = from + rest->len;
        size_t i = right ? to : from, n;
        if (max == 0)
            break;
        for (; right ? i > from : i < to; i = right ? i : i + n) {
            size_t at = right ? i - 1 : i;
            while (right && ((unsigned char)s->p[at] & 0xc0) == 0x80)
                at--;
            if (text_is_space(utf8_decode(s->p + at, &n)))
                break;
            if (right)
                i = at;
        }
        list_add(j, parts, value_of_str(right ? str_part(j, s, i, to) : str_part(j, s, from, i)));
        if (right)
            to = i;
        else
            from = i;
        max -= max > 0;
    }
    list_add(j, parts, value_of_str(str_part(j, s, from, to)));
    for (size_t i = 0; right && i < parts->len; i++)
        list_add(j, l, parts->v[parts->len - 1 - i]);
    return value_of_list(V_LIST, right ? l : parts);
}

static struct value str_split(struct jinja *j, struct call *c) { return split(j, c, false); }
static struct value str_rsplit(struct jinja *j, struct call *c) { return split(j, c, true); }

static struct value str_splitlines(struct jinja *j, struct call *c) {
    return value_of_list(V_LIST, text_lines(j, c->self.s, value_truth(c->args[0])));
}

static struct value partition(struct jinja *j, struct call *c, bool right) {
    const struct str *s = c->self.s, *sep = want_str(j, c->args[0]);
    if (sep->len == 0)
        jinja_fail(j, STATUS_INVALID, "empty separator");
    jinja_steps(j, 1 + (s->len >> 10) * (right ? 1 + (sep->len >> 3) : 1));
    size_t at = right ? rfind(s, 0, s->len, sep) : str_find(s, 0, sep);
    bool found = at != SIZE_MAX;
    if (!found)
        at = right ? 0 : s->len;
    struct list *l = list_new(j);
    list_add(j, l, value_of_str(str_part(j, s, 0, at)));
    list_add(j, l, value_of_str(str_part(j, s, at, found ? at + sep->len : at)));
    list_add(j, l, value_of_str(str_part(j, s, found ? at + sep->len : at, s->len)));
    return value_of_list(V_TUPLE, l);
}

static struct value str_partition(struct jinja *j, struct call *c) { return partition(j, c, false); }
static struct value str_rpartition(struct jinja *j, struct call *c) { return partition(j, c, true); }

static bool has_end(const struct str *s, const struct str *what, bool at_end) {
    return what->len <= s->len && memcmp(at_end ? s->p + s->len - what->len : s->p, what->p, what->len) == 0;
}

static struct value ends(struct jinja *j, struct call *c, bool at_end) {
    if (c->args[0].kind != V_TUPLE)
        return value_of_bool(has_end(c->self.s, want_str(j, c->args[0]), at_end));
    for (size_t i = 0; i < c->args[0].l->len; i++)
        if (has_end(c->self.s, want_str(j, c->args[0].l->v[i]), at_end))
            return value_of_bool(true);
    return value_of_bool(false);
}

static struct value str_startswith(struct jinja *j, struct call *c) { return ends(j, c, false); }
static struct value str_endswith(struct jinja *j, struct call *c) { return ends(j, c, true); }

static struct value str_removeprefix(struct jinja *j, struct call *c) {
    const struct str *s = c->self.s, *what = want_str(j, c->args[0]);
    return value_of_str(str_part(j, s, has_end(s, what, false) ? what->len : 0, s->len));
}

static struct value str_removesuffix(struct jinja *j, struct call *c) {
    const struct str *s = c->self.s, *what = want_str(j, c->args[0]);
    return value_of_str(str_part(j, s, 0, has_end(s, what, true) ? s->len - what->len : s->len));
}

static struct value str_replace(struct jinja *j, struct call *c) {
    const struct str *from = want_str(j, c->args[0]), *to = want_str(j, c->args[1]);
    return value_of_str(text_replace(j, c->self.s, from, to, want_int(j, c->args[2], -1)));
}

static struct value find(struct jinja *j, struct call *c, bool right, bool must) {
    const struct str *s = c->self.s, *what = want_str(j, c->args[0]);
    struct value from = c->args[1].kind == V_ABSENT ? value_null() : c->args[1];
    struct value to = c->args[2].kind == V_ABSENT ? value_null() : c->args[2];
    const struct str *part = jinja_slice(j, c->self, from, to, value_null()).s;
    jinja_steps(j, 1 + (part->len >> 10) * (right ? 1 + (what->len >> 3) : 1));
    size_t at = right ? rfind(part, 0, part->len, what) : str_find(part, 0, what);
    if (at == SIZE_MAX && must)
        jinja_fail(j, STATUS_INVALID, "substring not found");
    if (at == SIZE_MAX)
        return value_of_int(-1);
    return value_of_int((int64_t)str_count(j, str_part(j, s, 0, (size_t)(part->p - s->p) + at)));
}

static struct value str_find_(struct jinja *j, struct call *c) { return find(j, c, false, false); }
static struct value str_rfind(struct jinja *j, struct call *c) { return find(j, c, true, false); }
static struct value str_index(struct jinja *j, struct call *c) { return find(j, c, false, true); }
static struct value str_rindex(struct jinja *j, struct call *c) { return find(j, c, true, true); }

static struct value str_count_(struct jinja *j, struct call *c) {
    const struct str *s = c->self.s, *what = want_str(j, c->args[0]);
    if (what->len == 0)
        return value_of_int((int64_t)str_count(j, s) + 1);
    int64_t n = 0;
    jinja_bytes(j, s->len);
    for (size_t at = 0; (at = str_find(s, at, what)) != SIZE_MAX; at += what->len)
        n++;
    return value_of_int(n);
}

static struct value str_join(struct jinja *j, struct call *c) {
    const struct list *l = value_items(j, c->args[0]);
    struct marked b = {0};
    for (size_t i = 0; i < l->len; i++) {
        if (i)
            marked_put_str(j, &b, c->self.s);
        marked_put_str(j, &b, want_str(j, l->v[i]));
    }
    return value_of_str(marked_str(j, &b));
}

static struct value all_are(struct jinja *j, const struct str *s, bool (*is)(uint32_t)) {
    jinja_bytes(j, s->len);
    for (size_t i = 0, n; i < s->len; i += n)
        if (!is(utf8_decode(s->p + i, &n)))
            return value_of_bool(false);
    return value_of_bool(s->len > 0);
}

static bool is_alnum(uint32_t c) { return is_alpha(c) || is_digit(c); }
static struct value str_isdigit(struct jinja *j, struct call *c) { return all_are(j, c->self.s, is_digit); }
static struct value str_isalpha(struct jinja *j, struct call *c) { return all_are(j, c->self.s, is_alpha); }
static struct value str_isalnum(struct jinja *j, struct call *c) { return all_are(j, c->self.s, is_alnum); }
static struct value str_isspace(struct jinja *j, struct call *c) {
    return all_are(j, c->self.s, text_is_space);
}

static struct value one_case(struct jinja *j, const struct str *s, bool upper) {
    bool any = false;
    jinja_bytes(j, s->len);
    for (size_t i = 0, n; i < s->len; i += n) {
        uint32_t c = utf8_decode(s->p + i, &n);
        if (upper ? is_lower(c) : is_upper(c))
            return value_of_bool(false);
        any |= upper ? is_upper(c) : is_lower(c);
    }
    return value_of_bool(any);
}

static struct value str_isupper(struct jinja *j, struct call *c) { return one_case(j, c->self.s, true); }
static struct value str_islower(struct jinja *j, struct call *c) { return one_case(j, c->self.s, false); }

static struct value pad(struct jinja *j, struct call *c, char align) {
    struct marked b = {0};
    int64_t width = want_int(j, c->args[0], 0);
    text_padded(j, &b, c->self.s, width < 0 ? 0 : (size_t)width, align);
    return value_of_str(marked_str(j, &b));
}

static struct value str_ljust(struct jinja *j, struct call *c) { return pad(j, c, '<'); }
static struct value str_rjust(struct jinja *j, struct call *c) { return pad(j, c, '>'); }
static struct value str_center(struct jinja *j, struct call *c) { return pad(j, c, '^'); }

static struct value str_zfill(struct jinja *j, struct call *c) {
    struct marked b = {0};
    const struct str *s = c->self.s;
    int64_t width = want_int(j, c->args[0], 0), n = (int64_t)str_count(j, s);
    bool sign = s->len && (s->p[0] == '-' || s->p[0] == '+');
    if (width > 10000)
        jinja_fail(j, STATUS_LIMIT, "a width over 10,000");
    marked_put_part(j, &b, s, 0, sign);
    for (; n < width; n++)
        marked_puts(j, &b, "0");
    marked_put_part(j, &b, s, sign, s->len);
    return value_of_str(marked_str(j, &b));
}

const struct builtin jinja_str_methods[] = {
    {"strip", str_strip, "!chars", 0},
    {"lstrip", str_lstrip, "!chars", 0},
    {"rstrip", str_rstrip, "!chars", 0},
    {"split", str_split, "sep maxsplit", 0},
    {"rsplit", str_rsplit, "sep maxsplit", 0},
    {"splitlines", str_splitlines, "keepends", 0},
    {"partition", str_partition, "!sep", 1},
    {"rpartition", str_rpartition, "!sep", 1},
    {"startswith", str_startswith, "!prefix", 1},
    {"endswith", str_endswith, "!suffix", 1},
    {"removeprefix", str_removeprefix, "!prefix", 1},
    {"removesuffix", str_removesuffix, "!suffix", 1},
    {"replace", str_replace, "!old new count", 2},
    {"upper", str_upper, "!", 0},
    {"lower", str_lower, "!", 0},
    {"casefold", str_lower, "!", 0},
    {"title", str_title, "!", 0},
    {"capitalize", str_capitalize, "!", 0},
    {"swapcase", str_swapcase, "!", 0},
    {"find", str_find_, "!sub start end", 1},
    {"rfind", str_rfind, "!sub start end", 1},
    {"index", str_index, "!sub start end", 1},
    {"rindex", str_rindex, "!sub start end", 1},
    {"count", str_count_, "!sub", 1},
    {"join", str_join, "!iterable", 1},
    {"format", str_format, "*", 0},
    {"isdigit", str_isdigit, "!", 0},
    {"isdecimal", str_isdigit, "!", 0},
    {"isnumeric", str_isdigit, "!", 0},
    {"isalpha", str_isalpha, "!", 0},
    {"isalnum", str_isalnum, "!", 0},
    {"isspace", str_isspace, "!", 0},
    {"isupper", str_isupper, "!", 0},
    {"islower", str_islower, "!", 0},
    {"ljust", str_ljust, "!width", 1},
    {"rjust", str_rjust, "!width", 1},
    {"center", str_center, "!width", 1},
    {"zfill", str_zfill, "!width", 1},
    {0},
};
