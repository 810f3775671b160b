// A thread that notices when the loop does not get on: with a second of work on one thing it serves nobody.
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct watchdog {
    // Set before watchdog_start().
    uint64_t (*progress)(void *arg);          // a number that changes as the watched thread gets on
    void (*stuck)(void *arg, double seconds); // once for each stall; both on the watchdog's thread
    void *arg;

    _Atomic int64_t last_end; // monotonic ns when a stall was last seen; 0: never
    pthread_t thread, watched;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool started, stopping;
};

// Watches the calling thread. False: there is no thread to be had, and nothing is watched.
bool watchdog_start(struct watchdog *w);
void watchdog_stop(struct watchdog *w);
// Whether a stall was seen in the last `seconds`. Any thread.
bool watchdog_alarmed(struct watchdog *w, double seconds);
