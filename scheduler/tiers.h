// Between the prefix cache and the store of its pages: what the cache publishes is written behind, and what a waiting request
// would hit is fetched before it starts. Engine thread only.
//
// Pages pass through the device's pages in host memory, half of which are for either way. A fetched page becomes a cache entry
// like any other, in no request's table: so a fetch promises nothing, takes no page that another request needs, and whatever
// becomes of it the request starts by the rules of all (S18).
#pragma once

#include "engine.h"
#include "kv_store.h"
#include "prompt_view.h"
#include "record.h"
#include "scheduler.h"
#include "service.h"

struct tiers;

// role: fetches, writes, or does both. `private`: pages of requests with a salt of their own stay out. record: NULL, or where
// replay reads what came from the store. NULL: the engine has no store, or with err there is no memory. All is borrowed.
struct tiers *tiers_open(struct engine *engine, struct scheduler *sched, enum kv_role role, bool private,
                         struct record *record, void (*notify)(void *arg), void *arg, struct err *err);
// sound: pages that were published last are written, too; else their device failed. NULL is allowed, here and below: nothing
// happens.
void tiers_close(struct tiers *t, bool sound);

// As kv_watch.
void tiers_note(struct tiers *t, enum kv_change change, block_id id);
// Between two steps, and before the next is planned: takes what came, and goes on with what is under way.
void tiers_pump(struct tiers *t);
// Longest the engine thread may sleep before the next tiers_pump(), in ns; -1: no limit.
int64_t tiers_watch_ns(const struct tiers *t);
// A request leaves.
void tiers_forget(struct tiers *t, const struct request *r);
// A request starts.
void tiers_count_start(struct tiers *t, const struct request *r);

// How a prompt would hit with the store's pages, as far as is known without asking it. The sequence is as of kv_want().
void tiers_look(struct tiers *t, struct kv_seq *seq, struct kv_hash root, const token_id *tokens, int n,
                struct tier_look *look);

void tiers_counts(const struct tiers *t, struct tier_counts *counts, struct kv_store_stats *store);
