// Runs requests through scheduler and engine on the calling thread, without the service: what the tests of
// whole models stand on. Everything a request got is kept: tokens, and log-probabilities to the bit.
#pragma once

#include "engine.h"
#include "harness.h"
#include "log.h"
#include "scheduler.h"

#include <math.h>

// The path of the smallest model of the test data. Without it the test is skipped.
static inline const char *stories_model(void) {
    static char copy[4096];
    const char *path = test_data("models/stories260K/stories260K.gguf");
    if (!path)
        skip();
    snprintf(copy, sizeof copy, "%s", path);
    return copy;
}

enum { DRIVER_TOP = 5, DRIVER_MAX_OUTPUT = 512 };

struct got { // what one request got
    int num;
    token_id tokens[DRIVER_MAX_OUTPUT];
    float logprob[DRIVER_MAX_OUTPUT];
    token_id top_ids[DRIVER_MAX_OUTPUT][DRIVER_TOP];
    float top[DRIVER_MAX_OUTPUT][DRIVER_TOP];
    uint64_t logits_hash[DRIVER_MAX_OUTPUT]; // of the row of logits, with keep_logits
    int num_scores;                          // prompt log-probabilities, with prompt_logprobs
    float scores[4096];
    enum finish_reason finish;
    int num_cached, num_preemptions;
};

struct driver {
    struct engine *engine;
    struct scheduler *sched;
    int depth, max_chunk;
    struct token_event events[256];
    float *first_logits; // (V) of the first sampling row, when logits are kept
    float *vector;       // (engine_info.vector_size) of the last request with pooling; borrowed, or NULL
    uint64_t next_id;
    bool no_logprobs;             // of requests from here on; their got.logprob and got.top mean nothing then
    struct expert_counts experts; // of all steps
    const struct plan *(*alter)(struct driver *d,
                                const struct plan *plan); // what is launched for a plan, or NULL
};

struct driver_config {
    const char *path, *device, *variant, *kv_dtype, *pooling;
    int threads, ranks, stages, depth, block_size, num_blocks, max_running, max_step_tokens, max_chunk,
        max_model_len;
    bool no_cache, keep_logits, exact, prompt_embeds, mtp;
    int max_loras;
    struct processes *processes;
};

static inline void driver_open(struct driver *d, const struct driver_config *c) {
    struct err err = {0};
    struct engine_config config = {
        .path = c->path,
        .device = c->device ? c->device : "cpu",
        .variant = c->variant,
        .pooling = c->pooling,
        .kv_dtype = c->kv_dtype,
        .num_threads = c->threads ? c->threads : 1,
        .tensor_parallel_size = c->ranks,
        .pipeline_parallel_size = c->stages,
        .depth = c->depth,
        .block_size = c->block_size ? c->block_size : 16,
        .num_kv_blocks = c->num_blocks,
        .kv_cache_bytes = c->num_blocks ? 0 : 64 << 20,
        .max_model_len = c->max_model_len,
        .max_num_seqs = c->max_running ? c->max_running : 32,
        .max_num_batched_tokens = c->max_step_tokens ? c->max_step_tokens : 512,
        .prefix_caching = !c->no_cache,
        .keep_logits = c->keep_logits,
        .exact = c->exact,
        .prompt_embeds = c->prompt_embeds,
        .mtp = c->mtp ? MTP_ALWAYS : MTP_NEVER,
        .max_loras = c->max_loras,
        .max_lora_rank = 64,
        .processes = c->processes,
    };
    *d = (struct driver){.next_id = 1};
    log_set_level(LOG_ERROR);
    d->engine = engine_open(&config, &err);
    if (!d->engine)
        fail_msg("engine_open: %s", err.msg);
    const struct engine_info *info = engine_info(d->engine);
    struct sched_config sched = {
        .max_running = config.max_num_seqs,
        .max_step_tokens = config.max_num_batched_tokens,
        .max_waiting = 1000,
        .max_waiting_tokens = INT64_MAX,
        .max_model_len = info->max_model_len,
        .depth = info->depth,
        .async = info->async,
        .embed_size = info->embed_size,
        .has_axes = info->has_axes,
    };
    if (!(d->sched = sched_open(&sched, engine_kv(d->engine), &err)))
        fail_msg("sched_open: %s", err.msg);
    d->depth = info->depth;
    d->max_chunk = c->max_chunk ? c->max_chunk : config.max_num_batched_tokens;
    d->first_logits = calloc((size_t)info->model.vocab, sizeof *d->first_logits);
}

