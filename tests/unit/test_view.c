// The engine view, without an engine: requests, owners and the prefix tree of a small scheduler.
#include "cache_log.h"
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

TEST(test_requests_and_owners) {
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

TEST(test_tree) {
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

TEST(test_last_steps) {
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

static struct prompt_view ask(struct bench *b, const token_id *tokens, int n) {
    static block_id ids[KV_MAX_GROUPS * 64];
    struct prompt_view v = {
        .tokens = tokens, .num_tokens = n, .num_salts = {0, -1, -1}, .ids = ids, .cap = 64};
    static struct predictor predictor;
    static struct pace pace;
    inside.sched = b->s;
    inside.kv = &b->kv;
    inside.predictor = &predictor;
    inside.pace = &pace;
    prompt_view_run(&v.query, &inside);
    assert_int_equal(kv_check(&b->kv, NULL, 0), 0); // no trace
    return v;
}

static void run(struct bench *b, uint64_t id, int n) {
    struct request *r = add(b, id, n, 1);
    while (!sched_idle(b->s))
        step(b, 7);
    request_free(r);
}

TEST(test_why_it_ends) {
    struct bench b;
    token_id text[64];
    bench_init(&b, 8, config_of(2, 40, 40));
    for (int i = 0; i < 64; i++)
        text[i] = 100 + i;
    assert_int_equal(ask(&b, text, 14).ending.why, KV_END_NEW);
    run(&b, 1, 14); // three blocks of 100, 101, ...
    struct prompt_view v = ask(&b, text, 14);
    assert_true(v.cached[0] == 12 && v.ending.why == KV_END_PROMPT);
    v = ask(&b, text, 30);
    assert_true(v.cached[0] == 12 && v.ending.why == KV_END_NEW);
    text[6] = 7;
    text[7] = 8;
    struct kv_seq seq; // a second block behind the first one: 104, 105, 106, 8 has more in common
    block_id ids[KV_MAX_GROUPS * 16];
    token_id near[8] = {100, 101, 102, 103, 104, 105, 7, 9}, far[8] = {100, 101, 102, 103, 104, 0, 0, 0};
    const token_id *others[] = {near, far};
    for (int i = 0; i < 2; i++) {
        kv_seq_init(&seq, ids, 16);
        assert_int_equal(kv_match(&b.kv, &seq, kv_root(&b.kv, NULL, 0), others[i], 8), 4);
        assert_true(kv_grow(&b.kv, &seq, 8));
        kv_publish(&b.kv, &seq, kv_root(&b.kv, NULL, 0), others[i], 8);
        kv_release(&b.kv, &seq);
    }
    v = ask(&b, text, 14);
    assert_true(v.cached[0] == 4 && v.ending.why == KV_END_DIFFERS && v.ending.same == 3);
    assert_true(v.token == 8 && v.ending.other == 9);
    text[6] = 106;
    text[7] = 107;
    b.kv.clock = 50;
    run(&b, 2, 28); // takes seven of eight pages
    b.kv.clock = 80;
    v = ask(&b, text, 14);
    assert_true(v.cached[0] < 12 && v.ending.why == KV_END_EVICTED && v.ending.when == 50 && v.clock == 80);
    b.kv.evicted[0].hash.hi = 1; // whatever has been there: another hash is not this one
    token_id unseen[14];
    for (int i = 0; i < 14; i++)
        unseen[i] = 900 + i;
    for (int i = 0; i < b.kv.evicted_size; i++)
        b.kv.evicted[i] =
            (struct kv_evicted){.hash = {1, kv_chain(&b.kv, kv_root(&b.kv, NULL, 0), unseen).hi}};
    assert_true(ask(&b, unseen, 14).ending.why != KV_END_EVICTED);
    bench_end(&b);
}

// Pages that a window no longer sees are no loss: what is told is the page that a longer hit needs.
TEST(test_why_a_window_ends) {
    enum { SIZE = KV_TILE };
    const struct kv_config config = {.num_blocks = 9,
                                     .block_size = SIZE,
                                     .num_groups = 2,
                                     .groups = {{.kind = KV_FULL}, {.kind = KV_WINDOW, .window = SIZE}},
                                     .max_ahead = SIZE,
                                     .share = true};
    struct kv_cache kv;
    struct kv_seq a, b, c;
    block_id ids[3][KV_MAX_GROUPS * 4];
    token_id text[4 * SIZE];
    for (int i = 0; i < 4 * SIZE; i++)
        text[i] = i;
    assert_int_equal(kv_init(&kv, &config), STATUS_OK);
    const struct kv_hash root = kv_root(&kv, NULL, 0);
    kv_seq_init(&a, ids[0], 4);
    kv_seq_init(&b, ids[1], 4);
    kv_seq_init(&c, ids[2], 4);
    assert_true(kv_grow(&kv, &a, 3 * SIZE));
    kv_publish(&kv, &a, root, text, 3 * SIZE);
    kv_trim(&kv, &a, 3 * SIZE);
    assert_true(kv_grow(&kv, &b, SIZE));
    kv.clock = 10;
    assert_true(kv_grow(&kv, &a, 4 * SIZE)); // evicts the window's first page
    assert_int_equal(kv.num_evicted, 1);
    assert_int_equal(kv_match(&kv, &c, root, text, 3 * SIZE), 3 * SIZE); // which nobody needs
    kv_unmatch(&kv, &c);
    kv_trim(&kv, &a, 4 * SIZE);
    kv.clock = 20;
    assert_true(kv_grow(&kv, &b, 2 * SIZE)); // the others
    assert_int_equal(kv.num_evicted, 3);
    assert_int_equal(kv_match(&kv, &c, root, text, 3 * SIZE), 0);
    kv_unmatch(&kv, &c);
    struct kv_ending e = kv_explain(&kv, NULL, root, text, 0, 3 * SIZE);
    assert_true(e.why == KV_END_EVICTED && e.group == 1 && e.when == 20);
    memset(kv.evicted, 0, (size_t)kv.evicted_size * sizeof *kv.evicted);
    e = kv_explain(&kv, NULL, root, text, 0, 3 * SIZE);
    assert_true(e.why == KV_END_GROUP && e.group == 1);
    kv_release(&kv, &a);
    kv_release(&kv, &b);
    kv_destroy(&kv);
}

TEST(test_past) {
    struct bench b;
    static struct past_prompt past[PROMPT_PAST];
    static token_id past_tokens[PROMPT_PAST * BS];
    bench_init(&b, 8, config_of(2, 40, 40));
    inside.past = past;
    inside.past_tokens = past_tokens;
    inside.kv = &b.kv;
    struct request *r = add(&b, 1, 14, 1);
    const struct plan *p = plan_step(&b);
    inside_remember(&inside, r);
    update(&b, p, 7);
    request_free(r);
    struct prompt_view v = {.id = 1}, unknown = {.id = 2};
    prompt_view_run(&v.query, &inside);
    assert_true(v.found && v.num_prompt == 14 && v.cached[0] == 0 && v.ending.why == KV_END_NEW);
    prompt_view_run(&unknown.query, &inside);
    assert_false(unknown.found);
    bench_end(&b);
}

// ---- the cache's events

static struct cache_log changes;

static void note(void *arg, enum kv_change change, block_id id) { cache_log_note(arg, change, id); }

// Asks until there is no more; returns how many blocks are known to be there.
static int follow(struct cache_events *q, uint64_t *there, int *num_cleared) {
    do {
        cache_events_run(&q->query, &inside);
        assert_true(!q->failed && q->num <= q->max);
        *num_cleared += q->cleared;
        if (q->cleared)
            memset(there, 0, PAGES * sizeof *there);
        for (int i = 0; i < q->num; i++) {
            int at = 0, free_at = -1;
            for (; at < PAGES && there[at] != q->events[i].hash; at++)
                free_at = there[at] ? free_at : at;
            if (q->events[i].removed && at < PAGES)
                there[at] = 0;
            else if (!q->events[i].removed && at == PAGES)
                there[free_at] = q->events[i].hash;
        }
    } while (q->more);
    int n = 0;
    for (int i = 0; i < PAGES; i++)
        n += there[i] != 0;
    return n;
}

TEST(test_cache_events) {
    struct bench b;
    struct cache_event events[3];
    token_id tokens[3 * BS];
    struct cache_events q = {.events = events, .tokens = tokens, .max = 3};
    uint64_t there[PAGES] = {0};
    int cleared = 0;
    bench_init(&b, PAGES, config_of(2, 64, 64));
    changes = (struct cache_log){.kv = &b.kv};
    b.kv.watch = note;
    b.kv.watch_arg = &changes;
    inside.kv = &b.kv;
    inside.log = &changes;
    for (uint64_t i = 1; i < 4000; i++) {
        struct request *r = add(&b, i % 50 + 1, 4 * BS + 1, 1);
        step(&b, 7);
        request_free(r);
        if (i == 3) { // pages that were there before it asked
            assert_int_equal(follow(&q, there, &cleared), b.kv.num_cached[0]);
            assert_true(cleared == 1 && q.root == kv_root(&b.kv, NULL, 0).lo);
        } else if (i > 3 && i < 100) {
            assert_int_equal(follow(&q, there, &cleared), b.kv.num_cached[0]);
        }
    }
    assert_int_equal(cleared, 1);
    assert_true(changes.num > 2 * CACHE_LOG_EVENTS); // it has not asked for long
    assert_int_equal(follow(&q, there, &cleared), b.kv.num_cached[0]);
    assert_int_equal(cleared, 2);
    for (block_id id = 0; id < PAGES; id++) {
        bool known = false;
        for (int i = 0; i < PAGES; i++)
            known |= b.kv.blocks[id].published && there[i] == b.kv.blocks[id].hash.lo;
        assert_int_equal(known, b.kv.blocks[id].published);
    }
    cache_log_free(&changes);
    bench_end(&b);
}

int main(void) { return run_all_tests(NULL, NULL); }
