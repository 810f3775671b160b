// The monotonic clock, and deadlines by it.
#pragma once

#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

static inline int64_t clock_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline double clock_now_s(void) { return (double)clock_now_ns() * 1e-9; }

// The moment `ns` from now, for waits that take a point of CLOCK_MONOTONIC.
static inline struct timespec clock_deadline(int64_t ns) {
    int64_t at = clock_now_ns() + ns;
    return (struct timespec){.tv_sec = (time_t)(at / 1000000000), .tv_nsec = (long)(at % 1000000000)};
}

#ifdef __cplusplus
}
#endif
