// Server-sent events: framing, and the queue between the writer of events and the socket.
//
// Each frame is one event and becomes one HTTP chunk and one write, because clients count writes and split on
// "\n\n" only. Frames are length-prefixed in one buffer, so that a token costs no allocation.
#pragma once

#include "buf.h"

struct sse_queue {
    struct buf bytes; // frames: uint32_t length, then the bytes
    size_t head;      // start of the first frame not wholly given
    size_t given;     // bytes of that frame which were given already
    size_t frame;     // start of the frame being written
    bool open;        // between sse_begin() and sse_end()
};

// Opens a frame and returns the buffer to append its bytes to, up to sse_end().
struct buf *sse_begin(struct sse_queue *q);
void sse_end(struct sse_queue *q);
void sse_done(struct sse_queue *q); // data: [DONE]
void sse_ping(struct sse_queue *q); // a comment
// Copies the next bytes of the first frame, never of two; returns how many, 0: the queue is empty.
size_t sse_read(struct sse_queue *q, char *dst, size_t max);
size_t sse_pending(const struct sse_queue *q); // bytes not yet given
void sse_free(struct sse_queue *q);
