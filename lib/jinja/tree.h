// The tree that the parser makes and the evaluator runs.
#pragma once

#include "builtin.h"

enum node_kind {
    N_TEXT,
    N_OUTPUT,
    N_BLOCK,
    N_IF,
    N_FOR,
    N_SET,
    N_SET_BLOCK,
    N_MACRO,
    N_CALL_BLOCK,
    N_FILTER_BLOCK,
    N_WITH,
    N_SCOPE,
    N_BREAK,
    N_CONTINUE,
    N_CONST,
    N_NAME,
    N_LIST,
    N_TUPLE,
    N_DICT,
    N_ATTR,
    N_ITEM,
    N_SLICE,
    N_CALL,
    N_FILTER,
    N_TEST,
    N_NEGATE,
    N_PLUS,
    N_BINARY,
    N_COMPARE,
    N_AND,
    N_OR,
    N_NOT,
    N_COND,
    N_CONCAT,
    N_NS_TARGET, // ns.attribute as the target of set
    N_INPUT,     // the input of a filter block
};

// The parser says at each kind which members it uses.
struct node {
    enum node_kind kind;
    int op;
    uint32_t line;
    const struct str *name; // interned: equal names are one pointer
    const struct builtin *fn;
    struct node *a, *b, *c, *d;
    struct node **list; // (num)
    size_t num;
    const int *ops; // (num) of a comparison
    struct args *args;
    struct value v;
    bool uses_varargs, uses_kwargs, uses_caller; // of a macro
};

struct args {
    struct node **pos;        // (num)
    const struct str **names; // (num_kw)
    struct node **kw;
    size_t num, num_kw;
    struct node *star, *star_star; // or NULL
};

struct chat_template {
    struct chat_arena *arena;
    const struct library *lib;
    struct node *root;
    const struct str *loop, *caller, *varargs, *kwargs; // names
};
