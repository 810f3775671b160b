#include "runs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double run_number(const json_t *run, const char *key) {
    const json_t *v = json_object_get(run, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

const char *run_text(const json_t *run, const char *key) {
    const char *s = json_string_value(json_object_get(run, key));
    return s ? s : "";
}

void run_name(char *out, size_t size, const json_t *const *runs, size_t n, size_t i) {
    const char *label = run_text(runs[i], "label"), *model = run_text(runs[i], "model_id");
    if (*label)
        snprintf(out, size, "%s", label);
    else if (n == 1)
        snprintf(out, size, "%s", model);
    else
        snprintf(out, size, "%zu: %.60s", i + 1, model);
}

void run_figure(struct buf *b, double v) {
    if (!isfinite(v))
        buf_lit(b, "–");
    else if (fabs(v) >= 1000)
        buf_fmt(b, "%.0f", v);
    else if (fabs(v) >= 100)
        buf_fmt(b, "%.1f", v);
    else if (fabs(v) >= 1 || v == 0)
        buf_fmt(b, "%.2f", v);
    else
        buf_fmt(b, "%.3f", v);
}

const struct run_latency run_latencies[NUM_LATENCIES] = {
    {"ttft", "TTFT, from the intended time"},
    {"ttft_from_send", "TTFT, from the sending"},
    {"itl", "Inter-token latency"},
    {"tpot", "TPOT"},
    {"e2el", "E2EL, from the intended time"},
    {"e2el_from_send", "E2EL, from the sending"},
    {"client_queue", "Client: waited for a slot"},
    {"client_send_lag", "Client: sent late"},
};
const char *const run_points[NUM_POINTS] = {"mean", "median", "p90", "p99", "p99.9", "max"};

double run_point(const json_t *run, const char *metric, const char *which) {
    char key[64];
    snprintf(key, sizeof key, "%s_%s_ms", which, metric);
    return run_number(run, key);
}

struct walk {
    const json_t *const *runs;
    size_t n;
    compare_group_fn *group;
    compare_row_fn *row;
    void *to;
};

static void add_row(struct walk *w, const char *name, const char *key, double scale) {
    bool any = false;
    for (size_t i = 0; i < w->n; i++)
        any = any || isfinite(run_number(w->runs[i], key));
    if (any)
        w->row(w->to, name, key, scale);
}

static void add_latency(struct walk *w, const struct run_latency *latency) {
    char text[64];
    bool any = false;
    for (size_t i = 0; i < w->n; i++)
        any = any || isfinite(run_point(w->runs[i], latency->metric, "mean"));
    if (!any)
        return;
    snprintf(text, sizeof text, "%s, ms", latency->name);
    w->group(w->to, text);
    for (size_t k = 0; k < NUM_POINTS - 1; k++) { // without the maximum: it is one request's
        snprintf(text, sizeof text, "%s_%s_ms", run_points[k], latency->metric);
        add_row(w, run_points[k], text, 1);
    }
}

void compare_rows(const json_t *const *runs, size_t n, compare_group_fn *group, compare_row_fn *row,
                  void *to) {
    struct walk w = {runs, n, group, row, to};
    group(to, "Throughput");
    add_row(&w, "requests/s", "request_throughput", 1);
    add_row(&w, "good requests/s", "request_goodput", 1);
    add_row(&w, "highest rate that meets the goals", "max_rate_under_slo", 1);
    add_row(&w, "output tokens/s", "output_throughput", 1);
    add_row(&w, "all tokens/s", "total_token_throughput", 1);
    for (size_t m = 0; m < NUM_LATENCIES - 2; m++) // without the client's own
        add_latency(&w, &run_latencies[m]);
    group(to, "Requests");
    add_row(&w, "completed", "completed", 1);
    add_row(&w, "failed", "failed", 1);
    add_row(&w, "input tokens from the cache, %", "prefix_hit_rate", 100);
    add_row(&w, "an endless cache would have, %", "ideal_prefix_hit_rate", 100);
    group(to, "Client");
    add_row(&w, "sent late, p99, ms", "p99_client_send_lag_ms", 1);
    add_row(&w, "read late, p99, ms", "p99_client_read_lag_ms", 1);
    add_row(&w, "of one core, %", "client_cpu_share", 100);
}
