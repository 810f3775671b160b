// The model of step times finds the times of a machine that it does not know; the simulation counts the steps that a
// scheduler takes.
#include "predict.h"
#include "scheduler_bench.h"

#include <math.h>

// A machine: 2 ms a step, 0.1 ms a prompt token, 0.3 ms a decode, 0.05 ms for a thousand tokens attended to.
static int64_t machine_ns(const struct step_shape *s) {
    return (int64_t)(2e6 * s->terms[0] + 1e5 * s->terms[1] + 3e5 * s->terms[2] + 5e4 * s->terms[3]);
}

static void learn(struct predictor *p) {
    predict_open(p);
    for (int i = 0; i < 300; i++) {
        struct step_shape s = {{1, i % 3 ? 0 : 16 + i % 7 * 32, 1 + i % 11, (i * 37) % 100}};
        predict_add_step(p, &s, machine_ns(&s));
    }
}

static void test_fit(void **state) {
    (void)state;
    struct predictor p;
    learn(&p);
    const struct step_shape shapes[] = {
        {{1, 0, 1, 1}}, {{1, 0, 32, 60}}, {{1, 512, 0, 130}}, {{1, 100, 8, 10}}};
    for (int i = 0; i < 4; i++) {
        double want = (double)machine_ns(&shapes[i]), got = (double)predict_step(&p, &shapes[i]);
        assert_true(fabs(got - want) < 0.02 * want);
    }
    struct step_shape slow = {{1, 64, 4, 10}}; // a step that the machine was taken away from
    predict_add_step(&p, &slow, 50 * machine_ns(&slow));
    double want = (double)machine_ns(&slow), got = (double)predict_step(&p, &slow);
    assert_true(fabs(got - want) < 0.1 * want);
}

static void test_steps_without_news(void **state) {
    (void)state;
    struct predictor p;
    learn(&p);
    for (int i = 0; i < 20000; i++) { // decodes alone, for long
        struct step_shape s = {{1, 0, 1, 1}};
        predict_add_step(&p, &s, machine_ns(&s));
    }
    struct step_shape s = {{1, 64, 4, 10}};
    double want = (double)machine_ns(&s), got = (double)predict_step(&p, &s);
    assert_true(isfinite(got) && fabs(got - want) < 0.3 * want);
}

static void test_queue(void **state) {
    (void)state;
    struct predictor p;
    struct pace pace = {.max_chunk = 8};
    struct bench b;
    int64_t queue, alone, hit, behind;
    bench_init(&b, 40, config_of(1, 8, 8));
    predict_open(&p);
    assert_int_equal(predict_first_token(&p, &pace, b.s, 24, 0, 0, &queue), -1);
    learn(&p);
    alone = predict_first_token(&p, &pace, b.s, 24, 0, 0, &queue); // three steps of eight
    assert_true(fabs((double)alone - 3 * (2e6 + 8e5)) < 0.03 * (double)alone && queue == 0);
    hit = predict_first_token(&p, &pace, b.s, 24, 16, 0, &queue); // one
    assert_true(fabs((double)hit - (2e6 + 8e5)) < 0.03 * (double)hit);
    struct request *r = add(&b, 1, 16, 5);
    p.at_length = 1;
    behind = predict_first_token(&p, &pace, b.s, 8, 0, 0, &queue); // two, four decodes, and one of its own
    assert_true(fabs((double)queue - (2 * 2.8e6 + 4 * 2.3e6)) < 0.05 * (double)queue);
    assert_true(fabs((double)(behind - queue) - 2.8e6) < 0.05 * 2.8e6);
    while (!sched_idle(b.s))
        step(&b, 7);
    request_free(r);
    bench_end(&b);
}

static void test_far(void **state) {
    (void)state;
    struct predictor p;
    struct pace pace = {.max_chunk = 8};
    struct bench b;
    int64_t queue;
    bench_init(&b, 40, config_of(1, 8, 8));
    learn(&p);
    int tokens = 8 * PREDICT_STEPS * 4;
    double t = (double)predict_first_token(&p, &pace, b.s, tokens, 0, 0, &queue);
    assert_true(t > 3.9 * PREDICT_STEPS * 2.8e6 && t < 8 * PREDICT_STEPS * 2.8e6);
    bench_end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fit),
        cmocka_unit_test(test_steps_without_news),
        cmocka_unit_test(test_queue),
        cmocka_unit_test(test_far),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
