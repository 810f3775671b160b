// The collectives of processes.h that the engine uses: status checks while a model is opened, communicators
// of ranks, and the steps of process 0. All processes call the same functions in the same order. A call waits
// as long as the slowest process loads, but not longer than that process lives.
#pragma once

#include "comm.h"
#include "processes.h"

struct setting {
    const char *name; // as the user knows it: "--block-size"
    char value[72];
};

enum { MAX_SETTINGS = 32 };

// Each of these gives STATUS_OK in every process or fails in every process.

// err: this process's own failure, or STATUS_OK. All get the failure of the first process that has one; the
// message names that process where it is another.
enum status processes_check_status(struct processes *p, struct err *err);
// STATUS_INVALID if a process has another setting than process 0: the message names process, setting and both
// values.
enum status processes_check_settings(struct processes *p, const struct setting *settings, int num,
                                     struct err *err);
enum status processes_all_min(struct processes *p, int64_t *value, struct err *err);
enum status processes_all_sum(struct processes *p, uint64_t *value, struct err *err);

// Processes on this one's machine, and those of them that may run on the same CPUs; this one included.
int processes_on_host(const struct processes *p);
int processes_on_cpus(const struct processes *p);
bool processes_share_machine(const struct processes *p, int first, int second); // by index
int processes_before(const struct processes *p); // processes of a lower index on this machine

// A comm of ranks, of which this process has `rank`; process[r]: the process of rank r. number: 0 to 31, the
// same for all ranks of this comm and of no other. deadline_ms as in comm_processes.h. The group owns it.
// NULL with err.
struct comm *processes_comm(struct processes *p, int number, int rank, int world, const int *process,
                            int deadline_ms, struct err *err);

// Steps of process 0 to all others, in order. Process 0 is at most MAX_STEPS_AHEAD ahead of the slowest.
enum { MAX_STEPS_AHEAD = 8 };
// Process 0: begins to send. data stays as it is until MAX_STEPS_AHEAD - 1 more have been sent and
// processes_wait_sent() has returned. STATUS_DEVICE: the group is aborted.
enum status processes_send_step(struct processes *p, const void *data, size_t bytes);
enum status processes_wait_sent(struct processes *p); // until the oldest step's data is free
// The others: wait for the next step, of at most max bytes. STATUS_DEVICE: the group is aborted.
enum status processes_receive_step(struct processes *p, void *data, size_t max, size_t *bytes);
