#include "http.h"

#include "log.h"
#include "tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    HEADER_POOL = 32 * 1024, // memory of one connection: its head, and a chunk being written
    STREAM_BLOCK = 4096,     // HTTP/1.0 streams only; chunks use the pool
    STALL_TIMEOUT = 150,     // s without a byte either way, of a connection that is not suspended
    SEND_TIMEOUT_MS = 30000, // ms without an acknowledgement: the peer is dead or its window stays shut
    MAX_ROUNDS = 32,
    FD_RESERVE = 64, // files, epoll, pipes and the like
};
#define SECOND 1000000000LL

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
    request->http->all_bodies -= request->body.cap;
    buf_free(&request->body);
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
    if (conn->watching)
        return;
    if (!conn->gone_open) {
        if (uv_poll_init(conn->http->loop, &conn->gone, conn->fd) != 0)
            return;
        conn->gone.data = conn;
        conn->gone_open = true;
    }
    conn->watching = uv_poll_start(&conn->gone, UV_DISCONNECT, on_gone) == 0;
}

static void conn_shut(struct http_conn *conn) {
    conn->deadline = 0;
    shutdown(conn->fd, SHUT_RDWR); // libmicrohttpd sees the end and cleans up
}

// Makes room for a new client by closing the oldest connection that waits for its next request.
static bool evict_idle(struct http *http, int64_t now) {
    for (struct http_conn *c = http->oldest; c; c = c->prev)
        if (!c->request && !c->closed && c->deadline && now - c->since > SECOND) {
            conn_shut(c);
            return true;
        }
    return false;
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code) {
    struct http *http = cls;
    struct http_conn *conn = *context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        conn = calloc(1, sizeof *conn);
        *context = conn;
        if (!conn)
            return;
        conn->http = http;
        conn->mhd = mhd;
        conn->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
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
            conn->over = !evict_idle(http, conn->since);
        return;
    }
    if (!conn)
        return;
    if (conn->request)
        request_end(conn->request);
    conn->closed = true;
    *(conn->prev ? &conn->prev->next : &http->conns) = conn->next;
    *(conn->next ? &conn->next->prev : &http->oldest) = conn->prev;
    http->num_conns--;
    *context = NULL;
    if (conn->gone_open) {
        conn_unwatch(conn);
        uv_close((uv_handle_t *)&conn->gone, on_gone_closed);
    } else {
        conn_free(conn);
    }
}

// ---- requests

// The request line is complete: the request begins. `uri` is raw.
static void *on_request_line(void *cls, const char *uri, struct MHD_Connection *mhd) {
    struct http *http = cls;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_conn *conn = info ? info->socket_context : NULL;
    if (!conn)
        return NULL;
    if (conn->request)
        request_end(conn->request);
    struct http_request *request = calloc(1, sizeof *request);
    if (!request)
        return NULL;
    request->done_called = true; // until head() has seen it
    request->http = http;
    request->conn = conn;
    request->arrived = http_now();
    request->bad_url = strstr(uri, "%00") != NULL || http_target_cut(uri);
    if (!conn->deadline || conn->used)
        conn->deadline = request->arrived + http->limits.head_timeout * SECOND;
    conn->used = true;
    conn->request = request;
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
    request_end(request);
    conn->since = http_now();
    conn->deadline = conn->since + http->limits.idle_timeout * SECOND;
    conn->seen_idle = false;
}

void http_header(struct http_request *request, const char *name, const char *value) {
    buf_add(&request->headers, name, strlen(name) + 1);
    buf_add(&request->headers, value, strlen(value) + 1);
}

static void add_headers(struct http_request *request) {
    for (size_t i = 0; i < request->headers.len;) {
        const char *name = request->headers.data + i, *value = name + strlen(name) + 1;
        MHD_add_response_header(request->response, name, value);
        i += strlen(name) + 1 + strlen(value) + 1;
    }
    MHD_add_response_header(request->response, "x-request-id", request->request_id);
    if (request->close)
        MHD_add_response_header(request->response, "Connection", "close");
}

