#include "work_pool.h"

#include <stdlib.h>
#include <string.h>

struct client_queue {
    struct work_client client;
    struct client_queue *next;
    struct pool_work *first, **end;
    int num_running;
};

void work_pool_open(struct work_pool *p, uv_loop_t *loop, int num_threads) {
    p->loop = loop;
    p->num_threads = num_threads;
}

static int most_of_one(const struct work_pool *p) { return p->num_threads > 1 ? p->num_threads - 1 : 1; }

static void append(struct work_pool *p, struct client_queue *q) {
    struct client_queue **end = &p->first;
    while (*end)
        end = &(*end)->next;
    q->next = NULL;
    *end = q;
}

// Takes a queue out of its turn, to stand behind all others, or for good where it has nothing.
static void requeue(struct work_pool *p, struct client_queue *q) {
    struct client_queue **at = &p->first;
    while (*at != q)
        at = &(*at)->next;
    *at = q->next;
    if (q->first || q->num_running > 0)
        append(p, q);
    else
        free(q);
}

static void run_work(uv_work_t *uv) {
    struct pool_work *w = uv->data;
    w->work(w);
}

static void take_turns(struct work_pool *p);

static void after_work(uv_work_t *uv, int status) {
    struct pool_work *w = uv->data;
    struct work_pool *p = w->pool;
    struct client_queue *q = w->queue;
    p->num_running--;
    if (--q->num_running == 0 && !q->first)
        requeue(p, q);
    take_turns(p);
    w->done(w, status == 0);
}

// Gives the pool what it has threads for.
static void take_turns(struct work_pool *p) {
    while (p->num_running < p->num_threads) {
        struct client_queue *q = p->first;
        while (q && (!q->first || q->num_running >= most_of_one(p)))
            q = q->next;
        if (!q)
            return;
        struct pool_work *w = q->first;
        if (!(q->first = w->next))
            q->end = &q->first;
        w->begun = true;
        w->uv.data = w;
        q->num_running++;
        p->num_running++;
        requeue(p, q);
        uv_queue_work(p->loop, &w->uv, run_work, after_work); // fails without a function alone
    }
}

bool work_pool_queue(struct work_pool *p, const struct work_client *client, struct pool_work *w) {
    struct client_queue *q = p->first;
    if (p->stopped)
        return false;
    while (q && memcmp(&q->client, client, sizeof *client) != 0)
        q = q->next;
    if (!q) {
        if (!(q = calloc(1, sizeof *q)))
            return false;
        q->client = *client;
        q->end = &q->first;
        append(p, q);
    }
    w->pool = p;
    w->queue = q;
    w->next = NULL;
    w->begun = false;
    *q->end = w;
    q->end = &w->next;
    take_turns(p);
    return true;
}

// Out of its queue, which may be the end of that.
static void drop(struct pool_work *w) {
    struct client_queue *q = w->queue;
    struct pool_work **at = &q->first;
    while (*at != w)
        at = &(*at)->next;
    if (!(*at = w->next))
        q->end = at;
    if (!q->first && q->num_running == 0)
        requeue(w->pool, q);
    w->done(w, false);
}

void work_pool_cancel(struct pool_work *w) {
    if (w->begun)
        uv_cancel((uv_req_t *)&w->uv);
    else
        drop(w);
}

void work_pool_stop(struct work_pool *p) {
    p->stopped = true;
    for (struct client_queue *q = p->first; q;) {
        struct pool_work *w = q->first;
        if (w)
            drop(w); // and what is done may drop others: from the first again
        q = w ? p->first : q->next;
    }
}
