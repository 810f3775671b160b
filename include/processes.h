// The processes that share one model: started together by mpirun or srun, on one machine or several. Process
// 0 has the server and the scheduler; the others follow it (engine_follow()).
//
// Each process sends the others a sign of life from a thread of its own, so that a long step is not a death;
// a process that dies or stalls, and any failure, ends the group for all within seconds. Times are counted so
// that a process which was stopped together with all others may go on.
#pragma once

#include "status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PROCESSES_MAX = 16 };

struct processes;

// What the launcher's environment says.
struct launch {
    const char *launcher; // "mpirun", "srun", "PMIx"; NULL: none, or of one process
    int process;          // of this one, from 0
    int num_processes;    // 0: the environment does not say
};

// Whether a launcher has started more than one process of this program. Asks only the environment.
bool processes_launched(struct launch *launch);

// How many seconds the launcher leaves between SIGTERM and SIGKILL, as far as the environment says: mpirun's
// are few. Negative: as long as one likes, or nobody knows.
double launch_patience(void);

// Joins the processes of the launcher, once in the life of a process, before other threads use MPI. *p NULL
// with STATUS_OK: there is only this one. STATUS_DEVICE: no module for MPI. STATUS_INVALID: one of them is
// another version of Quire, or built from other sources: then all fail, and *p is there to be left, after err
// has been shown.
enum status processes_join(const struct launch *launch, struct processes **p, struct err *err);
int processes_index(const struct processes *p); // 0 to count - 1
int processes_count(const struct processes *p);

// Ends the group: every wait in every process returns, for good. The first reason stays. Any thread.
void processes_end(struct processes *p, const char *why);
// Why the group has ended, or "". Any thread; lives as long as p.
const char *processes_error(struct processes *p);

// Leaves. While the group works all leave together: a process waits for the others, at most some seconds.
// After its end nobody is waited for, and the process should end soon. NULL is allowed. False: the group has
// ended.
bool processes_leave(struct processes *p);

#ifdef __cplusplus
}
#endif
