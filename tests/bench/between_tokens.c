// Times of what a server's threads do between two tokens, without a change of the server: preloaded (LD_PRELOAD), it notes
// when the engine thread wakes the loop, when the loop is awake, and when it writes to a socket. BETWEEN_TOKENS names the file
// that gets a line for each at the end: what, thread, ns. between_tokens.py adds them up.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 1 << 20 };
static struct note {
    int64_t ns;
    int thread;
    char what;
} notes[MOST];
static atomic_int num_notes;

static void note(char what) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int i = atomic_fetch_add(&num_notes, 1);
    if (i < MOST)
        notes[i] = (struct note){(int64_t)t.tv_sec * 1000000000 + t.tv_nsec, gettid(), what};
}

__attribute__((destructor)) static void print_notes(void) {
    FILE *f = getenv("BETWEEN_TOKENS") ? fopen(getenv("BETWEEN_TOKENS"), "w") : NULL;
    int n = num_notes < MOST ? num_notes : MOST;
    for (int i = 0; f && i < n; i++)
        fprintf(f, "%c %d %lld\n", notes[i].what, notes[i].thread == getpid(), (long long)notes[i].ns);
    if (f)
        fclose(f);
}

#define REAL(result, name, ...)                                                                              \
    static result (*real)(__VA_ARGS__);                                                                      \
    if (!real)                                                                                               \
    *(void **)&real = dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *data, size_t n) {
    REAL(ssize_t, write, int, const void *, size_t);
    if (n == sizeof(uint64_t)) // to an eventfd: uv_async_send()
        note('n');
    return real(fd, data, n);
}

ssize_t send(int fd, const void *data, size_t n, int flags) {
    REAL(ssize_t, send, int, const void *, size_t, int);
    note('s');
    ssize_t sent = real(fd, data, n, flags);
    note('e');
    return sent;
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags) {
    REAL(ssize_t, sendmsg, int, const struct msghdr *, int);
    note('s');
    ssize_t sent = real(fd, m, flags);
    note('e');
    return sent;
}

ssize_t writev(int fd, const struct iovec *v, int n) {
    REAL(ssize_t, writev, int, const struct iovec *, int);
    note('s');
    ssize_t sent = real(fd, v, n);
    note('e');
    return sent;
}

int epoll_pwait(int fd, struct epoll_event *events, int n, int timeout, const sigset_t *mask) {
    REAL(int, epoll_pwait, int, struct epoll_event *, int, int, const sigset_t *);
    int num = real(fd, events, n, timeout, mask);
    if (num > 0)
        note('w');
    return num;
}

int epoll_wait(int fd, struct epoll_event *events, int n, int timeout) {
    return epoll_pwait(fd, events, n, timeout, NULL);
}
