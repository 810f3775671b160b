// TLS handshakes under way. libmicrohttpd 0.9.75 calls gnutls again and again while one waits for its client; so those that
// wait are suspended, and resumed when their sockets are ready. Loop thread.
#pragma once

#include "conn.h"

struct http_handshakes {
    uv_loop_t *loop;
    void (*resumed)(struct http_conn *conn); // libmicrohttpd shall run
    struct http_conn *active;                // those that are not suspended
};

// libmicrohttpd has accepted a connection of TLS.
void handshake_begin(struct http_handshakes *h, struct http_conn *conn);
// After each run of libmicrohttpd: suspends those that wait.
void handshake_park(struct http_handshakes *h);
void handshake_resume(struct http_handshakes *h, struct http_conn *conn); // if it is suspended
void handshake_end(struct http_handshakes *h, struct http_conn *conn);    // before the connection is freed

// Opens conn->gone. False: out of memory or descriptors.
bool conn_open_poll(struct http_conn *conn, uv_loop_t *loop);
