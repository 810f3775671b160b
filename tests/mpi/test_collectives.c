// The comm between processes, each a rank, under mpirun: the same bits as threads give, what ends the group,
// and that nothing waits for ever. usage: test_collectives [equal|disagree|absent|abort]
//
// Every process checks on its own and prints how many failures it had; run.sh counts the processes without.
#include "../unit/comm_cases.h"
#include "ranks/comm_threads.h"
#include "ranks/process_group.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static struct processes *group;
static int rank, world;

#define EXPECT(cond)                                                                                         \
    do {                                                                                                     \
        if (!(cond)) {                                                                                       \
            printf("rank %d, line %d: not true: %s (%s)\n", rank, __LINE__, #cond, processes_error(group));  \
            atomic_fetch_add(&failures, 1);                                                                  \
        }                                                                                                    \
    } while (0)

static struct comm *open_comm(int number, int deadline_ms) {
    const int process[PROCESSES_MAX] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct err err = {0};
    struct comm *c = processes_comm(group, number, rank, world, process, deadline_ms, &err);
    if (!c) {
        printf("%s\n", err.msg);
        exit(1);
    }
    return c;
}

// The same collectives by threads of this process: what the bits must be.
struct thread {
    struct comm *comm;
    float *x;
    size_t n;
    char *all;
};

static void *reduce_thread(void *arg) {
    struct thread *t = arg;
    expect(t->comm->ops->all_reduce(t->comm, t->x, t->n) == STATUS_OK);
    expect(t->comm->ops->all_gather(t->comm, t->all, t->x, t->n * sizeof *t->x) == STATUS_OK);
    return NULL;
}

// Lengths around the frame's, the pieces' and the window's.
static void test_bits(struct comm *c) {
    static const size_t lengths[] = {0,     1,      7,      1003,   8191,    8192,    8193,   8200,
                                     99999, 270335, 270336, 270337, 1056768, 1056769, 1500001};
    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
        size_t n = lengths[l], bytes = n * sizeof(float);
        struct comm_threads *threads = comm_threads_open(world, 60000, NULL);
        struct thread t[PROCESSES_MAX];
        pthread_t id[PROCESSES_MAX];
        float *mine = malloc(bytes + 1);
        char *all = malloc(bytes * (size_t)world + 1);
        for (int r = 0; r < world; r++) {
            t[r] = (struct thread){comm_threads_rank(threads, r), malloc(bytes + 1), n,
                                   malloc(bytes * (size_t)world + 1)};
            for (size_t i = 0; i < n; i++)
                t[r].x[i] = number(r, (int)i, (int)l);
        }
        memcpy(mine, t[rank].x, bytes);
        for (int r = 0; r < world; r++)
            pthread_create(&id[r], NULL, reduce_thread, &t[r]);
        for (int r = 0; r < world; r++)
            pthread_join(id[r], NULL);
        EXPECT(c->ops->all_reduce(c, mine, n) == STATUS_OK);
        EXPECT(memcmp(mine, t[rank].x, bytes) == 0);
        EXPECT(c->ops->all_gather(c, all, mine, bytes) == STATUS_OK);
        EXPECT(memcmp(all, t[rank].all, bytes * (size_t)world) == 0);
        int root = (int)(l % (size_t)world);
        if (rank == root && n > 0)
            mine[n - 1] = 42;
        EXPECT(c->ops->broadcast(c, mine, bytes, root) == STATUS_OK);
        EXPECT(n == 0 || mine[n - 1] == 42);
        if (rank == 0) { // a ring, once around
            EXPECT(c->ops->send(c, mine, bytes, 1) == STATUS_OK);
            EXPECT(c->ops->recv(c, all, bytes, world - 1) == STATUS_OK);
            EXPECT(memcmp(all, mine, bytes) == 0);
        } else {
            EXPECT(c->ops->recv(c, all, bytes, rank - 1) == STATUS_OK);
            EXPECT(c->ops->send(c, all, bytes, (rank + 1) % world) == STATUS_OK);
        }
        for (int r = 0; r < world; r++) {
            free(t[r].x);
            free(t[r].all);
        }
        free(mine);
        free(all);
        comm_threads_close(threads);
    }
}

