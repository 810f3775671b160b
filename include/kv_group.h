// What the cache's bookkeeping, the model and the devices say alike of the pages of the KV cache.
//
// One pool of equal pages serves every layer. Layers that keep the same kind of state form a group; a group has a block
// table per sequence, and a page of it holds what all layers of the group keep of block_size tokens.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { KV_MAX_GROUPS = 8 };

enum kv_kind {
    KV_FULL,   // every token stays
    KV_WINDOW, // tokens before the window are given back as it moves on
    KV_STATE,  // one page of recurrent state a sequence, and snapshots of it at block boundaries
};

struct kv_group_spec {
    enum kv_kind kind;
    int window;     // KV_WINDOW: tokens that a query sees, its own included
    int num_layers; // that keep their state in the group's pages
};

// Attention kernels read keys and values in tiles that begin at multiples of KV_TILE tokens. So a window keeps whole
// tiles: the first token that the query at `position` may cause to be read.
enum { KV_TILE = 64 };
static inline int kv_first_kept(int position, int window) {
    int first = window > 0 && position >= window ? position - window + 1 : 0;
    return first / KV_TILE * KV_TILE;
}

// Page `to` becomes a copy of page `from`: all layers, keys and values.
struct kv_move {
    int32_t from, to;
};

#ifdef __cplusplus
}
#endif
