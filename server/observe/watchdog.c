#include "watchdog.h"

#include "clock.h"

#include <time.h>

// A thread that sleeps in poll() does not turn either, so what counts is its processor time. One that waits in a
// system call uses none: for that it must have come round in BLOCKED ticks of ours (its own timers wake it each
// second). Ticks stop as the process does, so a stopped process is no stall.
enum { TICK_MS = 250, BLOCKED_TICKS = 40 };
#define STALL_NS 1000000000LL

static int64_t cpu_ns(pthread_t thread) {
    clockid_t clock;
    struct timespec t = {0};
    if (pthread_getcpuclockid(thread, &clock) != 0 || clock_gettime(clock, &t) != 0)
        return 0;
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void sleep_tick(struct watchdog *w) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += TICK_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&w->wake, &w->lock, &until);
}

static void *watch(void *arg) {
    struct watchdog *w = arg;
    uint64_t then = 0;
    int64_t cpu_then = cpu_ns(w->watched);
    int ticks = 0;
    bool told = false;
    pthread_mutex_lock(&w->lock);
    while (!w->stopping) {
        sleep_tick(w);
        uint64_t now = w->progress(w->arg);
        int64_t cpu = cpu_ns(w->watched);
        if (now != then) {
            then = now;
            cpu_then = cpu;
            ticks = 0;
            told = false;
            continue;
        }
        if (cpu - cpu_then < STALL_NS && ++ticks < BLOCKED_TICKS)
            continue;
        atomic_store(&w->last_end, clock_now_ns());
        if (!told)
            w->stuck(w->arg, ticks < BLOCKED_TICKS ? (double)(cpu - cpu_then) / 1e9 : ticks * TICK_MS / 1e3);
        told = true;
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

bool watchdog_start(struct watchdog *w) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&w->lock, NULL);
    w->watched = pthread_self();
    w->started = pthread_create(&w->thread, NULL, watch, w) == 0;
    return w->started;
}

void watchdog_stop(struct watchdog *w) {
    if (!w->started)
        return;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    w->started = false;
}

bool watchdog_alarmed(struct watchdog *w, double seconds) {
    int64_t last = atomic_load(&w->last_end);
    return last != 0 && (double)(clock_now_ns() - last) < seconds * 1e9;
}
