// A connection, the request on it, and the limits of both. http.h has who owns them.
#pragma once

#include "framing.h"
#include "sse.h"

#include <microhttpd.h>
#include <uv.h>

struct http;
struct http_handshakes;
struct http_request;
struct route;
struct api_form;

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
    HTTP_BODY_MALFORMED, // its chunks
};

struct http_conn {
    struct http *http;
    struct http_conn *prev, *next;
    struct MHD_Connection *mhd;
    int fd;
    struct gnutls_session_int *tls; // libmicrohttpd's; NULL: plain HTTP
    unsigned char peer[16];         // address: of IPv6 the network, which has the first 64 bits
    struct http_request *request;   // the request being read or responded to, or NULL: idle
    int64_t since;                  // monotonic ns of accept or of the last request's end
    int64_t deadline;               // 0: none; then the socket is shut down
    uint64_t idle_bytes; // received when the last request ended; more means that a next head has begun
    bool seen_idle;      // idle_bytes is set
    bool used;           // has had a request
    bool unread;         // closes with bytes of a body unread: linger.h
    int credit;          // requests that it may have at once
    int64_t credit_since;
    bool seen;                // libmicrohttpd has called for it since it was judged last
    int unseen;               // how often it was not, though bytes waited
    bool paused;              // has a response, and no credit
    bool over;                // accepted beyond the soft limit: the first request gets 503
    bool closed;              // the socket is gone; freed when `gone` has closed
    uv_poll_t gone;           // watches for the client leaving while libmicrohttpd does not look
    bool gone_open, watching; // the handle was made; it is active
    // A TLS handshake (handshake.h) is not over; it is suspended; it is in the list of those that are not
    bool shaking, parked, in_active;
    struct http_handshakes *handshakes;
    struct http_conn *shaking_prev, *shaking_next;
};

struct http_request {
    struct http_conn *conn;
    struct http *http;
    enum http_state state;
    char method[24]; // GET for HEAD, too; a longer one is cut, and is none that we know
    bool is_head;
    const char *target;    // borrowed; raw, then decoded and without the query
    char *path;            // decoded, without the query; owned
    struct http_head head; // borrowed strings: valid during the request
    bool bad_url;          // the target is none
    const char *refused;   // why the framing is refused, with the status in `status`, or NULL
    char request_id[132];
    const struct route *route;   // set by the application
    const struct api_form *form; // likewise: that errors have; NULL: the default one
    int64_t arrived;             // monotonic ns of the request line
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

struct http_limits {
    int max_connections;            // 0: 10,000, or what the file limit allows
    size_t max_body;                // bytes of one body; 0: 32 MiB
    size_t max_all_bodies;          // bytes of all bodies at a time; 0: 512 MiB
    int head_timeout, idle_timeout; // seconds; 0: 10, 120
    // seconds over which a body must have its rate, and of all of it; 0: 10, 300
    int body_window, body_timeout;
    int send_grace; // seconds beyond what a response may take by its rate; 0: 30
    int rate;       // bytes per second, either way, at least; 0: 16 KiB/s
};
