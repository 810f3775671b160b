#include "draft_length.h"

static const int bounds[DRAFT_COSTS] = {1,  2,  3,  4,   5,   6,   7,   8,   9,   10,
                                        12, 14, 16, 20,  24,  28,  32,  40,  48,  56,
                                        64, 80, 96, 112, 128, 160, 192, 224, 256, 1 << 30};

// Much later a step may cost less than it did, and drafts may be right more often. A cost therefore decays by
// COST_DECAY a step, by MAX_COST_DECAY at most, and a request's record by RECORD_DECAY, so that now and then one step
// tries it again.
static const double COST_DECAY = 1e-4, MAX_COST_DECAY = 0.2, RECORD_DECAY = 0.98, FORGET = 0.9,
                    PRIOR_WEIGHT = 2;
enum { MOST_DRAFTS = 32 }; // of a step: beyond it the rows are no more for nothing
enum { FEW_TOKENS = 2 };   // that the draft model is behind after a step
enum { CHUNK = 64 };       // that it catches up with at once

// Steps that the draft model may lose until it must have gained some, and more with each step; what it gained counts up
// to a bound.
static const double MAY_LOSE = 10, MAY_LOSE_A_STEP = 0.003, MOST_GAINED = 50;

static int bucket_of(int rows) {
    int b = 0;
    while (bounds[b] < rows)
        b++;
    return b;
}

static void cost_add(const struct draft_length *d, struct draft_cost *c, int64_t ns) {
    double x = (double)ns, weight = c->count < 9 ? 1.0 / (c->count + 1) : 0.1;
    if (ns <= 0)
        return;
    if (c->count > 0 && x > 2 * c->ns) // the machine was taken away
        x = 2 * c->ns;
    c->ns += (x - c->ns) * weight;
    c->count += c->count < 9;
    c->measured = d->steps;
}

void draft_length_measured(struct draft_length *d, int rows, int64_t ns) {
    d->steps += ns > 0;
    cost_add(d, &d->costs[bucket_of(rows)], ns);
}

void draft_length_drafted(struct draft_length *d, int tokens, int64_t ns) {
    cost_add(d, &d->model_costs[bucket_of(tokens)], ns);
    d->drafted += (double)ns;
}

void draft_length_weigh(struct draft_length *d, int tokens, int64_t ns) {
    d->lost -= MAY_LOSE_A_STEP;
    if (d->drafted > 0 && d->per_token > 0)
        d->lost += ((double)ns + d->drafted - tokens * d->per_token) / (d->num_rows * d->per_token);
    d->lost = d->lost > -MOST_GAINED ? d->lost : -MOST_GAINED;
    d->drafted = 0;
}

// Predicts the ns of a step of `rows` rows; if so many were never measured, those of the largest measured number
// below.
static double cost_of(const struct draft_length *d, const struct draft_cost *costs, int rows) {
    int known = bucket_of(rows);
    while (known > 0 && costs[known].count == 0)
        known--;
    const struct draft_cost *c = &costs[known];
    double decay = COST_DECAY * (double)(d->steps - c->measured);
    return c->ns * (1 - (decay < MAX_COST_DECAY ? decay : MAX_COST_DECAY));
}

static float rate_of(const struct draft_length *d, const struct draft_rate *r) {
    float before = (d->rate.right + 0.5f) / (d->rate.tried + 1);
    return (r->right + (float)PRIOR_WEIGHT * before) / (r->tried + (float)PRIOR_WEIGHT);
}

static void rate_add(struct draft_rate *r, float forget, int tried, int right) {
    r->tried = r->tried * forget + (float)tried;
    r->right = r->right * forget + (float)right;
}

// Those behind the first wrong one say nothing.
void draft_length_verified(struct draft_length *d, struct draft_rate *rate, int num_drafts, int right) {
    int tried = right < num_drafts ? right + 1 : right;
    rate_add(rate, (float)FORGET, tried, right);
    rate_add(&d->rate, 0.99f, tried, right);
}

