#include "format.h"

#include "repr.h"
#include "str_ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

// One number by the printf conversion that `spec` describes: flags, width, precision, kind.
static void put_number(struct jinja *j, struct marked *out, const char *spec, size_t len, char kind,
                       struct value v) {
    char format[32], text[512];
    size_t n = 0, digits = 0;
    format[n++] = '%';
    for (size_t i = 0; i < len; i++) {
        digits = is_digit(spec[i]) ? digits + 1 : 0;
        if (n > 16 || digits > 2)
            jinja_fail(j, STATUS_INVALID, "a format too wide");
        format[n++] = spec[i];
    }
    if (!is_number(v))
        jinja_fail(j, STATUS_INVALID, "the format %%%c wants a number, not %s", kind, value_type(v));
    bool integer = strchr("dixX", kind) != NULL;
    if (integer)
        format[n++] = 'l', format[n++] = 'l';
    format[n++] = kind == 'i' ? 'd' : kind;
    format[n] = 0;
    double f = as_float(v);
    if (integer && v.kind == V_FLOAT && !(fabs(f) < 9e18))
        jinja_fail(j, STATUS_INVALID, "an integer over 64 bits");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (integer)
        snprintf(text, sizeof text, format, v.kind == V_FLOAT ? (long long)f : (long long)as_int(v));
    else
        snprintf(text, sizeof text, format, f);
#pragma GCC diagnostic pop
    marked_puts(j, out, text);
}

void text_padded(struct jinja *j, struct marked *out, const struct str *s, size_t width, char align) {
    size_t n = str_count(j, s), pad = width > n ? width - n : 0;
    size_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    if (width > 10000)
        jinja_fail(j, STATUS_LIMIT, "a width over 10,000");
    for (size_t i = 0; i < left; i++)
        marked_puts(j, out, " ");
    marked_put_str(j, out, s);
    for (size_t i = left; i < pad; i++)
        marked_puts(j, out, " ");
}

struct value text_percent(struct jinja *j, const struct str *s, struct value args) {
    struct marked b = {0};
    size_t used = 0;
    for (size_t i = 0; i < s->len;) {
        const char *next = memchr(s->p + i, '%', s->len - i);
        size_t at = next ? (size_t)(next - s->p) : s->len;
        marked_put_part(j, &b, s, i, at);
        i = at + 1;
        if (at == s->len)
            break;
        struct value v = args;
        bool named = i < s->len && s->p[i] == '(';
        if (named) {
            const char *close = memchr(s->p + i, ')', s->len - i);
            if (!close || args.kind != V_DICT)
                jinja_fail(j, STATUS_INVALID, "format requires a mapping");
            const struct value *member =
                dict_get_text(j->a, args.d, s->p + i + 1, (size_t)(close - s->p) - i - 1);
            if (!member)
                jinja_fail(j, STATUS_INVALID, "the format names a key that is not there");
            v = *member;
            i = (size_t)(close - s->p) + 1;
        }
        size_t spec = i, width = 0;
        while (i < s->len && s->p[i] && strchr("-+ 0#.123456789", s->p[i]))
            i++;
        char kind = i < s->len ? s->p[i++] : 0;
        if (kind == '%') {
            marked_puts(j, &b, "%");
            continue;
        }
        if (!kind || !strchr("sdifFeEgGxXr", kind))
            jinja_fail(j, STATUS_INVALID, "unsupported format character");
        if (!named && args.kind == V_TUPLE && used >= args.l->len)
            jinja_fail(j, STATUS_INVALID, "not enough arguments for format string");
        if (!named && args.kind == V_TUPLE)
            v = args.l->v[used];
        else if (!named && used)
            jinja_fail(j, STATUS_INVALID, "not enough arguments for format string");
        used++;
        if (kind != 's' && kind != 'r') {
            put_number(j, &b, s->p + spec, i - 1 - spec, kind, v);
            continue;
        }
        bool left = spec < i - 1 && s->p[spec] == '-';
        for (size_t k = spec + left; k < i - 1; k++) {
            if (!is_digit(s->p[k]) || width > 10000)
                jinja_fail(j, STATUS_INVALID, "unsupported format of a string");
            width = width * 10 + (size_t)(s->p[k] - '0');
        }
        struct marked r = {0};
        if (kind == 'r')
            value_repr(j, &r, v, 0);
        text_padded(j, &b, kind == 'r' ? marked_blend(j, &r) : value_str(j, v), width, left ? '<' : '>');
    }
    bool all =
        args.kind == V_TUPLE ? used == args.l->len : used > 0 || args.kind == V_DICT || args.kind == V_LIST;
    if (!all)
        jinja_fail(j, STATUS_INVALID, "not all arguments converted during string formatting");
    return value_of_str(marked_str(j, &b));
}

// "{}", "{0}", "{name}", with ":" and a width, ".2f", "d"; no attributes or indices.
struct value str_format(struct jinja *j, struct call *c) {
    const struct str *s = c->self.s;
    struct marked b = {0};
    size_t used = 0;
    bool numbered = false;
    for (size_t i = 0; i < s->len; i++) {
        char ch = s->p[i];
        if (ch != '{' && ch != '}') {
            marked_put(j, &b, &ch, 1, str_mark(s, i));
            continue;
        }
        if (i + 1 < s->len && s->p[i + 1] == ch) {
            marked_put(j, &b, &ch, 1, str_mark(s, i++));
            continue;
        }
        const char *close = ch == '{' ? memchr(s->p + i, '}', s->len - i) : NULL;
        if (!close)
            jinja_fail(j, STATUS_INVALID, "a single '%c' in a format string", ch);
        size_t from = i + 1, end = (size_t)(close - s->p), colon = from;
        while (colon < end && s->p[colon] != ':')
            colon++;
        struct str name = {.p = s->p + from, .len = colon - from};
        struct value v = {.kind = V_ABSENT};
        int64_t index = (int64_t)used;
        numbered |= name.len > 0 && is_digit(name.p[0]);
        if (name.len == 0 || text_parse_int(&name, 10, &index)) {
            if (index >= 0 && (size_t)index < c->num)
                v = c->args[index];
            used += name.len == 0;
        }
        if (used && numbered)
            jinja_fail(j, STATUS_INVALID, "format(): fields with and without a number");
        for (size_t k = 0; k < c->num_kw; k++)
            if (str_equal(c->kw[k].name, &name))
                v = c->kw[k].v;
        if (v.kind == V_ABSENT)
            jinja_fail(j, STATUS_INVALID, "format(): '%.*s' is no argument, or not supported",
                       (int)(name.len < 60 ? name.len : 60), name.p);
        const char *spec = s->p + colon + 1;
        size_t len = colon < end ? end - colon - 1 : 0, width = 0, k = 0;
        i = end;
        if (len && strchr("dfFeEgGxX", spec[len - 1])) {
            put_number(j, &b, spec, len - 1, spec[len - 1], v);
            continue;
        }
        char align = len && strchr("<>^", spec[0]) ? spec[k++] : is_number(v) ? '>' : '<';
        for (; k < len; k++) {
            if (!is_digit(spec[k]) || width > 10000)
                jinja_fail(j, STATUS_INVALID, "format(): ':%.*s' is not supported",
                           (int)(len < 60 ? len : 60), spec);
            width = width * 10 + (size_t)(spec[k] - '0');
        }
        text_padded(j, &b, value_str(j, v), width, align);
    }
    return value_of_str(marked_str(j, &b));
}
