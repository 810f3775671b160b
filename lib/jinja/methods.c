// Methods of values. One that Python has and Jinja's immutable sandbox forbids is listed without a function, so that
// it is refused as the sandbox refuses it.
#include "methods.h"

#include "format.h"
#include "operators.h"
#include "repr.h"
#include "str_ops.h"
#include "utf8.h"

#include <string.h>

// ---- strings

static const struct str *want_str(struct jinja *j, struct value v) {
    if (v.kind == V_UNDEFINED)
        jinja_fail_undefined(j, v);
    if (v.kind != V_STRING)
        jinja_fail(j, STATUS_INVALID, "expected a str, not %s", value_type(v));
    return v.s;
}

static int64_t want_int(struct jinja *j, struct value v, int64_t absent) {
    if (!is_given(v))
        return absent;
    if (!is_integer(v))
        jinja_fail(j, STATUS_INVALID, "expected an int, not %s", value_type(v));
    return as_int(v);
}

static struct value str_strip_ends(struct jinja *j, struct call *c, bool left, bool right) {
    bool all = !is_given(c->args[0]);
    return value_of_str(text_strip(j, c->self.s, all ? NULL : want_str(j, c->args[0]), left, right));
}

static struct value str_strip(struct jinja *j, struct call *c) { return str_strip_ends(j, c, true, true); }
static struct value str_lstrip(struct jinja *j, struct call *c) { return str_strip_ends(j, c, true, false); }
static struct value str_rstrip(struct jinja *j, struct call *c) { return str_strip_ends(j, c, false, true); }

static struct value str_upper(struct jinja *j, struct call *c) {
    return value_of_str(text_case(j, c->self.s, CASE_UPPER));
}

static struct value str_lower(struct jinja *j, struct call *c) {
    return value_of_str(text_case(j, c->self.s, CASE_LOWER));
}

static struct value str_title(struct jinja *j, struct call *c) {
    return value_of_str(text_case(j, c->self.s, CASE_TITLE));
}

static struct value str_capitalize(struct jinja *j, struct call *c) {
    return value_of_str(text_case(j, c->self.s, CASE_CAPITALIZE));
}

static struct value str_swapcase(struct jinja *j, struct call *c) {
    return value_of_str(text_case(j, c->self.s, CASE_SWAP));
}

static size_t str_find_last(const struct str *s, size_t from, size_t end, const struct str *what) {
    for (size_t i = end - from < what->len ? from : end - what->len + 1; i-- > from;)
        if (memcmp(s->p + i, what->p, what->len) == 0)
            return i;
    return SIZE_MAX;
}

