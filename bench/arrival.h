// When requests are meant to be sent.
#pragma once

#include "rng.h"

#include <stdint.h>

enum arrival_kind {
    ARRIVAL_CLOSED,   // no schedule: the next one when a slot is free
    ARRIVAL_POISSON,  // exponential gaps
    ARRIVAL_GAMMA,    // gamma gaps: burstiness is the shape; 1 is Poisson, less is burstier
    ARRIVAL_CONSTANT, // equal gaps
    ARRIVAL_TRACE,    // the trace's own times
};

struct arrival {
    enum arrival_kind kind;
    double rate;       // requests per second; not CLOSED, not TRACE
    double burstiness; // GAMMA
    struct rng rng;
    double at; // s
};

// The time of the next arrival, in ns from the start of the run. The first one is at 0: the gaps are between
// requests.
int64_t arrival_next(struct arrival *a);
