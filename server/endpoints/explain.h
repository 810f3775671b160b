// Why the cache missed, and when a first token would come: POST /v1/cache/explain, GET /v1/cache/explain/{id} and
// POST /v1/estimate. docs/api.md has their shapes. Loop thread.
#pragma once

#include "requests/app.h"

void post_explain(struct app *app, struct http_request *request);
void get_explanation(struct app *app, struct http_request *request);
void post_estimate(struct app *app, struct http_request *request);

struct completion_request;
// Notes what the engine calls a client's request, for get_explanation(): the last PROMPT_PAST are known.
struct past_requests;
struct past_requests *past_requests_new(void); // NULL: out of memory
// client_id: the response's, of which `prefix` bytes are its dialect's.
void past_requests_add(struct past_requests *p, const char *client_id, size_t prefix,
                       const uint8_t tenant[SHA256_BYTES], uint64_t id, const struct completion_request *q);
