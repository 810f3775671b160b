// Statements. Parts of the language that we lack are refused here, by name. Jinja lets an unknown filter or
// test pass inside an `if`, where it is an error only when reached; real templates rely on that, so it is so
// here.
#include "parse.h"

#include "expr.h"
#include "jinja.h"

static struct node *parse_body(struct jinja_parser *p, const char *const *ends);

static void expect_block_end(struct jinja_parser *p) {
    if (p->tok->kind != T_BLOCK_END)
        parse_unexpected(p, "'%}'");
    parse_next(p);
}

// A name, or several with commas (N_TUPLE), or with `ns` ns.attribute: what `set` and `for` write to.
static struct node *parse_target(struct jinja_parser *p, bool ns, bool tuple) {
    struct nodes l = {0};
    struct node *all = node_new(p, N_TUPLE);
    bool is_tuple = false;
    do {
        struct node *n = node_new(p, N_NAME);
        if (tuple && l.num && !(p->tok->kind == T_NAME || parse_at_op(p, '(')))
            break; // a comma at the end
        if (tuple && parse_skip_op(p, '(')) {
            parse_enter(p);
            n = parse_target(p, ns, true);
            parse_expect_op(p, ')');
            p->depth--;
        } else {
            if (parse_at_name(p, "true") || parse_at_name(p, "false") || parse_at_name(p, "none") ||
                parse_at_name(p, "True") || parse_at_name(p, "False") || parse_at_name(p, "None"))
                FAIL(p, "cannot assign to '%.*s'", NAME(p->tok));
            n->name = parse_expect_name(p);
        }
        if (ns && n->kind == N_NAME && parse_skip_op(p, '.')) {
            struct node *m = node_new(p, N_NS_TARGET); // a the namespace's name, name
            m->a = n;
            m->name = parse_expect_name(p);
            n = m;
        }
        nodes_add(p, &l, n);
        is_tuple |= tuple && parse_at_op(p, ',');
    } while (tuple && parse_skip_op(p, ','));
    if (!is_tuple)
        return l.v[0];
    node_set_list(all, &l);
    return all;
}

// The body up to one of `ends`, whose name is the present token after it.
static struct node *parse_until(struct jinja_parser *p, const char *a, const char *b, const char *c) {
    const char *ends[] = {a, b, c, NULL};
    expect_block_end(p);
    return parse_body(p, ends);
}

// A body that no break leaves.
static struct node *parse_inner(struct jinja_parser *p, const char *end) {
    int loops = p->loops;
    p->loops = 0;
    struct node *n = parse_until(p, end, NULL, NULL);
    p->loops = loops;
    return n;
}

static struct node *parse_if(struct jinja_parser *p) {
    struct node *n = node_new(p, N_IF); // list: condition, body, condition, body …; c the else, or NULL
    struct nodes l = {0};
    p->ifs++;
    do {
        parse_next(p);
        nodes_add(p, &l, parse_tuple(p, false, NULL, false));
        nodes_add(p, &l, parse_until(p, "elif", "else", "endif"));
    } while (parse_at_name(p, "elif"));
    if (parse_skip_name(p, "else"))
        n->c = parse_until(p, "endif", NULL, NULL);
    parse_next(p);
    p->ifs--;
    node_set_list(n, &l);
    return n;
}

static struct node *parse_for(struct jinja_parser *p) {
    // a target, b iterable, c filter or NULL, d body, list[0] the else, if any
    struct node *n = node_new(p, N_FOR);
    struct nodes l = {0};
    parse_next(p);
    n->a = parse_target(p, false, true);
    if (!parse_skip_name(p, "in"))
        parse_unexpected(p, "'in'");
    n->b = parse_tuple(p, false, "recursive", false);
    if (parse_skip_name(p, "if"))
        n->c = parse_cond(p);
    if (parse_at_name(p, "recursive"))
        FAIL(p, "recursive loops are not supported");
    p->loops++;
    n->d = parse_until(p, "else", "endfor", NULL);
    p->loops--;
    if (parse_skip_name(p, "else")) {
        nodes_add(p, &l, parse_until(p, "endfor", NULL, NULL));
        node_set_list(n, &l);
    }
    parse_next(p);
    return n;
}

