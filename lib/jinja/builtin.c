#include "builtin.h"

#include <string.h>

const struct builtin *builtin_find(const struct builtin *table, const char *name, size_t len) {
    for (; table->name; table++)
        if (strlen(table->name) == len && memcmp(table->name, name, len) == 0)
            return table;
    return NULL;
}

const struct builtin *builtin_method(const struct library *lib, enum value_kind kind, const char *name,
                                     size_t len) {
    return lib->methods[kind] ? builtin_find(lib->methods[kind], name, len) : NULL;
}

static size_t count_words(const char *p) {
    size_t n = 0;
    for (; *p; p++)
        n += *p != ' ' && (p[1] == ' ' || p[1] == 0);
    return n;
}

struct value builtin_call(struct jinja *j, const struct builtin *f, struct call *c) {
    if (f->params[0] != '*') {
        bool positional = f->params[0] == '!';
        const char *p = f->params + positional;
        size_t num = count_words(p);
        struct value args[8] = {0};
        if (c->num > num)
            jinja_fail(j, STATUS_INVALID, "%s() takes at most %zu arguments, %zu given", f->name, num,
                       c->num);
        if (positional && c->num_kw)
            jinja_fail(j, STATUS_INVALID, "%s() takes no keyword arguments", f->name);
        for (size_t i = 0; i < c->num; i++)
            args[i] = c->args[i];
        for (size_t k = 0; k < c->num_kw; k++) {
            const struct str *name = c->kw[k].name;
            size_t i = 0;
            const char *q = p;
            for (; i < num; i++, q += strcspn(q, " "), q += *q == ' ')
                if (strcspn(q, " ") == name->len && memcmp(q, name->p, name->len) == 0)
                    break;
            if (i == num || args[i].kind != V_ABSENT)
                jinja_fail(j, STATUS_INVALID, "%s() has no use for the argument '%.*s'", f->name,
                           (int)(name->len < 60 ? name->len : 60), name->p);
            args[i] = c->kw[k].v;
        }
        for (size_t i = 0; i < f->min; i++)
            if (args[i].kind == V_ABSENT)
                jinja_fail(j, STATUS_INVALID, "%s() takes at least %zu arguments", f->name, f->min);
        struct call bound = {.self = c->self, .args = args, .num = num};
        return f->fn(j, &bound);
    }
    return f->fn(j, c);
}
