// Analyses of expressions before they become a network: facts, left recursion.
#pragma once

#include "expr.h"

// Bits of an expression's facts.
enum { TAKES_TEXT = 1, TAKES_NOTHING = 2 }; // some text; the empty one

// facts: (num_nodes), filled. STATUS_NOMEM.
enum status expr_facts(const struct grammar_builder *b, uint8_t *facts, struct err *err);
// Rewrites rules that begin with themselves (A = A x | y becomes y x x ...). Then STATUS_INVALID with err where one
// still begins with itself, by others or behind what may be empty.
enum status resolve_left_recursion(struct grammar_builder *b, struct err *err);
