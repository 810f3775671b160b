// What libmicrohttpd 0.9.75 lets through and must not pass: the request-smuggling forms, NULs, and ambiguous
// framing. Pure functions over one request's head.
#pragma once

#include "buf.h"

struct MHD_Connection;

struct http_head {
    int num_host, num_length, num_encoding, num_authorization;
    bool bad_name, nul, bad_length, check_layout;
    bool chunked;              // Transfer-Encoding is exactly "chunked"
    int64_t length;            // declared Content-Length; -1: none
    bool expect_unknown;       // Expect other than 100-continue
    const char *after;         // end of the value read last, while reading
    const char *host;          // borrowed from the connection; NULL: none
    const char *authorization; // "
    const char *api_key;       // x-api-key
    const char *content_type;  // "
    const char *content_encoding;
    const char *origin, *acrm, *acrh; // Origin, Access-Control-Request-Method and -Headers
    const char *request_id;
};

// Reads all headers once. NULs: 0.9.75 gives a value's length by strlen(), so a NUL in a value is found by
// what follows it in the connection's buffer, where lines stand one after the other.
void http_head_read(struct http_head *h, struct MHD_Connection *connection);

// The sentence that says why this head is refused (400, or 417 or 501 in *status) with the connection closed,
// or NULL.
const char *http_head_refused(const struct http_head *h, const char *version, int *status);

// Whether a raw request target that libmicrohttpd 0.9.75 hands over was cut by a NUL.
bool http_target_cut(const char *uri);

// Whether a Host header names this machine's loopback or `bind` (any port): the guard against DNS rebinding.
bool http_host_is_local(const char *host, const char *bind);

// Whether a client-chosen request id may be echoed: 1..128 of [A-Za-z0-9._:-].
bool http_request_id_ok(const char *id);
