// The engine thread: drains the inbox, plans a step, launches it, and when as many are in flight as may be,
// or there is nothing more to plan, collects the oldest and sends events; sleeps when there is nothing to do.
//
// Shared between threads: the mailboxes, the cancel list and the statistics (each under its own lock), and
// the counts of what is live (atomic). All else belongs to the engine thread. Over 600 lines: two sides of one struct,
// which no other file sees.
#include "service.h"

#include "drafting.h"
#include "engine_view.h"
#include "id_map.h"
#include "inside.h"
#include "log.h"
#include "mailbox.h"
#include "pace.h"
#include "record.h"
#include "trace.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct cancel {
    uint64_t id;
    int64_t when;
    enum finish_reason why;
};

struct letter { // one of them
    struct request *request;
    struct service_query *query;
};

struct service {
    struct engine *engine;
    struct service_config config;
    int depth; // steps in flight at most
    struct scheduler *sched;
    struct pace pace;
    struct drafting drafting;
    struct predictor predictor;
    int64_t last_applied; // when the last step ended; 0: the engine was idle since
    struct record *record;
    struct trace *trace;
    pthread_t thread;
    struct mailbox inbox;   // struct letter
    struct mailbox outbox;  // struct service_event
    struct mailbox answers; // struct service_query *, answered
    struct service_inside inside;
    struct id_map requests;     // of the scheduler, by id; engine thread only
    struct token_event *events; // (sched_max_events()) engine thread's scratch

    pthread_mutex_t cancel_lock;
    struct cancel *cancels, *cancels_taken; // (max_cancels) filled by callers; copied by the engine thread
    struct id_map cancelled;                // ids in cancels
    int num_cancels, max_cancels;

    pthread_mutex_t stats_lock;
    struct service_stats stats, stats_out; // the engine thread's own, and its snapshot

    atomic_int live;            // requests whose EVENT_FINISH has not been put
    atomic_int queued;          // of those, the ones that never ran
    atomic_llong queued_tokens; // their prompts
    atomic_llong busy_since;    // monotonic ns of the last submission that found nothing live
    atomic_llong expected_ns;   // what the steps in flight should take
    atomic_int asked;           // queries whose done() has not been called
    atomic_bool stopping, dead;
};

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// ---- events

static void put_event(struct service *s, const struct service_event *event) {
    if (mailbox_try_put(&s->outbox, event))
        return;
    // The reader is behind: wake it and wait. It never waits for us, so this ends.
    if (s->config.notify)
        s->config.notify(s->config.notify_arg);
    if (!mailbox_put(&s->outbox, event))
        free(event->vector); // nobody will take it
}

static void leave_queue(struct service *s, struct request *r, int64_t when) {
    r->time_scheduled = when;
    atomic_fetch_sub(&s->queued, 1);
    atomic_fetch_sub(&s->queued_tokens, r->num_prompt);
}

// The stop token at the end of a request's output; -1: it ends otherwise.
static token_id last_stop_token(const struct request *r) {
    int num = r->num_tokens - r->num_pending;
    token_id last = num > r->num_prompt ? r->tokens[num - 1] : -1;
    return last >= 0 && request_is_stop(r, last) ? last : -1;
}

static void count_time(struct time_counts *c, int64_t ns) {
    int bucket = 0;
    while (bucket < TIME_BUCKETS - 1 && ns > time_bucket_bounds[bucket] * 1000LL)
        bucket++;
    c->buckets[bucket]++;
    c->ns += (uint64_t)ns;
}

// The last event of a request, which has left the scheduler; frees it.
static void put_finish(struct service *s, struct request *r, enum finish_reason why) {
    struct service_event event = {
        .id = r->id,
        .kind = EVENT_FINISH,
        .finish = why,
        .token = why == FINISH_STOP ? last_stop_token(r) : -1,
        .num_top = -1,
        .num_prompt = r->num_prompt,
        .num_cached = r->num_cached > 0 ? r->num_cached : 0,
        .num_output = r->num_tokens - r->num_pending - r->num_prompt,
        .num_preemptions = r->num_preemptions,
        .time_submitted = r->time_submitted,
        .time_scheduled = r->time_scheduled,
        .time_first_token = r->time_first_token,
        .time_finished = now_ns(),
        .predicted_ns = r->predicted_ns,
    };
    if (why == FINISH_STOP) {
        event.vector = r->vector;
        r->vector = NULL;
    }
    if (!r->time_scheduled)
        leave_queue(s, r, 0);
    if (why == FINISH_STOP || why == FINISH_LENGTH)
        predict_add_request(&s->predictor, event.num_output, why == FINISH_LENGTH);
    if (r->time_cancelled)
        count_time(&s->stats.cancels, event.time_finished - r->time_cancelled);
    id_map_remove(&s->requests, r->id);
    drafting_drop(&s->drafting, r);
    engine_forget(s->engine, r);
    request_free(r);
    trace_finish(s->trace, &event);
    atomic_fetch_sub(&s->live, 1);
    put_event(s, &event);
}

