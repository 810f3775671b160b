// The definitions of a Lark grammar. One owner.
#pragma once

#include "lark_tokens.h"

struct lark_definition {
    const char *at; // where it is defined; NULL: it is not, but imported or used alone
    bool terminal;
    int body;   // the number of its first token
    bool lazy;  // its text is the shortest that its terminal matches
    int suffix; // the number of the terminal's token that stands behind it; 0: none
    // A terminal has these:
    char *pattern; // a regular expression; NULL: not made yet
    size_t pattern_len;
    bool in_progress;
    // the expression made of it; EXPR_NONE: not made yet
    expr made;
};

struct lark_file {
    struct source source;
    struct lark_tokens tokens;
    int at; // the next token
    struct int_sets names;
    struct lark_definition *definitions; // by the numbers of names
    int num_definitions, cap_definitions;
    int *ignores; // tokens where %ignore's expressions begin
    int num_ignores, cap_ignores;
};

// Reads all statements. false with err. lark_file_free() in any case.
bool lark_file_read(struct lark_file *f, const char *text, size_t len, struct err *err);
void lark_file_free(struct lark_file *f);

static inline const struct lark_token *lark_next(const struct lark_file *f) {
    return &f->tokens.items[f->at];
}
static inline bool lark_next_is(const struct lark_file *f, int kind) { return lark_next(f)->kind == kind; }
static inline bool lark_skip(struct lark_file *f, int kind) {
    bool is = lark_next_is(f, kind);
    f->at += is;
    return is;
}
// Takes a | that stands here or on the next line.
bool lark_skip_bar(struct lark_file *f);
// Whether what stands before ends with a token of this kind.
static inline bool lark_ends_alternative(int kind) {
    return kind == '|' || kind == ')' || kind == ']' || kind == LARK_NEWLINE || kind == LARK_END ||
           kind == LARK_ARROW;
}
bool lark_skip_alias(struct lark_file *f); // -> name; false with err
// EXPR_NONE with err, about the next token.
expr lark_fail(const struct lark_file *f, const char *what);
// The number of a name; -1 with err.
int lark_name(struct lark_file *f, const struct lark_token *name);
// How often what stands before is repeated: +, *, ?, ~ 2..3, {2,3}. 0: once, and nothing is taken; -1 with err.
int lark_take_repeat(struct lark_file *f, int *min, int *max);
