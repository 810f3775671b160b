// The words of a Lark grammar.
#pragma once

#include "source.h"

enum lark_kind { // others are the character itself: : , . ( ) { } [ ] ~ | = + * ? & !
    LARK_END = 256,
    LARK_NEWLINE,   // one or more, not within brackets
    LARK_RULE,      // a name in lower case
    LARK_TERMINAL,  // a name in upper case
    LARK_STRING,    // "..." and flags
    LARK_REGEX,     // /.../ and flags
    LARK_NUMBER,    // -1
    LARK_DIRECTIVE, // %name
    LARK_JSON,      // {...}, behind %json and the like
    LARK_SPECIAL,   // <...>
    LARK_GRAMMAR,   // @name
    LARK_RANGE,     // ..
    LARK_ARROW,     // ->
};

struct lark_token {
    int kind;
    const char *at; // (len) in the source
    size_t len;
};

struct lark_tokens {          // zeroed: empty
    struct lark_token *items; // the last one is LARK_END
    int num, cap;
};

// false with err. free(t->items) in any case.
bool lark_tokens_read(struct source *s, struct lark_tokens *t);
static inline bool lark_token_is(const struct lark_token *t, const char *text) {
    return strlen(text) == t->len && memcmp(t->at, text, t->len) == 0;
}