static void put_token(struct service *s, const struct request *r, enum event_kind kind, int position,
                      token_id token, const struct step_out *out, int row, int num_logprobs) {
    bool is_stop = kind == EVENT_TOKEN && request_is_stop(r, token);
    struct service_event event = {.id = r->id,
                                  .kind = kind,
                                  .finish = is_stop ? FINISH_STOP : FINISH_NONE,
                                  .token = token,
                                  .position = position,
                                  .num_top = num_logprobs,
                                  .num_cached = r->num_cached > 0 ? r->num_cached : 0,
                                  .time_scheduled = r->time_scheduled,
                                  .time_first_token = r->time_first_token,
                                  .time_finished = now_ns(),
                                  .predicted_ns = r->predicted_ns};
    if (num_logprobs >= 0) {
        event.logprob = out->logprob[row];
        event.rank = out->rank[row];
        memcpy(event.top_ids, out->top_ids + (size_t)row * (size_t)out->max_top,
               (size_t)num_logprobs * sizeof *event.top_ids);
        memcpy(event.top_logprobs, out->top_logprobs + (size_t)row * (size_t)out->max_top,
               (size_t)num_logprobs * sizeof *event.top_logprobs);
    }
    put_event(s, &event);
}

// ---- the inbox

static void remove_request(struct service *s, struct request *r, enum finish_reason why) {
    if (r->state != REQUEST_FINISHED)
        record_remove(s->record, r->id, why);
    if (sched_remove(s->sched, r, why))
        put_finish(s, r, why);
}

// Before it is added. A match that is undone leaves no trace.
static void predict_request(struct service *s, struct request *r) {
    struct kv_cache *kv = engine_kv(s->engine);
    int64_t queue;
    if (!request_needs_all_rows(r)) {
        struct kv_hash root = kv_root(kv, r->salt, (size_t)r->num_salt);
        r->expect_cached = kv_match(kv, &r->seq, root, r->tokens, r->num_prompt - 1);
        kv_unmatch(kv, &r->seq);
    }
    r->predicted_ns = predict_first_token(&s->predictor, &s->pace, s->sched, r->num_prompt, r->expect_cached,
                                          r->priority, &queue);
    if (r->predicted_ns >= 0)
        r->predicted_ns += now_ns() - r->time_submitted;
}

static void drain_inbox(struct service *s) {
    struct letter letter;
    struct request *r;
    // Cancels first, then the inbox, which holds the requests of all of them: none is looked for too early.
    pthread_mutex_lock(&s->cancel_lock);
    int n = s->num_cancels;
    memcpy(s->cancels_taken, s->cancels, (size_t)n * sizeof *s->cancels);
    for (int i = 0; i < n; i++)
        id_map_remove(&s->cancelled, s->cancels[i].id);
    s->num_cancels = 0;
    pthread_mutex_unlock(&s->cancel_lock);
    while (mailbox_take(&s->inbox, &letter, 1) == 1) {
        if (letter.query) {
            s->inside.now = now_ns();
            letter.query->run(letter.query, &s->inside);
            CHECK(mailbox_try_put(&s->answers, &letter.query)); // it has room for all
            continue;
        }
        r = letter.request;
        predict_request(s, r);
        if (atomic_load(&s->dead) || sched_add(s->sched, r) != STATUS_OK) {
            put_finish(s, r, FINISH_ERROR); // what is not admissible was refused by service_submit()
            continue;
        }
        id_map_put(&s->requests, r->id, r);
        record_add(s->record, r);
    }
    for (int i = 0; i < n; i++)
        if ((r = id_map_get(&s->requests, s->cancels_taken[i].id)) && r->state != REQUEST_FINISHED) {
            r->time_cancelled = s->cancels_taken[i].when;
            remove_request(s, r, s->cancels_taken[i].why);
        }
}

