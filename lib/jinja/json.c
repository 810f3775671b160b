// As the filter tojson of transformers writes them, which is Python's json.dumps. If a client wrote any of a
// text, all of it is content: its quotes and brackets belong to the client's value.
#include "json.h"

#include "compare.h"
#include "repr.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct json_layout {
    const struct str *indent; // NULL: one line
    const struct str *comma, *colon;
    bool ascii, sorted;
};

static void json_newline(struct jinja *j, struct marked *out, const struct json_layout *style, int depth) {
    if (!style->indent)
        return;
    marked_puts(j, out, "\n");
    for (int i = 0; i < depth; i++)
        marked_put_str(j, out, style->indent);
}

static void json_str(struct jinja *j, struct marked *out, const struct str *s, bool ascii) {
    static const char names[] = "\"\\\n\r\t\f\b", codes[] = "\"\\nrtfb";
    jinja_bytes(j, s->len);
    marked_puts(j, out, "\"");
    for (size_t i = 0, n; i < s->len; i += n) {
        uint32_t c = utf8_decode(s->p + i, &n);
        const char *known = c && c < 0x80 ? strchr(names, (int)c) : NULL;
        char text[16];
        int len = 0;
        if (known)
            len = snprintf(text, sizeof text, "\\%c", codes[known - names]);
        else if (c < 0x20 || (ascii && c > 0x7e && c < 0x10000 && c != 0x7f))
            len = snprintf(text, sizeof text, "\\u%04x", c);
        else if (ascii && c >= 0x10000)
            len = snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                           0xdc00 + (c & 0x3ff));
        marked_put(j, out, len ? text : s->p + i, len ? (size_t)len : n, str_mark(s, i));
    }
    marked_puts(j, out, "\"");
}

static void json_key(struct jinja *j, struct marked *out, struct value key, bool ascii) {
    char text[32];
    switch (key.kind) {
    case V_STRING: json_str(j, out, key.s, ascii); return;
    case V_NULL: marked_puts(j, out, "\"null\""); return;
    case V_BOOL: marked_puts(j, out, key.b ? "\"true\"" : "\"false\""); return;
    case V_INT: snprintf(text, sizeof text, "%lld", (long long)key.i); break;
    case V_FLOAT: value_format_float(text, key.f); break;
    default:
        jinja_fail(j, STATUS_INVALID, "keys must be str, int, float, bool or None, not %s", value_type(key));
    }
    marked_puts(j, out, "\"");
    marked_puts(j, out, text);
    marked_puts(j, out, "\"");
}

static void json_value(struct jinja *j, struct marked *out, struct value v, const struct json_layout *style,
                       int depth);

static void json_dict(struct jinja *j, struct marked *out, const struct dict *d,
                      const struct json_layout *style, int depth) {
    const struct list *keys = value_items(j, value_of_dict((struct dict *)d));
    if (style->sorted)
        keys = value_sorted(j, keys, keys, false);
    marked_puts(j, out, "{");
    for (size_t i = 0; i < keys->len; i++) {
        if (i)
            marked_put_str(j, out, style->comma);
        json_newline(j, out, style, depth + 1);
        json_key(j, out, keys->v[i], style->ascii);
        marked_put_str(j, out, style->colon);
        json_value(j, out, *dict_get(j, d, keys->v[i]), style, depth + 1);
    }
    if (keys->len)
        json_newline(j, out, style, depth);
    marked_puts(j, out, "}");
}

static void json_value(struct jinja *j, struct marked *out, struct value v, const struct json_layout *style,
                       int depth) {
    value_check_depth(j, depth);
    switch (v.kind) {
    case V_NULL: marked_puts(j, out, "null"); break;
    case V_BOOL: marked_puts(j, out, v.b ? "true" : "false"); break;
    case V_INT: value_put_int(j, out, v.i); break;
    case V_FLOAT:
        if (isfinite(v.f))
            value_put_float(j, out, v.f);
        else
            marked_puts(j, out, isnan(v.f) ? "NaN" : v.f < 0 ? "-Infinity" : "Infinity");
        break;
    case V_STRING: json_str(j, out, v.s, style->ascii); break;
    case V_LIST:
    case V_TUPLE:
        marked_puts(j, out, "[");
        for (size_t i = 0; i < v.l->len; i++) {
            if (i)
                marked_put_str(j, out, style->comma);
            json_newline(j, out, style, depth + 1);
            json_value(j, out, v.l->v[i], style, depth + 1);
        }
        if (v.l->len)
            json_newline(j, out, style, depth);
        marked_puts(j, out, "]");
        break;
    case V_DICT: json_dict(j, out, v.d, style, depth); break;
    default: jinja_fail(j, STATUS_INVALID, "Object of type %s is not JSON serializable", value_type(v));
    }
}

// tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)
struct value filter_tojson(struct jinja *j, struct call *c) {
    struct value indent = c->args[1], separators = c->args[2];
    struct json_layout style = {.ascii = value_truth(c->args[0]), .sorted = value_truth(c->args[3])};
    if (indent.kind == V_STRING) {
        style.indent = indent.s;
    } else if (is_integer(indent)) {
        struct marked b = {0};
        int64_t n = as_int(indent) < 0 ? 0 : as_int(indent);
        if (n > 1000)
            jinja_fail(j, STATUS_LIMIT, "an indent over 1,000");
        for (int64_t i = 0; i < n; i++)
            marked_puts(j, &b, " ");
        style.indent = marked_str(j, &b);
    } else if (is_given(indent)) {
        jinja_fail(j, STATUS_INVALID, "tojson: an indent of type %s", value_type(indent));
    }
    style.comma = style.indent ? str_new(j, ",", 1) : str_new(j, ", ", 2);
    style.colon = str_new(j, ": ", 2);
    if (is_given(separators)) {
        const struct list *l = value_items(j, separators);
        if (l->len != 2 || l->v[0].kind != V_STRING || l->v[1].kind != V_STRING)
            jinja_fail(j, STATUS_INVALID, "tojson: separators are two strings");
        style.comma = l->v[0].s;
        style.colon = l->v[1].s;
    }
    struct marked out = {0};
    json_value(j, &out, c->self, &style, 0);
    return value_of_str(marked_blend(j, &out));
}
