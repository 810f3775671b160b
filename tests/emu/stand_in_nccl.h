// Calls of the stand-in for NCCL, and its answers.
#pragma once

#include <stddef.h>

struct stand_in_id { // ncclUniqueId
    char bytes[128];
};

struct stand_in {
    int answer, async; // to be set; 0: all is well
    int hangs;         // likewise; until it is 0 again, a rank waits for another that does not come
    int opened, sums, aborted, destroyed;
    int world, rank, type, op;
    struct stand_in_id id;
    size_t count;
    const void *in;
    void *out, *comm, *stream;
};
