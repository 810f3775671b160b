// Communication between the ranks of one model: the collectives and messages of tensor and pipeline
// parallelism, between threads, processes or devices.
//
// Every rank calls the same collectives in the same order with the same sizes; a call returns when this
// rank's part is done and its buffers are its own again. Messages between two ranks arrive in the order in
// which they were sent, whatever collectives or messages of other pairs lie between. Sizes that differ, a
// rank that stays away past the deadline, and abort() abort the group: then every operation of every rank,
// waiting ones included, returns a status that is not STATUS_OK, for good. So no rank waits for ever. The
// buffers of a failed operation must live until all ranks have returned from it.
//
// A comm belongs to one rank and is used by the thread that owns the rank's device; abort() and error() by
// any thread. It is a table of functions, because a module imports nothing from the binary that loads it.
#pragma once

#include "status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    COMM_MAX_WORLD = 16, // ranks of a model: two stages of eight, four of four, ...
    COMM_MAX_SUM = 8,    // of a stage: a row-parallel sum has 8 segments (kernels/README.md, rule 3)
    COMM_MAX_ISENDS = 8, // messages in flight from one rank to another
};

struct comm;

struct comm_ops {
    // x (n) becomes the sum over all ranks, added as the binary tree of neighbours
    // ((0+1)+(2+3))+((4+5)+(6+7)) in the caller's floating-point mode: the same bits on every rank. The
    // number of ranks is a power of two.
    enum status (*all_reduce)(struct comm *c, float *x, size_t n);
    // all (world, bytes) = each rank's mine (bytes), in the order of ranks. The two do not overlap.
    enum status (*all_gather)(struct comm *c, void *all, const void *mine, size_t bytes);
    // data (bytes) of root is copied to all others.
    enum status (*broadcast)(struct comm *c, void *data, size_t bytes, int root);
    // One pair of ranks. send() may wait for the recv() of the other side: order the calls so that no two
    // ranks both send first. bytes is the same on both sides.
    enum status (*send)(struct comm *c, const void *data, size_t bytes, int to);
    enum status (*recv)(struct comm *c, void *data, size_t bytes, int from);
    // send() in two halves, so that the sender computes on while the message travels. isend() begins it and
    // waits only while COMM_MAX_ISENDS are in flight to that rank; data stays as it is until wait_sent() has
    // returned, which waits until that rank has received all but the last `left` messages.
    enum status (*isend)(struct comm *c, const void *data, size_t bytes, int to);
    enum status (*wait_sent)(struct comm *c, int to, int left);
    enum status (*barrier)(struct comm *c);
    // Aborts the group on all ranks; the first reason stays. why is copied.
    void (*abort)(struct comm *c, const char *why);
    // Why the group is aborted: a sentence that lives as long as the comm; "" while it works.
    const char *(*error)(struct comm *c);
};

struct comm {
    const struct comm_ops *ops;
    int rank, world;
};

#ifdef __cplusplus
}
#endif
