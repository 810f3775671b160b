#include "result.h"

#include "log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double ms(int64_t ns) { return (double)ns / 1e6; }

// The mean time of a token after the first. Below 0: there is none.
static double tpot_of(const struct request_record *r) {
    return r->first && r->output > 1 ? ms(r->last - r->first) / (r->output - 1) : -1;
}

bool result_good(const struct request_record *r, const struct options *o) {
    if (r->error != ERROR_NONE)
        return false;
    if (o->goal_ttft >= 0 && (!r->first || ms(r->first - r->intended) > o->goal_ttft))
        return false;
    if (o->goal_tpot >= 0 && tpot_of(r) > o->goal_tpot)
        return false;
    if (o->goal_e2el >= 0 && ms(r->last - r->intended) > o->goal_e2el)
        return false;
    if (o->goal_itl >= 0)
        for (uint32_t i = 1; i < r->num_chunks; i++)
            if (ms(r->at[i] - r->at[i - 1]) > o->goal_itl)
                return false;
    return true;
}

static void curve_of(struct curve *c, const struct series *sorted) {
    c->any = sorted->n > 0;
    for (int i = 0; i < CURVE && c->any; i++)
        c->at[i] = stats_percentile(sorted->v, sorted->n, 100.0 * i / (CURVE - 1));
}

static struct summary finish(struct series *s, struct curve *c) {
    struct summary sum = stats_summary(s->v, s->n);
    if (c)
        curve_of(c, s);
    series_free(s);
    return sum;
}

static void add_error(struct result *res, const struct request_record *r) {
    for (size_t i = 0; i < res->num_errors; i++)
        if (res->errors[i].kind == r->error &&
            (r->error != ERROR_STATUS || res->errors[i].status == r->status)) {
            res->errors[i].count++;
            return;
        }
    if (res->num_errors == MAX_ERRORS) { // more kinds of status than rows: the last row takes them
        res->errors[MAX_ERRORS - 1].count++;
        return;
    }
    size_t i = res->num_errors++;
    res->errors[i].kind = r->error;
    res->errors[i].status = r->status;
    res->errors[i].count = 1;
    memcpy(res->errors[i].message, r->message, RECORD_MESSAGE);
}

static void count(struct result *res, const struct request_record *r, const struct options *o) {
    res->completed++;
    res->input_tokens += r->input;
    res->output_tokens += r->output;
    res->asked_input += r->want_input;
    res->cached_tokens += r->cached;
    res->ideal_cached_tokens += r->ideal_cached;
    res->has_cached = res->has_cached || r->has_cached;
    res->has_ideal = res->has_ideal || r->ideal_cached;
    res->with_usage += r->has_usage;
    res->chunks += r->num_chunks;
    res->good += o->has_goals && result_good(r, o);
}

// ---- over time ----

static size_t window_at(const struct result *res, double seconds) {
    double i = seconds / res->window_s;
    return i < 0 ? 0 : i >= (double)res->num_windows ? res->num_windows - 1 : (size_t)i;
}

static double percentile_or(struct series *s, double p) {
    if (!s->n)
        return -1;
    stats_summary(s->v, s->n); // sorts
    return stats_percentile(s->v, s->n, p);
}

