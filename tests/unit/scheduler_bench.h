// A scheduler with its cache, small enough that each plan is known.
#pragma once

#include "harness.h"

#include "scheduler_state.h"

enum { BS = 4, MAX_EVENTS = 32 };

struct bench {
    struct kv_cache kv;
    struct scheduler *s;
    int max_chunk;
    struct token_event events[MAX_EVENTS];
    int num_events;
};

struct bench_config {
    struct sched_config sched;
    int max_chunk;
};

static inline struct bench_config config_of(int max_running, int max_step_tokens, int max_chunk) {
    return (struct bench_config){.sched = {.max_running = max_running,
                                           .max_step_tokens = max_step_tokens,
                                           .max_waiting = 8,
                                           .max_waiting_tokens = 1000,
                                           .max_model_len = 200,
                                           .depth = 2,
                                           .async = true},
                                 .max_chunk = max_chunk};
}

static inline struct kv_config pages(int num_blocks, int block_size) {
    return (struct kv_config){
        .num_blocks = num_blocks, .block_size = block_size, .num_groups = 1, .key = {1, 2}, .share = true};
}

static inline void bench_open(struct bench *b, const struct kv_config *kv, struct bench_config config) {
    assert_int_equal(kv_init(&b->kv, kv), STATUS_OK);
    b->s = sched_open(&config.sched, &b->kv, NULL);
    assert_non_null(b->s);
    b->max_chunk = config.max_chunk;
}

static inline void bench_init(struct bench *b, int num_blocks, struct bench_config config) {
    struct kv_config kv = pages(num_blocks, BS);
    bench_open(b, &kv, config);
}

static inline const struct plan *plan_step(struct bench *b) { return sched_step(b->s, b->max_chunk); }

static inline void bench_end(struct bench *b) {
    assert_true(sched_idle(b->s));
    assert_int_equal(b->kv.num_free, b->kv.config.num_blocks);
    assert_int_equal(kv_check(&b->kv, NULL, 0), 0);
    sched_close(b->s);
    kv_destroy(&b->kv);
}

static inline struct request_params params_of(uint64_t id, int num_prompt, int max_output) {
    static token_id prompt[200]; // token i of prompt n is 100 n + i
    for (int i = 0; i < num_prompt; i++)
        prompt[i] = (token_id)id * 100 + i;
    return (struct request_params){.id = id,
                                   .prompt = prompt,
                                   .num_prompt = num_prompt,
                                   .max_output = max_output,
                                   .sampling = {.repetition_penalty = 1, .logprobs = -1}};
}

static inline struct request *add_params(struct bench *b, const struct request_params *p) {
    struct request *r = request_new(p, BS);
    assert_non_null(r);
    assert_int_equal(sched_add(b->s, r), STATUS_OK);
    return r;
}

static inline struct request *add(struct bench *b, uint64_t id, int num_prompt, int max_output) {
    struct request_params p = params_of(id, num_prompt, max_output);
    return add_params(b, &p);
}

// Resolves a plan; every item that samples gets `token`.
static inline void update(struct bench *b, const struct plan *p, token_id token) {
    int32_t start[16] = {0};
    token_id tokens[16];
    uint8_t failed[16] = {0};
    int n = 0;
    for (int i = 0; i < p->num_items; i++) {
        start[i] = n;
        if (p->items[i].needs_token)
            tokens[n++] = token;
    }
    start[p->num_items] = n;
    struct outcome out = {start, tokens, failed};
    b->num_events = sched_update(b->s, p->id, &out, b->events);
    assert_true(b->num_events <= MAX_EVENTS);
}

static inline const struct plan *step_with(struct bench *b, int max_chunk, token_id token) {
    const struct plan *p = sched_step(b->s, max_chunk);
    if (p)
        update(b, p, token);
    return p;
}

static inline const struct plan *step(struct bench *b, token_id token) {
    return step_with(b, b->max_chunk, token);
}

static inline void assert_event(const struct bench *b, int i, const struct request *r, int item,
                                token_id token, enum finish_reason finish) {
    assert_true(i < b->num_events);
    assert_true(b->events[i].req == r);
    assert_int_equal(b->events[i].item, item);
    assert_int_equal(b->events[i].token, token);
    assert_int_equal(b->events[i].finish, finish);
}

static inline void assert_item(const struct plan *p, int i, const struct request *r, int first, int num_new) {
    assert_non_null(p);
    assert_true(i < p->num_items && p->items[i].req == r);
    assert_int_equal(p->items[i].first, first);
    assert_int_equal(p->items[i].num_new, num_new);
}

static inline void drop(struct bench *b, struct request *r) {
    assert_true(sched_remove(b->s, r, FINISH_CANCELLED));
    request_free(r);
}