// Those whose late masks are there take part in the next step.
static void take_ready(struct service *s) {
    for (struct request *r; (r = engine_take_ready(s->engine));) {
        record_ready(s->record, r->id);
        sched_ready(s->sched, r);
    }
}

static void wake_up(void *arg) { mailbox_wake(&((struct service *)arg)->inbox); }

static void remove_all(struct service *s, enum finish_reason why) {
    struct request *r;
    while ((r = sched_any(s->sched)))
        remove_request(s, r, why);
}

static void finish_left(void *arg, struct request *r) { put_finish(arg, r, r->finish); }

// The device failed: the steps in flight will never resolve. Every request ends, with an error where it had
// not ended.
static void fail_engine(struct service *s, const struct err *err) {
    log_msg(LOG_ERROR, "engine failed: %s", err->msg);
    atomic_store(&s->dead, true);
    sched_abandon(s->sched, finish_left, s);
}

// ---- one step

static void publish_stats(struct service *s) {
    struct service_stats *st = &s->stats;
    const struct kv_cache *kv = engine_kv(s->engine);
    struct sched_stats sched;
    sched_stats(s->sched, &sched);
    st->running = sched.running;
    st->waiting = sched.waiting;
    st->waiting_deferred = sched.waiting_deferred;
    st->waiting_tokens = sched.waiting_tokens;
    st->free_blocks = kv_available(kv);
    st->num_blocks = kv->config.num_blocks;
    st->preemptions = sched.preemptions;
    st->prefix_queries = sched.prefix_queries;
    st->prefix_hits = sched.prefix_hits;
    st->deferred = sched.deferred;
    st->drafts = sched.verified;
    st->draft_tokens = sched.drafts;
    st->accepted = sched.accepted;
    memcpy(st->accepted_at, sched.accepted_at, sizeof st->accepted_at);
    st->lost = sched.lost;
    st->evictions = kv->num_evicted;
    st->num_groups = kv->config.num_groups;
    memcpy(st->active_pages, kv->num_active, sizeof st->active_pages);
    memcpy(st->cached_pages, kv->num_cached, sizeof st->cached_pages);
    st->last_progress = now_ns();
    st->dead = atomic_load(&s->dead);
    st->busy = !st->dead && !sched_idle(s->sched);
    pthread_mutex_lock(&s->stats_lock);
    s->stats_out = *st;
    pthread_mutex_unlock(&s->stats_lock);
}

static void count_step(struct service *s, const struct plan *plan) {
    int bucket = 0;
    while (bucket < STEP_BUCKETS - 1 && plan->num_tokens > step_bucket_bounds[bucket])
        bucket++;
    s->stats.steps++;
    s->stats.step_buckets[bucket]++;
    s->stats.step_tokens_sum += (uint64_t)plan->num_tokens;
}

static void count_experts(struct expert_counts *sum, const struct expert_counts *step) {
    sum->rows += step->rows;
    sum->reads += step->reads;
    sum->busiest += step->busiest;
}

static void put_prompt_logprobs(struct service *s, const struct plan *plan,
                                const struct step_result *result) {
    for (int i = 0; i < plan->num_items; i++) {
        const struct plan_item *item = &plan->items[i];
        bool late = result->outcome.failed[i] == ITEM_LATE;
        if (!item->wants_prompt_logprobs || (result->outcome.failed[i] && !late) ||
            item->req->state == REQUEST_FINISHED)
            continue;
        int samples = item->needs_token ? 1 + item->num_drafts : 0;
        int rows = result->first_row[i + 1] - result->first_row[i] - samples;
        int top = item->req->sampling.num_prompt_logprobs;
        for (int j = 0; j < rows; j++) {
            int row = result->first_row[i] + j;
            put_token(s, item->req, EVENT_PROMPT, item->first + item->first_logit + j + 1,
                      result->out->ids[row], result->out, row, top);
        }
    }
}

