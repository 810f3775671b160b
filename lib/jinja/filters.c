// In Jinja's order of arguments. Those that give a generator in Jinja give one here: it can be read once and
// has no length, and templates that were tested elsewhere notice.
#include "filters.h"

#include "compare.h"
#include "format.h"
#include "json.h"
#include "operators.h"
#include "repr.h"
#include "str_ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FILTER(name) static struct value filter_##name(struct jinja *j, struct call *c)

static const struct str *self_str(struct jinja *j, struct call *c) { return value_str(j, c->self); }

static int64_t int_arg(struct jinja *j, struct value v, int64_t absent) {
    if (!is_given(v))
        return absent;
    if (!is_integer(v))
        jinja_fail(j, STATUS_INVALID, "expected an int, not %s", value_type(v));
    return as_int(v);
}

// The items that select, reject and map iterate over: none, if the value is false.
static struct list *items_if_true(struct jinja *j, struct value v) {
    return value_truth(v) ? value_items(j, v) : list_new(j);
}

// item.a.0.b, by a path or a number
static struct value attr_path(struct jinja *j, struct value item, struct value path) {
    if (path.kind != V_STRING)
        return jinja_item(j, item, path);
    for (size_t at = 0; at <= path.s->len;) {
        const char *dot = at < path.s->len ? memchr(path.s->p + at, '.', path.s->len - at) : NULL;
        size_t end = dot ? (size_t)(dot - path.s->p) : path.s->len;
        struct str *name = str_part(j, path.s, at, end);
        int64_t index;
        bool is_index =
            name->len && name->p[0] >= '0' && name->p[0] <= '9' && text_parse_int(name, 10, &index);
        item = jinja_item(j, item, is_index ? value_of_int(index) : value_of_str(name));
        at = end + 1;
    }
    return item;
}

// The key that a sort compares: the attribute if one is given; case is ignored unless case_sensitive.
static struct value sort_key(struct jinja *j, struct value v, struct value attribute, bool case_sensitive) {
    if (is_given(attribute) && attribute.kind == V_STRING && attribute.s->len &&
        memchr(attribute.s->p, ',', attribute.s->len)) {
        struct list *keys = list_new(j);
        for (size_t at = 0; at <= attribute.s->len;) {
            const char *comma =
                at < attribute.s->len ? memchr(attribute.s->p + at, ',', attribute.s->len - at) : NULL;
            size_t end = comma ? (size_t)(comma - attribute.s->p) : attribute.s->len;
            list_add(j, keys,
                     sort_key(j, v, value_of_str(str_part(j, attribute.s, at, end)), case_sensitive));
            at = end + 1;
        }
        return value_of_list(V_LIST, keys);
    }
    if (is_given(attribute))
        v = attr_path(j, v, attribute);
    return v.kind == V_STRING && !case_sensitive ? value_of_str(text_case(j, v.s, CASE_LOWER)) : v;
}

static struct list *sort_keys(struct jinja *j, const struct list *items, struct value attribute,
                              bool case_sensitive) {
    struct list *keys = list_new(j);
    for (size_t i = 0; i < items->len; i++)
        list_add(j, keys, sort_key(j, items->v[i], attribute, case_sensitive));
    return keys;
}

// ---- text

FILTER(trim) {
    bool all = !is_given(c->args[0]);
    return value_of_str(text_strip(j, self_str(j, c), all ? NULL : value_str(j, c->args[0]), true, true));
}

FILTER(upper) { return value_of_str(text_case(j, self_str(j, c), CASE_UPPER)); }
FILTER(lower) { return value_of_str(text_case(j, self_str(j, c), CASE_LOWER)); }
FILTER(capitalize) { return value_of_str(text_case(j, self_str(j, c), CASE_CAPITALIZE)); }
FILTER(string) { return value_of_str(value_str(j, c->self)); }

FILTER(title) { // its words end at white space, a hyphen or an opening bracket
    const struct str *s = self_str(j, c);
    struct marked b = {0};
    bool word = true;
    for (size_t i = 0, n; i < s->len; i += n) {
        uint32_t code = utf8_decode(s->p + i, &n);
        marked_put_str(j, &b, text_case(j, str_part(j, s, i, i + n), word ? CASE_UPPER : CASE_LOWER));
        word = text_is_space(code) || (code < 0x80 && code && strchr("-({[<", (int)code));
    }
    return value_of_str(marked_str(j, &b));
}

