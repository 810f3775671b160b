#include "parser.h"

#include "jinja.h"

#include <stdio.h>
#include <string.h>

struct node *node_new(struct jinja_parser *p, enum node_kind kind) {
    struct node *n = source_alloc(p->s, sizeof *n);
    n->kind = kind;
    n->line = p->tok->line;
    return n;
}

void nodes_add(struct jinja_parser *p, struct nodes *l, struct node *n) {
    if (l->num == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 4;
        struct node **v = source_alloc(p->s, l->cap * sizeof *v);
        if (l->num)
            memcpy(v, l->v, l->num * sizeof *v);
        l->v = v;
    }
    l->v[l->num++] = n;
}

void node_set_list(struct node *n, const struct nodes *l) {
    n->list = l->v;
    n->num = l->num;
}

void parse_enter(struct jinja_parser *p) {
    if (++p->depth > JINJA_MAX_NESTING)
        source_fail(p->s, STATUS_LIMIT, p->tok->line, p->tok->column, "nested over %d deep",
                    JINJA_MAX_NESTING);
}

const struct str *parse_intern(struct jinja_parser *p, const char *text, size_t len) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)text[i]) * 16777619u;
    struct name_entry **slot = &p->names[h % NUM_BUCKETS];
    for (struct name_entry *e = *slot; e; e = e->next)
        if (e->s.len == len && memcmp(e->s.p, text, len) == 0)
            return &e->s;
    struct name_entry *e = source_alloc(p->s, sizeof *e);
    *e = (struct name_entry){.next = *slot, .s = {.p = text, .len = len}};
    *slot = e;
    return &e->s;
}

void parse_next(struct jinja_parser *p) {
    if (p->tok->kind != T_EOF)
        p->tok++;
}

bool parse_at_name(const struct jinja_parser *p, const char *name) {
    return p->tok->kind == T_NAME && p->tok->len == strlen(name) && memcmp(p->tok->p, name, p->tok->len) == 0;
}

bool parse_at_op(const struct jinja_parser *p, int op) { return p->tok->kind == T_OP && p->tok->op == op; }

bool parse_skip_op(struct jinja_parser *p, int op) {
    bool is = parse_at_op(p, op);
    if (is)
        parse_next(p);
    return is;
}

bool parse_skip_name(struct jinja_parser *p, const char *name) {
    bool is = parse_at_name(p, name);
    if (is)
        parse_next(p);
    return is;
}

static const char *op_text(int op, char out[2]) {
    switch (op) {
    case OP_EQ: return "==";
    case OP_NE: return "!=";
    case OP_GE: return ">=";
    case OP_LE: return "<=";
    case OP_FLOORDIV: return "//";
    case OP_POW: return "**";
    default: out[0] = (char)op, out[1] = 0; return out;
    }
}

_Noreturn void parse_unexpected(struct jinja_parser *p, const char *wanted) {
    const struct token *t = p->tok;
    char op[2];
    switch (t->kind) {
    case T_NAME: FAIL(p, "expected %s, found '%.*s'", wanted, NAME(t));
    case T_STRING: FAIL(p, "expected %s, found a string", wanted);
    case T_INT:
    case T_FLOAT: FAIL(p, "expected %s, found a number", wanted);
    case T_OP: FAIL(p, "expected %s, found '%s'", wanted, op_text(t->op, op));
    default: FAIL(p, "expected %s, found the end", wanted);
    }
}

void parse_expect_op(struct jinja_parser *p, int op) {
    char text[2], wanted[8];
    snprintf(wanted, sizeof wanted, "'%s'", op_text(op, text));
    if (!parse_skip_op(p, op))
        parse_unexpected(p, wanted);
}

const struct str *parse_expect_name(struct jinja_parser *p) {
    if (p->tok->kind != T_NAME)
        parse_unexpected(p, "a name");
    const struct str *s = parse_intern(p, p->tok->p, p->tok->len);
    parse_next(p);
    return s;
}