// One output token, which is row `row` of the step. Why the request ends with it, though the scheduler goes on: its
// filter does not take the token or takes no more, or a stop string is complete, so that no further step is planned for it.
static enum finish_reason put_output(struct service *s, const struct plan_item *item,
                                     const struct token_event *e, const struct step_out *out, int row,
                                     int64_t now) {
    struct request *r = e->req;
    if (!r->time_first_token)
        r->time_first_token = now;
    s->stats.generation_tokens++;
    int position = item->first + item->num_new - item->num_drafts + e->index - r->num_prompt;
    put_token(s, r, EVENT_TOKEN, position, e->token, out, row, r->sampling.logprobs);
    if (r->sampling.mirostat_tau > 0 && out->share[row] > 0)
        r->mirostat_mu -= r->sampling.mirostat_eta * (-log2f(out->share[row]) - r->sampling.mirostat_tau);
    if (e->finish != FINISH_NONE)
        return FINISH_NONE;
    if (r->filter && !r->filter->accept(r->filter->state, e->token))
        return FINISH_ERROR;
    if (r->filter && r->filter->done && r->filter->done(r->filter->state))
        return FINISH_STOP;
    return r->matcher && r->matcher->ends(r->matcher->state, e->token) ? FINISH_STOP : FINISH_NONE;
}

// Events of a plan, after sched_update(): what it sampled, and what ended.
static void put_outcome(struct service *s, const struct plan *plan, const struct step_result *result, int n) {
    int64_t now = now_ns();
    for (int i = 0; i < n; i++) {
        const struct token_event *e = &s->events[i];
        struct request *r = e->req;
        enum finish_reason why = FINISH_NONE;
        bool last = i + 1 == n || s->events[i + 1].req != r; // of this plan
        if (e->token >= 0) {
            const struct plan_item *item = &plan->items[e->item];
            int row = result->first_row[e->item + 1] - 1 - item->num_drafts + e->index;
            why = put_output(s, item, e, result->out, row, now);
        }
        if (why != FINISH_NONE) { // tokens of this step that come after it are not the request's any more
            for (; i + 1 < n && s->events[i + 1].req == r; i++)
                r->num_tokens -= s->events[i + 1].token >= 0;
            remove_request(s, r, why);
        } else if (e->finish != FINISH_NONE) {
            put_finish(s, r, e->finish);
        } else if (last) {
            drafting_offer(&s->drafting, r);
        }
    }
}

// Steps in flight that will still be collected: none on a dead device.
static int num_in_flight(const struct service *s) {
    return atomic_load(&s->dead) ? 0 : engine_in_flight(s->engine);
}

// began: when planning began.
static void launch_step(struct service *s, const struct plan *plan, int64_t began) {
    int64_t now = now_ns();
    for (int i = 0; i < plan->num_items; i++) {
        struct request *r = plan->items[i].req;
        if (!r->time_scheduled) {
            leave_queue(s, r, now);
            inside_remember(&s->inside, r);
            s->stats.prompt_tokens += (uint64_t)r->num_prompt;
        }
    }
    int64_t expected = pace_expect(&s->pace, plan->num_decode, plan->num_tokens - plan->num_decode);
    atomic_fetch_add(&s->expected_ns, expected);
    engine_launch(s->engine, plan, &(struct step_times){began, now, expected});
}

