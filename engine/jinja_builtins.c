// Globals, tests, and the methods of dicts, lists and loops. What a type has in Python and the sandbox
// forbids is listed without a function, so that it is refused as Jinja's immutable sandbox refuses it.
#include "jinja.h"

#include <string.h>
#include <time.h>

const struct builtin *builtin_find(const struct builtin *table, const char *name, size_t len) {
    for (; table->name; table++)
        if (strlen(table->name) == len && memcmp(table->name, name, len) == 0)
            return table;
    return NULL;
}

// ---- globals

static int64_t want_int(struct jinja *j, struct value v) {
    if (v.kind == V_UNDEFINED)
        jinja_fail_undefined(j, v);
    if (!is_integer(v))
        jinja_fail(j, STATUS_INVALID, "'%s' object cannot be interpreted as an integer", value_type(v));
    return as_int(v);
}

static struct value global_range(struct jinja *j, struct call *c) {
    bool one = c->args[1].kind == V_ABSENT;
    int64_t start = one ? 0 : want_int(j, c->args[0]), stop = want_int(j, c->args[one ? 0 : 1]);
    int64_t step = c->args[2].kind == V_ABSENT ? 1 : want_int(j, c->args[2]);
    if (step == 0)
        jinja_fail(j, STATUS_INVALID, "range() arg 3 must not be zero");
    struct list *l = list_new(j);
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
        if (l->len == JINJA_MAX_RANGE)
            jinja_fail(j, STATUS_LIMIT, "a range of over %d", JINJA_MAX_RANGE);
        list_add(j, l, value_of_int(i));
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return value_of_list(V_LIST, l);
}

static struct dict *dict_of(struct jinja *j, struct call *c) {
    struct dict *d = dict_new(j);
    if (c->num > 1)
        jinja_fail(j, STATUS_INVALID, "expected at most 1 argument, got %zu", c->num);
    if (c->num && c->args[0].kind == V_DICT) {
        for (size_t i = 0; i < c->args[0].d->len; i++)
            dict_set(j, d, c->args[0].d->e[i].key, c->args[0].d->e[i].val);
    } else if (c->num) {
        const struct list *l = value_items(j, c->args[0]);
        for (size_t i = 0; i < l->len; i++) {
            const struct list *pair = value_items(j, l->v[i]);
            if (pair->len != 2)
                jinja_fail(j, STATUS_INVALID, "dict() wants pairs");
            dict_set(j, d, pair->v[0], pair->v[1]);
        }
    }
    for (size_t i = 0; i < c->num_kw; i++)
        dict_set(j, d, value_of_str(str_part(j, c->kw[i].name, 0, c->kw[i].name->len)), c->kw[i].v);
    return d;
}

static struct value global_dict(struct jinja *j, struct call *c) { return value_of_dict(dict_of(j, c)); }

static struct value global_namespace(struct jinja *j, struct call *c) {
    return (struct value){.kind = V_NAMESPACE, .d = dict_of(j, c)};
}

static struct value global_raise_exception(struct jinja *j, struct call *c) {
    const struct str *s = value_str(j, c->args[0]);
    jinja_fail(j, STATUS_INVALID, "%.*s", (int)(s->len < 1000 ? s->len : 1000), s->p);
}

// The time is the global `now`, in seconds since 1970, or the present; as UTC, so that a text does not depend
// on the machine.
static struct value global_strftime_now(struct jinja *j, struct call *c) {
    const struct value *now = dict_get_text(j->a, j->globals, "now", 3);
    time_t t = now && now->kind == V_INT ? (time_t)now->i : time(NULL);
    const struct str *s = value_str(j, c->args[0]);
    char format[256], text[1024];
    struct tm tm;
    if (s->len >= sizeof format || memchr(s->p, 0, s->len) || !gmtime_r(&t, &tm))
        jinja_fail(j, STATUS_INVALID, "strftime_now: no time, or a format of over %zu bytes",
                   sizeof format - 1);
    memcpy(format, s->p, s->len);
    format[s->len] = 0;
    struct marked b = {0};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t n = strftime(text, sizeof text, format, &tm);
#pragma GCC diagnostic pop
    marked_put(j, &b, text, n, s->len && str_mark(s, 0));
    return value_of_str(marked_str(j, &b));
}

