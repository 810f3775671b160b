// Connections over real sockets, with the loop in this thread: the test says what has come when a timer fires.
#include "harness.h"
#include "http/http.h"

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CROWD = 300 }; // more than a sweep looks at

struct fixture {
    uv_loop_t loop;
    struct http http;
    struct http_request *later; // the response comes from the test
};

static bool on_head(void *arg, struct http_request *request) {
    struct fixture *f = arg;
    if (request->conn->over) {
        http_reply(request, 503, "text/plain", "", 0);
    } else if (strcmp(request->path, "/later") == 0) {
        f->later = request;
    } else if (strcmp(request->path, "/stream") == 0) {
        request->want_drained = true;
        http_stream(request, "text/event-stream");
    } else {
        http_reply(request, 200, "text/plain", "ok", 2);
    }
    return false;
}

static void on_drained(void *arg, struct http_request *request) {
    (void)arg;
    http_stream_break(request);
}

static void on_request(void *arg, struct http_request *request) {
    (void)arg;
    (void)request;
}

static struct fixture *begin(struct http_limits limits) {
    static struct fixture f;
    f = (struct fixture){0};
    const struct http_app app = {&f, on_head, on_request, on_drained, on_request};
    struct err err = {0};
    assert_int_equal(uv_loop_init(&f.loop), 0);
    assert_int_equal(listen_bind("127.0.0.1", 0, &f.http.listener, &err), STATUS_OK);
    assert_int_equal(http_open(&f.http, &f.loop, &app, &limits, &err), STATUS_OK);
    return &f;
}

static void end(struct fixture *f) {
    http_close(&f->http);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(f->http.num_conns, 0);
    assert_int_equal(uv_loop_close(&f->loop), 0);
}

static int dial(const struct fixture *f) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)f->http.listener.port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

// All clients leave, and the first to notice is the sweep, which lets libmicrohttpd close all of them.
TEST(test_all_leave_before_a_sweep) {
    struct fixture *f = begin((struct http_limits){.max_connections = 2 * CROWD});
    int fds[CROWD];
    for (int i = 0; i < CROWD; i++)
        fds[i] = dial(f);
    while (f->http.num_conns < CROWD)
        uv_run(&f->loop, UV_RUN_ONCE);
    for (int i = 0; i < CROWD; i++)
        close(fds[i]);
    while (uv_timer_get_due_in(&f->http.sweep) >
           0) { // without a turn of the loop, which would see them leave
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        uv_update_time(&f->loop);
    }
    for (int i = 0; i < 100 && f->http.num_conns; i++)
        uv_run(&f->loop, UV_RUN_ONCE);
    assert_int_equal(f->http.num_conns, 0);
    assert_true(uv_is_active((uv_handle_t *)&f->http.sweep));
    end(f);
}

static void say(int fd, const char *text) {
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

// Whether a response has come within a minute of the loop's turns.
static bool is_answered(struct fixture *f, int fd) {
    char head[12];
    for (int i = 0; i < 60000; i++) {
        if (recv(fd, head, sizeof head, MSG_DONTWAIT) == sizeof head)
            return memcmp(head, "HTTP/1.1 200", sizeof head) == 0;
        uv_run(&f->loop, UV_RUN_NOWAIT);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

// num connections that say `text`, and one whose request is being answered, before one that asks.
static void crowd(const char *text, int num) {
    struct fixture *f = begin((struct http_limits){.max_connections = 16, .head_timeout = 3600});
    uv_timer_stop(&f->http.sweep);
    int fds[100], waits = dial(f);
    say(waits, "GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n");
    while (!f->later)
        uv_run(&f->loop, UV_RUN_ONCE);
    for (int i = 0; i < num; i++) {
        fds[i] = dial(f);
        say(fds[i], text);
    }
    int asks = dial(f);
    say(asks, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_true(is_answered(f, asks));
    http_reply(f->later, 200, "text/plain", "ok", 2);
    http_run(&f->http);
    assert_true(is_answered(f, waits));
    for (int i = 0; i < num; i++)
        close(fds[i]);
    close(asks);
    close(waits);
    end(f);
}

// Those that say nothing, or half a head, make room for those that ask, long before their time is over, and without a sweep.
// A connection whose request is being answered stays.
TEST(test_room) {
    const char *heads[] = {"", "GET /", "GET / HTTP/1.1\r\nHost: local"};
    for (int i = 0; i < 3; i++) {
        crowd(heads[i], 13); // few enough for all, and nobody could be told that there are too many
        crowd(heads[i], 100);
    }
}

// Whom the application gives up when it asks for more is not waited for.
TEST(test_broken_when_drained) {
    struct fixture *f = begin((struct http_limits){.max_connections = 16});
    int fd = dial(f);
    say(fd, "GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_true(is_answered(f, fd)); // the head
    for (int i = 0; i < 60000 && f->http.num_conns; i++) {
        uv_run(&f->loop, UV_RUN_NOWAIT);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    assert_int_equal(f->http.num_conns, 0);
    close(fd);
    end(f);
}

int main(void) {
    struct rlimit r;
    getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
    return run_all_tests(NULL, NULL);
}
