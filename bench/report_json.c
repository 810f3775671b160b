#include "report.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

static void put_int(json_t *o, const char *key, size_t v) {
    json_object_set_new(o, key, json_integer((json_int_t)v));
}
static void put_number(json_t *o, const char *key, double v) {
    json_object_set_new(o, key, isfinite(v) ? json_real(v) : json_null());
}
static void put_text(json_t *o, const char *key, const char *text) {
    json_object_set_new(o, key, text ? json_string(text) : json_null());
}

// mean_ttft_ms, median_ttft_ms, p99.9_ttft_ms … as vLLM names them
static void put_summary(json_t *o, const char *metric, const struct summary *s) {
    struct {
        const char *name;
        double v;
    } rows[] = {{"mean", s->mean}, {"median", s->p50}, {"std", s->std}, {"min", s->min}, {"max", s->max},
                {"p50", s->p50},   {"p90", s->p90},    {"p95", s->p95}, {"p99", s->p99}, {"p99.9", s->p999}};
    char key[64];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(key, sizeof key, "%s_%s_ms", rows[i].name, metric);
        if (s->n)
            put_number(o, key, rows[i].v);
        else
            json_object_set_new(o, key, json_null());
    }
}

static json_t *curve(const struct curve *c) {
    json_t *list = json_array();
    for (int i = 0; i < CURVE && c->any; i++)
        json_array_append_new(list, json_real(c->at[i]));
    return list;
}

static json_t *windows(const struct result *x) {
    json_t *list = json_array();
    for (size_t i = 0; i < x->num_windows; i++) {
        const struct window *w = &x->windows[i];
        json_t *one = json_object();
        put_number(one, "start_s", w->start);
        put_number(one, "completed", w->requests);
        put_number(one, "output_tokens", w->tokens);
        put_number(one, "running", w->running);
        put_number(one, "median_ttft_ms", w->ttft50 < 0 ? NAN : w->ttft50);
        put_number(one, "p99_ttft_ms", w->ttft99 < 0 ? NAN : w->ttft99);
        put_number(one, "median_itl_ms", w->itl50 < 0 ? NAN : w->itl50);
        put_number(one, "p99_itl_ms", w->itl99 < 0 ? NAN : w->itl99);
        json_array_append_new(list, one);
    }
    return list;
}

static json_t *errors(const struct result *x) {
    json_t *list = json_array();
    for (size_t i = 0; i < x->num_errors; i++) {
        json_t *one = json_object();
        put_text(one, "kind", error_name(x->errors[i].kind));
        if (x->errors[i].kind == ERROR_STATUS)
            put_int(one, "status", (size_t)x->errors[i].status);
        put_int(one, "count", x->errors[i].count);
        // The server may have said anything, and the end is cut off: JSON wants UTF-8.
        size_t len = strlen(x->errors[i].message), cut = 0;
        json_t *message = NULL;
        while (!message && cut < 4 && cut <= len)
            message = json_stringn(x->errors[i].message, len - cut++);
        json_object_set_new(one, "message", message ? message : json_string("(not UTF-8)"));
        json_array_append_new(list, one);
    }
    return list;
}

static json_t *goals(const struct options *o) {
    json_t *g = json_object();
    if (o->goal_ttft >= 0)
        put_number(g, "ttft", o->goal_ttft);
    if (o->goal_tpot >= 0)
        put_number(g, "tpot", o->goal_tpot);
    if (o->goal_itl >= 0)
        put_number(g, "itl", o->goal_itl);
    if (o->goal_e2el >= 0)
        put_number(g, "e2el", o->goal_e2el);
    return g;
}

static void put_load(json_t *root, const struct report *r) {
    static const char *const arrivals[] = {"closed", "poisson", "gamma", "constant", "trace"};
    const struct load_plan *p = &r->run->plan;
    const struct options *o = r->o;
    char date[32];
    time_t when = (time_t)r->run->started_unix;
    struct tm tm;
    gmtime_r(&when, &tm);
    strftime(date, sizeof date, "%Y%m%d-%H%M%S", &tm);
    put_text(root, "date", date);
    put_text(root, "client", "quire-bench");
    put_int(root, "started_monotonic_ns", (size_t)r->run->started);
    put_text(root, "label", o->label);
    put_text(root, "endpoint_type", o->chat ? "openai-chat" : "openai");
    put_text(root, "endpoint", o->path);
    put_text(root, "model_id", r->model);
    json_object_set_new(root, "tokenizer_id", json_null());
    put_text(root, "dataset_name", dataset_names[o->dataset]);
    put_text(root, "prompt_form", r->form);
    json_object_set_new(root, "streaming", json_boolean(!o->no_stream));
    put_int(root, "num_prompts", r->run->num);
    if (p->arrival == ARRIVAL_CLOSED)
        put_text(root, "request_rate", "inf");
    else
        put_number(root, "request_rate", p->arrival == ARRIVAL_TRACE ? NAN : p->rate);
    put_text(root, "arrivals", arrivals[p->arrival]);
    put_number(root, "burstiness", p->burstiness);
    if (p->max_concurrency)
        put_int(root, "max_concurrency", (size_t)p->max_concurrency);
    else
        json_object_set_new(root, "max_concurrency", json_null());
    put_int(root, "seed", (size_t)o->seed);
}

