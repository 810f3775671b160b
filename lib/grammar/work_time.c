#include "work_time.h"

#include <stdint.h>
#include <time.h>

enum { CALLS_A_LOOK = 64 };

static _Thread_local struct {
    int64_t end_ns; // 0: no bound
    int calls;
    const atomic_bool *stop; // NULL: nothing stops it
} work;

static int64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void work_time_begin(void) {
    work.end_ns = cpu_ns() + (int64_t)WORK_TIME_MS * 1000000;
    work.calls = 0;
}

void work_time_end(void) { work.end_ns = 0; }

void work_time_stop_by(const atomic_bool *stop) { work.stop = stop; }

bool work_time_left(struct err *err) {
    if (work.end_ns == 0 || ++work.calls % CALLS_A_LOOK != 0)
        return true;
    bool stopped = work.stop && atomic_load_explicit(work.stop, memory_order_relaxed);
    if (!stopped && cpu_ns() < work.end_ns)
        return true;
    work.calls = CALLS_A_LOOK - 1; // it stays over
    if (stopped)
        err_set(err, STATUS_CANCELLED, "compiling was stopped");
    else
        err_set(err, STATUS_LIMIT, "compiling takes more than %d ms", WORK_TIME_MS);
    return false;
}
