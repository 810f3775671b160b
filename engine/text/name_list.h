// Tokens sorted by name, to be searched one byte of a text after the other.
#pragma once

#include "tokenizer_internal.h"

// The names that begin with the bytes taken so far.
struct name_range {
    int lo, hi; // of the list; none where lo == hi
    size_t depth;
};

// Orders l->ids, whose names are not empty.
void name_list_sort(struct name_list *l, const struct tokenizer *t);
void name_list_free(struct name_list *l);

static inline struct name_range name_list_all(const struct name_list *l) {
    return (struct name_range){0, l->num, 0};
}

// Goes on with the names whose next byte is c. Returns the token that ends there (of equal names the lowest
// place in the list), -1: none.
token_id name_list_step(const struct name_list *l, const struct tokenizer *t, struct name_range *r,
                        unsigned char c);
