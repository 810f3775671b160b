// OpenTelemetry: spans of completions, sent to a collector by OTLP over HTTP, as JSON.
//
// The loop thread puts spans into a bounded queue and never waits; a thread of its own sends them in batches. What the
// collector does not take in time waits, and what finds the queue full is dropped and counted.
#pragma once

#include "span.h"

#include <stdbool.h>

struct otlp_counts {
    uint64_t sent, dropped, refused; // spans of requests; refused: by the collector
};

struct otlp;

// Whether spans can be sent there: http://HOST[:PORT][/PATH].
bool otlp_url_ok(const char *url);
// Starts the thread. NULL: out of memory, or of threads. A URL without a path has OTLP's, /v1/traces.
struct otlp *otlp_open(const char *url);
// Queues a copy. One thread, as the next.
void otlp_add(struct otlp *o, const struct span *span);
void otlp_counts(struct otlp *o, struct otlp_counts *out);
// Sends what is queued for three seconds at most, and lets go of the rest.
void otlp_close(struct otlp *o);
