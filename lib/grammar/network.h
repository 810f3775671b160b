// A grammar as a matcher walks it: a recursive transition network. Immutable; any number of threads read it.
#pragma once

#include "expr.h"

// Where a thread of a matcher may stand. SET and DFA take a byte; all others are passed at once.
enum stop_kind {
    NFA_SET,     // a byte of sets[a], then b
    NFA_DFA,     // bytes by dfas[a]; where it accepts also b
    NFA_SPLIT,   // each of targets[a .. a + b)
    NFA_CALL,    // rule's network from a, then b
    NFA_RETURN,  // to the caller
    NFA_LOOP,    // loop a begins
    NFA_AGAIN,   // the body of loop a is done
    NFA_OBJECT,  // object a begins, behind its brace and blanks
    NFA_KEY,     // bytes of a key of object a, then its end
    NFA_VALUE,   // object a: behind the colon and blanks
    NFA_MEMBERS, // object a: behind a member and blanks
    NFA_LEAVE,   // object a is over
    NFA_GUARD,   // from here on the guard looks at each byte, then b
    NFA_UNGUARD, // no longer, then b
    NFA_END,     // the text may end
};

struct net_state {
    uint8_t kind;
    int32_t a, b;
};

struct net_loop {
    int32_t body, after; // NFA states
    int32_t min, max;
    bool quiet; // no plain byte (dfa.h) may come right behind it
};

struct net_object {
    const struct object *o;
    int32_t colon, after; // NFA states: behind what ends a key; behind a value
    int32_t comma, close; // NFA states: before the byte between two members; before the one behind the last
    int32_t key;          // NFA state: before a key
    int32_t *values; // (num_kinds) NFA states of their networks; -1: no value is possible, so no such member
    int32_t *bits;   // (num_kinds) number among those that are required or once, else -1
    int num_bits, num_required;
    uint8_t *free_ahead; // (keys' states) from here a key of a kind that may come again and again is in reach
    uint8_t *plain;      // (keys' states) from here any plain text leads to where such a key is in reach
};

struct net_dfa {
    uint8_t *plain;   // (states) from here any plain text is taken
    uint8_t *quiet;   // (states) plain text does not lead to where text may end
    uint8_t *goes_on; // (states) more text may come
    bool plain_char;  // every plain character is taken, alone
};

struct grammar {
    struct grammar_builder *b; // its automata, sets and objects
    struct net_state *nfa;
    int32_t *targets;
    struct net_loop *loops;
    struct net_object *objects;
    struct net_dfa *dfas; // (automata)
    int num_nfa, num_targets, num_loops;
    int32_t start, give_back; // NFA states: of the root; a RETURN
    uint8_t class_of[256];    // bytes that nothing here tells apart share a class
    unsigned char sample[256];
    int num_classes;
};

void grammar_free(struct grammar *g);          // NULL is allowed
size_t grammar_bytes(const struct grammar *g); // memory
