// The scheduler and the blocks of the cache: who is preempted, who shares a prefix, who waits. On small cases with known
// plans, as in test_scheduler.c.
#include "scheduler_bench.h"

TEST(test_preemption) {
    struct bench b;
    bench_init(&b, 6, config_of(3, 40, 40));
    struct request *r1 = add(&b, 1, 8, 12), *r2 = add(&b, 2, 7, 9), *r3 = add(&b, 3, 4, 4);
    step(&b, 7);                        // 2 + 2 + 1 blocks
    const struct plan *p = step(&b, 7); // r1 takes the sixth; r3 needs one: it is the last in order
    assert_int_equal(r3->state, REQUEST_WAITING);
    assert_int_equal(r3->num_preemptions, 1);
    assert_int_equal(r3->num_tokens, 5); // what was sampled is kept
    assert_int_equal(p->num_items, 2);
    assert_int_equal(b.s->stats.preemptions, 1);
    struct request *r4 = add(&b, 4, 1, 1);
    assert_true(b.s->waiting.head == r3 && b.s->waiting.tail == r4);
    while (r2->state == REQUEST_RUNNING) {
        step(&b, 7);
        assert_int_equal(r1->num_preemptions, 0); // never the oldest
        assert_true(r4->state == REQUEST_WAITING || r3->state != REQUEST_WAITING);
    }
    assert_int_equal(r2->num_preemptions, 1);
    assert_true(r3->num_lost == 4 && r2->num_lost == 11);
    for (int i = 0; i < 100 && !sched_idle(b.s); i++) {
        step(&b, 7);
        for (int j = 0; j < b.num_events; j++)
            if (b.events[j].finish != FINISH_NONE) {
                assert_int_equal(b.events[j].finish, FINISH_LENGTH);
                assert_int_equal(b.events[j].req->num_tokens, b.events[j].req->max_tokens);
                request_free(b.events[j].req);
            }
    }
    assert_int_equal(b.s->stats.lost, 11); // the block of r3 was still in the cache
    bench_end(&b);
}

// After eight preemptions a request starts only with room for all it will ever need, and takes it.
TEST(test_last_preemption) {
    struct bench b;
    bench_init(&b, 6, config_of(3, 40, 40));
    struct request_params p = params_of(1, 4, 13); // at the end 16 computed tokens: four blocks
    struct request *tired = request_new(&p, BS);
    tired->num_preemptions = SCHED_MAX_PREEMPTIONS;
    struct request *first = add(&b, 2, 8, 12);
    step(&b, 7);
    step(&b, 7); // `first` holds three blocks
    assert_int_equal(sched_add(b.s, tired), STATUS_OK);
    step(&b, 7);
    assert_int_equal(tired->state, REQUEST_WAITING); // three are free
    drop(&b, first);
    step(&b, 7);
    assert_int_equal(tired->state, REQUEST_RUNNING);
    assert_int_equal(tired->seq.len + tired->seq.reserved, 4);
    struct request *next = add(&b, 3, 4, 12), *after = add(&b, 4, 1, 10);
    step(&b, 7);
    while (tired->state == REQUEST_RUNNING)
        step(&b, 7);
    assert_int_equal(tired->num_preemptions, SCHED_MAX_PREEMPTIONS);
    request_free(tired);
    drop(&b, next);
    drop(&b, after);
    bench_end(&b);
}

// A victim that a plan in flight names is kept out of one step and preempted in the next.
TEST(test_victim_in_flight) {
    struct bench b;
    bench_init(&b, 4, config_of(2, 40, 40));
    struct request *r1 = add(&b, 1, 7, 9), *r2 = add(&b, 2, 7, 9);
    const struct plan *p1 = plan_step(&b); // 2 + 2 blocks
    const struct plan *p2 = plan_step(&b); // both fill their second block
    assert_int_equal(p2->num_items, 2);
    update(&b, p1, 7);
    assert_null(plan_step(&b)); // r1 needs a third block; r2 is in p2
    assert_true(r2->state == REQUEST_RUNNING && r2->seq.len == 2);
    update(&b, p2, 7);
    p1 = plan_step(&b);
    assert_item(p1, 0, r1, 8, 1);
    assert_int_equal(r2->state, REQUEST_WAITING);
    assert_int_equal(r2->num_tokens, 9);
    update(&b, p1, 7);
    drop(&b, r1);
    drop(&b, r2);
    bench_end(&b);
}