static struct value str_split_from(struct jinja *j, struct call *c, bool right) {
    const struct str *s = c->self.s, *sep = NULL;
    int64_t max = want_int(j, c->args[1], -1);
    struct list *parts = list_new(j), *l = list_new(j);
    size_t from = 0, to = s->len;
    if (is_given(c->args[0]))
        sep = want_str(j, c->args[0]);
    if (sep && sep->len == 0)
        jinja_fail(j, STATUS_INVALID, "empty separator");
    jinja_bytes(j, s->len);
    if (sep && right)
        jinja_steps(j, (s->len >> 10) * (sep->len >> 3)); // the plain search is quadratic
    while (sep && max != 0) {
        size_t at = right ? str_find_last(s, from, to, sep) : str_find(s, from, sep);
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
            while (right && utf8_continues(s->p[at]))
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

static struct value str_split(struct jinja *j, struct call *c) { return str_split_from(j, c, false); }
static struct value str_rsplit(struct jinja *j, struct call *c) { return str_split_from(j, c, true); }

static struct value str_splitlines(struct jinja *j, struct call *c) {
    return value_of_list(V_LIST, text_lines(j, c->self.s, value_truth(c->args[0])));
}

static struct value str_cut(struct jinja *j, struct call *c, bool right) {
    const struct str *s = c->self.s, *sep = want_str(j, c->args[0]);
    if (sep->len == 0)
        jinja_fail(j, STATUS_INVALID, "empty separator");
    jinja_steps(j, 1 + (s->len >> 10) * (right ? 1 + (sep->len >> 3) : 1));
    size_t at = right ? str_find_last(s, 0, s->len, sep) : str_find(s, 0, sep);
    bool found = at != SIZE_MAX;
    if (!found)
        at = right ? 0 : s->len;
    struct list *l = list_new(j);
    list_add(j, l, value_of_str(str_part(j, s, 0, at)));
    list_add(j, l, value_of_str(str_part(j, s, at, found ? at + sep->len : at)));
    list_add(j, l, value_of_str(str_part(j, s, found ? at + sep->len : at, s->len)));
    return value_of_list(V_TUPLE, l);
}

static struct value str_partition(struct jinja *j, struct call *c) { return str_cut(j, c, false); }
static struct value str_rpartition(struct jinja *j, struct call *c) { return str_cut(j, c, true); }

static bool str_has_end(const struct str *s, const struct str *what, bool at_end) {
    return what->len <= s->len && memcmp(at_end ? s->p + s->len - what->len : s->p, what->p, what->len) == 0;
}

static struct value str_has_any_end(struct jinja *j, struct call *c, bool at_end) {
    if (c->args[0].kind != V_TUPLE)
        return value_of_bool(str_has_end(c->self.s, want_str(j, c->args[0]), at_end));
    for (size_t i = 0; i < c->args[0].l->len; i++)
        if (str_has_end(c->self.s, want_str(j, c->args[0].l->v[i]), at_end))
            return value_of_bool(true);
    return value_of_bool(false);
}

static struct value str_startswith(struct jinja *j, struct call *c) { return str_has_any_end(j, c, false); }
static struct value str_endswith(struct jinja *j, struct call *c) { return str_has_any_end(j, c, true); }

static struct value str_removeprefix(struct jinja *j, struct call *c) {
    const struct str *s = c->self.s, *what = want_str(j, c->args[0]);
    return value_of_str(str_part(j, s, str_has_end(s, what, false) ? what->len : 0, s->len));
}

static struct value str_removesuffix(struct jinja *j, struct call *c) {
    const struct str *s = c->self.s, *what = want_str(j, c->args[0]);
    return value_of_str(str_part(j, s, 0, str_has_end(s, what, true) ? s->len - what->len : s->len));
}

static struct value str_replace(struct jinja *j, struct call *c) {
    const struct str *from = want_str(j, c->args[0]), *to = want_str(j, c->args[1]);
    return value_of_str(text_replace(j, c->self.s, from, to, want_int(j, c->args[2], -1)));
}

static struct value str_search(struct jinja *j, struct call *c, bool right, bool must) {
    const struct str *s = c->self.s, *what = want_str(j, c->args[0]);
    struct value from = c->args[1].kind == V_ABSENT ? value_null() : c->args[1];
    struct value to = c->args[2].kind == V_ABSENT ? value_null() : c->args[2];
    const struct str *part = jinja_slice(j, c->self, from, to, value_null()).s;
    jinja_steps(j, 1 + (part->len >> 10) * (right ? 1 + (what->len >> 3) : 1));
    size_t at = right ? str_find_last(part, 0, part->len, what) : str_find(part, 0, what);
    if (at == SIZE_MAX && must)
        jinja_fail(j, STATUS_INVALID, "substring not found");
    if (at == SIZE_MAX)
        return value_of_int(-1);
    return value_of_int((int64_t)str_count(j, str_part(j, s, 0, (size_t)(part->p - s->p) + at)));
}

static struct value str_find_(struct jinja *j, struct call *c) { return str_search(j, c, false, false); }
static struct value str_rfind(struct jinja *j, struct call *c) { return str_search(j, c, true, false); }
static struct value str_index(struct jinja *j, struct call *c) { return str_search(j, c, false, true); }
static struct value str_rindex(struct jinja *j, struct call *c) { return str_search(j, c, true, true); }

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

static struct value str_all(struct jinja *j, const struct str *s, bool (*is)(uint32_t)) {
    jinja_bytes(j, s->len);
    for (size_t i = 0, n; i < s->len; i += n)
        if (!is(utf8_decode(s->p + i, &n)))
            return value_of_bool(false);
    return value_of_bool(s->len > 0);
}

static bool is_alnum(uint32_t c) { return text_is_alpha(c) || text_is_digit(c); }
static struct value str_isdigit(struct jinja *j, struct call *c) {
    return str_all(j, c->self.s, text_is_digit);
}
static struct value str_isalpha(struct jinja *j, struct call *c) {
    return str_all(j, c->self.s, text_is_alpha);
}
static struct value str_isalnum(struct jinja *j, struct call *c) { return str_all(j, c->self.s, is_alnum); }

static struct value str_isspace(struct jinja *j, struct call *c) {
    return str_all(j, c->self.s, text_is_space);
}

static struct value str_isupper(struct jinja *j, struct call *c) {
    return value_of_bool(text_one_case(j, c->self.s, true));
}
static struct value str_islower(struct jinja *j, struct call *c) {
    return value_of_bool(text_one_case(j, c->self.s, false));
}

static struct value str_pad(struct jinja *j, struct call *c, char align) {
    struct marked b = {0};
    int64_t width = want_int(j, c->args[0], 0);
    text_padded(j, &b, c->self.s, width < 0 ? 0 : (size_t)width, align);
    return value_of_str(marked_str(j, &b));
}

static struct value str_ljust(struct jinja *j, struct call *c) { return str_pad(j, c, '<'); }
static struct value str_rjust(struct jinja *j, struct call *c) { return str_pad(j, c, '>'); }
static struct value str_center(struct jinja *j, struct call *c) { return str_pad(j, c, '^'); }

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

const struct builtin str_methods[] = {
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

// ---- dicts, lists, loops, cyclers

static struct value dict_get_(struct jinja *j, struct call *c) {
    const struct value *v = dict_get(j, c->self.d, c->args[0]);
    return v ? *v : c->args[1].kind == V_ABSENT ? value_null() : c->args[1];
}

static struct value dict_items(struct jinja *j, struct call *c) {
    return value_of_list(V_VIEW, dict_pairs(j, c->self.d));
}

static struct value dict_keys(struct jinja *j, struct call *c) {
    return value_of_list(V_VIEW, value_items(j, c->self));
}

static struct value dict_values(struct jinja *j, struct call *c) {
    struct list *l = list_new(j);
    for (size_t i = 0; i < c->self.d->len; i++)
        list_add(j, l, c->self.d->e[i].val);
    return value_of_list(V_VIEW, l);
}

static struct value dict_copy(struct jinja *j, struct call *c) {
    struct dict *d = dict_new(j);
    for (size_t i = 0; i < c->self.d->len; i++)
        dict_set(j, d, c->self.d->e[i].key, c->self.d->e[i].val);
    return value_of_dict(d);
}

const struct builtin dict_methods[] = {
    {"get", dict_get_, "!key default", 1},
    {"items", dict_items, "!", 0},
    {"keys", dict_keys, "!", 0},
    {"values", dict_values, "!", 0},
    {"copy", dict_copy, "!", 0},
    {"clear", NULL, "", 0},
    {"pop", NULL, "", 0},
    {"popitem", NULL, "", 0},
    {"setdefault", NULL, "", 0},
    {"update", NULL, "", 0},
    {0},
};

static struct value list_index(struct jinja *j, struct call *c) {
    for (size_t i = 0; i < c->self.l->len; i++)
        if (value_equal(j, c->self.l->v[i], c->args[0], 0))
            return value_of_int((int64_t)i);
    jinja_fail(j, STATUS_INVALID, "the value is not in the list");
}

static struct value list_count(struct jinja *j, struct call *c) {
    int64_t n = 0;
    for (size_t i = 0; i < c->self.l->len; i++)
        n += value_equal(j, c->self.l->v[i], c->args[0], 0);
    return value_of_int(n);
}

static struct value list_copy_(struct jinja *j, struct call *c) {
    return value_of_list(V_LIST, list_copy(j, c->self.l));
}

const struct builtin list_methods[] = {
    {"index", list_index, "!value", 1},
    {"count", list_count, "!value", 1},
    {"copy", list_copy_, "!", 0},
    {"append", NULL, "", 0},
    {"clear", NULL, "", 0},
    {"extend", NULL, "", 0},
    {"insert", NULL, "", 0},
    {"pop", NULL, "", 0},
    {"remove", NULL, "", 0},
    {"reverse", NULL, "", 0},
    {"sort", NULL, "", 0},
    {0},
};

const struct builtin tuple_methods[] = {
    {"index", list_index, "!value", 1}, {"count", list_count, "!value", 1}, {0}};

static struct value loop_cycle(struct jinja *j, struct call *c) {
    if (c->num == 0)
        jinja_fail(j, STATUS_INVALID, "no items for cycling given");
    return c->args[c->self.loop->at % c->num];
}

static struct value loop_changed(struct jinja *j, struct call *c) {
    struct list *l = list_new(j);
    for (size_t i = 0; i < c->num; i++)
        list_add(j, l, c->args[i]);
    struct value v = value_of_list(V_TUPLE, l);
    bool changed = !value_equal(j, v, c->self.loop->changed, 0);
    c->self.loop->changed = v;
    return value_of_bool(changed);
}

const struct builtin loop_methods[] = {{"cycle", loop_cycle, "*", 0}, {"changed", loop_changed, "*", 0}, {0}};

static struct value cycler_next(struct jinja *j, struct call *c) {
    struct cycler *y = c->self.cycler;
    struct value v = y->items->v[y->at];
    (void)j;
    y->at = (y->at + 1) % y->items->len;
    return v;
}

static struct value cycler_reset(struct jinja *j, struct call *c) {
    (void)j;
    c->self.cycler->at = 0;
    return value_null();
}

const struct builtin cycler_methods[] = {{"next", cycler_next, "!", 0}, {"reset", cycler_reset, "!", 0}, {0}};
