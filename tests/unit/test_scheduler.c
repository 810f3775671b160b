// The scheduler's rules one by one, on small cases with known plans. test_scheduler_blocks.c has those about who gets
// blocks of the cache, test_simulator.c the random traffic.
//
// Over 600 lines: each rule has its case.
#include "scheduler_bench.h"

// ---- an allocator that counts, so that a test can say that nothing is allocated in a step

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&                 \
    !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
#define COUNTS_ALLOCATIONS 1
static int num_allocations;
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *malloc(size_t n) {
    num_allocations++;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
    num_allocations++;
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n) {
    num_allocations++;
    return __libc_realloc(p, n);
}
#else
#define COUNTS_ALLOCATIONS 0
static int num_allocations;
#endif

// ---- tests

TEST(test_one_request) {
    struct bench b;
    bench_init(&b, 10, config_of(4, 8, 8));
    struct request *r = add(&b, 1, 10, 3);
    assert_false(sched_idle(b.s));
    const struct plan *p = step(&b, 7); // a chunk of the prompt: no row, no token
    assert_item(p, 0, r, 0, 8);
    assert_true(!p->items[0].needs_token && p->items[0].first_logit == 8 && p->num_rows == 0 &&
                p->num_decode == 0);
    assert_int_equal(b.num_events, 0);
    p = step(&b, 7); // the rest samples
    assert_item(p, 0, r, 8, 2);
    assert_true(p->items[0].needs_token && p->items[0].first_logit == 1 && p->num_decode == 0);
    assert_event(&b, 0, r, 0, 7, FINISH_NONE);
    p = step(&b, 8);
    assert_item(p, 0, r, 10, 1);
    assert_int_equal(p->num_decode, 1);
    p = step(&b, 9);
    assert_item(p, 0, r, 11, 1);
    assert_int_equal(b.num_events, 1);
    assert_event(&b, 0, r, 0, 9, FINISH_LENGTH); // the last token is not computed
    assert_int_equal(r->num_tokens, 13);
    assert_true(r->tokens[10] == 7 && r->tokens[11] == 8 && r->tokens[12] == 9);
    assert_int_equal(r->num_cached, 0);
    assert_null(plan_step(&b));
    request_free(r);
    bench_end(&b);
}

TEST(test_stop_and_min_tokens) {
    struct bench b;
    bench_init(&b, 10, config_of(4, 8, 8));
    struct request_params p = params_of(1, 4, 5);
    p.stop = (token_id[]){50, 60};
    p.num_stop = 2;
    p.min_output = 1;
    struct request *r = add_params(&b, &p);
    step(&b, 60); // a stop token before min_output tokens were given
    assert_event(&b, 0, r, 0, 60, FINISH_NONE);
    step(&b, 60);
    assert_event(&b, 0, r, 0, 60, FINISH_STOP); // the last event carries it
    assert_int_equal(r->num_tokens, 6);
    request_free(r);
    bench_end(&b);
}

TEST(test_no_output) {
    struct bench b;
    bench_init(&b, 3, config_of(4, 8, 8));
    struct request *r = add(&b, 1, 12, 0); // all of the pool
    step(&b, 0);
    assert_int_equal(b.num_events, 0);
    const struct plan *p = step(&b, 0);
    assert_item(p, 0, r, 8, 4);
    assert_true(!p->items[0].needs_token && p->num_rows == 0);
    assert_event(&b, 0, r, 0, -1, FINISH_LENGTH);
    request_free(r);
    bench_end(&b);
}

