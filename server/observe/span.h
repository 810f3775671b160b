// A request as OpenTelemetry's span, and as the JSON that a collector takes. Pure.
#pragma once

#include "api/completion_request.h"
#include "buf.h"

enum { TRACE_ID = 16, SPAN_ID = 8 };

struct trace_parent { // W3C Trace Context
    uint8_t trace[TRACE_ID], span[SPAN_ID];
    bool sampled;
};

struct span {
    uint8_t trace[TRACE_ID], id[SPAN_ID], parent[SPAN_ID]; // parent: zeros where it has none
    char request_id[REQUEST_ID_SIZE + 12], model[128], path[64];
    const char *finish;                              // static: stop, length, abort, error…
    int64_t start, submitted, scheduled, first, end; // ns since 1970; 0: never
    int64_t last;                                    // when the engine had the last token, likewise
    int64_t num_prompt, num_cached, num_output;
    int n, num_choices, max_tokens; // n 0: the body was not read, and nothing of it is known
    double temperature, top_p;
    int status; // of the response
    bool failed;
};

// Reads a traceparent header. False: it is none, and a new trace begins.
bool trace_parent_read(struct trace_parent *out, const char *header);

// Writes the body of a request that has these spans, each with its phases as children.
void spans_write(struct buf *out, const struct span *const *spans, int num);
