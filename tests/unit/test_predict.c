// The model of step times finds the times of a machine that it does not know; the simulation counts the steps that a
// scheduler takes.
#include "predict.h"
#include "scheduler_bench.h"

#include <math.h>
#include <stdlib.h>

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

TEST(test_fit) {
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

TEST(test_steps_without_news) {
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

// A draft is computed as a token that is sampled, not as one of a prompt.
TEST(test_drafts) {
    struct plan_item items[] = {{.first = 100, .num_new = 1},
                                {.first = 200, .num_new = 4, .num_drafts = 3},
                                {.first = 0, .num_new = 50}};
    struct plan plan = {.items = items, .num_items = 3, .num_decode = 1, .num_tokens = 55};
    struct step_shape s = predict_shape(&plan);
    assert_true(s.terms[0] == 1 && s.terms[1] == 50 && s.terms[2] == 5);
}

TEST(test_queue) {
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

TEST(test_far) {
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

// ---- a day of a server, in virtual time

enum { CALLS = 240, SEQS = 16, STEP_TOKENS = 256, BURST = 8 };

struct day {
    struct kv_cache kv;
    struct scheduler *s;
    struct predictor predictor;
    struct pace pace;
    int64_t now, due[CALLS + 1], first[CALLS + 1]; // by id: when it comes, and its first token
    double predicted[CALLS + 1];
    uint64_t random;
};

static int random_below(struct day *d, int n) {
    d->random = d->random * 6364136223846793005u + 1442695040888963407u;
    return (int)((d->random >> 33) % (uint64_t)n);
}

// A request of random lengths behind one of two common beginnings.
static void arrive(struct day *d, uint64_t id) {
    token_id prompt[700];
    int64_t queue;
    int n = 20 + random_below(d, id % 4 ? 150 : 600), common = random_below(d, 2);
    for (int i = 0; i < n; i++)
        prompt[i] = i < 64 ? common : (token_id)id;
    struct request_params p = params_of(id, 0, 1 + random_below(d, 60));
    p.prompt = prompt;
    p.num_prompt = n;
    struct request *r = request_new(&p, 16);
    assert_non_null(r);
    r->expect_cached = kv_match(&d->kv, &r->seq, kv_root(&d->kv, NULL, 0), r->tokens, n - 1);
    kv_unmatch(&d->kv, &r->seq);
    d->predicted[id] =
        (double)predict_first_token(&d->predictor, &d->pace, d->s, n, r->expect_cached, 0, &queue);
    assert_int_equal(sched_add(d->s, r), STATUS_OK);
}

static void run_step(struct day *d) {
    struct token_event events[2 * SEQS];
    int32_t start[SEQS + 1] = {0};
    token_id tokens[SEQS];
    uint8_t failed[SEQS] = {0};
    const struct plan *p = sched_step(d->s, pace_chunk(&d->pace, sched_num_decoding(d->s)));
    assert_non_null(p);
    struct step_shape shape = predict_shape(p);
    int64_t ns = machine_ns(&shape) * (90 + random_below(d, 21)) / 100; // the machine is not even
    for (int i = 0, n = 0; i < p->num_items; i++) {
        start[i] = n;
        if (p->items[i].needs_token)
            tokens[n++] = 7;
        start[i + 1] = n;
    }
    d->now += ns;
    pace_add(&d->pace, p->num_decode, p->num_tokens - p->num_decode, ns);
    struct outcome out = {start, tokens, failed};
    int num = sched_update(d->s, p->id, &out, events);
    predict_add_step(&d->predictor, &shape, ns);
    for (int i = 0; i < num; i++) {
        struct request *r = events[i].req;
        if (!d->first[r->id])
            d->first[r->id] = d->now;
        if (events[i].finish == FINISH_NONE)
            continue;
        predict_add_request(&d->predictor, r->num_tokens - r->num_prompt, events[i].finish == FINISH_LENGTH);
        request_free(r);
    }
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

TEST(test_day) {
    static struct day d;
    double errors[CALLS];
    int num = 0;
    uint64_t next = 1;
    struct sched_config c = config_of(SEQS, STEP_TOKENS, 0).sched;
    c.max_waiting = CALLS;
    c.max_waiting_tokens = 1 << 20;
    c.max_model_len = 800;
    c.depth = 1;
    c.async = false;
    struct kv_config kv = pages(1000, 16);
    assert_int_equal(kv_init(&d.kv, &kv), STATUS_OK);
    assert_non_null(d.s = sched_open(&c, &d.kv, NULL));
    d.pace = (struct pace){.max_chunk = STEP_TOKENS / 4, .target_ns = 50000000};
    predict_open(&d.predictor);
    for (uint64_t id = 1; id <= CALLS; id++) { // bursts, whose ends meet the next ones
        int64_t burst = (int64_t)(id / BURST) * 300000000;
        d.due[id] = (d.due[id - 1] > burst ? d.due[id - 1] : burst) + random_below(&d, 12000000);
    }
    while (next <= CALLS || !sched_idle(d.s)) {
        for (; next <= CALLS && d.due[next] <= d.now; next++) {
            arrive(&d, next);
            d.predicted[next] += (double)(d.now - d.due[next]);
        }
        if (sched_idle(d.s))
            d.now = d.due[next];
        else
            run_step(&d);
    }
    for (uint64_t id = 21; id <= CALLS; id++)
        errors[num++] = fabs(d.predicted[id] / (double)(d.first[id] - d.due[id]) - 1);
    qsort(errors, (size_t)num, sizeof *errors, compare);
    // Later requests share steps, which no prediction foresees: p90.
    print_message("error of predictions: p50 %.3f, p90 %.3f\n", errors[num / 2], errors[num * 9 / 10]);
    assert_true(errors[num / 2] < 0.08 && errors[num * 9 / 10] < 0.4);
    sched_close(d.s);
    kv_destroy(&d.kv);
}

int main(void) { return run_all_tests(NULL, NULL); }
