// eval_expr() gives the value of an expression, exec_node() runs a statement and writes to r->out. Scopes are
// chains of bindings; a macro keeps the scope where it was made and sees what stands there when it is called.
#include "eval.h"

#include "compare.h"
#include "operators.h"
#include "repr.h"

#include <string.h>

struct binding {
    const struct str *name;
    struct value v;
};

struct scope {
    struct scope *parent;
    struct binding *vars;
    size_t num, cap;
    bool captured; // by a macro: may not be used again for the next turn of a loop
};

struct eval_run { // of one template
    struct jinja *j;
    const struct chat_template *t;
    struct scope *scope;
    struct marked *out;
    size_t max_out;
    struct value input; // of N_INPUT
    int calls;          // of macros, nested
};

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

static struct value eval_expr(struct eval_run *r, const struct node *n);
static enum flow exec_node(struct eval_run *r, const struct node *n);

// ---- scopes

static struct scope *scope_push(struct eval_run *r, struct scope *parent) {
    struct scope *s = jinja_alloc(r->j, sizeof *s);
    s->parent = parent;
    return s;
}

static void scope_set(struct eval_run *r, struct scope *s, const struct str *name, struct value v) {
    jinja_steps(r->j, s->num >> 4);
    for (size_t i = 0; i < s->num; i++) {
        if (s->vars[i].name == name) {
            s->vars[i].v = v;
            return;
        }
    }
    if (s->num == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 4;
        struct binding *vars = jinja_alloc(r->j, cap * sizeof *vars);
        if (s->num)
            memcpy(vars, s->vars, s->num * sizeof *vars);
        s->vars = vars;
        s->cap = cap;
    }
    s->vars[s->num++] = (struct binding){.name = name, .v = v};
}

static struct value scope_lookup(struct eval_run *r, const struct str *name) {
    for (const struct scope *s = r->scope; s; s = s->parent) {
        jinja_steps(r->j, s->num >> 4);
        for (size_t i = 0; i < s->num; i++)
            if (s->vars[i].name == name)
                return s->vars[i].v;
    }
    const struct value *v = dict_get_text(r->j->a, r->j->globals, name->p, name->len);
    if (v)
        return *v;
    const struct builtin *fn = builtin_find(r->j->lib->globals, name->p, name->len);
    if (fn)
        return (struct value){.kind = V_FUNCTION, .fn = fn};
    struct str *s = jinja_alloc(r->j, sizeof *s);
    *s = *name;
    return value_undefined(r->j, NULL, value_of_str(s));
}

static void assign_target(struct eval_run *r, const struct node *target, struct value v);

static void assign_tuple(struct eval_run *r, const struct node *target, struct value v) {
    const struct list *l = value_items(r->j, v);
    if (l->len != target->num)
        jinja_fail(r->j, STATUS_INVALID, "cannot unpack %zu values into %zu names", l->len, target->num);
    for (size_t i = 0; i < target->num; i++)
        assign_target(r, target->list[i], l->v[i]);
}

static void assign_target(struct eval_run *r, const struct node *target, struct value v) {
    if (target->kind == N_NAME) {
        scope_set(r, r->scope, target->name, v);
    } else if (target->kind == N_NS_TARGET) {
        struct value ns = scope_lookup(r, target->a->name);
        if (ns.kind != V_NAMESPACE)
            jinja_fail(r->j, STATUS_INVALID, "cannot assign attribute on non-namespace object");
        dict_set(r->j, ns.d, value_of_str(str_part(r->j, target->name, 0, target->name->len)), v);
    } else {
        assign_tuple(r, target, v);
    }
}

// ---- calls