void http_reply(struct http_request *request, int status, const char *type, const void *body, size_t len) {
    CHECK(request->state != HTTP_SENT && !request->response);
    request->status = status;
    request->response = MHD_create_response_from_buffer(len, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);
    if (!request->response)
        request->gone = true; // out of memory even for this: the handler closes the connection
    else if (type)
        MHD_add_response_header(request->response, "Content-Type", type);
    if (request->response)
        add_headers(request);
    http_wake(request);
}

static ssize_t on_read(void *cls, uint64_t pos, char *dst, size_t max) {
    (void)pos;
    struct http_request *request = cls;
    struct http *http = request->http;
    if (request->gone || request->broken)
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
    if (request->out.bytes.failed)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (request->stream_ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    request->suspended = true;
    MHD_suspend_connection(request->conn->mhd);
    return 0;
}

void http_stream(struct http_request *request) {
    CHECK(request->state != HTTP_SENT && !request->response);
    request->status = 200;
    request->streaming = true;
    request->response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, on_read, request, NULL);
    if (!request->response) {
        request->gone = true;
    } else {
        MHD_add_response_header(request->response, "Content-Type", "text/event-stream; charset=utf-8");
        MHD_add_response_header(request->response, "Cache-Control", "no-cache");
        MHD_add_response_header(request->response, "X-Accel-Buffering", "no");
        add_headers(request);
    }
    http_wake(request);
}

void http_wake(struct http_request *request) {
    if (!request->suspended)
        return;
    request->suspended = false;
    MHD_resume_connection(request->conn->mhd);
    request->http->again = true;
}

void http_stream_end(struct http_request *request) {
    request->stream_ended = true;
    http_wake(request);
}

void http_stream_break(struct http_request *request) {
    request->broken = true;
    http_wake(request);
}

void http_kill(struct http_request *request) { conn_shut(request->conn); }

// Queues the response where there is one; otherwise the request waits, suspended.
static enum MHD_Result queue_response(struct http_request *request, struct MHD_Connection *mhd) {
    if (request->gone)
        return MHD_NO;
    if (!request->response) {
        request->suspended = true;
        conn_watch(request->conn);
        MHD_suspend_connection(mhd);
        return MHD_YES;
    }
    request->state = HTTP_SENT;
    enum MHD_Result result = MHD_queue_response(mhd, (unsigned)request->status, request->response);
    MHD_destroy_response(request->response);
    request->response = NULL;
    return result;
}

static enum MHD_Result on_head(struct http *http, struct http_request *request, struct MHD_Connection *mhd,
                               const char *url, const char *method, const char *version) {
    struct http_conn *conn = request->conn;
    conn->deadline = 0;
    request->is_head = strcmp(method, "HEAD") == 0;
    snprintf(request->method, sizeof request->method, "%s", request->is_head ? "GET" : method);
    request->path = strdup(url);
    if (!request->path)
        return MHD_NO;
    http_head_read(&request->head, mhd);
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
        return queue_response(request, mhd);
    }
    request->state = HTTP_BODY;
    request->body_since = http_now();
    return MHD_YES;
}

static enum MHD_Result on_body(struct http *http, struct http_request *request, const char *data,
                               size_t len) {
    size_t before = request->body.cap;
    if (request->too_large || request->body.len + len > http->limits.max_body) {
        request->too_large = true;
        request->dropped += len;
        return request->dropped > http->limits.max_body ? MHD_NO : MHD_YES;
    }
    // A declared length is reserved once, when its first bytes are there: an empty promise costs nothing.
    if (before == 0 && request->head.length > (int64_t)len)
        buf_reserve(&request->body, (size_t)request->head.length);
    buf_add(&request->body, data, len);
    http->all_bodies += request->body.cap - before;
    if (request->body.failed || http->all_bodies > http->limits.max_all_bodies) {
        http->all_bodies -= request->body.cap;
        buf_free(&request->body);
        request->too_large = request->no_room = true;
    }
    return MHD_YES;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                                  const char *version, const char *data, size_t *len, void **con_cls) {
    struct http *http = cls;
    struct http_request *request = *con_cls;
    if (!request || request->gone)
        return MHD_NO;
    switch (request->state) {
    case HTTP_HEAD: return on_head(http, request, mhd, url, method, version);
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
    case HTTP_SENT: break;
    }
    return MHD_YES;
}

