#include "draft_model.h"

#include "clock.h"
#include "log.h"

#include <stdlib.h>
#include <string.h>

bool draft_model_init(struct draft_model *m, struct engine *engine, int max_running) {
    *m = (struct draft_model){.engine = engine, .max_running = max_running};
    if (!engine)
        return true;
    m->plan.items = calloc((size_t)max_running, sizeof *m->plan.items);
    m->held = calloc((size_t)max_running, sizeof *m->held);
    return m->plan.items && m->held;
}

void draft_model_free(struct draft_model *m) {
    free(m->plan.items);
    free(m->held);
}

// ---- the copy of a request

static void give_back(struct draft_model *m, int i) {
    struct request *copy = m->held[i]->draft;
    kv_release(engine_kv(m->engine), &copy->seq);
    copy->state = REQUEST_WAITING;
    copy->num_computed = 0;
    m->held[i] = m->held[--m->num_held];
}

void draft_model_drop(struct draft_model *m, struct request *r) {
    for (int i = 0; i < m->num_held; i++)
        if (m->held[i] == r) {
            give_back(m, i);
            return;
        }
}

// Gives back the copies of requests that were preempted.
static void give_back_waiting(struct draft_model *m) {
    for (int i = m->num_held - 1; i >= 0; i--)
        if (m->held[i]->state != REQUEST_RUNNING)
            give_back(m, i);
}

// Keeps a row of a step beside token `position` of the request.
static void keep_row(const struct request *copy, int position, const struct step_out *out, int row) {
    memcpy(request_mtp_row(copy, position), out->hidden + (size_t)row * (size_t)copy->mtp_size,
           (size_t)copy->mtp_size * sizeof(float));
}

// Begins with what the cache of the draft model has of the request, in its own domain.
static void start_copy(struct draft_model *m, struct request *r) {
    struct request *copy = r->draft;
    struct kv_cache *kv = engine_kv(m->engine);
    give_back_waiting(m);
    CHECK(m->num_held < m->max_running);
    m->held[m->num_held++] = r;
    copy->state = REQUEST_RUNNING;
    copy->num_computed = copy->num_resolved = 0;
    if (copy->mtp_size > 0)
        return;
    copy->root = kv_root(kv, r->salt, (size_t)r->num_salt);
    copy->num_computed = kv_match(kv, &copy->seq, copy->root, r->tokens, r->num_tokens - 1);
    copy->num_resolved = copy->num_computed;
    memcpy(copy->tokens, r->tokens, (size_t)copy->num_computed * sizeof *copy->tokens);
}

// An MTP layer sees of a request what was sampled since it began with it, and begins again where it fell too far behind.
// Its drafts took rows of its own: it computes them again beside the model's.
static int mtp_behind(struct draft_model *m, struct request *r) {
    struct request *copy = r->draft;
    int first = r->num_tokens - MTP_ROWS;
    if (r->num_tokens == r->num_prompt)
        return 0;
    if (copy->state == REQUEST_RUNNING && copy->mtp_first + copy->num_resolved < first)
        draft_model_drop(m, r);
    if (copy->state != REQUEST_RUNNING) {
        start_copy(m, r);
        copy->mtp_first = first > r->num_prompt ? first : r->num_prompt;
    }
    copy->num_computed = copy->num_resolved;
    return r->num_tokens - copy->mtp_first - copy->num_resolved;
}

void draft_model_keep(const struct step_result *result) {
    const struct plan *plan = result->plan;
    for (int i = 0; i < plan->num_items; i++) {
        const struct plan_item *item = &plan->items[i];
        const struct request *copy = item->req->draft;
        if (!copy || copy->mtp_size == 0 || !item->needs_token)
            continue;
        int first = item->first + item->num_new - item->num_drafts,
            row = result->first_row[i + 1] - 1 - item->num_drafts;
        for (int j = 0; j < result->outcome.start[i + 1] - result->outcome.start[i]; j++)
            keep_row(copy, first + j, result->out, row + j);
    }
}

int draft_model_behind(struct draft_model *m, struct request *r) {
    struct request *copy = r->draft;
    if (!m->engine || m->failed || !copy || copy->state == REQUEST_FINISHED ||
        r->num_tokens + MAX_DRAFTS > engine_info(m->engine)->max_model_len)
        return 0;
    if (copy->mtp_size > 0)
        return mtp_behind(m, r);
    if (copy->state != REQUEST_RUNNING)
        start_copy(m, r);
    int good = copy->num_resolved; // of the drafts, those that the request took
    while (good < copy->num_computed && good < r->num_tokens - 1 && copy->tokens[good] == r->tokens[good])
        good++;
    copy->num_computed = copy->num_resolved = good;
    return r->num_tokens - good;
}

