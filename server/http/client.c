#include "client.h"

#include "buf.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static bool copy_part(char *to, size_t size, const char *from, size_t len) {
    if (len == 0 || len >= size)
        return false;
    memcpy(to, from, len);
    to[len] = '\0';
    return true;
}

bool client_parse_url(const char *url, struct client_url *t) {
    static const char scheme[] = "http://";
    if (strncmp(url, scheme, strlen(scheme)) != 0)
        return false;
    for (const char *s = url; *s; s++)
        if ((unsigned char)*s <= ' ' || *s == 0x7f || *s == '@' || *s == '#')
            return false;
    const char *host = url + strlen(scheme), *path = host + strcspn(host, "/?"), *end;
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
        return copy_part(t->port, sizeof t->port, "80", 2);
    size_t digits = strspn(end + 1, "0123456789");
    return *end == ':' && end + 1 + digits == path && digits <= 5 &&
           copy_part(t->port, sizeof t->port, end + 1, digits);
}

// Waits for a socket, in slices, so that a signal between a look at *stop and poll() is not missed for long.
static bool wait_for(const struct client *c, short what) {
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
static bool connect_to(struct client *c, const struct addrinfo *list) {
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

static bool send_all(struct client *c, const char *data, size_t len) {
    for (size_t at = 0; at < len;) {
        ssize_t sent = wait_for(c, POLLOUT) ? send(c->fd, data + at, len - at, MSG_NOSIGNAL) : -1;
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        at += sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

// More bytes behind those in c->buf. 1; 0: the connection has ended; -1 with errno.
static int fill(struct client *c) {
    if (c->at > 0) {
        memmove(c->buf, c->buf + c->at, c->len - c->at);
        c->len -= c->at;
        c->at = 0;
    }
    if (c->len == sizeof c->buf) {
        errno = EMSGSIZE;
        return -1;
    }
    for (;;) {
        ssize_t got = wait_for(c, POLLIN) ? recv(c->fd, c->buf + c->len, sizeof c->buf - c->len, 0) : -1;
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        c->len += got > 0 ? (size_t)got : 0;
        return got > 0 ? 1 : (int)got;
    }
}

// The next line without its end, which lasts until the next fill; NULL with errno: there is none.
static char *next_line(struct client *c) {
    for (;;) {
        char *begin = c->buf + c->at, *end = memchr(begin, '\n', c->len - c->at);
        if (end) {
            c->at = (size_t)(end - c->buf) + 1;
            *end = '\0';
            if (end > begin && end[-1] == '\r')
                end[-1] = '\0';
            return begin;
        }
        int got = fill(c);
        if (got == 0)
            errno = EPROTO;
        if (got <= 0)
            return NULL;
    }
}

// Of `HTTP/1.1 200 OK`; 0 where the line is none.
static int status_of(const char *line) {
    static const char version[] = "HTTP/1.";
    const char *s = line + strlen(version) + 2;
    if (strncmp(line, version, strlen(version)) != 0 || (s[-2] != '0' && s[-2] != '1') || s[-1] != ' ' ||
        strspn(s, "0123456789") != 3 || (s[3] != ' ' && s[3] != '\0'))
        return 0;
    return (s[0] - '0') * 100 + (s[1] - '0') * 10 + s[2] - '0';
}

static bool read_head(struct client *c) {
    do { // 1xx come before the response
        char *line = next_line(c);
        if (!line || strlen(line) < 12)
            errno = line ? EPROTO : errno;
        c->status = line && strlen(line) >= 12 ? status_of(line) : 0;
        if (c->status == 0)
            return false;
        c->left = -1;
        while ((line = next_line(c)) && *line) {
            if (strncasecmp(line, "content-length:", 15) == 0)
                c->left = strtoll(line + 15, NULL, 10);
            else if (strncasecmp(line, "transfer-encoding:", 18) == 0)
                c->chunked = strstr(line, "chunked") != NULL;
        }
        if (!line)
            return false;
    } while (c->status < 200);
    if (c->chunked)
        c->left = 0;
    return true;
}

static enum status fail(struct err *err, const struct client_url *url) {
    if (errno == ECANCELED)
        return err_set(err, STATUS_CANCELLED, "stopped");
    return err_set(err, STATUS_IO, "%s port %s: %s", url->host, url->port,
                   errno == EPROTO ? "the response is not HTTP/1" : strerror(errno));
}

enum status client_open(struct client *c, const struct client_url *url, const struct client_request *request,
                        struct err *err) {
    // A server on every address is asked on the loopback.
    bool any = strcmp(url->host, "0.0.0.0") == 0 || strcmp(url->host, "::") == 0;
    bool v6 = strchr(url->host, ':') != NULL;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list = NULL;
    struct buf head = {0};
    c->fd = -1;
    c->request = request;
    c->deadline = request->total_ms ? now_ms() + request->total_ms : 0;
    c->chunked = c->ended = false;
    c->at = c->len = 0;
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

// The size of the next chunk into c->left; that of the last one is 0. False with errno.
static bool next_chunk(struct client *c) {
    char *line = next_line(c), *end;
    if (line && !*line) // behind the chunk before
        line = next_line(c);
    if (!line)
        return false;
    c->left = strtoll(line, &end, 16);
    errno = EPROTO;
    return end > line && c->left >= 0;
}

enum status client_read(struct client *c, char *out, size_t size, size_t *got, struct err *err) {
    *got = 0;
    bool ok = true;
    if (!c->ended && c->chunked && c->left == 0) {
        ok = next_chunk(c);
        c->ended = c->left == 0;
    }
    c->ended |= c->left == 0;
    if (ok && !c->ended && c->at == c->len) {
        int more = fill(c);
        c->ended = more == 0;
        ok = more > 0 || (more == 0 && c->left < 0);
        if (more == 0)
            errno = ECONNRESET;
    }
    if (!ok)
        return errno == ECANCELED ? err_set(err, STATUS_CANCELLED, "stopped")
                                  : err_set(err, STATUS_IO, "the response breaks off: %s", strerror(errno));
    if (c->ended)
        return STATUS_OK;
    size_t n = c->len - c->at;
    if (n > size)
        n = size;
    if (c->left >= 0 && (int64_t)n > c->left)
        n = (size_t)c->left;
    memcpy(out, c->buf + c->at, n);
    c->at += n;
    c->left -= c->left >= 0 ? (int64_t)n : 0;
    *got = n;
    return STATUS_OK;
}

void client_close(struct client *c) {
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}
