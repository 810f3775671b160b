#include "client.h"

#include "clock.h"
#include "http1.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { READ_BYTES = 256 << 10, TICK_MS = 20 };

enum conn_state { CONN_CONNECTING, CONN_BUSY, CONN_IDLE, CONN_CLOSING };

struct conn {
    uv_poll_t poll;
    struct client *client;
    struct conn *prev, *next; // in the client's list of all
    struct conn *idle_next;
    struct client_call *call;
    struct http1 http;
    int fd, events;
    enum conn_state state;
    size_t address; // CONNECTING: which of the server's
    bool used;      // it has carried a whole call
};

struct client_call {
    struct buf request;
    size_t sent;
    struct call_handlers handlers;
    void *context;
    int64_t deadline, connect_deadline;
    bool head_seen, any_byte, connected, retried;
};

struct client {
    uv_loop_t *loop;
    uv_timer_t tick;
    struct addrinfo *addresses;
    size_t preferred; // the address that worked last
    struct client_limits limits;
    struct conn *all, *idle;
    struct client_lag lag;
    uint64_t connections, retries;
    int64_t realtime_offset; // CLOCK_REALTIME - CLOCK_MONOTONIC
    bool closed;
    char buffer[READ_BYTES];
};

// CLOCK_REALTIME - CLOCK_MONOTONIC
static int64_t realtime_offset(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec - clock_now_ns();
}

void client_lag_add(struct client_lag *l, int64_t ns) {
    if (ns < 1)
        ns = 1;
    if (ns > l->max)
        l->max = ns;
    int octave = 63 - __builtin_clzll((uint64_t)ns);
    uint64_t within = octave >= 4 ? ((uint64_t)ns >> (octave - 4)) & 15 : ((uint64_t)ns << (4 - octave)) & 15;
    l->bucket[octave * 16 + (int)within]++;
    l->stamped++;
}

double client_lag_percentile(const struct client_lag *l, double p) {
    double wanted = p / 100 * (double)l->stamped;
    uint64_t sum = 0;
    for (int i = 0; i < LAG_BUCKETS && l->stamped; i++) {
        sum += l->bucket[i];
        if ((double)sum >= wanted && l->bucket[i]) {
            double top = (double)(1ull << (i / 16)) * (1 + (i % 16 + 1) / 16.0);
            return (top < (double)l->max ? top : (double)l->max) / 1e6;
        }
    }
    return 0;
}

const struct client_lag *client_lag(const struct client *c) { return &c->lag; }
uint64_t client_connections(const struct client *c) { return c->connections; }
uint64_t client_retries(const struct client *c) { return c->retries; }
void client_forget(struct client *c) {
    c->lag = (struct client_lag){0};
    c->connections = c->retries = 0;
}

// ---- connections ----

static void conn_closed(uv_handle_t *handle) {
    struct conn *k = handle->data;
    if (k->fd >= 0)
        close(k->fd);
    http1_free(&k->http);
    free(k);
}

static void conn_drop(struct conn *k) {
    struct client *c = k->client;
    if (k->state == CONN_IDLE)
        for (struct conn **at = &c->idle; *at; at = &(*at)->idle_next)
            if (*at == k) {
                *at = k->idle_next;
                break;
            }
    k->state = CONN_CLOSING;
    *(k->prev ? &k->prev->next : &c->all) = k->next;
    if (k->next)
        k->next->prev = k->prev;
    uv_poll_stop(&k->poll);
    uv_close((uv_handle_t *)&k->poll, conn_closed);
}

static void call_end(struct client_call *call, enum error_kind error, const char *why, int64_t now) {
    call->handlers.end(call->context, error, why, now, call->connected);
    buf_free(&call->request);
    free(call);
}

static void conn_fail(struct conn *k, enum error_kind error, const char *why) {
    struct client_call *call = k->call;
    k->call = NULL;
    conn_drop(k);
    if (call)
        call_end(call, error, why, clock_now_ns());
}

static void on_poll(uv_poll_t *poll, int status, int events);
static void conn_open(struct client *c, struct client_call *call, size_t address);

static void conn_watch(struct conn *k, int events) {
    if (k->events == events)
        return;
    k->events = events;
    uv_poll_start(&k->poll, events, on_poll);
}

// The next address of the server after a failure; the call fails after the last one.
static void conn_next_address(struct conn *k, const char *why) {
    struct client *c = k->client;
    size_t next = k->address + 1, n = 0;
    for (struct addrinfo *a = c->addresses; a; a = a->ai_next)
        n++;
    if (next >= n) {
        conn_fail(k, ERROR_CONNECT, why);
        return;
    }
    struct client_call *call = k->call;
    k->call = NULL;
    conn_drop(k);
    conn_open(c, call, next);
}

