// A synthetic OpenAI-compatible server whose latencies are known: the oracle of the load client.
//
//   fake_openai [--ttft MS] [--itl MS] [--jitter SHARE] [--tokens N] [--slots N] [--stall-at S --stall MS]
//   [--log FILE]
//
// Listens on a free port of 127.0.0.1 and prints "listening on http://…". Each request gets its first token
// after ttft * (1 + jitter * u) ms, u uniform in [-1, 1), and each further one after itl * (1 + jitter * u).
// From --stall-at seconds after the first request on, nothing is read or written for --stall ms: what is due
// then waits, as behind a server that hangs. With --slots, at most N requests are answered at once and the
// others queue, so that N / (ttft + (tokens - 1) * itl) requests per second is what it can do. The log has a
// line for each request, the times at which it was read and at which each token was written, in ns of
// CLOCK_MONOTONIC, which the client on the same machine reads too: what the client reports is held against
// what truly happened, not against what was meant to.
//
// One thread, epoll and a timerfd: nothing here is shared with the client under test.
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CONNECTIONS = 20000, MAX_TOKENS = 4096, READ_BYTES = 64 << 10 };

struct connection {
    int fd;
    char *in;
    size_t in_len, in_cap;
    size_t heap_at; // 1-based; 0: not in the heap
    int64_t due;    // of the next token
    int64_t read_at, wrote_at[MAX_TOKENS];
    int tokens, written;
    bool stream, holds_slot;
    struct connection *queue_next; // waits for a slot
    bool queued;
};

static struct connection *heap[MAX_CONNECTIONS + 1];
static size_t heap_num;
static struct connection *queue_head, **queue_tail = &queue_head;
static int slots, slots_used; // slots 0: no limit
static double ttft_ms = 20, itl_ms = 5, jitter = 0.5, stall_at = -1, stall_ms;
static int default_tokens = 32;
static FILE *log_file;
static int64_t first_request;
static uint64_t random_state = 42;
static volatile sig_atomic_t stopped;