TEST(test_bounds) {
    struct bench b;
    struct bench_config c = config_of(1, 8, 8);
    struct err err = {0};
    struct kv_config ten = pages(10, BS), fifty = pages(50, BS), most = pages(INT32_MAX, 1);
    assert_int_equal(sched_admissible(&c.sched, &ten, 100, 100, NULL), STATUS_INVALID); // 50 blocks
    // Beyond max_model_len.
    assert_int_equal(sched_admissible(&c.sched, &fifty, 100, 101, &err), STATUS_INVALID);
    assert_true(strstr(err.msg, "100") && strstr(err.msg, "101") && strstr(err.msg, "200"));
    assert_int_equal(sched_admissible(&c.sched, &fifty, 100, 100, NULL), STATUS_OK);
    // The last token needs no slot.
    assert_int_equal(sched_admissible(&c.sched, &ten, 20, 21, NULL), STATUS_OK);
    assert_int_equal(sched_admissible(&c.sched, &ten, 20, 22, NULL), STATUS_INVALID);
    assert_int_equal(sched_admissible(&c.sched, &ten, 41, 0, NULL), STATUS_INVALID);
    assert_int_equal(sched_admissible(&c.sched, &most, INT32_MAX, INT32_MAX, NULL), STATUS_INVALID);
    c.sched.max_step_tokens = 0;
    assert_null(sched_open(&c.sched, &b.kv, &err));
    assert_int_equal(err.code, STATUS_INVALID);
    c = config_of(1, 8, 8);
    struct kv_config window = pages(10, BS);
    window.groups[0] = (struct kv_group_spec){.kind = KV_WINDOW, .window = 4};
    for (window.max_ahead = 15; window.max_ahead <= 16; window.max_ahead++) { // two plans of eight tokens
        assert_int_equal(kv_init(&b.kv, &window), STATUS_OK);
        struct scheduler *s = sched_open(&c.sched, &b.kv, NULL);
        assert_int_equal(s != NULL, window.max_ahead == 16);
        sched_close(s);
        kv_destroy(&b.kv);
    }

    c = config_of(1, 8, 8);
    c.sched.max_waiting = 3;
    c.sched.max_waiting_tokens = 30;
    bench_init(&b, 20, c);
    struct request_params p = params_of(1, 40, 1), q = params_of(2, 1, 1), never = params_of(3, 100, 1);
    struct request *long_one = request_new(&p, BS), *refused = request_new(&q, BS);
    struct request *unfit = request_new(&never, BS);
    assert_int_equal(sched_add(b.s, unfit), STATUS_INVALID);
    assert_int_equal(sched_add(b.s, long_one), STATUS_OK); // alone, it would otherwise never be taken
    assert_int_equal(sched_add(b.s, refused), STATUS_LIMIT);
    step(&b, 0); // it runs: the queue is empty again
    assert_int_equal(b.s->waiting_tokens, 0);
    assert_int_equal(sched_add(b.s, refused), STATUS_OK);
    struct request *r3 = add(&b, 4, 20, 1), *r4 = add(&b, 5, 9, 1);
    struct request_params one = params_of(6, 1, 1);
    struct request *r5 = request_new(&one, BS);
    assert_int_equal(sched_add(b.s, r5), STATUS_LIMIT); // three wait
    drop(&b, long_one);
    drop(&b, refused);
    drop(&b, r3);
    drop(&b, r4);
    request_free(r5);
    request_free(unfit);
    bench_end(&b);
}

// The chunk may follow those who decode, and holds for the plan it is given to.
TEST(test_chunk_of_a_plan) {
    struct bench b;
    bench_init(&b, 40, config_of(4, 20, 6));
    struct request *d1 = add(&b, 1, 3, 20), *l1 = add(&b, 2, 60, 2);
    assert_int_equal(sched_num_decoding(b.s), 0); // both are prompts, which have the whole step
    const struct plan *p = step_with(&b, 1, 7);
    assert_int_equal(p->num_decoding, 0);
    assert_item(p, 1, l1, 0, 17);
    assert_int_equal(sched_num_decoding(b.s), 1);
    p = step_with(&b, 3, 7);
    assert_int_equal(p->num_decoding, 1);
    assert_item(p, 1, l1, 17, 3);
    struct request *d2 = add(&b, 3, 3, 20);
    p = step_with(&b, 3, 7);
    assert_item(p, 1, l1, 20, 3);
    drop(&b, l1);
    step_with(&b, 3, 7);
    struct request *l2 = add(&b, 4, 60, 2);
    assert_int_equal(sched_num_decoding(b.s), 2);
    p = step_with(&b, 6, 7);
    assert_int_equal(p->num_decoding, 2);
    assert_item(p, 2, l2, 0, 6);
    drop(&b, d1);
    drop(&b, d2);
    drop(&b, l2);
    bench_end(&b);
}

