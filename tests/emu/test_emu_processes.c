// Two processes with one device, as ranks with QUIRE_CUDA_SHARE_DEVICE=1: memory of each other by its name, sums behind the
// barrier of both, and a kernel whose twin never comes.
#include "device.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    WORLD = 2,
    ROWS = 3,
    N = 900,
    ALL = ROWS * N,
    ROUNDS = 20,
    FLAGS = CUDA_BARRIER_BLOCKS * COMM_MAX_SUM
};

struct names {
    unsigned char part[RT_SHARED], flags[RT_SHARED];
};

// Exchanges bytes with the other process, which also makes each wait for the other. False: the other has ended.
static int to_other, from_other;
static bool exchange(const void *mine, void *others, size_t bytes) {
    return write(to_other, mine, bytes) == (ssize_t)bytes &&
           read(from_other, others, bytes) == (ssize_t)bytes;
}

static float number(int rank, int round, int i) {
    return (float)((rank * 37 + round * 11 + i * 7) % 101) / 8;
}

static void *stop_it(void *stop) {
    usleep(100000); // by then the kernel waits; if it does not yet, it ends at once
    __atomic_store_n((uint32_t *)stop, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void must_wait(void) {
    struct err err = {0};
    rt_mark(rt, 0);
    if (rt_wait(rt, 0, &err) != STATUS_OK)
        fail_msg("%s", err.msg);
}

// Runs one of the two ranks.
static void run_rank(int rank) {
    device_open();
    size_t bytes = ALL * sizeof(float);
    struct names mine, others;
    float *part = rt_alloc_shared(rt, bytes), host[ALL], *y = device_alloc(bytes);
    uint32_t *flags = rt_alloc_shared(rt, FLAGS * sizeof(uint32_t)), *stop = rt_alloc_host(rt, sizeof *stop);
    assert_true(part && flags && stop);
    rt_share(rt, part, mine.part);
    rt_share(rt, flags, mine.flags);
    must_wait();
    assert_true(exchange(&mine, &others, sizeof mine));
    struct cuda_sum a = {.peers = {.rank = rank,
                                   .world = WORLD,
                                   .epochs = device_alloc(CUDA_BARRIER_BLOCKS * sizeof(uint32_t)),
                                   .stop = stop},
                         .y = y,
                         .add = true,
                         .rows = ROWS,
                         .n = N};
    a.part[rank] = part, a.peers.flags[rank] = flags;
    a.part[!rank] = rt_open_shared(rt, others.part), a.peers.flags[!rank] = rt_open_shared(rt, others.flags);
    must_wait();
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < ALL; i++)
            host[i] = number(rank, round, i);
        rt_upload_now(rt, part, host, bytes);
        cuda_sum(rt, &a);
        must_wait();
    }
    float *got = to_host(y, bytes);
    for (int i = 0; i < ALL; i++) {
        float want = 0; // exact: eighths
        for (int round = 0; round < ROUNDS; round++)
            want += number(0, round, i) + number(1, round, i);
        if (got[i] != want)
            fail_msg("rank %d: sum %d is %g, not %g", rank, i, (double)got[i], (double)want);
    }
    free(got);
    assert_int_equal(*stop, 0);
    // One of them sums alone.
    char said = 1, heard = 0;
    if (rank == 0) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, stop_it, stop), 0);
        cuda_sum(rt, &a);
        must_wait();
        pthread_join(thread, NULL);
    }
    assert_true(exchange(&said, &heard, 1));
    rt_close_shared(rt, a.part[!rank]), rt_close_shared(rt, a.peers.flags[!rank]);
    assert_true(exchange(&said, &heard, 1)); // memory is freed when nobody has it open
    rt_free(rt, part), rt_free(rt, flags), rt_free(rt, y), rt_free(rt, a.peers.epochs);
    rt_free_host(rt, stop);
    rt_close(rt);
}

static void test_other(void **state) {
    (void)state;
    run_rank(1);
}

TEST(test_two_processes) {
    int up[2], down[2], status = 0;
    signal(SIGPIPE, SIG_IGN);
    assert_true(pipe(up) == 0 && pipe(down) == 0);
    fflush(stdout);
    pid_t other = fork(); // before anybody has opened the device
    assert_true(other >= 0);
    to_other = other ? down[1] : up[1], from_other = other ? up[0] : down[0];
    close(other ? up[1] : down[1]), close(other ? down[0] : up[0]); // so that an end is seen
    if (other == 0) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_other)};
        unsetenv("QUIRE_RUN");
        exit(cmocka_run_group_tests(tests, NULL, NULL));
    }
    run_rank(0);
    assert_true(waitpid(other, &status, 0) == other);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) { return run_all_tests(NULL, NULL); }
