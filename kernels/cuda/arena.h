// Bump allocation out of one piece of memory.
#pragma once

#include <stddef.h>

struct cuda_arena {
    char *base; // NULL: it only counts
    size_t used;
};

// n elements, 256-byte aligned; NULL where the arena only counts.
static inline void *arena_alloc(struct cuda_arena *a, size_t n, size_t size) {
    void *p = a->base ? a->base + a->used : NULL;
    a->used += (n * size + 255) / 256 * 256;
    return p;
}