TEST(test_chunks_beside_decodes) {
    struct bench b;
    bench_init(&b, 40, config_of(4, 20, 6));
    struct request *d1 = add(&b, 1, 3, 20), *d2 = add(&b, 2, 3, 20);
    const struct plan *p = step(&b, 7);
    assert_int_equal(p->num_items, 2);
    struct request *l1 = add(&b, 3, 40, 2), *l2 = add(&b, 4, 40, 2);
    p = step(&b, 7);
    assert_int_equal(p->num_decode, 2); // decodes first, then as many prompt tokens as max_chunk allows
    assert_item(p, 0, d1, 3, 1);
    assert_item(p, 1, d2, 3, 1);
    assert_item(p, 2, l1, 0, 6);
    assert_int_equal(p->num_items, 3);
    assert_int_equal(b.s->running.len, 3);
    assert_int_equal(p->num_decoding, 2); // not the one whose prompt goes on
    b.max_chunk = 3;
    p = step(&b, 7);
    assert_item(p, 2, l1, 6, 3);
    assert_int_equal(p->num_items, 3);
    drop(&b, d1);
    drop(&b, d2);
    p = step(&b, 7);
    assert_item(p, 0, l1, 9, 20); // nobody decodes: the whole step
    drop(&b, l2);
    step(&b, 7);
    p = step(&b, 7);
    assert_event(&b, 0, l1, 0, 7, FINISH_LENGTH);
    request_free(l1);
    bench_end(&b);
}

// With a step of as many tokens as sequences, every running request moves in every step.
TEST(test_decodes_always_get_their_token) {
    struct bench b;
    bench_init(&b, 40, config_of(3, 3, 3));
    struct request *a = add(&b, 1, 1, 30), *c = add(&b, 2, 20, 2), *d = add(&b, 3, 1, 30);
    step(&b, 7);
    const struct plan *p = step(&b, 7);
    assert_item(p, 0, a, 1, 1);
    for (int i = 0; i < 3 && d->num_tokens == 1; i++)
        p = step(&b, 7);
    for (int i = 0; i < 30 && c->state == REQUEST_RUNNING; i++) {
        int before_a = a->num_tokens, before_d = d->num_tokens;
        bool runs = d->num_tokens > 1;
        p = step(&b, 7);
        assert_true(p->num_tokens <= 3);
        assert_int_equal(a->num_tokens, before_a + 1);
        if (runs)
            assert_int_equal(d->num_tokens, before_d + 1);
    }
    request_free(c);
    drop(&b, a);
    drop(&b, d);
    bench_end(&b);
}

TEST(test_priority) {
    struct bench b;
    struct bench_config c = config_of(2, 40, 40);
    c.sched.policy = SCHED_PRIORITY;
    bench_init(&b, 5, c);
    struct request *r[4];
    int priority[4] = {2, 1, 2, 0};
    for (int i = 0; i < 4; i++) {
        struct request_params p = params_of((uint64_t)i + 1, 7, 10);
        p.priority = priority[i];
        r[i] = add_params(&b, &p);
    }
    assert_true(b.s->waiting.head == r[3] && r[3]->next == r[1] && r[1]->next == r[0] && r[0]->next == r[2]);
    step(&b, 7);
    assert_true(r[3]->state == REQUEST_RUNNING && r[1]->state == REQUEST_RUNNING);
    while (r[1]->state == REQUEST_RUNNING)
        step(&b, 7);
    assert_int_equal(r[1]->num_preemptions, 1); // the lower class gives way
    assert_true(b.s->waiting.head == r[1]);
    for (int i = 0; i < 4; i++)
        drop(&b, r[i]);
    bench_end(&b);
}

