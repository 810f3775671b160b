// Responses for which the engine thread is asked: a body is read, the engine asked between two steps, the answer
// written. Bodies over POOL_BODY, and answers where the kind says so, are read and written in the pool.
//
// Ownership: an inquiry belongs to its request (http_request.user) until the request is done; if that is before engine
// or pool return, their return frees it. Loop thread but for read() and write().
#pragma once

#include "app.h"

struct inquiry;

struct inquiry_kind {
    size_t size; // of a struct that begins with struct inquiry; comes zeroed
    // Reads the body. In the pool: touches its inquiry and the immutable model only. NULL: there is none.
    bool (*read)(struct inquiry *q, const char *body, size_t len, struct api_error *e);
    // Sets query, whose run() will be called; leaves it NULL: the engine is not asked. False: e says why.
    bool (*begin)(struct inquiry *q, struct api_error *e);
    void (*answered)(struct inquiry *q); // adds what only the loop knows; NULL: nothing
    // Writes the JSON of the response, likewise in the pool. False: e says why not.
    bool (*write)(struct inquiry *q, struct buf *out, struct api_error *e);
    void (*free)(struct inquiry *q); // what it owns; NULL: nothing
};

struct inquiry {
    const struct inquiry_kind *kind;
    struct app *app;
    struct http_request *request; // NULL: gone
    struct service_query *query;
    bool large;                 // set by begin(): write() is for the pool
    char ignored[IGNORED_SIZE]; // set by read()
    // private
    struct work_client client;
    struct pool_work work;
    struct buf body, out;
    struct api_error error;
    bool replied;
};

void inquiry_start(struct app *app, struct http_request *request, const struct inquiry_kind *kind);
void inquiry_done(struct http_request *request); // the request is over or its client has left