struct buf http_take_body(struct http_request *request) {
    struct buf body = request->body;
    request->body = (struct buf){0};
    return body;
}

void http_free_body(struct http *http, struct buf *body) {
    http->all_bodies -= body->cap;
    buf_free(body);
}

// ---- the loop

static void on_timer(uv_timer_t *timer) { http_run(timer->data); }

void http_run(struct http *http) {
    if (!http->open)
        return;
    if (http->running) {
        http->again = true;
        return;
    }
    http->running = true;
    MHD_UNSIGNED_LONG_LONG ms = 0;
    bool timed = false;
    for (int i = 0; i < MAX_ROUNDS; i++) {
        http->again = false;
        MHD_run(http->daemon);
        timed = MHD_get_timeout(http->daemon, &ms) == MHD_YES;
        if (!http->again && !(timed && ms == 0))
            break;
    }
    http->running = false;
    if (http->again) {
        timed = true;
        ms = 0;
    }
    if (timed)
        uv_timer_start(&http->timer, on_timer, ms, 0);
    else
        uv_timer_stop(&http->timer);
}

static void on_poll(uv_poll_t *poll, int status, int events) {
    (void)status;
    (void)events;
    http_run(poll->data);
}

// Absolute deadlines, once a second: libmicrohttpd's own timer starts anew with every byte.
static void on_sweep(uv_timer_t *timer) {
    struct http *http = timer->data;
    const struct http_limits *l = &http->limits;
    int64_t now = http_now();
    // At the limit nothing is accepted any more, so no client could get a 503: make room for those that wait.
    for (int i = 0; http->num_conns >= http->hard_limit && i < http->hard_limit / 2; i++)
        if (!evict_idle(http, now))
            break;
    for (struct http_conn *c = http->conns, *next; c; c = next) {
        next = c->next;
        struct http_request *request = c->request;
        if (!request && c->used && c->deadline) { // idle: does a next head drip in?
            uint64_t bytes = tcp_bytes_received(c->fd);
            if (!c->seen_idle) {
                c->seen_idle = true;
                c->idle_bytes = bytes;
            } else if (bytes > c->idle_bytes && c->deadline > now + l->head_timeout * SECOND) {
                c->deadline = now + l->head_timeout * SECOND;
            }
        }
        if (c->deadline && now > c->deadline) {
            conn_shut(c);
        } else if (request && request->state == HTTP_BODY) {
            int64_t late = now - request->body_since - l->body_grace * SECOND;
            int64_t have = (int64_t)(request->body.len + request->dropped);
            if (late > 0 && have < late / SECOND * l->body_rate)
                conn_shut(c);
        }
    }
    http_run(http);
}

// ---- open and close

enum status http_bind(struct http *http, const char *host, int port, struct err *err) {
    http->listen_fd = -1;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *list = NULL;
    char service[8], bare[256];
    snprintf(service, sizeof service, "%d", port);
    size_t n = strlen(host);
    if (n == 0) // a variable that is not set, most likely, and not the wish to be public
        return err_set(err, STATUS_INVALID, "--host: expected an address or a name, found ''");
    if (n > 2 && host[0] == '[' && host[n - 1] == ']')
        snprintf(bare, sizeof bare, "%.*s", (int)(n - 2), host + 1);
    else
        snprintf(bare, sizeof bare, "%s", host);
    int rc = getaddrinfo(bare, service, &hints, &list);
    if (rc != 0)
        return err_set(err, STATUS_INVALID, "--host %.100s: %s", host, gai_strerror(rc));
    enum status status = STATUS_INVALID;
    int why = 0;
    for (const struct addrinfo *a = list; a && status != STATUS_OK; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
        if (fd < 0) {
            why = errno;
            continue;
        }
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        struct sockaddr_storage bound;
        socklen_t len = sizeof bound;
        if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 4096) == 0 &&
            getsockname(fd, (struct sockaddr *)&bound, &len) == 0) {
            http->listen_fd = fd;
            http->port =
                ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&bound)->sin6_port
                                                  : ((struct sockaddr_in *)(void *)&bound)->sin_port);
            status = STATUS_OK;
        } else {
            why = errno;
            close(fd);
        }
    }
    freeaddrinfo(list);
    if (status != STATUS_OK)
        return err_set(err, STATUS_INVALID, "cannot listen on %.100s port %d: %s", host, port, strerror(why));
    return STATUS_OK;
}

