// Processes join, agree and leave over a transport whose messages are late (late_module.c): none is given up
// that another one waits for. tests/mpi and tests/http have the same over MPI.
#include "harness.h"
#include "processes.h"
#include "ranks/process_group.h"

#include <pthread.h>
#include <stdatomic.h>

static void *live(void *arg) {
    const struct launch launch = {.launcher = "a test", .num_processes = 2};
    struct processes *p = NULL;
    struct err err = {0};
    uint64_t sum = 20;
    bool *well = arg;
    *well = processes_join(&launch, &p, &err) == STATUS_OK;
    if (!*well)
        printf("  %s\n", err.msg);
    else if (processes_all_sum(p, &sum, &err) != STATUS_OK || sum != 40)
        *well = false;
    *well &= processes_leave(p);
    return NULL;
}

TEST(test_late_messages) {
    for (int round = 0; round < 2; round++) {
        pthread_t threads[2];
        bool well[2];
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, live, &well[i]), 0);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        assert_true(well[0] && well[1]);
    }
}

int main(void) {
    setenv("QUIRE_MPI_MODULE", QUIRE_LATE_MODULE, 1);
    return run_all_tests(NULL, NULL);
}
