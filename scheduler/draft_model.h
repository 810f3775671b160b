// A second model that drafts (engine_draft()). It computes a request's tokens behind the model proper, and samples on
// with the request's own parameters and random numbers, so that at any temperature it errs no more than the models
// differ. Of a request it has a copy (request.draft), with pages of its own cache. It computes nothing for a request
// before drafts of it are wanted, so where they do not pay it costs nothing; then it catches up, a piece of the prompt
// between two steps. Engine thread only, while no step of a request in question is in flight.
//
// Or the model's own MTP layer. Beside each token it takes the model's row of the one before, or, of its own drafts, its
// own row. The rows of what was sampled are kept, those of prompts are not: it sees the output alone.
#pragma once

#include "draft_length.h"
#include "engine.h"

struct draft_model {
    struct engine *engine; // NULL: there is none, and all else is zero
    struct plan plan;
    struct request **held; // (num_held) requests whose copies have pages, up to max_running
    int num_held, max_running;
    bool failed;
};

bool draft_model_init(struct draft_model *m, struct engine *engine, int max_running); // false: out of memory
void draft_model_free(struct draft_model *m);

// Of a step of the model proper, before sched_update(): keeps the rows of what it sampled for an MTP layer.
void draft_model_keep(const struct step_result *result);

// How many of a running request's tokens are to be computed before its next draft, at least 1; 0: it gets none.
int draft_model_behind(struct draft_model *m, struct request *r);

// Makes offers[i].take drafts where that is above 0 and the offer is behind; sets take and num to how many there are:
// none where it is still behind. Tells length what its steps took; returns their ns.
int64_t draft_model_run(struct draft_model *m, struct draft_offer *offers, int num_offers,
                        struct draft_length *length);

// Before a request is freed.
void draft_model_drop(struct draft_model *m, struct request *r);