// A victim that is kept out takes part in no later step either, though it has room, until it is free.
TEST(test_victim_is_left_alone) {
    struct bench b;
    bench_init(&b, 4, config_of(2, 40, 40));
    struct request *r1 = add(&b, 1, 7, 9), *r2 = add(&b, 2, 5, 9);
    const struct plan *p1 = plan_step(&b);
    const struct plan *p2 = plan_step(&b);
    update(&b, p1, 7);
    assert_null(plan_step(&b)); // r1 needs a third block; r2 needs none
    update(&b, p2, 7);
    p1 = plan_step(&b);
    assert_item(p1, 0, r1, 8, 1);
    assert_int_equal(r2->num_preemptions, 1);
    update(&b, p1, 7);
    drop(&b, r1);
    drop(&b, r2);
    bench_end(&b);
}

// Nobody is preempted, nor kept out to be, while blocks of a request that has ended are on their way back.
TEST(test_blocks_on_their_way_back) {
    struct bench b;
    bench_init(&b, 5, config_of(3, 40, 40));
    struct request *r1 = add(&b, 1, 7, 9), *r2 = add(&b, 2, 5, 9), *gone = add(&b, 3, 3, 9);
    const struct plan *p1 = plan_step(&b); // 2 + 2 + 1 blocks
    const struct plan *p2 = plan_step(&b);
    update(&b, p1, 7);
    assert_false(sched_remove(b.s, gone, FINISH_CANCELLED));
    p1 = plan_step(&b); // r1 waits for the block
    assert_int_equal(p1->num_items, 1);
    assert_item(p1, 0, r2, 6, 1);
    update(&b, p2, 7);
    request_free(gone);
    p2 = plan_step(&b);
    assert_item(p2, 0, r1, 8, 1);
    update(&b, p1, 7);
    update(&b, p2, 7);
    assert_int_equal(b.s->stats.preemptions, 0);
    drop(&b, r1);
    drop(&b, r2);
    bench_end(&b);
}

TEST(test_prefix_hits_and_deferrals) {
    struct bench b;
    bench_init(&b, 40, config_of(6, 8, 8));
    struct request_params p = params_of(1, 17, 3);
    struct request *r[4];
    for (int i = 0; i < 4; i++)
        r[i] = add_params(&b, &p);
    struct request *other = add(&b, 2, 2, 3);
    const struct plan *plan = step(&b, 7); // one computes the prompt, three wait for it, others may pass
    assert_item(plan, 0, r[0], 0, 8);
    assert_int_equal(plan->num_items, 1);
    assert_int_equal(b.s->stats.deferred, 0); // no budget was left to ask
    plan = step(&b, 7);
    assert_int_equal(plan->num_items, 1);
    plan = step(&b, 7); // the last block is published: all start, with one token each to compute
    assert_item(plan, 0, r[0], 16, 1);
    assert_item(plan, 1, r[1], 16, 1);
    assert_item(plan, 3, r[3], 16, 1);
    assert_item(plan, 4, other, 0, 2);
    assert_int_equal(r[1]->num_cached, 16);
    assert_int_equal(b.s->stats.prefix_queries, 4 * 17 + 2);
    assert_int_equal(b.s->stats.prefix_hits, 3 * 16);
    for (int i = 0; i < 4; i++)
        drop(&b, r[i]);
    drop(&b, other);

    // With budget to spare the others are deferred by name, until the one that computes goes away.
    b.s->config.max_step_tokens = 40;
    b.max_chunk = 6;
    struct request *decoding = add(&b, 3, 1, 30);
    step(&b, 7);
    p = params_of(4, 30, 3);
    struct request *first = add_params(&b, &p), *second = add_params(&b, &p);
    b.max_chunk = 40;
    first->tokens[20] = 5555; // the same 20 tokens, then others
    plan = step(&b, 7);
    assert_int_equal(second->state, REQUEST_WAITING);
    assert_int_equal(b.s->stats.deferred, 1);
    assert_int_equal(b.s->stats.waiting_deferred, 1);
    drop(&b, first);
    plan = step(&b, 7);
    assert_int_equal(second->state, REQUEST_RUNNING);
    assert_int_equal(second->num_cached, 20); // what it had published stays
    drop(&b, second);
    drop(&b, decoding);

    p = params_of(5, 30, 3); // and when it goes before it has published anything
    struct request *gone = add_params(&b, &p), *heir = add_params(&b, &p);
    plan = plan_step(&b);
    assert_int_equal(heir->state, REQUEST_WAITING);
    assert_false(sched_remove(b.s, gone, FINISH_CANCELLED));
    update(&b, plan, 7);
    assert_event(&b, 0, gone, -1, -1, FINISH_CANCELLED);
    request_free(gone);
    plan = step(&b, 7);
    assert_item(plan, 0, heir, 0, 30);
    drop(&b, heir);
    bench_end(&b);
}