// The oldest step in flight, to its end.
static void finish_step(struct service *s) {
    struct step_result result;
    struct err err = {0};
    if (engine_collect(s->engine, &result, &err) != STATUS_OK) {
        fail_engine(s, &err);
        return;
    }
    const struct plan *plan = result.plan;
    struct view_step *seen = &s->inside.steps[s->inside.num_steps % VIEW_STEPS];
    uint64_t generated = s->stats.generation_tokens;
    struct step_shape shape = predict_shape(plan);
    atomic_fetch_sub(&s->expected_ns, result.times.expected);
    struct trace_step step = {.plan = *plan,
                              .lane = (int)(plan->id % (uint64_t)s->depth),
                              .began = result.times.began,
                              .planned = result.times.launched,
                              .computed = now_ns()};
    record_outcome(s->record, plan, &result.outcome);
    if (!drafting_measure(&s->drafting, plan, &result.outcome, step.computed - step.planned))
        pace_add(&s->pace, plan->num_decode, plan->num_tokens - plan->num_decode,
                 step.computed - step.planned);
    count_step(s, plan);
    if (result.masks_ns > 0)
        count_time(&s->stats.masks, result.masks_ns);
    count_experts(&s->stats.experts, &result.out->experts);
    for (int i = 0; i < plan->num_items; i++)
        s->stats.corrupted += result.outcome.failed[i] == ITEM_NOT_FINITE;
    put_prompt_logprobs(s, plan, &result);
    int n = sched_update(s->sched, plan->id, &result.outcome, s->events);
    put_outcome(s, plan, &result, n);
    int64_t drafted = drafting_take(&s->drafting, sched_num_decoding(s->sched), s->record);
    step.applied = now_ns();
    // With the time since the step before: what lies between two steps delays a first token, too.
    predict_add_step(&s->predictor, &shape, step.applied - (s->last_applied ? s->last_applied : step.began));
    s->last_applied = step.applied;
    *seen = (struct view_step){.id = step.plan.id,
                               .began = step.began,
                               .launched = step.planned,
                               .computed = step.computed,
                               .applied = step.applied,
                               .num_requests = step.plan.num_items,
                               .num_decode = step.plan.num_decode,
                               .num_tokens = step.plan.num_tokens,
                               .num_generated = (int)(s->stats.generation_tokens - generated)};
    s->inside.num_steps++;
    s->stats.part_ns[0] += (uint64_t)(step.planned - step.began);
    s->stats.part_ns[1] += (uint64_t)(step.computed - step.planned);
    s->stats.part_ns[2] += (uint64_t)(step.applied - step.computed - drafted);
    s->stats.part_ns[3] += (uint64_t)drafted;
    if (s->trace) {
        struct sched_stats stats;
        sched_stats(s->sched, &stats);
        trace_step(s->trace, &step, engine_kv(s->engine), &stats);
    }
}

// NULL: nothing to plan, or no room for one more.
static const struct plan *next_plan(struct service *s) {
    if (atomic_load(&s->dead) || num_in_flight(s) == s->depth)
        return NULL;
    int chunk = pace_chunk(&s->pace, sched_num_decoding(s->sched));
    const struct plan *plan = sched_step(s->sched, chunk);
    // With plans in flight it may have preempted a request and still plan nothing.
    if (plan || num_in_flight(s) > 0)
        record_plan(s->record, plan, chunk);
    return plan;
}

static void *service_run(void *arg) {
    struct service *s = arg;
    while (!atomic_load(&s->stopping)) {
        struct err err = {0};
        if (num_in_flight(s) == 0 && !atomic_load(&s->dead) && engine_alive(s->engine, &err) != STATUS_OK)
            fail_engine(s, &err);
        int64_t began = now_ns();
        engine_kv(s->engine)->clock = (uint32_t)(began / VIEW_CLOCK_NS);
        drain_inbox(s);
        take_ready(s);
        began = now_ns();
        const struct plan *plan = next_plan(s);
        if (plan)
            launch_step(s, plan, began);
        if (plan && num_in_flight(s) < s->depth)
            continue; // one more may be planned before the first has ended
        bool idle = num_in_flight(s) == 0;
        if (!idle)
            finish_step(s);
        // With no step in flight every plan has somebody, so nobody is left, or a mask is late. After a device failure none is
        // made.
        CHECK(!idle || atomic_load(&s->dead) || sched_idle(s->sched) || sched_num_late(s->sched) > 0);
        publish_stats(s);
        if (s->config.notify)
            s->config.notify(s->config.notify_arg);
        if (idle && s->trace) {
            struct sched_stats stats;
            sched_stats(s->sched, &stats);
            trace_idle(s->trace, began, engine_kv(s->engine), &stats);
        }
        if (idle) {
            s->last_applied = 0;
            mailbox_wait(&s->inbox, engine_watch_ns(s->engine));
        }
    }
    while (num_in_flight(s) > 0)
        finish_step(s);
    drain_inbox(s);
    remove_all(s, FINISH_CANCELLED);
    publish_stats(s);
    return NULL;
}

// ---- the other side

