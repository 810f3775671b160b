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

// Begins with what the cache of the draft model has of the request, in its own domain.
static void start_copy(struct draft_model *m, struct request *r) {
    struct request *copy = r->draft;
    struct kv_cache *kv = engine_kv(m->engine);
    give_back_waiting(m);
    CHECK(m->num_held < m->max_running);
    m->held[m->num_held++] = r;
    copy->state = REQUEST_RUNNING;
    copy->root = kv_root(kv, r->salt, (size_t)r->num_salt);
    copy->num_computed = kv_match(kv, &copy->seq, copy->root, r->tokens, r->num_tokens - 1);
    copy->num_resolved = copy->num_computed;
    memcpy(copy->tokens, r->tokens, (size_t)copy->num_computed * sizeof *copy->tokens);
}

int draft_model_behind(struct draft_model *m, struct request *r) {
    struct request *copy = r->draft;
    if (!m->engine || m->failed || !copy || copy->state == REQUEST_FINISHED ||
        r->num_tokens + MAX_DRAFTS > engine_info(m->engine)->max_model_len)
        return 0;
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
    for (int i = copy->num_computed; i < r->num_tokens; i++) {
        if (r->tokens[i] >= vocab) { // for good
            draft_model_drop(m, r);
            copy->state = REQUEST_FINISHED;
            return false;
        }
        copy->tokens[i] = r->tokens[i];
    }
    copy->num_tokens = r->num_tokens;
    kv_publish(kv, &copy->seq, copy->root, copy->tokens, copy->num_resolved);
    kv_trim(kv, &copy->seq, copy->num_resolved);
    int behind = copy->num_tokens - copy->num_computed, n = behind < most ? behind : most;
    return n > 0 && add_item(m, copy, n);
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
            if (o->behind == 0 || o->take < depth || copy->num_tokens != o->req->num_tokens + depth)
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
