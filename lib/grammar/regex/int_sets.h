// Sequences of integers, numbered in the order in which they first come. One owner.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { INT_SETS_MAX = 1 << 24 }; // integers in all

struct int_sets { // zeroed: empty
    int num, cap, num_slots;
    int32_t *items;   // one sequence after the other
    uint32_t *starts; // (num + 1)
    uint32_t *hashes; // (num)
    int32_t *slots;   // (num_slots) a hash table of numbers, -1: free
    size_t cap_items;
};

void int_sets_free(struct int_sets *s);
// The number of a sequence, which is copied where it is new; -1: out of memory, -2: INT_SETS_MAX.
int int_sets_add(struct int_sets *s, const int32_t *items, int len);
static inline const int32_t *int_sets_get(const struct int_sets *s, int i, int *len) {
    *len = (int)(s->starts[i + 1] - s->starts[i]);
    return s->items + s->starts[i];
}
