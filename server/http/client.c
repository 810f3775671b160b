#include "client.h"

#include "buf.h"
#include "clock.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int64_t now_ms(void) { return clock_now_ns() / 1000000; }

static bool copy_part(char *to, size_t size, const char *from, size_t len) {
    if (len == 0 || len >= size)
        return false;
    memcpy(to, from, len);
    to[len] = '\0';
    return true;
}

bool client_parse_url(const char *url, struct client_url *t) {
    static const char scheme[] = "http://";
    bool has_scheme = strncmp(url, scheme, strlen(scheme)) == 0;
    for (const char *s = url; *s; s++)
        if ((unsigned char)*s <= ' ' || *s == 0x7f || *s == '@' || *s == '#')
            return false;
    const char *host = url + (has_scheme ? strlen(scheme) : 0), *path = host + strcspn(host, "/?"), *end;
    if (*path == '?' || (*path && path[1] && !copy_part(t->path, sizeof t->path, path, strlen(path))))
        return false;
    if (*host == '[') {
        end = memchr(host, ']', (size_t)(path - host));
        if (!end || !copy_part(t->host, sizeof t->host, host + 1, (size_t)(end - host) - 1))
            return false;
        end++;
    } else {
        const char *colon = memchr(host, ':', (size_t)(path - host));
        end = colon ? colon : path;
        if (!copy_part(t->host, sizeof t->host, host, (size_t)(end - host)))
            return false;
    }
    if (end == path)
        return has_scheme && copy_part(t->port, sizeof t->port, "80", 2);
    size_t digits = strspn(end + 1, "0123456789");
    return *end == ':' && end + 1 + digits == path && digits <= 5 &&
           copy_part(t->port, sizeof t->port, end + 1, digits);
}

const char *client_url_hint(const char *url) {
    return url && strncmp(url, "https://", 8) == 0 ? "; this program speaks no TLS as a client" : "";
}

// Waits for a socket, in slices, so that a signal between a look at *stop and poll() is not missed for long.
static bool wait_for(const struct http_client *c, short what) {
    enum { SLICE_MS = 200 };
    struct pollfd p = {.fd = c->fd, .events = what};
    int64_t end = now_ms() + c->request->timeout_ms;
    if (c->deadline && c->deadline < end)
        end = c->deadline;
    for (;;) {
        if (c->request->stop && *c->request->stop) {
            errno = ECANCELED;
            return false;
        }
        int64_t left = end - now_ms();
        int n = left > 0 ? poll(&p, 1, (int)(left < SLICE_MS ? left : SLICE_MS)) : 0;
        if (n > 0)
            return true;
        if (n < 0 && errno != EINTR)
            return false;
        if (left <= 0) {
            errno = ETIMEDOUT;
            return false;
        }
    }
}

// A connected socket that does not block in c->fd, or false with errno of the last address.
static bool connect_to(struct http_client *c, const struct addrinfo *list) {
    int why = EADDRNOTAVAIL;
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        int error = 0;
        socklen_t len = sizeof error;
        c->fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
        if (c->fd < 0) {
            why = errno;
            continue;
        }
        if (connect(c->fd, a->ai_addr, a->ai_addrlen) == 0)
            return true;
        if (errno == EINPROGRESS && wait_for(c, POLLOUT) &&
            getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0) {
            if (!error)
                return true;
            errno = error;
        }
        why = errno;
        close(c->fd);
        c->fd = -1;
        if (why == ECANCELED)
            break;
    }
    errno = why;
    return false;
}

