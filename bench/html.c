#include "html.h"

#include "html_style.h"
#include "runs.h"
#include "stats.h"
#include "svg.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct page {
    struct buf b;
    const json_t *const *runs;
    size_t n;
    char names[MAX_RUNS][96];
    struct series pool[MAX_RUNS * 32]; // points of plots; freed with the page
    size_t num_pool;
};

static void load_text(char *out, size_t size, const json_t *run) {
    char limit[48] = "", rate[64] = "";
    double most = run_number(run, "max_concurrency"), r = run_number(run, "request_rate");
    const char *arrivals = run_text(run, "arrivals");
    if (isfinite(most))
        snprintf(limit, sizeof limit, ", at most %.0f at once", most);
    if (isfinite(r))
        snprintf(rate, sizeof rate, " at %.4g/s", r);
    if (strcmp(arrivals, "closed") == 0)
        snprintf(out, size, "closed loop%s", limit);
    else
        snprintf(out, size, "open loop, %s arrivals%s%s", arrivals, rate, limit);
}

// ---- tables ----

static void card(struct buf *b, double v, const char *unit) {
    buf_lit(b, "<div class=\"card\"><b>");
    run_figure(b, v);
    buf_lit(b, "</b><span>");
    html_text(b, unit);
    buf_lit(b, "</span></div>");
}

static void cards(struct page *p) {
    const json_t *run = p->runs[0];
    struct buf *b = &p->b;
    buf_lit(b, "<div class=\"cards\">");
    if (isfinite(run_number(run, "max_rate_under_slo")))
        card(b, run_number(run, "max_rate_under_slo"), "requests/s, the highest rate that meets the goals");
    card(b, run_number(run, "request_throughput"), "requests/s");
    card(b, run_number(run, "output_throughput"), "output tokens/s");
    if (isfinite(run_number(run, "request_goodput")))
        card(b, run_number(run, "request_goodput"), "good requests/s");
    if (isfinite(run_number(run, "median_ttft_ms"))) {
        card(b, run_number(run, "median_ttft_ms"), "ms to the first token, median");
        card(b, run_number(run, "p99_ttft_ms"), "ms to the first token, p99");
    }
    if (isfinite(run_number(run, "median_itl_ms"))) {
        card(b, run_number(run, "median_itl_ms"), "ms between tokens, median");
        card(b, run_number(run, "p99_itl_ms"), "ms between tokens, p99");
    }
    card(b, run_number(run, "median_e2el_ms"), "ms to the last token, median");
    buf_lit(b, "</div>\n");
}

static void warnings(struct page *p) {
    for (size_t i = 0; i < p->n; i++) {
        const json_t *run = p->runs[i];
        if (json_is_true(json_object_get(run, "client_saturated"))) {
            buf_lit(&p->b, "<p class=\"warn\"><b>");
            html_text(&p->b, p->names[i]);
            buf_lit(&p->b,
                    "</b>: the client itself was late; these latencies are not the server's alone.</p>");
        }
        if (run_number(run, "failed") > 0) {
            buf_lit(&p->b, "<p class=\"warn\"><b>");
            html_text(&p->b, p->names[i]);
            buf_fmt(&p->b, "</b>: %.0f of %.0f requests failed.</p>", run_number(run, "failed"),
                    run_number(run, "failed") + run_number(run, "completed"));
        }
    }
}

static void latency_table(struct page *p) {
    struct buf *b = &p->b;
    buf_lit(b, "<h2>Latency, ms</h2><div class=\"scroll\"><table><thead><tr><th></th>");
    for (size_t k = 0; k < NUM_POINTS; k++)
        buf_fmt(b, "<th>%s</th>", run_points[k]);
    buf_lit(b, "</tr></thead><tbody>");
    for (size_t m = 0; m < NUM_LATENCIES; m++) {
        double most = run_point(p->runs[0], run_latencies[m].metric, "max");
        if (!isfinite(most) || most == 0) // not measured; or nothing ever waited
            continue;
        buf_fmt(b, "<tr><th scope=\"row\">%s</th>", run_latencies[m].name);
        for (size_t k = 0; k < NUM_POINTS; k++) {
            buf_lit(b, "<td>");
            run_figure(b, run_point(p->runs[0], run_latencies[m].metric, run_points[k]));
            buf_lit(b, "</td>");
        }
        buf_lit(b, "</tr>");
    }
    buf_lit(b, "</tbody></table></div>\n");
}

