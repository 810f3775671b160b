// What processes ask one another while a model is opened. All call the same functions in the same order; each
// may wait as long as the slowest loads, but not longer than it lives.
#pragma once

#include "comm.h"
#include "processes.h"

struct setting {
    const char *name; // as the user knows it: "--block-size"
    char value[72];
};

enum { MAX_SETTINGS = 32 };

// Each of these gives STATUS_OK everywhere or fails everywhere.

// err: this process's own failure, or STATUS_OK. The failure of the first process that has one becomes that
// of all; where it is another's, the message says whose.
enum status processes_agree(struct processes *p, struct err *err);
// Whether all have the same settings as process 0; else STATUS_INVALID names process, setting and both
// values.
enum status processes_compare(struct processes *p, const struct setting *settings, int num, struct err *err);
// The least of all values.
enum status processes_min(struct processes *p, int64_t *value, struct err *err);
enum status processes_sum(struct processes *p, uint64_t *value, struct err *err);

// How many processes are on this one's machine, and of those, how many have the same processors to run on;
// this one included.
int processes_on_host(const struct processes *p);
int processes_on_processors(const struct processes *p);
// How many of those on this machine come before this one.
int processes_before(const struct processes *p);

// A comm of ranks, of which this process has `rank`; process[r]: where rank r is. number: 0 to 31, the same
// for all ranks of this comm and of no other. deadline_ms as in comm_processes.h. The group owns it. NULL
// with err.
struct comm *processes_comm(struct processes *p, int number, int rank, int world, const int *process,
                            int deadline_ms, struct err *err);

// Orders of process 0 to all others, which take them one after another. Process 0 runs ahead by at most
// MAX_ORDERS.
enum { MAX_ORDERS = 8 };
// Process 0: data stays as it is until MAX_ORDERS - 1 more have been given and processes_may_order() has come
// back. STATUS_DEVICE: the group has ended.
enum status processes_order(struct processes *p, const void *data, size_t bytes);
enum status processes_may_order(struct processes *p); // waits until the oldest one's data is free
// The others: waits for the next order, of at most max bytes. STATUS_DEVICE: the group has ended.
enum status processes_obey(struct processes *p, void *data, size_t max, size_t *bytes);
