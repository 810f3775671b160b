// Sockets that outlive their connection: a close() with unread bytes resets the connection, and the client, which was still
// sending, never sees the response. So what still comes is read and dropped, until the client closes, two seconds have
// passed, or too many wait.
#pragma once

#include <uv.h>

struct lingering;

struct http_linger {
    uv_loop_t *loop;
    struct lingering *list;
    int num, max; // beyond it sockets just close
};

// Shuts writing and goes on with a copy of fd, which the caller still closes. Loop thread.
void linger_add(struct http_linger *linger, int fd);
// Closes all of them. Run the loop once more afterwards.
void linger_close(struct http_linger *linger);
