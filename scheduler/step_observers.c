#include "step_observers.h"

#include "clock.h"

#include <stdlib.h>
#include <string.h>

bool observers_open(struct step_observers *o, const struct service_config *config,
                    const struct sched_config *sched_config, struct scheduler *sched, struct kv_cache *kv,
                    struct err *err) {
    int depth = sched_config->depth > 0 ? sched_config->depth : 1;
    *o = (struct step_observers){
        .depth = depth,
        .pace = {.target_ns = depth == 1 ? config->target_itl_ns : 0, .max_chunk = config->max_chunk},
        .inside = {.sched = sched,
                   .kv = kv,
                   .predictor = &o->predictor,
                   .pace = &o->pace,
                   .stats = &o->stats,
                   .past = calloc(PROMPT_PAST, sizeof *o->inside.past),
                   .past_tokens = calloc((size_t)PROMPT_PAST * (size_t)kv->config.block_size,
                                         sizeof *o->inside.past_tokens)}};
    predict_open(&o->predictor);
    if (!o->inside.past || !o->inside.past_tokens) {
        err_set(err, STATUS_NOMEM, "out of memory for the prompts of %d requests", PROMPT_PAST);
        return false;
    }
    if (config->record &&
        !(o->record = record_open(config->record, sched_config, config->max_chunk, kv, err)))
        return false;
    return !config->trace || (o->trace = trace_open(config->trace, err));
}

void observers_close(struct step_observers *o) {
    record_close(o->record);
    trace_close(o->trace);
    free(o->inside.past);
    free(o->inside.past_tokens);
}

static void count_time(struct time_counts *c, int64_t ns) {
    int bucket = 0;
    while (bucket < TIME_BUCKETS - 1 && ns > time_bucket_bounds[bucket] * 1000LL)
        bucket++;
    c->buckets[bucket]++;
    c->ns += (uint64_t)ns;
}

// ---- a request

void observe_arrival(struct step_observers *o, struct request *r) {
    struct kv_cache *kv = o->inside.kv;
    int64_t queue;
    if (!request_needs_all_rows(r)) {
        struct kv_hash root = kv_root(kv, r->salt, (size_t)r->num_salt);
        r->expect_cached = kv_match(kv, &r->seq, root, r->tokens, r->num_prompt - 1);
        kv_unmatch(kv, &r->seq);
    }
    r->predicted_ns = predict_first_token(&o->predictor, &o->pace, o->inside.sched, r->num_prompt,
                                          r->expect_cached, r->priority, &queue);
    if (r->predicted_ns >= 0)
        r->predicted_ns += clock_now_ns() - r->time_submitted;
}

void observe_start(struct step_observers *o, struct request *r) {
    inside_remember(&o->inside, r);
    o->stats.prompt_tokens += (uint64_t)r->num_prompt;
}

void observe_finish(struct step_observers *o, const struct request *r, const struct service_event *finish) {
    if (finish->finish == FINISH_STOP || finish->finish == FINISH_LENGTH)
        predict_add_request(&o->predictor, finish->num_output, finish->finish == FINISH_LENGTH);
    if (r->time_cancelled)
        count_time(&o->stats.cancels, finish->time_finished - r->time_cancelled);
    trace_finish(o->trace, finish);
}

// ---- a step

// With plans in flight it may have preempted a request and still plan nothing.
void observe_plan(struct step_observers *o, const struct plan *plan, int max_chunk, bool in_flight) {
    if (plan || in_flight)
        record_plan(o->record, plan, max_chunk);
}

static void count_step(struct service_stats *stats, const struct step_result *result) {
    const struct plan *plan = result->plan;
    const struct expert_counts *experts = &result->out->experts;
    int bucket = 0;
    while (bucket < STEP_BUCKETS - 1 && plan->num_tokens > step_bucket_bounds[bucket])
        bucket++;
    stats->steps++;
    stats->step_buckets[bucket]++;
    stats->step_tokens_sum += (uint64_t)plan->num_tokens;
    if (result->masks_ns > 0)
        count_time(&stats->masks, result->masks_ns);
    stats->experts.rows += experts->rows;
    stats->experts.reads += experts->reads;
    stats->experts.busiest += experts->busiest;
    for (int i = 0; i < plan->num_items; i++)
        stats->corrupted += result->outcome.failed[i] == ITEM_NOT_FINITE;
}

void observe_computed(struct step_observers *o, const struct step_result *result, struct drafting *drafting) {
    const struct plan *plan = result->plan;
    o->step = (struct trace_step){.plan = *plan,
                                  .lane = (int)(plan->id % (uint64_t)o->depth),
                                  .began = result->times.began,
                                  .planned = result->times.launched,
                                  .computed = clock_now_ns()};
    o->shape = predict_shape(plan);
    o->generated = o->stats.generation_tokens;
    int64_t took = o->step.computed - o->step.planned;
    record_outcome(o->record, plan, &result->outcome);
    if (!drafting_measure(drafting, plan, &result->outcome, took))
        pace_add(&o->pace, plan->num_decode, plan->num_tokens - plan->num_decode, took);
    count_step(&o->stats, result);
}

// Predictions count the time since the step before: what lies between two steps delays a first token, too.
void observe_applied(struct step_observers *o, int64_t drafted) {
    struct trace_step *step = &o->step;
    step->applied = clock_now_ns();
    predict_add_step(&o->predictor, &o->shape,
                     step->applied - (o->last_applied ? o->last_applied : step->began));
    o->last_applied = step->applied;
    o->inside.steps[o->inside.num_steps++ % VIEW_STEPS] =
        (struct view_step){.id = step->plan.id,
                           .began = step->began,
                           .launched = step->planned,
                           .computed = step->computed,
                           .applied = step->applied,
                           .num_requests = step->plan.num_items,
                           .num_decode = step->plan.num_decode,
                           .num_tokens = step->plan.num_tokens,
                           .num_generated = (int)(o->stats.generation_tokens - o->generated)};
    o->stats.part_ns[0] += (uint64_t)(step->planned - step->began);
    o->stats.part_ns[1] += (uint64_t)(step->computed - step->planned);
    o->stats.part_ns[2] += (uint64_t)(step->applied - step->computed - drafted);
    o->stats.part_ns[3] += (uint64_t)drafted;
    if (o->trace) {
        struct sched_stats stats;
        sched_stats(o->inside.sched, &stats);
        trace_step(o->trace, step, o->inside.kv, &stats);
    }
}

void observe_idle(struct step_observers *o, int64_t when) {
    o->last_applied = 0;
    if (o->trace) {
        struct sched_stats stats;
        sched_stats(o->inside.sched, &stats);
        trace_idle(o->trace, when, o->inside.kv, &stats);
    }
}

// ---- the counters

void observe_stats(struct step_observers *o, bool dead) {
    struct service_stats *st = &o->stats;
    const struct kv_cache *kv = o->inside.kv;
    struct sched_stats sched;
    sched_stats(o->inside.sched, &sched);
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
    st->last_progress = clock_now_ns();
    st->dead = dead;
    st->busy = !dead && !sched_idle(o->inside.sched);
}
