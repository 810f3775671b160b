// When a request's first token will come: a model of step times, fitted while steps run, and a simulation of the queue
// with it. Pure: times come from the caller.
#pragma once

#include "pace.h"
#include "scheduler.h"

enum { PREDICT_TERMS = 4 };

// The terms of a step's time: a constant, prompt tokens, decodes, and tokens that attention reads, in thousands.
struct step_shape {
    double terms[PREDICT_TERMS];
};

struct predictor {
    double weight[PREDICT_TERMS]; // ms of each term: recursive least squares of relative errors
    double spread[PREDICT_TERMS][PREDICT_TERMS], start[PREDICT_TERMS]; // start: its diagonal at first
    int num_steps;                                                     // measured
    double mean_output;                                                // tokens of requests that ended lately
    double at_length; // share of them that ended at their longest
};

void predict_open(struct predictor *p);
struct step_shape predict_shape(const struct plan *plan);
void predict_add_step(struct predictor *p, const struct step_shape *shape, int64_t ns);
void predict_add_request(struct predictor *p, int num_output, bool at_length);
int64_t predict_step(const struct predictor *p, const struct step_shape *shape); // ns

// Time until the first token of a prompt that comes now behind all that wait, of which num_cached tokens will hit; -1:
// too few steps were measured. *queue_ns: until its first step. Looks PREDICT_STEPS steps ahead, and goes on from there as
// fast as so far.
enum { PREDICT_STEPS = 512 };
int64_t predict_first_token(const struct predictor *p, const struct pace *pace, const struct scheduler *s,
                            int num_prompt, int num_cached, int priority, int64_t *queue_ns);
