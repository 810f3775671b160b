// One client's completion: its choices, from submission to the end of the response, in whatever dialect.
//
// Ownership: a completion belongs to its HTTP request (http_request.user) until that is done; one that is in
// the pool then is freed when the pool gives it back. Choices are known to the engine by id alone: a table
// maps ids to choices, and events of ids that are no longer there are dropped. Loop thread only, but for the
// parsing of large bodies.
#pragma once

#include "app.h"

// Takes the body of the request, whose dialect is set, and responds, at once or later.
void completion_start(struct app *app, struct http_request *request);
// The request is over or its client has left.
void completion_done(struct app *app, struct http_request *request);
// The client has taken what was written; writes what was kept back.
void completion_drained(struct app *app, struct http_request *request);
// Takes all events of the service and writes what they give. The caller then lets HTTP run.
void completions_take_events(struct app *app);
// Once a second: pings, stalled readers.
void completions_tick(struct app *app, int64_t now);
// Ends all completions with an error.
void completions_fail(struct app *app, int status, const char *code, const char *message);
void completions_free(struct app *app); // the table
