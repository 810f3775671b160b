// By recursive descent in the order of precedence of Jinja's own grammar:
//
//   cond → or → and → not → compare → + - → ~ → * / // % → ** → unary → primary, postfix, filters and tests
#include "expr.h"

#include <string.h>

static struct node *parse_or(struct jinja_parser *p);
static struct node *parse_unary(struct jinja_parser *p, bool with_filter);

static struct node *node_constant(struct jinja_parser *p, struct value v) {
    struct node *n = node_new(p, N_CONST);
    n->v = v;
    return n;
}

static bool at_tuple_end(const struct jinja_parser *p, const char *end_name) {
    return p->tok->kind == T_VAR_END || p->tok->kind == T_BLOCK_END || parse_at_op(p, ')') ||
           (end_name && parse_at_name(p, end_name));
}

struct node *parse_tuple(struct jinja_parser *p, bool with_cond, const char *end_name, bool parentheses) {
    struct nodes l = {0};
    bool is_tuple = false;
    struct node *n = node_new(p, N_TUPLE);
    while (!at_tuple_end(p, end_name)) {
        nodes_add(p, &l, with_cond ? parse_cond(p) : parse_or(p));
        if (!parse_skip_op(p, ','))
            break;
        is_tuple = true;
    }
    if (!is_tuple && l.num)
        return l.v[0];
    if (!is_tuple && !parentheses)
        parse_unexpected(p, "an expression");
    node_set_list(n, &l);
    return n;
}

// N_CALL, N_FILTER, N_TEST: args
static struct args *parse_args(struct jinja_parser *p) {
    struct args *a = source_alloc(p->s, sizeof *a);
    struct nodes pos = {0}, kw = {0}, names = {0};
    parse_expect_op(p, '(');
    while (!parse_at_op(p, ')')) {
        if (parse_skip_op(p, '*')) {
            if (a->star || a->star_star)
                FAIL(p, "invalid syntax for a call's arguments");
            a->star = parse_cond(p);
        } else if (parse_skip_op(p, OP_POW)) {
            if (a->star_star)
                FAIL(p, "invalid syntax for a call's arguments");
            a->star_star = parse_cond(p);
        } else if (p->tok->kind == T_NAME && p->tok[1].kind == T_OP && p->tok[1].op == '=') {
            if (a->star_star)
                FAIL(p, "invalid syntax for a call's arguments");
            struct node *name = node_new(p, N_NAME);
            name->name = parse_expect_name(p);
            parse_next(p);
            nodes_add(p, &names, name);
            nodes_add(p, &kw, parse_cond(p));
        } else {
            if (kw.num || a->star || a->star_star)
                FAIL(p, "a positional argument after a named one");
            nodes_add(p, &pos, parse_cond(p));
        }
        if (!parse_at_op(p, ')'))
            parse_expect_op(p, ',');
    }
    parse_next(p);
    a->pos = pos.v;
    a->num = pos.num;
    a->kw = kw.v;
    a->num_kw = kw.num;
    a->names = source_alloc(p->s, (names.num + 1) * sizeof *a->names);
    for (size_t i = 0; i < names.num; i++)
        a->names[i] = names.v[i]->name;
    return a;
}

static struct node *parse_name(struct jinja_parser *p) {
    if (parse_skip_name(p, "true") || parse_skip_name(p, "True"))
        return node_constant(p, value_of_bool(true));
    if (parse_skip_name(p, "false") || parse_skip_name(p, "False"))
        return node_constant(p, value_of_bool(false));
    if (parse_skip_name(p, "none") || parse_skip_name(p, "None"))
        return node_constant(p, value_null());
    struct node *n = node_new(p, N_NAME); // name
    if (p->macro) {
        p->macro->uses_varargs |= parse_at_name(p, "varargs");
        p->macro->uses_kwargs |= parse_at_name(p, "kwargs");
        p->macro->uses_caller |= parse_at_name(p, "caller");
    }
    n->name = parse_expect_name(p);
    return n;
}

static struct node *parse_string(struct jinja_parser *p) {
    struct str *s = source_alloc(p->s, sizeof *s);
    const struct token *first = p->tok;
    size_t len = 0;
    struct node *n = node_new(p, N_CONST);
    for (; p->tok->kind == T_STRING; parse_next(p))
        len += p->tok->len;
    char *text = source_alloc(p->s, len + 1);
    s->p = text;
    s->len = len;
    for (; first < p->tok; text += first->len, first++)
        if (first->len)
            memcpy(text, first->p, first->len);
    n->v = value_of_str(s);
    return n;
}