static struct node *parse_set(struct jinja_parser *p) {
    struct node *n = node_new(p, N_SET); // a target, b value
    parse_next(p);
    n->a = parse_target(p, true, true);
    if (parse_skip_op(p, '=')) {
        n->b = parse_tuple(p, true, NULL, false);
        return n;
    }
    n->kind = N_SET_BLOCK; // a target, b filters over N_INPUT, c body
    n->b = parse_filters(p, node_new(p, N_INPUT));
    n->c = parse_inner(p, "endset");
    parse_next(p);
    return n;
}

// (a, b=1): n->list are the names, args->kw[i] their defaults or NULL
static void parse_signature(struct jinja_parser *p, struct node *n) {
    struct nodes l = {0}, defaults = {0};
    bool has_default = false;
    parse_expect_op(p, '(');
    while (!parse_at_op(p, ')')) {
        nodes_add(p, &l, parse_target(p, false, false));
        struct node *d = parse_skip_op(p, '=') ? parse_cond(p) : NULL;
        if (has_default && !d)
            FAIL(p, "a parameter without a default after one with");
        has_default = d != NULL;
        nodes_add(p, &defaults, d);
        if (!parse_at_op(p, ')'))
            parse_expect_op(p, ',');
    }
    parse_next(p);
    node_set_list(n, &l);
    n->args = source_alloc(p->s, sizeof *n->args);
    n->args->kw = defaults.v;
}

static void parse_macro_body(struct jinja_parser *p, struct node *n, const char *end) {
    struct node *outer = p->macro;
    p->macro = n;
    n->a = parse_inner(p, end);
    p->macro = outer;
    if (outer) { // names that a caller uses, its macro uses
        outer->uses_caller |= n->uses_caller;
        outer->uses_varargs |= n->uses_varargs;
        outer->uses_kwargs |= n->uses_kwargs;
    }
    parse_next(p);
}

static struct node *parse_macro(struct jinja_parser *p) {
    struct node *n = node_new(p, N_MACRO); // name, list, args, a body
    parse_next(p);
    n->name = parse_expect_name(p);
    parse_signature(p, n);
    parse_macro_body(p, n, "endmacro");
    return n;
}

static struct node *parse_call_block(struct jinja_parser *p) {
    // a the call, b the macro `caller`
    struct node *n = node_new(p, N_CALL_BLOCK), *caller = node_new(p, N_MACRO);
    parse_next(p);
    if (parse_at_op(p, '('))
        parse_signature(p, caller);
    else
        caller->args = source_alloc(p->s, sizeof *caller->args);
    caller->name = parse_intern(p, "caller", 6);
    n->a = parse_cond(p);
    if (n->a->kind != N_CALL)
        FAIL(p, "expected a call");
    n->b = caller;
    parse_macro_body(p, caller, "endcall");
    return n;
}

static struct node *parse_filter_block(struct jinja_parser *p) {
    struct node *n = node_new(p, N_FILTER_BLOCK); // b filters over N_INPUT, c body
    parse_next(p);
    n->b = parse_filters(p, parse_filter(p, node_new(p, N_INPUT)));
    n->c = parse_inner(p, "endfilter");
    parse_next(p);
    return n;
}

static struct node *parse_with(struct jinja_parser *p) {
    struct node *n = node_new(p, N_WITH); // list: target, value, target, value …; a body
    struct nodes l = {0};
    parse_next(p);
    while (p->tok->kind != T_BLOCK_END) {
        if (l.num)
            parse_expect_op(p, ',');
        nodes_add(p, &l, parse_target(p, false, false));
        parse_expect_op(p, '=');
        nodes_add(p, &l, parse_cond(p));
    }
    node_set_list(n, &l);
    n->a = parse_until(p, "endwith", NULL, NULL);
    parse_next(p);
    return n;
}

