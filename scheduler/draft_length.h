// How many drafts a step verifies: as many as make the most tokens of a second, by what steps took, the draft model's
// too, and by how many drafts were right. Pure: the service measures. Engine thread only.
#pragma once

#include "request.h"

#include <stdint.h>

// Measured times of steps by the number of rows, all of which sample. A bucket holds numbers up to its bound. The lower
// quartile of the last few counts, so that steps that the machine was taken away from do not decide.
enum { DRAFT_COSTS = 30, DRAFT_TIMES = 5 };

struct draft_cost {
    int64_t ns[DRAFT_TIMES]; // the last one at (count - 1) % DRAFT_TIMES
    int count;
    int retry;         // steps after which it is tried again, ever more
    uint64_t measured; // the step
};

struct draft_length {
    bool reads_prompts;  // set by the owner: the draft model computes a request's prompt before it drafts
    bool computes_again; // set by the owner: good drafts before a wrong one cost a row of the next step
    struct draft_cost costs[DRAFT_COSTS];
    struct draft_cost model_costs[DRAFT_COSTS]; // of the draft model's steps, by their tokens
    double drafted;                             // ns that the draft model took since the last step
    bool unsure;                                // the cost of such steps is not known yet
    double per_token; // ns that the step should take for a token, were it without drafts,
    int num_rows;     // and its rows then
    double lost;      // steps' worth of time that the draft model cost beyond what it gave
    uint64_t steps, paused_until;
    int pauses;             // since it gained
    bool weighed;           // the last step
    struct draft_rate rate; // of all requests: what one begins with
};

// One request's drafts for the next step.
struct draft_offer {
    struct request *req;
    token_id drafts[MAX_DRAFTS];
    int num;   // drafts
    int take;  // set by draft_length_choose()
    int again; // rows of the step before its last known token's
    // tokens that the draft model has to compute before it makes the drafts; 0: the drafts are there
    int behind;
};

// A step of `rows` sampling rows and nothing else took ns.
void draft_length_measured(struct draft_length *d, int rows, int64_t ns);
// A step of the draft model took ns for so many tokens.
void draft_length_drafted(struct draft_length *d, int tokens, int64_t ns);

// Weighs the gain of the draft model's drafts for a step of decodes alone, which gave `tokens` for `rows` rows and took `ns`,
// against the time that drafting took; again: those of the rows that are computed again, after a wrong draft. Where it has lost
// more than a few steps' worth its drafts are not chosen for some tens of steps, then tried again, and so on with longer pauses.
void draft_length_weigh(struct draft_length *d, int rows, int again, int tokens, int64_t ns);

// A step found `right` of num_drafts >= 1 leading drafts of a request right.
void draft_length_verified(struct draft_length *d, struct draft_rate *rate, int num_drafts, int right);

// Chooses how many leading drafts of each offer a step with num_rows + again rows besides drafts, the first of which sample,
// should verify. The draft model's time to make them counts. Its time to catch up with a request counts less the more output
// the request has, since it is likely to give as much again.
void draft_length_choose(struct draft_length *d, int num_rows, int again, struct draft_offer *offers,
                         int num_offers);
