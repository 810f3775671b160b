// quire inspect [MODEL]: what a model file holds, line by line.

#include "commands.h"
#include "process/console.h"
#include "process/setup.h"

#include <stdio.h>

static void print_line(void *arg, const char *text) {
    (void)arg;
    puts(text);
}

int cmd_inspect(const struct config *c) {
    struct err err = {0};
    if (c->args.len != 1) {
        complain("usage: quire inspect [MODEL]");
        return EXIT_USAGE;
    }
    enum status status = model_inspect(c->args.items[0], print_line, NULL, &err);
    if (status != STATUS_OK) {
        complain("%s", err.msg);
        return setup_engine_exit_code(status);
    }
    return 0;
}