// Evaluates the arguments. `extra`: room for one more named one.
static void eval_args(struct eval_run *r, const struct args *a, struct call *c, size_t extra) {
    struct value star_star = {.kind = V_ABSENT};
    struct list *more = NULL;
    size_t num = a ? a->num : 0, num_kw = a ? a->num_kw : 0;
    if (a && a->star) {
        more = value_items(r->j, eval_expr(r, a->star));
        num += more->len;
    }
    if (a && a->star_star) {
        star_star = eval_expr(r, a->star_star);
        if (star_star.kind != V_DICT)
            jinja_fail(r->j, STATUS_INVALID, "the argument after ** must be a mapping, not %s",
                       value_type(star_star));
        num_kw += star_star.d->len;
    }
    c->args = jinja_alloc(r->j, (num + 1) * sizeof *c->args); // never of no bytes
    c->kw = jinja_alloc(r->j, (num_kw + extra + 1) * sizeof *c->kw);
    for (size_t i = 0; a && i < a->num; i++)
        c->args[c->num++] = eval_expr(r, a->pos[i]);
    for (size_t i = 0; more && i < more->len; i++)
        c->args[c->num++] = more->v[i];
    for (size_t i = 0; a && i < a->num_kw; i++)
        c->kw[c->num_kw++] = (struct kwarg){.name = a->names[i], .v = eval_expr(r, a->kw[i])};
    for (size_t i = 0; star_star.kind == V_DICT && i < star_star.d->len; i++) {
        if (star_star.d->e[i].key.kind != V_STRING)
            jinja_fail(r->j, STATUS_INVALID, "keywords must be strings");
        c->kw[c->num_kw++] = (struct kwarg){.name = star_star.d->e[i].key.s, .v = star_star.d->e[i].val};
    }
}

static struct str *end_capture(struct eval_run *r, struct marked *outer) {
    struct str *s = marked_str(r->j, r->out);
    r->out = outer;
    return s;
}

static struct value call_macro(struct eval_run *r, const struct macro *m, struct call *c) {
    const struct node *n = m->node;
    struct scope *outer = r->scope, *s = scope_push(r, m->scope);
    struct dict *kwargs = NULL;
    struct list *varargs = NULL;
    bool has_caller = false;
    uint32_t line = r->j->line;
    if (r->calls == JINJA_MAX_CALLS)
        jinja_fail(r->j, STATUS_LIMIT, "macros called over %d deep", JINJA_MAX_CALLS);
    r->calls++;
    r->scope = s;
    if (n->uses_kwargs)
        scope_set(r, s, r->t->kwargs, value_of_dict(kwargs = dict_new(r->j)));
    if (n->uses_varargs)
        scope_set(r, s, r->t->varargs, value_of_list(V_TUPLE, varargs = list_new(r->j)));
    if (c->num > n->num && !varargs)
        jinja_fail(r->j, STATUS_INVALID, "macro '%.*s' takes not more than %zu arguments", (int)n->name->len,
                   n->name->p, n->num);
    for (size_t i = n->num; i < c->num; i++)
        list_add(r->j, varargs, c->args[i]);
    struct value *given = n->num ? jinja_alloc(r->j, n->num * sizeof *given) : NULL;
    for (size_t i = 0; i < n->num && i < c->num; i++)
        given[i] = c->args[i];
    for (size_t k = 0; k < c->num_kw; k++) {
        const struct str *name = c->kw[k].name;
        size_t i = 0;
        while (i < n->num && !str_equal(n->list[i]->name, name))
            i++;
        if (i < n->num && given[i].kind == V_ABSENT) {
            given[i] = c->kw[k].v;
        } else if (i == n->num && n->uses_caller && str_equal(name, r->t->caller)) {
            scope_set(r, s, r->t->caller, c->kw[k].v);
            has_caller = true;
        } else if (i == n->num && kwargs) {
            dict_set(r->j, kwargs, value_of_str(str_part(r->j, name, 0, name->len)), c->kw[k].v);
        } else {
            jinja_fail(r->j, STATUS_INVALID, "macro '%.*s' has no use for the argument '%.*s'",
                       (int)n->name->len, n->name->p, (int)(name->len < 60 ? name->len : 60), name->p);
        }
    }
    for (size_t i = 0; i < n->num; i++) {
        const struct str *name = n->list[i]->name;
        struct value v = given[i];
        if (v.kind == V_ABSENT && n->args->kw[i])
            v = eval_expr(r, n->args->kw[i]);
        else if (v.kind == V_ABSENT)
            v = value_undefined(r->j, NULL, value_of_str(str_part(r->j, name, 0, name->len)));
        scope_set(r, s, name, v);
    }
    if (n->uses_caller && !has_caller) {
        struct value v = value_undefined(r->j, NULL, value_text(r->j, "caller"));
        v.u->message = "No caller defined";
        scope_set(r, s, r->t->caller, v);
    }
    struct marked *out = r->out;
    r->out = jinja_alloc(r->j, sizeof *r->out);
    exec_node(r, n->a);
    struct str *text = end_capture(r, out);
    r->scope = outer;
    r->j->line = line;
    r->calls--;
    return value_of_str(text);
}

