// Reads an OpenAI-compatible server's responses: chunks of a stream and whole bodies. Pure.
#pragma once

#include "buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reply {
    bool has_text;   // this chunk carried text, reasoning or a tool call
    bool has_choice; // it had a choice at all
    bool finished;   // a finish_reason came, now or before
    bool done;       // [DONE]
    bool bad;        // no JSON
    bool has_usage, has_cached;
    uint32_t input, output, cached; // usage
    char error[120];                // the server's error; "" if none
};

// One event or one whole body. Adds its text to `text` (NULL: not kept). The flags of usage and `finished`
// stay from chunk to chunk, has_text and has_choice are this one's.
void reply_read(struct reply *r, const char *json, size_t len, struct buf *text);
// The sentence of an error body; of a body that is none of the API (a proxy's page), its beginning.
void reply_error(const char *body, size_t len, char *message, size_t size);
