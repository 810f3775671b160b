// The pages that the prefix cache has, as they come and go: for routers that send a prompt where it hits.
//
// The caller asks again and again with service_ask(), and leaves `next` and `page` as the last answer set them; at first both
// are 0. It first gets the pages that are there, then what happens. Applied in order, its events give the cache's pages of that
// moment; an event may tell of a page what is known already. A caller that is too far behind begins anew.
#pragma once

#include "service.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cache_event {
    uint64_t hash, parent; // as kv_block's
    uint8_t group;
    bool removed; // else it is there from now on
};

struct cache_events {
    struct service_query query;
    struct cache_event *events; // (max) of the caller
    token_id *tokens;           // (max, block_size) of the caller: names of the blocks that are there
    int max;
    uint64_t next;  // number of the first event that has not been told
    int page;       // with next: pages before it were told of
    bool cleared;   // out: whatever was told before is void
    bool more;      // out: there is more to be had at once
    int num;        // out
    uint64_t root;  // out: the parent of first blocks without salt or adapter
    int num_groups; // out
    bool failed;    // out: out of memory
};

// The function of the query. Engine thread.
void cache_events_run(struct service_query *query, const struct service_inside *in);

#ifdef __cplusplus
}
#endif