TEST(test_prompt_logprobs) {
    struct bench b;
    bench_init(&b, 20, config_of(4, 6, 6));
    struct request_params p = params_of(1, 14, 2);
    struct request *r = add_params(&b, &p);
    for (int i = 0; i < 4; i++)
        step(&b, 7);
    request_free(r);
    p.sampling.prompt_logprobs = true;
    r = add_params(&b, &p);
    const struct plan *plan = step(&b, 7);
    assert_item(plan, 0, r, 0, 6); // no prefix match: it wants every row
    assert_true(plan->items[0].wants_prompt_logprobs && plan->items[0].first_logit == 0 &&
                plan->num_rows == 6);
    assert_int_equal(r->num_prompt_logprobs, 6);
    // As if it had been preempted: rows that gave their log-probability do not give it again.
    kv_release(&b.kv, &r->seq);
    r->num_computed = r->num_resolved = 0;
    plan = step(&b, 7);
    assert_true(!plan->items[0].wants_prompt_logprobs && plan->num_rows == 0 && plan->num_tokens == 6);
    step(&b, 7);
    assert_int_equal(r->num_prompt_logprobs, 12);
    plan = step(&b, 7);
    assert_item(plan, 0, r, 12, 2);
    assert_true(plan->items[0].wants_prompt_logprobs && plan->items[0].first_logit == 0 &&
                plan->items[0].needs_token);
    assert_int_equal(r->num_prompt_logprobs, 13);
    plan = step(&b, 7);
    assert_true(!plan->items[0].wants_prompt_logprobs && plan->num_decode == 1);
    request_free(r);

    p.max_output = 0; // only log-probabilities: no row after the last
    r = add_params(&b, &p);
    int rows = 0;
    while (r->state != REQUEST_FINISHED)
        rows += step(&b, 7)->num_rows;
    assert_int_equal(rows, 13);
    assert_event(&b, 0, r, 0, -1, FINISH_LENGTH);
    request_free(r);
    bench_end(&b);
}

TEST(test_async) {
    struct bench b;
    bench_init(&b, 20, config_of(4, 40, 40));
    struct request_params p = params_of(1, 4, 9);
    p.stop = (token_id[]){50};
    p.num_stop = 1;
    struct request *r = add_params(&b, &p);
    const struct plan *p1 = plan_step(&b), *p2 = plan_step(&b);
    assert_item(p1, 0, r, 0, 4);
    assert_item(p2, 0, r, 4, 1);
    assert_int_equal(r->num_pending, 2);
    assert_int_equal(r->tokens[4], -1);
    update(&b, p1, 7);
    assert_event(&b, 0, r, 0, 7, FINISH_NONE);
    assert_true(r->tokens[4] == 7 && r->tokens[5] == -1 && r->num_pending == 1);
    p1 = plan_step(&b);
    update(&b, p2, 50); // it ends, while p1 computes it one token further
    assert_event(&b, 0, r, 0, 50, FINISH_NONE);
    assert_int_equal(r->finish, FINISH_STOP);
    assert_int_equal(b.s->running.len, 0);
    assert_true(b.kv.num_free < 20 && !sched_idle(b.s));
    assert_false(sched_remove(b.s, r, FINISH_CANCELLED)); // too late: nothing changes
    assert_null(plan_step(&b));
    update(&b, p1, 9);
    assert_int_equal(b.num_events, 1);
    assert_event(&b, 0, r, -1, -1, FINISH_STOP);
    assert_int_equal(r->num_tokens, 6);
    request_free(r);

    r = add(&b, 2, 4, 2); // the last token by length is known beforehand: not planned ahead
    p1 = plan_step(&b);
    p2 = plan_step(&b);
    update(&b, p1, 7);
    assert_null(plan_step(&b));
    update(&b, p2, 8);
    assert_event(&b, 0, r, 0, 8, FINISH_LENGTH);
    request_free(r);

    p = params_of(3, 4, 9); // penalties must know a token before the next is sampled
    p.sampling.presence_penalty = 1;
    r = add_params(&b, &p);
    p1 = plan_step(&b);
    assert_null(plan_step(&b));
    update(&b, p1, 7);
    assert_true(sched_remove(b.s, r, FINISH_CANCELLED));
    request_free(r);
    bench_end(&b);
}

struct left {
    struct request *r[4];
    int num;
};

static void note_left(void *arg, struct request *r) {
    struct left *left = arg;
    left->r[left->num++] = r;
}