static void conn_write(struct conn *k) {
    struct client_call *call = k->call;
    while (call->sent < call->request.len) {
        ssize_t n =
            send(k->fd, call->request.data + call->sent, call->request.len - call->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            conn_watch(k, UV_READABLE | UV_WRITABLE);
            return;
        }
        if (n < 0) { // the server's last bytes before it closed are still to be read
            call->sent = call->request.len;
            break;
        }
        call->sent += (size_t)n;
    }
    conn_watch(k, UV_READABLE);
}

struct body_context {
    struct client_call *call;
    struct conn *conn;
    int64_t now;
    bool refused;
};

static void tell_head(struct client_call *call, const struct http1 *h) {
    if (!call->head_seen && h->state != HTTP1_HEAD && h->state != HTTP1_BAD) {
        call->head_seen = true;
        call->handlers.head(call->context, h->status, h->event_stream);
    }
}

static void conn_body(void *context, const char *data, size_t len) {
    struct body_context *b = context;
    tell_head(b->call, &b->conn->http);
    if (!b->refused && !b->call->handlers.body(b->call->context, data, len, b->now))
        b->refused = true;
}

static void conn_done(struct conn *k, bool reusable, int64_t now) {
    struct client_call *call = k->call;
    k->call = NULL;
    if (reusable && k->http.keep_alive && call->sent == call->request.len && !k->client->closed) {
        k->state = CONN_IDLE;
        k->used = true;
        k->idle_next = k->client->idle;
        k->client->idle = k;
    } else {
        conn_drop(k);
    }
    call_end(call, ERROR_NONE, "", now);
}

static void conn_eof(struct conn *k, const char *why) {
    struct client_call *call = k->call;
    if (!call) {
        conn_drop(k);
        return;
    }
    struct client *c = k->client;
    if (http1_closed(&k->http)) {
        tell_head(call, &k->http);
        conn_done(k, false, clock_now_ns());
    } else if (k->used && !call->any_byte && !call->retried) {
        // The server closed a kept connection just when we took it: the request was not read.
        k->call = NULL;
        conn_drop(k);
        c->retries++;
        call->retried = true;
        call->sent = 0;
        conn_open(c, call, c->preferred);
    } else {
        conn_fail(k, ERROR_CLOSED, why);
    }
}

// One read with the kernel's stamp. The bytes read, 0: closed, -1: errno.
static ssize_t stamped_read(struct client *c, int fd, int64_t *now) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct timespec))];
    } control;
    struct iovec iov = {c->buffer, READ_BYTES};
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n;
    do
        n = recvmsg(fd, &m, 0);
    while (n < 0 && errno == EINTR);
    *now = clock_now_ns();
    if (n <= 0)
        return n;
    c->lag.reads++;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h))
        if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_TIMESTAMPNS) {
            struct timespec t;
            memcpy(&t, CMSG_DATA(h), sizeof t);
            client_lag_add(&c->lag, *now - ((int64_t)t.tv_sec * 1000000000 + t.tv_nsec - c->realtime_offset));
        }
    return n;
}

static void conn_read(struct conn *k) {
    struct client *c = k->client;
    for (int rounds = 0; rounds < 8; rounds++) {
        int64_t now;
        ssize_t n = stamped_read(c, k->fd, &now);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (n <= 0) {
            conn_eof(k, n == 0 ? "the server closed the connection" : strerror(errno));
            return;
        }
        struct client_call *call = k->call;
        if (!call) { // bytes without a request
            conn_drop(k);
            return;
        }
        call->any_byte = true;
        struct body_context b = {call, k, now, false};
        size_t used = http1_feed(&k->http, c->buffer, (size_t)n, conn_body, &b);
        tell_head(call, &k->http);
        if (k->http.state == HTTP1_BAD) {
            conn_fail(k, ERROR_PROTOCOL, k->http.why);
            return;
        }
        if (b.refused) {
            conn_fail(k, ERROR_JSON, "a response longer than any of the API");
            return;
        }
        if (k->http.state == HTTP1_DONE) {
            conn_done(k, used == (size_t)n, now);
            return;
        }
        if (n < READ_BYTES) // a whole buffer more is worth a second call; the rest is for the next turn
            return;
    }
}

static void conn_established(struct conn *k) {
    k->state = CONN_BUSY;
    k->client->preferred = k->address;
    http1_reset(&k->http);
    conn_write(k);
}

