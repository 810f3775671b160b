// Runs a tree. eval() gives the value of an expression, jinja_exec() runs a statement and writes to j->out.
// Scopes are chains of bindings; a macro keeps the scope where it was made and sees what stands there when it
// is called.
#include "jinja.h"

#include <math.h>
#include <string.h>

static struct value eval(struct jinja *j, const struct node *n);

_Noreturn void jinja_fail(struct jinja *j, enum status status, const char *fmt, ...) {
    char text[360];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    utf8_scrub(text);
    if (fmt[0] == '%' && fmt[1] == '.') // the template's own words
        err_set(j->err, status, "%s", text);
    else
        err_set(j->err, status, "chat template, line %u: %s", j->line, text);
    j->status = status;
    longjmp(j->env, 1);
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

void jinja_steps(struct jinja *j, size_t n) {
    if (n > (size_t)j->steps)
        jinja_fail(j, STATUS_LIMIT, "over %d steps", JINJA_MAX_STEPS);
    j->steps -= (int64_t)n;
}

// ---- scopes

static struct scope *scope_push(struct jinja *j, struct scope *parent) {
    struct scope *s = jinja_alloc(j, sizeof *s);
    s->parent = parent;
    return s;
}

static void scope_set(struct jinja *j, struct scope *s, const struct str *name, struct value v) {
    jinja_steps(j, s->num >> 4);
    for (size_t i = 0; i < s->num; i++) {
        if (s->vars[i].name == name) {
            s->vars[i].v = v;
            return;
        }
    }
    if (s->num == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 4;
        struct binding *vars = jinja_alloc(j, cap * sizeof *vars);
        if (s->num)
            memcpy(vars, s->vars, s->num * sizeof *vars);
        s->vars = vars;
        s->cap = cap;
    }
    s->vars[s->num++] = (struct binding){.name = name, .v = v};
}

static struct value lookup(struct jinja *j, const struct str *name) {
    for (const struct scope *s = j->scope; s; s = s->parent) {
        jinja_steps(j, s->num >> 4);
        for (size_t i = 0; i < s->num; i++)
            if (s->vars[i].name == name)
                return s->vars[i].v;
    }
    const struct value *v = dict_get_text(j->a, j->globals, name->p, name->len);
    if (v)
        return *v;
    const struct builtin *fn = jinja_global(name->p, name->len);
    if (fn)
        return (struct value){.kind = V_FUNCTION, .fn = fn};
    struct str *s = jinja_alloc(j, sizeof *s);
    *s = *name;
    return value_undefined(j, NULL, value_of_str(s));
}

static void assign(struct jinja *j, const struct node *target, struct value v);

static void assign_tuple(struct jinja *j, const struct node *target, struct value v) {
    const struct list *l = value_items(j, v);
    if (l->len != target->num)
        jinja_fail(j, STATUS_INVALID, "cannot unpack %zu values into %zu names", l->len, target->num);
    for (size_t i = 0; i < target->num; i++)
        assign(j, target->list[i], l->v[i]);
}

static void assign(struct jinja *j, const struct node *target, struct value v) {
    if (target->kind == N_NAME) {
        scope_set(j, j->scope, target->name, v);
    } else if (target->kind == N_NS_TARGET) {
        struct value ns = lookup(j, target->a->name);
        if (ns.kind != V_NAMESPACE)
            jinja_fail(j, STATUS_INVALID, "cannot assign attribute on non-namespace object");
        dict_set(j, ns.d, value_of_str(str_part(j, target->name, 0, target->name->len)), v);
    } else {
        assign_tuple(j, target, v);
    }
}

// ---- calls

// Evaluates the arguments. `extra`: room for one more named one.
static void eval_args(struct jinja *j, const struct args *a, struct call *c, size_t extra) {
    struct value star_star = {.kind = V_ABSENT};
    struct list *more = NULL;
    size_t num = a ? a->num : 0, num_kw = a ? a->num_kw : 0;
    if (a && a->star) {
        more = value_items(j, eval(j, a->star));
        num += more->len;
    }
    if (a && a->star_star) {
        star_star = eval(j, a->star_star);
        if (star_star.kind != V_DICT)
            jinja_fail(j, STATUS_INVALID, "the argument after ** must be a mapping, not %s",
                       value_type(star_star));
        num_kw += star_star.d->len;
    }
    c->args = jinja_alloc(j, (num + 1) * sizeof *c->args); // never of no bytes
    c->kw = jinja_alloc(j, (num_kw + extra + 1) * sizeof *c->kw);
    for (size_t i = 0; a && i < a->num; i++)
        c->args[c->num++] = eval(j, a->pos[i]);
    for (size_t i = 0; more && i < more->len; i++)
        c->args[c->num++] = more->v[i];
    for (size_t i = 0; a && i < a->num_kw; i++)
        c->kw[c->num_kw++] = (struct kwarg){.name = a->names[i], .v = eval(j, a->kw[i])};
    for (size_t i = 0; star_star.kind == V_DICT && i < star_star.d->len; i++) {
        if (star_star.d->e[i].key.kind != V_STRING)
            jinja_fail(j, STATUS_INVALID, "keywords must be strings");
        c->kw[c->num_kw++] = (struct kwarg){.name = star_star.d->e[i].key.s, .v = star_star.d->e[i].val};
    }
}

static size_t count_words(const char *p) {
    size_t n = 0;
    for (; *p; p++)
        n += *p != ' ' && (p[1] == ' ' || p[1] == 0);
    return n;
}

struct value jinja_invoke(struct jinja *j, const struct builtin *f, struct call *c) {
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

static struct str *end_capture(struct jinja *j, struct marked *outer) {
    struct str *s = marked_str(j, j->out);
    j->out = outer;
    return s;
}

static struct value call_macro(struct jinja *j, const struct macro *m, struct call *c) {
    const struct node *n = m->node;
    struct scope *outer = j->scope, *s = scope_push(j, m->scope);
    struct dict *kwargs = NULL;
    struct list *varargs = NULL;
    bool has_caller = false;
    uint32_t line = j->line;
    if (j->calls == JINJA_MAX_CALLS)
        jinja_fail(j, STATUS_LIMIT, "macros called over %d deep", JINJA_MAX_CALLS);
    j->calls++;
    j->scope = s;
    if (n->uses_kwargs)
        scope_set(j, s, j->t->kwargs, value_of_dict(kwargs = dict_new(j)));
    if (n->uses_varargs)
        scope_set(j, s, j->t->varargs, value_of_list(V_TUPLE, varargs = list_new(j)));
    if (c->num > n->num && !varargs)
        jinja_fail(j, STATUS_INVALID, "macro '%.*s' takes not more than %zu arguments", (int)n->name->len,
                   n->name->p, n->num);
    for (size_t i = n->num; i < c->num; i++)
        list_add(j, varargs, c->args[i]);
    struct value *given = n->num ? jinja_alloc(j, n->num * sizeof *given) : NULL;
    for (size_t i = 0; i < n->num && i < c->num; i++)
        given[i] = c->args[i];
    for (size_t k = 0; k < c->num_kw; k++) {
        const struct str *name = c->kw[k].name;
        size_t i = 0;
        while (i < n->num && !str_equal(n->list[i]->name, name))
            i++;
        if (i < n->num && given[i].kind == V_ABSENT) {
            given[i] = c->kw[k].v;
        } else if (i == n->num && n->uses_caller && str_equal(name, j->t->caller)) {
            scope_set(j, s, j->t->caller, c->kw[k].v);
            has_caller = true;
        } else if (i == n->num && kwargs) {
            dict_set(j, kwargs, value_of_str(str_part(j, name, 0, name->len)), c->kw[k].v);
        } else {
            jinja_fail(j, STATUS_INVALID, "macro '%.*s' has no use for the argument '%.*s'",
                       (int)n->name->len, n->name->p, (int)(name->len < 60 ? name->len : 60), name->p);
        }
    }
    for (size_t i = 0; i < n->num; i++) {
        const struct str *name = n->list[i]->name;
        struct value v = given[i];
        if (v.kind == V_ABSENT && n->args->kw[i])
            v = eval(j, n->args->kw[i]);
        else if (v.kind == V_ABSENT)
            v = value_undefined(j, NULL, value_of_str(str_part(j, name, 0, name->len)));
        scope_set(j, s, name, v);
    }
    if (n->uses_caller && !has_caller) {
        struct value v = value_undefined(j, NULL, value_text(j, "caller"));
        v.u->message = "No caller defined";
        scope_set(j, s, j->t->caller, v);
    }
    struct marked *out = j->out;
    j->out = jinja_alloc(j, sizeof *j->out);
    jinja_exec(j, n->a);
    struct str *text = end_capture(j, out);
    j->scope = outer;
    j->line = line;
    j->calls--;
    return value_of_str(text);
}

struct value jinja_call(struct jinja *j, struct value f, struct call *c) {
    switch (f.kind) {
    case V_UNDEFINED: jinja_fail_undefined(j, f);
    case V_MACRO: return call_macro(j, f.macro, c);
    case V_FUNCTION: return jinja_invoke(j, f.fn, c);
    case V_METHOD: c->self = f.method->self; return jinja_invoke(j, f.method->fn, c);
    case V_JOINER:
        if (f.cycler->at++ == 0)
            return value_text(j, "");
        return value_of_str(f.cycler->sep);
    case V_LOOP: jinja_fail(j, STATUS_INVALID, "recursive loops are not supported");
    default: jinja_fail(j, STATUS_INVALID, "'%s' object is not callable", value_type(f));
    }
}

// ---- expressions

static struct value eval_list(struct jinja *j, const struct node *n) {
    struct list *l = list_new(j);
    for (size_t i = 0; i < n->num; i++)
        list_add(j, l, eval(j, n->list[i]));
    return value_of_list(n->kind == N_LIST ? V_LIST : V_TUPLE, l);
}

static struct value eval_dict(struct jinja *j, const struct node *n) {
    struct dict *d = dict_new(j);
    for (size_t i = 0; i < n->num; i += 2) {
        struct value key = eval(j, n->list[i]);
        dict_set(j, d, key, eval(j, n->list[i + 1]));
    }
    return value_of_dict(d);
}

static struct value eval_concat(struct jinja *j, const struct node *n) {
    struct marked b = {0};
    for (size_t i = 0; i < n->num; i++)
        marked_put_str(j, &b, value_str(j, eval(j, n->list[i])));
    return value_of_str(marked_str(j, &b));
}

static struct value eval_compare(struct jinja *j, const struct node *n) {
    struct value left = eval(j, n->a);
    for (size_t i = 0; i < n->num; i++) {
        struct value right = eval(j, n->list[i]);
        if (!jinja_compare(j, n->ops[i], left, right))
            return value_of_bool(false);
        left = right;
    }
    return value_of_bool(true);
}

static struct value eval_call(struct jinja *j, const struct node *n) {
    struct call c = {0};
    struct value f = eval(j, n->a);
    if (f.kind == V_UNDEFINED)
        jinja_fail_undefined(j, f);
    eval_args(j, n->args, &c, 0);
    j->line = n->line;
    return jinja_call(j, f, &c);
}

static struct value eval_filter(struct jinja *j, const struct node *n) {
    struct call c = {.self = eval(j, n->a)};
    if (!n->fn)
        jinja_fail(j, STATUS_INVALID, "No %s named '%.*s' found.", n->kind == N_FILTER ? "filter" : "test",
                   (int)(n->name->len < 60 ? n->name->len : 60), n->name->p);
    eval_args(j, n->args, &c, 0);
    return jinja_invoke(j, n->fn, &c);
}

static struct value eval_slice(struct jinja *j, const struct node *n) {
    struct value of = eval(j, n->a), from = value_null(), to = value_null(), step = value_null();
    if (n->b)
        from = eval(j, n->b);
    if (n->c)
        to = eval(j, n->c);
    if (n->d)
        step = eval(j, n->d);
    return jinja_slice(j, of, from, to, step);
}

static struct value negate(struct jinja *j, struct value v, bool minus) {
    if (v.kind == V_UNDEFINED)
        jinja_fail_undefined(j, v);
    if (!is_number(v))
        jinja_fail(j, STATUS_INVALID, "bad operand type for unary %c: '%s'", minus ? '-' : '+',
                   value_type(v));
    if (v.kind == V_FLOAT)
        return value_of_float(minus ? -v.f : v.f);
    if (minus && as_int(v) == INT64_MIN)
        jinja_fail(j, STATUS_INVALID, "an integer over 64 bits");
    return value_of_int(minus ? -as_int(v) : as_int(v));
}

static struct value eval_item(struct jinja *j, const struct node *n) {
    struct value of = eval(j, n->a);
    return jinja_item(j, of, eval(j, n->b));
}

static struct value eval_binary(struct jinja *j, const struct node *n) {
    struct value a = eval(j, n->a);
    return jinja_binary(j, n->op, a, eval(j, n->b));
}

static struct value eval_cond(struct jinja *j, const struct node *n) {
    if (value_truth(eval(j, n->b)))
        return eval(j, n->a);
    if (n->c)
        return eval(j, n->c);
    struct value v = value_undefined(j, NULL, value_null());
    v.u->message = "the inline if-expression evaluated to false and no else section was defined";
    return v;
}

static void enter(struct jinja *j, const struct node *n) {
    jinja_steps(j, 1);
    if (++j->depth > JINJA_MAX_EVAL_DEPTH)
        jinja_fail(j, STATUS_LIMIT, "nested over %d deep while running", JINJA_MAX_EVAL_DEPTH);
    j->line = n->line;
}

static struct value eval(struct jinja *j, const struct node *n) {
    struct value v;
    enter(j, n);
    switch (n->kind) {
    case N_CONST: v = n->v; break;
    case N_NAME: v = lookup(j, n->name); break;
    case N_LIST:
    case N_TUPLE: v = eval_list(j, n); break;
    case N_DICT: v = eval_dict(j, n); break;
    case N_ATTR: v = jinja_attr(j, eval(j, n->a), n->name); break;
    case N_ITEM: v = eval_item(j, n); break;
    case N_SLICE: v = eval_slice(j, n); break;
    case N_CALL: v = eval_call(j, n); break;
    case N_FILTER:
    case N_TEST: v = eval_filter(j, n); break;
    case N_NEGATE:
    case N_PLUS: v = negate(j, eval(j, n->a), n->kind == N_NEGATE); break;
    case N_BINARY: v = eval_binary(j, n); break;
    case N_COMPARE: v = eval_compare(j, n); break;
    case N_AND:
        v = eval(j, n->a);
        if (value_truth(v))
            v = eval(j, n->b);
        break;
    case N_OR:
        v = eval(j, n->a);
        if (!value_truth(v))
            v = eval(j, n->b);
        break;
    case N_NOT: v = value_of_bool(!value_truth(eval(j, n->a))); break;
    case N_COND: v = eval_cond(j, n); break;
    case N_CONCAT: v = eval_concat(j, n); break;
    case N_INPUT: v = j->input; break;
    default: jinja_fail(j, STATUS_INVALID, "a statement where a value belongs");
    }
    j->depth--;
    return v;
}

// ---- statements

static void put(struct jinja *j, const struct str *s) {
    if (s->len > j->max_out - j->out->len)
        jinja_fail(j, STATUS_LIMIT, "the output is over %zu bytes", j->max_out);
    marked_put_str(j, j->out, s);
}

static struct str *capture(struct jinja *j, const struct node *body, struct scope *scope) {
    struct marked *outer = j->out;
    struct scope *s = j->scope;
    j->out = jinja_alloc(j, sizeof *j->out);
    j->scope = scope;
    jinja_exec(j, body);
    j->scope = s;
    return end_capture(j, outer);
}

static enum flow exec_for(struct jinja *j, const struct node *n) {
    struct scope *outer = j->scope, *s = scope_push(j, outer);
    struct list *items = value_items(j, eval(j, n->b));
    if (n->c) {
        struct list *kept = list_new(j);
        j->scope = s;
        for (size_t i = 0; i < items->len; i++) {
            assign(j, n->a, items->v[i]);
            if (value_truth(eval(j, n->c)))
                list_add(j, kept, items->v[i]);
        }
        items = kept;
    }
    struct loop *loop = jinja_alloc(j, sizeof *loop);
    loop->items = items;
    for (size_t i = 0; i < items->len; i++) {
        if (s->captured)
            s = scope_push(j, outer);
        s->num = 0;
        j->scope = s;
        loop->at = i;
        scope_set(j, s, j->t->loop, (struct value){.kind = V_LOOP, .loop = loop});
        assign(j, n->a, items->v[i]);
        if (jinja_exec(j, n->d) == FLOW_BREAK)
            break;
    }
    j->scope = outer;
    if (items->len == 0 && n->num) {
        j->scope = scope_push(j, outer);
        enum flow f = jinja_exec(j, n->list[0]);
        j->scope = outer;
        return f;
    }
    return FLOW_NEXT;
}

static struct value make_macro(struct jinja *j, const struct node *n) {
    struct macro *m = jinja_alloc(j, sizeof *m);
    *m = (struct macro){.node = n, .scope = j->scope};
    for (struct scope *s = j->scope; s; s = s->parent)
        s->captured = true;
    return (struct value){.kind = V_MACRO, .macro = m};
}

static void exec_call_block(struct jinja *j, const struct node *n) {
    struct call c = {0};
    struct value f = eval(j, n->a->a);
    eval_args(j, n->a->args, &c, 1);
    c.kw[c.num_kw++] = (struct kwarg){.name = j->t->caller, .v = make_macro(j, n->b)};
    put(j, value_str(j, jinja_call(j, f, &c)));
}

static enum flow exec_if(struct jinja *j, const struct node *n) {
    for (size_t i = 0; i < n->num; i += 2)
        if (value_truth(eval(j, n->list[i])))
            return jinja_exec(j, n->list[i + 1]);
    return n->c ? jinja_exec(j, n->c) : FLOW_NEXT;
}

static enum flow exec_with(struct jinja *j, const struct node *n) {
    struct scope *outer = j->scope, *s = scope_push(j, outer);
    for (size_t i = 0; i < n->num; i += 2)
        scope_set(j, s, n->list[i]->name, eval(j, n->list[i + 1]));
    j->scope = s;
    enum flow f = jinja_exec(j, n->a);
    j->scope = outer;
    return f;
}

static enum flow exec_block(struct jinja *j, const struct node *n) {
    for (size_t i = 0; i < n->num; i++) {
        enum flow f = jinja_exec(j, n->list[i]);
        if (f != FLOW_NEXT)
            return f;
    }
    return FLOW_NEXT;
}

static void exec_set_block(struct jinja *j, const struct node *n) {
    struct str *text = capture(j, n->c, scope_push(j, j->scope));
    j->input = value_of_str(text);
    struct value v = eval(j, n->b);
    if (n->kind == N_FILTER_BLOCK)
        put(j, value_str(j, v));
    else
        assign(j, n->a, v);
}

enum flow jinja_exec(struct jinja *j, const struct node *n) {
    enum flow f = FLOW_NEXT;
    enter(j, n);
    switch (n->kind) {
    case N_TEXT: put(j, n->v.s); break;
    case N_OUTPUT: put(j, value_str(j, eval(j, n->a))); break;
    case N_BLOCK: f = exec_block(j, n); break;
    case N_IF: f = exec_if(j, n); break;
    case N_FOR: f = exec_for(j, n); break;
    case N_SET: assign(j, n->a, eval(j, n->b)); break;
    case N_FILTER_BLOCK:
    case N_SET_BLOCK: exec_set_block(j, n); break;
    case N_MACRO: scope_set(j, j->scope, n->name, make_macro(j, n)); break;
    case N_CALL_BLOCK: exec_call_block(j, n); break;
    case N_WITH: f = exec_with(j, n); break;
    case N_SCOPE: put(j, capture(j, n->a, scope_push(j, j->scope))); break;
    case N_BREAK: f = FLOW_BREAK; break;
    case N_CONTINUE: f = FLOW_CONTINUE; break;
    default: jinja_fail(j, STATUS_INVALID, "a value where a statement belongs");
    }
    j->depth--;
    return f;
}
