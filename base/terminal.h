// Whether a stream is a terminal that lines can be drawn over on.
#pragma once

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// False for what is no terminal, and for one that names itself dumb. Any thread, while nobody sets the environment.
static inline bool terminal_draws(int fd) {
    const char *term = getenv("TERM");
    return isatty(fd) == 1 && !(term && strcmp(term, "dumb") == 0);
}
