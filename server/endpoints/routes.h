// Method and path to handler.
#pragma once

#include "requests/app.h"

bool routes_head(void *app, struct http_request *request); // the functions of http_app
void routes_body(void *app, struct http_request *request);
void routes_drained(void *app, struct http_request *request);
void routes_done(void *app, struct http_request *request);
