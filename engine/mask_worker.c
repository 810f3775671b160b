#include "mask_worker.h"

#include "clock.h"
#include "log.h"

static void *mask_worker_main(void *arg) {
    struct mask_worker *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->computed == w->posted && !w->stop)
            pthread_cond_wait(&w->work, &w->lock);
        if (w->computed == w->posted)
            break;
        struct batch *b = w->batches[(w->computed + 1) % PLAN_MAX_DEPTH];
        pthread_mutex_unlock(&w->lock);
        int64_t began = clock_now_ns();
        batch_masks(b);
        b->masks_ns = clock_now_ns() - began;
        pthread_mutex_lock(&w->lock);
        w->computed++;
        pthread_cond_broadcast(&w->done);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

enum status mask_worker_open(struct mask_worker *w, struct err *err) {
    *w = (struct mask_worker){0};
    pthread_mutex_init(&w->lock, NULL); // cannot fail on Linux: no attributes
    pthread_cond_init(&w->work, NULL);
    pthread_cond_init(&w->done, NULL);
    w->started = pthread_create(&w->thread, NULL, mask_worker_main, w) == 0;
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
