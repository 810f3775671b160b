// Apart from log.c, so that a module or a pure library can link it alone.
#include "log.h"

#include <stdio.h>
#include <stdlib.h>

void check_failed(const char *cond, const char *file, int line) {
    fprintf(stderr, "level=error check failed: %s at %s:%d\n", cond, file, line);
    abort();
}
