// How many drafts a step verifies: as many as make the most tokens of a second, by what steps took and by how many
// drafts were right. Pure: the service measures. Engine thread only.
#pragma once

#include "request.h"

#include <stdint.h>

// What steps of so many rows that sample, and nothing else, took: the rows of a bucket are up to its bound.
enum { DRAFT_COSTS = 30 };

struct draft_length {
    struct draft_cost {
        double ns;         // 0: not measured
        uint64_t measured; // the step
        int count;
    } costs[DRAFT_COSTS];
    uint64_t steps;
    struct draft_rate rate; // of all requests: what one begins with
};

// One request's drafts for the next step.
struct draft_offer {
    struct request *req;
    token_id drafts[MAX_DRAFTS];
    int num;  // drafts
    int take; // set by draft_length_choose()
};

// A step of `rows` sampling rows and nothing else took ns.
void draft_length_measured(struct draft_length *d, int rows, int64_t ns);

// A step found `right` of num_drafts >= 1 leading drafts of a request right.
void draft_length_verified(struct draft_length *d, struct draft_rate *rate, int num_drafts, int right);

// Of a step with num_rows rows besides drafts: how many of each offer it should verify, its first ones.
void draft_length_choose(struct draft_length *d, int num_rows, struct draft_offer *offers, int num_offers);
