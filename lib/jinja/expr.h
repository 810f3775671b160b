// Expressions to nodes.
#pragma once

#include "parser.h"

struct node *parse_cond(struct jinja_parser *p);
// One expression, or several with commas: N_TUPLE (list). `end_name` ends it too, where not NULL.
struct node *parse_tuple(struct jinja_parser *p, bool with_cond, const char *end_name, bool parentheses);
struct node *parse_filter(struct jinja_parser *p, struct node *input);  // after '|'
struct node *parse_filters(struct jinja_parser *p, struct node *input); // any number of filters, tests, calls
