// The engine thread: drains the inbox, plans a step, launches it, and when as many are in flight as may be,
// or there is nothing more to plan, collects the oldest and sends events; sleeps when there is nothing to do.
//
// Shared between threads: the mailboxes, the cancel list and the statistics (each under its own lock), and
// the counts of what is live (atomic). All else belongs to the engine thread.
#include "service.h"

#include "cache_log.h"
#include "clock.h"
#include "drafting.h"
#include "engine_view.h"
#include "id_map.h"
#include "log.h"
#include "mailbox.h"
#include "step_observers.h"
#include "tiers.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct cancel {
    uint64_t id;
    int64_t when;
    enum finish_reason why;
};

struct inbox_message { // one of them
    struct request *request;
    struct service_query *query;
};

struct service {
    struct engine *engine;
    struct service_config config;
    int depth; // steps in flight at most
    struct scheduler *sched;
    struct drafting drafting;
    struct step_observers observers;
    struct tiers *tiers; // NULL: there is no store
    struct cache_log log;
    pthread_t thread;
    struct mailbox inbox;       // struct inbox_message
    struct mailbox outbox;      // struct service_event
    struct mailbox answers;     // struct service_query *, answered
    struct id_map requests;     // of the scheduler, by id; engine thread only
    struct token_event *events; // (sched_max_events()) engine thread's scratch

    pthread_mutex_t cancel_lock;
    struct cancel *cancels, *cancels_taken; // (max_cancels) filled by callers; copied by the engine thread
    struct id_map cancelled;                // ids in cancels
    int num_cancels, max_cancels;

    pthread_mutex_t stats_lock;
    struct service_stats stats_out; // a snapshot of the observers'

    atomic_int live;            // requests whose EVENT_FINISH has not been put
    atomic_int queued;          // of those, the ones that never ran
    atomic_llong queued_tokens; // their prompts
    atomic_llong busy_since;    // monotonic ns of the last submission that found nothing live
    atomic_llong expected_ns;   // predicted time of the steps in flight
    atomic_int asked;           // queries whose done() has not been called
    atomic_bool stopping, dead;
};

// ---- events

static void put_event(struct service *s, const struct service_event *event) {
    if (mailbox_try_put(&s->outbox, event))
        return;
    // The reader is behind: wake it and wait. It never waits for us, so this ends.
    if (s->config.notify)
        s->config.notify(s->config.notify_arg);
    if (!mailbox_put(&s->outbox, event))
        free(event->vector); // no receiver is left
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
        .time_finished = clock_now_ns(),
        .predicted_ns = r->predicted_ns,
    };
    if (why == FINISH_STOP) {
        event.vector = r->vector;
        r->vector = NULL;
    }
    if (!r->time_scheduled)
        leave_queue(s, r, 0);
    observe_finish(&s->observers, r, &event);
    id_map_remove(&s->requests, r->id);
    drafting_drop(&s->drafting, r);
    engine_forget(s->engine, r);
    tiers_forget(s->tiers, r);
    request_free(r);
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
                                  .time_finished = clock_now_ns(),
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
        record_remove(s->observers.record, r->id, why);
    if (sched_remove(s->sched, r, why))
        put_finish(s, r, why);
}

static void drain_inbox(struct service *s) {
    struct inbox_message message;
    struct request *r;
    // Cancels first, then the inbox, which holds the requests of all of them: none is looked for too early.
    pthread_mutex_lock(&s->cancel_lock);
    int n = s->num_cancels;
    memcpy(s->cancels_taken, s->cancels, (size_t)n * sizeof *s->cancels);
    for (int i = 0; i < n; i++)
        id_map_remove(&s->cancelled, s->cancels[i].id);
    s->num_cancels = 0;
    pthread_mutex_unlock(&s->cancel_lock);
    while (mailbox_take(&s->inbox, &message, 1) == 1) {
        if (message.query) {
            s->observers.inside.now = clock_now_ns();
            message.query->run(message.query, &s->observers.inside);
            CHECK(mailbox_try_put(&s->answers, &message.query)); // it has room for all
            continue;
        }
        r = message.request;
        observe_arrival(&s->observers, r);
        if (atomic_load(&s->dead) || sched_add(s->sched, r) != STATUS_OK) {
            put_finish(s, r, FINISH_ERROR); // service_submit() refused inadmissible ones
            continue;
        }
        id_map_put(&s->requests, r->id, r);
        record_add(s->observers.record, r);
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
        record_ready(s->observers.record, r->id);
        sched_ready(s->sched, r);
    }
}

