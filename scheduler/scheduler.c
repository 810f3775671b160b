// The scheduler: requests come, steps end, requests leave. policy.c plans the steps. README.md has the rules
// by number (S1-S18) and the proof that what is admitted ends. Pure: it calls only the KV cache.
#include "scheduler_state.h"

#include "log.h"
#include "minmax.h"

#include <stdlib.h>

// ---- start and end

struct scheduler *sched_open(const struct sched_config *config, struct kv_cache *kv, struct err *err) {
    int depth = config->depth > 0 ? config->depth : 1;
    if (config->max_running < 1 || config->max_step_tokens < config->max_running || config->max_waiting < 1 ||
        config->max_waiting_tokens < 1 || config->max_model_len < 1 || depth > PLAN_MAX_DEPTH ||
        (config->whole && config->max_model_len > config->max_step_tokens) ||
        (kv->has_window && kv->config.max_ahead < depth * config->max_step_tokens)) {
        err_set(err, STATUS_INVALID, "a scheduler of these sizes can plan nothing");
        return NULL;
    }
    size_t num_moves =
        kv->has_state ? (size_t)(config->max_running * kv->config.num_groups * KV_SEQ_MOVES) : 1;
    struct scheduler *s = calloc(1, sizeof *s);
    if (s) {
        *s = (struct scheduler){.config = *config, .kv = kv, .next_plan = 1, .next_resolve = 1};
        s->config.depth = depth;
    }
    for (int i = 0; s && i < PLAN_MAX_DEPTH; i++)
        if (!(s->plans[i].items = calloc((size_t)config->max_running, sizeof *s->plans[i].items)) ||
            !(s->plans[i].moves = calloc(num_moves, sizeof *s->plans[i].moves))) {
            sched_close(s);
            s = NULL;
        }
    if (!s)
        err_set(err, STATUS_NOMEM, "out of memory for plans of %d requests", config->max_running);
    return s;
}

void sched_close(struct scheduler *s) {
    for (int i = 0; s && i < PLAN_MAX_DEPTH; i++) {
        free(s->plans[i].items);
        free(s->plans[i].moves);
    }
    free(s);
}

enum status sched_admissible(const struct sched_config *config, const struct kv_config *kv, int num_prompt,
                             int max_output, struct err *err) {
    if (num_prompt < 1 || max_output < 0)
        return err_set(err, STATUS_INVALID, "a request needs at least one prompt token");
    int64_t total = (int64_t)num_prompt + max_output;
    if (total > config->max_model_len)
        return err_set(err, STATUS_INVALID,
                       "%d prompt tokens and %d output tokens exceed the context length of %d", num_prompt,
                       max_output, config->max_model_len);
    int64_t blocks = kv_pages(kv, (int)(max_output > 0 ? total - 1 : total));
    if (blocks > kv->num_blocks)
        return err_set(
            err, STATUS_INVALID,
            "%d prompt tokens and %d output tokens need %lld cache blocks of %d tokens; there are %d",
            num_prompt, max_output, (long long)blocks, kv->block_size, kv->num_blocks);
    return STATUS_OK;
}

enum status sched_takes_spans(const struct sched_config *config, const struct request *r, struct err *err) {
    if (r->embeds && config->embed_size == 0)
        return err_set(err, STATUS_INVALID, "requests may bring no embeddings here");
    if (r->embeds && r->embed_size != config->embed_size)
        return err_set(err, STATUS_INVALID, "embeddings of %d values; the model's have %d", r->embed_size,
                       config->embed_size);
    for (int i = 0; i < r->seq.num_spans; i++) {
        const struct kv_span *span = &r->seq.spans[i];
        if (span->grid[0] > 0 && !config->has_axes)
            return err_set(err, STATUS_INVALID,
                           "a span of %d by %d by %d rows; the model rotates by one axis, so that spans have "
                           "no grids here",
                           span->grid[0], span->grid[1], span->grid[2]);
        int most = config->max_step_tokens - config->max_running + 1, end = span->first + span->len;
        if (span->whole && span->len > most)
            return err_set(err, STATUS_INVALID,
                           "a span of %d tokens has to be computed in one step, which has room for %d beside "
                           "%d requests that decode",
                           span->len, most, config->max_running - 1);
        if (span->whole && end > sched_compute_end(r))
            return err_set(err, STATUS_INVALID,
                           "the last span of the prompt has to be computed whole, but log-probabilities of a "
                           "prompt alone need no row of its last token");
    }
    return STATUS_OK;
}