// A dead device: every request is given back once, whatever its state, and also one that two plans name.
TEST(test_abandon) {
    struct bench b;
    struct left left = {0};
    bench_init(&b, 20, config_of(2, 40, 40));
    struct request *gone = add(&b, 1, 4, 9), *runs = add(&b, 2, 4, 9), *waits = add(&b, 3, 4, 9);
    plan_step(&b);
    plan_step(&b);
    assert_int_equal(gone->num_in_flight, 2);
    assert_false(sched_remove(b.s, gone, FINISH_CANCELLED));
    sched_abandon(b.s, note_left, &left);
    assert_int_equal(left.num, 3);
    assert_true(left.r[0] == gone && left.r[1] == runs && left.r[2] == waits);
    assert_int_equal(gone->finish, FINISH_CANCELLED);
    assert_int_equal(runs->finish, FINISH_ERROR);
    assert_int_equal(waits->finish, FINISH_ERROR);
    assert_int_equal(runs->num_tokens, 4); // what was pending never came
    assert_true(sched_idle(b.s) && !sched_any(b.s));
    assert_null(plan_step(&b));
    for (int i = 0; i < 3; i++)
        request_free(left.r[i]);
    sched_close(b.s);
    kv_destroy(&b.kv);
}

// S13: two plans in flight, not asynchronous. Five decodes are three and two; who is passed over comes next.
TEST(test_micro_batches) {
    struct bench b;
    struct bench_config c = config_of(6, 40, 40);
    struct request *r[6];
    c.sched.async = false;
    bench_init(&b, 60, c);
    for (int i = 0; i < 5; i++)
        r[i] = add(&b, (uint64_t)i + 1, 4, 9);
    const struct plan *p1 = plan_step(&b);
    assert_int_equal(p1->num_items, 5); // their prompts
    assert_null(plan_step(&b));         // nobody has a token to compute
    update(&b, p1, 7);
    p1 = plan_step(&b);
    const struct plan *p2 = plan_step(&b);
    assert_int_equal(p1->num_items, 3);
    assert_int_equal(p2->num_items, 2);
    for (int i = 0; i < 3; i++)
        assert_item(p1, i, r[i], 4, 1);
    for (int i = 0; i < 2; i++)
        assert_item(p2, i, r[3 + i], 4, 1);
    update(&b, p1, 8);
    assert_true(sched_remove(b.s, r[0], FINISH_CANCELLED)); // four: a plan takes two
    request_free(r[0]);
    p1 = plan_step(&b);
    assert_int_equal(p1->num_items, 2);
    assert_item(p1, 0, r[1], 5, 1);
    assert_item(p1, 1, r[2], 5, 1);
    update(&b, p2, 8);
    r[0] = add(&b, 6, 4, 9); // its prompt goes beside two of the others
    p2 = plan_step(&b);
    assert_int_equal(p2->num_items, 3);
    assert_item(p2, 0, r[3], 5, 1);
    assert_item(p2, 1, r[4], 5, 1);
    assert_item(p2, 2, r[0], 0, 4);
    update(&b, p1, 9);
    update(&b, p2, 9);
    // All five are free: the three that waited longest, then the others.
    for (int turn = 0; turn < 2; turn++) {
        p1 = plan_step(&b);
        p2 = plan_step(&b);
        assert_int_equal(p1->num_items, 3);
        assert_int_equal(p2->num_items, 2);
        assert_true(p1->items[0].req == r[1] && p1->items[1].req == r[2]);
        update(&b, p1, 9);
        update(&b, p2, 9);
    }
    for (int i = 0; i < 5; i++)
        drop(&b, r[i]);
    bench_end(&b);
}

// S13: a prompt that is alone goes in micro-batches of an eighth, but of no less than 64.
TEST(test_prompt_in_micro_batches) {
    static const int pieces[] = {75, 66, 64, 64, 64, 64, 64, 64, 64, 11};
    static token_id prompt[600];
    struct bench b;
    struct bench_config c = config_of(4, 500, 500);
    c.sched.async = false;
    c.sched.max_model_len = 1000;
    bench_init(&b, 300, c);
    struct request_params p = params_of(1, 1, 1);
    p.prompt = prompt;
    p.num_prompt = 600;
    struct request *r = add_params(&b, &p);
    const struct plan *flying = NULL, *plan;
    for (int i = 0, at = 0; i < 10; at += pieces[i++]) {
        plan = plan_step(&b);
        assert_item(plan, 0, r, at, pieces[i]);
        if (flying)
            update(&b, flying, 7);
        flying = plan;
    }
    assert_null(plan_step(&b));
    update(&b, flying, 7);
    assert_event(&b, 0, r, 0, 7, FINISH_LENGTH);
    request_free(r);
    bench_end(&b);
}

