// The record of one request: only timestamps and counts; every metric is computed from them afterwards.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum error_kind {
    ERROR_NONE,
    ERROR_CONNECT,     // no connection
    ERROR_CLOSED,      // the server closed before the response was whole
    ERROR_TIMEOUT,     // --timeout or --connect-timeout
    ERROR_PROTOCOL,    // no HTTP/1.1, or a broken frame
    ERROR_JSON,        // a body or an event that is no JSON of the API
    ERROR_STATUS,      // an HTTP status other than 200
    ERROR_STREAM,      // an error event within a stream
    ERROR_UNFINISHED,  // a stream without [DONE] and without a finish_reason
    ERROR_EMPTY,       // a completion without a single token
    ERROR_INTERRUPTED, // stopped by the user; not the server's fault
    ERROR_KINDS
};
const char *error_name(enum error_kind kind);

enum { RECORD_MESSAGE = 120 };

// All times are ns of CLOCK_MONOTONIC, from the start of the run.
struct request_record {
    uint32_t index, conversation, turn;
    int64_t intended; // when the load says that it be sent
    int64_t ready;    // when --max-concurrency let it: from then on a delay is the client's own
    int64_t sent;     // when it was begun (before connecting, where a connection was made)
    int64_t first;    // first text; 0: none
    int64_t last;     // last text or finish_reason
    int64_t end;      // the response was whole, or the error
    int64_t *at;      // [num_chunks] arrival of each chunk with text; owned
    uint32_t num_chunks, max_chunks;
    uint32_t want_input, want_output;      // as requested; 0: unknown
    uint32_t input, output, cached;        // by usage, else want_input and num_chunks
    uint32_t ideal_cached;                 // tokens that an endless prefix cache would have had
    bool has_usage, has_cached, connected; // connected: it made a connection
    int status;
    enum error_kind error;
    char message[RECORD_MESSAGE]; // of the error
};
