#include "draft_length.h"

static const int bounds[DRAFT_COSTS] = {1,  2,  3,  4,   5,   6,   7,   8,   9,   10,
                                        12, 14, 16, 20,  24,  28,  32,  40,  48,  56,
                                        64, 80, 96, 112, 128, 160, 192, 224, 256, 1 << 30};

// A request's record decays where nothing is tried, so that now and then one step tries again.
static const double RECORD_DECAY = 0.98, FORGET = 0.9, PRIOR_WEIGHT = 2;
enum { MOST_DRAFTS = 32 }; // of a step: beyond it the rows are no more for nothing
enum { FEW_TOKENS = 2 };   // that the draft model is behind after a step
enum { CHUNK = 64 };       // that it catches up with at once

// A cost is known by FEW_TIMES times, until none was measured for so many steps: later a step may cost less than it did.
enum { FEW_TIMES = 3, FIRST_RETRY = 64, RETRY_GROWTH = 4, LAST_RETRY = 1024 };

// Steps' worth of time that the draft model may lose, more if it has prompts to read first, and more with each step; what it
// gained counts up to a bound. Behind a pause it may lose so much again to show that it gains.
static const double MAY_LOSE = 3, MAY_LOSE_READING = 10, MAY_LOSE_A_STEP = 0.0005, MAY_LOSE_AGAIN = 0.5,
                    MOST_GAINED = 50;
enum { FIRST_PAUSE = 64, MOST_DOUBLED = 4 }; // steps

static int bucket_of(int rows) {
    int b = 0;
    while (bounds[b] < rows)
        b++;
    return b;
}

