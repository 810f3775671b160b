// Work in libuv's pool, in turns. Each client's works wait in a queue of its own; the queues take turns, and no client
// has all threads at a time: of many long ones of one client, another's work waits for the shortest that runs.
//
// Ownership: a pool_work lives in what its user frees no sooner than done(). Loop thread but for work().
#pragma once

#include "http/auth.h"

#include <uv.h>

// The client that asks for work: a key, or an address where keys tell nobody apart (app_client()).
struct work_client {
    uint8_t id[SHA256_BYTES];
};

struct pool_work {
    void (*work)(struct pool_work *w);            // in the pool
    void (*done)(struct pool_work *w, bool done); // on the loop; false: cancelled, or the pool was stopped
    // private
    uv_work_t uv;
    struct work_pool *pool;
    struct client_queue *queue;
    struct pool_work *next;
    bool begun; // libuv has it
};

struct client_queue; // of a client that has works waiting or running

struct work_pool { // zeroed, then work_pool_open()
    uv_loop_t *loop;
    struct client_queue *first; // has the next turn
    int num_threads, num_running;
    bool stopped;
};

void work_pool_open(struct work_pool *p, uv_loop_t *loop, int num_threads);
// Queues w, whose functions are set. False: out of memory, or stopped; done() does not come.
bool work_pool_queue(struct work_pool *p, const struct work_client *client, struct pool_work *w);
// The result is not needed: done() comes at once, or, where w has begun, when it ends.
void work_pool_cancel(struct pool_work *w);
// Takes no more works, and calls done() of those that wait. Those that have begun end as ever.
void work_pool_stop(struct work_pool *p);
