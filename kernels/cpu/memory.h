// Memory of the CPU backend: zeroed, 64-byte aligned, on huge pages where it is large.
#pragma once

#include <stddef.h>

struct region {
    void *data;
    size_t bytes; // as mapped; 0: from the heap
};

// data is NULL when there is no memory. Pages of large regions are real only once touched.
struct region region_alloc(size_t bytes);
void region_free(struct region *r);

struct cpu_arena { // hands out pieces of a region that live as long as it does; with base NULL it only counts
    char *base;
    size_t used;
};
// n elements of `size` bytes, 64-byte aligned; NULL where it only counts.
void *arena_take(struct cpu_arena *a, size_t n, size_t size);

// Bytes this process may still take: available memory, or what is left of its control groups if that is
// less; what either holds of files counts as left.
size_t memory_available(void);
