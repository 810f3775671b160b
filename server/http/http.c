// Over 600 lines: what a connection, a request and a response do to one another.
#include "http.h"

#include "limits.h"
#include "log.h"
#include "tls.h"
#include "unreadable.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    HEADER_POOL = 32 * 1024, // memory of one connection: its head, and a chunk being written
    STREAM_BLOCK = 4096,     // HTTP/1.0 streams only; chunks use the pool
    STALL_TIMEOUT = 150,     // s without a byte either way, of a connection that is not suspended
    SEND_TIMEOUT_MS = 30000, // ms without an acknowledgement: the peer is dead or its window stays shut
    SMALL_BODY = 1 << 20,    // bytes; larger ones leave an eighth of all bodies' room to the others
    PAUSE_MS = 10,           // how often paused connections are looked at
    FULL_MS = 50,            // how often room is made while there is none
    SWEEP_SHARE = 256,       // connections judged at a time
    REFUSED_TIMEOUT = 2,     // s that a refused body may go on
};
#define SECOND 1000000000LL
#define TURN_NS 500000 // of libmicrohttpd's work, then the loop's other work

int64_t http_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

// ---- connections

static void conn_free(struct http_conn *conn) { free(conn); }
static void on_gone_closed(uv_handle_t *handle) { conn_free(handle->data); }

static void request_tell_done(struct http_request *request) {
    if (request->done_called)
        return;
    request->done_called = true;
    request->http->app.done(request->http->app.arg, request);
}

static void conn_unwatch(struct http_conn *conn) {
    if (conn->watching)
        uv_poll_stop(&conn->gone);
    conn->watching = false;
}

static void request_end(struct http_request *request) {
    struct http_conn *conn = request->conn;
    conn_unwatch(conn);
    request_tell_done(request);
    http_free_body(request->http, &request->body);
    buf_free(&request->headers);
    sse_free(&request->out);
    if (request->response)
        MHD_destroy_response(request->response);
    free(request->path);
    free(request);
    conn->request = NULL;
}

// The client left while libmicrohttpd was not looking. Half-closing counts as leaving (README.md, rule 12).
static void on_gone(uv_poll_t *handle, int status, int events) {
    struct http_conn *conn = handle->data;
    if (status >= 0 && !(events & UV_DISCONNECT))
        return;
    conn_unwatch(conn);
    struct http_request *request = conn->request;
    if (!request)
        return;
    request->gone = true;
    request_tell_done(request);
    http_wake(request);
    http_run(conn->http);
}

static void conn_watch(struct http_conn *conn) {
    if (conn->watching || !conn_open_poll(conn, conn->http->loop))
        return;
    conn->watching = uv_poll_start(&conn->gone, UV_DISCONNECT, on_gone) == 0;
}

static void conn_shut(struct http_conn *conn) {
    conn->deadline = 0;
    shutdown(conn->fd, SHUT_RDWR); // libmicrohttpd sees the end and cleans up
}

// Nothing more is sent.
static void conn_end_writing(struct http_conn *conn) {
    if (conn->tls)
        tls_end(conn->tls);
    shutdown(conn->fd, SHUT_WR);
}

