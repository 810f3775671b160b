#include "log_json.h"

#include "buf.h"
#include "text_view.h"

#include <stdbool.h>
#include <string.h>

enum { MAX_MSG = 600, MAX_NUMBER = 15 };

// The first word of a text; without a key it is one of a sentence.
struct log_word {
    struct text_view key, value, rest;
};

static struct log_word first_word(struct text_view t) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    while (t.len && *t.data == ' ')
        t = (struct text_view){t.data + 1, t.len - 1};
    const char *at = t.data, *end = t.data + t.len;
    struct log_word w = {0};
    while (at < end && strchr(letters, *at))
        at++;
    if (at > t.data && at < end && *at == '=')
        w.key = (struct text_view){t.data, (size_t)(at++ - t.data)};
    else
        at = t.data;
    bool quoted = w.key.len && at < end && *at == '"';
    const char *stop = at += quoted;
    while (stop < end && (quoted ? *stop != '"' || (stop + 1 < end && stop[1] != ' ') : *stop != ' '))
        stop++;
    w.value = (struct text_view){at, (size_t)(stop - at)};
    stop += quoted && stop < end;
    w.rest = (struct text_view){stop, (size_t)(end - stop)};
    return w;
}

static bool is_number(struct text_view t) {
    size_t i = t.len && *t.data == '-', first = i, dot = 0;
    for (; i < t.len && (('0' <= t.data[i] && t.data[i] <= '9') || (t.data[i] == '.' && !dot && i > first));
         i++)
        dot = t.data[i] == '.' ? i : dot;
    bool padded = t.len > first + 1 && t.data[first] == '0' && dot != first + 1;
    return i == t.len && i > first && i <= MAX_NUMBER && !padded && !(dot && dot + 1 == t.len);
}

void log_json(struct buf *b, size_t room, const char *time, const char *level, const char *text) {
    struct text_view rest = {text, strlen(text)};
    struct buf msg = {0};
    size_t start = b->len;
    for (struct log_word w; rest.len; rest = w.rest) {
        w = first_word(rest);
        if (!w.key.len && w.value.len && msg.len + w.value.len < MAX_MSG) {
            if (msg.len)
                buf_char(&msg, ' ');
            buf_add(&msg, w.value.data, w.value.len);
        }
    }
    buf_fmt(b, "{\"time\":\"%s\",\"level\":\"%s\",\"msg\":", time, level);
    json_quote(b, msg.data, msg.len);
    b->failed |= msg.failed;
    buf_free(&msg);
    rest = (struct text_view){text, strlen(text)};
    for (struct log_word w; rest.len; rest = w.rest) {
        w = first_word(rest);
        size_t before = b->len;
        if (!w.key.len)
            continue;
        buf_char(b, ',');
        json_quote(b, w.key.data, w.key.len);
        buf_char(b, ':');
        if (is_number(w.value))
            buf_add(b, w.value.data, w.value.len);
        else
            json_quote(b, w.value.data, w.value.len);
        if (b->len - start + 1 > room)
            b->len = before;
    }
    buf_char(b, '}');
}