// The thread is not running. Parts that were not made are zero.
static void service_free(struct service *s) {
    for (struct service_event event; s->outbox.data && mailbox_take(&s->outbox, &event, 1) == 1;)
        free(event.vector);
    record_close(s->record);
    trace_close(s->trace);
    sched_close(s->sched);
    mailbox_destroy(&s->inbox);
    mailbox_destroy(&s->outbox);
    mailbox_destroy(&s->answers);
    id_map_close(&s->requests);
    id_map_close(&s->cancelled);
    free(s->inside.past);
    free(s->inside.past_tokens);
    free(s->cancels);
    free(s->cancels_taken);
    free(s->events);
    drafting_free(&s->drafting);
    pthread_mutex_destroy(&s->cancel_lock);
    pthread_mutex_destroy(&s->stats_lock);
    free(s);
}

struct service *service_open(struct engine *engine, const struct service_config *config, struct err *err) {
    struct service *s = calloc(1, sizeof *s);
    if (!s) {
        err_set(err, STATUS_NOMEM, "out of memory");
        return NULL;
    }
    s->engine = engine;
    s->config = *config;
    pthread_mutex_init(&s->cancel_lock, NULL);
    pthread_mutex_init(&s->stats_lock, NULL);

    // The bound of the queue is kept by service_submit(), so that a refusal is known at once; the scheduler's
    // own bound must then never bind.
    const struct sched_config *c = &config->sched;
    struct sched_config sched = *c;
    size_t max_live = (size_t)c->max_running + (size_t)c->max_waiting;
    size_t max_events = max_live + (size_t)c->max_running * 16 + (size_t)c->max_step_tokens * 2;
    sched.max_waiting = (int)max_live;
    sched.max_waiting_tokens = INT64_MAX;
    s->depth = sched.depth > 0 ? sched.depth : 1;
    s->pace =
        (struct pace){.target_ns = s->depth == 1 ? config->target_itl_ns : 0, .max_chunk = config->max_chunk};
    // A caller cancels only what it has not seen end: live, or with its last event still in the outbox.
    s->max_cancels = (int)(max_live + max_events);
    s->cancels = calloc((size_t)s->max_cancels, sizeof *s->cancels);
    s->cancels_taken = calloc((size_t)s->max_cancels, sizeof *s->cancels_taken);
    s->inside.past = calloc(PROMPT_PAST, sizeof *s->inside.past);
    s->inside.past_tokens = calloc((size_t)PROMPT_PAST * (size_t)engine_kv(engine)->config.block_size,
                                   sizeof *s->inside.past_tokens);
    s->events = calloc((size_t)sched_max_events(c->max_running), sizeof *s->events);
    if (!s->cancels || !s->cancels_taken || !s->inside.past || !s->inside.past_tokens || !s->events ||
        !drafting_init(&s->drafting, engine, c->max_running, config->all_drafts) ||
        !id_map_open(&s->requests, max_live) || !id_map_open(&s->cancelled, (size_t)s->max_cancels) ||
        mailbox_init(&s->inbox, sizeof(struct letter), max_live + SERVICE_QUERIES) != STATUS_OK ||
        mailbox_init(&s->answers, sizeof(struct service_query *), SERVICE_QUERIES) != STATUS_OK ||
        mailbox_init(&s->outbox, sizeof(struct service_event), max_events) != STATUS_OK ||
        !(s->sched = sched_open(&sched, engine_kv(engine), err))) {
        err_set(err, STATUS_NOMEM, "out of memory for the queues of %zu requests", max_live);
        goto fail;
    }
    if (config->record &&
        !(s->record = record_open(config->record, &sched, config->max_chunk, engine_kv(engine), err)))
        goto fail;
    if (config->trace && !(s->trace = trace_open(config->trace, err)))
        goto fail;
    s->inside.sched = s->sched;
    s->inside.kv = engine_kv(engine);
    engine_notify_masks(engine, wake_up, s);
    predict_open(&s->predictor);
    s->inside.predictor = &s->predictor;
    s->inside.pace = &s->pace;
    s->inside.stats = &s->stats;
    publish_stats(s);
    if (pthread_create(&s->thread, NULL, service_run, s) != 0) {
        err_set(err, STATUS_NOMEM, "cannot start the engine thread");
        goto fail;
    }
    return s;

fail:
    service_free(s);
    return NULL;
}

