// Method and path to handler. Whether a key is needed is written on the route, and the default is that it is;
// what has no route needs one, too.
#pragma once

#include "app.h"

enum { NUM_ROUTES = 13, ROUTE_OTHER = NUM_ROUTES - 1 }; // the last one stands for unknown paths

struct route {
    const char *path;
    bool prefix;         // path ends in '/', and anything may follow
    bool open;           // no key: liveness only
    bool early;          // answers while loading, draining or dead
    bool streams;        // http_call.user is a stream; otherwise a job
    const char *methods; // for Allow
    void (*get)(struct app *app, struct http_call *call);
    void (*post)(struct app *app, struct http_call *call); // with the body
};

const struct route *route_find(const char *path); // exact match; never NULL
int route_index(const struct route *route);

bool routes_head(void *app, struct http_call *call); // the functions of http_app
void routes_body(void *app, struct http_call *call);
void routes_drained(void *app, struct http_call *call);
void routes_done(void *app, struct http_call *call);
