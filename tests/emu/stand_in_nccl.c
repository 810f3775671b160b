// Stands in for libnccl.so.2, for nccl_loading.cpp: notes what it is asked for, and answers as it is told.
// Built three times: whole, as another version (STAND_IN_VERSION), and without one of its functions
// (STAND_IN_MISSING).
#include "stand_in_nccl.h"

#include <string.h>
#include <unistd.h>

#ifndef STAND_IN_VERSION
#define STAND_IN_VERSION 22109
#endif

struct stand_in stand_in;

int ncclGetVersion(int *version) {
    *version = STAND_IN_VERSION;
    return 0;
}

int ncclGetUniqueId(struct stand_in_id *id) {
    for (int i = 0; i < 128; i++)
        id->bytes[i] = (char)(i + 1);
    return stand_in.answer;
}

int ncclCommInitRank(void **comm, int world, struct stand_in_id id, int rank) {
    stand_in.world = world, stand_in.rank = rank, stand_in.id = id;
    stand_in.opened++;
    *comm = &stand_in;
    while (__atomic_load_n(&stand_in.hangs, __ATOMIC_ACQUIRE))
        usleep(1000);
    return stand_in.answer;
}

int ncclAllReduce(const void *in, void *out, size_t count, int type, int op, void *comm, void *stream) {
    stand_in.in = in, stand_in.out = out, stand_in.count = count;
    stand_in.type = type, stand_in.op = op, stand_in.comm = comm, stand_in.stream = stream;
    stand_in.sums++;
    return stand_in.answer;
}

int ncclCommGetAsyncError(void *comm, int *error) {
    stand_in.comm = comm;
    *error = stand_in.async;
    return 0;
}

#ifndef STAND_IN_MISSING
int ncclCommAbort(void *comm) {
    stand_in.comm = comm;
    __atomic_add_fetch(&stand_in.aborted, 1, __ATOMIC_ACQ_REL);
    return 0;
}
#endif

int ncclCommDestroy(void *comm) {
    stand_in.comm = comm;
    stand_in.destroyed++;
    return 0;
}

const char *ncclGetErrorString(int error) { return error == 6 ? "a mistake elsewhere" : "a mistake here"; }
