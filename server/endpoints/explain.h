// Why the cache missed, and when a first token would come: POST /v1/cache/explain, GET /v1/cache/explain/{id} and
// POST /v1/estimate. docs/api.md has their shapes. Loop thread.
#pragma once

#include "requests/app.h"

void post_explain(struct app *app, struct http_request *request);
void get_explanation(struct app *app, struct http_request *request);
void post_estimate(struct app *app, struct http_request *request);