// Sends what libmicrohttpd is not to know of, as far as the socket has room.
static bool conn_send(struct http_conn *conn, const void *data, size_t len) {
    return conn->tls ? tls_send(conn->tls, data, len)
                     : send(conn->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

static void on_handshake_resumed(struct http_conn *conn) {
    conn->http->again = true;
    http_run(conn->http);
}

// The oldest connection, from c on, that may be closed at this time for the sake of others.
static struct http_conn *find_room(struct http_conn *c, int64_t now) {
    while (c && !conn_makes_room(c, now))
        c = c->prev;
    return c;
}

// Makes room for new clients by closing at most `max` connections.
static bool make_room(struct http *http, int64_t now, int max) {
    int num = 0;
    for (struct http_conn *c = http->oldest; num < max && (c = find_room(c, now)); num++)
        conn_shut(c);
    return num > 0;
}

// At the limit nothing is accepted any more, so no client could get a 503.
static void on_full(uv_timer_t *timer) {
    struct http *http = timer->data;
    if (http->num_conns < http->hard_limit)
        return;
    make_room(http, http_now(), http->hard_limit / 2);
    uv_timer_start(timer, on_full, FULL_MS, 0);
    http_run(http);
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code) {
    struct http *http = cls;
    struct http_conn *conn = *context;
    http->calls++;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        conn = calloc(1, sizeof *conn);
        *context = conn;
        if (!conn)
            return;
        conn->http = http;
        conn->mhd = mhd;
        conn->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        listen_peer(conn->fd, conn->peer);
        conn->since = http_now();
        conn->deadline = conn->since + http->limits.head_timeout * SECOND;
        int one = 1, timeout = SEND_TIMEOUT_MS;
        setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(conn->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof timeout);
        setsockopt(conn->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
        conn->next = http->conns;
        if (conn->next)
            conn->next->prev = conn;
        else
            http->oldest = conn;
        http->conns = conn;
        if (++http->num_conns > http->soft_limit)
            conn->over = !make_room(http, conn->since, 1);
        if (http->num_conns >= http->hard_limit && !uv_is_active((uv_handle_t *)&http->full))
            uv_timer_start(&http->full, on_full, FULL_MS, 0);
        const union MHD_ConnectionInfo *tls =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
        conn->tls = tls ? tls->tls_session : NULL;
        if (conn->tls)
            handshake_begin(&http->handshakes, conn);
        return;
    }
    if (!conn)
        return;
    if (conn->request)
        request_end(conn->request);
    atomic_store(&http->current_fd, -1);
    handshake_end(&http->handshakes, conn);
    if (conn->unread)
        linger_add(&http->linger, conn->fd);
    conn->closed = true;
    *(conn->prev ? &conn->prev->next : &http->conns) = conn->next;
    *(conn->next ? &conn->next->prev : &http->oldest) = conn->prev;
    if (http->to_judge == conn)
        http->to_judge = conn->next;
    http->num_conns--;
    http->again = true; // libmicrohttpd, if it was at its limit, accepts again when it runs next
    *context = NULL;
    if (conn->gone_open) {
        conn_unwatch(conn);
        uv_close((uv_handle_t *)&conn->gone, on_gone_closed);
    } else {
        conn_free(conn);
    }
}

// ---- requests

// A callback of libmicrohttpd's for this connection begins.
static void http_enter(struct http_conn *conn) {
    conn->seen = true;
    atomic_fetch_add_explicit(&conn->http->calls, 1, memory_order_relaxed);
    atomic_store_explicit(&conn->http->current_fd, conn->fd, memory_order_relaxed);
}

static struct http_conn *conn_of(struct MHD_Connection *mhd) { // NULL: there was no memory for it
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static struct http_request *request_begin(struct http_conn *conn, const char *target) {
    struct http_request *request = calloc(1, sizeof *request);
    if (!request)
        return NULL;
    request->done_called = true; // until head() has seen it
    request->http = conn->http;
    request->conn = conn;
    request->arrived = http_now();
    request->target = target;
    conn->request = request;
    return request;
}

// The request line is complete: the request begins. `uri` is raw.
static void *on_request_line(void *cls, const char *uri, struct MHD_Connection *mhd) {
    struct http *http = cls;
    struct http_conn *conn = conn_of(mhd);
    if (!conn)
        return NULL;
    http_enter(conn);
    if (conn->request)
        request_end(conn->request);
    struct http_request *request = request_begin(conn, uri);
    if (!request)
        return NULL;
    request->bad_url = http_target_bad(uri);
    if (!conn->deadline || conn->used)
        conn->deadline = request->arrived + http->limits.head_timeout * SECOND;
    conn->used = true;
    return request;
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **con_cls,
                         enum MHD_RequestTerminationCode code) {
    (void)mhd;
    (void)code;
    struct http *http = cls;
    struct http_request *request = *con_cls;
    *con_cls = NULL;
    if (!request)
        return;
    struct http_conn *conn = request->conn;
    http_enter(conn);
    request_end(request);
    conn->since = http_now();
    conn->deadline = conn->since + http->limits.idle_timeout * SECOND;
    conn->seen_idle = false;
}

void http_header(struct http_request *request, const char *name, const char *value) {
    buf_add(&request->headers, name, strlen(name) + 1);
    buf_add(&request->headers, value, strlen(value) + 1);
}

// The next of request->headers, or false.
static bool next_header(const struct http_request *request, size_t *at, const char **name,
                        const char **value) {
    if (*at == request->headers.len)
        return false;
    *name = request->headers.data + *at;
    *value = *name + strlen(*name) + 1;
    *at += strlen(*name) + 1 + strlen(*value) + 1;
    return true;
}

static void add_headers(struct http_request *request) {
    const char *name, *value;
    for (size_t i = 0; next_header(request, &i, &name, &value);)
        MHD_add_response_header(request->response, name, value);
    MHD_add_response_header(request->response, "x-request-id", request->request_id);
    if (request->close)
        MHD_add_response_header(request->response, "Connection", "close");
}

// libmicrohttpd takes a response before a body or after it. In its midst we write it ourselves, and close.
static void refuse_body(struct http_request *request, const char *type, const void *body, size_t len) {
    struct buf b = {0};
    buf_fmt(&b, "HTTP/1.1 %d %s\r\n", request->status, MHD_get_reason_phrase_for((unsigned)request->status));
    buf_fmt(&b, "Content-Type: %s\r\nContent-Length: %zu\r\n", type, len);
    const char *name, *value;
    for (size_t i = 0; next_header(request, &i, &name, &value);)
        buf_fmt(&b, "%s: %s\r\n", name, value);
    buf_fmt(&b, "x-request-id: %s\r\nConnection: close\r\n\r\n", request->request_id);
    buf_add(&b, body, len);
    if (b.failed || !conn_send(request->conn, b.data, b.len))
        request->gone = true;
    buf_free(&b);
    request->state = HTTP_SENT;
    request->conn->unread = true;
}

void http_reply(struct http_request *request, int status, const char *type, const void *body, size_t len) {
    CHECK(request->state != HTTP_SENT && !request->response);
    request->status = status;
    request->response_len = len;
    if (request->state == HTTP_BODY) {
        refuse_body(request, type, body, len);
        return;
    }
    request->response = MHD_create_response_from_buffer(len, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);
    if (!request->response)
        request->gone = true; // out of memory even for this: the handler closes the connection
    else if (type)
        MHD_add_response_header(request->response, "Content-Type", type);
    if (request->response)
        add_headers(request);
    http_wake(request);
}

static bool is_broken(const struct http_request *request) {
    return request->gone || request->broken || request->http->closing;
}

static ssize_t on_read(void *cls, uint64_t pos, char *dst, size_t max) {
    (void)pos;
    struct http_request *request = cls;
    struct http *http = request->http;
    http_enter(request->conn);
    if (is_broken(request))
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t n = sse_read(&request->out, dst, max);
    if (request->want_drained && sse_pending(&request->out) == 0) {
        request->want_drained = false;
        http->app.drained(http->app.arg, request);
        if (n == 0)
            n = sse_read(&request->out, dst, max);
    }
    if (n)
        return (ssize_t)n;
    if (is_broken(request) || request->out.bytes.failed) // drained() may have broken it
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (request->stream_ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    request->suspended = true;
    MHD_suspend_connection(request->conn->mhd);
    return 0;
}

void http_stream(struct http_request *request, const char *type) {
    CHECK(request->state != HTTP_SENT && !request->response);
    request->status = 200;
    request->streaming = true;
    request->response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, on_read, request, NULL);
    if (!request->response) {
        request->gone = true;
    } else {
        MHD_add_response_header(request->response, "Content-Type", type);
        MHD_add_response_header(request->response, "Cache-Control", "no-cache");
        MHD_add_response_header(request->response, "X-Accel-Buffering", "no");
        add_headers(request);
    }
    http_wake(request);
}

void http_wake(struct http_request *request) {
    if (!request->suspended)
        return;
    request->suspended = request->conn->paused = false;
    MHD_resume_connection(request->conn->mhd);
    request->http->again = true;
}

void http_stream_end(struct http_request *request) {
    request->stream_ended = true;
    conn_expect_reader(request->conn, &request->http->limits, http_now(), sse_pending(&request->out));
    http_wake(request);
}

void http_stream_break(struct http_request *request) {
    request->broken = true;
    http_wake(request);
}

void http_kill(struct http_request *request) { conn_shut(request->conn); }

static void on_pause_over(uv_timer_t *timer) {
    struct http *http = timer->data;
    for (struct http_conn *c = http->conns; c; c = c->next)
        if (c->paused && c->request)
            http_wake(c->request);
    http_run(http);
}

// Queues the response where there is one; otherwise the request waits, suspended.
static enum MHD_Result queue_response(struct http_request *request, struct MHD_Connection *mhd) {
    struct http *http = request->http;
    if (request->gone)
        return MHD_NO;
    bool pause = request->response && !conn_take_credit(request->conn, http_now());
    if (pause) {
        request->conn->paused = true;
        if (!uv_is_active((uv_handle_t *)&http->pause))
            uv_timer_start(&http->pause, on_pause_over, PAUSE_MS, 0);
    }
    if (!request->response || pause) {
        request->suspended = true;
        conn_watch(request->conn);
        MHD_suspend_connection(mhd);
        return MHD_YES;
    }
    request->state = HTTP_SENT;
    if (!request->streaming)
        conn_expect_reader(request->conn, &http->limits, http_now(), request->response_len);
    enum MHD_Result result = unreadable_queue(mhd, (unsigned)request->status, request->response);
    MHD_destroy_response(request->response);
    request->response = NULL;
    return result;
}

static char *path_of(const char *target) {
    const char *authority = strstr(target, "://"); // the absolute form, which proxies are sent
    return strdup(authority ? authority + 3 + strcspn(authority + 3, "/") : target);
}

static enum MHD_Result on_head(struct http *http, struct http_request *request, struct MHD_Connection *mhd,
                               const char *method, const char *version) {
    struct http_conn *conn = request->conn;
    conn->deadline = 0;
    // Beyond the soft limit a request is refused where all others are busy: who has none soon makes room.
    conn->over &= http->num_conns > http->soft_limit && !find_room(http->oldest, http_now() + SECOND);
    request->is_head = strcmp(method, "HEAD") == 0;
    snprintf(request->method, sizeof request->method, "%s", request->is_head ? "GET" : method);
    if (!(request->path = path_of(request->target)))
        return MHD_NO;
    http_head_read(&request->head, mhd, method, version);
    request->done_called = false;
    int status;
    const char *refused = http_head_refused(&request->head, version, &status);
    request->refused = refused;
    request->status = refused ? status : 0;
    bool has_body = request->head.length > 0 || request->head.num_encoding > 0 || request->head.bad_length;
    bool read_body = http->app.head(http->app.arg, request);
    if (!read_body) {
        request->state = HTTP_WORK;
        if (!has_body && !refused)
            return MHD_YES; // a response in the next round keeps the connection; one in this round closes it
        if (request->response && !request->close) // the body stays unread
            MHD_add_response_header(request->response, "Connection", "close");
        conn->unread = has_body;
        return queue_response(request, mhd);
    }
    request->state = HTTP_BODY;
    request->body_since = http_now();
    request->close |= request->head.chunked; // README.md, rule 9
    return MHD_YES;
}

// The application refuses the rest of the body.
static void body_fail(struct http_request *request, enum http_trouble trouble) {
    http_free_body(request->http, &request->body);
    request->trouble = trouble;
    request->http->app.body(request->http->app.arg, request);
}

// libmicrohttpd cannot read what comes on the connection and would say status: the application says it.
static void respond_unreadable(struct MHD_Connection *mhd, int status) {
    struct http_conn *conn = conn_of(mhd);
    if (!conn || conn->http->closing)
        return;
    http_enter(conn);
    struct http_request *request = conn->request ? conn->request : request_begin(conn, "");
    if (!request || request->gone || request->state > HTTP_BODY)
        return;
    if (request->state == HTTP_BODY) {
        body_fail(request, status == MHD_HTTP_CONTENT_TOO_LARGE ? HTTP_BODY_TOO_LARGE : HTTP_BODY_MALFORMED);
    } else if ((request->path = path_of(request->target))) {
        snprintf(request->method, sizeof request->method, "-");
        request->status = status;
        request->refused = unreadable_why(status, !*request->target);
        request->done_called = false;
        request->state = HTTP_BODY; // the response is written at once
        conn->http->app.head(conn->http->app.arg, request);
    }
    conn_end_writing(conn); // before libmicrohttpd's own, which goes nowhere
}

static enum MHD_Result on_body(struct http *http, struct http_request *request, const char *data,
                               size_t len) {
    struct buf *body = &request->body;
    size_t max = http->limits.max_all_bodies;
    if (body->len + len > http->limits.max_body) {
        body_fail(request, HTTP_BODY_TOO_LARGE);
        return MHD_NO;
    }
    size_t before = body->len;
    buf_add(body, data, len); // memory is taken, and counted, by what came, not by what is declared
    http->all_bodies += body->len - before;
    if (body->failed || http->all_bodies > (body->len <= SMALL_BODY ? max : max - max / 8)) {
        body_fail(request, HTTP_BODY_NO_ROOM);
        return MHD_NO;
    }
    return MHD_YES;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                                  const char *version, const char *data, size_t *len, void **con_cls) {
    (void)url; // request->target
    struct http *http = cls;
    struct http_request *request = *con_cls;
    if (!request || request->gone || http->closing)
        return MHD_NO;
    http_enter(request->conn);
    switch (request->state) {
    case HTTP_HEAD: return on_head(http, request, mhd, method, version);
    case HTTP_BODY:
        if (*len) {
            enum MHD_Result result = on_body(http, request, data, *len);
            *len = 0;
            return result;
        }
        request->state = HTTP_WORK;
        http->app.body(http->app.arg, request);
        return queue_response(request, mhd);
    case HTTP_WORK: return queue_response(request, mhd);
    case HTTP_SENT: break; // by refuse_body()
    }
    return MHD_NO;
}

struct buf http_take_body(struct http_request *request) {
    struct buf body = request->body;
    request->body = (struct buf){0};
    return body;
}

void http_free_body(struct http *http, struct buf *body) {
    http->all_bodies -= body->len;
    buf_free(body);
}

// ---- the loop

bool http_turn_over(const struct http *http) { return http_now() >= http->turn_end; }

static void on_timer(uv_timer_t *timer) { http_run(timer->data); }
static void on_more(uv_idle_t *idle) { http_run(idle->data); }

// When libmicrohttpd wants to be called: at once, but after the loop's other work (a timer of 0 ms would come
// before it, again and again); in a while; when its descriptor is ready. It also wants to be called at once
// for ever where its buffer is full and no line ends: then nothing happens, and a millisecond is soon enough
// until a deadline ends the connection.
static void schedule(struct http *http, bool at_once, bool busy, bool timed, int64_t ms) {
    if (at_once && busy)
        uv_idle_start(&http->more, on_more);
    else
        uv_idle_stop(&http->more);
    if (at_once || timed)
        uv_timer_start(&http->timer, on_timer, (uint64_t)(ms > 0 ? ms : 1), 0);
    else
        uv_timer_stop(&http->timer);
}

void http_run(struct http *http) {
    if (!http->open)
        return;
    if (http->running) {
        http->again = true;
        return;
    }
    http->running = true;
    MHD_UNSIGNED_LONG_LONG ms = 0;
    uint64_t calls = http->calls;
    http->turn_end = http_now() + TURN_NS;
    bool timed, at_once;
    do {
        http->again = false;
        MHD_run(http->daemon);
        if (!http->closing)
            handshake_park(&http->handshakes);
        timed = MHD_get_timeout(http->daemon, &ms) == MHD_YES;
        at_once = http->again || (timed && ms == 0);
    } while (at_once && http->calls != calls && !http_turn_over(http));
    http->running = false;
    atomic_store(&http->current_fd, -1);
    schedule(http, at_once, http->again || http->calls != calls, timed, (int64_t)ms);
}

int http_kill_current(struct http *http) {
    int fd = atomic_load(&http->current_fd);
    if (fd >= 0)
        shutdown(fd, SHUT_RDWR);
    return fd;
}

static void on_poll(uv_poll_t *poll, int status, int events) {
    (void)status;
    (void)events;
    http_run(poll->data);
}

static void judge(struct http *http, struct http_conn *c, int64_t now) {
    enum http_verdict verdict = conn_judge(c, &http->limits, now);
    if (verdict == CONN_GONE && c->request)
        c->request->gone = true;
    if (verdict == CONN_REFUSE_BODY) {
        body_fail(c->request, c->unseen ? HTTP_BODY_MALFORMED : HTTP_BODY_TOO_SLOW);
        conn_end_writing(c); // the rest is dropped: linger.h
        c->deadline = now + REFUSED_TIMEOUT * SECOND;
    } else if (verdict != CONN_KEEP) {
        conn_shut(c);
    }
}

// Absolute deadlines, of each connection once a second: libmicrohttpd's own timer starts anew with every byte. Where
// there are many, some at a time.
static void on_sweep(uv_timer_t *timer) {
    struct http *http = timer->data;
    int64_t now = http_now();
    int num = http->num_conns, share = num < SWEEP_SHARE ? num : SWEEP_SHARE;
    for (int i = 0; i < share; i++) {
        struct http_conn *c = http->to_judge ? http->to_judge : http->conns;
        http->to_judge = c->next;
        judge(http, c, now);
    }
    uv_timer_start(timer, on_sweep, (uint64_t)(share < SWEEP_SHARE ? 1000 : 1000 * share / num), 0);
    http_run(http); // last: it may close any of them
}

// ---- open and close

enum status http_open(struct http *http, uv_loop_t *loop, const struct http_app *app,
                      const struct http_limits *limits, struct err *err) {
    http->loop = loop;
    http->current_fd = -1;
    http->app = *app;
    http->limits = http_limits_filled(limits);
    const struct http_limits *l = &http->limits;
    http->hard_limit = l->max_connections;
    int quarter = l->max_connections / 4, spare = l->max_connections / 16;
    http->soft_limit = l->max_connections - (spare > 4 ? spare : quarter < 4 ? quarter : 4);
    unreadable_call(respond_unreadable);
    http->handshakes = (struct http_handshakes){.loop = loop, .resumed = on_handshake_resumed};
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_CERT_CALLBACK, 0, tls_callback()},
                                   {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)tls_priorities},
                                   {MHD_OPTION_END, 0, NULL}};
    if (http->has_tls && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES) {
        close(http->listener.fd);
        return err_set(err, STATUS_INVALID, "--tls-cert: this build of libmicrohttpd has no TLS");
    }
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | (http->has_tls ? MHD_USE_TLS : 0);
    http->daemon = MHD_start_daemon(flags, 0, NULL, NULL, on_request, http,                    //
                                    MHD_OPTION_ARRAY, http->has_tls ? tls : tls + 2,           //
                                    MHD_OPTION_LISTEN_SOCKET, http->listener.fd,               //
                                    MHD_OPTION_CONNECTION_LIMIT, (unsigned)l->max_connections, //
                                    MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_POOL,   //
                                    MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)STALL_TIMEOUT,    //
                                    MHD_OPTION_URI_LOG_CALLBACK, on_request_line, http,        //
                                    MHD_OPTION_NOTIFY_COMPLETED, on_completed, http,           //
                                    MHD_OPTION_NOTIFY_CONNECTION, on_connection, http,         //
                                    MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,                      //
                                    MHD_OPTION_END);
    if (!http->daemon) {
        close(http->listener.fd);
        return err_set(err, STATUS_INVALID, "the HTTP server did not start: %s", strerror(errno));
    }
    int fd = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    uv_poll_init(loop, &http->poll, fd);
    http->poll.data = http->timer.data = http->sweep.data = http->pause.data = http->full.data =
        http->more.data = http;
    http->linger = (struct http_linger){.loop = loop, .max = l->max_connections / 4};
    uv_timer_init(loop, &http->timer);
    uv_timer_init(loop, &http->pause);
    uv_timer_init(loop, &http->full);
    uv_idle_init(loop, &http->more);
    uv_timer_init(loop, &http->sweep);
    uv_poll_start(&http->poll, UV_READABLE, on_poll);
    uv_timer_start(&http->sweep, on_sweep, 1000, 0);
    http->open = true;
    http_run(http);
    return STATUS_OK;
}

void http_close(struct http *http) {
    if (!http->open)
        return;
    http->closing =
        true; // nothing is suspended any more: libmicrohttpd must not be stopped with such connections
    for (struct http_conn *c = http->conns; c; c = c->next) {
        handshake_resume(&http->handshakes, c);
        if (c->request) {
            c->request->gone = true;
            request_tell_done(c->request);
            http_wake(c->request);
        }
    }
    http_run(http);
    http->open = false;
    MHD_stop_daemon(http->daemon); // closes the listening socket, too
    http->daemon = NULL;
    linger_close(&http->linger);
    uv_close((uv_handle_t *)&http->poll, NULL);
    uv_close((uv_handle_t *)&http->pause, NULL);
    uv_close((uv_handle_t *)&http->full, NULL);
    uv_close((uv_handle_t *)&http->more, NULL);
    uv_close((uv_handle_t *)&http->timer, NULL);
    uv_close((uv_handle_t *)&http->sweep, NULL);
}

const char *http_query(const struct http_request *request, const char *name) {
    return MHD_lookup_connection_value(request->conn->mhd, MHD_GET_ARGUMENT_KIND, name);
}
