// Why a prefix match ends: what the index, the list of evicted entries and the other blocks say of the next one. Pure.
#include "kv_cache.h"

static int same_tokens(const struct kv_cache *kv, block_id id, const token_id *tokens) {
    const token_id *own = kv->tokens + (size_t)id * (size_t)kv->config.block_size;
    int n = 0;
    while (n < kv->config.block_size && own[n] == tokens[n])
        n++;
    return n;
}

struct kv_ending kv_explain(const struct kv_cache *kv, struct kv_hash parent, const token_id *tokens, int n) {
    struct kv_ending e = {.why = KV_END_PROMPT, .same = -1, .other = -1};
    int found = 0, missing = 0;
    if (n < kv->config.block_size)
        return e;
    struct kv_hash h = kv_chain(kv, parent, tokens);
    for (int g = kv->config.num_groups; g-- > 0;)
        if (kv_find(kv, h, g, tokens) != KV_NONE)
            found++;
        else
            missing = g;
    const struct kv_evicted *past = &kv->evicted[h.lo & (uint64_t)(kv->evicted_size - 1)];
    e.why = found > 0 ? KV_END_GROUP : KV_END_NEW;
    e.group = missing;
    if (past->hash.lo == h.lo && past->hash.hi == h.hi && (h.lo || h.hi) &&
        kv_find(kv, h, past->group, tokens) == KV_NONE) {
        e.why = KV_END_EVICTED;
        e.when = past->when;
        e.group = past->group;
    }
    return e;
}

void kv_compare(const struct kv_cache *kv, struct kv_hash parent, const token_id *tokens,
                struct kv_ending *e) {
    size_t size = (size_t)kv->config.block_size;
    for (block_id id = 0; e->why == KV_END_NEW && id < kv->config.num_blocks; id++) {
        const struct kv_block *b = &kv->blocks[id];
        int same = b->published && b->parent == parent.lo ? same_tokens(kv, id, tokens) : -1;
        if (same > e->same && same < (int)size) {
            e->same = same;
            e->other = kv->tokens[(size_t)id * size + (size_t)same];
        }
    }
    if (e->same >= 0)
        e->why = KV_END_DIFFERS;
}