static struct node *parse_statement(struct jinja_parser *p) {
    static const char *const refused[] = {"block",      "extends", "include", "import", "from",
                                          "autoescape", "trans",   "do",      "debug"};
    struct node *n;
    if (parse_at_name(p, "if"))
        return parse_if(p);
    if (parse_at_name(p, "for"))
        return parse_for(p);
    if (parse_at_name(p, "set"))
        return parse_set(p);
    if (parse_at_name(p, "macro"))
        return parse_macro(p);
    if (parse_at_name(p, "call"))
        return parse_call_block(p);
    if (parse_at_name(p, "filter"))
        return parse_filter_block(p);
    if (parse_at_name(p, "with"))
        return parse_with(p);
    // Marks the assistant's words for training; a scope of its own in transformers.
    if (parse_skip_name(p, "generation")) {
        n = node_new(p, N_SCOPE); // a
        n->a = parse_inner(p, "endgeneration");
        parse_next(p);
        return n;
    }
    if (parse_skip_name(p, "print")) {
        n = node_new(p, N_OUTPUT);
        n->a = parse_tuple(p, true, NULL, false);
        return n;
    }
    if (parse_at_name(p, "break") || parse_at_name(p, "continue")) {
        if (!p->loops)
            FAIL(p, "'%.*s' outside of a loop", NAME(p->tok));
        n = node_new(p, parse_at_name(p, "break") ? N_BREAK : N_CONTINUE);
        parse_next(p);
        return n;
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (parse_at_name(p, refused[i]))
            FAIL(p, "the tag '%s' is not supported", refused[i]);
    if (p->tok->kind == T_NAME)
        FAIL(p, "unknown tag '%.*s'", NAME(p->tok));
    parse_unexpected(p, "the name of a tag");
}

static struct node *parse_body(struct jinja_parser *p, const char *const *ends) {
    struct node *block = node_new(p, N_BLOCK), *n; // list
    struct nodes l = {0};
    parse_enter(p);
    for (;;) {
        switch (p->tok->kind) {
        case T_DATA: {
            n = node_new(p, N_TEXT); // v
            struct str *s = source_alloc(p->s, sizeof *s);
            *s = (struct str){.p = p->tok->p, .len = p->tok->len};
            n->v = value_of_str(s);
            parse_next(p);
            break;
        }
        case T_VAR_BEGIN:
            n = node_new(p, N_OUTPUT); // a
            parse_next(p);
            n->a = parse_tuple(p, true, NULL, false);
            if (p->tok->kind != T_VAR_END)
                parse_unexpected(p, "'}}'");
            parse_next(p);
            break;
        case T_BLOCK_BEGIN:
            parse_next(p);
            for (size_t i = 0; ends && ends[i]; i++)
                if (parse_at_name(p, ends[i]))
                    goto done;
            n = parse_statement(p);
            expect_block_end(p);
            break;
        default:
            if (ends)
                FAIL(p, "the template ends where '%s' is missing",
                     ends[2]   ? ends[2]
                     : ends[1] ? ends[1]
                               : ends[0]);
            goto done;
        }
        nodes_add(p, &l, n);
    }
done:
    p->depth--;
    node_set_list(block, &l);
    return block;
}

void jinja_parse(struct jinja_source *s, struct chat_template *t) {
    struct jinja_parser *p = source_alloc(s, sizeof *p);
    p->s = s;
    p->lib = t->lib;
    p->tok = s->tokens;
    t->loop = parse_intern(p, "loop", 4);
    t->caller = parse_intern(p, "caller", 6);
    t->varargs = parse_intern(p, "varargs", 7);
    t->kwargs = parse_intern(p, "kwargs", 6);
    t->root = parse_body(p, NULL);
    if (p->unknown) {
        p->tok = p->unknown;
        FAIL(p, "the %s '%.*s' is not supported", p->unknown_kind, NAME(p->tok));
    }
}
