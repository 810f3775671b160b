// The last changes of the prefix cache, for cache_events.h. Engine thread only.
#pragma once

#include "cache_events.h"

enum { CACHE_LOG_EVENTS = 1 << 13 };

struct cache_log { // start it zeroed
    struct kv_cache *kv;
    struct cache_event
        *events; // (CACHE_LOG_EVENTS) a ring: event i is at i modulo their number; NULL: nobody has asked
    token_id *tokens; // (CACHE_LOG_EVENTS, block_size)
    uint64_t num;     // ever, from 1 on
};

void cache_log_note(struct cache_log *l, enum kv_change change, block_id id);
void cache_log_free(struct cache_log *l);
