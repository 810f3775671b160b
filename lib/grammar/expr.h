// The tree that a grammar_builder holds, for those who make and read it.
#pragma once

#include "grammar_build.h"

enum expr_kind {
    EXPR_NEVER,
    EXPR_EMPTY,
    EXPR_SET,
    EXPR_DFA,
    EXPR_SEQ,
    EXPR_ALT,
    EXPR_REPEAT,
    EXPR_RULE,
    EXPR_OBJECT,
    EXPR_GUARD
};

struct expr_node {
    enum expr_kind kind;
    // SET, DFA, OBJECT, RULE: its number. SEQ, ALT: (count) children at first. REPEAT: of child first, min to max. GUARD: of
    // child first, as far as the builder's guard takes it.
    int32_t first, count;
    int32_t min, max;
};

struct byte_set {
    uint64_t bits[4];
};
static inline bool byte_set_has(const struct byte_set *s, int byte) {
    return s->bits[byte / 64] >> (byte % 64) & 1;
}
// Whether it has a byte of plain text (dfa.h).
static inline bool byte_set_takes_plain(const struct byte_set *s) {
    return (s->bits[0] & UINT64_C(0xfffffffb00000000)) | (s->bits[1] & ~(UINT64_C(1) << ('\\' % 64))) |
           s->bits[2] | s->bits[3];
}

struct rule {
    char *name; // owned
    expr body;  // EXPR_NONE: not defined yet
};

// A json_object as the builder keeps it: all owned.
struct object {
    struct dfa *keys; // over text as it is written, without quotes
    struct member_kind *kinds;
    int32_t *lists, *list_starts;
    int num_kinds, min, max;
    bool ordered;
    bool bare;             // keys have no quotes: what ends them is plain, or a tag
    unsigned char key_end; // the byte behind a key
    expr open, close;      // before the first member, behind the last
    expr comma;            // between two
    expr key, colon, end;  // before a key, behind what ends it, behind a value
};

struct grammar_builder {
    struct err err;
    struct expr_node *nodes;
    expr *children;
    struct byte_set *sets;
    struct dfa **dfas;
    struct rule *rules;
    struct object *objects;
    int num_nodes, num_children, num_sets, num_dfas, num_rules, num_objects;
    int cap_nodes, cap_children, cap_sets, cap_dfas, cap_rules, cap_objects;
    int64_t bytes; // of automata and keys
    struct json_style style;
    const struct grammar_literals *literals; // NULL: JSON
    struct builder_tags tags;
    const char *guard_stop; // borrowed; NULL: there is no guard
    int32_t guard;          // the number of an automaton
    expr single[256];       // a byte's set, EXPR_NONE: not made yet
    expr empty, never, blanks, chars, one_char, any, integer, number;
};

expr gb_fail(struct grammar_builder *b, enum status code, const char *message); // EXPR_NONE
// Makes room for one more element of `size` bytes. false: out of memory, or more than the budget; b failed.
bool gb_grow(struct grammar_builder *b, void *array, int num, int *cap, size_t size);
enum { MAX_MID = 64 };
// A part of texts and tokens as its bytes; 0: it is another, empty, or longer.
size_t gb_flat_part(const struct grammar_part *p, char out[MAX_MID]);
// Text of an automaton, and of an expression, as strings hold it; the automaton is taken over. NULL, EXPR_NONE: b failed.
struct dfa *gb_dfa_escaped(struct grammar_builder *b, struct dfa *d);
expr gb_escaped(struct grammar_builder *b, expr e);
expr gb_object_node(struct grammar_builder *b, const struct object *o); // takes all of o over
