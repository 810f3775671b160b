// A grammar's text while it is read: what gbnf.c and lark.c share. One owner.
#pragma once

#include "../front.h"
#include "../regex/int_sets.h"

#include <string.h>

struct source {
    const char *begin, *at, *end; // UTF-8
    const char *language;         // for messages
    struct err *err;
};

// false with err: STATUS_LIMIT, SOURCE_BYTES; STATUS_INVALID, not UTF-8.
bool source_begin(struct source *s, const char *language, const char *text, size_t len, struct err *err);
// "GBNF grammar, line 2, column 5: ..."; returns EXPR_NONE. at: in the text
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
expr source_refuse(const struct source *s, enum status code, const char *at, const char *fmt, ...);

static inline bool source_is(const struct source *s, const char *text) {
    size_t n = strlen(text);
    return (size_t)(s->end - s->at) >= n && memcmp(s->at, text, n) == 0;
}
static inline bool source_skip(struct source *s, const char *text) {
    bool is = source_is(s, text);
    s->at += is ? strlen(text) : 0;
    return is;
}
// c is one of the characters of `list`.
static inline bool is_one_of(char c, const char *list) { return c && strchr(list, c); }
// A whole number, at most `most` + 1; -1: there is none.
int source_number(struct source *s, int most);
// The code point of a character or an escape in a literal; -1 with err. quote: the character around the literal, or
// ']', within which a few more are escaped.
int32_t source_char(struct source *s, char quote);
// The number of a name, the same for the same; -1 with err.
int source_name(const struct source *s, struct int_sets *names, const char *name, size_t len);

// Expressions that wait for their parent. Zeroed: empty.
struct expr_stack {
    expr *items;
    int num, cap;
};
static inline const expr *expr_stack_from(const struct expr_stack *s, int base) {
    return s->num > base ? s->items + base : NULL;
}
bool expr_stack_push(struct expr_stack *s, expr e,
                     struct err *err); // false: e is EXPR_NONE, or out of memory
