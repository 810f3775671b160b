#include "pool.h"

#include "cpus.h"
#include "float_env.h"
#include "log.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

// About 10 microseconds: longer than the gap between two phases, short enough for an HTTP thread that shares
// the CPU.
enum { SPINS = 400, MAX_THREADS = 1024 };

enum {
    HELPED = 4, // neighbours whom a thread helps: on a large machine not all can look at all
    INDEX_BITS = 24,
};

// The items left of a thread's partition: begin and end, above them their turn (the call of pool_run_items, in which
// all threads take part). Every thread asks for items in every turn, so a range of another turn is of the last one,
// and the whole partition is left.
struct left {
    _Alignas(64) _Atomic uint64_t range;
};

struct pool {
    int num_threads;
    pthread_t *threads;
    struct left *left; // of each thread
    pool_fn *fn;
    void *ctx;
    int num_items;
    bool alone; // the caller takes all items
    uint16_t turn;
    bool stop;
    // A new call is a new generation; what stands above is written before it.
    _Alignas(64) _Atomic uint32_t generation;
    _Atomic uint32_t sleepers;
    _Alignas(64) _Atomic uint32_t pending; // workers that have not finished the call
    _Atomic uint32_t caller_sleeps;
};

struct worker {
    struct pool *pool;
    int thread;
};

static void cpu_relax(void) {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Sleeps while *word is `value`; may return early.
static void futex_wait(_Atomic uint32_t *word, uint32_t value) {
#if defined(__linux__)
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
#else
    (void)word, (void)value;
    sched_yield();
#endif
}

static void futex_wake(_Atomic uint32_t *word) {
#if defined(__linux__)
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
#else
    (void)word;
#endif
}

// Returns the next generation after `seen`.
static uint32_t wait_generation(struct pool *p, uint32_t seen) {
    uint32_t now;
    for (int i = 0; i < SPINS; i++) {
        if ((now = atomic_load_explicit(&p->generation, memory_order_acquire)) != seen)
            return now;
        cpu_relax();
    }
    // The caller raises the generation, then reads sleepers; here the other way round: one of both sees the
    // other.
    atomic_fetch_add(&p->sleepers, 1);
    while ((now = atomic_load(&p->generation)) == seen)
        futex_wait(&p->generation, seen);
    atomic_fetch_sub(&p->sleepers, 1);
    return now;
}

static void *run_worker(void *arg) {
    struct worker w = *(struct worker *)arg;
    struct pool *p = w.pool;
    free(arg);
    float_env_enter(); // for the life of the thread
    for (uint32_t seen = 0;;) {
        seen = wait_generation(p, seen);
        if (p->stop)
            return NULL;
        p->fn(p->ctx, w.thread, p->num_threads);
        if (atomic_fetch_sub(&p->pending, 1) == 1 && atomic_load(&p->caller_sleeps))
            futex_wake(&p->pending);
    }
}

static void wait_workers(struct pool *p) {
    uint32_t left;
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->pending, memory_order_acquire) == 0)
            return;
        cpu_relax();
    }
    atomic_store(&p->caller_sleeps, 1);
    while ((left = atomic_load(&p->pending)) != 0)
        futex_wait(&p->pending, left);
    atomic_store(&p->caller_sleeps, 0);
}

static void wake_workers(struct pool *p) {
    atomic_fetch_add(&p->generation, 1);
    if (atomic_load(&p->sleepers))
        futex_wake(&p->generation);
}

void pool_run(struct pool *p, pool_fn *fn, void *ctx, bool parallel) {
    uint64_t env = float_env_enter();
    if (!parallel || p->num_threads == 1) {
        fn(ctx, 0, 1);
    } else {
        p->fn = fn;
        p->ctx = ctx;
        atomic_store(&p->pending, (uint32_t)p->num_threads - 1);
        wake_workers(p);
        fn(ctx, 0, p->num_threads);
        wait_workers(p);
    }
    float_env_leave(env);
}

void pool_run_items(struct pool *p, pool_fn *fn, void *ctx, int num_items, bool parallel) {
    CHECK(num_items >= 0 && num_items < 1 << INDEX_BITS);
    p->num_items = num_items;
    p->alone = !parallel || p->num_threads == 1;
    p->turn = (uint16_t)(p->turn + !p->alone);
    pool_run(p, fn, ctx, parallel);
}

static uint64_t pack_left(uint16_t turn, int begin, int end) {
    return (uint64_t)turn << 2 * INDEX_BITS | (uint64_t)begin << INDEX_BITS | (uint64_t)end;
}

// From the front of a thread's own partition, or from the end of another's.
static bool take_from(struct pool *p, int thread, bool own, int least, int *begin, int *end) {
    const uint64_t mask = ((uint64_t)1 << INDEX_BITS) - 1;
    _Atomic uint64_t *range = &p->left[thread].range;
    uint64_t seen = atomic_load_explicit(range, memory_order_relaxed), next;
    do {
        *begin = (int)(seen >> INDEX_BITS & mask);
        *end = (int)(seen & mask);
        if (seen >> 2 * INDEX_BITS != p->turn)
            pool_partition(p->num_items, thread, p->num_threads, begin, end);
        int left = *end - *begin, piece = own ? left / 4 : left / 2;
        piece = piece < least ? least : piece;
        piece = piece < left ? piece : left;
        next = own ? pack_left(p->turn, *begin + piece, *end) : pack_left(p->turn, *begin, *end - piece);
        if (own)
            *end = *begin + piece;
        else
            *begin = *end - piece;
        if (next == seen)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(range, &seen, next, memory_order_relaxed,
                                                    memory_order_relaxed));
    return *begin < *end;
}

bool pool_take(struct pool *p, int thread, int least, int *begin, int *end) {
    if (p->alone) {
        *begin = 0;
        *end = p->num_items;
        p->num_items = 0;
        return *end > 0;
    }
    for (int i = 0; i <= HELPED && i < p->num_threads; i++)
        if (take_from(p, (thread + i) % p->num_threads, i == 0, least, begin, end))
            return true;
    return false;
}

int pool_size(const struct pool *p) { return p->num_threads; }

struct pool *pool_open(int num_threads) {
    int n = num_threads > 0 ? num_threads : cpus_here();
    n = n > MAX_THREADS ? MAX_THREADS : n;
    struct pool *p = aligned_alloc(64, sizeof *p);
    if (!p)
        return NULL;
    *p = (struct pool){.num_threads = 1,
                       .threads = calloc((size_t)n, sizeof(pthread_t)),
                       .left = aligned_alloc(64, (size_t)n * sizeof(struct left))};
    for (int i = 0; p->left && i < n; i++)
        atomic_init(&p->left[i].range, 0);
    for (; p->threads && p->left && p->num_threads < n; p->num_threads++) {
        struct worker *w = malloc(sizeof *w);
        if (!w)
            break;
        *w = (struct worker){p, p->num_threads};
        if (pthread_create(&p->threads[p->num_threads], NULL, run_worker, w) != 0) {
            free(w);
            break;
        }
    }
    if (!p->threads || !p->left || p->num_threads < n) {
        pool_close(p);
        return NULL;
    }
    return p;
}

void pool_close(struct pool *p) {
    if (!p)
        return;
    p->stop = true;
    wake_workers(p);
    for (int i = 1; i < p->num_threads; i++)
        pthread_join(p->threads[i], NULL);
    free(p->threads);
    free(p->left);
    free(p);
}