static struct value call_value(struct eval_run *r, struct value f, struct call *c) {
    switch (f.kind) {
    case V_UNDEFINED: jinja_fail_undefined(r->j, f);
    case V_MACRO: return call_macro(r, f.macro, c);
    case V_FUNCTION: return builtin_call(r->j, f.fn, c);
    case V_METHOD: c->self = f.method->self; return builtin_call(r->j, f.method->fn, c);
    case V_JOINER:
        if (f.cycler->at++ == 0)
            return value_text(r->j, "");
        return value_of_str(f.cycler->sep);
    case V_LOOP: jinja_fail(r->j, STATUS_INVALID, "recursive loops are not supported");
    default: jinja_fail(r->j, STATUS_INVALID, "'%s' object is not callable", value_type(f));
    }
}

// ---- expressions

static struct value eval_list(struct eval_run *r, const struct node *n) {
    struct list *l = list_new(r->j);
    for (size_t i = 0; i < n->num; i++)
        list_add(r->j, l, eval_expr(r, n->list[i]));
    return value_of_list(n->kind == N_LIST ? V_LIST : V_TUPLE, l);
}

static struct value eval_dict(struct eval_run *r, const struct node *n) {
    struct dict *d = dict_new(r->j);
    for (size_t i = 0; i < n->num; i += 2) {
        struct value key = eval_expr(r, n->list[i]);
        dict_set(r->j, d, key, eval_expr(r, n->list[i + 1]));
    }
    return value_of_dict(d);
}

static struct value eval_concat(struct eval_run *r, const struct node *n) {
    struct marked b = {0};
    for (size_t i = 0; i < n->num; i++)
        marked_put_str(r->j, &b, value_str(r->j, eval_expr(r, n->list[i])));
    return value_of_str(marked_str(r->j, &b));
}

static struct value eval_compare(struct eval_run *r, const struct node *n) {
    struct value left = eval_expr(r, n->a);
    for (size_t i = 0; i < n->num; i++) {
        struct value right = eval_expr(r, n->list[i]);
        if (!value_compare(r->j, n->ops[i], left, right))
            return value_of_bool(false);
        left = right;
    }
    return value_of_bool(true);
}

static struct value eval_call(struct eval_run *r, const struct node *n) {
    struct call c = {0};
    struct value f = eval_expr(r, n->a);
    if (f.kind == V_UNDEFINED)
        jinja_fail_undefined(r->j, f);
    eval_args(r, n->args, &c, 0);
    r->j->line = n->line;
    return call_value(r, f, &c);
}

static struct value eval_filter(struct eval_run *r, const struct node *n) {
    struct call c = {.self = eval_expr(r, n->a)};
    if (!n->fn)
        jinja_fail(r->j, STATUS_INVALID, "No %s named '%.*s' found.", n->kind == N_FILTER ? "filter" : "test",
                   (int)(n->name->len < 60 ? n->name->len : 60), n->name->p);
    eval_args(r, n->args, &c, 0);
    return builtin_call(r->j, n->fn, &c);
}

static struct value eval_slice(struct eval_run *r, const struct node *n) {
    struct value of = eval_expr(r, n->a), from = value_null(), to = value_null(), step = value_null();
    if (n->b)
        from = eval_expr(r, n->b);
    if (n->c)
        to = eval_expr(r, n->c);
    if (n->d)
        step = eval_expr(r, n->d);
    return jinja_slice(r->j, of, from, to, step);
}