static void test_equal(void) {
    struct comm *c = open_comm(0, 60000);
    reduce(c, NULL);
    collect(c, NULL);
    exchange(c, NULL);
    EXPECT(atomic_load(&failures) == 0);
    test_bits(c);
    EXPECT(c->ops->barrier(c) == STATUS_OK);
    int64_t least = 100 - rank;
    uint64_t sum = 1;
    struct err err = {0};
    EXPECT(processes_all_min(group, &least, &err) == STATUS_OK && least == 100 - (world - 1));
    EXPECT(processes_all_sum(group, &sum, &err) == STATUS_OK && sum == (uint64_t)world);
    EXPECT(processes_check_status(group, &err) == STATUS_OK);
    err_set(&err, rank == 1 ? STATUS_FORMAT : STATUS_OK, "%s", rank == 1 ? "a bad file" : "");
    EXPECT(processes_check_status(group, &err) == STATUS_FORMAT && strstr(err.msg, "a bad file"));
    EXPECT(rank == 1 || strstr(err.msg, "process 1 ("));
    EXPECT(processes_leave(group));
}

// All but rank 0 disagree with it; every rank gets the reason, and nothing works any more.
static void test_disagree(void) {
    struct comm *c = open_comm(0, 60000);
    float x[8] = {0};
    c->ops->all_reduce(c, x, rank == 0 ? 4 : 8);
    EXPECT(c->ops->barrier(c) == STATUS_DEVICE);
    EXPECT(strstr(c->ops->error(c), "all_reduce of"));
    EXPECT(strstr(c->ops->error(c), "16") && strstr(c->ops->error(c), "32"));
    EXPECT(!processes_leave(group));
}

static void test_absent(void) {
    struct comm *c = open_comm(0, 300);
    if (rank != 1)
        EXPECT(c->ops->barrier(c) == STATUS_DEVICE);
    else
        while (!*processes_error(group))
            usleep(10000);
    EXPECT(strstr(processes_error(group), "has waited 0.3 s for rank "));
    // With more, another may have been kept from running as long, and be missed first.
    EXPECT(world > 2 || strstr(processes_error(group), "has waited 0.3 s for rank 1"));
    EXPECT(c->ops->send(c, &rank, sizeof rank, (rank + 1) % world) == STATUS_DEVICE);
    EXPECT(!processes_leave(group));
}

static void test_abort(void) {
    struct comm *c = open_comm(0, 0); // no deadline
    if (rank == 1)
        c->ops->abort(c, "rank 1 has lost its device");
    EXPECT(c->ops->recv(c, &(int){0}, 4, (rank + 1) % world) == STATUS_DEVICE);
    EXPECT(strcmp(c->ops->error(c), "rank 1 has lost its device") == 0);
    EXPECT(!processes_leave(group));
}

// After an abort no process waits for the others, and mpirun kills all when the first has exited: so
// each leaves a file (in QUIRE_MPI_FOLDER, of run.sh), and goes when all have. A minute ends only what hangs.
static void meet_at_the_end(void) {
    const char *folder = getenv("QUIRE_MPI_FOLDER");
    char path[512];
    if (!folder)
        return;
    snprintf(path, sizeof path, "%s/%d", folder, rank);
    fclose(fopen(path, "w"));
    for (int r = 0, tries = 0; r < world && tries < 6000; tries++) {
        snprintf(path, sizeof path, "%s/%d", folder, r);
        if (access(path, F_OK) == 0)
            r++;
        else
            usleep(10000);
    }
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
        {"equal", test_equal}, {"disagree", test_disagree}, {"absent", test_absent}, {"abort", test_abort}};
    struct launch launch;
    struct err err = {0};
    if (!processes_launched(&launch)) {
        printf("not under mpirun\n");
        return 77;
    }
    if (processes_join(&launch, &group, &err) != STATUS_OK) {
        printf("%s\n", err.msg);
        return 1;
    }
    rank = processes_index(group);
    world = processes_count(group);
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (argc > 1 && strcmp(argv[1], tests[i].name) == 0) {
            tests[i].run();
            printf("rank %d of %d: %s, %d failures\n", rank, world, argv[1], atomic_load(&failures));
            fflush(stdout);
            meet_at_the_end();
            _exit(atomic_load(&failures) ? 1 : 0);
        }
    return 2;
}