static bool send_all(struct http_client *c, const char *data, size_t len) {
    for (size_t at = 0; at < len;) {
        ssize_t sent = wait_for(c, POLLOUT) ? send(c->fd, data + at, len - at, MSG_NOSIGNAL) : -1;
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        at += sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

// More bytes into c->buf, where none are left. 1; 0: the connection has ended; -1 with errno.
static int fill(struct http_client *c) {
    ssize_t got;
    do {
        got = wait_for(c, POLLIN) ? recv(c->fd, c->buf, sizeof c->buf, 0) : -1;
    } while (got < 0 && (errno == EAGAIN || errno == EINTR));
    c->at = 0;
    c->len = got > 0 ? (size_t)got : 0;
    return got > 0 ? 1 : (int)got;
}

static void no_body(void *context, const char *data, size_t len) { (void)context, (void)data, (void)len; }

static bool read_head(struct http_client *c) {
    while (c->http.state == HTTP1_HEAD) {
        int more = c->at == c->len ? fill(c) : 1;
        if (more == 0)
            errno = EPROTO;
        if (more <= 0)
            return false;
        // Byte by byte: the body begins behind the last.
        c->at += http1_feed(&c->http, c->buf + c->at, 1, no_body, NULL);
    }
    c->status = c->http.status;
    if (c->http.state == HTTP1_BAD)
        errno = EPROTO;
    return c->http.state != HTTP1_BAD;
}

static enum status fail(struct err *err, const struct client_url *url) {
    if (errno == ECANCELED)
        return err_set(err, STATUS_CANCELLED, "stopped");
    return err_set(err, STATUS_IO, "%s port %s: %s", url->host, url->port,
                   errno == EPROTO         ? "the response is not HTTP/1"
                   : errno == ECONNREFUSED ? "no server listens there (Connection refused)"
                                           : strerror(errno));
}

enum status client_open(struct http_client *c, const struct client_url *url,
                        const struct client_request *request, struct err *err) {
    // A server on every address is asked on the loopback.
    bool any = strcmp(url->host, "0.0.0.0") == 0 || strcmp(url->host, "::") == 0;
    bool v6 = strchr(url->host, ':') != NULL;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list = NULL;
    struct buf head = {0};
    c->fd = -1;
    c->request = request;
    c->deadline = request->total_ms ? now_ms() + request->total_ms : 0;
    c->at = c->len = 0;
    c->http = (struct http1){0};
    http1_reset(&c->http);
    int rc = getaddrinfo(any ? NULL : url->host, url->port, &hints, &list);
    if (rc != 0)
        return err_set(err, STATUS_IO, "%s: %s", url->host, gai_strerror(rc));
    buf_fmt(&head, "%s %s HTTP/1.1\r\nHost: %s%s%s:%s\r\nConnection: close\r\n", request->method,
            request->path ? request->path : url->path, v6 ? "[" : "", url->host, v6 ? "]" : "", url->port);
    if (request->key)
        buf_fmt(&head, "Authorization: Bearer %s\r\n", request->key);
    if (request->body)
        buf_fmt(&head, "Content-Type: application/json\r\nContent-Length: %zu\r\n", request->len);
    buf_lit(&head, "\r\n");
    bool ok = !head.failed && connect_to(c, list) && send_all(c, head.data, head.len) &&
              (!request->body || send_all(c, request->body, request->len)) && read_head(c);
    if (head.failed)
        errno = ENOMEM;
    enum status status = ok ? STATUS_OK : fail(err, url);
    freeaddrinfo(list);
    if (head.data)
        explicit_bzero(head.data, head.len); // the key is in it
    buf_free(&head);
    if (!ok)
        client_close(c);
    return status;
}

struct client_part {
    char *to;
    size_t len;
};

static void add_part(void *context, const char *data, size_t len) {
    struct client_part *p = context;
    memcpy(p->to + p->len, data, len);
    p->len += len;
}

enum status client_read(struct http_client *c, char *out, size_t size, size_t *got, struct err *err) {
    struct client_part part = {out, 0};
    int more = 1;
    while (part.len == 0 && size > 0 && c->http.state == HTTP1_BODY) {
        if (c->at == c->len && (more = fill(c)) <= 0)
            break;
        size_t n = c->len - c->at < size ? c->len - c->at : size;
        c->at += http1_feed(&c->http, c->buf + c->at, n, add_part, &part);
    }
    *got = part.len;
    if (part.len > 0) // the next call reports an error behind it
        return STATUS_OK;
    if (c->http.state == HTTP1_BAD)
        errno = EPROTO;
    else if (more == 0 && !http1_closed(&c->http))
        errno = ECONNRESET;
    else if (more >= 0)
        return STATUS_OK;
    return errno == ECANCELED ? err_set(err, STATUS_CANCELLED, "stopped")
                              : err_set(err, STATUS_IO, "the response breaks off: %s", strerror(errno));
}

void client_close(struct http_client *c) {
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    http1_free(&c->http);
}
