#include "inquiry.h"

#include "api/field_table.h"
#include "job.h"
#include "reply.h"

#include <stddef.h>
#include <stdlib.h>

static void inquiry_free(struct inquiry *q) {
    q->app->num_jobs--;
    http_free_body(&q->app->http, &q->body);
    if (q->kind->free)
        q->kind->free(q);
    buf_free(&q->out);
    free(q);
}

// Ends it, with a response where somebody waits for one.
static void inquiry_end(struct inquiry *q) {
    struct http_request *request = q->request;
    if (!request) {
        inquiry_free(q);
        return;
    }
    q->replied = true; // inquiry_done() frees it
    if (*q->ignored)
        http_header(request, "x-quire-ignored", q->ignored);
    if (q->error.status) {
        reply_error(request, &q->error);
    } else {
        ignored_merge(q->app->ignored, q->ignored);
        reply_json(request, &q->out);
    }
}

static struct inquiry *of_work(struct pool_work *w) {
    return (struct inquiry *)((char *)w - offsetof(struct inquiry, work));
}

// Queues work in the pool. False: it is done here.
static bool queue_work(struct inquiry *q, void (*work)(struct pool_work *),
                       void (*done)(struct pool_work *, bool)) {
    q->work = (struct pool_work){.work = work, .done = done};
    return work_pool_queue(&q->app->pool, &q->client, &q->work);
}

static void write_work(struct pool_work *w) {
    struct inquiry *q = of_work(w);
    if (!q->error.status)
        q->kind->write(q, &q->out, &q->error);
}

static void after_write(struct pool_work *w, bool done) {
    struct inquiry *q = of_work(w);
    if (!done && app_accepts(q->app, &q->error))
        api_fail_memory(&q->error);
    struct http *http = q->request ? &q->app->http : NULL;
    inquiry_end(q);
    if (http)
        http_run(http);
}

static void on_answer(struct service_query *query) {
    struct inquiry *q = query->arg;
    if (!q->request) {
        inquiry_free(q);
        return;
    }
    if (q->kind->answered)
        q->kind->answered(q);
    if (q->large && queue_work(q, write_work, after_write))
        return;
    write_work(&q->work);
    inquiry_end(q); // who took the answers lets libmicrohttpd run
}

static void ask_engine(struct inquiry *q) {
    if (!q->request) {
        inquiry_free(q);
        return;
    }
    if (!q->error.status && app_accepts(q->app, &q->error) && q->kind->begin(q, &q->error) && q->query) {
        q->query->done = on_answer;
        q->query->arg = q;
        if (service_ask(q->app->service, q->query) == STATUS_OK)
            return;
        q->error.retry_after = 1;
        api_fail(&q->error, 503, "overloaded", NULL, "Too many requests look at the engine.");
    }
    write_work(&q->work);
    inquiry_end(q);
}

static void read_work(struct pool_work *w) {
    struct inquiry *q = of_work(w);
    q->kind->read(q, q->body.data, q->body.len, &q->error);
}

static void after_read(struct pool_work *w, bool done) {
    struct inquiry *q = of_work(w);
    if (!done && app_accepts(q->app, &q->error))
        api_fail_memory(&q->error);
    struct http *http = q->request ? &q->app->http : NULL;
    ask_engine(q);
    if (http)
        http_run(http);
}

void inquiry_start(struct app *app, struct http_request *request, const struct inquiry_kind *kind) {
    struct inquiry *q = calloc(1, kind->size);
    if (!q) {
        struct api_error e = {.retry_after = 5};
        api_fail_memory(&e);
        reply_error(request, &e);
        return;
    }
    q->kind = kind;
    q->app = app;
    q->request = request;
    q->body = http_take_body(request);
    q->client = app_client(app, request);
    request->user = q;
    app->num_jobs++;
    if (kind->read) {
        if ((q->body.len > POOL_BODY || http_turn_over(&app->http)) && queue_work(q, read_work, after_read))
            return;
        read_work(&q->work);
    }
    ask_engine(q);
}

void inquiry_done(struct http_request *request) {
    struct inquiry *q = request->user;
    request->user = NULL;
    if (q && q->replied)
        inquiry_free(q);
    else if (q)
        q->request = NULL;
}