enum status sched_add(struct scheduler *s, struct request *r) {
    const struct sched_config *c = &s->config;
    CHECK(r->state == REQUEST_NEW);
    enum status status =
        sched_admissible(c, &s->kv->config, r->num_prompt, r->max_tokens - r->num_prompt, NULL);
    if (status == STATUS_OK && r->seq.num_spans > 0)
        status = sched_takes_spans(c, r, NULL);
    if (status != STATUS_OK)
        return status;
    if (s->waiting.len >= c->max_waiting ||
        (s->waiting.len > 0 && s->waiting_tokens + r->num_tokens > c->max_waiting_tokens))
        return STATUS_LIMIT;
    r->arrival = s->next_arrival++;
    r->root = kv_root(s->kv, r->salt, (size_t)r->num_salt);
    sched_enter_waiting(s, r);
    return STATUS_OK;
}

bool sched_idle(const struct scheduler *s) {
    return s->waiting.len == 0 && s->running.len == 0 && s->next_plan == s->next_resolve;
}

int sched_num_late(const struct scheduler *s) { return s->num_late; }

void sched_ready(struct scheduler *s, struct request *r) {
    s->num_late -= r->late;
    r->late = false;
}

// Requests at the head of the queue that are asked for: pages that come too early are evicted before they are of use.
enum { FETCH_AHEAD = 8 };

struct request *sched_to_fetch(struct scheduler *s) {
    struct request *r = s->kv->config.share ? s->waiting.head : NULL;
    for (int i = 0; r && i < FETCH_AHEAD; r = r->next, i++)
        if (!r->asked && !r->late && !request_needs_all_rows(r)) {
            r->asked = true;
            return r;
        }
    return NULL;
}

void sched_hold(struct scheduler *s, struct request *r) {
    CHECK(r->state == REQUEST_WAITING && !r->late);
    r->late = true;
    s->num_late++;
}

// ---- what a step gave

// Takes a request out of the queues for good. True: no plan names it, its blocks are back (S11).
static bool leave_queues(struct scheduler *s, struct request *r, enum finish_reason why) {
    sched_ready(s, r);
    if (r->state == REQUEST_RUNNING)
        sched_list_remove(&s->running, r);
    if (r->state == REQUEST_WAITING)
        sched_leave_waiting(s, r);
    r->state = REQUEST_FINISHED;
    r->finish = why;
    if (r->num_in_flight > 0) {
        sched_list_append(&s->draining, r);
        return false;
    }
    kv_release(s->kv, &r->seq);
    return true;
}

// Ends a request by what its item gave; `token` is -1 where there is none. Without a token to report, and
// with later plans that name it, there is no event yet.
static int end_request(struct scheduler *s, struct request *r, int item, token_id token,
                       enum finish_reason why, struct token_event *event) {
    r->num_tokens -= r->num_pending;
    r->num_pending = 0;
    bool left = leave_queues(s, r, why);
    *event = (struct token_event){.req = r, .item = item, .token = token, .finish = left ? why : FINISH_NONE};
    return left || token >= 0;
}

// Publishes what is both computed and known (rule 2 of the cache, S6), and gives back what no later step reads.
static void publish_blocks(struct scheduler *s, struct request *r) {
    int hashed = r->seq.num_hashed;
    kv_publish(s->kv, &r->seq, r->root, r->tokens, r->num_resolved);
    kv_trim(s->kv, &r->seq, r->num_resolved);
    if (!r->has_next_hash || r->seq.num_hashed != hashed || s->kv->has_state)
        sched_update_next_hash(s, r);
}

// S12: one sampled token; why the request ends with it, or FINISH_NONE.
static enum finish_reason resolve_token(struct request *r, int pos, token_id token) {
    r->tokens[pos] = token;
    token_counts_add(&r->counts, token);
    if (pos >= r->min_tokens && request_is_stop(r, token))
        return FINISH_STOP;
    return pos + 1 == r->max_tokens ? FINISH_LENGTH : FINISH_NONE;
}

