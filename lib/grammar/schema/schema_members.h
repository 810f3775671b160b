// The members of an object by name, and what a clause says of them. Memory is the schema's arena.
#pragma once

#include "schema_state.h"

struct name {
    const struct jdoc_value *text;
    const struct atom_list *atoms;
    goal goal;
    bool required;
};
struct atom_list {
    atom atom;
    const struct atom_list *next;
};
struct name_table {
    struct name *names; // (num) in the schema's order
    int num, cap, slots;
    int32_t *table; // number + 1
};

// The name of a text, added where `make`; NULL: absent, or failed.
struct name *names_find(struct schema *s, struct name_table *t, const struct jdoc_value *text, bool make);
bool names_add(struct schema *s, struct name *n, atom a);
goal names_goal(struct schema *s, const struct atom_list *l);
// patternProperties of a node of an OTHERS fact, or NULL; and whether some node of it names this member.
const struct jdoc_value *node_patterns(const struct schema *s, const struct node_list *l);
bool nodes_name(struct schema *s, const struct node_list *l, const struct jdoc_value *name);
