#include "job.h"

#include "api/field_table.h"
#include "reply.h"

#include <stdlib.h>

struct job {
    struct pool_work work; // first: a job is known by it
    struct app *app;
    struct http_request *request; // NULL: gone, while the pool works
    job_fn *fn;
    struct buf body, out;
    struct api_error error;
    char ignored[IGNORED_SIZE];
    bool replied;
};

static void work(struct pool_work *w) {
    struct job *j = (struct job *)w;
    j->fn(&j->app->model, j->body.data, j->body.len, &j->out, j->ignored, &j->error);
}

static void job_free(struct job *j) {
    j->app->num_jobs--;
    free(j);
}

static void after_work(struct pool_work *w, bool done) {
    struct job *j = (struct job *)w;
    struct http_request *request = j->request;
    struct http *http = &j->app->http;
    struct buf out = j->out;
    http_free_body(http, &j->body);
    if (!done && app_accepts(j->app, &j->error))
        api_fail_memory(&j->error);
    if (request) {
        j->replied = true; // and counts until it is sent: job_done() frees it
        if (*j->ignored)
            http_header(request, "x-quire-ignored", j->ignored);
        if (!j->error.status)
            ignored_merge(j->app->ignored, j->ignored);
        if (j->error.status)
            reply_error(request, &j->error);
        else
            reply_json(request, &out);
    } else {
        job_free(j);
    }
    buf_free(&out);
    if (request)
        http_run(http);
}

static void start(struct app *app, struct http_request *request, job_fn *fn, bool pooled) {
    struct job *j = calloc(1, sizeof *j);
    if (!j) {
        struct api_error e = {.retry_after = 5};
        api_fail_memory(&e);
        reply_error(request, &e);
        return;
    }
    struct work_client client = app_client(app, request);
    *j = (struct job){.work = {.work = work, .done = after_work},
                      .app = app,
                      .request = request,
                      .fn = fn,
                      .body = http_take_body(request)};
    request->user = j;
    app->num_jobs++;
    if ((pooled || j->body.len > POOL_BODY || http_turn_over(&app->http)) &&
        work_pool_queue(&app->pool, &client, &j->work))
        return;
    work(&j->work);
    after_work(&j->work, true);
}

void job_start(struct app *app, struct http_request *request, job_fn *fn) { start(app, request, fn, false); }

void job_start_pooled(struct app *app, struct http_request *request, job_fn *fn) {
    start(app, request, fn, true);
}

void job_done(struct http_request *request) {
    struct job *j = request->user;
    request->user = NULL;
    if (!j)
        return;
    if (j->replied) {
        job_free(j);
        return;
    }
    j->request = NULL;
    work_pool_cancel(&j->work); // after_work() comes all the same, at once if the pool has not begun
}
