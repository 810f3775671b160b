// Reads one HTTP/1.1 response, in pieces of any size. Pure: no sockets, no clock.
#pragma once

#include "buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum http1_state { HTTP1_HEAD, HTTP1_BODY, HTTP1_DONE, HTTP1_BAD };

struct http1 {
    enum http1_state state;
    int status;
    bool keep_alive; // the connection may carry another request
    bool event_stream;
    const char *why; // BAD: a sentence
    // private
    enum { BODY_LENGTH, BODY_CHUNKED, BODY_CLOSE } mode;
    enum { CHUNK_SIZE, CHUNK_DATA, CHUNK_CRLF, CHUNK_TRAILER } chunk;
    uint64_t left;   // bytes of the body or of the chunk
    struct buf line; // a line of the head or of the chunk framing, as far as it came
    size_t head;     // bytes of the head so far
    bool first_line, has_length, old;
};

// Ready for the next response; keeps the buffer.
void http1_reset(struct http1 *h);
void http1_free(struct http1 *h);

// Takes bytes. Calls body() with each part of the body, in order. Returns how many bytes it took: fewer than
// len only when state is DONE or BAD.
size_t http1_feed(struct http1 *h, const char *data, size_t len,
                  void (*body)(void *context, const char *data, size_t len), void *context);

// The peer closed. True: the response was whole (only a body without a length ends so).
bool http1_closed(struct http1 *h);
