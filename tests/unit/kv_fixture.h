// Caches and sequences of the tests of kv_cache.c.
#pragma once

#include "harness.h"

#include "kv_cache.h"

enum { CAP = 16 };

struct table {
    struct kv_seq t;
    block_id ids[KV_MAX_GROUPS * CAP];
};

static inline struct kv_config config_of(int num_blocks, int block_size, bool share) {
    return (struct kv_config){.num_blocks = num_blocks,
                              .block_size = block_size,
                              .num_groups = 1,
                              .key = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u}, // bytes 00 01 .. 0f
                              .share = share};
}

static inline struct kv_cache make(int num_blocks, int block_size, bool share) {
    struct kv_config config = config_of(num_blocks, block_size, share);
    struct kv_cache kv;
    assert_int_equal(kv_init(&kv, &config), STATUS_OK);
    return kv;
}

static inline struct kv_seq *table_init(struct table *t) {
    kv_seq_init(&t->t, t->ids, CAP);
    return &t->t;
}

static inline int check2(const struct kv_cache *kv, const struct kv_seq *a, const struct kv_seq *b) {
    const struct kv_seq *seqs[] = {a, b};
    return kv_check(kv, seqs, (a != NULL) + (b != NULL));
}

// Tokens 0, 1, 2…
static token_id text[CAP * 16];

static inline void number_text(void) {
    for (int i = 0; i < CAP * 16; i++)
        text[i] = i;
}

// The free list, and KV_NONE behind it.
static inline void free_order(const struct kv_cache *kv, block_id *out) {
    for (block_id id = kv->free_head; id != KV_NONE; id = kv->blocks[id].next)
        *out++ = id;
    *out = KV_NONE;
}
