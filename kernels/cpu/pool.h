// Kernel threads: num_threads - 1 workers and the caller run one function and wait for each other. Workers
// spin for a few microseconds between two calls, then sleep, so that an idle server uses no CPU time.
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pool;

// A worker function. thread: 0 (the caller) .. num_threads. Its results must not depend on either; only
// the division of the work may.
typedef void pool_fn(void *ctx, int thread, int num_threads);

// 0 threads: as many as the CPUs this process may use. NULL when threads cannot be made.
struct pool *pool_open(int num_threads);
void pool_close(struct pool *p); // NULL is allowed
int pool_size(const struct pool *p);

// Runs fn on every thread (on the caller alone where not parallel) and returns when all are done. Subnormal
// numbers are flushed meanwhile. One caller at a time.
void pool_run(struct pool *p, pool_fn *fn, void *ctx, bool parallel);

// The same for a function that asks pool_take() for items [0, num_items), until it gets false.
void pool_run_items(struct pool *p, pool_fn *fn, void *ctx, int num_items, bool parallel);

// The items to do next, [*begin, *end): each is given out once; false when none is left for this thread. A
// thread takes its own partition (pool_partition) from the front, in pieces that get smaller, and helps
// others from the end of theirs when it has done it, so that one that is held up by other work on its CPU
// does not hold up all. A piece has at least `least` items, 1 or more, while there are as many.
bool pool_take(struct pool *p, int thread, int least, int *begin, int *end);

// The thread's partition of n items: [*begin, *end), contiguous, the same every time.
static inline void pool_partition(int n, int thread, int num_threads, int *begin, int *end) {
    *begin = (int)((long long)n * thread / num_threads);
    *end = (int)((long long)n * (thread + 1) / num_threads);
}

#ifdef __cplusplus
}
#endif
