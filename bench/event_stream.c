#include "event_stream.h"

#include <string.h>

void event_stream_reset(struct event_stream *s) {
    struct buf line = s->line, data = s->data;
    buf_clear(&line);
    buf_clear(&data);
    *s = (struct event_stream){.line = line, .data = data};
}

void event_stream_free(struct event_stream *s) {
    buf_free(&s->line);
    buf_free(&s->data);
    *s = (struct event_stream){0};
}

static bool is_field(const char *line, size_t name, const char *wanted) {
    return strlen(wanted) == name && memcmp(line, wanted, name) == 0;
}

static void field(struct event_stream *s, const char *line, size_t len) {
    const char *colon = memchr(line, ':', len);
    if (colon == line) // a comment, such as a ping
        return;
    size_t name = colon ? (size_t)(colon - line) : len;
    const char *value = colon ? colon + 1 : line + len;
    size_t n = len - (size_t)(value - line);
    if (n && *value == ' ') {
        value++;
        n--;
    }
    if (is_field(line, name, "data")) {
        if (s->has_data)
            buf_char(&s->data, '\n');
        s->has_data = true;
        buf_add(&s->data, value, n);
    } else if (is_field(line, name, "event")) {
        s->is_error = n == 5 && memcmp(value, "error", 5) == 0;
    }
}

void event_stream_feed(struct event_stream *s, const char *bytes, size_t len,
                       void (*event)(void *context, bool is_error, const char *data, size_t len),
                       void *context) {
    for (size_t i = 0; i < len && !s->failed;) {
        if (s->after_cr && bytes[i] == '\n') { // the second half of CRLF
            s->after_cr = false;
            i++;
            continue;
        }
        s->after_cr = false;
        size_t n = 0;
        while (i + n < len && bytes[i + n] != '\n' && bytes[i + n] != '\r')
            n++;
        buf_add(&s->line, bytes + i, n);
        i += n;
        if (s->line.failed || s->data.failed || s->line.len + s->data.len > EVENT_MAX) {
            s->failed = true;
            return;
        }
        if (i == len)
            return;
        s->after_cr = bytes[i] == '\r';
        i++;
        const char *line = s->line.data;
        size_t line_len = s->line.len;
        if (!s->started && line_len >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) { // a byte order mark
            line += 3;
            line_len -= 3;
        }
        s->started = true;
        buf_clear(&s->line);
        if (line_len) {
            field(s, line, line_len);
            continue;
        }
        if (s->has_data) {
            const char *text = buf_cstr(&s->data);
            if (text)
                event(context, s->is_error, text, s->data.len);
            else
                s->failed = true;
        }
        buf_clear(&s->data);
        s->has_data = s->is_error = false;
    }
}
