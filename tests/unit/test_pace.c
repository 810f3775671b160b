// How many prompt tokens go beside decodes: a machine whose times are known.
#include "pace.h"

#include "harness.h"

enum { MS = 1000000 };

// A step of so many tokens on a machine with a fixed time for the weights and one for each token.
static int64_t step_ns(int decodes, int prompt) { return 10 * MS + (int64_t)(decodes + prompt) * MS / 2; }

TEST(test_nothing_known) {
    struct pace p = {.target_ns = 50 * MS, .max_chunk = 128};
    assert_int_equal(pace_chunk(&p, 4), 128);
    pace_add(&p, 4, 0, 12 * MS); // decodes alone do not say what a prompt's token costs
    assert_int_equal(pace_chunk(&p, 4), 128);
    pace_add(&p, 0, PACE_MIN_CHUNK - 1, 12 * MS); // nor do a few
    assert_int_equal(pace_chunk(&p, 4), 128);
    pace_add(&p, 0, 100, 0); // a clock that stood still
    assert_int_equal(pace_chunk(&p, 4), 128);
}

TEST(test_meets_the_target) {
    struct pace p = {.target_ns = 50 * MS, .max_chunk = 128};
    pace_add(&p, 0, 100, step_ns(0, 100)); // 60 ms: 0.6 ms a token
    assert_int_equal(pace_chunk(&p, 4), 83);
    for (int i = 0; i < 40; i++) {
        pace_add(&p, 4, 0, step_ns(4, 0));
        int n = pace_chunk(&p, 4);
        pace_add(&p, 4, n, step_ns(4, n));
    }
    assert_in_range(pace_chunk(&p, 4), 75, 76); // 12 ms of decodes, 38 ms at 0.5 ms each
    int64_t after = step_ns(4, pace_chunk(&p, 4));
    assert_true(after <= 50 * MS && after > 49 * MS);
    p.max_chunk = 40; // what the step has room for
    assert_int_equal(pace_chunk(&p, 4), 40);
    p.max_chunk = 8;
    assert_int_equal(pace_chunk(&p, 4), 8);
}

// Decodes that take longer than the target leave prompts twice the time that they take themselves.
TEST(test_slow_decodes) {
    struct pace p = {.target_ns = 50 * MS, .max_chunk = 256};
    pace_add(&p, 32, 0, 80 * MS);
    pace_add(&p, 32, 40, 120 * MS);
    assert_int_equal(pace_chunk(&p, 32), 160);
    assert_int_equal(pace_chunk(&p, 1), 160);       // one has to read the weights, too, as far as is known
    assert_int_equal(pace_chunk(&p, 42), 160 + 20); // 10 more take 10 ms more
    assert_int_equal(pace_chunk(&p, 0), 50);
    pace_add(&p, 42, 40, 130 * MS); // just so: 40 tokens in 40 ms, still
    assert_int_equal(pace_chunk(&p, 32), 160);
    struct pace slow = {.target_ns = 50 * MS, .max_chunk = 128};
    pace_add(&slow, 1, 0, 20 * MS);
    pace_add(&slow, 1, 20, 220 * MS);
    assert_int_equal(pace_chunk(&slow, 1), PACE_MIN_CHUNK);
}

// One step that the machine was taken away from does not set the pace, and a step shorter than what decodes
// took before does not make prompts free.
TEST(test_outliers) {
    struct pace p = {.target_ns = 50 * MS, .max_chunk = 1000};
    for (int i = 0; i < 20; i++) {
        pace_add(&p, 4, 0, 10 * MS);
        pace_add(&p, 4, 40, 30 * MS);
    }
    assert_int_equal(pace_chunk(&p, 4), 80);
    pace_add(&p, 4, 40, 130 * MS);
    assert_in_range(pace_chunk(&p, 4), 30, 50);
    struct pace q = {.target_ns = 50 * MS, .max_chunk = 2000};
    pace_add(&q, 4, 0, 10 * MS);
    pace_add(&q, 4, 40, 8 * MS);
    // An eighth of the step, 1 ms for 40 tokens; 8 ms for decodes.
    assert_int_equal(pace_chunk(&q, 4), 1680);
}

// Steps that all have prompts tell about decodes, too: after one that was measured while the machine was
// away, and where none was ever alone.
TEST(test_always_prompts) {
    struct pace p = {.target_ns = 50 * MS, .max_chunk = 1000};
    pace_add(&p, 0, 100, step_ns(0, 100));
    pace_add(&p, 4, 0, 900 * MS);
    assert_int_equal(pace_chunk(&p, 4), 1000);
    for (int i = 0; i < 60; i++)
        pace_add(&p, 4, 40, step_ns(4, 40));
    assert_in_range(pace_chunk(&p, 4), 65, 85);
    struct pace q = {.target_ns = 50 * MS, .max_chunk = 1000};
    pace_add(&q, 0, 100, step_ns(0, 100)); // 0.6 ms a token
    for (int i = 0; i < 60; i++)
        pace_add(&q, 200, 40, step_ns(200, 40)); // 130 ms, so decodes take more than the target
    assert_in_range(pace_chunk(&q, 200), 330, 380);
}

TEST(test_off) {
    struct pace p = {.max_chunk = 128};
    pace_add(&p, 4, 100, 500 * MS);
    assert_int_equal(pace_chunk(&p, 4), 128);
}

TEST(test_expects) {
    struct pace p = {.max_chunk = 1000};
    assert_int_equal(pace_expect(&p, 4, 500), 0);
    pace_add(&p, 4, 0, 100 * MS);
    assert_int_equal(pace_expect(&p, 2, 0), 100 * MS);
    assert_int_equal(pace_expect(&p, 0, 40), 1000 * MS); // a decode each
    pace_add(&p, 0, 100, 200 * MS);
    assert_int_equal(pace_expect(&p, 4, 50), 200 * MS);
}

int main(void) { return run_all_tests(NULL, NULL); }
