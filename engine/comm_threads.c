// See comm_threads.h. Every wait is for a counter of another rank to reach a number: first by looking again
// and again, then asleep on one condition variable that all share.
#include "comm_threads.h"

#include "log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Spins: about 10 microseconds, as in kernels/cpu/pool.c. A deadline is counted in slices of sleep, so that a
// process that is stopped and goes on has lost one slice, not its ranks.
enum { SPINS = 400, SLICE_MS = 50 };

enum operation { NOTHING, ALL_REDUCE, ALL_GATHER, BROADCAST, BARRIER };
static const char *const operation_names[] = {"nothing", "all_reduce", "all_gather", "broadcast", "barrier"};

// What a rank shows the others. The fields are written before `arrived` is raised, and not again before every
// rank has arrived once more.
struct seat {
    _Alignas(64) _Atomic uint32_t arrived; // counts the barriers that this rank has reached
    void *data;
    size_t bytes;
    enum operation operation;
};

struct mail { // from one rank to one other
    _Alignas(64) _Atomic uint32_t sent;
    _Atomic uint32_t taken;
    struct {
        const void *data;
        size_t bytes;
    } posted[COMM_MAX_POSTED]; // message i at i modulo its length
};

struct member {
    struct comm comm;
    struct comm_threads *group;
};

struct comm_threads {
    int world, max_slices;
    struct member members[COMM_MAX_WORLD];
    struct seat seats[COMM_MAX_WORLD];
    struct mail mail[COMM_MAX_WORLD][COMM_MAX_WORLD];
    _Atomic uint32_t sleepers;
    _Atomic bool ended;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char why[200]; // under lock until ended is set, constant after
};

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void wake(struct comm_threads *g) {
    if (atomic_load(&g->sleepers) == 0)
        return;
    pthread_mutex_lock(&g->lock);
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static enum status end(struct comm_threads *g, const char *why) {
    pthread_mutex_lock(&g->lock);
    if (!atomic_load(&g->ended))
        snprintf(g->why, sizeof g->why, "%s", why);
    atomic_store(&g->ended, true);
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    return STATUS_DEVICE;
}

static bool reached(const _Atomic uint32_t *word, uint32_t value) {
    return (int32_t)(atomic_load_explicit(word, memory_order_acquire) - value) >= 0;
}

// false: it has not come although this thread slept for max_slices, or the group has ended.
static bool sleep_until(struct comm_threads *g, const _Atomic uint32_t *word, uint32_t value) {
    bool came;
    int slices = 0;
    // Who changes a word reads sleepers after it; here the other way round: one of both sees the other.
    atomic_fetch_add(&g->sleepers, 1);
    pthread_mutex_lock(&g->lock);
    while (!(came = (int32_t)(atomic_load(word) - value) >= 0) && !atomic_load(&g->ended) &&
           slices < g->max_slices) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += SLICE_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        slices += pthread_cond_timedwait(&g->changed, &g->lock, &until) != 0;
    }
    pthread_mutex_unlock(&g->lock);
    atomic_fetch_sub(&g->sleepers, 1);
    return came;
}

// Waits until a counter of rank `other` reaches value.
static enum status await(struct member *m, const _Atomic uint32_t *word, uint32_t value, int other) {
    struct comm_threads *g = m->group;
    char why[128];
    for (int i = 0; i < SPINS; i++) {
        if (reached(word, value))
            return STATUS_OK;
        if (atomic_load_explicit(&g->ended, memory_order_relaxed))
            return STATUS_DEVICE;
        relax();
    }
    if (sleep_until(g, word, value))
        return STATUS_OK;
    if (atomic_load(&g->ended))
        return STATUS_DEVICE;
    snprintf(why, sizeof why, "rank %d has waited %g s for rank %d", m->comm.rank,
             g->max_slices * (SLICE_MS / 1000.0), other);
    return end(g, why);
}

static struct member *member_of(struct comm *c) { return (struct member *)(void *)c; }

