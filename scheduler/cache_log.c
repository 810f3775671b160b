#include "cache_log.h"

#include "inside.h"

#include <stdlib.h>
#include <string.h>

static size_t block_bytes(const struct cache_log *l) {
    return (size_t)l->kv->config.block_size * sizeof(token_id);
}

static const token_id *tokens_of(const struct kv_cache *kv, block_id id) {
    return kv->tokens + (size_t)id * (size_t)kv->config.block_size;
}

void cache_log_note(struct cache_log *l, enum kv_change change, block_id id) {
    if (!l->events)
        return;
    const struct kv_block *b = &l->kv->blocks[id];
    const size_t at = l->num++ % CACHE_LOG_EVENTS;
    l->events[at] = (struct cache_event){b->hash.lo, b->parent, b->group, change == KV_EVICTED};
    memcpy((char *)l->tokens + at * block_bytes(l), tokens_of(l->kv, id), block_bytes(l));
}

void cache_log_free(struct cache_log *l) {
    free(l->events);
    free(l->tokens);
}

static void put(struct cache_events *q, const struct cache_log *l, struct cache_event event,
                const token_id *tokens) {
    q->events[q->num] = event;
    memcpy((char *)q->tokens + (size_t)q->num * block_bytes(l), tokens, block_bytes(l));
    q->num++;
}

// The first asker starts the log.
static bool begin(struct cache_log *l) {
    if (l->events)
        return true;
    l->events = malloc(CACHE_LOG_EVENTS * sizeof *l->events);
    l->tokens = malloc(CACHE_LOG_EVENTS * block_bytes(l));
    if (!l->events || !l->tokens) {
        cache_log_free(l);
        l->events = NULL;
        l->tokens = NULL;
        return false;
    }
    l->num = 1;
    return true;
}

void cache_events_run(struct service_query *query, const struct service_inside *in) {
    struct cache_events *q = (struct cache_events *)query;
    struct cache_log *l = in->log;
    const struct kv_cache *kv = l->kv;
    q->num = 0;
    q->failed = !begin(l);
    if (q->failed)
        return;
    q->root = kv->common.lo;
    q->num_groups = kv->config.num_groups;
    q->cleared = q->next == 0 || l->num - q->next > CACHE_LOG_EVENTS;
    if (q->cleared) {
        q->next = l->num;
        q->page = 0;
    }
    // While these are told, what happens to them comes behind.
    for (; q->page < kv->config.num_blocks && q->num < q->max; q->page++) {
        const struct kv_block *b = &kv->blocks[q->page];
        if (b->published)
            put(q, l, (struct cache_event){b->hash.lo, b->parent, b->group, false}, tokens_of(kv, q->page));
    }
    for (; q->page == kv->config.num_blocks && q->next < l->num && q->num < q->max; q->next++) {
        const size_t at = q->next % CACHE_LOG_EVENTS;
        put(q, l, l->events[at],
            (const token_id *)(const void *)((const char *)l->tokens + at * block_bytes(l)));
    }
    q->more = q->page < kv->config.num_blocks || q->next < l->num;
}