static void add_windows(struct result *res, const struct run *run) {
    static const double steps[] = {0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200};
    size_t k = 0, most = MAX_WINDOWS / 2;
    while (k + 1 < sizeof steps / sizeof steps[0] && res->duration / steps[k] > (double)most)
        k++;
    res->window_s = steps[k];
    res->num_windows = (size_t)ceil(res->duration / res->window_s);
    if (res->num_windows > MAX_WINDOWS) {
        res->num_windows = MAX_WINDOWS;
        res->window_s = res->duration / MAX_WINDOWS;
    }
    if (res->num_windows == 0)
        return;
    struct series *ttft = calloc(res->num_windows, sizeof *ttft),
                  *itl = calloc(res->num_windows, sizeof *itl);
    CHECK(ttft && itl);
    for (size_t i = 0; i < run->num; i++) {
        const struct request_record *r = run->records[i];
        if (r->error == ERROR_INTERRUPTED)
            continue;
        for (size_t w = 0; w < res->num_windows && r->sent; w++) {
            double start = (double)w * res->window_s, end = fmin(start + res->window_s, res->duration);
            double both = fmin(end, (double)r->end / 1e9) - fmax(start, (double)r->sent / 1e9);
            if (both > 0)
                res->windows[w].running += both / (end - start);
        }
        if (r->error != ERROR_NONE)
            continue;
        res->windows[window_at(res, (double)r->last / 1e9)].requests++;
        if (r->first)
            series_add(&ttft[window_at(res, (double)r->intended / 1e9)], ms(r->first - r->intended));
        // Where chunks carry several tokens, each chunk stands for as many.
        double per_chunk = r->num_chunks ? (double)r->output / r->num_chunks : 0;
        for (uint32_t c = 0; c < r->num_chunks; c++) {
            size_t w = window_at(res, (double)r->at[c] / 1e9);
            res->windows[w].tokens += per_chunk;
            if (c)
                series_add(&itl[w], ms(r->at[c] - r->at[c - 1]));
        }
        if (!r->num_chunks)
            res->windows[window_at(res, (double)r->last / 1e9)].tokens += r->output;
    }
    for (size_t w = 0; w < res->num_windows; w++) {
        struct window *x = &res->windows[w];
        x->start = (double)w * res->window_s;
        x->ttft50 = percentile_or(&ttft[w], 50);
        x->ttft99 = percentile_or(&ttft[w], 99);
        x->itl50 = percentile_or(&itl[w], 50);
        x->itl99 = percentile_or(&itl[w], 99);
        if (x->tokens / res->window_s > res->max_output_tokens_per_s)
            res->max_output_tokens_per_s = x->tokens / res->window_s;
        series_free(&ttft[w]);
        series_free(&itl[w]);
    }
    free(ttft);
    free(itl);
}

void result_compute(struct result *res, const struct run *run, const struct options *o) {
    *res = (struct result){.duration = (double)run->duration / 1e9, .peak = run->peak};
    struct series ttft = {0}, ttft_sent = {0}, e2el = {0}, e2el_sent = {0}, itl = {0}, tpot = {0},
                  queued = {0};
    struct series lag = {0};
    for (size_t i = 0; i < run->num; i++) {
        const struct request_record *r = run->records[i];
        if (r->error == ERROR_INTERRUPTED) {
            res->interrupted++;
            continue;
        }
        series_add(&lag, ms(r->sent - r->ready));
        series_add(&queued, ms(r->ready - r->intended));
        if (r->error != ERROR_NONE) {
            res->failed++;
            add_error(res, r);
            continue;
        }
        count(res, r, o);
        series_add(&e2el, ms(r->last - r->intended));
        series_add(&e2el_sent, ms(r->last - r->sent));
        if (r->first) {
            series_add(&ttft, ms(r->first - r->intended));
            series_add(&ttft_sent, ms(r->first - r->sent));
        }
        if (tpot_of(r) >= 0)
            series_add(&tpot, tpot_of(r));
        for (uint32_t c = 1; c < r->num_chunks; c++)
            series_add(&itl, ms(r->at[c] - r->at[c - 1]));
    }
    res->ttft = finish(&ttft, &res->ttft_curve);
    res->ttft_sent = finish(&ttft_sent, &res->ttft_sent_curve);
    res->e2el = finish(&e2el, &res->e2el_curve);
    res->e2el_sent = finish(&e2el_sent, NULL);
    res->itl = finish(&itl, &res->itl_curve);
    res->tpot = finish(&tpot, &res->tpot_curve);
    res->queued = finish(&queued, NULL);
    res->lag = finish(&lag, NULL);
    if (res->duration > 0) {
        res->request_throughput = (double)res->completed / res->duration;
        res->output_throughput = (double)res->output_tokens / res->duration;
        res->total_token_throughput = (double)(res->input_tokens + res->output_tokens) / res->duration;
        res->goodput = (double)res->good / res->duration;
        res->cpu_share = run->cpu / res->duration;
    }
    add_windows(res, run);
    res->read_lag_known = run->lag.stamped * 2 > run->lag.reads && run->lag.reads;
    res->read_lag_p50 = client_lag_percentile(&run->lag, 50);
    res->read_lag_p99 = client_lag_percentile(&run->lag, 99);
    res->read_lag_max = (double)run->lag.max / 1e6;
    res->saturated =
        res->lag.p99 > 10 || res->read_lag_p99 > 10 || (res->cpu_share > 0.9 && res->duration > 1);
}
