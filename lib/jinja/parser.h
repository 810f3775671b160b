// The parser's hands: the present token, names, and nodes.
#pragma once

#include "lex.h"
#include "tree.h"

#define NUM_BUCKETS 256

struct name_entry {
    struct name_entry *next;
    struct str s;
};

struct jinja_parser {
    struct jinja_source *s;
    const struct library *lib;
    const struct token *tok; // the present one
    struct name_entry *names[NUM_BUCKETS];
    struct node *macro; // innermost, or NULL
    int depth, loops, ifs;
    const struct token *unknown; // the first filter or test that there is not, outside of any condition
    const char *unknown_kind;
};

struct nodes { // a growing array
    struct node **v;
    size_t num, cap;
};

#define FAIL(p, ...) source_fail((p)->s, STATUS_FORMAT, (p)->tok->line, (p)->tok->column, __VA_ARGS__)
#define NAME(t) (int)((t)->len < 60 ? (t)->len : 60), (t)->p

struct node *node_new(struct jinja_parser *p, enum node_kind kind);
void nodes_add(struct jinja_parser *p, struct nodes *l, struct node *n);
void node_set_list(struct node *n, const struct nodes *l);
void parse_enter(struct jinja_parser *p); // one level deeper; the caller takes it back
const struct str *parse_intern(struct jinja_parser *p, const char *text, size_t len);
void parse_next(struct jinja_parser *p);
bool parse_at_name(const struct jinja_parser *p, const char *name);
bool parse_at_op(const struct jinja_parser *p, int op);
bool parse_skip_op(struct jinja_parser *p, int op);
bool parse_skip_name(struct jinja_parser *p, const char *name);
_Noreturn void parse_unexpected(struct jinja_parser *p, const char *wanted);
void parse_expect_op(struct jinja_parser *p, int op);
const struct str *parse_expect_name(struct jinja_parser *p);
