// quire replay RECORD: feeds what --record wrote to a scheduler without a model, and compares every plan.
#include "commands.h"
#include "process/console.h"
#include "service.h"

#include <inttypes.h>
#include <stdio.h>

int cmd_replay(const struct config *c) {
    struct err err = {0};
    uint64_t plans = 0;
    if (c->args.len != 1) {
        complain("usage: quire replay RECORD");
        return EXIT_USAGE;
    }
    if (service_replay(c->args.items[0], &plans, &err) != STATUS_OK) {
        complain("%s", err.msg);
        return 1;
    }
    printf("%" PRIu64 " plans, all as recorded\n", plans);
    return 0;
}
