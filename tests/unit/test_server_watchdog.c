// The watchdog: a thread that works without coming round is noticed, one that sleeps or comes round is not.
#include "observe/watchdog.h"

#include "clock.h"
#include "harness.h"

static _Atomic int num_stuck;
static _Atomic double stuck_for; // s
static _Atomic uint64_t turns;

static uint64_t count_turns(void *arg) {
    (void)arg;
    return turns;
}

static void count(void *arg, double seconds) {
    (void)arg;
    stuck_for = seconds;
    if (seconds > 0)
        num_stuck++;
}

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

// By its processor time, before it would pass for one that waits: unless it gets less than a second of ten.
TEST(test_work_that_does_not_end) {
    struct watchdog w = {.progress = count_turns, .stuck = count};
    double began = cpu_seconds();
    num_stuck = 0;
    assert_true(watchdog_start(&w));
    while (!watchdog_alarmed(&w, 1e6))
        ;
    watchdog_stop(&w);
    assert_int_equal(num_stuck, 1);
    assert_true(stuck_for < 9 || cpu_seconds() - began < 1);
    assert_true(watchdog_alarmed(&w, 1e6));
}

// Half a second each.
TEST(test_work_that_comes_round) {
    struct watchdog w = {.progress = count_turns, .stuck = count};
    num_stuck = 0;
    assert_true(watchdog_start(&w));
    for (int i = 0; i < 5; i++, turns++)
        for (double began = cpu_seconds(); cpu_seconds() - began < 0.5;)
            ;
    watchdog_stop(&w);
    assert_int_equal(num_stuck, 0);
    assert_false(watchdog_alarmed(&w, 1e6));
}

TEST(test_sleep_is_no_work) {
    struct watchdog w = {.progress = count_turns, .stuck = count};
    num_stuck = 0;
    assert_true(watchdog_start(&w));
    nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
    watchdog_stop(&w);
    assert_int_equal(num_stuck, 0);
}

int main(void) { return run_all_tests(NULL, NULL); }