FILTER(replace) {
    const struct str *from = value_str(j, c->args[0]), *to = value_str(j, c->args[1]);
    return value_of_str(text_replace(j, self_str(j, c), from, to, int_arg(j, c->args[2], -1)));
}

FILTER(safe) {
    const struct str *s = self_str(j, c);
    struct str *r = str_part(j, s, 0, s->len);
    r->safe = true;
    return value_of_str(r);
}

FILTER(escape) {
    const struct str *s = self_str(j, c);
    return s->safe ? value_of_str(str_part(j, s, 0, s->len)) : value_of_str(text_escape(j, s));
}

FILTER(forceescape) { return value_of_str(text_escape(j, self_str(j, c))); }

FILTER(indent) { // width=4, first=False, blank=False
    const struct str *s = self_str(j, c), *width;
    bool first = value_truth(c->args[1]), blank = value_truth(c->args[2]);
    struct marked spaces = {0}, b = {0};
    if (c->args[0].kind == V_STRING) {
        width = c->args[0].s;
    } else {
        int64_t n = int_arg(j, c->args[0], 4);
        if (n > 10000)
            jinja_fail(j, STATUS_LIMIT, "a width over 10,000");
        for (; n > 0; n--)
            marked_puts(j, &spaces, " ");
        width = marked_str(j, &spaces);
    }
    const struct list *lines = text_lines(j, str_concat(j, s, str_new(j, "\n", 1)), false);
    for (size_t i = 0; i < lines->len; i++) {
        if (i)
            marked_puts(j, &b, "\n");
        if (i ? blank || lines->v[i].s->len : first)
            marked_put_str(j, &b, width);
        marked_put_str(j, &b, lines->v[i].s);
    }
    return value_of_str(marked_str(j, &b));
}

FILTER(truncate) { // length=255, killwords=False, end='...', leeway=5
    const struct str *s = self_str(j, c);
    const struct str *end = is_given(c->args[2]) ? value_str(j, c->args[2]) : str_new(j, "...", 3);
    int64_t length = int_arg(j, c->args[0], 255), keep = length - (int64_t)str_count(j, end);
    if (length < 0 || keep < 0)
        jinja_fail(j, STATUS_INVALID, "truncate: a length under that of its end");
    if ((int64_t)str_count(j, s) <= length + int_arg(j, c->args[3], 5))
        return value_of_str(str_part(j, s, 0, s->len));
    const struct str *part =
        jinja_slice(j, value_of_str((struct str *)s), value_null(), value_of_int(keep), value_null()).s;
    size_t at = part->len;
    while (!value_truth(c->args[1]) && at > 0 && part->p[at - 1] != ' ')
        at--;
    return value_of_str(str_concat(j, str_part(j, part, 0, at ? at - (at < part->len) : part->len), end));
}

FILTER(wordcount) {
    const struct str *s = self_str(j, c);
    int64_t n = 0;
    bool in_word = false;
    jinja_bytes(j, s->len);
    for (size_t i = 0, len; i < s->len; i += len) {
        bool is_word = text_is_word(utf8_decode(s->p + i, &len));
        n += is_word && !in_word;
        in_word = is_word;
    }
    return value_of_int(n);
}

FILTER(format) {
    if (c->num && c->num_kw)
        jinja_fail(j, STATUS_INVALID, "format: positional and keyword arguments at once");
    if (c->num_kw) {
        struct dict *d = dict_new(j);
        for (size_t i = 0; i < c->num_kw; i++)
            dict_set(j, d, value_of_str(str_part(j, c->kw[i].name, 0, c->kw[i].name->len)), c->kw[i].v);
        return text_percent(j, self_str(j, c), value_of_dict(d));
    }
    struct list *l = list_new(j);
    for (size_t i = 0; i < c->num; i++)
        list_add(j, l, c->args[i]);
    return text_percent(j, self_str(j, c), value_of_list(V_TUPLE, l));
}

FILTER(join) { // d='', attribute=None
    const struct list *l = value_items(j, c->self);
    const struct str *sep = c->args[0].kind != V_ABSENT ? value_str(j, c->args[0]) : str_new(j, "", 0);
    struct marked b = {0};
    for (size_t i = 0; i < l->len; i++) {
        if (i)
            marked_put_str(j, &b, sep);
        marked_put_str(j, &b,
                       value_str(j, is_given(c->args[1]) ? attr_path(j, l->v[i], c->args[1]) : l->v[i]));
    }
    return value_of_str(marked_str(j, &b));
}

