// Explains a prompt without running it: how much of it is cached, why no more is, and when its first token would
// come; or how it was when a request began. Asked as engine_view.h says.
#pragma once

#include "service.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PROMPT_ROOTS = 3,   // domains of the cache in which a prompt is looked up
    PROMPT_PAST = 1024, // requests of which it is known how they began: the last ones
};

// The store behind the cache, as one prompt sees it.
struct tier_look {
    int num_cached; // tokens that hit with its pages
    int64_t age_s;  // since the first of them was written; -1: it brings nothing
};

struct prompt_view {
    struct service_query query;
    // In: a prompt, of the caller until done().
    const token_id *tokens;          // (num_tokens)
    int num_tokens;                  // >= 1; 0: a request of the past is wanted
    const void *salts[PROMPT_ROOTS]; // (num_salts[i]) as request.salt; the first is its own
    int num_salts[PROMPT_ROOTS];     // -1: not wanted
    bool all_rows;                   // it wants rows of all tokens, so that nothing may come from the cache
    int priority;
    block_id *ids; // (KV_MAX_GROUPS, cap) scratch
    int cap;       // blocks of num_tokens
    uint64_t id;   // of the past request
    // Out.
    bool found;                 // the past request is known
    int num_prompt;             // its tokens
    int cached[PROMPT_ROOTS];   // tokens that hit
    struct kv_ending ending;    // of the first one
    struct kv_group_spec group; // that ending.group is
    token_id token;             // the prompt's own where ending.same says; -1: none
    uint32_t clock;
    bool share;           // false: there is no prefix cache
    const char *store_at; // "disk", "valkey"; NULL: there is no store
    struct tier_look store;
    int num_fetched;      // of a past request: tokens of its hit that came from the store, and how long
    int64_t fetch_ns;     // it waited for them; 0: it did not
    int64_t predicted_ns; // until the first token; -1: nothing was measured yet
    int64_t queue_ns;     // of that, until its first step
};

void prompt_view_run(struct service_query *query, const struct service_inside *in); // engine thread

#ifdef __cplusplus
}
#endif
