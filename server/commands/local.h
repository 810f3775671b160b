// An engine in this process, for the commands that need no server.
#pragma once

#include "process/config.h"
#include "service.h"

struct local {
    struct engine *engine;
    struct service *service;
    const struct tokenizer *tokenizer;
    const char *path; // borrowed from the configuration
};

// 0, or an exit code after one line on stderr.
int local_open(struct local *l, const struct config *c);
void local_close(struct local *l);
// The part of every process but the first under mpirun or srun: opens the engine and runs the first one's steps.
int local_work(const struct config *c);
// Says why a request ended with FINISH_ERROR, and gives the exit code: the device, or a model whose logits
// are not finite.
int local_failed(const struct local *l);
