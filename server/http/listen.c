#include "listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FD_RESERVE = 128 }; // files, epoll, pipes and the like

enum status listen_bind(const char *host, int port, struct listener *out, struct err *err) {
    out->fd = -1;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *list = NULL;
    char service[8], bare[256];
    snprintf(service, sizeof service, "%d", port);
    size_t n = strlen(host);
    if (n == 0) // a variable that is not set, most likely, and not the wish to be public
        return err_set(err, STATUS_INVALID, "--host: expected an address or a name, found ''");
    if (n > 2 && host[0] == '[' && host[n - 1] == ']')
        snprintf(bare, sizeof bare, "%.*s", (int)(n - 2), host + 1);
    else
        snprintf(bare, sizeof bare, "%s", host);
    int rc = getaddrinfo(bare, service, &hints, &list);
    if (rc != 0)
        return err_set(err, STATUS_INVALID, "--host %.100s: %s", host, gai_strerror(rc));
    enum status status = STATUS_INVALID;
    int why = 0;
    for (const struct addrinfo *a = list; a && status != STATUS_OK; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
        if (fd < 0) {
            why = errno;
            continue;
        }
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        struct sockaddr_storage bound;
        socklen_t len = sizeof bound;
        if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 4096) == 0 &&
            getsockname(fd, (struct sockaddr *)&bound, &len) == 0) {
            out->fd = fd;
            out->port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&bound)->sin6_port
                                                          : ((struct sockaddr_in *)(void *)&bound)->sin_port);
            status = STATUS_OK;
        } else {
            why = errno;
            close(fd);
        }
    }
    freeaddrinfo(list);
    if (status != STATUS_OK)
        return err_set(err, STATUS_INVALID, "cannot listen on %.100s port %d: %s", host, port, strerror(why));
    return STATUS_OK;
}

int listen_limit(void) {
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0)
        return 960;
    if (r.rlim_cur < r.rlim_max) {
        rlim_t old = r.rlim_cur;
        r.rlim_cur = r.rlim_max < 65536 ? r.rlim_max : 65536;
        if (r.rlim_cur < old || setrlimit(RLIMIT_NOFILE, &r) != 0)
            r.rlim_cur = old;
    }
    if (r.rlim_cur > 10000 + FD_RESERVE)
        return 10000;
    if (r.rlim_cur > FD_RESERVE + 16)
        return (int)r.rlim_cur - FD_RESERVE;
    return r.rlim_cur / 4 < 16 ? (int)r.rlim_cur / 4 : 16;
}

void listen_peer(int fd, unsigned char address[16]) {
    struct sockaddr_storage peer;
    socklen_t len = sizeof peer;
    memset(address, 0, 16);
    if (getpeername(fd, (struct sockaddr *)&peer, &len) != 0)
        return;
    if (peer.ss_family == AF_INET) {
        address[10] = address[11] = 0xff;
        memcpy(address + 12, &((struct sockaddr_in *)(void *)&peer)->sin_addr, 4);
    } else if (peer.ss_family == AF_INET6) {
        const struct in6_addr *a = &((struct sockaddr_in6 *)(void *)&peer)->sin6_addr;
        memcpy(address, a, IN6_IS_ADDR_V4MAPPED(a) ? 16 : 8);
    }
}