static struct node *parse_primary(struct jinja_parser *p) {
    const struct token *t = p->tok;
    struct node *n;
    struct nodes l = {0};
    switch (t->kind) {
    case T_NAME: return parse_name(p);
    case T_STRING: return parse_string(p);
    case T_INT: parse_next(p); return node_constant(p, value_of_int(t->i));
    case T_FLOAT: parse_next(p); return node_constant(p, value_of_float(t->f));
    case T_OP: break;
    default: parse_unexpected(p, "an expression");
    }
    if (parse_skip_op(p, '(')) {
        n = parse_tuple(p, true, NULL, true);
        parse_expect_op(p, ')');
        return n;
    }
    if (parse_skip_op(p, '[')) {
        n = node_new(p, N_LIST); // list
        while (!parse_at_op(p, ']')) {
            nodes_add(p, &l, parse_cond(p));
            if (!parse_at_op(p, ']'))
                parse_expect_op(p, ',');
        }
        parse_next(p);
        node_set_list(n, &l);
        return n;
    }
    if (parse_skip_op(p, '{')) {
        n = node_new(p, N_DICT); // list: key, value, key, value …
        while (!parse_at_op(p, '}')) {
            nodes_add(p, &l, parse_cond(p));
            parse_expect_op(p, ':');
            nodes_add(p, &l, parse_cond(p));
            if (!parse_at_op(p, '}'))
                parse_expect_op(p, ',');
        }
        parse_next(p);
        node_set_list(n, &l);
        return n;
    }
    parse_unexpected(p, "an expression");
}

// a[…]: N_ITEM (a, b) or N_SLICE (a; b from, c to, d step; each may be NULL)
static struct node *parse_subscript(struct jinja_parser *p, struct node *of) {
    struct nodes l = {0};
    struct node *n = node_new(p, N_ITEM);
    n->a = of;
    while (!parse_at_op(p, ']')) {
        if (l.num)
            parse_expect_op(p, ',');
        struct node *from = parse_at_op(p, ':') ? NULL : parse_cond(p);
        if (!parse_skip_op(p, ':')) {
            nodes_add(p, &l, from);
            continue;
        }
        n->kind = N_SLICE;
        n->b = from;
        if (!parse_at_op(p, ':') && !parse_at_op(p, ']') && !parse_at_op(p, ','))
            n->c = parse_cond(p);
        if (parse_skip_op(p, ':') && !parse_at_op(p, ']') && !parse_at_op(p, ','))
            n->d = parse_cond(p);
        if (l.num || !parse_at_op(p, ']'))
            FAIL(p, "a slice among several indices is not supported");
    }
    parse_next(p);
    if (n->kind == N_SLICE)
        return n;
    if (l.num == 1) {
        n->b = l.v[0];
    } else {
        n->b = node_new(p, N_TUPLE);
        node_set_list(n->b, &l);
    }
    return n;
}

static struct node *parse_call(struct jinja_parser *p, struct node *of) {
    struct node *n = node_new(p, N_CALL); // a called, args
    n->a = of;
    n->args = parse_args(p);
    return n;
}

static struct node *parse_postfix(struct jinja_parser *p, struct node *n) {
    for (;;) {
        if (parse_at_op(p, '(')) {
            n = parse_call(p, n);
        } else if (parse_skip_op(p, '[')) {
            n = parse_subscript(p, n);
        } else if (parse_skip_op(p, '.')) {
            struct node *m = node_new(p, p->tok->kind == T_INT ? N_ITEM : N_ATTR); // a of, b index or name
            m->a = n;
            if (p->tok->kind == T_INT) {
                m->b = node_constant(p, value_of_int(p->tok->i));
                parse_next(p);
            } else {
                m->name = parse_expect_name(p);
            }
            n = m;
        } else {
            return n;
        }
    }
}

static void not_known(struct jinja_parser *p, const char *kind) {
    if (p->ifs || p->unknown)
        return;
    p->unknown = p->tok - 1;
    p->unknown_kind = kind;
}

// After '|': N_FILTER (a input, name, fn, args or NULL)
struct node *parse_filter(struct jinja_parser *p, struct node *input) {
    struct node *n = node_new(p, N_FILTER);
    n->a = input;
    n->name = parse_expect_name(p);
    n->fn = builtin_find(p->lib->filters, n->name->p, n->name->len);
    if (!n->fn)
        not_known(p, "filter");
    if (parse_at_op(p, '('))
        n->args = parse_args(p);
    return n;
}

// After 'is': N_TEST (a, name, fn, args or NULL), in N_NOT (a) where negated
static struct node *parse_test(struct jinja_parser *p, struct node *of) {
    bool negated = parse_skip_name(p, "not");
    struct node *n = node_new(p, N_TEST);
    n->a = of;
    n->name = parse_expect_name(p);
    n->fn = builtin_find(p->lib->tests, n->name->p, n->name->len);
    if (!n->fn)
        not_known(p, "test");
    const struct token *t = p->tok;
    bool operand = t->kind == T_NAME
                       ? !parse_at_name(p, "else") && !parse_at_name(p, "or") && !parse_at_name(p, "and")
                       : t->kind == T_STRING || t->kind == T_INT || t->kind == T_FLOAT ||
                             parse_at_op(p, '[') || parse_at_op(p, '{');
    if (parse_at_op(p, '(')) {
        n->args = parse_args(p);
    } else if (operand) {
        if (parse_at_name(p, "is"))
            FAIL(p, "tests cannot be chained with 'is'");
        parse_enter(p);
        n->args = source_alloc(p->s, sizeof *n->args);
        n->args->pos = source_alloc(p->s, sizeof *n->args->pos);
        n->args->pos[0] = parse_postfix(p, parse_primary(p));
        n->args->num = 1;
        p->depth--;
    }
    if (!negated)
        return n;
    struct node *negation = node_new(p, N_NOT);
    negation->a = n;
    return negation;
}

