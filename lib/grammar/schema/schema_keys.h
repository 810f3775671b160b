// The automaton that tells the members of an object apart by their names.
#pragma once

#include "schema_state.h"

struct key_name {
    const char *text;
    size_t len;
    int label; // -1: no such member
};

// A name of the list (which is sorted here) has its own label; any other one that of its class, by the label that
// `others` gives it (NULL: all are of class 0), -1: no such member; label_of_class NULL: no other names at all. Labels are
// below num_labels. The caller owns the automaton; NULL: failed.
struct dfa *schema_keys(struct schema *s, struct key_name *names, int num_names, const struct dfa *others,
                        const int *label_of_class, int num_labels);