static void compared(struct page *p, const char *name, const char *key, double scale) {
    struct buf *b = &p->b;
    double first = run_number(p->runs[0], key) * scale;
    bool any = false;
    for (size_t i = 0; i < p->n; i++)
        any = any || isfinite(run_number(p->runs[i], key));
    if (!any)
        return;
    buf_fmt(b, "<tr><th scope=\"row\">%s</th>", name);
    for (size_t i = 0; i < p->n; i++) {
        double v = run_number(p->runs[i], key) * scale;
        buf_lit(b, "<td>");
        if (json_is_integer(json_object_get(p->runs[i], key)))
            buf_fmt(b, "%.0f", v);
        else
            run_figure(b, v);
        if (i && isfinite(v) && first > 0)
            buf_fmt(b, "<small>× %.2f</small>", v / first);
        else if (p->n > 1 && isfinite(first))
            buf_lit(b, "<small></small>");
        buf_lit(b, "</td>");
    }
    buf_lit(b, "</tr>");
}

static void compared_row(void *to, const char *name, const char *key, double scale) {
    compared(to, name, key, scale);
}

static void compared_group(void *to, const char *name) {
    struct page *p = to;
    buf_fmt(&p->b, "<tr class=\"group\"><th colspan=\"%zu\">%s</th></tr>", p->n + 1, name);
}

static void compare_table(struct page *p) {
    struct buf *b = &p->b;
    buf_lit(b, "<h2>Side by side</h2><div class=\"scroll\"><table><thead><tr><th></th>");
    for (size_t i = 0; i < p->n; i++) {
        buf_fmt(b, "<th><span class=\"key c%zu\"></span>", i % PLOT_COLOURS);
        html_text(b, p->names[i]);
        buf_lit(b, "</th>");
    }
    buf_lit(b, "</tr></thead><tbody>");
    compare_rows(p->runs, p->n, compared_group, compared_row, p);
    buf_lit(b, "</tbody></table></div>\n");
}

static void setting(struct page *p, const char *name, const char *key) {
    struct buf *b = &p->b;
    buf_fmt(b, "<tr><th scope=\"row\">%s</th>", name);
    for (size_t i = 0; i < p->n; i++) {
        const json_t *v = json_object_get(p->runs[i], key);
        buf_lit(b, "<td class=\"text\">");
        if (json_is_string(v))
            html_text(b, json_string_value(v));
        else if (json_is_integer(v))
            buf_int(b, json_integer_value(v));
        else if (json_is_real(v))
            run_figure(b, json_real_value(v));
        else if (json_is_boolean(v))
            buf_str(b, json_is_true(v) ? "yes" : "no");
        else
            buf_lit(b, "–");
        buf_lit(b, "</td>");
    }
    buf_lit(b, "</tr>");
}

