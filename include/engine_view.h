// A look at the engine: requests, steps and pages, as they are between two steps.
//
// The caller makes a view, asks with service_ask(), and reads it when its done() has come. In between it is the
// engine thread's, which copies integers and nothing else: requests and steps in bounded number, pages in one pass
// over the pool, less than a millisecond for 100,000 of them.
#pragma once

#include "service.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    VIEW_STEPS = 256,          // the last ones
    VIEW_REQUESTS = 512,       // running ones first, each in order
    VIEW_OWNED = 1 << 19,      // entries of block tables that are looked at for owners
    VIEW_OWNERS = 32,          // of one page
    VIEW_CLOCK_NS = 100000000, // unit of kv_cache.clock
};

struct view_request {
    uint64_t id;
    bool running;
    int priority, num_prompt, num_computed, num_output;
    int num_cached; // prompt tokens that the prefix cache gave; -1: it has not run
    int num_pages, num_preemptions;
    int64_t submitted, scheduled, first_token; // monotonic ns; 0: not yet
};

struct view_step {
    uint64_t id;
    int64_t began, launched, computed, applied; // monotonic ns: planning, execution, update
    int num_requests, num_decode, num_tokens, num_generated;
};

enum view_page_state { VIEW_FREE, VIEW_CACHED, VIEW_ACTIVE };

struct view_page {
    uint64_t hash, parent; // of the chain; 0: not published, or not known
    int32_t refs;          // block tables that name it
    uint32_t touched;      // clock
    uint16_t owner;        // 1 + index into requests; 0: none, or not among them
    uint8_t group, state;  // enum view_page_state; group: the last one that took it
};

struct engine_view {
    struct service_query query;
    // In: set before service_ask().
    struct view_page *pages; // (num_pages) of the caller; NULL: not wanted
    int num_pages;           // all of the pool
    int page;                // the page to show with tokens and owners; -1: none
    token_id *tokens;        // (block_size) of the caller; with page. -1: no token
    // Out.
    int64_t now; // monotonic ns
    uint32_t clock;
    struct service_stats stats;
    struct kv_group_spec groups[KV_MAX_GROUPS]; // (stats.num_groups)
    struct view_request requests[VIEW_REQUESTS];
    int num_requests, num_running, num_waiting; // of requests; of the scheduler
    struct view_step steps[VIEW_STEPS];         // oldest first
    int num_steps;
    bool has_tokens;              // the page is published
    uint64_t owners[VIEW_OWNERS]; // ids of requests whose tables name the page
    int num_owners;
};

// The function of the query. Engine thread.
void engine_view_run(struct service_query *query, const struct service_inside *in);

#ifdef __cplusplus
}
#endif