struct node *parse_filters(struct jinja_parser *p, struct node *n) {
    for (;;) {
        if (parse_skip_op(p, '|'))
            n = parse_filter(p, n);
        else if (parse_skip_name(p, "is"))
            n = parse_test(p, n);
        else if (parse_at_op(p, '('))
            n = parse_call(p, n);
        else
            return n;
    }
}

static struct node *parse_unary(struct jinja_parser *p, bool with_filter) {
    struct node *n;
    parse_enter(p);
    if (parse_at_op(p, '-') || parse_at_op(p, '+')) {
        n = node_new(p, parse_at_op(p, '-') ? N_NEGATE : N_PLUS); // a
        parse_next(p);
        n->a = parse_unary(p, false);
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    if (with_filter)
        n = parse_filters(p, n);
    p->depth--;
    return n;
}

// The operators of one level, all left-associative: N_BINARY (op, a, b)
static struct node *parse_binary(struct jinja_parser *p, int level) {
    static const char ops[][5] = {{'+', '-'}, {0}, {'*', '/', OP_FLOORDIV, '%'}, {OP_POW}};
    if (level == 4)
        return parse_unary(p, true);
    struct node *n = parse_binary(p, level + 1);
    if (level == 1) { // N_CONCAT (list)
        if (!parse_at_op(p, '~'))
            return n;
        struct nodes l = {0};
        struct node *all = node_new(p, N_CONCAT);
        nodes_add(p, &l, n);
        while (parse_skip_op(p, '~'))
            nodes_add(p, &l, parse_binary(p, level + 1));
        node_set_list(all, &l);
        return all;
    }
    while (p->tok->kind == T_OP && p->tok->op && strchr(ops[level], p->tok->op)) {
        struct node *m = node_new(p, N_BINARY);
        m->op = p->tok->op;
        parse_next(p);
        m->a = n;
        m->b = parse_binary(p, level + 1);
        n = m;
    }
    return n;
}

// N_COMPARE (a; ops and list: what it is compared with, then that with the next …)
static struct node *parse_compare(struct jinja_parser *p) {
    struct node *first = parse_binary(p, 0);
    struct nodes l = {0};
    int *ops = NULL;
    for (;;) {
        int op = 0;
        if (p->tok->kind == T_OP && (p->tok->op == OP_EQ || p->tok->op == OP_NE || p->tok->op == OP_LE ||
                                     p->tok->op == OP_GE || p->tok->op == '<' || p->tok->op == '>'))
            op = p->tok->op;
        else if (parse_at_name(p, "in"))
            op = OP_IN;
        else if (parse_at_name(p, "not") && p->tok[1].kind == T_NAME && p->tok[1].len == 2 &&
                 memcmp(p->tok[1].p, "in", 2) == 0)
            op = OP_NOT_IN;
        if (!op)
            break;
        parse_next(p);
        if (op == OP_NOT_IN)
            parse_next(p);
        if (l.num == l.cap) { // grows with the list below
            int *more = source_alloc(p->s, (l.cap ? 2 * l.cap : 4) * sizeof *more);
            if (l.num)
                memcpy(more, ops, l.num * sizeof *more);
            ops = more;
        }
        ops[l.num] = op;
        nodes_add(p, &l, parse_binary(p, 0));
    }
    if (!l.num)
        return first;
    struct node *n = node_new(p, N_COMPARE);
    n->a = first;
    n->ops = ops;
    node_set_list(n, &l);
    return n;
}

static struct node *parse_not(struct jinja_parser *p) {
    if (!parse_at_name(p, "not"))
        return parse_compare(p);
    parse_enter(p);
    struct node *n = node_new(p, N_NOT); // a
    parse_next(p);
    n->a = parse_not(p);
    p->depth--;
    return n;
}

static struct node *parse_and(struct jinja_parser *p) {
    struct node *n = parse_not(p);
    while (parse_at_name(p, "and")) {
        struct node *m = node_new(p, N_AND); // a, b
        parse_next(p);
        m->a = n;
        m->b = parse_not(p);
        n = m;
    }
    return n;
}

static struct node *parse_or(struct jinja_parser *p) {
    struct node *n = parse_and(p);
    while (parse_at_name(p, "or")) {
        struct node *m = node_new(p, N_OR); // a, b
        parse_next(p);
        m->a = n;
        m->b = parse_and(p);
        n = m;
    }
    return n;
}

struct node *parse_cond(struct jinja_parser *p) {
    const struct token *unknown = p->unknown;
    struct node *n = parse_or(p);
    while (parse_at_name(p, "if")) {
        struct node *m = node_new(p, N_COND); // a if b else c, which may be NULL
        parse_next(p);
        parse_enter(p);
        m->a = n;
        m->b = parse_or(p);
        m->c = parse_skip_name(p, "else") ? parse_cond(p) : NULL;
        n = m;
        p->depth--;
        p->unknown = unknown; // this was a condition
    }
    return n;
}
