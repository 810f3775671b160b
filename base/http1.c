#include "http1.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HEAD_MAX = 64 << 10, LINE_MAX_BYTES = 16 << 10 };

void http1_reset(struct http1 *h) {
    struct buf line = h->line;
    buf_clear(&line);
    *h = (struct http1){.line = line, .keep_alive = true, .first_line = true, .mode = BODY_CLOSE};
}

void http1_free(struct http1 *h) {
    buf_free(&h->line);
    *h = (struct http1){0};
}

static void bad(struct http1 *h, const char *why) {
    h->state = HTTP1_BAD;
    h->why = why;
    h->keep_alive = false;
}

// Whether a comma-separated header has this word.
static bool has_word(const char *list, const char *word) {
    size_t n = strlen(word);
    for (const char *p = list; *p;) {
        p += strspn(p, " \t,");
        size_t len = strcspn(p, " \t,;");
        if (len == n && strncasecmp(p, word, n) == 0)
            return true;
        p += len;
        p += strcspn(p, ",");
    }
    return false;
}

static void status_line(struct http1 *h, const char *line) {
    if (strncmp(line, "HTTP/1.", 7) != 0 || (line[7] != '0' && line[7] != '1') || line[8] != ' ') {
        bad(h, "no HTTP/1.x status line");
        return;
    }
    h->old = line[7] == '0';
    h->keep_alive = !h->old;
    const char *s = line + 9;
    for (int i = 0; i < 3; i++) {
        if (s[i] < '0' || s[i] > '9') {
            bad(h, "no status code");
            return;
        }
        h->status = h->status * 10 + (s[i] - '0');
    }
    if (h->status < 100 || (s[3] != 0 && s[3] != ' '))
        bad(h, "no status code");
}

static void header(struct http1 *h, char *line) {
    char *colon = strchr(line, ':');
    if (!colon || colon == line) {
        bad(h, "a header without a colon");
        return;
    }
    *colon = 0;
    const char *value = colon + 1 + strspn(colon + 1, " \t");
    if (strcasecmp(line, "content-length") == 0) {
        char *end = NULL;
        unsigned long long n = value[0] >= '0' && value[0] <= '9' ? strtoull(value, &end, 10) : 0;
        if (!end || *(end + strspn(end, " \t")) != 0 || n > (1ull << 40) || (h->has_length && h->left != n)) {
            bad(h, "a bad Content-Length");
            return;
        }
        h->has_length = true;
        h->left = n;
        if (h->mode != BODY_CHUNKED)
            h->mode = BODY_LENGTH;
    } else if (strcasecmp(line, "transfer-encoding") == 0) {
        if (!has_word(value, "chunked"))
            bad(h, "a Transfer-Encoding other than chunked");
        h->mode = BODY_CHUNKED;
    } else if (strcasecmp(line, "connection") == 0) {
        if (has_word(value, "close"))
            h->keep_alive = false;
        else if (has_word(value, "keep-alive"))
            h->keep_alive = true;
    } else if (strcasecmp(line, "content-type") == 0) {
        h->event_stream = has_word(value, "text/event-stream");
    } else if (strcasecmp(line, "content-encoding") == 0 && !has_word(value, "identity")) {
        bad(h, "a compressed body, which was not asked for");
    }
}

static void end_of_head(struct http1 *h) {
    if (h->status < 200 && h->status != 101) { // an interim response: the final one follows
        http1_reset(h);
        return;
    }
    h->state = HTTP1_BODY;
    h->chunk = CHUNK_SIZE;
    if (h->mode == BODY_CHUNKED)
        h->left = 0;
    if (h->status == 204 || h->status == 304 || (h->mode == BODY_LENGTH && h->left == 0))
        h->state = HTTP1_DONE;
    else if (h->mode == BODY_CLOSE)
        h->keep_alive = false;
}

static void head_line(struct http1 *h, char *line) {
    if (h->first_line) {
        h->first_line = false;
        status_line(h, line);
    } else if (*line == 0) {
        end_of_head(h);
    } else {
        header(h, line);
    }
}

static void chunk_size(struct http1 *h, const char *line) {
    uint64_t n = 0;
    int digits = 0;
    for (; digits < 14; digits++) {
        char c = line[digits];
        int v = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (v < 0)
            break;
        n = n * 16 + (uint64_t)v;
    }
    char after = line[digits];
    if (digits == 0 || digits == 14 || (after != 0 && after != ';' && after != ' ' && after != '\t')) {
        bad(h, "a bad chunk size");
        return;
    }
    h->left = n;
    h->chunk = n ? CHUNK_DATA : CHUNK_TRAILER;
}

static void framing_line(struct http1 *h, char *line) {
    switch (h->chunk) {
    case CHUNK_SIZE: chunk_size(h, line); break;
    case CHUNK_CRLF:
        if (*line)
            bad(h, "a chunk longer than its size");
        h->chunk = CHUNK_SIZE;
        break;
    case CHUNK_TRAILER:
        if (*line == 0)
            h->state = HTTP1_DONE;
        break;
    case CHUNK_DATA: break;
    }
}

// Gathers a line; returns the bytes taken.
static size_t take_line(struct http1 *h, const char *data, size_t len) {
    const char *lf = memchr(data, '\n', len);
    size_t n = lf ? (size_t)(lf - data) + 1 : len;
    buf_add(&h->line, data, n);
    h->head += n;
    if (h->line.failed || h->line.len > LINE_MAX_BYTES || (h->state == HTTP1_HEAD && h->head > HEAD_MAX)) {
        bad(h, "a head or chunk line without an end");
        return n;
    }
    if (!lf)
        return n;
    size_t end = h->line.len - 1;
    if (end && h->line.data[end - 1] == '\r')
        end--;
    h->line.data[end] = 0;
    bool nul = strlen(h->line.data) != end;
    if (nul)
        bad(h, "a NUL in the head or in a chunk line");
    else if (h->state == HTTP1_HEAD)
        head_line(h, h->line.data);
    else
        framing_line(h, h->line.data);
    buf_clear(&h->line);
    return n;
}

size_t http1_feed(struct http1 *h, const char *data, size_t len,
                  void (*body)(void *context, const char *data, size_t len), void *context) {
    size_t used = 0;
    while (used < len && h->state != HTTP1_DONE && h->state != HTTP1_BAD) {
        size_t more = len - used;
        if (h->state == HTTP1_HEAD || (h->mode == BODY_CHUNKED && h->chunk != CHUNK_DATA)) {
            used += take_line(h, data + used, more);
            continue;
        }
        size_t n = h->mode == BODY_CLOSE || more < h->left ? more : (size_t)h->left;
        body(context, data + used, n);
        used += n;
        if (h->mode == BODY_CLOSE)
            continue;
        h->left -= n;
        if (h->left == 0) {
            if (h->mode == BODY_CHUNKED)
                h->chunk = CHUNK_CRLF;
            else
                h->state = HTTP1_DONE;
        }
    }
    return used;
}

bool http1_closed(struct http1 *h) {
    if (h->state == HTTP1_BODY && h->mode == BODY_CLOSE)
        h->state = HTTP1_DONE;
    return h->state == HTTP1_DONE;
}
