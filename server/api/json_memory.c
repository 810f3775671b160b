#include "json_memory.h"

#include <jansson.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>

static size_t limit;
static _Atomic size_t used;

static void *take(size_t size) {
    if (atomic_load_explicit(&used, memory_order_relaxed) + size > limit)
        return NULL;
    void *p = malloc(size);
    atomic_fetch_add_explicit(&used, malloc_usable_size(p), memory_order_relaxed);
    return p;
}

static void give_back(void *p) {
    atomic_fetch_sub_explicit(&used, malloc_usable_size(p), memory_order_relaxed);
    free(p);
}

void json_memory_limit(size_t max) {
    limit = max;
    json_set_alloc_funcs(take, give_back);
}
