// A response that goes on without its client. It has a request that stands in for the client's, without a connection: what
// the log, spans and timings read of one; and whose events stay, so that any number of clients may read them from the
// first or from a later one on. Counted references; loop thread, but that the pool may read the events while nobody writes.
#pragma once

#include "http/http.h"

struct background_listener {
    void (*heard)(struct background_listener *l); // there are more events, or the last one is there
    struct background_listener *next;
};

struct background {
    struct http_request request; // its `out` is never read with sse_read(): event N is its frame N
    struct background_listener *listeners;
    size_t shown; // bytes of request.out that listeners may read
    bool ended;   // no more will come
    bool deleted; // nobody wants it kept
    int references;
    char *strings[4]; // that the request borrows
};

// With one reference. NULL: out of memory.
struct background *background_new(const struct http_request *client);
struct background *background_hold(struct background *b);
void background_release(struct background *b); // NULL is allowed
void background_show(struct background *b);    // all events that are written
void background_end(struct background *b);     // the same, and they are all
void background_listen(struct background *b, struct background_listener *l);
void background_leave(struct background *b, struct background_listener *l);
