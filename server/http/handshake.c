#include "handshake.h"

#include "tls.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static void add(struct http_handshakes *h, struct http_conn *conn) {
    conn->shaking_prev = NULL;
    conn->shaking_next = h->active;
    if (h->active)
        h->active->shaking_prev = conn;
    h->active = conn;
    conn->in_active = true;
}

static void take_out(struct http_handshakes *h, struct http_conn *conn) {
    if (!conn->in_active)
        return;
    *(conn->shaking_prev ? &conn->shaking_prev->shaking_next : &h->active) = conn->shaking_next;
    if (conn->shaking_next)
        conn->shaking_next->shaking_prev = conn->shaking_prev;
    conn->in_active = false;
}

static void on_finished(void *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_conn *conn = info ? info->socket_context : NULL;
    if (!conn)
        return;
    conn->shaking = false;
    // We have nothing to send, and a client with Nagle's algorithm holds its request back until this is acknowledged.
    int one = 1;
    setsockopt(conn->fd, IPPROTO_TCP, TCP_QUICKACK, &one, sizeof one);
}

bool conn_open_poll(struct http_conn *conn, uv_loop_t *loop) {
    if (!conn->gone_open && uv_poll_init(loop, &conn->gone, conn->fd) == 0) {
        conn->gone.data = conn;
        conn->gone_open = true;
    }
    return conn->gone_open;
}

void handshake_begin(struct http_handshakes *h, struct http_conn *conn) {
    conn->handshakes = h;
    conn->shaking = true;
    tls_on_finished(conn->tls, on_finished);
    add(h, conn);
}

void handshake_resume(struct http_handshakes *h, struct http_conn *conn) {
    if (!conn->parked)
        return;
    conn->parked = false;
    uv_poll_stop(&conn->gone);
    add(h, conn);
    MHD_resume_connection(conn->mhd);
}

static void on_ready(uv_poll_t *poll, int status, int events) {
    (void)status, (void)events; // an error, too, is for libmicrohttpd to see
    struct http_conn *conn = poll->data;
    struct http_handshakes *h = conn->handshakes;
    handshake_resume(h, conn);
    h->resumed(conn);
}

void handshake_park(struct http_handshakes *h) {
    for (struct http_conn *conn = h->active, *next; conn; conn = next) {
        next = conn->shaking_next;
        int waits_for = conn->shaking && tls_wants_write(conn->tls) ? UV_WRITABLE : UV_READABLE;
        if (!conn->shaking) {
            take_out(h, conn);
        } else if (conn_open_poll(conn, h->loop) && uv_poll_start(&conn->gone, waits_for, on_ready) == 0) {
            take_out(h, conn);
            conn->parked = true;
            MHD_suspend_connection(conn->mhd);
        }
    }
}

void handshake_end(struct http_handshakes *h, struct http_conn *conn) { take_out(h, conn); }