// ---- numbers

FILTER(int) { // default=0, base=10
    struct value absent = c->args[0].kind == V_ABSENT ? value_of_int(0) : c->args[0];
    int64_t i, base = int_arg(j, c->args[1], 10);
    double f;
    if (is_integer(c->self))
        return value_of_int(as_int(c->self));
    if (base < 2 || base > 36)
        jinja_fail(j, STATUS_INVALID, "int: a base that is not from 2 to 36");
    if (c->self.kind == V_UNDEFINED)
        jinja_fail_undefined(j, c->self);
    if (c->self.kind == V_STRING && text_parse_int(c->self.s, (int)base, &i))
        return value_of_int(i);
    if (c->self.kind == V_FLOAT)
        f = c->self.f;
    else if (c->self.kind != V_STRING || !text_parse_float(c->self.s, &f))
        return absent;
    if (isnan(f) || isinf(f))
        return absent;
    if (fabs(f) >= 9.2e18)
        jinja_fail(j, STATUS_INVALID, "an integer over 64 bits");
    return value_of_int((int64_t)f);
}

FILTER(float) { // default=0.0
    double f;
    if (c->self.kind == V_UNDEFINED)
        jinja_fail_undefined(j, c->self);
    if (is_number(c->self))
        return value_of_float(as_float(c->self));
    if (c->self.kind == V_STRING && text_parse_float(c->self.s, &f))
        return value_of_float(f);
    return c->args[0].kind == V_ABSENT ? value_of_float(0) : c->args[0];
}

static void want_number(struct jinja *j, struct value v) {
    if (v.kind == V_UNDEFINED)
        jinja_fail_undefined(j, v);
    if (!is_number(v))
        jinja_fail(j, STATUS_INVALID, "expected a number, not %s", value_type(v));
}

FILTER(abs) {
    want_number(j, c->self);
    if (c->self.kind == V_FLOAT)
        return value_of_float(fabs(c->self.f));
    return as_int(c->self) < 0 ? jinja_binary(j, '-', value_of_int(0), c->self)
                               : value_of_int(as_int(c->self));
}

FILTER(round) { // precision=0, method='common'
    int64_t precision = int_arg(j, c->args[0], 0);
    const struct str *method = is_given(c->args[1]) ? value_str(j, c->args[1]) : NULL;
    bool ceiling = method && str_is(method, "ceil"), down = method && str_is(method, "floor");
    char text[400];
    want_number(j, c->self);
    if (method && !ceiling && !down && !str_is(method, "common"))
        jinja_fail(j, STATUS_INVALID, "round: method must be common, ceil or floor");
    if (precision < -15 || precision > 15)
        jinja_fail(j, STATUS_INVALID, "round: a precision that is not from -15 to 15");
    if (is_integer(c->self) && !ceiling && !down && precision >= 0)
        return value_of_int(as_int(c->self));
    double f = as_float(c->self), scale = pow(10, (double)precision), r = f * scale;
    if (ceiling || down)
        return value_of_float((ceiling ? ceil(r) : floor(r)) / scale);
    if (precision < 0) {
        double rounded = nearbyint(r) / scale;
        return is_integer(c->self) ? value_of_int((int64_t)rounded) : value_of_float(rounded);
    }
    struct str s = {.p = text, .len = (size_t)snprintf(text, sizeof text, "%.*f", (int)precision, f)};
    return text_parse_float(&s, &r) ? value_of_float(r) : value_of_float(f);
}

FILTER(sum) { // attribute=None, start=0
    const struct list *l = value_items(j, c->self);
    struct value sum = c->args[1].kind == V_ABSENT ? value_of_int(0) : c->args[1];
    for (size_t i = 0; i < l->len; i++) {
        struct value v = is_given(c->args[0]) ? attr_path(j, l->v[i], c->args[0]) : l->v[i];
        if (v.kind == V_STRING || sum.kind == V_STRING)
            jinja_fail(j, STATUS_INVALID, "sum: strings cannot be added up");
        sum = jinja_binary(j, '+', sum, v);
    }
    return sum;
}

