// A request whose whole response is computed from its body alone: at once, or in the pool where the body is
// large.
//
// Ownership: a job belongs to its request (http_request.user) until the request is done; if that is before the
// pool returns, the pool's return frees it.
#pragma once

#include "app.h"

// Larger bodies are parsed and tokenised in the pool, so that no stream stalls.
enum { POOL_BODY = 64 * 1024 };

// Writes the JSON of the response. False: e says why not. Either way sets `ignored`, of IGNORED_SIZE, to the names of
// fields without an effect. In the pool: touches nothing but its arguments.
typedef bool job_fn(const struct served_model *m, const char *body, size_t len, struct buf *out,
                    char *ignored, struct api_error *e);

void job_start(struct app *app, struct http_request *request, job_fn *fn);
// The same, in the pool however small the body is: for what reads files.
void job_start_pooled(struct app *app, struct http_request *request, job_fn *fn);
void job_done(struct http_request *request); // the request is over or its client has left
