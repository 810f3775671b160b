// A bounded queue between two threads: order, bound, waiting, closing.
#include "mailbox.h"

#include "harness.h"

#include <time.h>

TEST(test_order_and_bound) {
    struct mailbox m;
    assert_int_equal(mailbox_init(&m, sizeof(int), 3), STATUS_OK);
    int got[8], v = 0;
    for (int round = 0; round < 5; round++) { // the ring wraps
        for (v = 0; v < 3; v++)
            assert_true(mailbox_try_put(&m, &v));
        assert_false(mailbox_try_put(&m, &v));
        assert_int_equal(mailbox_take(&m, got, 2), 2);
        assert_int_equal(got[0], 0);
        assert_int_equal(got[1], 1);
        assert_true(mailbox_try_put(&m, &v));
        assert_int_equal(mailbox_take(&m, got, 8), 2);
        assert_int_equal(got[0], 2);
        assert_int_equal(got[1], 3);
        assert_int_equal(mailbox_take(&m, got, 8), 0);
    }
    assert_false(mailbox_wait(&m, 1000000));
    mailbox_destroy(&m);
}

enum { COUNT = 20000 };

static void *producer(void *arg) {
    for (int i = 0; i < COUNT; i++)
        if (!mailbox_put(arg, &i))
            return (void *)1;
    return NULL;
}

TEST(test_two_threads) {
    struct mailbox m;
    pthread_t thread;
    assert_int_equal(mailbox_init(&m, sizeof(int), 7), STATUS_OK);
    assert_int_equal(pthread_create(&thread, NULL, producer, &m), 0);
    int next = 0, got[5];
    while (next < COUNT) {
        assert_true(mailbox_wait(&m, -1));
        size_t n = mailbox_take(&m, got, 5);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(got[i], next++);
    }
    void *failed;
    pthread_join(thread, &failed);
    assert_null(failed);
    mailbox_destroy(&m);
}

TEST(test_close_wakes_and_keeps) {
    struct mailbox m;
    pthread_t thread;
    assert_int_equal(mailbox_init(&m, sizeof(int), 2), STATUS_OK);
    assert_int_equal(pthread_create(&thread, NULL, producer, &m), 0); // fills it and waits
    struct timespec t = {.tv_nsec = 2000000};
    nanosleep(&t, NULL);
    mailbox_close(&m);
    void *failed;
    pthread_join(thread, &failed);
    assert_non_null(failed);
    int got[4];
    size_t n = mailbox_take(&m, got, 4);
    assert_true(n <= 2);
    assert_false(mailbox_wait(&m, -1)); // closed and empty: nothing to wait for
    assert_false(mailbox_put(&m, got));
    mailbox_destroy(&m);
}

int main(void) { return run_all_tests(NULL, NULL); }
