#include "sse.h"

#include "log.h"

#include <string.h>

enum { PREFIX = sizeof(uint32_t) };

struct buf *sse_begin(struct sse_queue *q) {
    CHECK(!q->open);
    if (q->head == q->bytes.len) {
        q->head = q->bytes.len = 0;
    } else if (q->head > 65536 && q->head > q->bytes.len / 2) {
        q->bytes.len -= q->head;
        memmove(q->bytes.data, q->bytes.data + q->head, q->bytes.len);
        q->head = 0;
    }
    q->frame = q->bytes.len;
    q->open = true;
    static const uint32_t zero;
    buf_add(&q->bytes, &zero, PREFIX);
    return &q->bytes;
}

void sse_end(struct sse_queue *q) {
    CHECK(q->open);
    q->open = false;
    if (q->bytes.failed) { // half a frame must not go out; the writer sees bytes.failed
        q->bytes.len = q->frame;
        return;
    }
    uint32_t n = (uint32_t)(q->bytes.len - q->frame - PREFIX);
    memcpy(q->bytes.data + q->frame, &n, PREFIX);
}

void sse_done(struct sse_queue *q) {
    buf_lit(sse_begin(q), "data: [DONE]\n\n");
    sse_end(q);
}

void sse_ping(struct sse_queue *q) {
    buf_lit(sse_begin(q), ": ping\n\n");
    sse_end(q);
}

size_t sse_read(struct sse_queue *q, char *dst, size_t max) {
    if (q->head == q->bytes.len || max == 0)
        return 0;
    uint32_t n;
    memcpy(&n, q->bytes.data + q->head, PREFIX);
    size_t left = n - q->given, take = left < max ? left : max;
    memcpy(dst, q->bytes.data + q->head + PREFIX + q->given, take);
    q->given += take;
    if (q->given == n) {
        q->head += PREFIX + n;
        q->given = 0;
    }
    return take;
}

size_t sse_pending(const struct sse_queue *q) { return q->bytes.len - q->head; }

void sse_free(struct sse_queue *q) {
    buf_free(&q->bytes);
    *q = (struct sse_queue){0};
}
