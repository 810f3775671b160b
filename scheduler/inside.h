// What queries (service_query) see of the engine thread, on it and between two steps.
#pragma once

#include "engine_view.h"
#include "scheduler.h"

struct service_inside {
    struct scheduler *sched;
    struct kv_cache *kv;
    const struct service_stats *stats;  // counters; what publish_stats() sets is that of the last step
    int64_t now;                        // monotonic ns
    struct view_step steps[VIEW_STEPS]; // a ring
    uint64_t num_steps;                 // ever; the last one is steps[(num_steps - 1) % VIEW_STEPS]
};