// Full matches still compute the last prompt token; another salt shares nothing.
TEST(test_last_token_and_salt) {
    struct bench b;
    bench_init(&b, 20, config_of(4, 40, 40));
    struct request_params p = params_of(1, 8, 1);
    struct request *r = add_params(&b, &p);
    step(&b, 7);
    request_free(r);
    r = add_params(&b, &p);
    const struct plan *plan = step(&b, 7);
    assert_item(plan, 0, r, 4, 4);
    assert_int_equal(plan->num_decode, 0);
    request_free(r);
    p.salt = "tenant";
    p.num_salt = 6;
    r = add_params(&b, &p);
    plan = step(&b, 7);
    assert_item(plan, 0, r, 0, 8);
    request_free(r);
    bench_end(&b);
}

// An admission that fails leaves the eviction order as it was.
TEST(test_failed_admission) {
    struct bench b;
    bench_init(&b, 9, config_of(4, 40, 40));
    struct request_params p = params_of(1, 8, 1);
    struct request *r = add_params(&b, &p);
    step(&b, 7); // two entries
    request_free(r);
    p = params_of(5, 4, 1);
    r = add_params(&b, &p);
    step(&b, 7); // and a younger one
    request_free(r);
    struct request *runs = add(&b, 2, 16, 9);
    step(&b, 7);
    step(&b, 7);             // five blocks
    p = params_of(1, 20, 2); // two blocks from the cache, three new; four are free, the two included
    r = add_params(&b, &p);
    block_id tail = b.kv.free_tail;
    assert_int_equal(b.kv.num_free, 4);
    step(&b, 7);
    assert_int_equal(r->state, REQUEST_WAITING);
    assert_int_equal(r->num_cached, -1);
    assert_int_equal(b.s->stats.prefix_queries, 8 + 4 + 16);
    assert_int_equal(b.kv.free_tail, tail);
    drop(&b, runs);
    step(&b, 7);
    assert_int_equal(r->num_cached, 8);
    assert_int_equal(b.s->stats.prefix_queries, 8 + 4 + 16 + 20);
    assert_int_equal(b.s->stats.prefix_hits, 8);
    drop(&b, r);
    bench_end(&b);
}

// S18: the first eight that wait are asked for, each once while it waits; one that is held waits, and others start.
TEST(test_fetching) {
    struct bench b;
    struct request *r[9];
    struct bench_config c = config_of(2, 40, 40);
    c.sched.max_waiting = 9;
    bench_init(&b, 20, c);
    struct request_params rows = params_of(1, 8, 1);
    rows.sampling.prompt_logprobs = true; // takes nothing from the cache
    r[0] = add_params(&b, &rows);
    for (int i = 1; i < 9; i++)
        r[i] = add(&b, (uint64_t)i + 1, 8, 1);
    for (int i = 1; i < 8; i++)
        assert_ptr_equal(sched_to_fetch(b.s), r[i]);
    assert_null(sched_to_fetch(b.s));
    sched_hold(b.s, r[1]);
    assert_int_equal(sched_num_late(b.s), 1);
    const struct plan *plan = step(&b, 7);
    assert_true(plan->num_items == 2 && r[1]->state == REQUEST_WAITING);
    assert_item(plan, 0, r[0], 0, 8);
    assert_item(plan, 1, r[2], 0, 8);
    assert_ptr_equal(sched_to_fetch(b.s), r[8]); // moved up
    for (int i = 3; i < 9; i += 2)
        assert_int_equal(step(&b, 7)->num_items, 2);
    assert_null(plan_step(&b)); // it alone is left
    sched_ready(b.s, r[1]);
    assert_int_equal(sched_num_late(b.s), 0);
    assert_item(step(&b, 7), 0, r[1], 0, 8);
    for (int i = 0; i < 9; i++)
        request_free(r[i]);
    // Preempted, it may fetch again.
    struct request *a = add(&b, 20, 8, 60), *z = add(&b, 21, 8, 60);
    assert_ptr_equal(sched_to_fetch(b.s), a);
    assert_ptr_equal(sched_to_fetch(b.s), z);
    while (z->num_preemptions == 0)
        step(&b, 7);
    assert_ptr_equal(sched_to_fetch(b.s), z);
    sched_hold(b.s, z);
    drop(&b, z); // and leave while it does
    assert_int_equal(sched_num_late(b.s), 0);
    drop(&b, a);
    bench_end(&b);
}

