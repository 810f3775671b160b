// Steps before the first request, so that it finds a device warm: kernels are loaded, algorithms of GEMMs chosen, CUDA
// graphs captured. They write no page of the KV cache, but states of recurrent layers, which no sequence has yet.
#pragma once

#include "ranks/ranks.h"
#include "ranks/workers.h"

struct warm_up {
    struct ranks *ranks;
    struct workers *workers; // that run the same steps; NULL: none
    const struct model_config *model;
    struct step_limits limits;
    int block_size;
    int max_seqs; // that decode in a step
};

// Does nothing on a device that shares the host's memory, and with QUIRE_CUDA_GRAPHS=0. STATUS_DEVICE: a step has failed.
enum status warm_up_run(const struct warm_up *w, struct err *err);