// The lower quartile, as what disturbs a step makes it longer. 0: there is none.
static int64_t typical(const struct draft_cost *c) {
    int64_t sorted[DRAFT_TIMES];
    int n = c->count < DRAFT_TIMES ? c->count : DRAFT_TIMES;
    for (int i = 0; i < n; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > c->ns[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = c->ns[i];
    }
    return n > 0 ? sorted[(n - 1) / 3] : 0;
}

static bool is_known(const struct draft_length *d, const struct draft_cost *c) {
    return c->count >= FEW_TIMES && d->steps - c->measured < (uint64_t)c->retry;
}

static bool is_cost_known(const struct draft_length *d, int rows) {
    return is_known(d, &d->costs[bucket_of(rows)]);
}

static double may_lose(const struct draft_length *d) {
    return d->reads_prompts ? MAY_LOSE_READING : MAY_LOSE;
}

// A step that took much less tells that the machine was slow before: what it took then is forgotten. The draft model's steps
// between two count once, as one pause of the machine may hold up all.
static void cost_add(const struct draft_length *d, struct draft_cost *c, int64_t ns) {
    if (ns <= 0)
        return;
    if (c->count > 0 && c->measured == d->steps) {
        int64_t *last = &c->ns[(c->count - 1) % DRAFT_TIMES];
        *last = ns < *last ? ns : *last;
        return;
    }
    if (ns < typical(c) / 4 * 3) {
        for (int i = 0; i < DRAFT_TIMES; i++)
            c->ns[i] = ns;
        c->retry = FIRST_RETRY;
    } else if (d->steps - c->measured >= (uint64_t)c->retry) {
        c->retry = c->retry == 0 ? FIRST_RETRY : c->retry < LAST_RETRY ? c->retry * RETRY_GROWTH : LAST_RETRY;
    }
    c->ns[c->count++ % DRAFT_TIMES] = ns;
    c->count = c->count < 2 * DRAFT_TIMES ? c->count : DRAFT_TIMES;
    c->measured = d->steps;
}

void draft_length_measured(struct draft_length *d, int rows, int64_t ns) {
    d->steps += ns > 0;
    int bucket = bucket_of(rows);
    cost_add(d, &d->costs[bucket], ns);
    for (int i = 0; i < bucket && ns > 0; i++) // fewer rows take no longer
        if (ns < typical(&d->costs[i]) / 4 * 3)
            d->costs[i].count = 0;
}

void draft_length_drafted(struct draft_length *d, int tokens, int64_t ns) {
    struct draft_cost *c = &d->model_costs[bucket_of(tokens)];
    cost_add(d, c, ns);
    d->unsure |= !is_known(d, c);
    d->drafted += is_known(d, c) ? (double)typical(c) : (double)ns;
}

static void start_pause(struct draft_length *d) {
    int doubled = d->pauses < MOST_DOUBLED ? d->pauses : MOST_DOUBLED;
    d->paused_until = d->steps + ((uint64_t)FIRST_PAUSE << doubled);
    d->pauses++;
    d->lost = may_lose(d) - MAY_LOSE_AGAIN;
}

void draft_length_weigh(struct draft_length *d, int rows, int again, int tokens, int64_t ns) {
    const struct draft_cost *c = &d->costs[bucket_of(rows)];
    bool known = is_known(d, c);
    d->lost -= MAY_LOSE_A_STEP;
    d->weighed = d->drafted > 0 || (again > 0 && d->weighed);
    if (d->weighed && d->per_token > 0) {
        double took = (known ? (double)typical(c) : (double)ns) + d->drafted;
        double lost = (took - tokens * d->per_token) / (d->num_rows * d->per_token);
        d->lost += lost > 1 && (d->unsure || !known) ? 1 : lost;
    }
    if (d->lost > may_lose(d))
        start_pause(d);
    else if (d->lost < 0)
        d->pauses = 0;
    d->lost = d->lost > -MOST_GAINED ? d->lost : -MOST_GAINED;
    d->drafted = 0;
    d->unsure = false;
}

// Predicts the ns of a step of `rows` rows; if that is not known, those of the largest known number below.
static double cost_of(const struct draft_length *d, int rows) {
    int known = bucket_of(rows);
    while (known > 0 && !is_known(d, &d->costs[known]))
        known--;
    return (double)typical(&d->costs[known]);
}

// The same of the draft model, which is taken for twice as fast as the model until it is known; less the longer ago one was.
static double model_cost_of(const struct draft_length *d, int tokens) {
    int bucket = bucket_of(tokens);
    while (bucket > 0 && d->model_costs[bucket].count == 0)
        bucket--;
    const struct draft_cost *c = &d->model_costs[bucket];
    uint64_t old = c->count > 0 ? (d->steps - c->measured) / (uint64_t)c->retry : 0;
    double ns = (double)(typical(c) >> (old < 62 ? old : 62)), half = d->num_rows * d->per_token / 2;
    return c->count < FEW_TIMES && ns > half ? half : ns;
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
    return model_cost_of(d, CHUNK) / CHUNK * tokens;
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
        ns += rows > 0 ? model_cost_of(d, rows) : 0;
    }
    return ns;
}

// The drafts that a step takes, one after the other.
struct draft_choice {
    struct draft_offer *offers;
    int num_offers;
    float chance[MOST_DRAFTS]; // of the offers: that the next draft is right, and all before it
    float before[MOST_DRAFTS]; // that all before it are
    int order[MOST_DRAFTS];    // the offers whose drafts were taken,
    int num;                   // and how many
    double tokens;             // that the step gives
    double later;              // rows that wrong drafts add to the next step
    bool verified;             // the cost of a step with a draft is known
    bool caught_up;            // the draft model is with some request
    int catching_up;           // tokens that it computes for the others
};

static bool is_caught_up(const struct draft_offer *o) { return o->behind > 0 && o->behind <= FEW_TOKENS; }

static void start_choice(struct draft_choice *c, const struct draft_length *d, int rows) {
    c->tokens = d->num_rows;
    c->verified = is_cost_known(d, rows + 1);
    for (int i = 0; i < c->num_offers; i++) {
        c->chance[i] = rate_of(d, &c->offers[i].req->draft_rate);
        c->before[i] = 1;
        c->caught_up |= is_caught_up(&c->offers[i]);
    }
}