TEST(test_remove) {
    struct bench b;
    bench_init(&b, 20, config_of(1, 40, 40));
    struct request_params p = params_of(9, 4, 9);
    struct request *fresh = request_new(&p, BS);
    assert_true(sched_remove(b.s, fresh, FINISH_CANCELLED)); // never added
    request_free(fresh);
    struct request *r = add(&b, 1, 4, 9), *w = add(&b, 2, 4, 9);
    const struct plan *plan = plan_step(&b);
    assert_true(sched_remove(b.s, w, FINISH_STOP)); // waiting
    assert_int_equal(w->finish, FINISH_STOP);
    assert_int_equal(b.s->waiting_tokens, 0);
    assert_true(sched_remove(b.s, w, FINISH_CANCELLED)); // again
    assert_int_equal(w->finish, FINISH_STOP);
    request_free(w);
    assert_false(sched_remove(b.s, r, FINISH_STOP)); // in flight
    assert_false(sched_remove(b.s, r, FINISH_CANCELLED));
    assert_true(b.kv.num_free < 20); // its blocks are still the step's
    update(&b, plan, 7);
    assert_int_equal(b.num_events, 1);
    assert_event(&b, 0, r, -1, -1, FINISH_STOP);
    request_free(r);
    bench_end(&b);
}

TEST(test_failed) {
    struct bench b;
    bench_init(&b, 20, config_of(4, 40, 40));
    struct request *r1 = add(&b, 1, 8, 9), *r2 = add(&b, 2, 4, 9), *r3 = add(&b, 3, 4, 9);
    const struct plan *p = plan_step(&b);
    int32_t start[] = {0, 1, 2, 3};
    token_id tokens[] = {11, 22, 33};
    uint8_t failed[] = {ITEM_NOT_FINITE, ITEM_GOOD, ITEM_FORBIDDEN};
    struct outcome out = {start, tokens, failed};
    b.num_events = sched_update(b.s, p->id, &out, b.events);
    assert_int_equal(b.num_events, 3);
    assert_event(&b, 0, r1, 0, -1, FINISH_ERROR);
    assert_event(&b, 1, r2, 1, 22, FINISH_NONE);
    assert_event(&b, 2, r3, 2, -1, FINISH_FORBIDDEN);
    assert_int_equal(r1->num_tokens, 8);
    struct request_params q = params_of(1, 8, 1); // what failed was not published
    struct request *again = add_params(&b, &q);
    p = step(&b, 7);
    assert_item(p, 1, again, 0, 8);
    request_free(again);
    request_free(r1);
    request_free(r3);
    drop(&b, r2);
    bench_end(&b);
}

// Resolves a plan of one item, which gave these tokens.
static void give(struct bench *b, const struct plan *p, const token_id *tokens, int n) {
    int32_t start[] = {0, n};
    uint8_t failed[] = {0};
    struct outcome out = {start, tokens, failed};
    b->num_events = sched_update(b->s, p->id, &out, b->events);
}

static struct request *add_drafting(struct bench *b, struct request_params *p) {
    p->drafter = calloc(1, sizeof *p->drafter); // only that there is one matters here
    return add_params(b, p);
}