// ---- steps

// Takes part in the next step with n tokens, and samples where these are all. False: no page is left for them.
static bool add_item(struct draft_model *m, struct request *copy, int n) {
    struct plan *p = &m->plan;
    if (!kv_grow(engine_kv(m->engine), &copy->seq, copy->num_computed + n))
        return false;
    bool last = copy->num_computed + n == copy->num_tokens;
    int at = n == 1 && last ? p->num_decode++ : p->num_items;
    p->items[p->num_items++] = p->items[at];
    p->items[at] = (struct plan_item){.req = copy,
                                      .first = copy->num_computed,
                                      .num_new = n,
                                      .first_logit = last ? n - 1 : n,
                                      .needs_token = last};
    p->num_tokens += n;
    p->num_rows += last;
    copy->num_computed += n;
    return true;
}

// The first step of a copy: the tokens that it is behind, at most `most`.
static bool add_behind(struct draft_model *m, struct request *r, int most) {
    struct request *copy = r->draft;
    struct kv_cache *kv = engine_kv(m->engine);
    int vocab = engine_info(m->engine)->model.vocab;
    copy->num_tokens = r->num_tokens - copy->mtp_first;
    for (int i = copy->num_computed; i < copy->num_tokens; i++) {
        copy->tokens[i] = r->tokens[copy->mtp_first + i];
        if (copy->tokens[i] >= vocab) { // for good
            draft_model_drop(m, r);
            copy->state = REQUEST_FINISHED;
            return false;
        }
    }
    kv_publish(kv, &copy->seq, copy->root, copy->tokens, copy->num_resolved);
    kv_trim(kv, &copy->seq, copy->num_resolved);
    int behind = copy->num_tokens - copy->num_computed, n = behind < most ? behind : most;
    if (n <= 0 || !add_item(m, copy, n))
        return false;
    if (copy->mtp_size > 0)
        copy->num_resolved = copy->num_computed;
    return true;
}

// Runs the plan; appends the sampled token of each item to its copy. Returns the ns it took; -1: the device failed.
static int64_t run_step(struct draft_model *m, struct draft_length *length) {
    struct plan *p = &m->plan;
    struct step_result result;
    struct err err = {0};
    int64_t began = clock_now_ns(), ns = -1;
    p->id++;
    engine_launch(m->engine, p, NULL);
    if (engine_collect(m->engine, &result, &err) == STATUS_OK) {
        for (int i = 0; i < p->num_items; i++)
            if (p->items[i].needs_token) {
                struct request *copy = p->items[i].req;
                copy->tokens[copy->num_tokens++] = result.outcome.tokens[result.outcome.start[i]];
                if (copy->mtp_size > 0)
                    keep_row(copy, copy->mtp_first + copy->num_tokens - 1, result.out,
                             result.first_row[i + 1] - 1);
            }
        ns = clock_now_ns() - began;
        draft_length_drafted(length, p->num_tokens, ns);
    } else {
        log_msg(LOG_ERROR, "the draft model failed, and drafts no more: %s", err.msg);
        m->failed = true;
    }
    p->num_items = p->num_decode = p->num_tokens = p->num_rows = 0;
    return ns;
}

int64_t draft_model_run(struct draft_model *m, struct draft_offer *offers, int num_offers,
                        struct draft_length *length) {
    int64_t sum = 0, ns;
    give_back_waiting(m);
    for (int i = 0; i < num_offers; i++) {
        struct draft_offer *o = &offers[i];
        if (o->behind == 0 || o->take == 0)
            continue;
        o->num = 0;
        if (!add_behind(m, o->req, engine_info(m->engine)->max_num_batched_tokens - m->plan.num_tokens))
            o->take = 0;
    }
    for (int depth = 1; m->plan.num_items > 0 && (ns = run_step(m, length)) >= 0; depth++, sum += ns)
        for (int i = 0; i < num_offers; i++) {
            struct draft_offer *o = &offers[i];
            struct request *copy = o->req->draft;
            if (o->behind == 0 || o->take < depth ||
                copy->mtp_first + copy->num_tokens != o->req->num_tokens + depth)
                continue;
            o->drafts[o->num++] = copy->tokens[copy->num_tokens - 1];
            if (o->take > depth && !add_item(m, copy, 1))
                o->take = depth;
        }
    for (int i = 0; i < num_offers; i++)
        if (offers[i].behind > 0 && offers[i].take > offers[i].num)
            offers[i].take = offers[i].num;
    return sum;
}