static double cost_of_catching_up(const struct draft_length *d, int tokens) {
    return cost_of(d, d->model_costs, CHUNK) / CHUNK * tokens;
}

// Whether what the draft model may lose pays for what it has to compute before it drafts. It catches up with one request
// after the other, so that it learns from the first one's drafts; catching_up: tokens of those chosen before.
static bool may_draft(const struct draft_length *d, const struct draft_offer *o, int catching_up) {
    double left = (MAY_LOSE - d->lost) * d->num_rows * d->per_token;
    return o->behind == 0 ||
           (left >= 0 && cost_of_catching_up(d, o->behind) <= left &&
            (o->behind <= FEW_TOKENS || o->take > 0 || catching_up == 0 || catching_up + o->behind <= CHUNK));
}

// Predicts the ns that the draft model takes to make the drafts taken of the offers.
static double cost_of_drafting(const struct draft_length *d, const struct draft_offer *offers, int n) {
    double ns = 0, per_token = cost_of_catching_up(d, 1);
    for (int depth = 0, rows = 1; rows > 0; depth++) {
        rows = 0;
        for (int i = 0; i < n; i++) {
            if (offers[i].behind == 0 || offers[i].take <= depth)
                continue;
            rows += depth > 0 || offers[i].behind == 1 ? 1 : FEW_TOKENS;
            if (depth == 0 && offers[i].behind > FEW_TOKENS) {
                const struct request *r = offers[i].req;
                int output = r->num_tokens - r->num_prompt;
                ns += per_token * offers[i].behind / (output > 0 ? output : 1);
            }
        }
        ns += rows > 0 ? cost_of(d, d->model_costs, rows) : 0;
    }
    return ns;
}

// Takes the draft that is likeliest to be right again and again, and goes back to where the tokens of a second,
// num_rows and the right drafts, were most.
void draft_length_choose(struct draft_length *d, int num_rows, struct draft_offer *offers, int num_offers) {
    float chance[MOST_DRAFTS + 1]; // of the offers: that the next draft is right, and all before it
    int order[MOST_DRAFTS], num_order = 0, best = 0, catching_up = 0;
    bool untried = false;
    for (int i = 0; i < num_offers; i++)
        offers[i].take = 0;
    num_offers = num_offers < MOST_DRAFTS ? num_offers : MOST_DRAFTS;
    for (int i = 0; i < num_offers; i++)
        chance[i] = rate_of(d, &offers[i].req->draft_rate);
    d->num_rows = num_rows;
    d->per_token = cost_of(d, d->costs, num_rows) / num_rows;
    double tokens = num_rows, most = tokens / (cost_of(d, d->costs, num_rows) + 1);
    while (num_order < MOST_DRAFTS) {
        int next = -1;
        for (int i = 0; i < num_offers; i++)
            if (offers[i].take < offers[i].num && (next < 0 || chance[i] > chance[next]) &&
                may_draft(d, &offers[i], catching_up))
                next = i;
        if (next < 0)
            break;
        order[num_order++] = next;
        if (offers[next].take == 0 && offers[next].behind > FEW_TOKENS)
            catching_up += offers[next].behind;
        offers[next].take++;
        tokens += (double)chance[next];
        chance[next] *= rate_of(d, &offers[next].req->draft_rate);
        double ns = cost_of(d, d->costs, num_rows + num_order) + cost_of_drafting(d, offers, num_offers);
        double rate = tokens / (ns + 1);
        if (rate > most) {
            most = rate;
            best = num_order;
        }
    }
    while (num_order > best)
        offers[order[--num_order]].take--;
    for (int i = 0; i < num_offers; i++)
        if (offers[i].take == 0 && offers[i].num > 0) {
            rate_add(&offers[i].req->draft_rate, (float)RECORD_DECAY, 0, 0);
            untried = true;
        }
    if (untried)
        rate_add(&d->rate, (float)RECORD_DECAY, 0, 0);
}
