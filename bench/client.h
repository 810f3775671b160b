// An HTTP/1.1 client for one server on one libuv loop: connections that are kept and reused, one call on
// each. Everything runs on the loop's thread. Each read is stamped when it returns, and the kernel's own
// stamp of the packet says how long it had waited for us.
#pragma once

#include "buf.h"
#include "record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct client;
struct client_call;

struct call_handlers {
    // The head is whole.
    void (*head)(void *context, int status, bool event_stream);
    // A part of the body, and when it was read. False: no more of it is wanted; the call ends with
    // ERROR_JSON.
    bool (*body)(void *context, const char *data, size_t len, int64_t now);
    // Once, last: the response is whole (ERROR_NONE) or will not come. The call is gone afterwards.
    // `connected`: the call waited for a new connection.
    void (*end)(void *context, enum error_kind error, const char *why, int64_t now, bool connected);
};

struct client_limits {
    double timeout, connect_timeout; // s
};

// Resolves the host. NULL: `message` says why.
struct client *client_open(uv_loop_t *loop, const char *host, const char *port, struct client_limits limits,
                           char *message, size_t size);
// Closes all connections; calls that still run end with ERROR_INTERRUPTED. The loop must run once more for
// the handles to go.
void client_close(struct client *c);

// Sends a request. Takes over what `request` owns. Handlers are never called from within.
struct client_call *client_send(struct client *c, struct buf *request, const struct call_handlers *handlers,
                                void *context);
// Ends all running calls with ERROR_INTERRUPTED.
void client_interrupt(struct client *c);

// How late reads were: ns from the kernel's stamp of the last packet to our read. Kept in buckets of 1/16
// octave.
enum { LAG_BUCKETS = 64 * 16 };
struct client_lag {
    uint64_t reads, stamped; // reads; those with a stamp of the kernel
    uint64_t bucket[LAG_BUCKETS];
    int64_t max;
};
void client_lag_add(struct client_lag *l, int64_t ns);
double client_lag_percentile(const struct client_lag *l, double p); // ms
const struct client_lag *client_lag(const struct client *c);
uint64_t client_connections(const struct client *c); // made so far
uint64_t client_retries(const struct client *c); // calls sent again because a kept connection had been closed
void client_forget(struct client *c);            // begins the counts anew