static void stop(int number) {
    (void)number;
    stopped = 1;
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static double uniform(void) { // [-1, 1)
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) * 0x1p-52 - 1;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

// ---- a heap by due ----

static void heap_set(size_t i, struct connection *c) {
    heap[i] = c;
    c->heap_at = i;
}

static void heap_sift(size_t i) {
    struct connection *c = heap[i];
    for (; i > 1 && heap[i / 2]->due > c->due; i /= 2)
        heap_set(i, heap[i / 2]);
    for (;;) {
        size_t child = 2 * i;
        if (child > heap_num)
            break;
        if (child < heap_num && heap[child + 1]->due < heap[child]->due)
            child++;
        if (heap[child]->due >= c->due)
            break;
        heap_set(i, heap[child]);
        i = child;
    }
    heap_set(i, c);
}

static void heap_put(struct connection *c) {
    if (!c->heap_at) {
        heap_set(++heap_num, c);
    }
    heap_sift(c->heap_at);
}

static void heap_remove(struct connection *c) {
    size_t i = c->heap_at;
    if (!i)
        return;
    struct connection *last = heap[heap_num--];
    c->heap_at = 0;
    if (last != c) {
        heap_set(i, last);
        heap_sift(i);
    }
}

// ---- answers ----

static void start(struct connection *c, int64_t from) {
    c->holds_slot = true;
    slots_used++;
    c->due = from + (int64_t)(ttft_ms * (1 + jitter * uniform()) * 1e6);
    heap_put(c);
}

static void release(struct connection *c, int64_t at) {
    if (!c->holds_slot)
        return;
    c->holds_slot = false;
    slots_used--;
    struct connection *next = queue_head;
    if (!next)
        return;
    queue_head = next->queue_next;
    if (!queue_head)
        queue_tail = &queue_head;
    next->queued = false;
    start(next, at);
}

static void unqueue(struct connection *c) {
    for (struct connection **p = &queue_head; c->queued && *p; p = &(*p)->queue_next)
        if (*p == c) {
            *p = c->queue_next;
            if (!*p)
                queue_tail = p;
            c->queued = false;
            return;
        }
}

static void drop(struct connection *c) {
    heap_remove(c);
    unqueue(c);
    release(c, now_ns());
    close(c->fd);
    free(c->in);
    free(c);
}

static bool send_all(struct connection *c, const char *data, size_t len) {
    while (len) {
        ssize_t n = send(c->fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue; // answers are small: the socket takes them as soon as the client reads
        if (n <= 0)
            return false;
        data += n;
        len -= (size_t)n;
    }
    return true;
}

static bool send_chunk(struct connection *c, const char *text) {
    char framed[1024];
    int n = snprintf(framed, sizeof framed, "%zx\r\n%s\r\n", strlen(text), text);
    return send_all(c, framed, (size_t)n);
}

static void log_request(const struct connection *c) {
    if (!log_file)
        return;
    fprintf(log_file, "%" PRId64, c->read_at);
    for (int i = 0; i < c->written; i++)
        fprintf(log_file, " %" PRId64, c->wrote_at[i]);
    fputc('\n', log_file);
}

static bool finish(struct connection *c) {
    char text[512];
    snprintf(text, sizeof text,
             "data: "
             "{\"object\":\"text_completion\",\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_"
             "tokens\":%d,\"total_tokens\":%d}}\n\n"
             "data: [DONE]\n\n",
             c->tokens, c->tokens + 4);
    log_request(c);
    return send_chunk(c, text) && send_all(c, "0\r\n\r\n", 5);
}

// Writes the token that is due; false: the connection is gone.
static bool write_token(struct connection *c) {
    char text[256];
    bool last = c->written + 1 == c->tokens;
    snprintf(text, sizeof text,
             "data: {\"object\":\"text_completion\",\"choices\":[{\"index\":0,\"text\":\" "
             "w\",\"finish_reason\":%s}]}\n\n",
             last ? "\"length\"" : "null");
    // before the write: the client may be running, and have read it, before we are again
    c->wrote_at[c->written++] = now_ns();
    if (!send_chunk(c, text) || (last && !finish(c))) {
        drop(c);
        return false;
    }
    if (last) {
        heap_remove(c);
        release(c, c->due); // as it was meant: a late thread must not lower the rate
    } else {
        c->due += (int64_t)(itl_ms * (1 + jitter * uniform()) * 1e6);
        heap_put(c);
    }
    return true;
}

static bool answer_json(struct connection *c, const char *json) {
    char text[1024];
    int n = snprintf(text, sizeof text,
                     "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                     strlen(json), json);
    return send_all(c, text, (size_t)n);
}

// A number of the request's JSON, by its key.
static int number_of(const char *body, const char *key, int otherwise) {
    const char *at = strstr(body, key);
    return at ? atoi(at + strlen(key)) : otherwise;
}

static bool begin(struct connection *c, const char *head, const char *body) {
    if (strncmp(head, "GET ", 4) == 0) // /v1/models, /health
        return answer_json(c, "{\"data\":[{\"id\":\"fake\"}]}");
    if (strncmp(head, "POST ", 5) != 0) {
        const char *none = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        return send_all(c, none, strlen(none));
    }
    c->tokens = number_of(body, "\"max_tokens\":", default_tokens);
    if (c->tokens < 1 || c->tokens > MAX_TOKENS)
        c->tokens = default_tokens;
    c->written = 0;
    if (!strstr(body, "\"stream\":true"))
        return answer_json(
            c, "{\"choices\":[{\"text\":\"w\",\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":4,"
               "\"completion_tokens\":1}}");
    c->read_at = now_ns();
    if (!first_request)
        first_request = c->read_at;
    const char *ok =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    if (slots && slots_used >= slots) {
        c->queued = true;
        c->queue_next = NULL;
        *queue_tail = c;
        queue_tail = &c->queue_next;
    } else {
        start(c, c->read_at);
    }
    return send_all(c, ok, strlen(ok));
}

// The requests that are whole. False: the connection is gone.
static bool take_requests(struct connection *c) {
    for (;;) {
        c->in[c->in_len] = 0;
        char *end = strstr(c->in, "\r\n\r\n");
        if (!end)
            return true;
        const char *length = strstr(c->in, "Content-Length: ");
        size_t head = (size_t)(end - c->in) + 4,
               body = length && length < end ? (size_t)atol(length + 16) : 0;
        if (c->in_len < head + body)
            return true;
        bool good = begin(c, c->in, c->in + head);
        memmove(c->in, c->in + head + body, c->in_len - head - body);
        c->in_len -= head + body;
        if (!good) {
            drop(c);
            return false;
        }
    }
}

static void read_some(struct connection *c) {
    if (c->in_cap - c->in_len < READ_BYTES + 1) {
        c->in_cap = c->in_len + READ_BYTES + 1;
        c->in = realloc(c->in, c->in_cap);
        if (!c->in)
            die("realloc");
    }
    ssize_t n = recv(c->fd, c->in + c->in_len, READ_BYTES, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        drop(c);
        return;
    }
    c->in_len += (size_t)n;
    take_requests(c);
}

static void accept_all(int listener, int poll) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK), one = 1;
        if (fd < 0)
            return;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct connection *c = calloc(1, sizeof *c);
        if (!c)
            die("calloc");
        c->fd = fd;
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poll, EPOLL_CTL_ADD, fd, &e);
    }
}

