// Threads of the kernels: each part of the work is done once, whoever is late; apart from test_kernels.c, whose loops start no
// thread, for ThreadSanitizer's sake.
#include "harness.h"

#include "pool.h"

#include <sched.h>
#include <stdatomic.h>

struct count {
    _Atomic int calls;
    int seen[64];
    volatile float tiny;
};

static void count_worker(void *ctx, int thread, int num_threads) {
    struct count *c = ctx;
    int begin, end;
    atomic_fetch_add(&c->calls, 1);
    pool_partition(64, thread, num_threads, &begin, &end);
    for (int i = begin; i < end; i++) {
        volatile float x = c->tiny; // subnormals count as zero on every thread
        c->seen[i] += 1 + (x * 1.0f != 0);
    }
}

TEST(test_pool) {
    static const int sizes[] = {1, 2, 3, 8};
    for (int s = 0; s < 4; s++) {
        struct pool *p = pool_open(sizes[s]);
        assert_non_null(p);
        assert_int_equal(pool_size(p), sizes[s]);
        struct count c = {.tiny = 1e-40f};
        for (int i = 0; i < 1000; i++) {
            pool_run(p, count_worker, &c, i % 3 != 0);
            if (i % 250 == 0) // workers fall asleep
                for (volatile int j = 0; j < 1000000; j++)
                    ;
        }
        assert_int_equal(c.calls, 334 + 666 * sizes[s]);
        for (int i = 0; i < 64; i++)
#if defined(__x86_64__) || defined(__aarch64__)
            assert_int_equal(c.seen[i], 1000);
#else
            assert_true(c.seen[i] >= 1000);
#endif
        volatile float tiny = 1e-40f; // the caller's own mode is back
        assert_true(tiny * 1.0f != 0);
        pool_close(p);
    }
    struct pool *p = pool_open(0);
    assert_true(p && pool_size(p) >= 1);
    pool_close(p);
    pool_close(NULL);
}

enum { MOST_TAKEN = 5000 };

struct taking {
    struct pool *pool;
    int num_items, least, slow; // slow: the thread that is held up, or -1
    _Atomic int given[MOST_TAKEN], by[8], small;
};

static void take_worker(void *ctx, int thread, int num_threads) {
    struct taking *t = ctx;
    (void)num_threads;
    for (int begin, end; pool_take(t->pool, thread, t->least, &begin, &end);) {
        if (begin < 0 || begin >= end || end > t->num_items)
            atomic_store(&t->given[0], 1000);
        else
            for (int i = begin; i < end; i++)
                atomic_fetch_add(&t->given[i], 1);
        atomic_fetch_add(&t->by[thread], end - begin);
        atomic_fetch_add(&t->small, end - begin < t->least);
        if (thread == t->slow) // until the others have done all but a few
            for (int done = 0, waited = 0; done < t->num_items * 3 / 4 && waited < 1 << 23; waited++) {
                sched_yield();
                done = 0;
                for (int i = 0; i < num_threads; i++)
                    done += atomic_load(&t->by[i]);
            }
    }
}

// Each item is given out once, whoever is late; a thread that is held up has less to do.
TEST(test_pool_items) {
    static const int sizes[] = {1, 2, 3, 8}, counts[] = {0, 1, 2, 7, 64, 333, MOST_TAKEN};
    for (int s = 0; s < 4; s++) {
        struct pool *p = pool_open(sizes[s]);
        assert_non_null(p);
        for (int round = 0; round < 100; round++) {
            struct taking t = {p, counts[round % 7], round % 3 + 1, -1, {0}, {0}, 0};
            bool parallel = round % 5 != 0;
            if (round % 4 == 0 && parallel && t.num_items >= 64 && sizes[s] > 1)
                t.slow = round % sizes[s];
            pool_run_items(p, take_worker, &t, t.num_items, parallel);
            for (int i = 0; i < MOST_TAKEN; i++)
                assert_int_equal(t.given[i], i < t.num_items);
            assert_true(t.small <= sizes[s]); // the last of a share
            for (int i = 0; !parallel && i < sizes[s]; i++)
                assert_int_equal(t.by[i], i == 0 ? t.num_items : 0);
            if (t.slow >= 0)
                assert_true(t.by[t.slow] <= t.num_items / 4 + t.num_items / sizes[s] / 4 + t.least);
        }
        // Calls that the caller does alone do not make old notes of what is left look new: 65,536 turns on,
        // say.
        struct taking t = {p, 64, 1, -1, {0}, {0}, 0};
        for (int round = 0; round < 2; round++) {
            memset(&t.given, 0, sizeof t.given);
            pool_run_items(p, take_worker, &t, 64, true);
            for (int i = 0; i < 64; i++)
                assert_int_equal(t.given[i], 1);
            for (int i = 0; i < UINT16_MAX; i++)
                pool_run_items(p, take_worker, &t, 1, false);
        }
        pool_close(p);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
