// One client's answer to /v1/completions: its choices, from submission to [DONE].
//
// Ownership: a stream belongs to its call (http_call.user) until the call is done; one that is in the pool
// then is freed when the pool gives it back. Choices are known to the engine by id alone: a table maps ids to
// choices, and events of ids that are no longer there are dropped. Loop thread only, but for the parsing of
// large bodies.
#pragma once

#include "app.h"

enum stream_state {
    STREAM_PARSING, // the body is in the pool
    STREAM_RUNNING, // requests are with the engine
    STREAM_ENDED,   // answered, or failed
};

// Takes the body of the call and answers it, at once or later.
void stream_start(struct app *app, struct http_call *call);
void stream_start_chat(struct app *app, struct http_call *call);
// The call is over or its client has left.
void stream_done(struct app *app, struct http_call *call);
// The client has taken what was written; writes what was kept back.
void stream_drained(struct app *app, struct http_call *call);
// Takes all events of the service and writes what they give. The caller then lets HTTP run.
void streams_take_events(struct app *app);
// Once a second: pings, stalled readers.
void streams_tick(struct app *app, int64_t now);
// Ends all answers with an error.
void streams_fail(struct app *app, int status, const char *code, const char *message);
void streams_free(struct app *app); // the table
