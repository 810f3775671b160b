#include "linger.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINGER_MS = 2000, MAX_LINGERING = 64, DROP = 64 * 1024 };

struct lingering {
    struct http_linger *linger;
    struct lingering *prev, *next;
    int fd, open_handles;
    uv_poll_t readable;
    uv_timer_t timeout;
};

static void on_closed(uv_handle_t *handle) {
    struct lingering *l = handle->data;
    if (--l->open_handles > 0)
        return;
    close(l->fd);
    free(l);
}

static void end(struct lingering *l) {
    *(l->prev ? &l->prev->next : &l->linger->list) = l->next;
    if (l->next)
        l->next->prev = l->prev;
    l->linger->num--;
    uv_close((uv_handle_t *)&l->readable, on_closed);
    uv_close((uv_handle_t *)&l->timeout, on_closed);
}

static void on_timeout(uv_timer_t *timer) { end(timer->data); }

static void on_readable(uv_poll_t *poll, int status, int events) {
    (void)events;
    static char dropped[DROP]; // one turn's bytes of one socket; nobody reads them
    struct lingering *l = poll->data;
    ssize_t n = status < 0 ? 0 : recv(l->fd, dropped, sizeof dropped, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        end(l);
}

void linger_add(struct http_linger *linger, int fd) {
    shutdown(fd, SHUT_WR);
    struct lingering *l =
        linger->num < linger->max && linger->num < MAX_LINGERING ? calloc(1, sizeof *l) : NULL;
    if (!l)
        return;
    l->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (l->fd < 0 || uv_poll_init(linger->loop, &l->readable, l->fd) != 0) {
        if (l->fd >= 0)
            close(l->fd);
        free(l);
        return;
    }
    uv_timer_init(linger->loop, &l->timeout);
    l->linger = linger;
    l->open_handles = 2;
    l->readable.data = l->timeout.data = l;
    l->next = linger->list;
    if (l->next)
        l->next->prev = l;
    linger->list = l;
    linger->num++;
    uv_timer_start(&l->timeout, on_timeout, LINGER_MS, 0);
    uv_poll_start(&l->readable, UV_READABLE, on_readable);
}

void linger_close(struct http_linger *linger) {
    while (linger->list)
        end(linger->list);
}
