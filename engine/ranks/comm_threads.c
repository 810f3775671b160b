// See comm_threads.h. Every wait is for a counter of another rank to reach a value: first by spinning, then
// asleep on one condition variable that all share.
#include "comm_threads.h"

#include "abort_state.h"
#include "log.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Spins: about 10 microseconds, as in kernels/cpu/pool.c. A deadline is counted in slices of sleep, so that a
// process that is stopped and goes on has lost one slice, not its ranks.
enum { SPINS = 400, SLICE_MS = 50 };

enum thread_operation { NOTHING, ALL_REDUCE, ALL_GATHER, BROADCAST, BARRIER };
static const char *const operation_names[] = {"nothing", "all_reduce", "all_gather", "broadcast", "barrier"};

// The buffer that a rank publishes. It writes the fields before it raises `arrived`, and not again before
// every rank has arrived once more.
struct slot {
    _Alignas(64) _Atomic uint32_t arrived; // counts the barriers that this rank has counter_reached
    void *data;
    size_t bytes;
    enum thread_operation operation;
};

struct queue { // from one rank to one other
    _Alignas(64) _Atomic uint32_t sent;
    _Atomic uint32_t taken;
    struct {
        const void *data;
        size_t bytes;
    } pending[COMM_MAX_ISENDS]; // message i at i modulo its length
};

struct thread_rank {
    struct comm comm;
    struct comm_threads *group;
};

struct comm_threads {
    int world, max_slices;
    struct thread_rank ranks[COMM_MAX_WORLD];
    struct slot slots[COMM_MAX_WORLD];
    struct queue queues[COMM_MAX_WORLD][COMM_MAX_WORLD];
    _Atomic uint32_t sleepers; // on the condition of `abort`
    struct abort_state abort;
};

static void spin_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void wake_sleepers(struct comm_threads *g) {
    if (atomic_load(&g->sleepers) == 0)
        return;
    pthread_mutex_lock(&g->abort.lock);
    pthread_cond_broadcast(&g->abort.changed);
    pthread_mutex_unlock(&g->abort.lock);
}

static enum status group_abort(struct comm_threads *g, const char *why) {
    abort_state_set(&g->abort, why);
    return STATUS_DEVICE;
}

static bool counter_reached(const _Atomic uint32_t *word, uint32_t value) {
    return (int32_t)(atomic_load_explicit(word, memory_order_acquire) - value) >= 0;
}

// false: the value is not reached after max_slices of sleep, or the group is aborted.
static bool sleep_until(struct comm_threads *g, const _Atomic uint32_t *word, uint32_t value) {
    bool came;
    int slices = 0;
    // A writer changes a word, then reads sleepers; here it is the other way round, so one of the two sees
    // the other.
    atomic_fetch_add(&g->sleepers, 1);
    pthread_mutex_lock(&g->abort.lock);
    while (!(came = (int32_t)(atomic_load(word) - value) >= 0) && !abort_state_is_set(&g->abort) &&
           slices < g->max_slices) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += SLICE_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        slices += pthread_cond_timedwait(&g->abort.changed, &g->abort.lock, &until) != 0;
    }
    pthread_mutex_unlock(&g->abort.lock);
    atomic_fetch_sub(&g->sleepers, 1);
    return came;
}

// Waits until a counter of rank `other` reaches value.
static enum status wait_counter(struct thread_rank *m, const _Atomic uint32_t *word, uint32_t value,
                                int other) {
    struct comm_threads *g = m->group;
    char why[128];
    for (int i = 0; i < SPINS; i++) {
        if (counter_reached(word, value))
            return STATUS_OK;
        if (abort_state_is_set(&g->abort))
            return STATUS_DEVICE;
        spin_pause();
    }
    if (sleep_until(g, word, value))
        return STATUS_OK;
    if (abort_state_is_set(&g->abort))
        return STATUS_DEVICE;
    snprintf(why, sizeof why, "rank %d has waited %g s for rank %d", m->comm.rank,
             g->max_slices * (SLICE_MS / 1000.0), other);
    return group_abort(g, why);
}

static struct thread_rank *thread_rank_of(struct comm *c) { return (struct thread_rank *)(void *)c; }