// S15: a decode takes its drafts along; what comes back says how many were right.
TEST(test_drafts) {
    struct bench b;
    bench_init(&b, 20, config_of(4, 40, 40));
    struct request_params q = params_of(1, 6, 9);
    q.stop = (token_id[]){50};
    q.num_stop = 1;
    struct request *r = add_drafting(&b, &q);
    assert_int_equal(request_draft(r, (token_id[]){1}, 1), 0); // it does not run
    const struct plan *p = plan_step(&b);
    assert_int_equal(request_draft(r, (token_id[]){1}, 1), 0); // a step in flight
    assert_null(plan_step(&b));                                // its drafter must see the token first
    update(&b, p, 7);

    assert_int_equal(request_draft(r, (token_id[]){9, 9}, 2), 2);
    assert_int_equal(request_draft(r, (token_id[]){21, 22, 23}, 3), 3); // in place of the others
    p = plan_step(&b);
    assert_item(p, 0, r, 6, 4);
    assert_true(p->items[0].num_drafts == 3 && p->items[0].first_logit == 0 && p->items[0].needs_token);
    assert_true(p->num_decode == 0 && p->num_tokens == 4 && p->num_rows == 4 && p->num_decoding == 1);
    assert_true(r->tokens[7] == 21 && r->tokens[9] == 23 && r->tokens[10] == -1 && r->num_pending == 4);
    assert_null(plan_step(&b));
    give(&b, p, (token_id[]){21, 30}, 2); // the first is right, the second is not
    assert_int_equal(b.num_events, 2);
    assert_event(&b, 0, r, 0, 21, FINISH_NONE);
    assert_event(&b, 1, r, 0, 30, FINISH_NONE);
    assert_true(b.events[0].index == 0 && b.events[1].index == 1);
    assert_true(r->num_tokens == 9 && r->num_computed == 8 && r->num_pending == 0 && r->num_drafts == 0);
    assert_int_equal(r->seq.num_hashed, 2); // tokens 0-7 are known and computed

    p = plan_step(&b); // no drafts: as ever
    assert_item(p, 0, r, 8, 1);
    assert_int_equal(p->num_decode, 1);
    update(&b, p, 31);

    assert_int_equal(request_draft(r, (token_id[]){50, 51}, 2), 2);
    p = plan_step(&b);
    give(&b, p, (token_id[]){50, 51, 52}, 3); // all right, but the first ends it
    assert_int_equal(b.num_events, 1);
    assert_event(&b, 0, r, 0, 50, FINISH_STOP);
    assert_int_equal(r->num_tokens, 11);
    struct sched_stats stats;
    sched_stats(b.s, &stats);
    assert_true(stats.drafts == 5 && stats.accepted == 3 && stats.verified == 2);
    assert_true(stats.accepted_at[0] == 2 && stats.accepted_at[1] == 1 && stats.accepted_at[2] == 0);
    request_free(r);

    q = params_of(2, 4, 4);
    r = add_drafting(&b, &q);
    step(&b, 7);
    assert_int_equal(request_draft(r, (token_id[]){1, 2, 3, 4}, 4), 2); // of three tokens two are drafts
    p = plan_step(&b);
    assert_false(sched_remove(b.s, r, FINISH_CANCELLED)); // its drafts leave no trace
    give(&b, p, (token_id[]){1, 2, 3}, 3);
    assert_int_equal(b.num_events, 1);
    assert_event(&b, 0, r, -1, -1, FINISH_CANCELLED);
    request_free(r);

    q = params_of(3, 4, 4);
    q.sampling.mirostat_tau = 3;
    r = add_drafting(&b, &q);
    step(&b, 7);
    assert_int_equal(request_draft(r, (token_id[]){1}, 1), 0); // what it may be depends on the token before
    drop(&b, r);
    bench_end(&b);
}

// S15: drafts take no token that a prompt may have, no block that somebody needs, and no more rows than there are.
TEST(test_room_of_drafts) {
    static const token_id drafts[MAX_DRAFTS] = {0};
    struct bench b;
    bench_init(&b, 10, config_of(2, 20, 10));
    struct request_params q = params_of(1, 4, 30);
    struct request *r1 = add_drafting(&b, &q);
    q = params_of(2, 4, 30);
    struct request *r2 = add_drafting(&b, &q);
    step(&b, 7);
    assert_int_equal(request_draft(r1, drafts, MAX_DRAFTS), MAX_DRAFTS);
    assert_int_equal(request_draft(r2, drafts, MAX_DRAFTS), MAX_DRAFTS);
    const struct plan *p = plan_step(&b); // nine rows sample; two of them are the requests'
    assert_true(p->items[0].num_drafts == 0 && p->items[1].num_drafts == 7 && p->num_decode == 1);
    assert_item(p, 1, r1, 4, 8);
    assert_int_equal(r2->num_drafts, 0);
    struct outcome out = {(int32_t[]){0, 1, 2}, (token_id[]){5, 6}, (uint8_t[2]){0}};
    sched_update(b.s, p->id, &out, b.events);
    assert_true(r1->num_tokens == 6 && r1->num_computed == 5);
    drop(&b, r2);

    struct request *prompt = add(&b, 3, 25, 1); // 7 blocks of 10; r1 has 3
    p = plan_step(&b);
    update(&b, p, 7);
    assert_int_equal(request_draft(r1, drafts, MAX_DRAFTS), MAX_DRAFTS);
    p = plan_step(&b);
    assert_item(p, 0, r1, 6, 6); // up to the end of the third block
    assert_item(p, 1, prompt, 10, 10);
    struct outcome none = {(int32_t[]){0, 1, 1}, (token_id[]){5}, (uint8_t[2]){0}};
    sched_update(b.s, p->id, &none, b.events);
    drop(&b, prompt);
    drop(&b, r1);
    bench_end(&b);
}

