#include "manager.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static const int64_t LOADING_NS =
    10000000000; // between two words that loading takes longer: by thrice as much

static void tell(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = path ? strlen(path) : 0;
    if (!n || n >= sizeof to.sun_path || (*path != '/' && *path != '@'))
        return;
    memcpy(to.sun_path, path, n);
    if (*path == '@') // the abstract namespace
        to.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    (void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&to,
                  len); // a manager that is gone is no reason to stop
    close(fd);
}

void manager_ready(void) { tell("READY=1"); }

void manager_reloading(void) {
    struct timespec now;
    char text[80];
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%" PRId64,
             (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    tell(text);
}

void manager_stopping(double seconds) {
    char text[80];
    snprintf(text, sizeof text, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%.0f", seconds * 1e6);
    tell(text);
}

void manager_tick(struct manager_pulse *pulse, int64_t now, int loading) {
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    int64_t every = !usec || (pid && atoll(pid) != getpid()) ? 0 : atoll(usec) * 1000 / 2;
    if (loading && (!every || every > LOADING_NS))
        every = LOADING_NS;
    if (!every || now - pulse->last < every)
        return;
    pulse->last = now;
    tell(loading ? "EXTEND_TIMEOUT_USEC=30000000\nWATCHDOG=1" : "WATCHDOG=1");
}
