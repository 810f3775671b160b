#include "globals.h"

#include "repr.h"

#include <string.h>
#include <time.h>

static struct value global_range(struct jinja *j, struct call *c) {
    bool one = c->args[1].kind == V_ABSENT;
    int64_t start = one ? 0 : value_index(j, c->args[0]), stop = value_index(j, c->args[one ? 0 : 1]);
    int64_t step = c->args[2].kind == V_ABSENT ? 1 : value_index(j, c->args[2]);
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

const struct builtin jinja_globals[] = {
    {"cycler", global_cycler, "*", 0},
    {"dict", global_dict, "*", 0},
    {"joiner", global_joiner, "sep", 0},
    {"namespace", global_namespace, "*", 0},
    {"raise_exception", global_raise_exception, "message", 1},
    {"range", global_range, "!start stop step", 1},
    {"strftime_now", global_strftime_now, "format", 1},
    {0},
};