// Whether what the draft model may lose pays for what it has to compute before it drafts. It catches up with one request
// after the other, so that it learns from the first one's drafts, and with no further one before it is known what verifying
// takes.
static bool may_draft(const struct draft_length *d, const struct draft_choice *c,
                      const struct draft_offer *o) {
    double left = (may_lose(d) - d->lost) * d->num_rows * d->per_token;
    if (o->behind == 0)
        return true;
    if (d->steps < d->paused_until || left < 0 || cost_of_catching_up(d, o->behind) > left)
        return false;
    if (is_caught_up(o) || o->take > 0)
        return true;
    if (!c->verified && (c->caught_up || c->catching_up > 0))
        return false;
    return c->catching_up == 0 || c->catching_up + o->behind <= CHUNK;
}

// The offer with the draft that is likeliest to be right. -1: there is none.
static int find_likeliest(const struct draft_length *d, const struct draft_choice *c) {
    int best = -1;
    for (int i = 0; i < c->num_offers; i++)
        if (c->offers[i].take < c->offers[i].num && (best < 0 || c->chance[i] > c->chance[best]) &&
            may_draft(d, c, &c->offers[i]))
            best = i;
    return best;
}

static void take_one(struct draft_choice *c, const struct draft_length *d, int i) {
    struct draft_offer *o = &c->offers[i];
    if (o->take == 0 && o->behind > FEW_TOKENS)
        c->catching_up += o->behind;
    c->order[c->num++] = i;
    o->take++;
    c->tokens += (double)c->chance[i];
    if (d->computes_again) // where it is the first wrong one
        c->later += (double)((c->before[i] - c->chance[i]) * (float)(o->again + o->take));
    c->before[i] = c->chance[i];
    c->chance[i] *= rate_of(d, &o->req->draft_rate);
}

// The records of requests whose drafts are not tried decay, and once that of all.
static void forget_untried(struct draft_length *d, const struct draft_choice *c) {
    bool untried = false;
    for (int i = 0; i < c->num_offers; i++)
        if (c->offers[i].take == 0 && c->offers[i].num > 0) {
            rate_add(&c->offers[i].req->draft_rate, (float)RECORD_DECAY, 0, 0);
            untried = true;
        }
    if (untried)
        rate_add(&d->rate, (float)RECORD_DECAY, 0, 0);
}

// Takes the draft that is likeliest to be right again and again, and goes back to where the tokens of a second,
// num_rows and the right drafts, were most. None where it is not known what a step without drafts takes; at most as many
// again as it is known for, up to the bucket's end, so that what many cost is not found out where few are too many. Rows
// that a wrong draft adds to the next step count as if they were this one's.
void draft_length_choose(struct draft_length *d, int num_rows, int again, struct draft_offer *offers,
                         int num_offers) {
    for (int i = 0; i < num_offers; i++)
        offers[i].take = 0;
    d->num_rows = num_rows;
    d->per_token = cost_of(d, num_rows) / num_rows;
    if (!is_cost_known(d, num_rows))
        return;
    struct draft_choice c = {.offers = offers,
                             .num_offers = num_offers < MOST_DRAFTS ? num_offers : MOST_DRAFTS};
    int rows = num_rows + again, bound = bounds[bucket_of(rows + 1)];
    int next, best = 0;
    start_choice(&c, d, rows);
    double most = c.tokens / (cost_of(d, rows) + 1);
    while (c.num < MOST_DRAFTS && rows + c.num < bound && (next = find_likeliest(d, &c)) >= 0) {
        take_one(&c, d, next);
        if (is_cost_known(d, rows + c.num))
            bound = bounds[bucket_of(rows + 2 * c.num + 1)];
        double ns =
            cost_of(d, rows + c.num + (int)(c.later + 0.5)) + cost_of_drafting(d, offers, c.num_offers);
        double rate = c.tokens / (ns + 1);
        if (rate > most) {
            most = rate;
            best = c.num;
        }
    }
    while (c.num > best)
        offers[c.order[--c.num]].take--;
    forget_untried(d, &c);
}
