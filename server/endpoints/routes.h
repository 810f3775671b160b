// Method and path to handler. Whether a key is needed is written on the route, and the default is that it is;
// what has no route needs one, too.
#pragma once

#include "requests/app.h"

enum { NUM_ROUTES = 46, ROUTE_OTHER = NUM_ROUTES - 1 }; // the last one stands for unknown paths

struct route {
    const char *path;
    bool prefix;                   // path ends in '/', and anything may follow
    bool open;                     // no key: liveness only
    bool early;                    // also while loading, draining or dead
    const char *methods;           // for Allow
    const struct dialect *dialect; // of a completion; of others whose form errors have, NULL: OpenAI's
    void (*get)(struct app *app, struct http_request *request);
    void (*post)(struct app *app, struct http_request *request); // with the body
};

const struct route *route_find(const char *path); // exact match, by our path or another server's; never NULL
int route_index(const struct route *route);

bool routes_head(void *app, struct http_request *request); // the functions of http_app
void routes_body(void *app, struct http_request *request);
void routes_drained(void *app, struct http_request *request);
void routes_done(void *app, struct http_request *request);
