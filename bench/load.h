// One run: sends what the dataset says when the arrivals say, and records what came back.
#pragma once

#include "client.h"
#include "dataset.h"
#include "options.h"
#include "prompt.h"
#include "record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct load_plan {
    enum arrival_kind arrival;
    double rate, burstiness;
    int64_t max_concurrency; // 0: no limit
    size_t num;              // conversations at most
    double duration;         // s; 0: no limit
    bool warm;               // warm-up: made-up prompts that share nothing with the run's
    uint64_t seed;
};

struct run {
    struct load_plan plan;
    struct request_record **records; // [num], owned, in the order of their intended times
    size_t num, cap;
    int64_t duration;     // ns from the start to the end of the last response
    int64_t started_unix; // s
    int64_t started;      // ns of CLOCK_MONOTONIC: 0 of all other times
    size_t peak;          // requests at once
    size_t turns_skipped; // of conversations whose earlier turn failed
    size_t not_sent;      // interrupted before they were due
    bool interrupted;
    double cpu;            // s of this thread, while it ran
    struct client_lag lag; // of reads
    uint64_t connections, retries;
};

struct progress {
    int64_t now; // ns from the start
    double part; // of the run: of its conversations, or of its time
    size_t sent, running, waiting, completed, failed;
    uint64_t chunks;
};

// Runs the plan to its end; false only when `*stop` became true. `show` is called twice a second (NULL:
// never).
struct run *load_run(uv_loop_t *loop, struct client *client, const struct options *o,
                     const struct prompt_maker *maker, const struct dataset *d, struct load_plan plan,
                     const volatile bool *stop, void (*show)(const struct progress *p, void *context),
                     void *context);
void run_free(struct run *r);
