// An exchange: a request whose response is made after its body was read, and the response. All kinds have one life:
//
//     read -> begin -> answered, for each answer of the engine -> finish -> done
//
// exchange.c leads every exchange through it, and sends the response or the error; a kind says what is special.
//
// Ownership: an exchange belongs to its HTTP request (http_request.user) until that is done, and is freed then; one that
// the pool or the engine holds at that moment is freed when they give it back. Thread: the loop, but for what the kind
// may be asked in the pool.
#pragma once

#include "app.h"

// Larger bodies are parsed and tokenised in the pool, so that no stream stalls.
enum { POOL_BODY = 64 * 1024 };

struct exchange;

// A function that returns false has set e; then the client gets that error. NULL stands for a function that does nothing.
struct exchange_kind {
    size_t size;      // of a struct that begins with struct exchange; comes zeroed
    bool reads_files; // read() is for the pool, however small the body is
    // Parses the body, and may set `ignored`; in the pool where the body is large. Touches its exchange and the immutable
    // model only.
    bool (*read)(struct exchange *x, const char *body, size_t len, struct api_error *e);
    // Loop: sets `query`, which is asked of the engine; or leaves it NULL, and finish() comes at once.
    bool (*begin)(struct exchange *x, struct api_error *e);
    // Loop: the query is answered. Adds what only the loop knows.
    void (*answered)(struct exchange *x);
    // Writes the JSON of the response; in the pool where begin() has set `large`, and then as read() does.
    bool (*finish)(struct exchange *x, struct buf *out, struct api_error *e);
    // Loop: frees what it owns, but not itself.
    void (*done)(struct exchange *x);
};

enum exchange_state {
    EXCHANGE_OPEN,  // no response yet
    EXCHANGE_ENDED, // it has its response, or an error
};

struct exchange {
    const struct exchange_kind *kind;
    struct app *app;
    struct http_request *http;   // NULL: the client has left
    const char *ignored;         // names of fields without an effect, `a, b`; NULL: none
    struct service_query *query; // owned by the kind's own struct
    bool large;
    // exchange.c's
    enum exchange_state state;
    bool held, in_pool; // by the engine or the pool; by the pool
    struct work_client client;
    struct pool_work work;
    void (*step)(struct exchange *x); // what the pool does, and then the loop
    void (*next_step)(struct exchange *x);
    struct buf body, out;
    struct api_error error;
};

// An exchange of this kind with the body of the request. NULL: out of memory, and the client knows.
struct exchange *exchange_new(struct app *app, struct http_request *request,
                              const struct exchange_kind *kind);
void exchange_run(struct exchange *x); // begins its life; x may have ended
void exchange_start(struct app *app, struct http_request *request, const struct exchange_kind *kind); // both
// Ends it with an error, unless it has ended.
void exchange_fail(struct exchange *x, const struct api_error *e);
// The request is over, or its client has left.
void exchange_done(struct http_request *request);
