#include "arena.h"

#include "hash.h"

#include <stdlib.h>

#define BLOCK_SIZE ((size_t)32 << 10)

struct arena_block {
    struct arena_block *next;
    max_align_t data[];
};

struct chat_arena *chat_arena_new(void) {
    struct chat_arena *a = calloc(1, sizeof *a);
    if (a) {
        a->limit = SIZE_MAX;
        a->seed = hash_seed();
    }
    return a;
}

void chat_arena_free(struct chat_arena *a) {
    if (!a)
        return;
    for (struct arena_block *b = a->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(a);
}

void *arena_alloc(struct chat_arena *a, size_t n) {
    if (n > PTRDIFF_MAX - BLOCK_SIZE || n > a->limit || a->used > a->limit - n)
        return NULL;
    n = (n + 15) & ~(size_t)15;
    bool alone = n > BLOCK_SIZE / 4;
    if (alone || n > (size_t)(a->end - a->at)) {
        size_t size = alone ? n : BLOCK_SIZE;
        struct arena_block *b = calloc(1, sizeof *b + size);
        if (!b)
            return NULL;
        b->next = a->blocks;
        a->blocks = b;
        if (alone) {
            a->used += n;
            return b->data;
        }
        a->at = (char *)b->data;
        a->end = a->at + size;
    }
    char *p = a->at;
    a->at += n;
    a->used += n;
    return p;
}
