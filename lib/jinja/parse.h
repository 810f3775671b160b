// Tokens to a tree.
#pragma once

#include "lex.h"
#include "tree.h"

// t->lib is set; sets the tree and the names.
void jinja_parse(struct jinja_source *s, struct chat_template *t);
