// The keys of clients and of administrators: those of flags and of the environment, and those of files, which SIGHUP
// has read again, as it has the server's certificate.
#pragma once

#include "status.h"

#include <stdbool.h>

struct app;

// At the start. False: err says why there are none, or none that --require-key wants; or no certificate. tls_use(NULL) frees it.
bool keys_take(struct app *app, struct err *err);
// Has the files read in the pool. Both of keys are taken or, with a line of the log, neither; so is the certificate with its
// key. The loop's thread.
void keys_reload(struct app *app);
