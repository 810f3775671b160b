// The QUIRE_* variables that nobody reads: a name that is wrong sets nothing, and says so.
#pragma once

#include "config.h"

// Warns of each, with what may have been meant. One that looks like a key keeps a server from starting
// without it: STATUS_INVALID. The others do not, since whoever starts a process sets some of its own
// (Kubernetes: QUIRE_SERVICE_HOST). Before other threads.
enum status environment_check(const struct config *c, struct err *err);
