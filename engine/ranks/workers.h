// Steps from process 0 to the worker processes: process 0 packs and sends them, a worker unpacks and runs
// them.
#pragma once

#include "process_group.h"
#include "ranks.h"

struct workers {
    struct processes *processes;
    struct step_limits limits;
    const struct model_config *model; // whole
    int block_size;
    size_t bytes;                           // of each buffer
    unsigned char *buffer[MAX_STEPS_AHEAD]; // used in turn; pages that no step touches cost nothing
    struct step step[MAX_STEPS_AHEAD];      // of a worker: the steps it runs
    uint64_t num;                           // steps sent, or received
};

// STATUS_NOMEM with err leaves nothing allocated. Processes and model are borrowed.
enum status workers_init(struct workers *w, struct processes *processes, const struct step_limits *limits,
                         const struct model_config *model, int block_size, struct err *err);
void workers_destroy(struct workers *w); // a zeroed one, too

// Process 0: sends a step to all workers; waits only while one is MAX_STEPS_AHEAD behind. Whether the group
// is aborted is what ranks_sync() says.
void workers_send_step(struct workers *w, const struct step *step);
void workers_stop(struct workers *w);
// A worker: runs steps until process 0 stops it: STATUS_OK, or the group is aborted: STATUS_DEVICE with err.
enum status worker_loop(struct workers *w, struct ranks *ranks, struct err *err);
