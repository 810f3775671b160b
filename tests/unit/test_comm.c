// Collectives between threads: sums to the bit, whose data goes where, and that nothing waits for ever.
#include "comm_cases.h"
#include "harness.h"
#include "log.h"
#include "ranks/comm_threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { LONG_MS = 60000, SHORT_MS = 100 };

typedef void rank_fn(struct comm *c, void *arg);

struct start {
    rank_fn *fn;
    struct comm *comm;
    void *arg;
};

static void *run_rank(void *p) {
    struct start *s = p;
    s->fn(s->comm, s->arg);
    return NULL;
}

// Runs fn on the ranks whose bit is set, each on a thread, and waits for them.
static void run_some(struct comm_threads *g, int world, unsigned which, rank_fn *fn, void *arg) {
    pthread_t threads[COMM_MAX_WORLD];
    struct start start[COMM_MAX_WORLD];
    for (int r = 0; r < world; r++) {
        start[r] = (struct start){fn, comm_threads_rank(g, r), arg};
        if (which >> r & 1)
            assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &start[r]), 0);
    }
    for (int r = 0; r < world; r++)
        if (which >> r & 1)
            pthread_join(threads[r], NULL);
}

static struct comm_threads *open_group(int world, int deadline_ms) {
    struct err err = {0};
    struct comm_threads *g = comm_threads_open(world, deadline_ms, &err);
    if (!g)
        fail_msg("%s", err.msg);
    return g;
}

static void run_all(int world, rank_fn *fn, void *arg) {
    struct comm_threads *g = open_group(world, LONG_MS);
    run_some(g, world, ~0u, fn, arg);
    assert_string_equal(comm_threads_rank(g, 0)->ops->error(comm_threads_rank(g, 0)), "");
    comm_threads_close(g);
}

TEST(test_all_reduce) {
    atomic_store(&failures, 0);
    for (int world = 1; world <= COMM_MAX_WORLD; world *= 2)
        run_all(world, reduce, NULL);
    assert_int_equal(atomic_load(&failures), 0);
    int in_line = 0; // that the numbers can tell a tree from a sum in a row
    for (int i = 0; i < NUM; i++)
        in_line +=
            ((number(0, i, 0) + number(1, i, 0)) + number(2, i, 0)) + number(3, i, 0) == tree(0, 4, i, 0);
    assert_true(in_line < NUM * 9 / 10);
}

TEST(test_gather_and_broadcast) {
    atomic_store(&failures, 0);
    for (int world = 1; world <= COMM_MAX_WORLD; world++)
        run_all(world, collect, NULL);
    assert_int_equal(atomic_load(&failures), 0);
}

TEST(test_send_and_receive) {
    atomic_store(&failures, 0);
    for (int world = 2; world <= COMM_MAX_WORLD; world *= 2)
        run_all(world, exchange, NULL);
    assert_int_equal(atomic_load(&failures), 0);
}

// Rank 0 sends as many messages as may be in flight before rank 1 receives the first: neither waits.
static void post_ahead(struct comm *c, void *arg) {
    _Atomic int *step = arg;
    int out[COMM_MAX_ISENDS + 2], in = -1;
    if (c->rank == 0) {
        for (int i = 0; i < COMM_MAX_ISENDS; i++) {
            out[i] = 100 + i;
            expect(c->ops->isend(c, &out[i], sizeof out[i], 1) == STATUS_OK);
        }
        expect(c->ops->wait_sent(c, 1, COMM_MAX_ISENDS) == STATUS_OK);
        atomic_store(step, 1);
        expect(c->ops->wait_sent(c, 1, COMM_MAX_ISENDS - 1) == STATUS_OK);
        out[0] = -1; // the first was received
        for (int i = COMM_MAX_ISENDS; i < COMM_MAX_ISENDS + 2; i++) {
            out[i] = 100 + i;
            expect(c->ops->isend(c, &out[i], sizeof out[i], 1) == STATUS_OK);
        }
        expect(c->ops->wait_sent(c, 1, 0) == STATUS_OK);
        expect(atomic_load(step) == COMM_MAX_ISENDS + 2);
        memset(out, 0xff, sizeof out);
    } else if (c->rank == 1) {
        while (atomic_load(step) == 0)
            sched_yield();
        for (int i = 0; i < COMM_MAX_ISENDS + 2; i++) {
            atomic_store(step, i + 1);
            expect(c->ops->recv(c, &in, sizeof in, 0) == STATUS_OK);
            expect(in == 100 + i);
        }
    }
    expect(c->ops->barrier(c) == STATUS_OK);
}

TEST(test_posted) {
    atomic_store(&failures, 0);
    for (int i = 0; i < ROUNDS; i++) {
        _Atomic int step = 0;
        run_all(2, post_ahead, (void *)&step);
    }
    assert_int_equal(atomic_load(&failures), 0);
}

static void pass(struct comm *c, void *arg) {
    _Atomic int *count = arg;
    for (int round = 1; round <= ROUNDS; round++) {
        atomic_fetch_add(count, 1);
        expect(c->ops->barrier(c) == STATUS_OK);
        expect(atomic_load(count) == round * c->world);
        expect(c->ops->barrier(c) == STATUS_OK);
    }
}

TEST(test_barrier) {
    _Atomic int count = 0;
    atomic_store(&failures, 0);
    run_all(5, pass, &count);
    assert_int_equal(atomic_load(&failures), 0);
}