// Waits until every rank has arrived as often as this one.
static enum status wait_all(struct thread_rank *m) {
    struct comm_threads *g = m->group;
    uint32_t here = atomic_fetch_add(&g->slots[m->comm.rank].arrived, 1) + 1;
    wake_sleepers(g);
    for (int r = 0; r < g->world; r++)
        if (wait_counter(m, &g->slots[r].arrived, here, r) != STATUS_OK)
            return STATUS_DEVICE;
    return abort_state_is_set(&g->abort) ? STATUS_DEVICE : STATUS_OK;
}

// Publishes a buffer, waits for those of all others, and checks that all are in the same operation. A second
// wait_all() releases the buffers.
static enum status publish_buffer(struct thread_rank *m, enum thread_operation operation, void *data,
                                  size_t bytes) {
    struct comm_threads *g = m->group;
    struct slot *mine = &g->slots[m->comm.rank];
    char why[200];
    mine->data = data;
    mine->bytes = bytes;
    mine->operation = operation;
    if (wait_all(m) != STATUS_OK)
        return STATUS_DEVICE;
    for (int r = 0; r < g->world; r++) {
        const struct slot *s = &g->slots[r];
        if (s->operation == operation && s->bytes == bytes)
            continue;
        snprintf(why, sizeof why, "rank %d is in %s of %zu bytes, rank %d in %s of %zu", m->comm.rank,
                 operation_names[operation], bytes, r, operation_names[s->operation], s->bytes);
        return group_abort(g, why);
    }
    return STATUS_OK;
}

// Elements [begin, end) of all ranks: each gets the sum.
static void add_up(struct comm_threads *g, size_t begin, size_t stop) {
    float *x[COMM_MAX_WORLD];
    for (int r = 0; r < g->world; r++)
        x[r] = g->slots[r].data;
    for (size_t i = begin; i < stop; i++) {
        float sum[COMM_MAX_WORLD];
        for (int r = 0; r < g->world; r++)
            sum[r] = x[r][i];
        for (int n = g->world; n > 1; n /= 2)
            for (int r = 0; r < n / 2; r++)
                sum[r] = sum[2 * r] + sum[2 * r + 1];
        for (int r = 0; r < g->world; r++)
            x[r][i] = sum[0];
    }
}

// The same for two ranks, in a form that compilers turn into vectors.
static void add_two(float *restrict x, float *restrict y, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] = x[i] + y[i];
}

static enum status threads_all_reduce(struct comm *c, float *x, size_t n) {
    struct thread_rank *m = thread_rank_of(c);
    struct comm_threads *g = m->group;
    CHECK((g->world & (g->world - 1)) == 0);
    if (publish_buffer(m, ALL_REDUCE, x, n * sizeof *x) != STATUS_OK)
        return STATUS_DEVICE;
    size_t rank = (size_t)c->rank, world = (size_t)c->world, begin = n * rank / world,
           stop = n * (rank + 1) / world; // each rank adds a share of the elements, for all
    if (world == 2)
        add_two((float *)g->slots[0].data + begin, (float *)g->slots[1].data + begin, stop - begin);
    else if (world > 2)
        add_up(g, begin, stop);
    return wait_all(m);
}

static enum status threads_all_gather(struct comm *c, void *all, const void *mine, size_t bytes) {
    struct thread_rank *m = thread_rank_of(c);
    if (publish_buffer(m, ALL_GATHER, (void *)(uintptr_t)mine, bytes) != STATUS_OK)
        return STATUS_DEVICE;
    for (int r = 0; r < c->world; r++)
        memcpy((char *)all + (size_t)r * bytes, m->group->slots[r].data, bytes);
    return wait_all(m);
}

static enum status threads_broadcast(struct comm *c, void *data, size_t bytes, int root) {
    struct thread_rank *m = thread_rank_of(c);
    CHECK(root >= 0 && root < c->world);
    if (publish_buffer(m, BROADCAST, data, bytes) != STATUS_OK)
        return STATUS_DEVICE;
    if (c->rank != root)
        memcpy(data, m->group->slots[root].data, bytes);
    return wait_all(m);
}

static enum status threads_barrier(struct comm *c) {
    struct thread_rank *m = thread_rank_of(c);
    return publish_buffer(m, BARRIER, NULL, 0) == STATUS_OK ? wait_all(m) : STATUS_DEVICE;
}

