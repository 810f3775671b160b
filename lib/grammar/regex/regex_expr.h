// Expressions of regular expressions.
#pragma once

#include "../grammar_build.h"
#include "regex_tree.h"

// The whole text matches. EXPR_NONE: with err, or b failed.
expr regex_tree_expr(struct grammar_builder *b, const struct regex_tree *t, struct err *err);
