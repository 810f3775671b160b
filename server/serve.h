// quire serve: a process that serves HTTP until a signal or a failure ends it.
#pragma once

#include "config.h"

int cmd_serve(const struct config *c); // returns an exit code
