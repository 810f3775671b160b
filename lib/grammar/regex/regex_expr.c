// Expressions keep repeats as counts, where an automaton would write them out. Looks ahead and
// anchors inside, which only an automaton can express, become one.
#include "regex_expr.h"

#include "../front.h"
#include "regex_dfa.h"
#include "utf8.h"

#include <stdlib.h>

// Whether anchors stand only where they say nothing, since the expression is about the whole text. As deep as the tree.
static bool is_plain(const struct regex_tree *t, int index, bool at_begin, bool at_end) {
    const struct regex_node *node = &t->nodes[index];
    const int *children = regex_children(t, node);
    int first = 0, last = node->num;
    switch (node->kind) {
    case REGEX_BEGIN: return at_begin;
    case REGEX_END: return at_end;
    case REGEX_LOOK: return false;
    case REGEX_REPEAT: return is_plain(t, children[0], false, false);
    case REGEX_SEQ:
        while (at_begin && first < last && t->nodes[children[first]].kind == REGEX_BEGIN)
            first++;
        while (at_end && last > first && t->nodes[children[last - 1]].kind == REGEX_END)
            last--;
        for (int i = first; i < last; i++)
            if (!is_plain(t, children[i], at_begin && i == first, at_end && i == last - 1))
                return false;
        return true;
    case REGEX_ALT:
        for (int i = 0; i < node->num; i++)
            if (!is_plain(t, children[i], at_begin, at_end))
                return false;
        return true;
    default: return true;
    }
}

// The code point of a node that takes one alone; -1: none.
static int32_t one_char(const struct regex_tree *t, int index) {
    const struct regex_node *node = &t->nodes[index];
    int len;
    const int32_t *set = node->kind == REGEX_CHARS ? int_sets_get(&t->sets, node->set, &len) : NULL;
    return set && len == 2 && set[0] == set[1] ? set[0] : -1;
}

static expr node_expr(struct grammar_builder *b, const struct regex_tree *t, int index);

static expr chars_expr(struct grammar_builder *b, const struct regex_tree *t, const struct regex_node *node) {
    int len;
    const int32_t *set = int_sets_get(&t->sets, node->set, &len);
    return len == 0 ? gb_never(b) : gb_chars(b, (const struct code_range *)set, len / 2, false);
}

// Characters in a row become one text.
static expr list_expr(struct grammar_builder *b, const struct regex_tree *t, const struct regex_node *node) {
    const int *children = regex_children(t, node);
    expr *parts = malloc(((size_t)node->num + 1) * sizeof *parts), e = EXPR_NONE;
    char *text = malloc(4 * (size_t)node->num + 1);
    int num = 0;
    bool ok = parts && text;
    for (int i = 0; ok && i < node->num; num++) {
        size_t len = 0;
        for (int32_t c; node->kind == REGEX_SEQ && i < node->num && (c = one_char(t, children[i])) >= 0; i++)
            len += utf8_encode(text + len, (uint32_t)c);
        parts[num] = len > 0 ? gb_bytes(b, text, len) : node_expr(b, t, children[i++]);
        ok = parts[num] != EXPR_NONE;
    }
    if (ok)
        e = node->kind == REGEX_SEQ ? gb_seq(b, parts, num) : gb_alt(b, parts, num);
    free(parts);
    free(text);
    return e;
}

// As deep as the tree. EXPR_NONE: b failed, or out of memory.
static expr node_expr(struct grammar_builder *b, const struct regex_tree *t, int index) {
    const struct regex_node *node = &t->nodes[index];
    switch (node->kind) {
    case REGEX_CHARS: return chars_expr(b, t, node);
    case REGEX_REPEAT: {
        expr child = node_expr(b, t, t->children[node->first]);
        return child == EXPR_NONE ? child : gb_repeat(b, child, node->min, node->max);
    }
    case REGEX_SEQ:
    case REGEX_ALT: return list_expr(b, t, node);
    default: return gb_empty(b); // anchors
    }
}

expr regex_tree_expr(struct grammar_builder *b, const struct regex_tree *t, struct err *err) {
    expr e;
    if (is_plain(t, t->root, true, true)) {
        e = node_expr(b, t, t->root);
    } else {
        struct dfa *d = regex_tree_dfa(t, true, err);
        if (!d)
            return EXPR_NONE;
        e = gb_dfa(b, d);
    }
    if (e == EXPR_NONE && gb_failed(b, err) == STATUS_OK)
        err_set(err, STATUS_NOMEM, "out of memory for a regular expression");
    return e;
}

expr regex_to_expr(struct grammar_builder *b, const char *text, size_t len, struct err *err) {
    struct regex_tree *t = regex_parse(text, len, 0, err);
    expr e = t ? regex_tree_expr(b, t, err) : EXPR_NONE;
    regex_tree_free(t);
    return e;
}
