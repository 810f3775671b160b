// What the ranks of one model say to each other: what tensor and pipeline parallelism ask of threads,
// processes or devices.
//
// Every rank calls the same collectives in the same order with the same sizes; each returns when this rank's
// part is done and its buffers are its own again. Messages between two ranks come in the order of their
// sending, whatever collectives or messages of other pairs lie between. Sizes that differ are found and end
// the group, as does a rank that stays away past the deadline, and abort(): then every operation of every
// rank, those that wait included, returns a status that is not STATUS_OK, for good. So nothing waits for
// ever. The buffers of a failed operation must live until all ranks have returned from it.
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
    COMM_MAX_POSTED = 8, // messages of one rank to another that are on their way
};

struct comm;

struct comm_ops {
    // x (n) becomes the sum over all ranks, added as the binary tree of neighbours
    // ((0+1)+(2+3))+((4+5)+(6+7)) in the caller's floating-point mode: the same bits on every rank. The
    // number of ranks is a power of two.
    enum status (*all_reduce)(struct comm *c, float *x, size_t n);
    // all (world, bytes) = what each rank gives as mine (bytes), in the order of ranks. They do not overlap.
    enum status (*all_gather)(struct comm *c, void *all, const void *mine, size_t bytes);
    // data (bytes) of root comes to all others.
    enum status (*broadcast)(struct comm *c, void *data, size_t bytes, int root);
    // One pair of ranks. send() may wait for the recv() of the other side: order the calls so that no two
    // ranks both send first. bytes is the same on both sides.
    enum status (*send)(struct comm *c, const void *data, size_t bytes, int to);
    enum status (*recv)(struct comm *c, void *data, size_t bytes, int from);
    // send() in two halves, so that the sender computes on while the message travels: post() begins it and
    // waits only while COMM_MAX_POSTED are on their way; data must stay as it is until settle() says so,
    // which waits until all messages posted to that rank but the last `left` have been received.
    enum status (*post)(struct comm *c, const void *data, size_t bytes, int to);
    enum status (*settle)(struct comm *c, int to, int left);
    enum status (*barrier)(struct comm *c);
    // Ends the group on all ranks; the first reason stays. why is copied.
    void (*abort)(struct comm *c, const char *why);
    // Why the group has ended: a sentence that lives as long as the comm; "" while it works.
    const char *(*error)(struct comm *c);
};

struct comm {
    const struct comm_ops *ops;
    int rank, world;
};

#ifdef __cplusplus
}
#endif