// Requests that find the snapshot at the end of their prompt start at once: none waits for what the other computes.
TEST(test_hits_of_states) {
    struct bench b;
    struct kv_config kv = pages(20, BS);
    kv.groups[0].kind = KV_STATE;
    bench_open(&b, &kv, config_of(4, 40, 40));
    struct request_params p = params_of(1, 17, 2);
    struct request *first = add_params(&b, &p);
    const struct plan *plan = step(&b, 7);
    assert_item(plan, 0, first, 0, 16); // S14
    plan = step(&b, 7);
    assert_item(plan, 0, first, 16, 1);
    assert_int_equal(plan->num_moves, 1);
    block_id snapshot = plan->moves[0].to;
    struct request *second = add_params(&b, &p);
    p.max_output = 9;
    struct request *third = request_new(&p, BS);
    for (third->num_tokens = 17; third->num_tokens < 22; third->num_tokens++) // as if it had been preempted
        third->tokens[third->num_tokens] = 7;
    assert_int_equal(sched_add(b.s, third), STATUS_OK);
    plan = step(&b, 7);
    assert_event(&b, 0, first, 0, 7, FINISH_LENGTH);
    request_free(first);
    assert_int_equal(plan->num_items, 3);
    assert_item(plan, 1, second, 16, 1);
    assert_item(plan, 2, third, 16, 6);
    assert_int_equal(plan->num_moves, 2);
    assert_true(plan->moves[0].from == snapshot && plan->moves[0].to == second->seq.tables[0].live);
    assert_true(plan->moves[1].from == snapshot && plan->moves[1].to == third->seq.tables[0].live);
    drop(&b, second);
    drop(&b, third);
    bench_end(&b);
}

static void give_one(struct bench *b, const struct plan *p, const token_id *tokens, int n) {
    struct outcome out = {(int32_t[]){0, n}, tokens, (uint8_t[1]){0}};
    sched_update(b->s, p->id, &out, b->events);
}

// S15: a state goes back where a draft is wrong. The step that computes the good ones again drafts on behind them, and goes
// back to the same state.
TEST(test_drafts_of_states) {
    struct bench b;
    struct kv_config kv = pages(20, BS);
    kv.groups[0].kind = KV_STATE;
    kv.snapshot_tokens = 12;
    bench_open(&b, &kv, config_of(4, 40, 40));
    struct request_params p = params_of(1, 6, 20);
    p.drafter = calloc(1, sizeof *p.drafter); // only that there is one matters here
    struct request *r = add_params(&b, &p);
    step(&b, 7);
    step(&b, 7);
    assert_true(r->num_tokens == 7 && r->num_computed == 6);
    assert_int_equal(request_draft(r, (token_id[]){21, 22, 23}, 3), 3);
    const struct plan *plan = plan_step(&b);
    assert_item(plan, 0, r, 6, 4);
    block_id live = r->seq.tables[0].live, saved = r->seq.tables[0].saved;
    assert_int_equal(plan->num_moves, 1);
    assert_true(plan->moves[0].from == live && plan->moves[0].to == saved);
    give_one(&b, plan, (token_id[]){21, 30}, 2);
    assert_true(r->num_tokens == 9 && r->num_computed == 6);
    assert_int_equal(sched_num_decoding(b.s), 1);

    assert_int_equal(request_draft(r, (token_id[]){31, 32}, 2), 2);
    plan = plan_step(&b);
    assert_item(plan, 0, r, 6, 5); // three known tokens and two drafts
    assert_true(plan->items[0].num_drafts == 2 && plan->items[0].first_logit == 2 && r->num_pending == 3);
    assert_int_equal(plan->num_moves, 1);
    assert_true(plan->moves[0].from == saved && plan->moves[0].to == live);
    give_one(&b, plan, (token_id[]){40}, 1);
    assert_true(r->num_tokens == 10 && r->num_computed == 6);

    assert_int_equal(request_draft(r, (token_id[]){41}, 1), 1);
    plan = plan_step(&b);
    assert_item(plan, 0, r, 6, 5);
    assert_true(plan->moves[0].from == saved && plan->moves[0].to == live);
    give_one(&b, plan, (token_id[]){41, 50}, 2); // all are right
    assert_true(r->num_tokens == 12 && r->num_computed == 11 && r->seq.tables[0].saved == KV_NONE);
    plan = plan_step(&b);
    assert_item(plan, 0, r, 11, 1);
    assert_int_equal(plan->num_moves, 0);
    give_one(&b, plan, (token_id[]){60}, 1);
    // S14: a snapshot is due after 16 tokens, 12 behind that of the prompt.
    assert_int_equal(request_draft(r, (token_id[]){61, 62, 63, 64, 65}, 5), 5);
    plan = plan_step(&b);
    assert_item(plan, 0, r, 12, 4);
    give_one(&b, plan, (token_id[]){61, 62, 63, 70}, 4);
    plan = plan_step(&b);
    assert_item(plan, 0, r, 16, 1);
    assert_int_equal(plan->num_moves, 1);
    assert_true(plan->moves[0].from == live && plan->moves[0].to == r->seq.tables[0].ids[3]);
    give_one(&b, plan, (token_id[]){71}, 1);
    drop(&b, r);
    bench_end(&b);
}

int main(void) { return run_all_tests(NULL, NULL); }
