// The time that a thread may take to compile: a second of its own CPU time, so that a busy machine refuses nothing that
// an idle one takes. Without a begin there is no bound. Whatever makes states, or tries alternatives, asks.
#pragma once

#include "status.h"

#include <stdatomic.h>
#include <stdbool.h>

enum { WORK_TIME_MS = 1000 };

void work_time_begin(void);
void work_time_end(void);
// The work of this thread is over, too, once *stop, which outlives it; NULL: no more.
void work_time_stop_by(const atomic_bool *stop);
// false: it is over, with err STATUS_LIMIT, or STATUS_CANCELLED where it was stopped. Looks at every 64th call.
bool work_time_left(struct err *err);