static enum status threads_isend(struct comm *c, const void *data, size_t bytes, int to) {
    struct thread_rank *m = thread_rank_of(c);
    CHECK(to >= 0 && to < c->world && to != c->rank);
    struct queue *q = &m->group->queues[c->rank][to];
    uint32_t number = atomic_load(&q->sent);
    if (abort_state_is_set(&m->group->abort) ||
        wait_counter(m, &q->taken, number + 1 - COMM_MAX_ISENDS, to) != STATUS_OK)
        return STATUS_DEVICE;
    q->pending[number % COMM_MAX_ISENDS].data = data;
    q->pending[number % COMM_MAX_ISENDS].bytes = bytes;
    atomic_store(&q->sent, number + 1);
    wake_sleepers(m->group);
    return STATUS_OK;
}

static enum status threads_wait_sent(struct comm *c, int to, int left) {
    struct thread_rank *m = thread_rank_of(c);
    CHECK(to >= 0 && to < c->world && to != c->rank && left >= 0);
    struct queue *q = &m->group->queues[c->rank][to];
    return wait_counter(m, &q->taken, atomic_load(&q->sent) - (uint32_t)left, to);
}

static enum status threads_send(struct comm *c, const void *data, size_t bytes, int to) {
    enum status st = threads_isend(c, data, bytes, to);
    return st == STATUS_OK ? threads_wait_sent(c, to, 0) : st;
}

static enum status threads_recv(struct comm *c, void *data, size_t bytes, int from) {
    struct thread_rank *m = thread_rank_of(c);
    CHECK(from >= 0 && from < c->world && from != c->rank);
    struct queue *q = &m->group->queues[from][c->rank];
    char why[128];
    uint32_t number = atomic_load(&q->taken);
    if (wait_counter(m, &q->sent, number + 1, from) != STATUS_OK)
        return STATUS_DEVICE;
    size_t there = q->pending[number % COMM_MAX_ISENDS].bytes;
    if (there != bytes) {
        snprintf(why, sizeof why, "rank %d expects %zu bytes of rank %d, which sends %zu", c->rank, bytes,
                 from, there);
        return group_abort(m->group, why);
    }
    memcpy(data, q->pending[number % COMM_MAX_ISENDS].data, bytes);
    atomic_fetch_add(&q->taken, 1);
    wake_sleepers(m->group);
    return STATUS_OK;
}

static void threads_abort(struct comm *c, const char *why) { group_abort(thread_rank_of(c)->group, why); }

static const char *threads_error(struct comm *c) { return abort_state_why(&thread_rank_of(c)->group->abort); }

static const struct comm_ops ops = {
    .all_reduce = threads_all_reduce,
    .all_gather = threads_all_gather,
    .broadcast = threads_broadcast,
    .send = threads_send,
    .recv = threads_recv,
    .isend = threads_isend,
    .wait_sent = threads_wait_sent,
    .barrier = threads_barrier,
    .abort = threads_abort,
    .error = threads_error,
};

struct comm_threads *comm_threads_open(int world, int deadline_ms, struct err *err) {
    if (world < 1 || world > COMM_MAX_WORLD || deadline_ms < 1) {
        err_set(err, STATUS_INVALID, "a group has 1 to %d ranks and a deadline, not %d and %d ms",
                COMM_MAX_WORLD, world, deadline_ms);
        return NULL;
    }
    struct comm_threads *g = aligned_alloc(64, sizeof *g);
    if (g)
        memset(g, 0, sizeof *g);
    if (!g || !abort_state_init(&g->abort)) {
        free(g);
        err_set(err, STATUS_NOMEM, "no memory for a group of %d ranks", world);
        return NULL;
    }
    g->world = world;
    g->max_slices = (deadline_ms + SLICE_MS - 1) / SLICE_MS;
    for (int r = 0; r < world; r++)
        g->ranks[r] = (struct thread_rank){{&ops, r, world}, g};
    return g;
}

struct comm *comm_threads_rank(struct comm_threads *g, int rank) {
    CHECK(rank >= 0 && rank < g->world);
    return &g->ranks[rank].comm;
}

void comm_threads_close(struct comm_threads *g) {
    if (!g)
        return;
    abort_state_destroy(&g->abort);
    free(g);
}
