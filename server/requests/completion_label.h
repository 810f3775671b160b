// What requests of the engine are to their clients. Loop thread.
#pragma once

#include "app.h"

struct completion_label {
    const char *request_id, *adapter; // borrowed until the loop's turn ends; adapter: "" is none
    uint8_t tenant[SHA256_BYTES];     // as app_tenant() gives it
};

// False: the id is none of a completion, or its client has left.
bool completion_label(struct app *app, uint64_t id, struct completion_label *out);

// Counts the requests that have not ended, those of the adapters too.
void completion_census(const struct app *app, struct metrics_census *out, struct metrics_adapter *adapters,
                       int num_adapters);
