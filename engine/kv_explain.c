// Why a prefix match ends: what the index, the list of evicted entries and the other blocks say of the next one. Pure.
#include "kv_cache.h"

static int same_tokens(const struct kv_cache *kv, block_id id, const token_id *tokens) {
    const token_id *own = kv->tokens + (size_t)id * (size_t)kv->config.block_size;
    int n = 0;
    while (n < kv->config.block_size && own[n] == tokens[n])
        n++;
    return n;
}

static bool serves(const struct kv_cache *kv, struct kv_hash h, int group, const token_id *tokens) {
    block_id id = kv_find(kv, h, group, tokens);
    return id != KV_NONE && !kv->blocks[id].exclusive;
}

// How many of the blocks in tokens[0..n) all full groups have, from block `first` on, behind h; 0 without such a group.
static int full_run(const struct kv_cache *kv, struct kv_seq *seq, struct kv_hash h, const token_id *tokens,
                    int first, int n) {
    const struct kv_config *c = &kv->config;
    bool any = false, all = true;
    for (int g = 0; g < c->num_groups; g++)
        any |= c->groups[g].kind == KV_FULL;
    int i = first;
    for (; any && i < n / c->block_size; i++) {
        h = kv_seq_chain(kv, seq, i, h, tokens);
        const token_id *block = kv_block_names(kv, seq, tokens, i);
        for (int g = 0; g < c->num_groups; g++)
            all &= c->groups[g].kind != KV_FULL || serves(kv, h, g, block);
        if (!all)
            break;
    }
    return i - first;
}

// The group lacks the block.
static void explain_missing(const struct kv_cache *kv, struct kv_hash h, int group, struct kv_ending *e) {
    const struct kv_evicted *past = &kv->evicted[h.lo & (uint64_t)(kv->evicted_size - 1)];
    bool evicted = past->hash.lo == h.lo && past->hash.hi == h.hi && (h.lo || h.hi) && past->group == group;
    if (!evicted && e->why == KV_END_EVICTED)
        return;
    e->why = evicted ? KV_END_EVICTED : KV_END_GROUP;
    e->when = evicted ? past->when : 0;
    e->group = group;
}

struct kv_ending kv_explain(const struct kv_cache *kv, struct kv_seq *seq, struct kv_hash parent,
                            const token_id *tokens, int cached, int n) {
    const struct kv_config *c = &kv->config;
    struct kv_ending e = {.why = KV_END_PROMPT, .same = -1, .other = -1};
    int first = cached / c->block_size, found = 0;
    if (n - cached < c->block_size)
        return e;
    const int run = full_run(kv, seq, parent, tokens, first, n), end = first + (run > 0 ? run : 1);
    struct kv_hash h = parent;
    e.why = KV_END_NEW;
    for (int i = first; i < end; i++) {
        h = kv_seq_chain(kv, seq, i, h, tokens);
        const token_id *block = kv_block_names(kv, seq, tokens, i);
        for (int g = c->num_groups; g-- > 0;)
            if (serves(kv, h, g, block))
                found++;
            else if (run == 0 || i >= kv_first_served(c, g, end))
                explain_missing(kv, h, g, &e);
    }
    if (found == 0 && e.why == KV_END_GROUP)
        e.why = KV_END_NEW;
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
            const token_id other = kv->tokens[(size_t)id * size + (size_t)same];
            e->other = other < 0 ? -1 : other;
        }
    }
    if (e->same >= 0)
        e->why = KV_END_DIFFERS;
}
