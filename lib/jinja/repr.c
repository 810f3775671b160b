#include "repr.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int value_format_float(char out[32], double f) {
    if (isnan(f) || isinf(f))
        return snprintf(out, 32, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
    char digits[40];
    int precision = 0;
    do // the shortest that reads back as the same number
        snprintf(digits, sizeof digits, "%.*e", precision, f);
    while (strtod(digits, NULL) != f && ++precision < 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        int decimals = precision - exponent;
        return snprintf(out, 32, "%.*f", decimals < 1 ? 1 : decimals, f);
    }
    return snprintf(out, 32, "%s", digits);
}

void value_put_int(struct jinja *j, struct marked *out, int64_t i) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)i);
    marked_puts(j, out, text);
}

void value_put_float(struct jinja *j, struct marked *out, double f) {
    char text[32];
    value_format_float(text, f);
    marked_puts(j, out, text);
}

void value_check_depth(struct jinja *j, int depth) {
    jinja_steps(j, 1);
    if (depth > JINJA_MAX_VALUE_DEPTH)
        jinja_fail(j, STATUS_LIMIT, "values nested over %d deep", JINJA_MAX_VALUE_DEPTH);
}

static bool is_printable(uint32_t c) {
    if (c < 0x20 || (c >= 0x7f && c <= 0xa0) || c == 0xad)
        return false;
    return !((c >= 0x2000 && c <= 0x200f) || (c >= 0x2028 && c <= 0x202f) || (c >= 0x205f && c <= 0x206f) ||
             c == 0x3000 || (c >= 0xe000 && c <= 0xf8ff) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb) ||
             (c >= 0xe0000 && c <= 0xe0fff) || c >= 0xf0000 || (c & 0xfffe) == 0xfffe);
}

static void repr_str(struct jinja *j, struct marked *out, const struct str *s) {
    bool single = s->len && memchr(s->p, '\'', s->len), twice = s->len && memchr(s->p, '"', s->len);
    char quote = single && !twice ? '"' : '\'';
    jinja_bytes(j, s->len);
    marked_put(j, out, &quote, 1, false);
    for (size_t i = 0, n; i < s->len; i += n) {
        uint32_t c = utf8_decode(s->p + i, &n);
        bool mark = str_mark(s, i);
        char text[12];
        if (c == '\n' || c == '\r' || c == '\t' || c == '\\' || c == (unsigned char)quote) {
            snprintf(text, sizeof text, "\\%c",
                     c == '\n'   ? 'n'
                     : c == '\r' ? 'r'
                     : c == '\t' ? 't'
                                 : (char)c);
            marked_put(j, out, text, 2, mark);
        } else if (is_printable(c)) {
            marked_put(j, out, s->p + i, n, mark);
        } else {
            int len = snprintf(text, sizeof text,
                               c < 0x100     ? "\\x%02x"
                               : c < 0x10000 ? "\\u%04x"
                                             : "\\U%08x",
                               c);
            marked_put(j, out, text, (size_t)len, mark);
        }
    }
    marked_put(j, out, &quote, 1, false);
}

void value_repr(struct jinja *j, struct marked *out, struct value v, int depth) {
    value_check_depth(j, depth);
    switch (v.kind) {
    case V_NULL: marked_puts(j, out, "None"); break;
    case V_BOOL: marked_puts(j, out, v.b ? "True" : "False"); break;
    case V_INT: value_put_int(j, out, v.i); break;
    case V_FLOAT: value_put_float(j, out, v.f); break;
    case V_STRING: repr_str(j, out, v.s); break;
    case V_UNDEFINED: marked_puts(j, out, "Undefined"); break;
    case V_LIST:
    case V_TUPLE:
        marked_puts(j, out, v.kind == V_LIST ? "[" : "(");
        for (size_t i = 0; i < v.l->len; i++) {
            if (i)
                marked_puts(j, out, ", ");
            value_repr(j, out, v.l->v[i], depth + 1);
        }
        if (v.kind == V_TUPLE && v.l->len == 1)
            marked_puts(j, out, ",");
        marked_puts(j, out, v.kind == V_LIST ? "]" : ")");
        break;
    case V_NAMESPACE:
    case V_DICT:
        marked_puts(j, out, v.kind == V_DICT ? "{" : "<Namespace {");
        for (size_t i = 0; i < v.d->len; i++) {
            if (i)
                marked_puts(j, out, ", ");
            value_repr(j, out, v.d->e[i].key, depth + 1);
            marked_puts(j, out, ": ");
            value_repr(j, out, v.d->e[i].val, depth + 1);
        }
        marked_puts(j, out, v.kind == V_DICT ? "}" : "}>");
        break;
    default: jinja_fail(j, STATUS_INVALID, "a %s cannot be printed", value_type(v));
    }
}

struct str *value_str(struct jinja *j, struct value v) {
    if (v.kind == V_STRING)
        return v.s;
    if (v.kind == V_UNDEFINED)
        return str_new(j, "", 0);
    struct marked b = {0};
    value_repr(j, &b, v, 0);
    return marked_blend(j, &b);
}

_Noreturn void jinja_fail_undefined(struct jinja *j, struct value v) {
    const struct undefined *u = v.u;
    if (u->message)
        jinja_fail(j, STATUS_INVALID, "%s", u->message);
    struct str *name = value_str(j, u->name);
    int len = (int)(name->len < 100 ? name->len : 100);
    if (!u->owner)
        jinja_fail(j, STATUS_INVALID, "'%.*s' is undefined", len, name->p);
    if (u->name.kind == V_STRING)
        jinja_fail(j, STATUS_INVALID, "'%s object' has no attribute '%.*s'", u->owner, len, name->p);
    jinja_fail(j, STATUS_INVALID, "%s object has no element %.*s", u->owner, len, name->p);
}

int64_t value_index(struct jinja *j, struct value v) {
    if (v.kind == V_UNDEFINED)
        jinja_fail_undefined(j, v);
    if (!is_integer(v))
        jinja_fail(j, STATUS_INVALID, "'%s' object cannot be interpreted as an integer", value_type(v));
    return as_int(v);
}
