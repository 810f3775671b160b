// Counters and histograms of the loop thread, in Prometheus' text form. Names and buckets are vLLM's
// so that existing dashboards work; what is ours is under quire:. Loop thread only.
#pragma once

#include "buf.h"
#include "grammar/grammar.h"
#include "otlp.h"
#include "service.h"

enum { METRICS_MAX_BUCKETS = 24, METRICS_MAX_ROUTES = 64, METRICS_MAX_STATUS = 24 };
enum { METRICS_METHODS = 5, METRICS_DURATIONS = 4 };

enum metrics_histogram {
    M_TTFT,
    M_INTER_TOKEN,
    M_PER_TOKEN,
    M_E2E,
    M_QUEUE,
    M_INFERENCE,
    M_PREFILL,
    M_DECODE,
    M_PROMPT_TOKENS,
    M_GENERATION_TOKENS,
    M_PARAM_N,
    M_PARAM_MAX_TOKENS,
    M_MAX_GENERATION_TOKENS,
    M_PREFILL_TOKENS,
    M_COUNT
};

struct histogram {
    uint64_t buckets[METRICS_MAX_BUCKETS]; // not cumulative; the last one used is +Inf
    uint64_t count;
    double sum;
};

struct http_times {                      // responses of one route and method
    uint64_t classes[6];                 // 2xx is [2]
    uint64_t buckets[METRICS_DURATIONS]; // not cumulative; the last one is +Inf
    double sum;                          // s
};

struct metrics {
    struct histogram histograms[M_COUNT];
    uint64_t finished[5]; // by enum finish_reason, up to FINISH_ERROR; of choices
    uint64_t stalled, disconnects, refused_connections;
    uint64_t rejected[2]; // requests for which the queue was full: of requests, of tokens
    uint64_t http[METRICS_MAX_ROUTES][METRICS_MAX_STATUS]; // route index, status index
    struct http_times by_method[METRICS_MAX_ROUTES][METRICS_METHODS];
};

// Requests in progress by class (priority below, at, above 0), key (0: none, 1 + its index; the last one has all further
// ones) and whether a token has come.
enum { METRICS_CLASSES = 3, METRICS_MAX_KEYS = 32 };
struct metrics_census {
    int num_keys;
    int open[METRICS_CLASSES][METRICS_MAX_KEYS + 1][2];
};

struct metrics_adapter {
    char name[65];
    uint64_t requests; // ever
    int waiting, running;
};

// Of responses that are kept.
struct metrics_stored {
    bool on, has_files;
    size_t num, bytes, skipped_files, unsaved;
};

// The rest of a page.
struct metrics_page {
    const char *name_space, *model;
    const struct service_stats *stats;
    const struct engine_info *info; // NULL while loading
    const struct metrics_census *census;
    struct constraint_counts grammars;
    struct otlp_counts spans;
    struct metrics_stored stored;
    const struct metrics_adapter *adapters; // (num_adapters)
    int num_adapters, max_adapters;

    bool prefix_caching;
    double start_time, loop_cpu_seconds; // the first since 1970
    int connections, streams;
    const char *(*route_name)(int); // of a route's index
    int num_routes;
};

void metrics_observe(struct metrics *m, enum metrics_histogram which, double value);
// A response that is over, `seconds` after its request line.
void metrics_http(struct metrics *m, int route, const char *method, int status, double seconds);
void metrics_write(const struct metrics *m, const struct metrics_page *page, struct buf *out);