static void settings(struct page *p) {
    struct buf *b = &p->b;
    buf_lit(b, "<h2>What was run</h2><div class=\"scroll\"><table><tbody><tr><th scope=\"row\">load</th>");
    for (size_t i = 0; i < p->n; i++) {
        char load[160];
        load_text(load, sizeof load, p->runs[i]);
        buf_lit(b, "<td class=\"text\">");
        html_text(b, load);
        buf_lit(b, "</td>");
    }
    buf_lit(b, "</tr>");
    static const char *const rows[][2] = {
        {"model", "model_id"},
        {"endpoint", "endpoint"},
        {"streamed", "streaming"},
        {"prompts", "dataset_name"},
        {"prompts are", "prompt_form"},
        {"requests", "num_prompts"},
        {"duration, s", "duration"},
        {"input tokens", "total_input_tokens"},
        {"output tokens", "total_output_tokens"},
        {"chunks with text", "output_chunks"},
        {"tokens counted by", "tokens_counted_by"},
        {"most requests at once", "max_concurrent_requests"},
        {"connections made", "connections"},
        {"seed", "seed"},
        {"started (UTC)", "date"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        setting(p, rows[i][0], rows[i][1]);
    buf_lit(b, "</tbody></table></div>\n");
    if (p->n > 1)
        return;
    buf_lit(b, "<h2>The client itself and the cache</h2><div class=\"scroll\"><table><tbody>");
    compared(p, "read late, p50, ms", "p50_client_read_lag_ms", 1);
    compared(p, "read late, p99, ms", "p99_client_read_lag_ms", 1);
    compared(p, "read late, most, ms", "max_client_read_lag_ms", 1);
    compared(p, "of one core, %", "client_cpu_share", 100);
    compared(p, "input tokens from the cache, %", "prefix_hit_rate", 100);
    compared(p, "an endless cache would have, %", "ideal_prefix_hit_rate", 100);
    buf_lit(b, "</tbody></table></div>\n");
}

static void error_table(struct page *p) {
    bool any = false;
    for (size_t i = 0; i < p->n; i++)
        any = any || json_array_size(json_object_get(p->runs[i], "errors_by_kind"));
    if (!any)
        return;
    struct buf *b = &p->b;
    buf_lit(b, "<h2>Errors</h2><div class=\"scroll\"><table><thead><tr><th>run</th><th>count</th><th "
               "class=\"text\">kind</th><th class=\"text\">the first said</th></tr></thead><tbody>");
    for (size_t i = 0; i < p->n; i++) {
        size_t k;
        const json_t *e;
        json_array_foreach(json_object_get(p->runs[i], "errors_by_kind"), k, e) {
            buf_lit(b, "<tr><td>");
            html_text(b, p->names[i]);
            buf_fmt(b, "</td><td>%.0f</td><td class=\"text\">", run_number(e, "count"));
            html_text(b, run_text(e, "kind"));
            if (isfinite(run_number(e, "status")))
                buf_fmt(b, " %.0f", run_number(e, "status"));
            buf_lit(b, "</td><td class=\"text\">");
            html_text(b, run_text(e, "message"));
            buf_lit(b, "</td></tr>");
        }
    }
    buf_lit(b, "</tbody></table></div>\n");
}

// ---- plots ----

static struct series *pooled(struct page *p) { return &p->pool[p->num_pool++]; }

static void add_cdf(struct page *p, struct plot *plot, size_t run, const char *key, const char *name,
                    int colour, bool dashed) {
    const json_t *curve = json_object_get(json_object_get(p->runs[run], "percentile_curves"), key);
    size_t n = json_array_size(curve);
    if (n < 3)
        return;
    struct series *x = pooled(p), *y = pooled(p);
    for (size_t i = 0; i < n; i++) {
        series_add(x, json_number_value(json_array_get(curve, i)));
        series_add(y, 100.0 * (double)i / (double)(n - 1));
    }
    double most = x->v[n - 2]; // p99.5: one straggler must not press the rest to the left
    if (most > plot->x_max)
        plot->x_max = most;
    plot->log_x = plot->log_x || (x->v[2] > 0 && most / x->v[2] > 30);
    plot->series[plot->num++] = (struct plot_series){
        .name = name, .colour = colour, .dashed = dashed, .line = true, .n = n, .x = x->v, .y = y->v};
}

static void cdf(struct page *p, const char *title, const char *key, const char *sent_key) {
    struct plot plot = {
        .title = title, .x_label = "ms", .y_label = "share of all, at most", .percent_y = true};
    for (size_t i = 0; i < p->n; i++) {
        bool both = p->n == 1 && sent_key;
        add_cdf(p, &plot, i, key, both ? "from the intended time" : p->names[i], (int)(i % PLOT_COLOURS),
                false);
        if (both)
            add_cdf(p, &plot, i, sent_key, "from the sending", 1, true);
    }
    if (plot.num)
        plot.note = "The axis ends at p99.5; the table has the tail.";
    svg_plot(&p->b, &plot);
}

// Points of the windows; `per_s` divides by their length.
static void add_windows(struct page *p, struct plot *plot, size_t run, const char *key, const char *name,
                        int colour, bool dashed, bool per_s) {
    const json_t *list = json_object_get(p->runs[run], "over_time"), *w;
    double length = run_number(p->runs[run], "window_s"), end = run_number(p->runs[run], "duration");
    struct series *x = pooled(p), *y = pooled(p);
    size_t i;
    json_array_foreach(list, i, w) {
        double start = run_number(w, "start_s"), this = fmin(length, end - start);
        if (i && this < length * 0.5) // the rest at the end is too short to stand beside the others
            continue;
        series_add(x, start + this / 2);
        series_add(y, per_s ? run_number(w, key) / this : run_number(w, key));
    }
    plot->series[plot->num++] = (struct plot_series){
        .name = name, .colour = colour, .dashed = dashed, .line = true, .n = x->n, .x = x->v, .y = y->v};
}

static void over_time(struct page *p, const char *title, const char *label, const char *key,
                      const char *second, bool per_s) {
    struct plot plot = {.title = title, .x_label = "s from the start", .y_label = label};
    for (size_t i = 0; i < p->n && plot.num + 2 <= PLOT_SERIES; i++) {
        bool both = p->n == 1 && second;
        add_windows(p, &plot, i, key, both ? "median" : p->names[i], (int)(i % PLOT_COLOURS), false, per_s);
        if (both)
            add_windows(p, &plot, i, second, "p99", 1, true, per_s);
    }
    svg_plot(&p->b, &plot);
}

static int by_rate(const void *a, const void *b) {
    double x = run_number(*(json_t *const *)a, "request_rate"),
           y = run_number(*(json_t *const *)b, "request_rate");
    return (x > y) - (x < y);
}

// One run's rates where it searched, else one point.
static void add_tradeoff(struct page *p, struct plot *plot, size_t run, const char *x_key, const char *y_key,
                         const char **label, bool *hollow) {
    const json_t *steps = json_object_get(p->runs[run], "search");
    size_t n = json_array_size(steps);
    struct series *x = pooled(p), *y = pooled(p);
    struct plot_series s = {.name = p->names[run], .colour = (int)(run % PLOT_COLOURS), .dots = true};
    if (n == 0) {
        series_add(x, run_number(p->runs[run], x_key));
        series_add(y, run_number(p->runs[run], y_key));
        *label = p->names[run];
        s.labels = label;
    } else {
        const json_t **sorted = calloc(n, sizeof *sorted);
        for (size_t i = 0; sorted && i < n; i++)
            sorted[i] = json_array_get(steps, i);
        if (sorted)
            qsort(sorted, n, sizeof *sorted, by_rate);
        for (size_t i = 0; sorted && i < n; i++) {
            series_add(x, run_number(sorted[i], x_key));
            series_add(y, run_number(sorted[i], y_key));
            if (i < 64)
                hollow[i] = !json_is_true(json_object_get(sorted[i], "meets"));
        }
        free(sorted);
        s.line = true;
        s.hollow = n <= 64 ? hollow : NULL;
    }
    s.n = x->n;
    s.x = x->v;
    s.y = y->v;
    plot->series[plot->num++] = s;
}

static void tradeoff(struct page *p, const char *title, const char *metric, const char *label) {
    struct plot plot = {.title = title, .x_label = "output tokens/s", .y_label = label};
    const char *labels[MAX_RUNS];
    bool hollow[MAX_RUNS][64];
    char key[64];
    bool searched = json_array_size(json_object_get(p->runs[0], "search")) > 0;
    if (p->n == 1 && !searched) { // one run: its windows
        const json_t *list = json_object_get(p->runs[0], "over_time"), *w;
        double length = run_number(p->runs[0], "window_s"), end = run_number(p->runs[0], "duration");
        struct series *x = pooled(p), *y = pooled(p);
        size_t i;
        snprintf(key, sizeof key, "median_%s_ms", metric);
        json_array_foreach(list, i, w) {
            if (end - run_number(w, "start_s") < length * 0.5)
                continue;
            series_add(x, run_number(w, "output_tokens") / length);
            series_add(y, run_number(w, key));
        }
        plot.series[plot.num++] = (struct plot_series){.dots = true, .n = x->n, .x = x->v, .y = y->v};
        plot.note = "A dot for each window of time: its throughput and its median.";
    } else {
        snprintf(key, sizeof key, "p99_%s_ms", metric);
        for (size_t i = 0; i < p->n; i++)
            add_tradeoff(p, &plot, i, "output_throughput", key, &labels[i], hollow[i]);
        plot.note = searched ? "A dot for each rate that was tried; hollow: it misses the goals." : NULL;
    }
    svg_plot(&p->b, &plot);
}

static void plots(struct page *p) {
    bool streamed = false;
    for (size_t i = 0; i < p->n; i++)
        streamed = streamed || isfinite(run_number(p->runs[i], "median_ttft_ms"));
    bool points_are_runs = p->n > 1 || json_array_size(json_object_get(p->runs[0], "search"));
    buf_lit(&p->b, "<h2>Distributions</h2><div class=\"plots\">\n");
    if (streamed) {
        cdf(p, "Time to first token", "ttft_ms", "ttft_from_send_ms");
        cdf(p, "Inter-token latency", "itl_ms", NULL);
    }
    cdf(p, "End-to-end latency", "e2el_ms", NULL);
    if (streamed)
        cdf(p, "Time per output token, of each request", "tpot_ms", NULL);
    buf_lit(&p->b, "</div><h2>Over time</h2><div class=\"plots\">\n");
    over_time(p, "Output throughput", "tokens/s", "output_tokens", NULL, true);
    over_time(p, "Requests on the wire", "requests", "running", NULL, false);
    if (streamed) {
        over_time(p, p->n > 1 ? "Time to first token, p99" : "Time to first token", "ms",
                  p->n > 1 ? "p99_ttft_ms" : "median_ttft_ms", "p99_ttft_ms", false);
        over_time(p, p->n > 1 ? "Inter-token latency, p99" : "Inter-token latency", "ms",
                  p->n > 1 ? "p99_itl_ms" : "median_itl_ms", "p99_itl_ms", false);
    }
    buf_lit(&p->b, "</div><h2>Throughput against latency</h2><div class=\"plots\">\n");
    if (streamed) {
        tradeoff(p, points_are_runs ? "Time to first token, p99" : "Time to first token, median", "ttft",
                 "ms");
        tradeoff(p, points_are_runs ? "Inter-token latency, p99" : "Inter-token latency, median", "itl",
                 "ms");
    } else if (points_are_runs) {
        tradeoff(p, "End-to-end latency, p99", "e2el", "ms");
    }
    buf_lit(&p->b, "</div>\n");
}

static void head(struct page *p) {
    struct buf *b = &p->b;
    buf_lit(b, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
               "content=\"width=device-width,initial-scale=1\"><title>quire-bench: ");
    for (size_t i = 0; i < p->n; i++) {
        buf_str(b, i ? ", " : "");
        html_text(b, p->names[i]);
    }
    buf_fmt(b, "</title><style>\n%s</style></head><body><main>\n<h1>", html_style);
    for (size_t i = 0; i < p->n; i++) {
        buf_str(b, i ? " · " : "");
        html_text(b, p->names[i]);
    }
    buf_lit(b, "</h1><p class=\"sub\">");
    if (p->n == 1) {
        char load[160];
        load_text(load, sizeof load, p->runs[0]);
        html_text(b, load);
        buf_fmt(b, " · %.0f requests in %.1f s · ", run_number(p->runs[0], "completed"),
                run_number(p->runs[0], "duration"));
        html_text(b, run_text(p->runs[0], "model_id"));
        buf_lit(b, " at ");
        html_text(b, run_text(p->runs[0], "endpoint"));
    } else {
        buf_fmt(b, "%zu runs; × compares with the first", p->n);
    }
    buf_lit(b, "</p>\n");
}

bool html_write(const json_t *const *results, size_t n, const char *path) {
    struct page *p = calloc(1, sizeof *p);
    if (!p)
        return false;
    p->runs = results;
    p->n = n < MAX_RUNS ? n : MAX_RUNS;
    for (size_t i = 0; i < p->n; i++)
        run_name(p->names[i], sizeof p->names[i], results, n, i);
    head(p);
    warnings(p);
    if (p->n == 1) {
        cards(p);
        latency_table(p);
    } else {
        compare_table(p);
    }
    plots(p);
    error_table(p);
    settings(p);
    buf_lit(
        &p->b,
        "<footer>Made by quire-bench. Percentiles are exact: linear between the closest ranks of all "
        "recorded "
        "values. TTFT and E2EL count from the time at which the load meant the request to be sent.</footer>"
        "</main></body></html>\n");
    FILE *f = p->b.failed ? NULL : fopen(path, "w");
    bool good = f && fwrite(p->b.data, 1, p->b.len, f) == p->b.len;
    good = f && fclose(f) == 0 && good;
    if (p->b.failed)
        errno = ENOMEM;
    buf_free(&p->b);
    for (size_t i = 0; i < p->num_pool; i++)
        series_free(&p->pool[i]);
    free(p);
    return good;
}
