#include "log.h"

#include "buf.h"
#include "log_json.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static enum log_level max_level = LOG_INFO;
static bool as_json, has_time;
static const char *file; // NULL: stderr is what it was

void log_set_level(enum log_level level) { max_level = level; }

void log_set_format(bool json, bool with_time) {
    as_json = json;
    has_time = with_time;
}

bool log_is_journal(void) {
    const char *stream = getenv("JOURNAL_STREAM"); // device:inode, man systemd.exec
    char own[64];
    struct stat st;
    if (!stream || fstat(STDERR_FILENO, &st) != 0)
        return false;
    snprintf(own, sizeof own, "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    return strcmp(own, stream) == 0;
}

bool log_open(const char *path) {
    file = path;
    return log_reopen();
}

bool log_reopen(void) {
    int fd = file ? open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640) : -1;
    bool ok = !file || (fd >= 0 && dup2(fd, STDERR_FILENO) == STDERR_FILENO);
    if (fd >= 0)
        close(fd);
    return ok;
}

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

// "2026-11-28T10:15:00.123Z"
static size_t write_time(char *dst, size_t room) {
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(dst, room, "%Y-%m-%dT%H:%M:%S", &utc);
    return n + (size_t)snprintf(dst + n, room - n, ".%03dZ", (int)(now.tv_nsec / 1000000));
}

// A line without its end.
static size_t write_text(char *line, size_t room, const char *level, const char *text) {
    char now[40] = "";
    size_t n = 0;
    if (has_time) {
        write_time(now, sizeof now);
        n = (size_t)snprintf(line, room, "time=%s ", now);
    }
    n += (size_t)snprintf(line + n, room - n, "level=%s ", level);
    return n + escape(line + n, room - n, text);
}

static size_t write_json(char *line, size_t room, const char *level, const char *text) {
    char now[40];
    struct buf b = {0};
    write_time(now, sizeof now);
    log_json(&b, room, now, level, text);
    size_t n = b.failed ? 0 : b.len;
    if (n)
        memcpy(line, b.data, n);
    buf_free(&b);
    return n;
}

static size_t line_of(char *line, size_t room, const char *level, const char *text) {
    size_t n = (as_json ? write_json : write_text)(line, room - 1, level, text);
    line[n] = '\n';
    return n + 1;
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
        char text[64], note[256];
        snprintf(text, sizeof text, "log_lines_lost=%lu", lost);
        written = write(STDERR_FILENO, note, line_of(note, sizeof note, "warn", text));
        lost = 0;
    }
    if (!lost && poll(&out, 1, 0) == 1 && (out.revents & POLLOUT))
        written = write(STDERR_FILENO, line, n);
    else
        lost++;
    pthread_mutex_unlock(&lock);
    (void)written; // a full disk or a closed terminal must not stop serving
}

static void write_as(const char *level, const char *text) {
    char line[LOG_MAX_LINE];
    write_line(line, line_of(line, sizeof line, level, text));
}

void log_plain(const char *text) {
    char line[LOG_MAX_LINE];
    if (as_json)
        write_as("info", text);
    else
        write_line(line, (size_t)snprintf(line, sizeof line, "%s\n", text));
}

void log_msg(enum log_level level, const char *fmt, ...) {
    static const char *const names[] = {"error", "warn", "info", "debug"};
    if (level > max_level)
        return;
    char text[LOG_MAX_LINE];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    write_as(names[level], text);
}
