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
#include "framing.h"
#include "linger.h"
#include "listen.h"
#include "sse.h"

#include <microhttpd.h>
#include <stdatomic.h>
#include <uv.h>

struct http;
struct http_request;
struct route;
struct dialect;

enum http_state {
    HTTP_HEAD, // the request line came; the handler has not been called
    HTTP_BODY, // the body is being read
    HTTP_WORK, // suspended: the application works; http_reply() or http_stream() ends it
    HTTP_SENT, // a response is queued, or streaming
};

// Why the rest of a body is not read.
enum http_trouble {
    HTTP_BODY_WHOLE,
    HTTP_BODY_TOO_LARGE, // undeclared, and over the limit
    HTTP_BODY_NO_ROOM,   // over the limit of all bodies
    HTTP_BODY_TOO_SLOW,
};

struct http_conn {
    struct http *http;
    struct http_conn *prev, *next;
    struct MHD_Connection *mhd;
    int fd;
    struct http_request *request; // the request being read or responded to, or NULL: idle
    int64_t since;                // monotonic ns of accept or of the last request's end
    int64_t deadline;             // 0: none; then the socket is shut down
    uint64_t idle_bytes; // received when the last request ended; more means that a next head has begun
    bool seen_idle;      // idle_bytes is set
    bool used;           // has had a request
    bool unread;         // closes with bytes of a body unread: linger.h
    int credit;          // requests that it may have at once
    int64_t credit_since;
    bool paused;              // has a response, and no credit
    bool over;                // accepted beyond the soft limit: the first request gets 503
    bool closed;              // the socket is gone; freed when `gone` has closed
    uv_poll_t gone;           // watches for the client leaving while libmicrohttpd does not look
    bool gone_open, watching; // the handle was made; it is active
};

struct http_request {
    struct http_conn *conn;
    struct http *http;
    enum http_state state;
    char method[24]; // GET for HEAD, too; a longer one is cut, and is none that we know
    bool is_head;
    char *path;            // decoded, without the query; owned
    struct http_head head; // borrowed strings: valid during the request
    bool bad_url;          // the target is none
    const char *refused;   // why the framing is refused, with the status in `status`, or NULL
    char request_id[132];
    const struct route *route;     // set by the application
    const struct dialect *dialect; // likewise: whose form errors have; NULL: the default one
    int64_t arrived;               // monotonic ns of the request line
    struct buf body;
    int64_t body_since; // the window over which its rate is taken: beginning, and bytes by then
    size_t body_mark;
    enum http_trouble trouble;
    bool suspended; // libmicrohttpd does not look at the connection
    bool gone;      // the client has left
    bool done_called;
    // the response
    int status;
    size_t response_len;           // of one that is no stream
    struct buf headers;            // "name\0value\0" pairs
    struct MHD_Response *response; // ready to queue, or NULL
    bool streaming, stream_ended, broken, close;
    bool want_drained; // the application waits for drained()
    struct sse_queue out;
    void *user; // the application's
};

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

struct http_limits {
    int max_connections;            // 0: 10,000, or what the file limit allows
    size_t max_body;                // bytes of one body; 0: 32 MiB
    size_t max_all_bodies;          // bytes of all bodies at a time; 0: 512 MiB
    int head_timeout, idle_timeout; // seconds; 0: 10, 120
    int body_window,
        body_timeout; // seconds over which a body must have its rate, and of all of it; 0: 10, 300
    int send_grace;   // seconds beyond what a response may take by its rate; 0: 30
    int rate;         // bytes per second, either way, at least; 0: 16 KiB/s
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
    struct http_linger linger;
    struct listener listener; // set before http_open()
    uint64_t calls;           // of our functions by libmicrohttpd
    _Atomic int current_fd;   // the connection that is worked for; -1: none. For another thread to see
    int num_conns, soft_limit, hard_limit;
    size_t all_bodies;
    struct http_conn *conns, *oldest; // newest first
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
void http_stream(struct http_request *request); // 200, text/event-stream; frames of request->out follow
// A header of the coming response; copied.
void http_header(struct http_request *request, const char *name, const char *value);
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

int64_t http_now(void); // monotonic ns
