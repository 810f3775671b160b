#include "mask_worker.h"

#include "clock.h"
#include "log.h"

#include <stdlib.h>

enum { LATE_WORK = 1 << 13 }; // of one late mask in turn, about 0.4 ms: so long a batch may wait

static void list_append(struct late_list *l, struct request *r) {
    r->next_late = NULL;
    if (l->tail)
        l->tail->next_late = r;
    else
        l->head = r;
    l->tail = r;
}

static struct request *list_take(struct late_list *l) {
    struct request *r = l->head;
    if (r && !(l->head = r->next_late))
        l->tail = NULL;
    return r;
}

static void list_remove(struct late_list *l, const struct request *r) {
    struct late_list others = {0};
    for (struct request *q; (q = list_take(l));)
        if (q != r)
            list_append(&others, q);
    *l = others;
}

// The masks of the oldest batch. With the lock, which it gives back meanwhile.
static void work_on_batch(struct mask_worker *w) {
    struct batch *b = w->batches[(w->computed + 1) % PLAN_MAX_DEPTH];
    pthread_mutex_unlock(&w->lock);
    int64_t began = clock_now_ns();
    batch_masks(b);
    b->masks_ns = clock_now_ns() - began;
    pthread_mutex_lock(&w->lock);
    for (int i = 0; i < b->num_masks; i++)
        if (mask_job_is_late(&b->masks[i]))
            list_append(&w->late, b->masks[i].req);
    w->computed++;
    pthread_cond_broadcast(&w->done);
}

// A little of the late mask whose turn it is. Likewise.
static void work_on_late(struct mask_worker *w) {
    struct request *r = list_take(&w->late);
    const struct token_filter *f = r->filter;
    int64_t work = LATE_WORK;
    w->working = r;
    pthread_mutex_unlock(&w->lock);
    enum mask_result result = f->mask(f->state, w->bits, w->vocab, &work);
    pthread_mutex_lock(&w->lock);
    w->working = NULL;
    if (w->unwanted)
        pthread_cond_broadcast(&w->done);
    else
        list_append(result == MASK_MORE ? &w->late : &w->ready, r);
    if (!w->unwanted && result != MASK_MORE && w->notify)
        w->notify(w->notify_arg);
    w->unwanted = false;
}

static void *mask_worker_main(void *arg) {
    struct mask_worker *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        if (w->computed < w->posted)
            work_on_batch(w);
        else if (w->stop)
            break;
        else if (w->late.head)
            work_on_late(w);
        else
            pthread_cond_wait(&w->work, &w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

enum status mask_worker_open(struct mask_worker *w, int vocab, struct err *err) {
    *w = (struct mask_worker){.vocab = vocab};
    w->bits = malloc(((size_t)vocab + 31) / 32 * sizeof *w->bits);
    pthread_mutex_init(&w->lock, NULL); // cannot fail on Linux: no attributes
    pthread_cond_init(&w->work, NULL);
    pthread_cond_init(&w->done, NULL);
    w->started = w->bits && pthread_create(&w->thread, NULL, mask_worker_main, w) == 0;
    if (!w->started)
        free(w->bits);
    return w->started ? STATUS_OK : err_set(err, STATUS_NOMEM, "cannot start the thread that computes masks");
}

void mask_worker_close(struct mask_worker *w) {
    if (!w->started)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->work);
    pthread_cond_destroy(&w->done);
    pthread_mutex_destroy(&w->lock);
    free(w->bits);
    w->started = false;
}

void mask_worker_post(struct mask_worker *w, struct batch *b) {
    pthread_mutex_lock(&w->lock);
    CHECK(w->posted - w->computed < PLAN_MAX_DEPTH);
    b->ticket = ++w->posted;
    w->batches[b->ticket % PLAN_MAX_DEPTH] = b;
    pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->lock);
}

void mask_worker_wait(struct mask_worker *w, uint64_t ticket) {
    pthread_mutex_lock(&w->lock);
    while (w->computed < ticket)
        pthread_cond_wait(&w->done, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

struct request *mask_worker_take_ready(struct mask_worker *w) {
    pthread_mutex_lock(&w->lock);
    struct request *r = w->ready.head;
    while (r && !r->late) // its step is not resolved yet
        r = r->next_late;
    if (r)
        list_remove(&w->ready, r);
    pthread_mutex_unlock(&w->lock);
    return r;
}

void mask_worker_forget(struct mask_worker *w, const struct request *r) {
    pthread_mutex_lock(&w->lock);
    w->unwanted = w->working == r;
    while (w->unwanted)
        pthread_cond_wait(&w->done, &w->lock);
    list_remove(&w->late, r);
    list_remove(&w->ready, r);
    pthread_mutex_unlock(&w->lock);
}
