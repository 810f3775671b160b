// A stream of events that are there already, or come from a response in the background: from one of them on.
#pragma once

#include "background.h"
#include "exchange.h"

struct follow {
    struct exchange exchange; // first
    struct background_listener listener;
    struct background *source; // held; NULL: `events` are all
    struct buf events;         // frames of a struct sse_queue, owned
    size_t at;                 // bytes that were taken
    int64_t skip;              // events still to be left out
};

// How many events there are.
int64_t follow_count(const struct buf *events);
// To be called by begin(), with source or events, and skip; and flush() and done() of the kind.
void follow_begin(struct follow *f);
void follow_flush(struct exchange *x);
void follow_free(struct exchange *x);

// Answers the client of a response that goes on in the background, once its record is in its file: with its events from
// the first on, where it streams, else with the body, which is taken over. False: out of memory, and the client knows.
bool follow_start(struct app *app, struct http_request *client, struct background *source,
                  const uint8_t owner[SHA256_BYTES], const char *id, struct buf *body, bool streams);
