// The inside of the scheduler: what scheduler.c, policy.c and queues.c share, and tests of the rules look at.
#pragma once

#include "scheduler.h"

struct request_list {
    struct request *head, *tail;
    int len;
};

struct scheduler {
    struct sched_config config;
    struct kv_cache *kv;                  // borrowed
    struct request_list waiting, running; // in order (S1)
    struct request_list draining;      // ended, but named by plans in flight, which keep their blocks (S11)
    int64_t waiting_tokens;            // sum of num_tokens over waiting
    uint64_t next_arrival;             // for sched_add()
    uint64_t next_plan, next_resolve;  // ids; equal: no plan is unresolved
    struct plan plans[PLAN_MAX_DEPTH]; // plan id modulo their number
    struct sched_stats stats;          // its counters
    int num_late;                      // requests (S16)
};

// ---- queues.c

bool sched_before(const struct scheduler *s, const struct request *a, const struct request *b);  // S1
void sched_list_insert(const struct scheduler *s, struct request_list *list, struct request *r); // in order
void sched_list_append(struct request_list *list, struct request *r);
void sched_list_remove(struct request_list *list, struct request *r);
void sched_enter_waiting(struct scheduler *s, struct request *r);
void sched_leave_waiting(struct scheduler *s, struct request *r);

// ---- policy.c: what a request needs

// Positions [0, this) are all that is ever computed of a request.
int sched_compute_end(const struct request *r);
// Gives its blocks back and lets it wait.
void sched_start_over(struct scheduler *s, struct request *r);
// Sets next_hash, the hash of the block after the last published one, where all its tokens are known.
void sched_update_next_hash(const struct scheduler *s, struct request *r);
