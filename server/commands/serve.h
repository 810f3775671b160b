// quire serve: a process that serves HTTP until a signal or a failure ends it.
#pragma once

#include "process/config.h"

int cmd_serve(const struct config *c); // returns an exit code
