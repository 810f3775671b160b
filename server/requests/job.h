// An exchange whose whole response is computed from the body alone, such as a text's tokens.
#pragma once

#include "exchange.h"

// Writes the JSON of the response. False: e says why not. Either way sets `ignored`, of IGNORED_SIZE, to the names of
// fields without an effect. In the pool where the body is large: touches nothing but its arguments.
typedef bool job_fn(const struct served_model *m, const char *body, size_t len, struct buf *out,
                    char *ignored, struct api_error *e);

// reads_files: in the pool however small the body is.
void job_start(struct app *app, struct http_request *request, job_fn *fn, bool reads_files);
