// Server-sent events, in pieces of any size (HTML standard, section 9.2.6). Pure.
#pragma once

#include "buf.h"

#include <stdbool.h>
#include <stddef.h>

enum { EVENT_MAX = 16 << 20 }; // bytes of one event

struct event_stream {
    struct buf line, data;
    bool has_data, after_cr, started, is_error; // is_error: the event is named "error"
    bool failed;                                // an event over EVENT_MAX, or no memory: nothing more is read
};

void event_stream_reset(struct event_stream *s); // keeps the buffers
void event_stream_free(struct event_stream *s);

// Takes bytes; calls event() for each whole event that has data. The data is NUL-terminated and lives for the
// call. An event that no empty line ended is dropped, as the standard says.
void event_stream_feed(struct event_stream *s, const char *bytes, size_t len,
                       void (*event)(void *context, bool is_error, const char *data, size_t len),
                       void *context);