static struct value global_cycler(struct jinja *j, struct call *c) {
    if (c->num == 0 || c->num_kw)
        jinja_fail(j, STATUS_INVALID, "cycler() wants items");
    struct cycler *y = jinja_alloc(j, sizeof *y);
    y->items = list_new(j);
    for (size_t i = 0; i < c->num; i++)
        list_add(j, y->items, c->args[i]);
    return (struct value){.kind = V_CYCLER, .cycler = y};
}

static struct value global_joiner(struct jinja *j, struct call *c) {
    struct cycler *y = jinja_alloc(j, sizeof *y);
    y->sep = c->args[0].kind == V_ABSENT ? str_new(j, ", ", 2) : value_str(j, c->args[0]);
    return (struct value){.kind = V_JOINER, .cycler = y};
}

static const struct builtin globals[] = {
    {"cycler", global_cycler, "*", 0},
    {"dict", global_dict, "*", 0},
    {"joiner", global_joiner, "sep", 0},
    {"namespace", global_namespace, "*", 0},
    {"raise_exception", global_raise_exception, "message", 1},
    {"range", global_range, "!start stop step", 1},
    {"strftime_now", global_strftime_now, "format", 1},
    {0},
};

const struct builtin *jinja_global(const char *name, size_t len) { return builtin_find(globals, name, len); }

// ---- tests

#define TEST(name, expression)                                                                               \
    static struct value test_##name(struct jinja *j, struct call *c) {                                       \
        (void)j;                                                                                             \
        struct value v = c->self;                                                                            \
        return value_of_bool(expression);                                                                    \
    }

static int64_t modulo(struct jinja *j, struct value v, struct value by) {
    return as_int(jinja_binary(j, '%', value_of_int(want_int(j, v)), value_of_int(want_int(j, by))));
}

static bool is_same(struct jinja *j, struct value a, struct value b) {
    if (a.kind != b.kind)
        return false;
    if (a.kind == V_LIST || a.kind == V_TUPLE || a.kind == V_DICT)
        return a.l == b.l;
    return value_equal(j, a, b, 0);
}

static bool is_one_case(struct jinja *j, struct value v, const char *method) {
    struct call c = {.self = value_of_str(value_str(j, v))};
    return value_truth(jinja_invoke(j, builtin_find(jinja_str_methods, method, strlen(method)), &c));
}

TEST(defined, v.kind != V_UNDEFINED)
TEST(undefined, v.kind == V_UNDEFINED)
TEST(none, v.kind == V_NULL)
TEST(true, v.kind == V_BOOL && v.b)
TEST(false, v.kind == V_BOOL && !v.b)
TEST(boolean, v.kind == V_BOOL)
TEST(integer, v.kind == V_INT)
TEST(float, v.kind == V_FLOAT)
TEST(number, is_number(v))
TEST(string, v.kind == V_STRING)
TEST(mapping, v.kind == V_DICT)
TEST(sequence,
     v.kind == V_LIST || v.kind == V_TUPLE || v.kind == V_STRING || v.kind == V_DICT || v.kind == V_UNDEFINED)
TEST(iterable,
     is_listlike(v) || v.kind == V_STRING || v.kind == V_DICT || v.kind == V_UNDEFINED || v.kind == V_LOOP)
TEST(callable, v.kind == V_MACRO || v.kind == V_FUNCTION || v.kind == V_METHOD || v.kind == V_JOINER ||
                   v.kind == V_LOOP || v.kind == V_UNDEFINED)
TEST(escaped, v.kind == V_STRING && v.s->safe)
TEST(odd, modulo(j, v, value_of_int(2)) == 1)
TEST(even, modulo(j, v, value_of_int(2)) == 0)
TEST(divisibleby, modulo(j, v, c->args[0]) == 0)
TEST(lower, is_one_case(j, v, "islower"))
TEST(upper, is_one_case(j, v, "isupper"))
TEST(sameas, is_same(j, v, c->args[0]))
TEST(in, jinja_compare(j, OP_IN, v, c->args[0]))
TEST(eq, jinja_compare(j, OP_EQ, v, c->args[0]))
TEST(ne, jinja_compare(j, OP_NE, v, c->args[0]))
TEST(lt, jinja_compare(j, '<', v, c->args[0]))
TEST(le, jinja_compare(j, OP_LE, v, c->args[0]))
TEST(gt, jinja_compare(j, '>', v, c->args[0]))
TEST(ge, jinja_compare(j, OP_GE, v, c->args[0]))
TEST(filter, v.kind == V_STRING && jinja_filter(v.s->p, v.s->len) != NULL)
TEST(test, v.kind == V_STRING && jinja_test(v.s->p, v.s->len) != NULL)

