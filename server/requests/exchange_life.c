// The life of exchanges: one after another through read, begin, answered, finish and done.
#include "exchange.h"

#include "api/field_table.h"
#include "background.h"
#include "log.h"
#include "reply.h"

#include <stddef.h>
#include <stdlib.h>

enum {
    IGNORED_SECONDS = 10, // between lines of the log about ignored fields
    KEPT_PART = 64, // of the memory of all responses: one that keeps less is not given up for the others
    EVENT_BATCH = 64,
    OUT_BOUND = 256 * 1024, // bytes that a reader has not taken
    STALL_SECONDS = 30,
    PING_SECONDS = 15,
};
#define SECOND 1000000000LL

static void mark_flush(struct exchange *x) {
    if (x->needs_flush)
        return;
    x->needs_flush = true;
    x->next_flush = x->app->flush_list;
    x->app->flush_list = x;
}

// ---- its end

static void exchange_free(struct exchange *x) {
    struct app *app = x->app;
    if (x->needs_flush) {
        struct exchange **p = &app->flush_list;
        while (*p != x)
            p = &(*p)->next_flush;
        *p = x->next_flush;
    }
    *(x->prev ? &x->prev->next : &app->exchanges) = x->next;
    if (x->next)
        x->next->prev = x->prev;
    app->num_exchanges--;
    app->num_streams -= x->kind->submits;
    app->num_background -= x->background != NULL;
    app->kept -= x->kept;
    if (x->kind->done)
        x->kind->done(x);
    free(x->requests);
    http_free_body(&x->app->http, &x->body);
    buf_free(&x->out);
    background_release(x->background);
    free(x);
}

void exchange_fail(struct exchange *x, const struct api_error *e) {
    if (x->state == EXCHANGE_ENDED)
        return;
    if (e != &x->error)
        x->error = *e;
    exchange_cancel(x);
    x->state = EXCHANGE_ENDED;
    exchange_log(x, x->http->streaming ? 200 : e->status, "error");
    if (x->http->streaming || x->background)
        x->kind->flush(x);
    else
        reply_error(x->http, e);
}

void exchange_end_stream(struct exchange *x) {
    x->state = EXCHANGE_ENDED;
    http_stream_end(x->http);
    exchange_log(x, 200, finish_name(x->requests[0].finish));
}

bool exchange_is_behind(struct exchange *x) {
    if (sse_pending(&x->http->out) <= OUT_BOUND)
        return false;
    x->http->want_drained = true;
    x->over_since = x->over_since ? x->over_since : http_now();
    return true;
}

bool exchange_stalls(const struct exchange *x) {
    return x->over_since && http_now() - x->over_since > STALL_SECONDS * SECOND;
}

bool exchange_is_silent(const struct exchange *x) {
    return sse_pending(&x->http->out) == 0 && http_now() - x->last_write > PING_SECONDS * SECOND;
}

void exchange_send(struct exchange *x) {
    if (sse_pending(&x->http->out) == 0)
        return;
    x->last_write = http_now();
    http_wake(x->http);
}

void exchange_give_up(struct exchange *x) {
    x->app->metrics.stalled++;
    exchange_cancel(x);
    x->state = EXCHANGE_ENDED;
    exchange_log(x, 200, "stalled");
    http_stream_break(x->http);
    http_kill(x->http);
}

bool exchange_keep(struct exchange *x, size_t bytes) {
    struct app *app = x->app;
    struct api_error e = {.retry_after = 5};
    size_t max = (size_t)app->config->max_response_memory;
    app->kept += bytes - x->kept;
    x->kept = bytes;
    if (app->kept <= max || bytes <= max / KEPT_PART)
        return true;
    api_fail(&e, 503, "overloaded", NULL, "The responses being made take too much memory: stream this one.");
    if (x->streams && !x->background)
        exchange_give_up(x);
    else
        exchange_fail(x, &e);
    return false;
}

