// The engine thread's part of speculative decoding: asks the drafters of a step's requests, and lets the next step verify
// as many drafts as pay. Engine thread only.
#pragma once

#include "draft_length.h"
#include "draft_model.h"
#include "plan.h"
#include "record.h"

struct drafting {
    struct draft_length length;
    struct draft_model model;
    struct draft_offer *offers; // (max_running) of the requests of a step that has just ended
    int num_offers, vocab;
    int again;    // rows of the next step before the last known tokens of requests whose drafts were wrong
    bool all;     // every draft, whether it pays or not
    bool prompts; // the step had tokens of prompts, and so will the next: they use what rows cost nothing
};

// For requests of this engine. False: out of memory.
bool drafting_init(struct drafting *d, struct engine *engine, int max_running, bool all);
void drafting_free(struct drafting *d);

// Between a step's end and sched_update(): what became of its drafts, and that it took ns. Whether it had drafts.
bool drafting_measure(struct drafting *d, const struct plan *plan, const struct outcome *out, int64_t ns);
// After it: asks the drafter of a request of the step that goes on; where that has nothing to say, the draft model may.
void drafting_offer(struct drafting *d, struct request *r);
// Gives the scheduler what the next step is to verify beside num_decoding tokens. Returns the ns that the draft model took.
int64_t drafting_take(struct drafting *d, int num_decoding, struct record *record);
// Before a request is freed.
void drafting_drop(struct drafting *d, struct request *r);
