// The processes that share one model: started together by mpirun or srun, on one machine or several. Process
// 0 has the server and the scheduler; the others run its steps (engine_follow()).
//
// Each process sends the others heartbeats from a thread of its own, so that a long step is not taken for a
// failure. A process that exits or stalls, and any failure, aborts the group in every process within seconds.
// Silence is counted in turns of that thread, so that a process which was stopped together with all others
// may go on.
#pragma once

#include "status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PROCESSES_MAX = 16 };

struct processes;

// This process's place among those that a launcher started, from the environment.
struct launch {
    const char *launcher; // "mpirun", "srun", "PMIx"; NULL: none, or of one process
    int process;          // of this one, from 0
    int num_processes;    // 0: the environment does not say
};

// Whether a launcher has started more than one process of this program. Reads only the environment.
bool processes_launched(struct launch *launch);

// Seconds that the launcher leaves between SIGTERM and SIGKILL, as far as the environment says: mpirun leaves
// few. Negative: no limit that we know.
double launch_patience(void);

// Joins the processes of the launcher, once in the lifetime of a process, before other threads use MPI. *p
// NULL with STATUS_OK: there is only this one. STATUS_DEVICE: no module for MPI. STATUS_INVALID: one of them
// is another version of Quire, or built from other sources: then all fail, and *p is left to
// processes_leave(), after err has been shown.
enum status processes_join(const struct launch *launch, struct processes **p, struct err *err);
int processes_index(const struct processes *p); // 0 to count - 1
int processes_count(const struct processes *p);

// Aborts the group: every wait in every process returns, for good. The first reason stays. Any thread.
void processes_abort(struct processes *p, const char *why);
// Why the group is aborted, or "". Any thread; lives as long as p.
const char *processes_error(struct processes *p);

// Leaves. While the group works all leave together: a process waits some seconds at most for the others.
// After an abort it waits for none, and the process should exit soon. NULL is allowed. False: the group is
// aborted.
bool processes_leave(struct processes *p);

#ifdef __cplusplus
}
#endif
