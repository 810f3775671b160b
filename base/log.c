#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum log_level max_level = LOG_INFO;

void log_set_level(enum log_level level) { max_level = level; }
enum log_level log_get_level(void) { return max_level; }

// Copies src to dst with control characters as \xNN, so that a line stays a line; stops before `room` is
// exceeded.
static size_t escape(char *dst, size_t room, const char *src) {
    static const char hex[] = "0123456789abcdef";
    size_t n = 0;
    for (; *src; src++) {
        unsigned char c = (unsigned char)*src;
        size_t need = c < 0x20 || c == 0x7f ? 4 : 1;
        if (n + need > room)
            break;
        if (need == 1) {
            dst[n++] = (char)c;
        } else {
            dst[n++] = '\\';
            dst[n++] = 'x';
            dst[n++] = hex[c >> 4];
            dst[n++] = hex[c & 15];
        }
    }
    return n;
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
    ssize_t written = write(STDERR_FILENO, line, n);
    (void)written; // a full disk or a closed terminal must not stop serving
}