json_t *report_json(const struct report *r) {
    const struct result *x = r->res;
    json_t *root = json_object();
    put_load(root, r);
    put_number(root, "duration", x->duration);
    put_int(root, "completed", x->completed);
    put_int(root, "failed", x->failed);
    put_int(root, "interrupted", x->interrupted);
    json_object_set_new(root, "errors_by_kind", errors(x));
    put_int(root, "total_input_tokens", x->input_tokens);
    put_int(root, "total_output_tokens", x->output_tokens);
    put_text(root, "tokens_counted_by",
             x->with_usage == x->completed ? "usage"
             : x->with_usage               ? "usage and chunks"
                                           : "chunks");
    put_int(root, "output_chunks", x->chunks);
    put_number(root, "request_throughput", x->request_throughput);
    put_number(root, "output_throughput", x->output_throughput);
    put_number(root, "total_token_throughput", x->total_token_throughput);
    put_number(root, "max_output_tokens_per_s", x->max_output_tokens_per_s);
    put_int(root, "max_concurrent_requests", x->peak);
    if (r->o->has_goals) {
        json_object_set_new(root, "goodput", goals(r->o));
        put_number(root, "request_goodput", x->goodput);
        put_int(root, "good_requests", x->good);
    } else {
        json_object_set_new(root, "request_goodput", json_null());
    }
    if (x->has_cached)
        put_int(root, "total_cached_tokens", x->cached_tokens);
    put_number(root, "prefix_hit_rate",
               x->has_cached && x->input_tokens ? (double)x->cached_tokens / (double)x->input_tokens : NAN);
    put_number(root, "ideal_prefix_hit_rate",
               x->has_ideal && x->input_tokens ? (double)x->ideal_cached_tokens / (double)x->input_tokens
                                               : NAN);
    put_summary(root, "ttft", &x->ttft);
    put_summary(root, "ttft_from_send", &x->ttft_sent);
    put_summary(root, "tpot", &x->tpot);
    put_summary(root, "itl", &x->itl);
    put_summary(root, "e2el", &x->e2el);
    put_summary(root, "e2el_from_send", &x->e2el_sent);
    put_summary(root, "client_queue", &x->queued);
    put_summary(root, "client_send_lag", &x->lag);
    put_number(root, "p50_client_read_lag_ms", x->read_lag_known ? x->read_lag_p50 : NAN);
    put_number(root, "p99_client_read_lag_ms", x->read_lag_known ? x->read_lag_p99 : NAN);
    put_number(root, "max_client_read_lag_ms", x->read_lag_known ? x->read_lag_max : NAN);
    put_number(root, "client_cpu_share", x->cpu_share);
    json_object_set_new(root, "client_saturated", json_boolean(x->saturated));
    put_int(root, "connections", r->run->connections);
    put_int(root, "retries", r->run->retries);
    json_t *curves = json_object(); // percentiles 0, 0.5 … 100
    json_object_set_new(curves, "ttft_ms", curve(&x->ttft_curve));
    json_object_set_new(curves, "ttft_from_send_ms", curve(&x->ttft_sent_curve));
    json_object_set_new(curves, "itl_ms", curve(&x->itl_curve));
    json_object_set_new(curves, "tpot_ms", curve(&x->tpot_curve));
    json_object_set_new(curves, "e2el_ms", curve(&x->e2el_curve));
    json_object_set_new(root, "percentile_curves", curves);
    put_number(root, "window_s", x->window_s);
    json_object_set_new(root, "over_time", windows(x));
    return root;
}

bool report_write_json(const json_t *root, const char *path) {
    errno = 0;
    return json_dump_file(root, path, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) == 0;
}
