// Limits of a connection: its requests, and the time for its client to read a response.
#include "http/limits.h"

#include "harness.h"
#include "http/listen.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND 1000000000LL

static int take_all(struct http_conn *c, int64_t now) {
    int n = 0;
    while (n <= 10000 && conn_take_credit(c, now))
        n++;
    return n;
}

TEST(test_credit) {
    const int64_t starts[] = {5 * SECOND,
                              4000000 * SECOND}; // of clocks that run since seconds, and since weeks
    for (int i = 0; i < 2; i++) {
        struct http_conn c = {0};
        int64_t now = starts[i];
        assert_int_equal(take_all(&c, now), 400);
        assert_int_equal(take_all(&c, now + 249999), 0);
        assert_int_equal(take_all(&c, now + 250000), 1);
        assert_int_equal(take_all(&c, now + 12750000), 50);
        assert_int_equal(take_all(&c, now + 3600 * SECOND), 400); // an hour earns no more than that
        int total = 0; // a second of tries at odd moments earns what a second earns
        for (int64_t t = 0; t <= SECOND; t += 333333)
            total += take_all(&c, now + 3600 * SECOND + t);
        assert_in_range(total, 3000, 4000);
    }
}

TEST(test_reader) {
    const struct http_limits zero = {.max_connections = 1};
    struct http_limits l = http_limits_filled(&zero);
    struct http_conn c = {0};
    conn_expect_reader(&c, &l, 7 * SECOND, 0);
    assert_int_equal(c.deadline, 37 * SECOND);
    conn_expect_reader(&c, &l, 7 * SECOND, 32 << 20);
    assert_int_equal(c.deadline, (37 + 2048) * SECOND);
}

// Connections never take all descriptors, however few there may be.
TEST(test_few_descriptors) {
    for (rlim_t max = 16; max <= 160; max += 8) {
        pid_t pid = fork();
        if (pid == 0) {
            const struct rlimit few = {.rlim_cur = max, .rlim_max = max};
            _exit(setrlimit(RLIMIT_NOFILE, &few) == 0 ? listen_limit() : 0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_in_range(WEXITSTATUS(status), 1, max / 4);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
