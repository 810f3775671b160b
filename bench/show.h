// Progress on stderr: one line that is written over on a terminal, plain lines elsewhere.
#pragma once

#include "load.h"

struct show {
    bool quiet, terminal, shown;
    int64_t last; // ns
    size_t completed;
    uint64_t chunks;
};

void show_begin(struct show *s, bool quiet);
void show_progress(const struct progress *p, void *show);
void show_end(struct show *s);
