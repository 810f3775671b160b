// KV groups and pages, as the cache's bookkeeping, the model and the devices share them.
//
// One pool of equal pages serves every layer. Layers that keep the same kind of state form a group; a group has a block
// table per sequence, and a page of it holds what all layers of the group keep of block_size tokens.
#pragma once

#include <stdbool.h>
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
    int window;     // KV_WINDOW: as attn_spec.window,
    bool chunked;   // and .chunked
    int num_layers; // that keep their state in the group's pages
};

// The first token that the query at `position` sees. window 0: all.
static inline int kv_first_seen(int position, int window, bool chunked) {
    int before = chunked && window > 0 ? position % window : window - 1;
    return window > 0 && position > before ? position - before : 0;
}

// Attention kernels read keys and values in tiles that begin at multiples of KV_TILE tokens. So a window keeps whole
// tiles: the first token that the query at `position` may cause to be read.
enum { KV_TILE = 64 };
static inline int kv_first_kept(int position, int window, bool chunked) {
    return kv_first_seen(position, window, chunked) / KV_TILE * KV_TILE;
}

// Where a page lies: in the device's pool, or in one that the device has in host memory (step_limits.num_host_pages).
enum kv_tier { KV_DEVICE, KV_HOST };

// Page `to` becomes a copy of page `from`: all layers, keys and values. One of them is the device's.
struct kv_move {
    int32_t from, to;
    int16_t from_tier, to_tier; // enum kv_tier
};

#ifdef __cplusplus
}
#endif
