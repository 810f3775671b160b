// Automata of regular expressions.
#pragma once

#include "dfa.h"
#include "regex_tree.h"

// As dfa_regex(). Looks ahead may stand at the begin of text, in the outermost alternatives.
struct dfa *regex_tree_dfa(const struct regex_tree *t, bool anchored, struct err *err);
