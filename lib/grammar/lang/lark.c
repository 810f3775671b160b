// Lark grammars as llguidance reads them (by its description): rules become rules, terminals texts of regular
// expressions. Texts that %ignore names may stand before every terminal and at the end.
#include "lark_terminals.h"

#include <stdlib.h>

struct lark {
    struct lark_file f;
    struct grammar_builder *b;
    struct expr_stack pending;
    expr ignored; // EXPR_NONE: nothing is
};

static expr parse_alternatives(struct lark *l, int depth);

// The rule of a name; it may be defined later.
static expr rule_of(struct lark *l, const struct lark_token *name) {
    int number = lark_name(&l->f, name);
    if (number < 0)
        return EXPR_NONE;
    struct lark_definition *d = &l->f.definitions[number];
    if (!d->at)
        return source_refuse(&l->f.source, STATUS_INVALID, name->at, "this rule is not defined");
    if (d->made == EXPR_NONE) {
        char text[257];
        memcpy(text, name->at, name->len); // as long as source_name() allows
        text[name->len] = 0;
        d->made = gb_rule(l->b, text);
    }
    return d->made;
}

// Behind what is ignored.
static expr behind_ignored(struct lark *l, expr e) {
    return l->ignored == EXPR_NONE || e == EXPR_NONE ? e : gb_seq_of(l->b, l->ignored, e);
}

static expr parse_directive(struct lark *l) {
    const struct lark_token *directive = lark_next(&l->f), *json = directive + 1;
    if (!lark_token_is(directive, "%json"))
        return lark_fail(&l->f, "in rules %json alone is supported");
    l->f.at++;
    if (!lark_skip(&l->f, LARK_JSON))
        return lark_fail(&l->f, "a schema, {...}, is expected");
    struct err err = {0};
    expr e = schema_to_expr(l->b, json->at, json->len, &err);
    if (e == EXPR_NONE && err.code != STATUS_OK)
        source_refuse(&l->f.source, err.code, json->at, "%s", err.msg);
    return behind_ignored(l, e);
}

// <[id]>: a control token by its number.
static expr parse_special(struct lark *l) {
    enum { MAX_TOKEN = (1 << 24) - 1 };
    const struct lark_token *t = lark_next(&l->f);
    struct source s = {.at = t->at, .end = t->at + t->len};
    int token = source_skip(&s, "<[") ? source_number(&s, MAX_TOKEN) : -1;
    if (token < 0 || token > MAX_TOKEN || !source_is(&s, "]>"))
        return lark_fail(&l->f, "special tokens are supported by number alone, as in <[1000]>");
    l->f.at++;
    return gb_token(l->b, token);
}

static expr parse_atom(struct lark *l, int depth) {
    const struct lark_token *t = lark_next(&l->f);
    int close = t->kind == '[' ? ']' : ')';
    switch (t->kind) {
    case LARK_STRING:
    case LARK_REGEX:
    case LARK_TERMINAL: return behind_ignored(l, lark_terminal(&l->f, l->b));
    case LARK_RULE:
        l->f.at++;
        return lark_next_is(&l->f, '{') && l->f.tokens.items[l->f.at + 1].kind != LARK_NUMBER &&
                       l->f.tokens.items[l->f.at + 1].kind != ','
                   ? lark_fail(&l->f, "templates are not supported")
                   : rule_of(l, t);
    case '(':
    case '[': {
        l->f.at++;
        expr e = parse_alternatives(l, depth + 1);
        if (e != EXPR_NONE && !lark_skip(&l->f, close))
            return lark_fail(&l->f, close == ']' ? "] is expected" : ") is expected");
        return close == ']' && e != EXPR_NONE ? gb_repeat(l->b, e, 0, 1) : e;
    }
    case LARK_DIRECTIVE: return parse_directive(l);
    case LARK_SPECIAL: return parse_special(l);
    case LARK_GRAMMAR: return lark_fail(&l->f, "grammars by name are not supported");
    case '~':
    case '&': return lark_fail(&l->f, "the operators & and ~ of regular expressions are not supported");
    default: return lark_fail(&l->f, "this cannot stand here");
    }
}

