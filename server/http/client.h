// A request to a running server over plain HTTP, for the commands that ask one. One connection per request, which it owns;
// not for several threads. No TLS, no redirects.
#pragma once

#include "http1.h"
#include "status.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct client_url {
    char host[256], port[8], path[1024];
};

// Reads http://HOST[:PORT][/PATH] or HOST:PORT[/PATH], HOST perhaps [IPv6]. What is missing stays as it was, but for the port: 80.
bool client_parse_url(const char *url, struct client_url *out);
// Behind what is wrong with such an argument: why https:// is, or nothing.
const char *client_url_hint(const char *url);

struct client_request {
    const char *method, *path; // the path stands in for that of the URL; NULL: that one
    const char *key;           // API key; NULL: none
    const char *body;          // JSON; NULL: none
    size_t len;
    int timeout_ms;                    // without a byte either way
    int total_ms;                      // for all of it; 0: no limit
    const volatile sig_atomic_t *stop; // a signal sets it to end it; NULL: none does
};

struct http_client {
    int fd, status; // of the response
    const struct client_request *request;
    int64_t deadline; // ms; 0: none
    struct http1 http;
    char buf[16384];
    size_t at, len;
};

// Sends the request, which is borrowed until client_close(), and reads the response's head. STATUS_IO: err says why, with
// nothing to close. STATUS_CANCELLED: *stop was set.
enum status client_open(struct http_client *c, const struct client_url *url,
                        const struct client_request *request, struct err *err);
// Reads some of the body. *got 0: it is over. STATUS_IO, STATUS_CANCELLED: as above, but c is still to be closed.
enum status client_read(struct http_client *c, char *out, size_t size, size_t *got, struct err *err);
void client_close(struct http_client *c);
