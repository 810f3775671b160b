#include "drafting.h"

#include <stdlib.h>

bool drafting_init(struct drafting *d, int max_running, int vocab, bool all) {
    d->offers = calloc((size_t)max_running, sizeof *d->offers);
    d->vocab = vocab;
    d->all = all;
    return d->offers;
}

void drafting_free(struct drafting *d) { free(d->offers); }

bool drafting_measure(struct drafting *d, const struct plan *plan, const struct outcome *out, int64_t ns) {
    int rows = 0, drafts = 0; // rows: of decodes and their drafts
    for (int i = 0; i < plan->num_items; i++) {
        const struct plan_item *item = &plan->items[i];
        int num = out->start[i + 1] - out->start[i];
        drafts += item->num_drafts;
        rows += item->num_new == 1 + item->num_drafts && item->needs_token ? item->num_new : 0;
        if (item->num_drafts > 0 && num > 0 && item->req->state == REQUEST_RUNNING)
            draft_length_verified(&d->length, &item->req->draft_rate, item->num_drafts, num - 1);
    }
    d->prompts = rows < plan->num_tokens;
    if (!d->prompts)
        draft_length_measured(&d->length, rows, ns);
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

// A request has drafts where all of its tokens are known.
void drafting_offer(struct drafting *d, struct request *r) {
    if (!r->drafter || r->state != REQUEST_RUNNING || r->num_in_flight > 0 ||
        (r->filter && !r->filter->rollback) || (d->prompts && !d->all))
        return;
    struct draft_offer *o = &d->offers[d->num_offers];
    int n = 0, num = r->drafter->propose(r->drafter->state, r->tokens, r->num_tokens, o->drafts, MAX_DRAFTS);
    while (n < num && n < MAX_DRAFTS && o->drafts[n] >= 0 && o->drafts[n] < d->vocab)
        n++;
    if (r->filter)
        n = count_allowed(r->filter, o->drafts, n);
    o->req = r;
    o->num = o->take = n;
    d->num_offers += n > 0;
}

void drafting_take(struct drafting *d, int num_decoding, struct record *record) {
    if (!d->all)
        draft_length_choose(&d->length, num_decoding, d->offers, d->num_offers);
    for (int i = 0; i < d->num_offers; i++)
        if (request_draft(d->offers[i].req, d->offers[i].drafts, d->offers[i].take) > 0)
            record_draft(record, d->offers[i].req);
    d->num_offers = 0;
}
