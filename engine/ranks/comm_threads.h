// The comm of ranks that are threads of one process: ranks read one another's buffers in place.
#pragma once

#include "comm.h"

struct comm_threads;

// A group of `world` ranks, 1 to COMM_MAX_WORLD. deadline_ms: how long a rank waits for another, not counting
// time in which the whole process is stopped. NULL with err: STATUS_INVALID, STATUS_NOMEM.
struct comm_threads *comm_threads_open(int world, int deadline_ms, struct err *err);
// The comm of one rank; the group owns it.
struct comm *comm_threads_rank(struct comm_threads *g, int rank);
// No rank may be inside an operation. NULL is allowed.
void comm_threads_close(struct comm_threads *g);
