// Arrays that grow.
#pragma once

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

// pointer: of any array's pointer, which becomes one with room for `count` elements; false: out of memory.
static inline bool grow_to(void *pointer, size_t elem, size_t count) {
    void *old, *grown;
    memcpy(&old, pointer, sizeof old);
    if (!(grown = realloc(old, elem * count)))
        return false;
    memcpy(pointer, &grown, sizeof grown);
    return true;
}

// Makes room for one more element than num.
static inline bool grow_room(void *pointer, size_t elem, int num, int *cap) {
    int count = *cap ? 2 * *cap : 32;
    if (num < *cap)
        return true;
    if (!grow_to(pointer, elem, (size_t)count))
        return false;
    *cap = count;
    return true;
}
