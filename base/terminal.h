// Whether a stream is a terminal that takes codes: to draw over lines, to style text.
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

// Whether it takes colours and dim text, too: false where NO_COLOR is set and not empty (https://no-color.org), which forbids no
// moves of the cursor. Any thread, as terminal_draws().
static inline bool terminal_styles(int fd) {
    const char *plain = getenv("NO_COLOR");
    return terminal_draws(fd) && !(plain && *plain);
}
