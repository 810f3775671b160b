// Memory of a template or of one rendering: blocks that are freed together.
#pragma once

#include "chat.h"

struct arena_block;
struct chat_arena {
    struct arena_block *blocks;
    char *at, *end;
    size_t used, limit; // bytes
    size_t input;       // bytes of text that the caller put in
    uint64_t seed;      // of the hash tables
};

void *arena_alloc(struct chat_arena *a, size_t n); // zeroed; NULL: out of memory, or over the arena's limit
