#include "exchange.h"

#include "api/field_table.h"
#include "reply.h"

#include <stddef.h>
#include <stdlib.h>

static void exchange_free(struct exchange *x) {
    x->app->num_exchanges--;
    if (x->kind->done)
        x->kind->done(x);
    http_free_body(&x->app->http, &x->body);
    buf_free(&x->out);
    free(x);
}

void exchange_fail(struct exchange *x, const struct api_error *e) {
    if (x->state == EXCHANGE_ENDED)
        return;
    x->state = EXCHANGE_ENDED;
    reply_error(x->http, e);
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
    if (!done)
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

// ---- the life of an exchange, from its end to its beginning

static void send_response(struct exchange *x) {
    if (x->out.failed)
        api_fail_memory(&x->error);
    if (x->error.status) {
        exchange_fail(x, &x->error);
        return;
    }
    x->state = EXCHANGE_ENDED;
    reply_json(x->http, &x->out);
}

static void write_response(struct exchange *x) { // perhaps in the pool
    if (x->kind->finish)
        x->kind->finish(x, &x->out, &x->error);
}

static void finish_exchange(struct exchange *x) { run_step(x, x->large, write_response, send_response); }

static void on_answer(struct service_query *query) {
    struct exchange *x = query->arg;
    x->held = false;
    if (!x->http) {
        exchange_free(x);
        return;
    }
    if (x->kind->answered)
        x->kind->answered(x);
    finish_exchange(x); // who took the answers lets libmicrohttpd run
}

static bool ask_engine(struct exchange *x, struct api_error *e) {
    x->query->done = on_answer;
    x->query->arg = x;
    x->held = service_ask(x->app->service, x->query) == STATUS_OK;
    if (x->held)
        return true;
    e->retry_after = 1;
    return api_fail(e, 503, "overloaded", NULL, "Too many requests look at the engine.");
}

static void begin_exchange(struct exchange *x) {
    struct api_error *e = &x->error;
    if (!e->status && x->ignored)
        ignored_merge(x->app->ignored, x->ignored); // of good requests: a bad one's names may be anything
    if (!e->status && x->kind->begin && app_accepts(x->app, e) && x->kind->begin(x, e) && x->query)
        ask_engine(x, e);
    if (e->status)
        exchange_fail(x, e);
    else if (!x->held)
        finish_exchange(x);
}

static void after_read(struct exchange *x) {
    http_free_body(&x->app->http, &x->body);
    if (x->ignored && *x->ignored)
        http_header(x->http, "x-quire-ignored", x->ignored);
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
        struct api_error e = {.retry_after = 5};
        api_fail_memory(&e);
        reply_error(request, &e);
        return NULL;
    }
    x->kind = kind;
    x->app = app;
    x->http = request;
    x->body = http_take_body(request);
    x->client = app_client(app, request);
    request->user = x;
    app->num_exchanges++;
    return x;
}

void exchange_start(struct app *app, struct http_request *request, const struct exchange_kind *kind) {
    struct exchange *x = exchange_new(app, request, kind);
    if (x)
        exchange_run(x);
}

void exchange_done(struct http_request *request) {
    struct exchange *x = request->user;
    request->user = NULL;
    if (!x)
        return;
    x->http = NULL;
    if (!x->held)
        exchange_free(x);
    else if (x->in_pool)
        work_pool_cancel(&x->work); // after_step() comes all the same, at once if the pool has not begun
}
