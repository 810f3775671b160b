// Apart from log.c, so that a module or a pure library can link it alone.
#include "log.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

void check_failed(const char *cond, const char *file, int line) {
    struct pollfd out = {.fd = fileno(stderr), .events = POLLOUT};
    if (poll(&out, 1, 0) == 1) // a pipe without a reader must not keep us alive
        fprintf(stderr, "level=error check failed: %s at %s:%d\n", cond, file, line);
    abort();
}
