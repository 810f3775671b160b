// The metrics of a run, computed from its records. Pure. README.md says what each means.
#pragma once

#include "load.h"
#include "options.h"
#include "stats.h"

#include <stdbool.h>
#include <stddef.h>

enum { MAX_ERRORS = 8, CURVE = 201, MAX_WINDOWS = 120 };

// Percentiles 0, 0.5, 1 … 100 of a metric, for plots; and the sums of a window of time.
struct curve {
    bool any;
    double at[CURVE]; // ms
};
struct window {
    double start;                        // s
    double requests, tokens;             // completed in it; output tokens (by arrival of chunks)
    double ttft50, ttft99, itl50, itl99; // ms; of requests and gaps that began in it; -1: none
    double running;                      // requests on the wire, the mean over its time
};

struct result {
    size_t completed, failed, interrupted;
    double duration; // s
    size_t input_tokens, output_tokens, cached_tokens, ideal_cached_tokens;
    size_t asked_input; // tokens that the load asked for, of completed requests
    bool has_cached, has_ideal;
    size_t with_usage; // completed requests whose tokens the server counted
    size_t chunks;
    double request_throughput, output_throughput, total_token_throughput, goodput;
    size_t good; // meet every goal
    double max_output_tokens_per_s;
    size_t peak;
    // ms. ttft and e2el count from the intended time; the _sent ones from the actual sending.
    struct summary ttft, ttft_sent, e2el, e2el_sent, itl, tpot, queued, lag;
    struct curve ttft_curve, ttft_sent_curve, itl_curve, e2el_curve, tpot_curve;
    struct window windows[MAX_WINDOWS];
    size_t num_windows;
    double window_s;
    struct {
        enum error_kind kind;
        int status;
        size_t count;
        char message[RECORD_MESSAGE]; // of the first
    } errors[MAX_ERRORS];
    size_t num_errors;
    double cpu_share, read_lag_p50, read_lag_p99, read_lag_max; // of one core; ms
    bool read_lag_known;
    bool saturated; // the client itself was late: the numbers are not the server's alone
};

void result_compute(struct result *res, const struct run *run, const struct options *o);
// Whether a completed request meets all goals.
bool result_good(const struct request_record *r, const struct options *o);