bool exchange_done(struct http_request *request) {
    struct exchange *x = request->user;
    if (!x)
        return false;
    bool logs = x->kind->submits;
    request->user = NULL;
    if (x->state != EXCHANGE_ENDED && logs) {
        x->app->metrics.disconnects++;
        exchange_cancel(x);
        exchange_log(x, request->streaming ? 200 : 499, "abort");
    }
    x->http = NULL;
    if (!x->held)
        exchange_free(x);
    else if (x->in_pool)
        work_pool_cancel(&x->work); // after_step() comes all the same, at once if the pool has not begun
    return logs;
}

// ---- steps, in the pool or here

static struct exchange *of_work(struct pool_work *w) {
    return (struct exchange *)((char *)w - offsetof(struct exchange, work));
}

static void step_work(struct pool_work *w) { // pool
    struct exchange *x = of_work(w);
    x->step(x);
}

// The pool has not done the work: it is stopped, or there is no memory for it.
static void fail_work(struct exchange *x) {
    if (app_accepts(x->app, &x->error))
        api_fail_memory(&x->error);
}

static void after_step(struct pool_work *w, bool done) {
    struct exchange *x = of_work(w);
    struct http *http = &x->app->http;
    x->held = x->in_pool = false;
    if (!x->http) {
        exchange_free(x);
        return;
    }
    if (!done && x->must)
        x->step(x);
    else if (!done)
        fail_work(x);
    x->next_step(x);
    http_run(http);
}

// False: the pool takes no work.
static bool queue_step(struct exchange *x, void (*step)(struct exchange *),
                       void (*next_step)(struct exchange *)) {
    x->work = (struct pool_work){.work = step_work, .done = after_step};
    x->step = step;
    x->next_step = next_step;
    x->held = x->in_pool = work_pool_queue(&x->app->pool, &x->client, &x->work);
    return x->in_pool;
}

static void run_step(struct exchange *x, bool pooled, void (*step)(struct exchange *),
                     void (*next_step)(struct exchange *)) {
    if (pooled && queue_step(x, step, next_step))
        return;
    step(x);
    next_step(x);
}

void exchange_step(struct exchange *x, bool pooled, void (*step)(struct exchange *),
                   void (*next)(struct exchange *)) {
    x->must = true;
    run_step(x, pooled, step, next);
}

// ---- from the last step to the first

static void send_response(struct exchange *x) {
    if (x->out.failed)
        api_fail_memory(&x->error);
    if (x->error.status) {
        exchange_fail(x, &x->error);
        return;
    }
    x->state = EXCHANGE_ENDED;
    if (x->background)
        x->kind->made(x);
    else
        reply_json(x->http, &x->out);
    if (x->kind->submits)
        exchange_log(x, 200, finish_name(x->requests[0].finish));
}

static void write_response(struct exchange *x) { // perhaps in the pool
    if (x->kind->finish)
        x->kind->finish(x, &x->out, &x->error);
}

static void finish_exchange(struct exchange *x) { run_step(x, x->large, write_response, send_response); }

static void flush_exchange(struct exchange *x);

static void on_answer(struct service_query *query) {
    struct exchange *x = query->arg;
    x->held = false;
    if (!x->http) {
        exchange_free(x);
        return;
    }
    if (x->kind->answered)
        x->kind->answered(x, NULL, NULL);
    if (x->streams)
        flush_exchange(x);
    else
        finish_exchange(x); // the caller lets libmicrohttpd run
}

bool exchange_ask(struct exchange *x) {
    x->query->done = on_answer;
    x->query->arg = x;
    x->held = x->app->service && service_ask(x->app->service, x->query) == STATUS_OK;
    return x->held;
}

static bool ask_engine(struct exchange *x, struct api_error *e) {
    if (exchange_ask(x))
        return true;
    e->retry_after = 1;
    return api_fail(e, 503, "overloaded", NULL, "Too many requests look at the engine.");
}

static void begin_exchange(struct exchange *x) {
    struct api_error *e = &x->error;
    x->state = EXCHANGE_OPEN;
    x->last_write = http_now();
    if (!e->status && x->ignored)
        ignored_merge(x->app->ignored, x->ignored); // of good requests: a bad one's names may be anything
    if (!e->status && x->kind->begin && app_accepts(x->app, e) && x->kind->begin(x, e) && x->query)
        ask_engine(x, e);
    if (e->status)
        exchange_fail(x, e);
    else if (x->streams)
        flush_exchange(x);
    else if (x->state == EXCHANGE_OPEN && !x->held && x->num_open == 0)
        finish_exchange(x);
}

