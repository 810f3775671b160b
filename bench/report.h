// Writes a result: the terminal's table, JSON, CSV.
#pragma once

#include "options.h"
#include "result.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct report {
    const struct options *o;
    const struct run *run;
    const struct result *res;
    const char *model, *form; // how prompts were written (probe.h)
};

void report_text(const struct report *r, FILE *out);
// A new object with vLLM's keys, and what vLLM has not. `quire-bench compare` reads it.
json_t *report_json(const struct report *r);
// A row for each request. False: not written, errno says why.
bool report_csv(const struct report *r, const char *path);
// Writes the object as JSON. False: errno says why.
bool report_write_json(const json_t *root, const char *path);