// Applies the outcome of item i of a plan to its request, which still runs. Returns the number of events.
static int resolve_item(struct scheduler *s, const struct plan_item *it, int i, const struct outcome *out,
                        struct token_event *events) {
    struct request *r = it->req;
    const token_id *tokens = out->tokens + out->start[i];
    int n = out->start[i + 1] - out->start[i], end = it->first + it->num_new - it->num_drafts;
    CHECK(it->needs_token ? n >= 1 && n <= 1 + it->num_drafts : n == 0);
    r->num_resolved = end;
    if (it->wants_prompt_logprobs)
        r->num_prompt_logprobs = min_int(end, r->num_prompt - 1);
    if (!it->needs_token) {
        publish_blocks(s, r);
        if (end < sched_compute_end(r))
            return 0;
        return end_request(s, r, i, -1, r->pooling == POOLING_NONE ? FINISH_LENGTH : FINISH_STOP, events);
    }
    r->num_pending -= 1 + it->num_drafts;
    if (it->num_drafts > 0) { // S15: no later plan names it
        CHECK(r->num_pending == 0);
        r->num_tokens = end + n;
        r->num_computed = r->num_resolved = end + n - 1;
        if (n < 1 + it->num_drafts && s->kv->has_state) // states hold no more than their last token
            r->num_computed = r->num_resolved = kv_rollback(s->kv, &r->seq);
        s->stats.drafts += (uint64_t)it->num_drafts;
        s->stats.accepted += (uint64_t)(n - 1);
        s->stats.verified++;
        for (int j = 0; j < n - 1; j++)
            s->stats.accepted_at[j]++;
    }
    for (int j = 0; j < n; j++) {
        enum finish_reason why = resolve_token(r, end + j, tokens[j]);
        if (why != FINISH_NONE) {
            r->num_tokens = end + j + 1 + r->num_pending;
            r->num_resolved = min_int(r->num_resolved, end + j);
            publish_blocks(s, r);
            int num = end_request(s, r, i, tokens[j], why, &events[j]);
            events[j].index = j;
            return j + num;
        }
        events[j] = (struct token_event){.req = r, .item = i, .index = j, .token = tokens[j]};
    }
    publish_blocks(s, r);
    return n;
}

// S16: what the item sampled is no token, so its row has to be computed again, when the mask is there. All before it stays.
static void resolve_late(struct scheduler *s, const struct plan_item *it) {
    struct request *r = it->req;
    int end = it->first + it->num_new - it->num_drafts;
    CHECK(it->needs_token && request_sees_tokens(r) && r->num_pending == 1 + it->num_drafts);
    if (it->wants_prompt_logprobs)
        r->num_prompt_logprobs = min_int(end, r->num_prompt - 1);
    r->late = true;
    s->num_late++;
    r->num_tokens = end;
    r->num_pending = 0;
    bool over = s->kv->has_state && it->num_drafts == 0; // no state of before the row is left
    r->num_computed = r->num_resolved = over ? end : s->kv->has_state ? kv_rollback(s->kv, &r->seq) : end - 1;
    publish_blocks(s, r);
    if (over)
        sched_start_over(s, r);
}

int sched_update(struct scheduler *s, uint64_t plan_id, const struct outcome *out,
                 struct token_event *events) {
    CHECK(plan_id == s->next_resolve && plan_id < s->next_plan);
    const struct plan *p = &s->plans[plan_id % PLAN_MAX_DEPTH];
    int n = 0;
    for (int i = 0; i < p->num_items; i++) {
        struct request *r = p->items[i].req;
        r->num_in_flight--;
        if (r->state == REQUEST_FINISHED) {
            if (r->num_in_flight == 0) {
                sched_list_remove(&s->draining, r);
                kv_release(s->kv, &r->seq);
                events[n++] = (struct token_event){.req = r, .item = -1, .token = -1, .finish = r->finish};
            }
        } else if (out->failed[i] == ITEM_LATE) {
            resolve_late(s, &p->items[i]);
        } else if (out->failed[i]) {
            enum finish_reason why = out->failed[i] == ITEM_FORBIDDEN ? FINISH_FORBIDDEN
                                     : out->failed[i] == ITEM_LIMIT   ? FINISH_LIMIT
                                                                      : FINISH_ERROR;
            n += end_request(s, r, i, -1, why, &events[n]);
        } else {
            n += resolve_item(s, &p->items[i], i, out, &events[n]);
        }
    }
    s->next_resolve++;
    return n;
}

bool sched_remove(struct scheduler *s, struct request *r, enum finish_reason why) {
    CHECK(why != FINISH_NONE);
    if (r->state == REQUEST_FINISHED)
        return r->num_in_flight == 0;
    return leave_queues(s, r, why);
}

void sched_abandon(struct scheduler *s, void (*left)(void *arg, struct request *r), void *arg) {
    struct request_list *lists[] = {&s->draining, &s->running, &s->waiting};
    for (int i = 0; i < 3; i++)
        for (struct request *r; (r = lists[i]->head);) {
            sched_list_remove(lists[i], r);
            if (r->state != REQUEST_FINISHED)
                r->finish = FINISH_ERROR;
            r->state = REQUEST_FINISHED;
            r->num_tokens -= r->num_pending;
            r->num_pending = 0;
            left(arg, r);
        }
    s->waiting_tokens = 0;
    s->num_late = 0;
    s->next_resolve = s->next_plan;
}

struct request *sched_any(const struct scheduler *s) {
    return s->running.head ? s->running.head : s->waiting.head;
}

void sched_stats(const struct scheduler *s, struct sched_stats *out) {
    *out = s->stats;
    out->running = s->running.len;
    out->waiting = s->waiting.len;
    out->waiting_tokens = s->waiting_tokens;
}
