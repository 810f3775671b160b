// Whether a stream is a terminal that lines can be drawn over on.
#pragma once

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// False if it is no terminal, or one that names itself dumb. Any thread, while no thread sets the environment.
static inline bool terminal_draws(int fd) {
    const char *term = getenv("TERM");
    return isatty(fd) == 1 && !(term && strcmp(term, "dumb") == 0);
}
