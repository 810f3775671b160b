// A call whose whole answer is computed from its body alone: at once, or in the pool where the body is large.
//
// Ownership: a job belongs to its call (http_call.user) until the call is done; where that is before the pool
// returns, the pool's return frees it.
#pragma once

#include "app.h"

enum {
    POOL_BODY = 64 * 1024
}; // larger bodies are parsed and tokenised in the pool, so that no stream stalls

// Writes the JSON of the answer. False: e says why not. In the pool: touches nothing but its arguments.
typedef bool job_fn(const struct openai_model *m, const char *body, size_t len, struct buf *out,
                    struct api_error *e);

void job_start(struct app *app, struct http_call *call, job_fn *fn);
void job_done(struct http_call *call); // the call is over or its client has left

void http_error(struct http_call *call, const struct api_error *e); // as the one answer of a call
void http_json(struct http_call *call, struct buf *b);              // 200; frees b
