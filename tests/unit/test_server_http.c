// The server over real sockets, with a fake engine behind it: framing, answers, streams, clients that leave,
// the end. The server runs in a child process; tests/http does the same with the real one, at length.
#include "../tools/fake_service.c"
#include "commands/quire_main.h"
#include "harness.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

struct server {
    pid_t pid;
    int port, err_fd;
};

// Starts `quire serve fake.gguf --port 0` with more words and waits for its address.
static struct server start(const char *word, ...) {
    const char *argv[16] = {"quire", "serve", "fake.gguf", "--port", "0"};
    int argc = 5, fds[2];
    va_list ap;
    va_start(ap, word);
    for (; word && argc < 15; word = va_arg(ap, const char *))
        argv[argc++] = word;
    va_end(ap);
    assert_int_equal(pipe(fds), 0);
    fflush(NULL);
    struct server s = {.pid = fork(), .err_fd = fds[0]};
    if (s.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); // a test that fails leaves nothing running
        dup2(fds[1], STDERR_FILENO);
        close(fds[0]);
        close(fds[1]);
        char *copy[16];
        for (int i = 0; i < argc; i++)
            copy[i] = strdup(argv[i]);
        int rc = quire_main(argc, copy);
        for (int i = 0; i < argc; i++)
            free(copy[i]);
        exit(rc);
    }
    close(fds[1]);
    char text[4096];
    size_t len = 0;
    while (len < sizeof text - 1) {
        ssize_t n = read(s.err_fd, text + len, sizeof text - 1 - len);
        if (n <= 0)
            fail_msg("the server ended: %.*s", (int)len, text);
        len += (size_t)n;
        text[len] = '\0';
        const char *at = strstr(text, "listening on http://127.0.0.1:");
        if (at && strchr(at, '\n')) {
            s.port = atoi(at + strlen("listening on http://127.0.0.1:"));
            break;
        }
    }
    return s;
}