// case_sensitive=False, attribute=None
static struct value list_extreme(struct jinja *j, struct call *c, int wanted) {
    const struct list *l = value_items(j, c->self);
    if (l->len == 0)
        return value_undefined(j, value_type(c->self), value_of_int(0));
    const struct list *keys = sort_keys(j, l, c->args[1], value_truth(c->args[0]));
    size_t best = 0;
    for (size_t i = 1; i < l->len; i++)
        if (value_order(j, keys->v[i], keys->v[best], "<", 0) == wanted)
            best = i;
    return l->v[best];
}

FILTER(min) { return list_extreme(j, c, -1); }
FILTER(max) { return list_extreme(j, c, 1); }

// ---- collections

FILTER(length) {
    if (c->self.kind == V_STRING)
        return value_of_int((int64_t)str_count(j, c->self.s));
    if (c->self.kind == V_DICT)
        return value_of_int((int64_t)c->self.d->len);
    if (c->self.kind == V_UNDEFINED)
        return value_of_int(0);
    if (c->self.kind == V_LOOP)
        return value_of_int((int64_t)c->self.loop->items->len);
    if (!is_listlike(c->self) || c->self.kind == V_GENERATOR)
        jinja_fail(j, STATUS_INVALID, "object of type '%s' has no len()", value_type(c->self));
    return value_of_int((int64_t)c->self.l->len);
}

FILTER(default) { // default_value='', boolean=False
    bool take = c->self.kind == V_UNDEFINED || (value_truth(c->args[1]) && !value_truth(c->self));
    return !take ? c->self : c->args[0].kind == V_ABSENT ? value_text(j, "") : c->args[0];
}

static struct value list_end(struct jinja *j, struct call *c, bool last) {
    if (last && c->self.kind == V_GENERATOR)
        jinja_fail(j, STATUS_INVALID, "'generator' object is not reversible");
    const struct list *l = value_items(j, c->self);
    if (l->len == 0) {
        struct value u = value_undefined(j, NULL, value_null());
        u.u->message = "No first item, sequence was empty.";
        return u;
    }
    return l->v[last ? l->len - 1 : 0];
}

FILTER(first) { return list_end(j, c, false); }
FILTER(last) { return list_end(j, c, true); }
FILTER(list) { return value_of_list(V_LIST, list_copy(j, value_items(j, c->self))); }

FILTER(reverse) {
    const struct list *l = value_items(j, c->self);
    struct list *r = list_new(j);
    struct marked b = {0};
    for (size_t i = l->len; i-- > 0;) {
        if (c->self.kind == V_STRING)
            marked_put_str(j, &b, l->v[i].s);
        else
            list_add(j, r, l->v[i]);
    }
    return c->self.kind == V_STRING ? value_of_str(marked_str(j, &b)) : value_of_list(V_GENERATOR, r);
}

FILTER(items) {
    if (c->self.kind != V_DICT && c->self.kind != V_UNDEFINED)
        jinja_fail(j, STATUS_INVALID, "Can only get item pairs from a mapping.");
    return value_of_list(V_GENERATOR, c->self.kind == V_DICT ? dict_pairs(j, c->self.d) : list_new(j));
}

FILTER(dictsort) { // case_sensitive=False, by='key', reverse=False
    const struct str *by = is_given(c->args[1]) ? value_str(j, c->args[1]) : NULL;
    bool by_value = by && str_is(by, "value");
    if (by && !by_value && !str_is(by, "key"))
        jinja_fail(j, STATUS_INVALID, "dictsort: by is 'key' or 'value'");
    if (c->self.kind == V_UNDEFINED)
        jinja_fail_undefined(j, c->self);
    struct value pairs = filter_items(j, c);
    struct list *keys = sort_keys(j, pairs.l, value_of_int(by_value), value_truth(c->args[0]));
    return value_of_list(V_LIST, value_sorted(j, keys, pairs.l, value_truth(c->args[2])));
}

FILTER(sort) { // reverse=False, case_sensitive=False, attribute=None
    const struct list *l = value_items(j, c->self);
    const struct list *keys = sort_keys(j, l, c->args[2], value_truth(c->args[1]));
    struct list *wrapped = list_new(j); // as in Jinja, so that equal values need no order
    for (size_t i = 0; i < keys->len; i++) {
        struct list *one = list_new(j);
        list_add(j, one, keys->v[i]);
        list_add(j, wrapped, value_of_list(V_LIST, one));
    }
    return value_of_list(V_LIST, value_sorted(j, wrapped, l, value_truth(c->args[0])));
}