static expr parse_sequence(struct lark *l, int depth) {
    int base = l->pending.num;
    while (!lark_ends_alternative(lark_next(&l->f)->kind)) {
        int min, max;
        expr atom = parse_atom(l, depth);
        int repeat = atom == EXPR_NONE ? -1 : lark_take_repeat(&l->f, &min, &max);
        if (repeat < 0)
            return EXPR_NONE;
        if (!expr_stack_push(&l->pending, repeat ? gb_repeat(l->b, atom, min, max) : atom, l->f.source.err))
            return EXPR_NONE;
    }
    expr e = lark_skip_alias(&l->f) ? gb_seq(l->b, expr_stack_from(&l->pending, base), l->pending.num - base)
                                    : EXPR_NONE;
    l->pending.num = base;
    return e;
}

static expr parse_alternatives(struct lark *l, int depth) {
    int base = l->pending.num;
    if (depth >= MAX_NESTING)
        return source_refuse(&l->f.source, STATUS_LIMIT, lark_next(&l->f)->at, "this is nested too deep");
    do {
        if (!expr_stack_push(&l->pending, parse_sequence(l, depth), l->f.source.err))
            return EXPR_NONE;
    } while (lark_skip_bar(&l->f));
    expr e = gb_alt(l->b, expr_stack_from(&l->pending, base), l->pending.num - base);
    l->pending.num = base;
    return e;
}

static bool at_end(struct lark *l) {
    bool end = lark_next_is(&l->f, LARK_NEWLINE) || lark_next_is(&l->f, LARK_END);
    return end || lark_fail(&l->f, "this cannot stand here") != EXPR_NONE;
}

static bool read_ignored(struct lark *l) {
    for (int i = 0; i < l->f.num_ignores; i++) {
        l->f.at = l->f.ignores[i];
        if (!expr_stack_push(&l->pending, lark_terminals(&l->f, l->b, false, 0), l->f.source.err) ||
            !at_end(l))
            return false;
    }
    if (l->f.num_ignores > 0) {
        l->ignored = gb_repeat(l->b, gb_alt(l->b, l->pending.items, l->pending.num), 0, -1);
        l->pending.num = 0;
    }
    return l->f.num_ignores == 0 || l->ignored != EXPR_NONE;
}

static bool read_rule(struct lark *l, int number) {
    struct lark_definition d = l->f.definitions[number];
    struct lark_token name = {LARK_RULE, d.at, 0};
    int len;
    int_sets_get(&l->f.names, number, &len);
    name.len = (size_t)len;
    expr rule = rule_of(l, &name);
    l->f.at = d.body;
    expr body =
        d.lazy ? behind_ignored(l, lark_terminals(&l->f, l->b, true, d.suffix)) : parse_alternatives(l, 0);
    if (rule == EXPR_NONE || body == EXPR_NONE || !at_end(l))
        return false;
    gb_define(l->b, rule, body);
    return true;
}

static expr read_all(struct lark *l) {
    static const struct lark_token start = {LARK_RULE, "start", 5};
    if (!read_ignored(l))
        return EXPR_NONE;
    for (int i = 0; i < l->f.num_definitions; i++)
        if (l->f.definitions[i].at && !l->f.definitions[i].terminal && !read_rule(l, i))
            return EXPR_NONE;
    int number = lark_name(&l->f, &start);
    if (number < 0)
        return EXPR_NONE;
    if (!l->f.definitions[number].at)
        return source_refuse(&l->f.source, STATUS_INVALID, l->f.source.begin,
                             "there is no rule of the name start");
    expr root = l->f.definitions[number].made;
    return l->ignored == EXPR_NONE ? root : gb_seq_of(l->b, root, l->ignored);
}

expr lark_to_expr(struct grammar_builder *b, const char *text, size_t len, struct err *err) {
    struct lark l = {.b = b, .ignored = EXPR_NONE};
    expr e = lark_file_read(&l.f, text, len, err) ? read_all(&l) : EXPR_NONE;
    if (e == EXPR_NONE)
        gb_failed(b, err);
    free(l.pending.items);
    lark_file_free(&l.f);
    return e;
}
