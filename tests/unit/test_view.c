// What a look at the engine shows, without an engine: requests, owners and the prefix tree of a small scheduler.
#include "inside.h"
#include "scheduler_bench.h"

enum { PAGES = 24 };

static struct service_stats stats;
static struct service_inside inside;
static struct view_page seen_pages[PAGES];
static token_id seen_tokens[BS];

static const struct engine_view *look(struct bench *b, int page) {
    static struct engine_view v;
    memset(&v, 0, sizeof v);
    memset(seen_pages, 0, sizeof seen_pages);
    v.pages = seen_pages;
    v.num_pages = PAGES;
    v.page = page;
    v.tokens = seen_tokens;
    inside.sched = b->s;
    inside.kv = &b->kv;
    inside.stats = &stats;
    engine_view_run(&v.query, &inside);
    return &v;
}

static int count_state(const struct engine_view *v, int state) {
    int n = 0;
    for (int i = 0; i < PAGES; i++)
        n += v->pages[i].state == state;
    return n;
}

static void test_requests_and_owners(void **state) {
    (void)state;
    struct bench b;
    bench_init(&b, PAGES, config_of(2, 16, 16));
    struct request *a = add(&b, 1, 10, 3), *c = add(&b, 2, 6, 3), *d = add(&b, 3, 5, 1);
    step(&b, 7);
    const struct engine_view *v = look(&b, a->seq.tables[0].ids[1]);
    assert_true(v->num_requests == 3 && v->num_running == 2 && v->num_waiting == 1);
    assert_true(v->requests[0].id == 1 && v->requests[0].running && v->requests[0].num_output == 1);
    assert_true(v->requests[0].num_pages == 3 && v->requests[1].num_pages == 2);
    assert_true(v->requests[2].id == 3 && !v->requests[2].running && v->requests[2].num_cached == -1);
    assert_int_equal(count_state(v, VIEW_ACTIVE), 5);
    assert_int_equal(count_state(v, VIEW_FREE), PAGES - 5);
    for (int i = 0; i < 3; i++)
        assert_int_equal(v->pages[a->seq.tables[0].ids[i]].owner, 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(v->pages[c->seq.tables[0].ids[i]].owner, 2);
    assert_true(v->num_owners == 1 && v->owners[0] == 1);
    assert_true(v->has_tokens && seen_tokens[0] == 104 && seen_tokens[BS - 1] == 107); // its second block
    while (!sched_idle(b.s))
        step(&b, 7);
    v = look(&b, -1);
    assert_true(v->num_requests == 0 && count_state(v, VIEW_ACTIVE) == 0);
    assert_int_equal(count_state(v, VIEW_CACHED), b.kv.num_cached[0]);
    request_free(a);
    request_free(c);
    request_free(d);
    bench_end(&b);
}

static void test_tree(void **state) {
    (void)state;
    struct bench b;
    bench_init(&b, PAGES, config_of(2, 16, 16));
    b.kv.clock = 70;
    struct request *r = add(&b, 1, 14, 1);
    step(&b, 7);
    const struct engine_view *v = look(&b, -1);
    const struct view_page *found[3] = {0};
    for (int i = 0; i < PAGES; i++)
        for (int k = 0; v->pages[i].hash && k < 3; k++)
            if (b.kv.tokens[i * BS] == 100 + k * BS)
                found[k] = &v->pages[i];
    assert_true(found[0] && found[1] && found[2]);
    assert_true(found[1]->parent == found[0]->hash && found[2]->parent == found[1]->hash);
    assert_true(found[0]->parent == kv_root(&b.kv, NULL, 0).lo && found[0]->touched == 70);
    assert_true(found[0]->hash != found[1]->hash && found[1]->hash != found[2]->hash);
    request_free(r);
    bench_end(&b);
}

static void test_last_steps(void **state) {
    (void)state;
    struct bench b;
    bench_init(&b, PAGES, config_of(2, 16, 16));
    for (uint64_t i = 0; i < VIEW_STEPS + 5; i++) {
        inside.steps[i % VIEW_STEPS].id = i + 1;
        inside.num_steps = i + 1;
    }
    const struct engine_view *v = look(&b, -1);
    assert_true(v->num_steps == VIEW_STEPS && v->steps[0].id == 6 &&
                v->steps[VIEW_STEPS - 1].id == VIEW_STEPS + 5);
    inside.num_steps = 3;
    v = look(&b, -1);
    assert_true(v->num_steps == 3 && v->steps[2].id == VIEW_STEPS + 3);
    inside.num_steps = 0;
    bench_end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_and_owners),
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_last_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