static int filter_freed;
static void filter_free(void *state) { filter_freed += *(int *)state; }

TEST(test_request) {
    int one = 1;
    struct token_filter *filter = calloc(1, sizeof *filter);
    *filter = (struct token_filter){.state = &one, .free = filter_free};
    token_id prompt[5] = {3, 4, 3, 3, 1 << 20};
    struct request_params p = {.id = 5,
                               .prompt = prompt,
                               .num_prompt = 5,
                               .max_output = 100,
                               .sampling = {.repetition_penalty = 1.1f},
                               .bias = &(struct logit_bias){7, 1},
                               .num_bias = 1,
                               .filter = filter};
    struct request *r = request_new(&p, 16);
    assert_int_equal(r->seq.cap, 7);
    assert_true(r->bias != p.bias && r->bias[0].token == 7);
    for (int i = 0; i < 100; i++)
        token_counts_add(&r->counts, i < 50 ? 3 : 1000 + i);
    int found = 0;
    for (int i = 0; i < r->counts.num; i++)
        if (r->counts.list[i].token == 3) {
            found++;
            assert_int_equal(r->counts.list[i].prompt, 3);
            assert_int_equal(r->counts.list[i].output, 50);
        }
    assert_int_equal(found, 1);
    assert_int_equal(r->counts.num, 3 + 50);
    assert_true(r->counts.num * 2 <= r->counts.cap);
    // Taken back in reverse order, tokens that were new are gone without a trace.
    struct token_count counts[53];
    int32_t index[512];
    assert_true(r->counts.num == 53 && r->counts.cap <= 512);
    memcpy(counts, r->counts.list, sizeof counts);
    memcpy(index, r->counts.index, (size_t)r->counts.cap * sizeof *index);
    for (int i = 0; i < 20; i++)
        token_counts_add(&r->counts, i % 3 == 0 ? 3 : 4000 + i / 2);
    for (int i = 19; i >= 0; i--)
        token_counts_take_back(&r->counts, i % 3 == 0 ? 3 : 4000 + i / 2);
    assert_int_equal(r->counts.num, 53);
    assert_memory_equal(counts, r->counts.list, sizeof counts);
    assert_memory_equal(index, r->counts.index, (size_t)r->counts.cap * sizeof *index);
    assert_false(request_is_stop(r, 3));
    request_free(r);
    request_free(NULL);
    assert_int_equal(filter_freed, 1);
}

// Rule: allocate at start-up and at admission, never in a step.
TEST(test_no_allocation) {
    if (!COUNTS_ALLOCATIONS)
        skip();
    struct bench b;
    bench_init(&b, 12, config_of(4, 10, 6));
    struct request *r[6];
    for (int i = 0; i < 6; i++) {
        struct request_params p = params_of((uint64_t)(i / 2 + 1), 9, 12);
        p.sampling.frequency_penalty = (float)(i == 3);
        r[i] = request_new(&p, BS);
    }
    int before = num_allocations;
    assert_true(before > 0); // the counter counts
    for (int i = 0; i < 6; i++)
        sched_add(b.s, r[i]);
    for (int i = 0; i < 500 && !sched_idle(b.s); i++)
        step(&b, 7);
    bool idle = sched_idle(b.s);
    uint64_t preemptions = b.s->stats.preemptions;
    int after = num_allocations;
    assert_int_equal(after, before);
    assert_true(idle && preemptions > 0);
    for (int i = 0; i < 6; i++)
        request_free(r[i]);
    bench_end(&b);
}

int main(void) { return run_all_tests(NULL, NULL); }