static inline struct sched_stats driver_stats(const struct driver *d) {
    struct sched_stats stats;
    sched_stats(d->sched, &stats);
    return stats;
}

static inline void driver_close(struct driver *d) {
    sched_close(d->sched);
    engine_close(d->engine);
    free(d->first_logits);
}

// Queues a request whose results go to got[id - 1] of driver_run(). Ids count from 1. Zeroed sampling is
// greedy. driver_submit() takes all else as it is.
static inline struct request *driver_submit(struct driver *d, struct request_params p) {
    if (p.sampling.top_p == 0)
        p.sampling.top_p = 1;
    if (p.sampling.repetition_penalty == 0)
        p.sampling.repetition_penalty = 1;
    p.sampling.logprobs = d->no_logprobs ? -1 : DRIVER_TOP;
    p.id = d->next_id++;
    struct request *r = request_new(&p, engine_info(d->engine)->block_size);
    assert_non_null(r);
    assert_int_equal(sched_add(d->sched, r), STATUS_OK);
    return r;
}

static inline struct request *driver_add(struct driver *d, const token_id *prompt, int num_prompt,
                                         int max_output, struct sampling_params sampling) {
    return driver_submit(
        d, (struct request_params){
               .prompt = prompt, .num_prompt = num_prompt, .max_output = max_output, .sampling = sampling});
}

// FNV-1a
static inline uint64_t driver_hash(const void *data, size_t n) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return h;
}

// Keeps the outcome of an item of a plan.
static inline void driver_keep(struct driver *d, const struct plan_item *item, int i,
                               const struct step_result *result, struct got *g) {
    const struct step_out *out = result->out;
    const int32_t *start = result->outcome.start;
    int sample = result->first_row[i + 1] - (item->needs_token ? 1 + item->num_drafts : 0);
    for (int row = result->first_row[i]; row < sample; row++)
        g->scores[g->num_scores++] = out->logprob[row];
    // A request may end inside what was sampled.
    for (int row = sample; row < sample + start[i + 1] - start[i] && g->num < DRIVER_MAX_OUTPUT; row++) {
        size_t at = (size_t)row * (size_t)out->max_top;
        g->tokens[g->num] = out->ids[row];
        g->logprob[g->num] = out->logprob[row];
        memcpy(g->top_ids[g->num], out->top_ids + at, sizeof g->top_ids[0]);
        memcpy(g->top[g->num], out->top_logprobs + at, sizeof g->top[0]);
        if (out->logits) {
            size_t vocab = (size_t)engine_info(d->engine)->model.vocab;
            const float *logits = out->logits + (size_t)row * vocab;
            g->logits_hash[g->num] = driver_hash(logits, vocab * sizeof(float));
            if (g->num == 0)
                memcpy(d->first_logits, logits, vocab * sizeof(float));
        }
        g->num++;
        if (request_is_stop(item->req, out->ids[row]) &&
            item->first + item->num_new - item->num_drafts + row - sample >= item->req->min_tokens)
            break;
    }
}

// As the service does.
static inline void driver_draft(struct request *r) {
    token_id drafts[MAX_DRAFTS];
    if (r->drafter && r->state == REQUEST_RUNNING && r->num_in_flight == 0)
        request_draft(r, drafts,
                      r->drafter->propose(r->drafter->state, r->tokens, r->num_tokens, drafts, MAX_DRAFTS));
}