// As many connections as the file limit allows, up to 10,000.
static int pick_limit(void) {
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0)
        return 960;
    if (r.rlim_cur < r.rlim_max) {
        rlim_t old = r.rlim_cur;
        r.rlim_cur = r.rlim_max < 65536 ? r.rlim_max : 65536;
        if (r.rlim_cur < old || setrlimit(RLIMIT_NOFILE, &r) != 0)
            r.rlim_cur = old;
    }
    if (r.rlim_cur > 10000 + FD_RESERVE)
        return 10000;
    return r.rlim_cur > FD_RESERVE + 16 ? (int)r.rlim_cur - FD_RESERVE : 16;
}

enum status http_open(struct http *http, uv_loop_t *loop, const struct http_app *app,
                      const struct http_limits *limits, struct err *err) {
    http->loop = loop;
    http->app = *app;
    struct http_limits *l = &http->limits;
    *l = *limits;
    l->max_connections = l->max_connections ? l->max_connections : pick_limit();
    l->max_body = l->max_body ? l->max_body : 32u << 20;
    l->max_all_bodies = l->max_all_bodies ? l->max_all_bodies : 512u << 20;
    l->head_timeout = l->head_timeout ? l->head_timeout : 10;
    l->idle_timeout = l->idle_timeout ? l->idle_timeout : 120;
    l->body_grace = l->body_grace ? l->body_grace : 10;
    l->body_rate = l->body_rate ? l->body_rate : 16 * 1024;
    http->hard_limit = l->max_connections;
    http->soft_limit = l->max_connections - (l->max_connections / 16 > 4 ? l->max_connections / 16 : 4);
    http->daemon =
        MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, http, //
                         MHD_OPTION_LISTEN_SOCKET, http->listen_fd,                                 //
                         MHD_OPTION_CONNECTION_LIMIT, (unsigned)l->max_connections,                 //
                         MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_POOL,                   //
                         MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)STALL_TIMEOUT,                    //
                         MHD_OPTION_URI_LOG_CALLBACK, on_request_line, http,                        //
                         MHD_OPTION_NOTIFY_COMPLETED, on_completed, http,                           //
                         MHD_OPTION_NOTIFY_CONNECTION, on_connection, http,                         //
                         MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,                                      //
                         MHD_OPTION_END);
    if (!http->daemon) {
        close(http->listen_fd);
        return err_set(err, STATUS_INVALID, "the HTTP server did not start: %s", strerror(errno));
    }
    int fd = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    uv_poll_init(loop, &http->poll, fd);
    http->poll.data = http->timer.data = http->sweep.data = http;
    uv_timer_init(loop, &http->timer);
    uv_timer_init(loop, &http->sweep);
    uv_poll_start(&http->poll, UV_READABLE, on_poll);
    uv_timer_start(&http->sweep, on_sweep, 1000, 1000);
    http->open = true;
    http_run(http);
    return STATUS_OK;
}

void http_close(struct http *http) {
    if (!http->open)
        return;
    for (struct http_conn *c = http->conns; c; c = c->next)
        if (c->request) {
            c->request->gone = true;
            request_tell_done(c->request);
            http_wake(c->request); // libmicrohttpd must not be stopped with suspended connections
        }
    http_run(http);
    http->open = false;
    MHD_stop_daemon(http->daemon); // closes the listening socket, too
    http->daemon = NULL;
    uv_close((uv_handle_t *)&http->poll, NULL);
    uv_close((uv_handle_t *)&http->timer, NULL);
    uv_close((uv_handle_t *)&http->sweep, NULL);
}