// Until every rank has come as often as this one.
static enum status meet(struct member *m) {
    struct comm_threads *g = m->group;
    uint32_t here = atomic_fetch_add(&g->seats[m->comm.rank].arrived, 1) + 1;
    wake(g);
    for (int r = 0; r < g->world; r++)
        if (await(m, &g->seats[r].arrived, here, r) != STATUS_OK)
            return STATUS_DEVICE;
    return atomic_load(&g->ended) ? STATUS_DEVICE : STATUS_OK;
}

// Shows a buffer and waits for those of all others; then checks that all are in the same operation. A second
// meet() gives the buffers back.
static enum status show(struct member *m, enum operation operation, void *data, size_t bytes) {
    struct comm_threads *g = m->group;
    struct seat *mine = &g->seats[m->comm.rank];
    char why[200];
    mine->data = data;
    mine->bytes = bytes;
    mine->operation = operation;
    if (meet(m) != STATUS_OK)
        return STATUS_DEVICE;
    for (int r = 0; r < g->world; r++) {
        const struct seat *s = &g->seats[r];
        if (s->operation == operation && s->bytes == bytes)
            continue;
        snprintf(why, sizeof why, "rank %d is in %s of %zu bytes, rank %d in %s of %zu", m->comm.rank,
                 operation_names[operation], bytes, r, operation_names[s->operation], s->bytes);
        return end(g, why);
    }
    return STATUS_OK;
}

// Elements [begin, end) of all ranks: each gets the sum.
static void add_up(struct comm_threads *g, size_t begin, size_t stop) {
    float *x[COMM_MAX_WORLD];
    for (int r = 0; r < g->world; r++)
        x[r] = g->seats[r].data;
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
    struct member *m = member_of(c);
    struct comm_threads *g = m->group;
    CHECK((g->world & (g->world - 1)) == 0);
    if (show(m, ALL_REDUCE, x, n * sizeof *x) != STATUS_OK)
        return STATUS_DEVICE;
    size_t rank = (size_t)c->rank, world = (size_t)c->world, begin = n * rank / world,
           stop = n * (rank + 1) / world; // each rank adds a share of the elements, for all
    if (world == 2)
        add_two((float *)g->seats[0].data + begin, (float *)g->seats[1].data + begin, stop - begin);
    else if (world > 2)
        add_up(g, begin, stop);
    return meet(m);
}

static enum status threads_all_gather(struct comm *c, void *all, const void *mine, size_t bytes) {
    struct member *m = member_of(c);
    if (show(m, ALL_GATHER, (void *)(uintptr_t)mine, bytes) != STATUS_OK)
        return STATUS_DEVICE;
    for (int r = 0; r < c->world; r++)
        memcpy((char *)all + (size_t)r * bytes, m->group->seats[r].data, bytes);
    return meet(m);
}

static enum status threads_broadcast(struct comm *c, void *data, size_t bytes, int root) {
    struct member *m = member_of(c);
    CHECK(root >= 0 && root < c->world);
    if (show(m, BROADCAST, data, bytes) != STATUS_OK)
        return STATUS_DEVICE;
    if (c->rank != root)
        memcpy(data, m->group->seats[root].data, bytes);
    return meet(m);
}

static enum status threads_barrier(struct comm *c) {
    struct member *m = member_of(c);
    return show(m, BARRIER, NULL, 0) == STATUS_OK ? meet(m) : STATUS_DEVICE;
}

static enum status threads_post(struct comm *c, const void *data, size_t bytes, int to) {
    struct member *m = member_of(c);
    CHECK(to >= 0 && to < c->world && to != c->rank);
    struct mail *mail = &m->group->mail[c->rank][to];
    uint32_t number = atomic_load(&mail->sent);
    if (atomic_load(&m->group->ended) ||
        await(m, &mail->taken, number + 1 - COMM_MAX_POSTED, to) != STATUS_OK)
        return STATUS_DEVICE;
    mail->posted[number % COMM_MAX_POSTED].data = data;
    mail->posted[number % COMM_MAX_POSTED].bytes = bytes;
    atomic_store(&mail->sent, number + 1);
    wake(m->group);
    return STATUS_OK;
}