// Launches what may be in flight and collects the oldest step; false when there is nothing to do. Results are
// appended to got[id - 1].
static inline bool driver_step(struct driver *d, struct got *got) {
    struct step_result result;
    struct err err = {0};
    const struct plan *plan;
    while (engine_in_flight(d->engine) < d->depth && (plan = sched_step(d->sched, d->max_chunk)))
        engine_launch(d->engine, d->alter ? d->alter(d, plan) : plan, NULL);
    if (engine_in_flight(d->engine) == 0)
        return false;
    if (engine_collect(d->engine, &result, &err) != STATUS_OK)
        fail_msg("engine_collect: %s", err.msg);
    plan = result.plan;
    d->experts.rows += result.out->experts.rows;
    d->experts.reads += result.out->experts.reads;
    d->experts.busiest += result.out->experts.busiest;
    for (int i = 0; i < plan->num_items; i++)
        if (plan->items[i].req->state != REQUEST_FINISHED) // else planned beyond its end
            driver_keep(d, &plan->items[i], i, &result, &got[plan->items[i].req->id - 1]);
    int n = sched_update(d->sched, plan->id, &result.outcome, d->events);
    for (int i = 0; i < n; i++) {
        struct request *r = d->events[i].req;
        bool last = i + 1 == n || d->events[i + 1].req != r;
        if (d->events[i].finish == FINISH_NONE) {
            if (r->filter)
                r->filter->accept(r->filter->state, d->events[i].token);
            if (last)
                driver_draft(r);
            continue;
        }
        if (d->vector && r->vector)
            memcpy(d->vector, r->vector, (size_t)engine_info(d->engine)->vector_size * sizeof(float));
        got[r->id - 1].finish = d->events[i].finish;
        got[r->id - 1].num_cached = r->num_cached;
        got[r->id - 1].num_preemptions = r->num_preemptions;
        request_free(r);
    }
    return true;
}

static inline void driver_run(struct driver *d, struct got *got) {
    while (driver_step(d, got))
        ;
    assert_true(sched_idle(d->sched));
    assert_int_equal(engine_kv(d->engine)->num_free, engine_kv(d->engine)->config.num_blocks);
}

// The same tokens and the same bits of every log-probability.
static inline void assert_same(const struct got *a, const struct got *b, const char *what) {
    if (a->num != b->num || memcmp(a->tokens, b->tokens, (size_t)a->num * sizeof a->tokens[0]) != 0)
        fail_msg("%s: other tokens", what);
    if (memcmp(a->logprob, b->logprob, (size_t)a->num * sizeof a->logprob[0]) != 0 ||
        memcmp(a->top, b->top, (size_t)a->num * sizeof a->top[0]) != 0 ||
        memcmp(a->top_ids, b->top_ids, (size_t)a->num * sizeof a->top_ids[0]) != 0)
        fail_msg("%s: the same tokens, other bits of log-probabilities", what);
}

static inline bool driver_filter_accept(void *state, token_id token) {
    (void)token;
    ++*(int *)state;
    return true;
}

static inline void driver_filter_rollback(void *state, int n) { *(int *)state -= n; }

static inline enum mask_result driver_filter_mask(void *state, uint32_t *bits, int vocab, int64_t *work) {
    (void)work;
    memset(bits, 0, ((size_t)vocab + 31) / 32 * sizeof *bits);
    for (int v = 0; v < vocab; v++)
        if ((v + *(int *)state) % 3 == 0)
            bits[v / 32] |= 1u << v % 32;
    return MASK_DONE;
}

// A grammar that forbids two tokens of three, other ones at each position. The request's that gets it.
static inline struct token_filter *driver_filter(void) {
    struct token_filter *f = malloc(sizeof *f);
    *f = (struct token_filter){
        calloc(1, sizeof(int)), driver_filter_accept, driver_filter_mask, driver_filter_rollback, free, NULL};
    return f;
}