FILTER(unique) { // case_sensitive=False, attribute=None
    const struct list *l = value_items(j, c->self);
    const struct list *keys = sort_keys(j, l, c->args[1], value_truth(c->args[0]));
    struct dict *seen = dict_new(j);
    struct list *r = list_new(j);
    for (size_t i = 0; i < l->len; i++) {
        if (dict_get(j, seen, keys->v[i]))
            continue;
        dict_set(j, seen, keys->v[i], value_null());
        list_add(j, r, l->v[i]);
    }
    return value_of_list(V_GENERATOR, r);
}

FILTER(groupby) { // attribute, default=None, case_sensitive=False
    const struct list *l = value_items(j, c->self);
    const struct list *keys = sort_keys(j, l, c->args[0], value_truth(c->args[2]));
    const struct list *sorted = value_sorted(j, keys, l, false);
    struct list *groups = list_new(j), *group = NULL;
    struct value last = value_null();
    for (size_t i = 0; i < sorted->len; i++) {
        struct value key = sort_key(j, sorted->v[i], c->args[0], value_truth(c->args[2]));
        if (!group || !value_equal(j, key, last, 0)) {
            group = list_new(j);
            list_add(j, groups,
                     value_pair(j, attr_path(j, sorted->v[i], c->args[0]), value_of_list(V_LIST, group)));
        }
        list_add(j, group, sorted->v[i]);
        last = key;
    }
    return value_of_list(V_LIST, groups);
}

FILTER(batch) { // linecount, fill_with=None
    const struct list *l = value_items(j, c->self);
    struct list *rows = list_new(j), *row = NULL;
    int64_t n = int_arg(j, c->args[0], 0);
    if (n < 1 || n > JINJA_MAX_RANGE)
        jinja_fail(j, STATUS_INVALID, "batch: a count that is not from 1 to %d", JINJA_MAX_RANGE);
    for (size_t i = 0; i < l->len; i++) {
        if (!row || row->len == (size_t)n) {
            row = list_new(j);
            list_add(j, rows, value_of_list(V_LIST, row));
        }
        list_add(j, row, l->v[i]);
    }
    while (row && is_given(c->args[1]) && row->len < (size_t)n)
        list_add(j, row, c->args[1]);
    return value_of_list(V_GENERATOR, rows);
}

FILTER(map) { // attribute=…, default=…, or the name of a filter and its arguments
    const struct list *l = items_if_true(j, c->self);
    struct list *r = list_new(j);
    struct value attribute = {.kind = V_ABSENT}, absent = {.kind = V_ABSENT};
    const struct builtin *f = NULL;
    for (size_t i = 0; c->num == 0 && i < c->num_kw; i++) {
        if (str_is(c->kw[i].name, "attribute"))
            attribute = c->kw[i].v;
        else if (str_is(c->kw[i].name, "default"))
            absent = c->kw[i].v;
        else
            jinja_fail(j, STATUS_INVALID, "map: unexpected keyword argument");
    }
    if (c->num) {
        const struct str *name = value_str(j, c->args[0]);
        f = builtin_find(j->lib->filters, name->p, name->len);
        if (!f)
            jinja_fail(j, STATUS_INVALID, "the filter '%.*s' is not supported",
                       (int)(name->len < 60 ? name->len : 60), name->p);
    } else if (attribute.kind == V_ABSENT) {
        jinja_fail(j, STATUS_INVALID, "map requires a filter argument");
    }
    if (j->depth >= JINJA_MAX_EVAL_DEPTH - 8) // map('map', 'map' …)
        jinja_fail(j, STATUS_LIMIT, "nested over %d deep while running", JINJA_MAX_EVAL_DEPTH);
    j->depth += 8;
    for (size_t i = 0; i < l->len; i++) {
        struct call one = {.self = l->v[i],
                           .args = f ? c->args + 1 : NULL,
                           .num = f ? c->num - 1 : 0,
                           .kw = c->kw,
                           .num_kw = c->num_kw};
        struct value v = f ? builtin_call(j, f, &one) : attr_path(j, l->v[i], attribute);
        if (!f && v.kind == V_UNDEFINED && absent.kind != V_ABSENT)
            v = absent;
        list_add(j, r, v);
    }
    j->depth -= 8;
    return value_of_list(V_GENERATOR, r);
}

