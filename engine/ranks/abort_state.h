// Whether a group of ranks has been aborted, and why: shared by its communicators and the failure detector.
// The first reason stays. Any thread.
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

struct abort_state {
    _Atomic bool aborted;
    pthread_mutex_t lock;
    pthread_cond_t changed; // signalled on abort; monotonic clock
    char why[300];          // under lock until aborted is set, constant after
};

static inline bool abort_state_init(struct abort_state *a) {
    pthread_condattr_t attr;
    atomic_init(&a->aborted, false);
    a->why[0] = 0;
    bool ok = pthread_condattr_init(&attr) == 0;
    if (!ok)
        return false;
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    ok = pthread_mutex_init(&a->lock, NULL) == 0 && pthread_cond_init(&a->changed, &attr) == 0;
    pthread_condattr_destroy(&attr);
    return ok;
}

static inline void abort_state_destroy(struct abort_state *a) {
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
}

static inline void abort_state_set(struct abort_state *a, const char *why) {
    pthread_mutex_lock(&a->lock);
    if (!atomic_load(&a->aborted))
        snprintf(a->why, sizeof a->why, "%s", why);
    atomic_store(&a->aborted, true);
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

static inline bool abort_state_is_set(struct abort_state *a) { return atomic_load(&a->aborted); }
static inline const char *abort_state_why(struct abort_state *a) {
    return atomic_load(&a->aborted) ? a->why : "";
}