static void on_cache_change(void *arg, enum kv_change change, block_id id) {
    struct service *s = arg;
    tiers_note(s->tiers, change, id);
    cache_log_note(&s->log, change, id);
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
    observe_stats(&s->observers, atomic_load(&s->dead));
    tiers_counts(s->tiers, &s->observers.stats.tiers, &s->observers.stats.store);
    pthread_mutex_lock(&s->stats_lock);
    s->stats_out = s->observers.stats;
    pthread_mutex_unlock(&s->stats_lock);
}

static void put_prompt_logprobs(struct service *s, const struct step_result *result) {
    const struct plan *plan = result->plan;
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
    s->observers.stats.generation_tokens++;
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
static void put_outcome(struct service *s, const struct step_result *result, int n) {
    const struct plan *plan = result->plan;
    int64_t now = clock_now_ns();
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
    int64_t now = clock_now_ns();
    for (int i = 0; i < plan->num_items; i++) {
        struct request *r = plan->items[i].req;
        if (!r->time_scheduled) {
            leave_queue(s, r, now);
            observe_start(&s->observers, r);
            tiers_count_start(s->tiers, r);
        }
    }
    int64_t expected = pace_expect(&s->observers.pace, plan->num_decode, plan->num_tokens - plan->num_decode);
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
    atomic_fetch_sub(&s->expected_ns, result.times.expected);
    observe_computed(&s->observers, &result, &s->drafting);
    put_prompt_logprobs(s, &result);
    draft_model_keep(&result);
    int n = sched_update(s->sched, result.plan->id, &result.outcome, s->events);
    put_outcome(s, &result, n);
    int64_t drafted = drafting_take(&s->drafting, sched_num_decoding(s->sched), s->observers.record);
    observe_applied(&s->observers, drafted);
}

// NULL: nothing to plan, or no room for one more.
static const struct plan *next_plan(struct service *s) {
    if (atomic_load(&s->dead) || num_in_flight(s) == s->depth)
        return NULL;
    int chunk = pace_chunk(&s->observers.pace, sched_num_decoding(s->sched));
    const struct plan *plan = sched_step(s->sched, chunk);
    observe_plan(&s->observers, plan, chunk, num_in_flight(s) > 0);
    return plan;
}

// Longest an idle engine thread may sleep; -1: no limit.
static int64_t watch_ns(const struct service *s) {
    int64_t engine = engine_watch_ns(s->engine), tiers = tiers_watch_ns(s->tiers);
    return engine < 0 || (tiers >= 0 && tiers < engine) ? tiers : engine;
}

static void *service_run(void *arg) {
    struct service *s = arg;
    while (!atomic_load(&s->stopping)) {
        struct err err = {0};
        if (num_in_flight(s) == 0 && !atomic_load(&s->dead) && engine_alive(s->engine, &err) != STATUS_OK)
            fail_engine(s, &err);
        int64_t began = clock_now_ns();
        engine_kv(s->engine)->clock = (uint32_t)(began / VIEW_CLOCK_NS);
        drain_inbox(s);
        take_ready(s);
        if (!atomic_load(&s->dead))
            tiers_pump(s->tiers);
        began = clock_now_ns();
        const struct plan *plan = next_plan(s);
        if (plan)
            launch_step(s, plan, began);
        if (plan && num_in_flight(s) < s->depth)
            continue; // one more may be planned before the first has ended
        bool idle = num_in_flight(s) == 0;
        if (!idle)
            finish_step(s);
        // With no step in flight every plan has a request, so no request is left, or masks or pages are awaited. After a
        // device failure no plan is made.
        CHECK(!idle || atomic_load(&s->dead) || sched_idle(s->sched) || sched_num_late(s->sched) > 0);
        publish_stats(s);
        if (s->config.notify)
            s->config.notify(s->config.notify_arg);
        if (idle) {
            observe_idle(&s->observers, began);
            mailbox_wait(&s->inbox, watch_ns(s));
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
    engine_kv(s->engine)->watch = NULL;
    tiers_close(s->tiers, !atomic_load(&s->dead));
    cache_log_free(&s->log);
    observers_close(&s->observers);
    sched_close(s->sched);
    mailbox_destroy(&s->inbox);
    mailbox_destroy(&s->outbox);
    mailbox_destroy(&s->answers);
    id_map_close(&s->requests);
    id_map_close(&s->cancelled);
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
    // A caller cancels only what it has not seen end: live, or with its last event still in the outbox.
    s->max_cancels = (int)(max_live + max_events);
    s->cancels = calloc((size_t)s->max_cancels, sizeof *s->cancels);
    s->cancels_taken = calloc((size_t)s->max_cancels, sizeof *s->cancels_taken);
    s->events = calloc((size_t)sched_max_events(c->max_running), sizeof *s->events);
    if (!s->cancels || !s->cancels_taken || !s->events ||
        !drafting_init(&s->drafting, engine, c->max_running, config->all_drafts) ||
        !id_map_open(&s->requests, max_live) || !id_map_open(&s->cancelled, (size_t)s->max_cancels) ||
        mailbox_init(&s->inbox, sizeof(struct inbox_message), max_live + SERVICE_QUERIES) != STATUS_OK ||
        mailbox_init(&s->answers, sizeof(struct service_query *), SERVICE_QUERIES) != STATUS_OK ||
        mailbox_init(&s->outbox, sizeof(struct service_event), max_events) != STATUS_OK ||
        !(s->sched = sched_open(&sched, engine_kv(engine), err))) {
        err_set(err, STATUS_NOMEM, "out of memory for the queues of %zu requests", max_live);
        goto fail;
    }
    if (!observers_open(&s->observers, config, &sched, s->sched, engine_kv(engine), err))
        goto fail;
    s->tiers = tiers_open(engine, s->sched, config->kv_role, config->kv_store_private, s->observers.record,
                          wake_up, s, err);
    if (engine_store(engine) && !s->tiers)
        goto fail;
    s->observers.inside.tiers = s->tiers;
    s->observers.inside.log = &s->log;
    s->log.kv = engine_kv(engine);
    s->log.kv->watch = on_cache_change;
    s->log.kv->watch_arg = s;
    engine_notify_masks(engine, wake_up, s);
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
    if (status == STATUS_OK)
        status = sched_takes_spans(c, r, err);
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
    r->time_submitted = clock_now_ns();
    if (atomic_fetch_add(&s->live, 1) == 0)
        atomic_store(&s->busy_since, r->time_submitted);
    atomic_fetch_add(&s->queued, 1);
    atomic_fetch_add(&s->queued_tokens, r->num_prompt);
    CHECK(mailbox_try_put(&s->inbox,
                          &(struct inbox_message){.request = r})); // it has room for every live request
    return STATUS_OK;
}

void service_cancel(struct service *s, uint64_t id, enum finish_reason why) {
    pthread_mutex_lock(&s->cancel_lock);
    if (!id_map_get(&s->cancelled, id) && s->num_cancels < s->max_cancels) {
        struct cancel *c = &s->cancels[s->num_cancels++];
        *c = (struct cancel){.id = id, .when = clock_now_ns(), .why = why};
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
    CHECK(mailbox_try_put(&s->inbox, &(struct inbox_message){.query = q})); // it has room for these, too
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
    // Requests submitted since the snapshot count as waiting, so that a scrape never misses one.
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
