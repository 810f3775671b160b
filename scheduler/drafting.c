#include "drafting.h"

#include <stdlib.h>

// A request that computes more tokens again has no drafts until it has.
enum { MOST_AGAIN = 2 * MAX_DRAFTS };

bool drafting_init(struct drafting *d, struct engine *engine, int max_running, bool all) {
    d->offers = calloc((size_t)max_running, sizeof *d->offers);
    d->vocab = engine_info(engine)->model.vocab;
    d->all = all;
    d->length.reads_prompts = engine_draft(engine) && engine_info(engine_draft(engine))->mtp_size == 0;
    d->length.computes_again = engine_kv(engine)->has_state;
    return draft_model_init(&d->model, engine_draft(engine), max_running) && d->offers;
}

void drafting_free(struct drafting *d) {
    draft_model_free(&d->model);
    free(d->offers);
}

bool drafting_measure(struct drafting *d, const struct plan *plan, const struct outcome *out, int64_t ns) {
    int rows = 0, again = 0, drafts = 0,
        tokens = 0; // rows: of decodes, their drafts, and what they compute again
    for (int i = 0; i < plan->num_items; i++) {
        const struct plan_item *item = &plan->items[i];
        int num = out->start[i + 1] - out->start[i];
        drafts += item->num_drafts;
        tokens += num;
        int before = item->num_new - item->num_drafts - 1; // of the last known token
        if (item->needs_token && (before == 0 || item->first >= item->req->num_prompt)) {
            rows += item->num_new;
            again += before;
        }
        if (item->num_drafts > 0 && num > 0 && item->req->state == REQUEST_RUNNING)
            draft_length_verified(&d->length, &item->req->draft_rate, item->num_drafts, num - 1);
    }
    d->prompts = rows < plan->num_tokens;
    if (!d->prompts) {
        draft_length_measured(&d->length, rows, ns);
        draft_length_weigh(&d->length, rows, again, tokens, ns);
    }
    return drafts > 0;
}

// How many drafts a filter takes and then still has a token to come next: the row of the last one samples it.
static int count_allowed(const struct token_filter *f, const token_id *drafts, int n) {
    int taken = 0;
    bool done = false;
    while (taken < n && !done && f->accept(f->state, drafts[taken])) {
        taken++;
        done = f->done && f->done(f->state);
    }
    if (taken > 0)
        f->rollback(f->state, taken);
    return done ? taken - 1 : taken;
}

// How many of num drafts the request's next tokens can be.
static int count_possible(const struct drafting *d, const struct request *r, const token_id *drafts,
                          int num) {
    int n = 0;
    while (n < num && drafts[n] >= 0 && drafts[n] < d->vocab)
        n++;
    return r->filter ? count_allowed(r->filter, drafts, n) : n;
}

// A request has drafts where all of its tokens are known.
void drafting_offer(struct drafting *d, struct request *r) {
    int again = r->num_tokens - r->num_computed - 1;
    d->again += r->state == REQUEST_RUNNING ? again : 0;
    if (again > MOST_AGAIN || (!r->drafter && !r->draft) || r->state != REQUEST_RUNNING ||
        r->num_in_flight > 0 || (r->filter && !r->filter->rollback) || (d->prompts && !d->all))
        return;
    struct draft_offer *o = &d->offers[d->num_offers];
    *o = (struct draft_offer){.req = r, .again = again};
    if (r->drafter)
        o->num = r->drafter->propose(r->drafter->state, r->tokens, r->num_tokens, o->drafts, MAX_DRAFTS);
    o->num = count_possible(d, r, o->drafts, o->num);
    int room = r->max_tokens - r->num_tokens - 1;
    if (o->num == 0 && room > 0 && (o->behind = draft_model_behind(&d->model, r)) > 0)
        o->num = room < MAX_DRAFTS ? room : MAX_DRAFTS;
    o->take = o->num;
    d->num_offers += o->num > 0;
}

int64_t drafting_take(struct drafting *d, int num_decoding, struct record *record) {
    if (!d->all)
        draft_length_choose(&d->length, num_decoding, d->again, d->offers, d->num_offers);
    int64_t ns = draft_model_run(&d->model, d->offers, d->num_offers, &d->length);
    for (int i = 0; i < d->num_offers; i++) {
        struct draft_offer *o = &d->offers[i];
        int take = o->behind > 0 ? count_possible(d, o->req, o->drafts, o->take) : o->take;
        if (request_draft(o->req, o->drafts, take) > 0)
            record_draft(record, o->req);
    }
    d->num_offers = d->again = 0;
    return ns;
}

void drafting_drop(struct drafting *d, struct request *r) {
    if (r->draft)
        draft_model_drop(&d->model, r);
}