static int stop(struct server *s, int number) {
    int status;
    char drop[4096];
    kill(s->pid, number);
    while (read(s->err_fd, drop, sizeof drop) > 0)
        ;
    waitpid(s->pid, &status, 0);
    close(s->err_fd);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int dial(const struct server *s) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s->port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval patience = {.tv_sec = 60};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

// Sends bytes and reads to the end of the connection. Static memory, NUL-terminated.
static const char *talk(const struct server *s, const char *bytes, size_t len) {
    static char reply[1 << 20];
    int fd = dial(s);
    size_t got = 0;
    assert_int_equal(write(fd, bytes, len), len);
    for (;;) {
        ssize_t n = read(fd, reply + got, sizeof reply - 1 - got);
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    reply[got] = '\0';
    close(fd);
    return reply;
}

static int make_post(char *out, size_t size, const char *body) {
    return snprintf(out, size,
                    "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                    "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                    strlen(body), body);
}

static const char *post(const struct server *s, const char *body) {
    char text[8192];
    int n = make_post(text, sizeof text, body);
    return talk(s, text, (size_t)n);
}

static int count(const char *text, const char *word) {
    int n = 0;
    for (; (text = strstr(text, word)); text += strlen(word))
        n++;
    return n;
}

#define expect(reply, word)                                                                                  \
    do {                                                                                                     \
        const char *reply_ = (reply);                                                                        \
        if (!strstr(reply_, word))                                                                           \
            fail_msg("no '%s' in: %s", word, reply_);                                                        \
    } while (0)

TEST(framing) {
    struct server s = start(NULL);
#define POST_HEAD "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    static const struct {
        const char *bytes;
        size_t len;
        const char *status;
    } cases[] = {
#define CASE(bytes, status) {bytes, sizeof(bytes) - 1, status}
        CASE(POST_HEAD "Content-Length: 2\r\nContent-Length: 44\r\n\r\n{}GET /smuggled HTTP/1.1\r\n\r\n",
             "400"),
        CASE(POST_HEAD "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"),
        CASE(POST_HEAD "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "501"),
        CASE(POST_HEAD "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "501"),
        CASE(POST_HEAD "Content-Length : 2\r\n\r\n{}", "400"),
        CASE(POST_HEAD "Host: b\r\nContent-Length: 2\r\n\r\n{}", "400"),
        CASE(POST_HEAD "Content-Length: 9223372036854775800\r\n\r\n", "4"),
        CASE(POST_HEAD "Content-Length: 33554433\r\n\r\n", "413"),
        CASE(POST_HEAD "Expect: 100-continue\r\nContent-Length: 33554433\r\n\r\n", "413"),
        CASE(POST_HEAD "Expect: banana\r\nContent-Length: 2\r\n\r\n{}", "417"),
        CASE(POST_HEAD "\r\n", "400"),
        CASE(POST_HEAD "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", "415"),
        CASE(POST_HEAD "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", "415"),
        CASE("GET /health HTTP/1.1\r\n\r\n", "400"),
        CASE("GET /health HTTP/1.1\r\nHost: a\r\nX-A: a\0b\r\nConnection: close\r\n\r\n", "400"),
        CASE("GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-A: a\0b\r\n\r\n", "400"),
        CASE("GET /he\0alth HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        CASE("GET /health%00b HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        CASE("GET /health HTTP/1.0\r\n\r\n", "200"),
        CASE("GET /%68ealth HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "200"),
        CASE("GET /health/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "200"),
        CASE("GET /../health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "404"),
        CASE("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", "403"),
        CASE("GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabcGET /x HTTP/1.1\r\n\r\n",
             "200"),
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *reply = talk(&s, cases[i].bytes, cases[i].len);
        char want[32];
        snprintf(want, sizeof want, "HTTP/1.1 %s", cases[i].status);
        if (strncmp(reply, want, strlen(want)) != 0)
            fail_msg("case %zu: expected %s, found %s", i, want, reply);
        if (count(reply, "\r\n\r\n") != 1) // one answer, never one for what was smuggled
            fail_msg("case %zu: %s", i, reply);
        expect(reply, "x-request-id: ");
    }
    assert_int_equal(stop(&s, SIGTERM), 0);
}

TEST(routes_and_methods) {
    struct server s = start("--served-model-name", "org/name", NULL);
#define GET(path) "GET " path " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
#define TALK(bytes) talk(&s, bytes, sizeof(bytes) - 1)
    expect(TALK(GET("/v1/models")), "\"id\":\"org/name\"");
    expect(TALK(GET("/v1/models/org/name")), "\"object\":\"model\"");
    expect(TALK(GET("/v1/models/org%2Fname")), "\"object\":\"model\"");
    expect(TALK(GET("/v1/models/other")), "model_not_found");
    expect(TALK(GET("/v1/models/")), "\"object\":\"list\"");
    expect(TALK(GET("/v1/nothing")), "404 Not Found");
    expect(TALK(GET("/v1/completions")), "Allow: POST, OPTIONS");
    expect(TALK(GET("/version")), "\"version\"");
    expect(TALK(GET("/metrics")), "vllm:num_requests_running");
    expect(TALK("DELETE /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"), "405 ");
    expect(TALK("OPTIONS /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"), "204 ");
    const char *reply = TALK("HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    expect(reply, "200 OK");
    assert_string_equal(strstr(reply, "\r\n\r\n"), "\r\n\r\n");
    reply = TALK("OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil\r\n"
                 "Access-Control-Request-Method: POST\r\nConnection: close\r\n\r\n");
    expect(reply, "400 Bad Request");
    assert_null(strstr(reply, "Access-Control-Allow-Origin"));
    expect(
        TALK("GET /health HTTP/1.1\r\nHost: a\r\n\r\nGET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
             "x-request-id: mine\r\n\r\n"),
        "x-request-id: mine"); // the second of two on one connection
    assert_int_equal(stop(&s, SIGTERM), 0);
}

TEST(keys) {
    struct server s = start("--api-key", "secret", "--allowed-origins", "http://good", NULL);
    static const char *const closed[] = {"/v1/models", "/v1/completions", "/metrics",
                                         "/version",   "/nowhere",        "/v1/models/x"};
    static const char *const open_paths[] = {"/health", "/livez", "/readyz"};
    static const char *const wrong[] = {"", "Authorization: Bearer secre\r\n",
                                        "Authorization: Basic secret\r\n", "x-api-key: Secret\r\n",
                                        "Authorization: secret\r\n"};
    char text[512];
    for (size_t i = 0; i < 6; i++)
        for (size_t k = 0; k < 5; k++) {
            int n = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: h\r\n%sConnection: close\r\n\r\n",
                             closed[i], wrong[k]);
            const char *reply = talk(&s, text, (size_t)n);
            expect(reply, "401 Unauthorized");
            expect(reply, "WWW-Authenticate: Bearer");
            expect(reply, "invalid_api_key");
        }
    for (size_t i = 0; i < 3; i++) {
        int n = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
                         open_paths[i]);
        expect(talk(&s, text, (size_t)n), "200 OK");
    }
    expect(TALK("GET /v1/models HTTP/1.1\r\nHost: h\r\nAuthorization: bearer secret\r\nConnection: "
                "close\r\n\r\n"),
           "200 OK");
    expect(TALK("GET /v1/models HTTP/1.1\r\nHost: h\r\nx-api-key: secret\r\nConnection: close\r\n\r\n"),
           "200 OK");
    expect(TALK("OPTIONS /v1/models HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"), "401");
    const char *reply = TALK("OPTIONS /v1/models HTTP/1.1\r\nHost: h\r\nOrigin: http://good\r\n"
                             "Access-Control-Request-Method: GET\r\nConnection: close\r\n\r\n");
    expect(reply, "204");
    expect(reply, "Access-Control-Allow-Origin: http://good");
    assert_int_equal(stop(&s, SIGTERM), 0);
}

TEST(answers) {
    struct server s = start(NULL);
    const char *reply = post(&s, "{\"prompt\":\"x\",\"seed\":0,\"max_tokens\":4}");
    expect(reply, "\"text\":\"abcd\",\"logprobs\":null,\"finish_reason\":\"length\"");
    expect(reply, "\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":4,\"total_tokens\":6");
    // Counts through the token that completed it.
    reply = post(&s, "{\"prompt\":\"x\",\"seed\":0,\"stop\":[\"de\",\"zz\"]}");
    expect(reply, "\"text\":\"abc\",\"logprobs\":null,\"finish_reason\":\"stop\"");
    expect(reply, "\"completion_tokens\":5");
    reply = post(&s, "{\"prompt\":\"eos\",\"seed\":0}");
    expect(reply, "\"text\":\"abc\",\"logprobs\":null,\"finish_reason\":\"stop\"");
    reply = post(&s, "{\"prompt\":[\"a\",\"b\"],\"n\":2,\"seed\":0,\"max_tokens\":1}");
    for (int i = 0; i < 4; i++) {
        char want[24];
        snprintf(want, sizeof want, "{\"index\":%d,", i);
        expect(reply, want);
    }
    expect(reply, "\"prompt_tokens\":4,\"completion_tokens\":4");
    expect(post(&s, "{\"prompt\":\"fail\"}"), "500 Internal Server Error");
    expect(post(&s, "{\"prompt\":\"x\",\"max_tokens\":0}"),
           "\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"length\"");
    // bodies over 64 KiB take the way through the pool
    static char big[200000];
    memset(big, ' ', 100000);
    strcpy(big + 100000, "{\"prompt\":\"x\",\"seed\":0,\"max_tokens\":2}");
    static char text[210000];
    int n = make_post(text, sizeof text, big);
    expect(talk(&s, text, (size_t)n), "\"text\":\"ab\"");
    assert_int_equal(stop(&s, SIGTERM), 0);
}

TEST(streams) {
    struct server s = start(NULL);
    const char *reply = post(&s, "{\"prompt\":\"utf8\",\"stream\":true,\"max_tokens\":10,"
                                 "\"stream_options\":{\"include_usage\":true}}");
    expect(reply, "Content-Type: text/event-stream; charset=utf-8\r\n");
    expect(reply, "Cache-Control: no-cache\r\n");
    expect(reply, "X-Accel-Buffering: no\r\n");
    expect(reply, "\"text\":\"\xc3\xa9\"");
    expect(reply, "\"text\":\"\xe2\x82\xac\"");
    expect(reply, "\"text\":\"\xf0\x9f\x98\x80\"");
    // The tenth byte is half a letter.
    expect(reply, "\"text\":\"\xef\xbf\xbd\",\"logprobs\":null,\"finish_reason\":\"length\"");
    assert_int_equal(count(reply, "\"finish_reason\":\"length\""), 1);
    assert_int_equal(count(reply, "\"usage\":null"), 4);
    expect(reply, "\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":10,");
    expect(reply, "}\n\n\r\nE\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"); // one chunk each
    assert_int_equal(count(reply, "data: "), count(reply, "\r\ndata: "));
    reply = post(&s, "{\"prompt\":\"x\",\"seed\":0,\"stream\":true,\"max_tokens\":6,\"stop\":\"cde\"}");
    assert_null(strstr(reply, "\"text\":\"c"));
    expect(reply, "\"text\":\"b\"");
    expect(reply, "\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\"");
    assert_null(strstr(reply, "\"usage\""));
    reply = post(&s, "{\"prompt\":\"error\",\"stream\":true}"); // after the first byte: in the stream
    expect(reply, "200 OK");
    expect(reply, "data: {\"error\":{");
    expect(reply, "data: [DONE]\n\n");
    assert_int_equal(count(reply, "\"finish_reason\":\""), 0);
    expect(post(&s, "{\"prompt\":\"fail\",\"stream\":true}"), "HTTP/1.1 500"); // before it: the status
    assert_int_equal(stop(&s, SIGTERM), 0);
}

static double gauge(const struct server *s, const char *name) {
    const char *at = strstr(talk(s, GET("/metrics"), sizeof(GET("/metrics")) - 1), name);
    return at ? strtod(strchr(at, '}') + 1, NULL) : -1;
}

// Waits up to a minute for a gauge to have a value; only a hang takes so long.
static bool waited_for(const struct server *s, const char *name, double value) {
    for (int k = 0; k < 3000; k++, usleep(20000))
        if (gauge(s, name) == value)
            return true;
    return false;
}

#define RUNNING "\nvllm:num_requests_running{"

// Clients that leave free their requests, streaming or not, at once.
TEST(leaving) {
    struct server s = start(NULL);
    for (int streaming = 0; streaming < 2; streaming++) {
        int fds[40];
        for (int i = 0; i < 40; i++) {
            char body[128], text[512];
            snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"max_tokens\":4000,\"n\":%d,\"stream\":%s}",
                     i % 2 ? "stuck" : "slow", 1 + i % 3, streaming ? "true" : "false");
            int n = make_post(text, sizeof text, body);
            fds[i] = dial(&s);
            assert_int_equal(write(fds[i], text, (size_t)n), n);
        }
        assert_true(waited_for(&s, RUNNING, 79));
        for (int i = 0; i < 40; i++) {
            struct linger reset = {.l_onoff = i % 4 == 0};
            if (i % 4 == 1)
                shutdown(fds[i], SHUT_WR);
            setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
            close(fds[i]);
        }
        assert_true(waited_for(&s, RUNNING, 0));
        assert_true(waited_for(&s, "\nquire:streams{", 0));
    }
    expect(post(&s, "{\"prompt\":\"x\",\"seed\":0,\"max_tokens\":2}"), "\"text\":\"ab\"");
    assert_int_equal(stop(&s, SIGTERM), 0);
}

TEST(full_queue) {
    setenv("FAKE_QUEUE", "3", 1);
    struct server s = start(NULL);
    unsetenv("FAKE_QUEUE");
    const char *reply = post(&s, "{\"prompt\":\"x\",\"n\":4}"); // all or none
    expect(reply, "503 Service Unavailable");
    expect(reply, "Retry-After: ");
    expect(reply, "\"code\":\"overloaded\"");
    assert_true(waited_for(&s, RUNNING, 0));
    // The places of the three that were taken back are free once the engine has seen it: a client tries
    // again.
    reply = post(&s, "{\"prompt\":\"x\",\"n\":3}");
    for (int k = 0; k < 3000 && strstr(reply, "503 Service Unavailable"); k++) {
        usleep(20000);
        reply = post(&s, "{\"prompt\":\"x\",\"n\":3}");
    }
    expect(reply, "200 OK");
    assert_int_equal(stop(&s, SIGTERM), 0);
}

static int send_post(const struct server *s, const char *body) {
    char text[512];
    int fd = dial(s), n = make_post(text, sizeof text, body);
    assert_int_equal(write(fd, text, (size_t)n), n);
    return fd;
}

static const char *rest(int fd) {
    static char reply[8192];
    size_t got = 0;
    ssize_t r;
    while (got < sizeof reply - 1 && (r = read(fd, reply + got, sizeof reply - 1 - got)) > 0)
        got += (size_t)r;
    reply[got] = '\0';
    close(fd);
    return reply;
}

// The first signal, and until it has been seen: two that wait at once would be one.
static void begin_to_drain(const struct server *s, int number) {
    kill(s->pid, number);
    for (int k = 0; k < 3000 && !strstr(talk(s, GET("/readyz"), sizeof(GET("/readyz")) - 1), "503 "); k++)
        usleep(20000);
}

// A draining server completes running requests and answers queries; a second signal ends requests that take too long.
TEST(draining) {
    struct server s = start("--drain-timeout", "600", NULL);
    int stuck = send_post(&s, "{\"prompt\":\"stuck\",\"stream\":true}");
    int fine = send_post(&s, "{\"prompt\":\"slow\",\"max_tokens\":5,\"stream\":true}");
    char first;
    assert_int_equal(recv(fine, &first, 1, MSG_PEEK), 1); // it has begun
    assert_true(gauge(&s, RUNNING) >= 1);                 // and so has the other
    begin_to_drain(&s, SIGTERM);
    expect(TALK(GET("/readyz")), "503 ");
    expect(TALK(GET("/livez")), "200 ");
    expect(post(&s, "{\"prompt\":\"x\"}"), "shutting_down");
    expect(rest(fine), "\"finish_reason\":\"length\"");
    assert_int_equal(stop(&s, SIGTERM), 0);
    expect(rest(stuck), "\"code\":\"shutting_down\"");
}

// A request that is not done in time is cut, with an error.
TEST(drain_timeout) {
    struct server s = start("--drain-timeout", "0.3", NULL);
    int fd = send_post(&s, "{\"prompt\":\"slow\",\"max_tokens\":4000,\"stream\":true}");
    char first;
    assert_int_equal(recv(fd, &first, 1, MSG_PEEK), 1); // it has begun
    kill(s.pid, SIGTERM);
    const char *reply = rest(fd);
    expect(reply, "data: {\"error\":{");
    expect(reply, "\"code\":\"shutting_down\"");
    expect(reply, "data: [DONE]\n\n");
    assert_int_equal(stop(&s, 0), 0);
}

TEST(second_signal) {
    struct server s = start("--drain-timeout", "600", NULL);
    int fd = send_post(&s, "{\"prompt\":\"stuck\",\"stream\":true}");
    assert_true(waited_for(&s, RUNNING, 1));
    begin_to_drain(&s, SIGINT);
    assert_int_equal(stop(&s, SIGINT), 0);
    close(fd);
}

static int exit_code(const char *a, const char *b, const char *c) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int fds[2];
        if (pipe(fds) == 0)
            dup2(fds[1], STDERR_FILENO);
        char *argv[6] = {strdup("quire"), strdup("serve")};
        int argc = 2;
        for (int i = 0; i < 3; i++) {
            const char *w = i == 0 ? a : i == 1 ? b : c;
            if (w)
                argv[argc++] = strdup(w);
        }
        int rc = quire_main(argc, argv);
        for (int i = 0; i < argc; i++)
            free(argv[i]);
        exit(rc);
    }
    int status;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(exit_codes) {
    struct server s = start(NULL);
    char port[16];
    snprintf(port, sizeof port, "--port=%d", s.port);
    assert_int_equal(exit_code("fake.gguf", port, NULL), 2); // taken
    assert_int_equal(exit_code("fake.gguf", "--nope", NULL), 2);
    assert_int_equal(exit_code("fake.gguf", "--device=tpu", NULL), 2);
    assert_int_equal(exit_code("fake.gguf", "--host=0.0.0.0", "--require-key"), 2);
    assert_int_equal(exit_code("fake.gguf", "--api-key-file=/nowhere", NULL), 2);
    assert_int_equal(exit_code("missing.gguf", "--port=0", NULL), 1);
    assert_int_equal(stop(&s, SIGTERM), 0);
}

static bool answers_at(int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool yes = connect(fd, (struct sockaddr *)&a, sizeof a) == 0;
    close(fd);
    return yes;
}

TEST(loading) {
    // A port that is bound but not listened on: the server may have it, and nobody else is given it by
    // chance.
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, gate[2];
    setsockopt(holder, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    assert_int_equal(bind(holder, (struct sockaddr *)&a, len), 0);
    assert_int_equal(getsockname(holder, (struct sockaddr *)&a, &len), 0);
    assert_int_equal(pipe(gate), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        char port[32], fd[16];
        close(gate[1]);
        snprintf(port, sizeof port, "--port=%d", ntohs(a.sin_port));
        snprintf(fd, sizeof fd, "%d", gate[0]);
        setenv("FAKE_LOAD_FD", fd, 1);
        char *argv[] = {(char *)"quire", (char *)"serve", (char *)"fake.gguf", port};
        exit(quire_main(4, argv));
    }
    close(gate[0]);
    struct server s = {.pid = pid, .port = ntohs(a.sin_port), .err_fd = -1};
    for (int k = 0; k < 3000 && !answers_at(s.port); k++)
        usleep(20000);
    expect(TALK(GET("/livez")), "200 ");
    expect(TALK(GET("/health")), "503 ");
    expect(TALK(GET("/readyz")), "loading_model");
    expect(post(&s, "{\"prompt\":\"x\"}"), "loading_model");
    close(gate[1]);
    for (int k = 0; k < 3000 && strstr(TALK(GET("/readyz")), "loading_model"); k++)
        usleep(20000);
    expect(TALK(GET("/readyz")), "200 ");
    close(holder);
    kill(pid, SIGTERM);
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(WEXITSTATUS(status), 0);
}

// A step that takes as long as steps do is no stall, however short the timeout.
TEST(health_of_slow_steps) {
    static const struct {
        const char *expected_ms, *want;
    } cases[] = {{"0", "engine_stalled"}, {"1000", "200 OK"}};
    setenv("FAKE_STEP_US", "1000000", 1);
    for (int i = 0; i < 2; i++) {
        setenv("FAKE_EXPECTED_MS", cases[i].expected_ms, 1);
        struct server s = start("--watchdog-timeout", "0.15", "--drain-timeout", "0", NULL);
        char text[512];
        int fd = dial(&s), n = make_post(text, sizeof text, "{\"prompt\":\"stuck\"}");
        expect(TALK(GET("/health")), "200 OK"); // idle
        assert_int_equal(write(fd, text, (size_t)n), n);
        usleep(1500000); // a step has ended, and half of the next is over
        expect(TALK(GET("/health")), cases[i].want);
        expect(TALK(GET("/livez")), "200 OK");
        close(fd);
        assert_int_equal(stop(&s, SIGTERM), 0);
    }
    unsetenv("FAKE_STEP_US");
    unsetenv("FAKE_EXPECTED_MS");
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    return run_all_tests(NULL, NULL);
}