enum status service_submit(struct service *s, struct request *r, struct err *err) {
    const struct sched_config *c = &s->config.sched;
    const struct kv_cache *kv = engine_kv(s->engine); // its sizes never change
    if (atomic_load(&s->stopping))
        return err_set(err, STATUS_STOPPING, "the server is shutting down");
    if (atomic_load(&s->dead))
        return err_set(err, STATUS_DEVICE, "the engine has failed");
    enum status status = sched_admissible(c, &kv->config, r->num_prompt, r->max_tokens - r->num_prompt, err);
    if (status != STATUS_OK)
        return status;
    if (atomic_load(&s->live) >= c->max_running + c->max_waiting)
        return err_set(err, STATUS_LIMIT, "the queue is full: %d requests", c->max_running + c->max_waiting);
    if (atomic_load(&s->queued) > 0 &&
        atomic_load(&s->queued_tokens) + r->num_prompt > (long long)c->max_waiting_tokens)
        return err_set(err, STATUS_LIMIT, "the queue is full: %lld prompt tokens are waiting",
                       (long long)atomic_load(&s->queued_tokens));
    int vocab = engine_info(s->engine)->model.vocab; // there are no more log-probabilities than tokens
    r->sampling.logprobs = r->sampling.logprobs < vocab ? r->sampling.logprobs : vocab;
    r->sampling.num_prompt_logprobs =
        r->sampling.num_prompt_logprobs < vocab ? r->sampling.num_prompt_logprobs : vocab;
    r->time_submitted = now_ns();
    if (atomic_fetch_add(&s->live, 1) == 0)
        atomic_store(&s->busy_since, r->time_submitted);
    atomic_fetch_add(&s->queued, 1);
    atomic_fetch_add(&s->queued_tokens, r->num_prompt);
    CHECK(mailbox_try_put(&s->inbox, &(struct letter){.request = r})); // it has room for every live request
    return STATUS_OK;
}

void service_cancel(struct service *s, uint64_t id, enum finish_reason why) {
    pthread_mutex_lock(&s->cancel_lock);
    if (!id_map_get(&s->cancelled, id) && s->num_cancels < s->max_cancels) {
        struct cancel *c = &s->cancels[s->num_cancels++];
        *c = (struct cancel){.id = id, .when = now_ns(), .why = why};
        id_map_put(&s->cancelled, id, c);
    }
    pthread_mutex_unlock(&s->cancel_lock);
    mailbox_wake(&s->inbox); // an engine may be idle because all masks are late
}

int service_take(struct service *s, struct service_event *events, int max) {
    return (int)mailbox_take(&s->outbox, events, (size_t)max);
}

enum status service_ask(struct service *s, struct service_query *q) {
    if (atomic_fetch_add(&s->asked, 1) >= SERVICE_QUERIES) {
        atomic_fetch_sub(&s->asked, 1);
        return STATUS_LIMIT;
    }
    CHECK(mailbox_try_put(&s->inbox, &(struct letter){.query = q})); // it has room for these, too
    return STATUS_OK;
}

void service_answer(struct service *s) {
    struct service_query *q;
    while (mailbox_take(&s->answers, &q, 1) == 1) {
        atomic_fetch_sub(&s->asked, 1);
        q->done(q);
    }
}

bool service_wait(struct service *s, int64_t timeout_ns) { return mailbox_wait(&s->outbox, timeout_ns); }

void service_stats(struct service *s, struct service_stats *out) {
    pthread_mutex_lock(&s->stats_lock);
    *out = s->stats_out;
    pthread_mutex_unlock(&s->stats_lock);
    // What was submitted since the snapshot counts as waiting, so that a scrape never misses a request.
    int live = atomic_load(&s->live);
    if (live > out->running + out->waiting)
        out->waiting = live - out->running;
    out->dead |= atomic_load(&s->dead);
    out->busy |= live > 0 && !out->dead;
    out->expected_ns = atomic_load(&s->expected_ns);
    int64_t since = atomic_load(&s->busy_since);
    if (out->last_progress < since)
        out->last_progress = since; // idle time is not a stall
}

void service_close(struct service *s) {
    if (!s)
        return;
    atomic_store(&s->stopping, true);
    mailbox_close(&s->inbox);
    mailbox_close(&s->outbox);
    pthread_join(s->thread, NULL);
    service_answer(s); // all that were asked: the thread has emptied the inbox
    service_free(s);
}
