// Terminals of a Lark grammar: each is one regular expression.
#pragma once

#include "lark_file.h"

// Each reads from f->at, and leaves it behind what it read. EXPR_NONE: with err, or b failed.
// A string, a range of characters, a regular expression or a terminal's name.
expr lark_terminal(struct lark_file *f, struct grammar_builder *b);
// Alternatives of terminals; with lazy the shortest texts that they take, behind which is the terminal of token
// `suffix` (0: none).
expr lark_terminals(struct lark_file *f, struct grammar_builder *b, bool lazy, int suffix);
