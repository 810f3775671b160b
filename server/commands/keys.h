// The keys of clients and of administrators: those of flags and of the environment, and those of files, which SIGHUP
// has read again.
#pragma once

#include "status.h"

#include <stdbool.h>

struct app;

// At the start. False: err says why there are none, or none that --require-key wants.
bool keys_take(struct app *app, struct err *err);
// Has the files read in the pool. Both are taken or, with a line of the log, neither. The loop's thread.
void keys_reload(struct app *app);