// Each kind of wait, while rank 1 is missing.
static void wait_for_absent(struct comm *c, void *arg) {
    float x[4] = {0};
    char all[64];
    switch (*(int *)arg) {
    case 0: expect(c->ops->all_reduce(c, x, 4) == STATUS_DEVICE); break;
    case 1: expect(c->ops->all_gather(c, all, x, 4) == STATUS_DEVICE); break;
    case 2: expect(c->ops->broadcast(c, x, 4, 1) == STATUS_DEVICE); break;
    case 3: expect(c->ops->send(c, x, 4, 1) == STATUS_DEVICE); break;
    case 4: expect(c->ops->recv(c, x, 4, 1) == STATUS_DEVICE); break;
    case 5: expect(c->ops->barrier(c) == STATUS_DEVICE); break;
    case 6:
        expect(c->ops->isend(c, x, 4, 1) == STATUS_OK || *c->ops->error(c));
        expect(c->ops->wait_sent(c, 1, 0) == STATUS_DEVICE);
        break;
    case 7:
        for (int i = 0; i <= COMM_MAX_ISENDS; i++) // one too many
            expect(c->ops->isend(c, x, 4, 1) == (i < COMM_MAX_ISENDS ? STATUS_OK : STATUS_DEVICE) ||
                   *c->ops->error(c)); // of another rank that waited longer
        break;
    }
    expect(c->ops->barrier(c) == STATUS_DEVICE); // for good
    expect(c->ops->send(c, x, 4, 1) == STATUS_DEVICE);
    expect(c->ops->isend(c, x, 4, 1) == STATUS_DEVICE);
}

// One rank alone names the other. Of three ranks whichever waits longest speaks first, possibly of one that the
// machine has not let run yet; all of them end.
TEST(test_deadline) {
    atomic_store(&failures, 0);
    for (int kind = 0; kind < 8; kind++) {
        struct comm_threads *g = open_group(2, SHORT_MS);
        run_some(g, 2, 1, wait_for_absent, &kind);
        const char *why = comm_threads_rank(g, 0)->ops->error(comm_threads_rank(g, 0));
        assert_string_equal(why, "rank 0 has waited 0.1 s for rank 1");
        comm_threads_close(g);

        g = open_group(4, SHORT_MS);
        run_some(g, 4, 13, wait_for_absent, &kind);
        why = comm_threads_rank(g, 1)->ops->error(comm_threads_rank(g, 1));
        if (!strstr(why, " has waited 0.1 s for rank "))
            fail_msg("operation %d: '%s'", kind, why);
        comm_threads_close(g);
    }
    assert_int_equal(atomic_load(&failures), 0);
}

// Rank 2 ends the group while 0 and 1 wait for it, with no deadline that matters.
static void end_it(struct comm *c, void *arg) {
    _Atomic int *waiting = arg;
    if (c->rank == 2) {
        while (atomic_load(waiting) < 2)
            sched_yield();
        c->ops->abort(c, "rank 2 has lost its device");
        c->ops->abort(c, "and more of that");
    } else {
        atomic_fetch_add(waiting, 1);
        expect((c->rank ? c->ops->barrier(c) : c->ops->recv(c, &(int){0}, 4, 2)) == STATUS_DEVICE);
    }
    expect(c->ops->barrier(c) == STATUS_DEVICE);
    expect(strcmp(c->ops->error(c), "rank 2 has lost its device") == 0);
}

TEST(test_abort) {
    atomic_store(&failures, 0);
    for (int i = 0; i < 20; i++) {
        _Atomic int waiting = 0;
        struct comm_threads *g = open_group(3, LONG_MS * 60);
        run_some(g, 3, 7, end_it, &waiting);
        comm_threads_close(g);
    }
    assert_int_equal(atomic_load(&failures), 0);
}

static void disagree(struct comm *c, void *arg) {
    float x[8] = {0};
    int kind = *(int *)arg;
    if (kind == 0)
        expect(c->ops->all_reduce(c, x, c->rank ? 4 : 8) == STATUS_DEVICE);
    else if (kind == 1)
        expect((c->rank ? c->ops->broadcast(c, x, 4, 0) : c->ops->barrier(c)) == STATUS_DEVICE);
    else
        expect((c->rank ? c->ops->send(c, x, 4, 0) : c->ops->recv(c, x, 8, 1)) == STATUS_DEVICE);
}

TEST(test_disagreement) {
    static const char *const why[] = {"all_reduce of 32 bytes", "barrier of 0 bytes",
                                      "rank 0 expects 8 bytes of rank 1, which sends 4"};
    atomic_store(&failures, 0);
    for (int kind = 0; kind < 3; kind++) {
        struct comm_threads *g = open_group(2, LONG_MS);
        run_some(g, 2, 3, disagree, &kind);
        const char *text = comm_threads_rank(g, 0)->ops->error(comm_threads_rank(g, 0));
        if (!strstr(text, why[kind]) && !(kind < 2 && strstr(text, "rank 1 is in")))
            fail_msg("'%s'", text);
        comm_threads_close(g);
    }
    assert_int_equal(atomic_load(&failures), 0);
}

TEST(test_sizes) {
    static const int bad[][2] = {{0, 10}, {COMM_MAX_WORLD + 1, 10}, {-1, 10}, {2, 0}};
    for (int i = 0; i < 4; i++) {
        struct err err = {0};
        assert_null(comm_threads_open(bad[i][0], bad[i][1], &err));
        assert_int_equal(err.code, STATUS_INVALID);
    }
    comm_threads_close(NULL);
}

int main(void) { return run_all_tests(NULL, NULL); }
