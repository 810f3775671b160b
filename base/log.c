#include "log.h"

#include "buf.h"

#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum log_level max_level = LOG_INFO;

void log_set_level(enum log_level level) { max_level = level; }

// Copies src to dst with control characters, and what is no UTF-8, as \xNN, so that a line stays a line of
// text; stops before `room` is exceeded.
static size_t escape(char *dst, size_t room, const char *src) {
    static const char hex[] = "0123456789abcdef";
    size_t n = 0, len = strlen(src);
    for (size_t i = 0, bad; i < len;) {
        const unsigned char *s = (const unsigned char *)src + i;
        size_t whole = *s < 0x20 || *s == 0x7f ? 0 : utf8_sequence(s, len - i, &bad);
        if (n + (whole ? whole : 4) > room)
            break;
        if (whole) {
            memcpy(dst + n, s, whole);
            n += whole;
        } else {
            dst[n++] = '\\';
            dst[n++] = 'x';
            dst[n++] = hex[*s >> 4];
            dst[n++] = hex[*s & 15];
        }
        i += whole ? whole : 1;
    }
    return n;
}

// Writes a line where that does not block: the pipe (or terminal, or socket) is the queue, and a reader that has
// stopped loses lines instead of stopping us. A pipe that polls writable takes a page, which no line exceeds.
static void write_line(const char *line, size_t n) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // between the look and the write
    static unsigned long lost;
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    ssize_t written = 0;
    pthread_mutex_lock(&lock);
    if (lost && poll(&out, 1, 0) == 1 && (out.revents & POLLOUT)) {
        char note[64];
        written = write(STDERR_FILENO, note,
                        (size_t)snprintf(note, sizeof note, "level=warn log_lines_lost=%lu\n", lost));
        lost = 0;
    }
    if (!lost && poll(&out, 1, 0) == 1 && (out.revents & POLLOUT))
        written = write(STDERR_FILENO, line, n);
    else
        lost++;
    pthread_mutex_unlock(&lock);
    (void)written; // a full disk or a closed terminal must not stop serving
}

void log_msg(enum log_level level, const char *fmt, ...) {
    static const char *const names[] = {"error", "warn", "info", "debug"};
    if (level > max_level)
        return;
    char text[LOG_MAX_LINE], line[LOG_MAX_LINE];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t n = (size_t)snprintf(line, sizeof line, "level=%s ", names[level]);
    n += escape(line + n, sizeof line - n - 1, text);
    line[n++] = '\n';
    write_line(line, n);
}
