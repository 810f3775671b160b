// HTTP: libmicrohttpd driven by libuv, on the loop thread only.
//
// http.c knows connections, deadlines, bodies and chunks, and nothing of models. It asks the application
// through four functions (http_app). README.md has the states of a request, the deadlines and the limits by
// number.
//
// Ownership: a conn lives from accept to close; a request lives from its request line to its end
// (NOTIFY_COMPLETED) and belongs to http.c; the application keeps its own state in request->user and gets
// exactly one http_app.done() for each request that it saw.
#pragma once

#include "auth.h"
#include "conn.h"
#include "handshake.h"
#include "linger.h"
#include "listen.h"

#include <microhttpd.h>
#include <stdatomic.h>
#include <uv.h>

struct http_app {
    void *arg;
    // The head is complete. Calls http_reply() (then the body is not read), or returns true to read
    // the body.
    bool (*head)(void *arg, struct http_request *request);
    // The body is complete. Responds at once, or later: then the request is suspended. Or request->trouble says why
    // it is not read further: responds at once.
    void (*body)(void *arg, struct http_request *request);
    // The client has taken bytes of a stream. More may be written here.
    void (*drained)(void *arg, struct http_request *request);
    // The client has left (request->gone) or the request is over; request->user must be let go. Comes once.
    void (*done)(void *arg, struct http_request *request);
};

struct http {
    uv_loop_t *loop;
    struct http_app app;
    struct http_limits limits;
    struct MHD_Daemon *daemon;
    uv_poll_t poll;
    uv_timer_t timer; // libmicrohttpd's next time-out
    uv_idle_t more;   // it has more to do, in the loop's next turn
    uv_timer_t sweep; // our deadlines
    uv_timer_t pause; // while connections are paused
    uv_timer_t full;  // while there are hard_limit
    struct http_linger linger;
    struct http_handshakes handshakes;
    struct listener listener; // set before http_open()
    bool has_tls;             // likewise, after tls_use()
    _Atomic uint64_t calls;   // of our functions by libmicrohttpd. For another thread to see, as
    _Atomic int current_fd;   // the connection that is worked for; -1: none
    int64_t turn_end;         // when libmicrohttpd has had its share of the loop's turn
    bool closing;
    int num_conns, soft_limit, hard_limit;
    size_t all_bodies;
    struct http_conn *conns, *oldest; // newest first
    struct http_conn *to_judge;       // by the next sweep; NULL: it begins anew
    bool running, again;              // inside MHD_run; another round is wanted
    bool open;
};

// Takes http->listener over. STATUS_INVALID: err says why not.
enum status http_open(struct http *http, uv_loop_t *loop, const struct http_app *app,
                      const struct http_limits *limits, struct err *err);
// Resumes what is suspended, closes every connection (each request gets done()) and every handle. Run the
// loop once more afterwards.
void http_close(struct http *http);

// One response: header pairs first (http_header), then exactly one of these two. `body` is copied.
void http_reply(struct http_request *request, int status, const char *type, const void *body, size_t len);
void http_stream(struct http_request *request, const char *type); // 200; frames of request->out follow
// A header of the coming response; copied.
void http_header(struct http_request *request, const char *name, const char *value);
// A parameter of the query; NULL: none. Valid during the request.
const char *http_query(const struct http_request *request, const char *name);
// request->out has frames, or the response is ready: goes on with the next http_run().
void http_wake(struct http_request *request);
void http_stream_end(struct http_request *request);   // after the frames that are in request->out
void http_stream_break(struct http_request *request); // closes at once, without a proper end
void http_kill(struct http_request *request); // shuts the socket; the request ends when libmicrohttpd notices
// Moves the body out. It counts among all bodies until http_free_body().
struct buf http_take_body(struct http_request *request);
void http_free_body(struct http *http, struct buf *body);
// Lets libmicrohttpd work until nothing is ready. After any of the functions above that came from a timer, an
// event or a pool; inside head(), body() and drained() it is not needed.
void http_run(struct http *http);

// Shuts the socket of the connection that the loop works for now; returns it, or -1: there is none. Any thread.
int http_kill_current(struct http *http);

// Whether libmicrohttpd has had its share of this turn of the loop: what takes long belongs into the pool.
bool http_turn_over(const struct http *http);

int64_t http_now(void); // monotonic ns