static enum status threads_settle(struct comm *c, int to, int left) {
    struct member *m = member_of(c);
    CHECK(to >= 0 && to < c->world && to != c->rank && left >= 0);
    struct mail *mail = &m->group->mail[c->rank][to];
    return await(m, &mail->taken, atomic_load(&mail->sent) - (uint32_t)left, to);
}

static enum status threads_send(struct comm *c, const void *data, size_t bytes, int to) {
    enum status st = threads_post(c, data, bytes, to);
    return st == STATUS_OK ? threads_settle(c, to, 0) : st;
}

static enum status threads_recv(struct comm *c, void *data, size_t bytes, int from) {
    struct member *m = member_of(c);
    CHECK(from >= 0 && from < c->world && from != c->rank);
    struct mail *mail = &m->group->mail[from][c->rank];
    char why[128];
    uint32_t number = atomic_load(&mail->taken);
    if (await(m, &mail->sent, number + 1, from) != STATUS_OK)
        return STATUS_DEVICE;
    size_t there = mail->posted[number % COMM_MAX_POSTED].bytes;
    if (there != bytes) {
        snprintf(why, sizeof why, "rank %d expects %zu bytes of rank %d, which sends %zu", c->rank, bytes,
                 from, there);
        return end(m->group, why);
    }
    memcpy(data, mail->posted[number % COMM_MAX_POSTED].data, bytes);
    atomic_fetch_add(&mail->taken, 1);
    wake(m->group);
    return STATUS_OK;
}

static void threads_abort(struct comm *c, const char *why) { end(member_of(c)->group, why); }

static const char *threads_error(struct comm *c) {
    struct comm_threads *g = member_of(c)->group;
    return atomic_load(&g->ended) ? g->why : "";
}

static const struct comm_ops ops = {
    .all_reduce = threads_all_reduce,
    .all_gather = threads_all_gather,
    .broadcast = threads_broadcast,
    .send = threads_send,
    .recv = threads_recv,
    .post = threads_post,
    .settle = threads_settle,
    .barrier = threads_barrier,
    .abort = threads_abort,
    .error = threads_error,
};

struct comm_threads *comm_threads_open(int world, int deadline_ms, struct err *err) {
    pthread_condattr_t attr;
    if (world < 1 || world > COMM_MAX_WORLD || deadline_ms < 1) {
        err_set(err, STATUS_INVALID, "a group has 1 to %d ranks and a deadline, not %d and %d ms",
                COMM_MAX_WORLD, world, deadline_ms);
        return NULL;
    }
    struct comm_threads *g = aligned_alloc(64, sizeof *g);
    if (!g || pthread_condattr_init(&attr) != 0) {
        free(g);
        err_set(err, STATUS_NOMEM, "no memory for a group of %d ranks", world);
        return NULL;
    }
    memset(g, 0, sizeof *g);
    g->world = world;
    g->max_slices = (deadline_ms + SLICE_MS - 1) / SLICE_MS;
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    bool ok = pthread_mutex_init(&g->lock, NULL) == 0;
    if (ok && pthread_cond_init(&g->changed, &attr) != 0) {
        pthread_mutex_destroy(&g->lock);
        ok = false;
    }
    pthread_condattr_destroy(&attr);
    if (!ok) {
        free(g);
        err_set(err, STATUS_NOMEM, "no lock for a group of %d ranks", world);
        return NULL;
    }
    for (int r = 0; r < world; r++)
        g->members[r] = (struct member){{&ops, r, world}, g};
    return g;
}

struct comm *comm_threads_rank(struct comm_threads *g, int rank) {
    CHECK(rank >= 0 && rank < g->world);
    return &g->members[rank].comm;
}

void comm_threads_close(struct comm_threads *g) {
    if (!g)
        return;
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    free(g);
}
