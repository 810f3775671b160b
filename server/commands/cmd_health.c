// quire health [URL]: asks a running server whether it is well, for the health checks of containers and
// supervisors, so that an image needs no HTTP client. Exit code 0: 200; 1: any other response, or none within
// TIMEOUT.
//
// One request on a plain socket, its whole response, one deadline: too little for a client library.

#include "commands.h"
#include "console.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { TIMEOUT_MS = 5000, MAX_RESPONSE = 65536, EXIT_UNWELL = 1 };

struct target {
    char host[256], port[8], path[1024];
};

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

// http://HOST[:PORT][/PATH], HOST perhaps [IPv6]. What is missing comes from the flags, and the path is
// /health.
static bool parse_url(const char *url, struct target *t) {
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

static bool wait_for(int fd, short what, int64_t deadline) {
    struct pollfd p = {.fd = fd, .events = what};
    for (;;) {
        int64_t left = deadline - now_ms();
        int n = left > 0 ? poll(&p, 1, (int)left) : 0;
        if (n > 0)
            return true;
        if (n == 0 || errno != EINTR) {
            errno = n == 0 ? ETIMEDOUT : errno;
            return false;
        }
    }
}

// A connected socket that does not block, or -1 with errno of the last address.
static int connect_to(const struct addrinfo *list, int64_t deadline) {
    int why = EADDRNOTAVAIL;
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        int fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
        if (fd < 0) {
            why = errno;
            continue;
        }
        int error = 0;
        socklen_t len = sizeof error;
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0)
            return fd;
        if (errno == EINPROGRESS && wait_for(fd, POLLOUT, deadline) &&
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0) {
            if (!error)
                return fd;
            errno = error;
        }
        why = errno;
        close(fd);
    }
    errno = why;
    return -1;
}

// Sends the request and reads the response to its end (Connection: close) or to `size` bytes. False with
// errno.
static bool exchange_bytes(int fd, const char *request, char *response, size_t size, size_t *len,
                           int64_t deadline) {
    for (size_t at = 0, n = strlen(request); at < n;) {
        ssize_t sent = wait_for(fd, POLLOUT, deadline) ? send(fd, request + at, n - at, MSG_NOSIGNAL) : -1;
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        at += sent > 0 ? (size_t)sent : 0;
    }
    for (*len = 0; *len < size;) {
        ssize_t got = wait_for(fd, POLLIN, deadline) ? recv(fd, response + *len, size - *len, 0) : -1;
        if (got == 0)
            break;
        if (got < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        *len += got > 0 ? (size_t)got : 0;
    }
    return true;
}

// Of `HTTP/1.1 200 OK`; 0 where the line is none. NUL-terminated, of any length.
static int status_of(const char *response) {
    static const char version[] = "HTTP/1.";
    const char *s = response + strlen(version) + 2;
    if (strncmp(response, version, strlen(version)) != 0 || (s[-2] != '0' && s[-2] != '1') || s[-1] != ' ' ||
        strspn(s, "0123456789") != 3 || (s[3] != ' ' && s[3] != '\r'))
        return 0;
    return (s[0] - '0') * 100 + (s[1] - '0') * 10 + s[2] - '0';
}

static int ask_server(const struct target *t, bool any) {
    static char response[MAX_RESPONSE + 1];
    char request[1600];
    int64_t deadline = now_ms() + TIMEOUT_MS;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list = NULL;
    int rc = getaddrinfo(any ? NULL : t->host, t->port, &hints, &list); // NULL: this machine
    if (rc != 0) {
        complain("%s: %s", t->host, gai_strerror(rc));
        return EXIT_UNWELL;
    }
    bool v6 = strchr(t->host, ':') != NULL;
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: %s%s%s:%s\r\nConnection: close\r\n\r\n",
             t->path, v6 ? "[" : "", t->host, v6 ? "]" : "", t->port);
    size_t len = 0;
    int fd = connect_to(list, deadline);
    bool ok = fd >= 0 && exchange_bytes(fd, request, response, MAX_RESPONSE, &len, deadline);
    int why = errno;
    freeaddrinfo(list);
    if (fd >= 0)
        close(fd);
    if (!ok) {
        complain("%s port %s: %s", t->host, t->port, strerror(why));
        return EXIT_UNWELL;
    }
    response[len] = '\0';
    int status = status_of(response);
    if (status == 0) {
        complain("%s port %s: the response is not HTTP/1", t->host, t->port);
        return EXIT_UNWELL;
    }
    const char *body = strstr(response, "\r\n\r\n");
    body = body ? body + 4 : "";
    if (status != 200) {
        complain("status %d: %.400s", status, body);
        return EXIT_UNWELL;
    }
    printf("%s\n", body);
    return fflush(stdout) == 0 ? 0 : EXIT_UNWELL;
}

int cmd_health(const struct config *c) {
    struct target t = {.path = "/health"};
    snprintf(t.host, sizeof t.host, "%s", c->host);
    snprintf(t.port, sizeof t.port, "%d", c->port);
    if (c->args.len > 1 || (c->args.len == 1 && !parse_url(c->args.items[0], &t))) {
        complain("usage: quire health [http://HOST[:PORT][/PATH]]");
        return EXIT_USAGE;
    }
    // A server on every address is asked on the loopback.
    bool any = strcmp(t.host, "0.0.0.0") == 0 || strcmp(t.host, "::") == 0;
    return ask_server(&t, any);
}
