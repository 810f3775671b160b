#include "limits.h"

#include "listen.h"
#include "tcp.h"

#include <sys/ioctl.h>
#include <sys/socket.h>

// Requests that a connection may have at once, and how many it earns in a second: one client must not keep the loop busy.
enum { BURST = 400, REQUEST_RATE = 4000 };
enum { MAX_UNSEEN = 2 };
#define SECOND 1000000000LL
#define SILENT (SECOND / 10) // without the rest of a head: it is not under way

struct http_limits http_limits_filled(const struct http_limits *limits) {
    struct http_limits l = *limits;
    l.max_connections = l.max_connections ? l.max_connections : listen_limit();
    l.max_body = l.max_body ? l.max_body : 32u << 20;
    l.max_all_bodies = l.max_all_bodies ? l.max_all_bodies : 512u << 20;
    l.head_timeout = l.head_timeout ? l.head_timeout : 10;
    l.idle_timeout = l.idle_timeout ? l.idle_timeout : 120;
    l.body_window = l.body_window ? l.body_window : 10;
    l.body_timeout = l.body_timeout ? l.body_timeout : 300;
    l.send_grace = l.send_grace ? l.send_grace : 30;
    l.rate = l.rate ? l.rate : 16 * 1024;
    return l;
}

// A next head that drips in has the time of a head, not that of an idle connection.
static void watch_idle(struct http_conn *c, const struct http_limits *l, int64_t now) {
    int64_t head = now + l->head_timeout * SECOND;
    uint64_t bytes = tcp_bytes_received(c->fd);
    if (!c->seen_idle) {
        c->seen_idle = true;
        c->idle_bytes = bytes;
    } else if (bytes > c->idle_bytes && c->deadline > head) {
        c->deadline = head;
    }
}

static bool body_is_slow(struct http_request *request, const struct http_limits *l, int64_t now) {
    if (now - request->body_since <= l->body_window * SECOND)
        return false;
    size_t came = request->body.len - request->body_mark;
    request->body_since = now;
    request->body_mark = request->body.len;
    return came < (size_t)l->body_window * (size_t)l->rate ||
           now - request->arrived > l->body_timeout * SECOND;
}

enum http_verdict conn_judge(struct http_conn *c, const struct http_limits *l, int64_t now) {
    const struct http_request *request = c->request;
    if (!request || request->state <= HTTP_BODY) { // is being read
        char byte;
        ssize_t waiting = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (waiting == 0)
            return CONN_GONE; // nothing more can come: libmicrohttpd would wait
        c->unseen = waiting > 0 && !c->seen ? c->unseen + 1 : 0;
        c->seen = false;
        if (c->unseen > MAX_UNSEEN) // its buffer is full and no line ends, so libmicrohttpd turns in a circle
            return request && request->state == HTTP_BODY ? CONN_REFUSE_BODY : CONN_SHUT;
    }
    if (!request && c->used && c->deadline)
        watch_idle(c, l, now);
    if (c->deadline && now > c->deadline)
        return CONN_SHUT;
    if (request && request->state == HTTP_BODY && body_is_slow(c->request, l, now))
        return CONN_REFUSE_BODY;
    return CONN_KEEP;
}

bool conn_makes_room(const struct http_conn *c, int64_t now) {
    const struct http_request *request = c->request;
    if (c->closed || !c->deadline || (request && request->state != HTTP_HEAD))
        return false;
    int64_t quiet = now - (request ? request->arrived : c->since);
    int waiting = 0; // bytes that libmicrohttpd has not read may be all that is missing
    return quiet > (c->used && !request ? SECOND : SILENT) && ioctl(c->fd, FIONREAD, &waiting) == 0 &&
           waiting == 0;
}

bool conn_take_credit(struct http_conn *c, int64_t now) {
    int64_t earned = (now - c->credit_since) / (SECOND / REQUEST_RATE);
    if (earned > 0) {
        c->credit = c->credit + earned < BURST ? c->credit + (int)earned : BURST;
        c->credit_since = now;
    }
    if (c->credit == 0)
        return false;
    c->credit--;
    return true;
}

void conn_expect_reader(struct http_conn *c, const struct http_limits *l, int64_t now, size_t len) {
    c->deadline = now + (l->send_grace + (int64_t)len / l->rate) * SECOND;
}