static struct value eval_sign(struct jinja *j, struct value v, bool minus) {
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

static struct value eval_item(struct eval_run *r, const struct node *n) {
    struct value of = eval_expr(r, n->a);
    return jinja_item(r->j, of, eval_expr(r, n->b));
}

static struct value eval_binary(struct eval_run *r, const struct node *n) {
    struct value a = eval_expr(r, n->a);
    return jinja_binary(r->j, n->op, a, eval_expr(r, n->b));
}

static struct value eval_cond(struct eval_run *r, const struct node *n) {
    if (value_truth(eval_expr(r, n->b)))
        return eval_expr(r, n->a);
    if (n->c)
        return eval_expr(r, n->c);
    struct value v = value_undefined(r->j, NULL, value_null());
    v.u->message = "the inline if-expression evaluated to false and no else section was defined";
    return v;
}

static void enter_node(struct eval_run *r, const struct node *n) {
    jinja_steps(r->j, 1);
    if (++r->j->depth > JINJA_MAX_EVAL_DEPTH)
        jinja_fail(r->j, STATUS_LIMIT, "nested over %d deep while running", JINJA_MAX_EVAL_DEPTH);
    r->j->line = n->line;
}

static struct value eval_expr(struct eval_run *r, const struct node *n) {
    struct value v;
    enter_node(r, n);
    switch (n->kind) {
    case N_CONST: v = n->v; break;
    case N_NAME: v = scope_lookup(r, n->name); break;
    case N_LIST:
    case N_TUPLE: v = eval_list(r, n); break;
    case N_DICT: v = eval_dict(r, n); break;
    case N_ATTR: v = jinja_attr(r->j, eval_expr(r, n->a), n->name); break;
    case N_ITEM: v = eval_item(r, n); break;
    case N_SLICE: v = eval_slice(r, n); break;
    case N_CALL: v = eval_call(r, n); break;
    case N_FILTER:
    case N_TEST: v = eval_filter(r, n); break;
    case N_NEGATE:
    case N_PLUS: v = eval_sign(r->j, eval_expr(r, n->a), n->kind == N_NEGATE); break;
    case N_BINARY: v = eval_binary(r, n); break;
    case N_COMPARE: v = eval_compare(r, n); break;
    case N_AND:
        v = eval_expr(r, n->a);
        if (value_truth(v))
            v = eval_expr(r, n->b);
        break;
    case N_OR:
        v = eval_expr(r, n->a);
        if (!value_truth(v))
            v = eval_expr(r, n->b);
        break;
    case N_NOT: v = value_of_bool(!value_truth(eval_expr(r, n->a))); break;
    case N_COND: v = eval_cond(r, n); break;
    case N_CONCAT: v = eval_concat(r, n); break;
    case N_INPUT: v = r->input; break;
    default: jinja_fail(r->j, STATUS_INVALID, "a statement where a value belongs");
    }
    r->j->depth--;
    return v;
}

// ---- statements

static void write_str(struct eval_run *r, const struct str *s) {
    if (s->len > r->max_out - r->out->len)
        jinja_fail(r->j, STATUS_LIMIT, "the output is over %zu bytes", r->max_out);
    marked_put_str(r->j, r->out, s);
}

static struct str *capture_body(struct eval_run *r, const struct node *body, struct scope *scope) {
    struct marked *outer = r->out;
    struct scope *s = r->scope;
    r->out = jinja_alloc(r->j, sizeof *r->out);
    r->scope = scope;
    exec_node(r, body);
    r->scope = s;
    return end_capture(r, outer);
}

static enum flow exec_for(struct eval_run *r, const struct node *n) {
    struct scope *outer = r->scope, *s = scope_push(r, outer);
    struct list *items = value_items(r->j, eval_expr(r, n->b));
    if (n->c) {
        struct list *kept = list_new(r->j);
        r->scope = s;
        for (size_t i = 0; i < items->len; i++) {
            assign_target(r, n->a, items->v[i]);
            if (value_truth(eval_expr(r, n->c)))
                list_add(r->j, kept, items->v[i]);
        }
        items = kept;
    }
    struct jinja_loop *loop = jinja_alloc(r->j, sizeof *loop);
    loop->items = items;
    for (size_t i = 0; i < items->len; i++) {
        if (s->captured)
            s = scope_push(r, outer);
        s->num = 0;
        r->scope = s;
        loop->at = i;
        scope_set(r, s, r->t->loop, (struct value){.kind = V_LOOP, .loop = loop});
        assign_target(r, n->a, items->v[i]);
        if (exec_node(r, n->d) == FLOW_BREAK)
            break;
    }
    r->scope = outer;
    if (items->len == 0 && n->num) {
        r->scope = scope_push(r, outer);
        enum flow f = exec_node(r, n->list[0]);
        r->scope = outer;
        return f;
    }
    return FLOW_NEXT;
}

static struct value make_macro(struct eval_run *r, const struct node *n) {
    struct macro *m = jinja_alloc(r->j, sizeof *m);
    *m = (struct macro){.name = n->name, .node = n, .scope = r->scope};
    for (struct scope *s = r->scope; s; s = s->parent)
        s->captured = true;
    return (struct value){.kind = V_MACRO, .macro = m};
}

static void exec_call_block(struct eval_run *r, const struct node *n) {
    struct call c = {0};
    struct value f = eval_expr(r, n->a->a);
    eval_args(r, n->a->args, &c, 1);
    c.kw[c.num_kw++] = (struct kwarg){.name = r->t->caller, .v = make_macro(r, n->b)};
    write_str(r, value_str(r->j, call_value(r, f, &c)));
}

static enum flow exec_if(struct eval_run *r, const struct node *n) {
    for (size_t i = 0; i < n->num; i += 2)
        if (value_truth(eval_expr(r, n->list[i])))
            return exec_node(r, n->list[i + 1]);
    return n->c ? exec_node(r, n->c) : FLOW_NEXT;
}

static enum flow exec_with(struct eval_run *r, const struct node *n) {
    struct scope *outer = r->scope, *s = scope_push(r, outer);
    for (size_t i = 0; i < n->num; i += 2)
        scope_set(r, s, n->list[i]->name, eval_expr(r, n->list[i + 1]));
    r->scope = s;
    enum flow f = exec_node(r, n->a);
    r->scope = outer;
    return f;
}

static enum flow exec_block(struct eval_run *r, const struct node *n) {
    for (size_t i = 0; i < n->num; i++) {
        enum flow f = exec_node(r, n->list[i]);
        if (f != FLOW_NEXT)
            return f;
    }
    return FLOW_NEXT;
}

static void exec_set_block(struct eval_run *r, const struct node *n) {
    struct str *text = capture_body(r, n->c, scope_push(r, r->scope));
    r->input = value_of_str(text);
    struct value v = eval_expr(r, n->b);
    if (n->kind == N_FILTER_BLOCK)
        write_str(r, value_str(r->j, v));
    else
        assign_target(r, n->a, v);
}

static enum flow exec_node(struct eval_run *r, const struct node *n) {
    enum flow f = FLOW_NEXT;
    enter_node(r, n);
    switch (n->kind) {
    case N_TEXT: write_str(r, n->v.s); break;
    case N_OUTPUT: write_str(r, value_str(r->j, eval_expr(r, n->a))); break;
    case N_BLOCK: f = exec_block(r, n); break;
    case N_IF: f = exec_if(r, n); break;
    case N_FOR: f = exec_for(r, n); break;
    case N_SET: assign_target(r, n->a, eval_expr(r, n->b)); break;
    case N_FILTER_BLOCK:
    case N_SET_BLOCK: exec_set_block(r, n); break;
    case N_MACRO: scope_set(r, r->scope, n->name, make_macro(r, n)); break;
    case N_CALL_BLOCK: exec_call_block(r, n); break;
    case N_WITH: f = exec_with(r, n); break;
    case N_SCOPE: write_str(r, capture_body(r, n->a, scope_push(r, r->scope))); break;
    case N_BREAK: f = FLOW_BREAK; break;
    case N_CONTINUE: f = FLOW_CONTINUE; break;
    default: jinja_fail(r->j, STATUS_INVALID, "a value where a statement belongs");
    }
    r->j->depth--;
    return f;
}

enum status jinja_render(const struct chat_template *t, struct chat_arena *a, const struct dict *globals,
                         struct marked *out, struct err *err) {
    struct jinja *j = arena_alloc(a, sizeof *j);
    struct eval_run *r = arena_alloc(a, sizeof *r);
    struct scope *scope = arena_alloc(a, sizeof *scope);
    if (!j || !r || !scope)
        return err_set(err, STATUS_NOMEM, "out of memory for the chat template");
    *j = (struct jinja){.a = a, .lib = t->lib, .globals = globals, .steps = JINJA_MAX_STEPS, .err = err};
    *r = (struct eval_run){.j = j, .t = t, .scope = scope, .out = out, .max_out = JINJA_MAX_OUTPUT(a->input)};
    a->limit = a->used + JINJA_MAX_MEMORY(a->input);
    if (setjmp(j->env) == 0)
        exec_node(r, t->root);
    a->limit = SIZE_MAX;
    return j->status;
}
