// The simulator's store of pages (S18): what the cache publishes is kept by hash and group, with its cells, until another page
// takes its place; what a waiting request would hit comes back in pieces, or does not.
#pragma once

#include "simulated_prompts.h"

enum { STORE_PAGES = 1 << 10, STORE_WANTED = 64, STORE_SIZE = 16 };

struct simulated_page {
    struct kv_hash hash;
    int group;
    bool there;
    token_id names[STORE_SIZE];
    uint64_t cells[STORE_SIZE];
};

struct simulated_store {
    struct kv_cache *kv;
    uint64_t *cells; // of all pages of the cache
    struct simulated_page pages[STORE_PAGES];
};

// A request waits for these.
struct simulated_fetch {
    struct kv_wanted wanted[STORE_WANTED];
    int num, next;
};

static struct simulated_page *simulated_place(struct simulated_store *s, struct kv_hash h, int group) {
    return &s->pages[(h.lo + (uint64_t)group) % STORE_PAGES];
}

static bool simulated_has(void *arg, struct kv_hash h, int group) {
    const struct simulated_page *p = simulated_place(arg, h, group);
    return p->there && p->hash.lo == h.lo && p->hash.hi == h.hi && p->group == group;
}

static void simulated_watch(void *arg, enum kv_change change, block_id id) {
    struct simulated_store *s = arg;
    const struct kv_block *b = &s->kv->blocks[id];
    const size_t size = (size_t)s->kv->config.block_size;
    if (change != KV_PUBLISHED || one_in(8)) // some are not written in time
        return;
    struct simulated_page *p = simulated_place(s, b->hash, b->group);
    *p = (struct simulated_page){.hash = b->hash, .group = b->group, .there = true};
    memcpy(p->names, s->kv->tokens + (size_t)id * size, size * sizeof *p->names);
    memcpy(p->cells, s->cells + (size_t)id * size, size * sizeof *p->cells);
}

// The next page of a fetch comes: true if it did, and is in the cache.
static bool simulated_come(struct simulated_store *s, struct simulated_fetch *f, const struct request *r) {
    const struct kv_wanted *w = &f->wanted[f->next++];
    const struct simulated_page *p = simulated_place(s, w->hash, w->group);
    const size_t size = (size_t)s->kv->config.block_size;
    const token_id *names = kv_block_names(s->kv, &r->seq, r->tokens, w->block);
    if (!simulated_has(s, w->hash, w->group) || memcmp(p->names, names, size * sizeof *names) != 0) {
        f->next = f->num; // lost meanwhile: what lies behind it is of no use
        return false;
    }
    block_id id = kv_adopt(s->kv, w, names);
    if (id == KV_NONE)
        return false;
    memcpy(s->cells + (size_t)id * size, p->cells, size * sizeof *p->cells);
    return true;
}
