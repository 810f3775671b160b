// The languages in which clients write grammars. Each function adds what `text` says to b. EXPR_NONE with err:
// STATUS_INVALID, what is malformed or not supported, and where (a JSON pointer, or line and column); STATUS_LIMIT: a
// budget of SOURCE_BYTES, nesting, rules, repeats; STATUS_NOMEM. None recurses on its input deeper than MAX_NESTING.
#pragma once

#include "grammar_build.h"

enum { SOURCE_BYTES = 1 << 20, MAX_NESTING = 64, MAX_RULES = 10000, MAX_REPEAT = 100000 };

// JSON Schema, drafts 4 to 2020-12. A keyword that is not supported is refused by name and path; annotations are not
// keywords. The formats that are known are asserted, others are annotations.
expr schema_to_expr(struct grammar_builder *b, const char *text, size_t len, struct err *err);
expr regex_to_expr(struct grammar_builder *b, const char *text, size_t len,
                   struct err *err);                                                         // the whole text
expr gbnf_to_expr(struct grammar_builder *b, const char *text, size_t len, struct err *err); // from `root`
expr lark_to_expr(struct grammar_builder *b, const char *text, size_t len, struct err *err); // from `start`
// xgrammar's EBNF is GBNF with a few forms more, which gbnf_to_expr() takes, too.
