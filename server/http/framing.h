// Refuses what libmicrohttpd 0.9.75 lets through: the request-smuggling forms, NULs, and ambiguous framing.
// Pure functions over one request's head.
#pragma once

#include "buf.h"

struct MHD_Connection;

struct http_head {
    int num_host, num_length, num_encoding, num_authorization;
    bool bad_name, bad_line, bad_value, bad_length;
    bool repeated;             // one that says who calls, from where, or what the body is
    bool chunked;              // Transfer-Encoding is exactly "chunked"
    int64_t length;            // declared Content-Length; -1: none
    bool expect_unknown;       // Expect other than 100-continue
    const char *after;         // end of the line read last, while reading; NULL: not looked at
    const char *host;          // borrowed from the connection; NULL: none
    const char *authorization; // "
    const char *api_key;       // x-api-key
    const char *content_type;  // "
    const char *content_encoding;
    const char *accept;               // the last one
    const char *origin, *acrm, *acrh; // Origin, Access-Control-Request-Method and -Headers
    const char *request_id, *traceparent;
};

// Reads all headers once. 0.9.75 takes lines that end in LF alone, folded ones, and cuts values at a NUL: each is seen by
// where its strings lie in the connection's buffer. `method` and `version` as MHD_AccessHandlerCallback has them.
void http_head_read(struct http_head *h, struct MHD_Connection *connection, const char *method,
                    const char *version);

// The sentence that says why this head is refused (400, or 417 or 501 in *status) with the connection closed,
// or NULL.
const char *http_head_refused(const struct http_head *h, const char *version, int *status);

// Whether a raw request target is none of a path, an absolute URI and "*", or holds a NUL.
bool http_target_bad(const char *uri);

// Whether a Host header names this machine's loopback or `bind` (any port): the guard against DNS rebinding.
bool http_host_is_local(const char *host, const char *bind);

// Whether a client-chosen request id may be echoed: 1..128 of [A-Za-z0-9._:-].
bool http_request_id_ok(const char *id);