static void prepare_exchange(struct exchange *x) { x->prepare(x, &x->error); } // pool

static void after_read(struct exchange *x) {
    http_free_body(&x->app->http, &x->body);
    if (x->ignored && *x->ignored)
        http_header(x->http, "x-quire-ignored", x->ignored);
    if (!x->error.status && x->prepare) {
        if (queue_step(x, prepare_exchange, begin_exchange))
            return;
        fail_work(x);
    }
    begin_exchange(x);
}

static void read_body(struct exchange *x) { // perhaps in the pool
    if (x->kind->read)
        x->kind->read(x, x->body.data, x->body.len, &x->error);
}

void exchange_run(struct exchange *x) {
    bool pooled = x->kind->reads_files || x->body.len > POOL_BODY || http_turn_over(&x->app->http);
    run_step(x, x->kind->read && pooled, read_body, after_read);
}

struct exchange *exchange_new(struct app *app, struct http_request *request,
                              const struct exchange_kind *kind) {
    struct exchange *x = calloc(1, kind->size);
    if (!x) {
        struct api_error e = {0};
        api_fail_memory(&e);
        reply_error(request, &e);
        return NULL;
    }
    x->kind = kind;
    x->app = app;
    x->http = request;
    x->body = http_take_body(request);
    x->client = app_client(app, request);
    x->predicted_ns = -1;
    x->next = app->exchanges;
    if (x->next)
        x->next->prev = x;
    app->exchanges = x;
    app->num_exchanges++;
    app->num_streams += kind->submits;
    request->user = x;
    return x;
}

void exchange_start(struct app *app, struct http_request *request, const struct exchange_kind *kind) {
    struct exchange *x = exchange_new(app, request, kind);
    if (x)
        exchange_run(x);
}

// ---- events

static void flush_exchange(struct exchange *x) {
    if (x->state != EXCHANGE_OPEN || x->held)
        return;
    if (x->kind->flush)
        x->kind->flush(x);
    if (x->state == EXCHANGE_OPEN && x->num_open == 0 && !x->streams)
        finish_exchange(x);
}

void exchange_drained(struct http_request *request) {
    struct exchange *x = request->user;
    if (!x)
        return;
    x->over_since = 0;
    flush_exchange(x);
}

// The engine has ended a request that was not complete.
static void fail_request(struct exchange *x, enum finish_reason why) {
    struct app *app = x->app;
    struct api_error e = {0};
    struct service_stats stats;
    app_stats(app, &stats);
    app->metrics.finished[why == FINISH_CANCELLED ? FINISH_CANCELLED : FINISH_ERROR]++;
    if (stats.dead)
        api_fail(&e, 503, "engine_unavailable", NULL, "The engine has failed; the server is restarting.");
    else if (why == FINISH_CANCELLED)
        api_fail(&e, 503, "shutting_down", NULL, "The server is shutting down.");
    else if (why == FINISH_FORBIDDEN)
        api_fail(&e, 400, "no_token_allowed", NULL,
                 "The request leaves no token that may come next: its constraint, lists, bans and minimum "
                 "forbid all of them.");
    else if (why == FINISH_LIMIT)
        api_fail(&e, 400, "no_token_allowed", NULL,
                 "The request's grammar, schema or regular expression takes too much work here: what it "
                 "allows next can be read in too many ways. Fewer nested repetitions help.");
    else
        api_fail(&e, 500, "internal_error", NULL, "The engine failed this request.");
    e.retry_after = e.status == 503 ? 5 : 0;
    exchange_fail(x, &e);
}

