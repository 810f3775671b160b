// An exchange with requests at the engine, when its response is over: a line of the log, and a span.
#include "exchange.h"

#include "log.h"
#include "observe/otlp.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>

double ms_between(int64_t from, int64_t to) { return from && to > from ? (double)(to - from) / 1e6 : 0; }

// ---- the span

// ns that a clock since 1970 is ahead of the monotonic one.
static int64_t epoch_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec - http_now();
}

static void set_times(struct span *s, const struct exchange *x) {
    int64_t scheduled = INT64_MAX, first = INT64_MAX, last = 0, epoch = epoch_ns();
    for (int i = 0; i < x->num_requests; i++) {
        const struct engine_request *r = &x->requests[i];
        if (r->num_tokens == 0)
            continue;
        scheduled = r->engine_scheduled < scheduled ? r->engine_scheduled : scheduled;
        first = r->engine_first < first ? r->engine_first : first;
        last = r->engine_last > last ? r->engine_last : last;
    }
    if (last == 0 && x->timing.time_scheduled) { // no token came, or it is a vector
        scheduled = x->timing.time_scheduled;
        last = x->timing.time_finished;
    }
    s->start = epoch + x->http->arrived;
    s->end = epoch + http_now();
    s->submitted = x->submitted ? epoch + x->submitted : 0;
    s->scheduled = last ? epoch + scheduled : 0;
    s->first = first != INT64_MAX ? epoch + first : 0;
    s->last = last ? epoch + last : 0;
}

static void send_span(const struct exchange *x, const struct usage *usage, int status, const char *finish) {
    struct trace_parent parent;
    uint8_t random[TRACE_ID + SPAN_ID];
    bool known = *x->id, child = trace_parent_read(&parent, x->http->head.traceparent);
    if ((child && !parent.sampled) || getrandom(random, sizeof random, 0) != sizeof random)
        return;
    struct span s = {.finish = finish,
                     .status = status,
                     .failed = status >= 500 || (status < 400 && strcmp(finish, "error") == 0),
                     .num_prompt = usage->prompt,
                     .num_cached = usage->cached,
                     .num_output = usage->completion};
    memcpy(s.trace, child ? parent.trace : random, TRACE_ID);
    memcpy(s.id, random + TRACE_ID, SPAN_ID);
    memcpy(s.parent, parent.span, child ? SPAN_ID : 0);
    snprintf(s.path, sizeof s.path, "%s", x->http->path);
    snprintf(s.request_id, sizeof s.request_id, "%s", known ? x->id : x->http->request_id);
    if (known) {
        snprintf(s.model, sizeof s.model, "%s", x->request->model);
        s.n = x->per_prompt;
        s.num_choices = x->num_requests;
        s.max_tokens = x->max_tokens;
        s.temperature = x->sampling->temperature;
        s.top_p = x->sampling->top_p;
    }
    set_times(&s, x);
    otlp_add(x->app->otlp, &s);
}

// ---- the line

void exchange_log(struct exchange *x, int status, const char *finish) {
    if (x->logged || !x->kind->submits)
        return;
    x->logged = true;
    const struct usage u = exchange_usage(x);
    const struct engine_request none = {0}, *r = x->num_requests ? &x->requests[0] : &none;
    int64_t arrived = x->http->arrived;
    double tpot = r->num_tokens > 1 ? ms_between(r->first, r->last) / (r->num_tokens - 1) : 0;
    log_msg(LOG_INFO,
            "request id=%s%s prompt=%lld cached=%lld output=%lld finish=%s queue_ms=%.1f ttft_ms=%.1f "
            "tpot_ms=%.2f e2e_ms=%.1f status=%d",
            x->http->request_id, app_key_note(x->app, &x->http->head).text, (long long)u.prompt,
            (long long)u.cached, (long long)u.completion, finish,
            ms_between(x->timing.time_submitted, x->timing.time_scheduled), ms_between(arrived, r->first),
            tpot, ms_between(arrived, http_now()), status);
    if (x->app->otlp)
        send_span(x, &u, status, finish);
}