static void maybe_stall(void) {
    if (stall_at < 0 || !first_request || now_ns() < first_request + (int64_t)(stall_at * 1e9))
        return;
    stall_at = -1;
    struct timespec t = {(time_t)(stall_ms / 1000), (long)(stall_ms * 1e6) % 1000000000};
    nanosleep(&t, NULL);
}

static void set_timer(int timer) {
    struct itimerspec spec = {0};
    int64_t at = heap_num ? heap[1]->due : 0;
    if (stall_at >= 0 && first_request && (!at || first_request + (int64_t)(stall_at * 1e9) < at))
        at = first_request + (int64_t)(stall_at * 1e9);
    spec.it_value = (struct timespec){at / 1000000000, at % 1000000000};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &spec, NULL);
}

static void options(int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
        double v = atof(argv[i + 1]);
        if (strcmp(argv[i], "--ttft") == 0)
            ttft_ms = v;
        else if (strcmp(argv[i], "--itl") == 0)
            itl_ms = v;
        else if (strcmp(argv[i], "--jitter") == 0)
            jitter = v;
        else if (strcmp(argv[i], "--tokens") == 0)
            default_tokens = (int)v;
        else if (strcmp(argv[i], "--slots") == 0)
            slots = (int)v;
        else if (strcmp(argv[i], "--stall-at") == 0)
            stall_at = v;
        else if (strcmp(argv[i], "--stall") == 0)
            stall_ms = v;
        else if (strcmp(argv[i], "--log") == 0 && (log_file = fopen(argv[i + 1], "w")))
            setvbuf(log_file, NULL, _IOLBF, 0); // a test may count the lines while it runs
    }
}

int main(int argc, char **argv) {
    options(argc, argv);
    struct rlimit l;
    getrlimit(RLIMIT_NOFILE, &l);
    l.rlim_cur = l.rlim_max;
    setrlimit(RLIMIT_NOFILE, &l);
    struct sigaction a = {.sa_handler = stop};
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGINT, &a, NULL);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, len) || listen(listener, 4096) ||
        getsockname(listener, (struct sockaddr *)&address, &len))
        die("listen");
    printf("listening on http://127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    int poll = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = &listener}, events[256];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &e);
    e.data.ptr = &timer;
    epoll_ctl(poll, EPOLL_CTL_ADD, timer, &e);
    while (!stopped) {
        int n = epoll_wait(poll, events, 256, -1);
        maybe_stall();
        for (int i = 0; i < n; i++) {
            uint64_t count;
            if (events[i].data.ptr == &listener)
                accept_all(listener, poll);
            else if (events[i].data.ptr == &timer)
                (void)!read(timer, &count, sizeof count);
            else
                read_some(events[i].data.ptr);
        }
        while (heap_num && heap[1]->due <= now_ns())
            write_token(heap[1]);
        set_timer(timer);
    }
    if (log_file)
        fclose(log_file);
    return 0;
}
