// A regular expression as a tree.
#pragma once

#include "int_sets.h"
#include "status.h"

#include <stdbool.h>

enum regex_kind {
    REGEX_CHARS,  // one code point of a set
    REGEX_SEQ,    // its children, one after the other; none: empty text
    REGEX_ALT,    // one of its children
    REGEX_REPEAT, // its child, min to max (-1: no end) times
    REGEX_BEGIN,  // ^
    REGEX_END,    // $
    REGEX_LOOK,   // its child matches here, or does not (negated), and takes no text
};

struct regex_node {
    enum regex_kind kind;
    bool negated;
    int set;        // chars
    int first, num; // children[first .. first + num)
    int min, max;   // repeat
    int at;         // character of the pattern where it begins, from 1; for messages
};

// Flags of the whole pattern; (?i) and (?s) in it set them, too.
enum {
    REGEX_IGNORE_CASE = 1,
    REGEX_DOT_ALL = 2,
    REGEX_DOT_LINE = 4, // . takes all but a line feed, as Python and Rust have it
};

struct regex_tree {
    struct regex_node *nodes;
    int num_nodes, cap_nodes;
    int *children;
    int num_children, cap_children;
    struct int_sets sets; // of code points: first, last of each range, in order
    int root;
};

// The children of a node; NULL: it has none.
static inline const int *regex_children(const struct regex_tree *t, const struct regex_node *node) {
    return node->num > 0 ? t->children + node->first : NULL;
}
// pattern: UTF-8. NULL with err: STATUS_INVALID, malformed or not regular; STATUS_LIMIT, nesting or repeats;
// STATUS_NOMEM. At most 3 * MAX_NESTING deep, no two REPEATs directly one in the other.
struct regex_tree *regex_parse(const char *pattern, size_t len, int flags, struct err *err);
void regex_tree_free(struct regex_tree *t); // NULL is allowed
// "regular expression, character 5: a back-reference ..."
enum status regex_error(struct err *err, enum status code, int at, const char *what);