static void observe_end(const struct engine_request *r, const struct service_event *ev) {
    const struct exchange *x = r->exchange;
    struct metrics *m = &x->app->metrics;
    metrics_observe(m, M_E2E, (double)(http_now() - x->http->arrived) / 1e9);
    if (ev->time_scheduled) {
        metrics_observe(m, M_QUEUE, (double)(ev->time_scheduled - ev->time_submitted) / 1e9);
        metrics_observe(m, M_INFERENCE, (double)(ev->time_finished - ev->time_scheduled) / 1e9);
    }
    if (ev->time_first_token) {
        metrics_observe(m, M_PREFILL, (double)(ev->time_first_token - ev->time_scheduled) / 1e9);
        metrics_observe(m, M_DECODE, (double)(ev->time_finished - ev->time_first_token) / 1e9);
    }
    if (r->num_tokens > 1)
        metrics_observe(m, M_PER_TOKEN, (double)(r->last - r->first) / 1e9 / (r->num_tokens - 1));
    metrics_observe(m, M_PROMPT_TOKENS, ev->num_prompt);
    metrics_observe(m, M_PREFILL_TOKENS, ev->num_prompt - r->num_cached);
    metrics_observe(m, M_GENERATION_TOKENS, r->num_tokens);
    if (r->index % x->per_prompt == 0) { // once for each prompt, however many requests it has
        metrics_observe(m, M_PARAM_N, x->per_prompt);
        metrics_observe(m, M_PARAM_MAX_TOKENS, x->max_tokens);
    }
    m->finished[r->finish]++;
}

static void take_event(struct engine_request *r, struct service_event *ev) {
    struct exchange *x = r->exchange;
    bool ends = ev->kind == EVENT_FINISH;
    if (ends)
        engine_request_end(r, ev);
    if (ends && !r->complete && ev->finish >= FINISH_CANCELLED) {
        fail_request(x, ev->finish);
        return;
    }
    x->kind->answered(x, r, ev);
    if (x->state == EXCHANGE_ENDED)
        return;
    if (ends)
        observe_end(r, ev);
    mark_flush(x);
}

void exchanges_take_events(struct app *app) {
    struct service_event events[EVENT_BATCH];
    int n;
    while (app->service && (n = service_take(app->service, events, EVENT_BATCH)) > 0)
        for (int i = 0; i < n; i++) {
            struct engine_request *r = engine_request_find(app, events[i].id); // NULL: cancelled, and gone
            if (r)
                take_event(r, &events[i]);
            free(events[i].vector);
        }
    for (struct exchange *x = app->num_watchers ? app->exchanges : NULL; x; x = x->next)
        if (x->kind->watches)
            mark_flush(x);
    while (app->flush_list) {
        struct exchange *x = app->flush_list;
        app->flush_list = x->next_flush;
        x->needs_flush = false;
        flush_exchange(x);
    }
    exchanges_reap(app, false);
}

// ---- all

void exchanges_reap(struct app *app, bool all) {
    for (struct exchange *x = app->num_background ? app->exchanges : NULL, *next; x; x = next) {
        next = x->next;
        if (x->background && (all || (x->background->ended && !x->held)))
            exchange_free(x);
    }
}

static void log_ignored(struct app *app) {
    if (*app->ignored)
        log_msg(LOG_INFO, "ignored_fields=\"%s\"", app->ignored);
    *app->ignored = '\0';
}

void exchanges_tick(struct app *app, int64_t now) {
    if (*app->ignored && now - app->ignored_logged > IGNORED_SECONDS * SECOND) {
        app->ignored_logged = now;
        log_ignored(app);
    }
    for (struct exchange *x = app->exchanges; x; x = x->next)
        if (!x->in_pool && x->streams) // read() sets that in the pool
            flush_exchange(x);
    exchanges_reap(app, false);
}

void exchanges_fail(struct app *app, int status, const char *code, const char *message) {
    for (struct exchange *x = app->exchanges; x; x = x->next) {
        struct api_error e = {.retry_after = 5};
        api_fail(&e, status, code, NULL, "%s", message);
        if (x->kind->submits && x->state == EXCHANGE_OPEN && !x->held)
            exchange_fail(x, &e);
    }
}

void exchanges_free(struct app *app) {
    log_ignored(app);
    free(app->table);
    app->table = NULL;
}
