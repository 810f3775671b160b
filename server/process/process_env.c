#include "process_env.h"

#include "console.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

// STACK_NEEDED: Jinja nests 800 frames (lib/jinja/README.md, rule 3), of up to some hundred bytes each.
enum { STACK_USUAL = 8 << 20, STACK_NEEDED = 1 << 20, MAX_POOL = 1024 };

static enum status open_standard(struct err *err) {
    static const int flags[] = {O_WRONLY, O_RDONLY, O_RDWR};
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", flags[fd]) != fd) // the lowest that is free
            return err_set(err, STATUS_INVALID, "cannot open /dev/null: %s", strerror(errno));
    return STATUS_OK;
}

static enum status raise_stack(struct err *err) {
    struct rlimit r;
    if (getrlimit(RLIMIT_STACK, &r) != 0 || r.rlim_cur >= STACK_USUAL) // RLIM_INFINITY is the largest
        return STATUS_OK;
    if (r.rlim_max < STACK_NEEDED)
        return err_set(err, STATUS_INVALID,
                       "the stack is limited to %llu KiB (ulimit -s), expected at least %d",
                       (unsigned long long)(r.rlim_max >> 10), STACK_NEEDED >> 10);
    r.rlim_cur = r.rlim_max < STACK_USUAL ? r.rlim_max : STACK_USUAL;
    if (setrlimit(RLIMIT_STACK, &r) != 0)
        return err_set(err, STATUS_INVALID, "cannot raise the limit of the stack: %s", strerror(errno));
    // New threads take their size from what the limit was when the process began.
    pthread_attr_t a;
    if (pthread_attr_init(&a) == 0) {
        if (pthread_attr_setstacksize(&a, (size_t)r.rlim_cur) == 0)
            pthread_setattr_default_np(&a);
        pthread_attr_destroy(&a);
    }
    return STATUS_OK;
}

static void on_early_signal(int number) {
    (void)number;
    _exit(0);
}

void process_env_exit_on_signals(void) {
    struct sigaction action = {.sa_handler = on_early_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
}

enum status process_env_prepare(struct err *err) {
    signal(SIGXFSZ, SIG_IGN);
    // NCCL takes memory for its rings when it is opened, where there is another way without it, and not at
    // the first sum that needs them. Here, because no other thread reads the environment yet.
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    return open_standard(err) == STATUS_OK ? raise_stack(err) : err->code;
}

bool process_env_has_terminal(void) {
    int fd = open("/dev/tty", O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    return fd >= 0 && close(fd) == 0;
}

bool process_env_ignores(int number) {
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

void process_env_load_kernels_early(void) { setenv("CUDA_MODULE_LOADING", "EAGER", 0); }

static void *wait_for_all(void *arg) {
    pthread_mutex_lock(arg);
    pthread_mutex_unlock(arg);
    return NULL;
}

int process_env_pool_threads(void) {
    const char *size = getenv("UV_THREADPOOL_SIZE");
    int n = size ? atoi(size) : 4; // as libuv reads it
    return n < 1 ? 1 : n > MAX_POOL ? MAX_POOL : n;
}

bool process_env_has_threads(void) {
    int n = process_env_pool_threads(), started = 0;
    pthread_t threads[MAX_POOL];
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // held until all are there
    pthread_mutex_lock(&lock);
    while (started < n && pthread_create(&threads[started], NULL, wait_for_all, &lock) == 0)
        started++;
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    return started == n;
}

void process_env_block_signals(bool block) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(block ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

int process_env_finish_output(int rc) {
    bool failed = fflush(stdout) != 0;
    if (!failed && !ferror(stdout))
        return rc;
    if (rc == 0)
        complain("cannot write to standard output: %s", failed ? strerror(errno) : "an earlier write failed");
    return rc ? rc : EXIT_MODEL;
}