// select, reject and their attr forms: the arguments after `skip` are a test's name and its arguments; no
// test: truth.
static struct value filter_by_test(struct jinja *j, struct call *c, bool keep, size_t skip) {
    const struct list *l = items_if_true(j, c->self);
    struct list *r = list_new(j);
    const struct builtin *test = NULL;
    if (c->num < skip)
        jinja_fail(j, STATUS_INVALID, "missing parameter for attribute name");
    if (c->num > skip) {
        const struct str *name = value_str(j, c->args[skip]);
        test = builtin_find(j->lib->tests, name->p, name->len);
        if (!test)
            jinja_fail(j, STATUS_INVALID, "the test '%.*s' is not supported",
                       (int)(name->len < 60 ? name->len : 60), name->p);
    }
    for (size_t i = 0; i < l->len; i++) {
        struct value v = skip ? attr_path(j, l->v[i], c->args[0]) : l->v[i];
        if (test) {
            struct call one = {.self = v,
                               .args = c->args + skip + 1,
                               .num = c->num - skip - 1,
                               .kw = c->kw,
                               .num_kw = c->num_kw};
            v = builtin_call(j, test, &one);
        }
        if (value_truth(v) == keep)
            list_add(j, r, l->v[i]);
    }
    return value_of_list(V_GENERATOR, r);
}

FILTER(select) { return filter_by_test(j, c, true, 0); }
FILTER(reject) { return filter_by_test(j, c, false, 0); }
FILTER(selectattr) { return filter_by_test(j, c, true, 1); }
FILTER(rejectattr) { return filter_by_test(j, c, false, 1); }

FILTER(attr) {
    const struct str *name = value_str(j, c->args[0]);
    // Attributes only, no members.
    if (c->self.kind == V_DICT && !builtin_method(j->lib, V_DICT, name->p, name->len))
        return value_undefined(j, "dict", c->args[0]);
    return jinja_attr(j, c->self, name);
}

const struct builtin jinja_filters[] = {
    {"abs", filter_abs, "", 0},
    {"attr", filter_attr, "name", 1},
    {"batch", filter_batch, "linecount fill_with", 1},
    {"capitalize", filter_capitalize, "", 0},
    {"count", filter_length, "", 0},
    {"d", filter_default, "default_value boolean", 0},
    {"default", filter_default, "default_value boolean", 0},
    {"dictsort", filter_dictsort, "case_sensitive by reverse", 0},
    {"e", filter_escape, "", 0},
    {"escape", filter_escape, "", 0},
    {"first", filter_first, "", 0},
    {"float", filter_float, "default", 0},
    {"forceescape", filter_forceescape, "", 0},
    {"format", filter_format, "*", 0},
    {"groupby", filter_groupby, "attribute default case_sensitive", 1},
    {"indent", filter_indent, "width first blank", 0},
    {"int", filter_int, "default base", 0},
    {"items", filter_items, "", 0},
    {"join", filter_join, "d attribute", 0},
    {"last", filter_last, "", 0},
    {"length", filter_length, "", 0},
    {"list", filter_list, "", 0},
    {"lower", filter_lower, "", 0},
    {"map", filter_map, "*", 0},
    {"max", filter_max, "case_sensitive attribute", 0},
    {"min", filter_min, "case_sensitive attribute", 0},
    {"reject", filter_reject, "*", 0},
    {"rejectattr", filter_rejectattr, "*", 0},
    {"replace", filter_replace, "old new count", 2},
    {"reverse", filter_reverse, "", 0},
    {"round", filter_round, "precision method", 0},
    {"safe", filter_safe, "", 0},
    {"select", filter_select, "*", 0},
    {"selectattr", filter_selectattr, "*", 0},
    {"sort", filter_sort, "reverse case_sensitive attribute", 0},
    {"string", filter_string, "", 0},
    {"sum", filter_sum, "attribute start", 0},
    {"title", filter_title, "", 0},
    {"tojson", filter_tojson, "ensure_ascii indent separators sort_keys", 0},
    {"trim", filter_trim, "chars", 0},
    {"truncate", filter_truncate, "length killwords end leeway", 0},
    {"unique", filter_unique, "case_sensitive attribute", 0},
    {"upper", filter_upper, "", 0},
    {"wordcount", filter_wordcount, "", 0},
    {0},
};
