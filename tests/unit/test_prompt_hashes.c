// Each block of a request's tokens is hashed once: for the prediction of its first token, its start, what others wait for,
// what is explained of its prefix, the cache, and once more after a preemption.
#include "scheduler_bench.h"

#include "step_observers.h"

static int num_chains;

struct kv_hash __real_kv_chain(const struct kv_cache *kv, struct kv_hash parent, const token_id *tokens);
struct kv_hash __wrap_kv_chain(const struct kv_cache *kv, struct kv_hash parent, const token_id *tokens);
struct kv_hash __wrap_kv_chain(const struct kv_cache *kv, struct kv_hash parent, const token_id *tokens) {
    num_chains++;
    return __real_kv_chain(kv, parent, tokens);
}

struct watched {
    struct bench b;
    struct step_observers o;
};

static void watched_open(struct watched *w, const struct kv_config *kv) {
    struct bench_config c = config_of(4, 16, 16);
    struct service_config service = {.max_chunk = c.max_chunk};
    bench_open(&w->b, kv, c);
    assert_true(observers_open(&w->o, &service, &c.sched, w->b.s, &w->b.kv, NULL));
}

static void watched_close(struct watched *w) {
    observers_close(&w->o);
    bench_end(&w->b);
}

static struct request *watched_add(struct watched *w, const struct request_params *p) {
    struct request *r = request_new(p, BS);
    assert_non_null(r);
    observe_arrival(&w->o, r);
    assert_int_equal(sched_add(w->b.s, r), STATUS_OK);
    return r;
}

// Steps as the engine thread takes them, to the end of all requests, which it frees. Returns the whole blocks of their tokens.
static int watched_run(struct watched *w) {
    int blocks = 0;
    while (!sched_idle(w->b.s)) {
        const struct plan *p = plan_step(&w->b);
        assert_non_null(p);
        for (int i = 0; i < p->num_items; i++)
            if (!p->items[i].req->time_scheduled) {
                p->items[i].req->time_scheduled = 1;
                observe_start(&w->o, p->items[i].req);
            }
        update(&w->b, p, 7);
        for (int i = 0; i < w->b.num_events; i++)
            if (w->b.events[i].finish != FINISH_NONE) {
                blocks += w->b.events[i].req->num_tokens / BS;
                request_free(w->b.events[i].req);
            }
    }
    return blocks;
}

// Twice the same prompt: what the cache does not have, and what it has.
static void run_twice(const struct kv_config *kv, const char *salt, bool all_rows) {
    struct watched w;
    struct request_params p = params_of(1, 41, 2);
    p.salt = salt;
    p.num_salt = salt ? (int)strlen(salt) : 0;
    p.sampling.prompt_logprobs = all_rows;
    watched_open(&w, kv);
    for (int i = 0; i < 2; i++) {
        num_chains = 0;
        const struct request *r = watched_add(&w, &p);
        assert_int_equal(r->expect_cached, i && !all_rows ? 40 : 0);
        int blocks = watched_run(&w);
        assert_int_equal(blocks, 10);
        assert_int_equal(num_chains, blocks);
    }
    assert_int_equal(w.b.s->stats.prefix_hits, all_rows ? 0 : 40);
    watched_close(&w);
}

TEST(test_once) {
    struct kv_config full = pages(60, BS), window = full, mixed = full;
    full.max_ahead = window.max_ahead = mixed.max_ahead = 64;
    window.groups[0] = (struct kv_group_spec){.kind = KV_WINDOW, .window = 8};
    mixed.num_groups = 3;
    mixed.groups[1] = (struct kv_group_spec){.kind = KV_STATE};
    mixed.groups[2] = window.groups[0];
    const struct kv_config *caches[] = {&full, &window, &mixed};
    for (int i = 0; i < 3; i++) {
        run_twice(caches[i], NULL, false);
        run_twice(caches[i], "salt", false);
        run_twice(caches[i], NULL, true);
    }
}

TEST(test_preempted) {
    struct watched w;
    struct kv_config kv = pages(8, BS);
    struct request_params p = params_of(1, 10, 12);
    watched_open(&w, &kv);
    num_chains = 0;
    watched_add(&w, &p);
    p = params_of(2, 10, 12);
    watched_add(&w, &p);
    int blocks = watched_run(&w);
    assert_true(w.b.s->stats.preemptions > 0);
    assert_int_equal(blocks, 2 * 5);
    assert_int_equal(num_chains, blocks);
    watched_close(&w);
}

int main(void) { return run_all_tests(NULL, NULL); }
