// Steps from process 0 to the processes that follow it: packed, sent, unpacked, run.
#pragma once

#include "agreement.h"
#include "ranks.h"

struct follow {
    struct processes *processes;
    struct step_limits limits;
    int vocab, block_size;
    size_t bytes;                      // of each buffer
    unsigned char *buffer[MAX_ORDERS]; // used in turn; pages that no step touches cost nothing
    struct step step[MAX_ORDERS];      // of a follower: what it runs
    uint64_t num;                      // steps posted, or taken
};

// STATUS_NOMEM with err leaves nothing allocated. Processes are borrowed.
enum status follow_init(struct follow *f, struct processes *processes, const struct step_limits *limits,
                        int vocab, int block_size, struct err *err);
void follow_destroy(struct follow *f); // a zeroed one, too

// Process 0: a step to all others, which does not wait for them while they are less than MAX_ORDERS behind.
// The end of the group comes back from the ranks.
void follow_post(struct follow *f, const struct step *step);
void follow_stop(struct follow *f);
// The others: runs steps until process 0 says stop: STATUS_OK, or the group ends: STATUS_DEVICE with err.
enum status follow_run(struct follow *f, struct ranks *ranks, struct err *err);
