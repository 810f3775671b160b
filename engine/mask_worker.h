// Computes the masks of token filters beside the forward pass: one thread, which takes batches in order. When none waits it
// goes on with masks that were late, a little of each in turn.
#pragma once

#include "batch.h"

#include <pthread.h>

struct late_list { // linked by next_late
    struct request *head, *tail;
};

struct mask_worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    int vocab;
    uint32_t *bits; // (ceil(vocab / 32)) of a late mask, which its filter keeps
    struct late_list late, ready;
    const struct request *working; // on the late mask of this one
    bool unwanted;                 // which is to be forgotten
    void (*notify)(void *arg);     // called when a late mask is there; NULL: not called
    void *notify_arg;
    struct batch *batches[PLAN_MAX_DEPTH]; // of ticket t: at t modulo their number
    uint64_t posted, computed;             // tickets given, and those whose masks are there
    bool started, stop;
};

// STATUS_NOMEM with err: there is no thread.
enum status mask_worker_open(struct mask_worker *w, int vocab, struct err *err);
// Computes what was posted, ends the thread. Requests of posted batches live until then. A zeroed one is
// allowed.
void mask_worker_close(struct mask_worker *w);

// Hands a batch over, which has masks: from now until a wait for it, the worker calls the filters of its
// requests. At most PLAN_MAX_DEPTH may be posted and not waited for. Sets the batch's ticket. Engine thread.
void mask_worker_post(struct mask_worker *w, struct batch *b);
// Waits until the masks of all batches up to this ticket are there. Any thread.
void mask_worker_wait(struct mask_worker *w, uint64_t ticket);

// A request whose mask was late and is there, each once; NULL: none. Engine thread.
struct request *mask_worker_take_ready(struct mask_worker *w);
// Nothing is asked of the request's filter any more: it is in no step in flight. Waits for one call of it at most. Engine
// thread.
void mask_worker_forget(struct mask_worker *w, const struct request *r);