static const struct builtin tests[] = {
    {"defined", test_defined, "", 0},    {"undefined", test_undefined, "", 0},
    {"none", test_none, "", 0},          {"true", test_true, "", 0},
    {"false", test_false, "", 0},        {"boolean", test_boolean, "", 0},
    {"integer", test_integer, "", 0},    {"float", test_float, "", 0},
    {"number", test_number, "", 0},      {"string", test_string, "", 0},
    {"mapping", test_mapping, "", 0},    {"sequence", test_sequence, "", 0},
    {"iterable", test_iterable, "", 0},  {"callable", test_callable, "", 0},
    {"escaped", test_escaped, "", 0},    {"odd", test_odd, "", 0},
    {"even", test_even, "", 0},          {"divisibleby", test_divisibleby, "num", 1},
    {"lower", test_lower, "", 0},        {"upper", test_upper, "", 0},
    {"sameas", test_sameas, "other", 1}, {"in", test_in, "seq", 1},
    {"eq", test_eq, "!other", 1},        {"equalto", test_eq, "!other", 1},
    {"==", test_eq, "!other", 1},        {"ne", test_ne, "!other", 1},
    {"!=", test_ne, "!other", 1},        {"lt", test_lt, "!other", 1},
    {"lessthan", test_lt, "!other", 1},  {"<", test_lt, "!other", 1},
    {"le", test_le, "!other", 1},        {"<=", test_le, "!other", 1},
    {"gt", test_gt, "!other", 1},        {"greaterthan", test_gt, "!other", 1},
    {">", test_gt, "!other", 1},         {"ge", test_ge, "!other", 1},
    {">=", test_ge, "!other", 1},        {"filter", test_filter, "", 0},
    {"test", test_test, "", 0},          {0},
};

const struct builtin *jinja_test(const char *name, size_t len) { return builtin_find(tests, name, len); }

// ---- methods

static struct value dict_get_(struct jinja *j, struct call *c) {
    const struct value *v = dict_get(j, c->self.d, c->args[0]);
    return v ? *v : c->args[1].kind == V_ABSENT ? value_null() : c->args[1];
}

static struct value dict_items(struct jinja *j, struct call *c) {
    struct value v = jinja_invoke(j, jinja_filter("items", 5), c);
    v.kind = V_VIEW;
    return v;
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
    struct call all = {.args = &c->self, .num = 1};
    return value_of_dict(dict_of(j, &all));
}

static const struct builtin dict_methods[] = {
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

static struct value list_copy(struct jinja *j, struct call *c) {
    return jinja_invoke(j, jinja_filter("list", 4), c);
}

static const struct builtin list_methods[] = {
    {"index", list_index, "!value", 1},
    {"count", list_count, "!value", 1},
    {"copy", list_copy, "!", 0},
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

static const struct builtin loop_methods[] = {
    {"cycle", loop_cycle, "*", 0}, {"changed", loop_changed, "*", 0}, {0}};

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

static const struct builtin cycler_methods[] = {
    {"next", cycler_next, "!", 0}, {"reset", cycler_reset, "!", 0}, {0}};

const struct builtin *jinja_method(enum value_kind kind, const char *name, size_t len) {
    switch (kind) {
    case V_STRING: return builtin_find(jinja_str_methods, name, len);
    case V_DICT: return builtin_find(dict_methods, name, len);
    case V_LIST: return builtin_find(list_methods, name, len);
    case V_TUPLE: {
        const struct builtin *m = builtin_find(list_methods, name, len);
        return m && m->fn && m->fn != list_copy ? m : NULL;
    }
    case V_LOOP: return builtin_find(loop_methods, name, len);
    case V_CYCLER: return builtin_find(cycler_methods, name, len);
    default: return NULL;
    }
}
