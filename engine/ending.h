// That the ranks of this process have ended together, and why: shared by their communicators and the
// heartbeat. The first reason stays. Any thread.
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

struct ending {
    _Atomic bool ended;
    pthread_mutex_t lock;
    pthread_cond_t changed; // for who waits for the end; monotonic clock
    char why[300];          // under lock until ended is set, constant after
};

static inline bool ending_init(struct ending *e) {
    pthread_condattr_t attr;
    atomic_init(&e->ended, false);
    e->why[0] = 0;
    bool ok = pthread_condattr_init(&attr) == 0;
    if (!ok)
        return false;
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    ok = pthread_mutex_init(&e->lock, NULL) == 0 && pthread_cond_init(&e->changed, &attr) == 0;
    pthread_condattr_destroy(&attr);
    return ok;
}

static inline void ending_destroy(struct ending *e) {
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
}

static inline void ending_set(struct ending *e, const char *why) {
    pthread_mutex_lock(&e->lock);
    if (!atomic_load(&e->ended))
        snprintf(e->why, sizeof e->why, "%s", why);
    atomic_store(&e->ended, true);
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

static inline bool ending_reached(struct ending *e) { return atomic_load(&e->ended); }
static inline const char *ending_why(struct ending *e) { return atomic_load(&e->ended) ? e->why : ""; }