static void on_poll(uv_poll_t *poll, int status, int events) {
    struct conn *k = poll->data;
    if (k->state == CONN_CONNECTING) {
        int error = 0;
        socklen_t len = sizeof error;
        bool failed = getsockopt(k->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0 || error || status < 0;
        if (failed) { // with POLLERR libuv says no more than EBADF: the socket knows
            conn_next_address(k, error ? strerror(error) : uv_strerror(status));
            return;
        }
        conn_established(k);
        return;
    }
    if (status < 0) { // and libuv has stopped watching: reading gives what came before, then what broke
        k->events = 0;
        conn_read(k);
        if (k->state == CONN_BUSY)
            conn_write(k);
        else if (k->state == CONN_IDLE)
            conn_watch(k, UV_READABLE);
        return;
    }
    if ((events & UV_WRITABLE) && k->state == CONN_BUSY)
        conn_write(k);
    if (events & (UV_READABLE | UV_DISCONNECT))
        conn_read(k);
}

struct broken {
    uv_timer_t timer;
    struct client_call *call;
    char why[64];
};

static void broken_closed(uv_handle_t *h) { free(h->data); }
static void broken_fires(uv_timer_t *t) {
    struct broken *b = t->data;
    call_end(b->call, ERROR_CONNECT, b->why, clock_now_ns());
    uv_close((uv_handle_t *)t, broken_closed);
}

// The call ends in the loop's next turn, never within client_send().
static void fail_later(struct client *c, struct client_call *call, const char *why) {
    struct broken *b = calloc(1, sizeof *b);
    CHECK(b);
    b->call = call;
    b->timer.data = b;
    snprintf(b->why, sizeof b->why, "%s", why);
    uv_timer_init(c->loop, &b->timer);
    uv_timer_start(&b->timer, broken_fires, 0, 0);
}

static void conn_open(struct client *c, struct client_call *call, size_t address) {
    struct addrinfo *a = c->addresses;
    for (size_t i = 0; i < address && a->ai_next; i++)
        a = a->ai_next;
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0) {
        fail_later(c, call, strerror(errno));
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
    struct conn *k = calloc(1, sizeof *k);
    CHECK(k);
    k->client = c;
    k->fd = fd;
    k->address = address;
    k->call = call;
    call->connected = true;
    c->connections++;
    CHECK(uv_poll_init(c->loop, &k->poll, fd) == 0);
    k->poll.data = k;
    k->next = c->all;
    if (c->all)
        c->all->prev = k;
    c->all = k;
    k->state = CONN_CONNECTING;
    if (connect(fd, a->ai_addr, a->ai_addrlen) == 0 || errno == EINPROGRESS)
        conn_watch(k, UV_WRITABLE);
    else {
        k->call = NULL;
        char why[64];
        snprintf(why, sizeof why, "%s", strerror(errno));
        conn_drop(k);
        fail_later(c, call, why);
    }
}

struct client_call *client_send(struct client *c, struct buf *request, const struct call_handlers *handlers,
                                void *context) {
    struct client_call *call = calloc(1, sizeof *call);
    CHECK(call);
    int64_t now = clock_now_ns();
    *call = (struct client_call){.request = *request, .handlers = *handlers, .context = context};
    *request = (struct buf){0};
    call->deadline = now + (int64_t)(c->limits.timeout * 1e9);
    call->connect_deadline = now + (int64_t)(c->limits.connect_timeout * 1e9);
    struct conn *k = c->idle;
    if (!k) {
        conn_open(c, call, c->preferred);
        return call;
    }
    c->idle = k->idle_next;
    k->idle_next = NULL;
    k->state = CONN_BUSY;
    k->call = call;
    http1_reset(&k->http);
    conn_write(k);
    return call;
}

static void on_tick(uv_timer_t *t) {
    struct client *c = t->data;
    int64_t now = clock_now_ns();
    c->realtime_offset = realtime_offset();
    for (struct conn *k = c->all, *next; k; k = next) {
        next = k->next;
        if (!k->call)
            continue;
        if (now >= k->call->deadline) {
            conn_fail(k, ERROR_TIMEOUT, "no whole response within --timeout");
            next = c->all; // the handler may have begun calls: from the beginning
        } else if (k->state == CONN_CONNECTING && now >= k->call->connect_deadline) {
            conn_fail(k, ERROR_TIMEOUT, "no connection within --connect-timeout");
            next = c->all;
        }
    }
}

struct client *client_open(uv_loop_t *loop, const char *host, const char *port, struct client_limits limits,
                           char *message, size_t size) {
    struct client *c = calloc(1, sizeof *c);
    CHECK(c);
    c->loop = loop;
    c->limits = limits;
    c->realtime_offset = realtime_offset();
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    int rc = getaddrinfo(host, port, &hints, &c->addresses);
    if (rc != 0) {
        snprintf(message, size, "%s: %s", host, gai_strerror(rc));
        free(c);
        return NULL;
    }
    uv_timer_init(loop, &c->tick);
    c->tick.data = c;
    uv_timer_start(&c->tick, on_tick, TICK_MS, TICK_MS);
    uv_unref((uv_handle_t *)&c->tick);
    return c;
}

void client_interrupt(struct client *c) {
    for (struct conn *k = c->all, *next; k; k = next) {
        next = k->next;
        if (k->call) {
            conn_fail(k, ERROR_INTERRUPTED, "interrupted");
            next = c->all;
        }
    }
}

static void tick_closed(uv_handle_t *h) {
    struct client *c = h->data;
    freeaddrinfo(c->addresses);
    free(c);
}

void client_close(struct client *c) {
    c->closed = true;
    client_interrupt(c);
    while (c->all)
        conn_drop(c->all);
    uv_close((uv_handle_t *)&c->tick, tick_closed);
}
