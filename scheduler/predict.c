#include "predict.h"

#include "minmax.h"
#include "scheduler_state.h"

#include <math.h>

// How fast steps are forgotten; the variance of a step's relative error.
static const double FORGET = 0.999, NOISE = 0.02, MOST = 4;
enum { MIN_STEPS = 8, MAX_SIMULATED = 256 };

// ---- the model of a step

void predict_open(struct predictor *p) { *p = (struct predictor){.mean_output = 64, .at_length = 0.5}; }

// Before anything is known a step costs something like the first one, whatever is in it, and a token a small part.
static void set_start(struct predictor *p, double ms) {
    for (int i = 0; i < PREDICT_TERMS; i++)
        p->spread[i][i] = p->start[i] = i == 0 ? ms * ms : ms * ms / 1024;
}

struct step_shape predict_shape(const struct plan *plan) {
    struct step_shape s = {{1}};
    for (int i = 0; i < plan->num_items; i++) {
        const struct plan_item *it = &plan->items[i];
        s.terms[i < plan->num_decode || it->num_drafts > 0 ? 2 : 1] += it->num_new;
        s.terms[3] += it->num_new * (it->first + it->num_new * 0.5) / 1000;
    }
    return s;
}

// Recursive least squares, forgetting. Terms and time are in units of the time that was expected, so that each step counts
// by its relative error, and the sum of many is right on average. One that the machine was taken away from counts no more
// than MOST.
void predict_add_step(struct predictor *p, const struct step_shape *shape, int64_t ns) {
    double x[PREDICT_TERMS], px[PREDICT_TERMS], norm = FORGET * NOISE, forget = FORGET;
    if (ns <= 0)
        return;
    if (p->num_steps == 0)
        set_start(p, (double)ns / 1e6);
    double unit = p->num_steps < MIN_STEPS ? (double)ns : (double)predict_step(p, shape);
    double error = fmin((double)ns / unit, MOST);
    for (int i = 0; i < PREDICT_TERMS; i++)
        x[i] = shape->terms[i] * 1e6 / unit; // weights are in ms
    for (int i = 0; i < PREDICT_TERMS; i++) {
        px[i] = 0;
        for (int j = 0; j < PREDICT_TERMS; j++)
            px[i] += p->spread[i][j] * x[j];
        norm += x[i] * px[i];
        error -= x[i] * p->weight[i];
        if (p->spread[i][i] > p->start[i]) // bounds the forgetting of terms that no step tells apart
            forget = 1;
    }
    for (int i = 0; i < PREDICT_TERMS; i++) {
        p->weight[i] += px[i] / norm * error;
        for (int j = 0; j < PREDICT_TERMS; j++)
            p->spread[i][j] = (p->spread[i][j] - px[i] * px[j] / norm) / forget;
    }
    p->num_steps++;
}

void predict_add_request(struct predictor *p, int num_output, bool at_length) {
    p->mean_output += (num_output - p->mean_output) / 16;
    p->at_length += (at_length - p->at_length) / 16;
}

int64_t predict_step(const struct predictor *p, const struct step_shape *shape) {
    double ms = 0;
    for (int i = 0; i < PREDICT_TERMS; i++)
        ms += fmax(p->weight[i], 0) * shape->terms[i]; // a fit of few steps may be below zero
    return ms > 1e-3 ? (int64_t)(ms * 1e6) : 1000;
}

// ---- the queue

struct simulated {
    int todo;    // prompt tokens that are not computed
    int left;    // tokens that it will still generate, as far as one can tell
    int context; // tokens computed
    bool self;
};

struct simulation {
    const struct predictor *predictor;
    const struct pace *pace;
    const struct scheduler *s;
    struct simulated run[MAX_SIMULATED];
    int num, max;
};

static int expect_left(const struct predictor *p, const struct request *r) {
    int most = r->max_tokens - r->num_tokens, done = r->num_tokens - r->num_prompt;
    int usual = max_int((int)p->mean_output - done, (int)(p->mean_output / 2));
    return max_int(1, p->at_length > 0.5 ? most : min_int(most, usual));
}

static void enter(struct simulation *m, const struct request *r) {
    bool known = r->state == REQUEST_RUNNING;
    int cached = known ? r->num_computed : max_int(r->expect_cached, 0);
    int todo = r->num_tokens - cached;
    m->run[m->num++] = (struct simulated){
        .todo = known && todo <= 1 ? 0 : todo, .left = expect_left(m->predictor, r), .context = cached};
}

// One step; its time. *done: it computed the last of the prompt that is asked for.
static int64_t simulate_step(struct simulation *m, bool *began, bool *done) {
    struct step_shape shape = {{1}};
    int decodes = 0, kept = 0;
    for (int i = 0; i < m->num; i++)
        decodes += m->run[i].todo == 0;
    int budget = m->s->config.max_step_tokens - decodes;
    if (decodes > 0)
        budget = min_int(budget, pace_chunk(m->pace, decodes));
    for (int i = 0; i < m->num; i++) {
        struct simulated *r = &m->run[i];
        int n = r->todo == 0 ? 1 : min_int(r->todo, max_int(budget, 0));
        shape.terms[r->todo == 0 ? 2 : 1] += n;
        shape.terms[3] += n * (r->context + n * 0.5) / 1000;
        r->context += n;
        *began |= r->self && n > 0;
        if (r->todo == 0) {
            r->left--;
        } else {
            budget -= n;
            r->todo -= n;
            if (r->todo == 0 && r->self)
                *done = true;
            if (r->todo == 0)
                r->left--;
        }
    }
    for (int i = 0; i < m->num; i++)
        if (m->run[i].todo > 0 || m->run[i].left > 0)
            m->run[kept++] = m->run[i];
    m->num = kept;
    return predict_step(m->predictor, &shape);
}

int64_t predict_first_token(const struct predictor *p, const struct pace *pace, const struct scheduler *s,
                            int num_prompt, int num_cached, int priority, int64_t *queue_ns) {
    struct simulation m = {.predictor = p, .pace = pace, .s = s};
    int64_t t = 0, before = 0;
    bool entered = false, began = false, done = false;
    long ahead = num_prompt - num_cached, computed = 0;
    *queue_ns = -1;
    if (p->num_steps < MIN_STEPS)
        return -1;
    m.max = min_int(s->config.max_running, MAX_SIMULATED);
    for (const struct request *r = s->running.head; r && m.num < m.max; r = r->next) {
        enter(&m, r);
        ahead += m.run[m.num - 1].todo;
    }
    const struct request *next = s->waiting.head;
    for (const struct request *r = next; r; r = r->next)
        ahead += r->num_tokens - max_int(r->expect_cached, 0);
    for (int step = 0; step < PREDICT_STEPS && !done; step++) {
        while (m.num < m.max && !entered) {
            bool before_us = next && (s->config.policy == SCHED_FCFS || next->priority <= priority);
            if (before_us) {
                enter(&m, next);
                next = next->next;
            } else {
                m.run[m.num++] = (struct simulated){num_prompt - num_cached, 1, num_cached, true};
                entered = true;
            }
        }
        long todo = 0;
        for (int i = 0; i < m.num; i++)
            todo += m.run[i].todo;
        before = t;
        t += simulate_step(&m, &began, &done);
        for (int i = 0; i < m.num; i++)
            todo -= m.run[i].todo;
        computed += todo;
        if (began && *queue_ns < 0)
            *queue_ns = before;
    }
    if (!done && computed > 0 && ahead > computed)
        t += (int64_t)((double)t * (double)(ahead - computed) / (double)computed);
    if (*queue_ns < 0)
        *queue_ns = t;
    return t;
}
