#include "job.h"

#include <stdlib.h>

struct job {
    uv_work_t work;
    struct app *app;
    struct http_call *call; // NULL: gone, while the pool works
    job_fn *fn;
    struct buf body, out;
    struct api_error error;
    bool answered;
};

static void work(uv_work_t *w) {
    struct job *j = w->data;
    j->fn(&j->app->model, j->body.data, j->body.len, &j->out, &j->error);
}

static void job_free(struct job *j) {
    j->app->num_jobs--;
    free(j);
}

static void after_work(uv_work_t *w, int status) {
    (void)status;
    struct job *j = w->data;
    struct http_call *call = j->call;
    struct http *http = &j->app->http;
    struct buf out = j->out;
    http_free_body(http, &j->body);
    if (call) {
        j->answered = true; // and counts until it is sent: job_done() frees it
        if (j->error.status)
            http_error(call, &j->error);
        else
            http_json(call, &out);
    } else {
        job_free(j);
    }
    buf_free(&out);
    if (call)
        http_run(http);
}

void job_start(struct app *app, struct http_call *call, job_fn *fn) {
    struct job *j = calloc(1, sizeof *j);
    if (!j) {
        struct api_error e = {.retry_after = 5};
        api_fail(&e, 503, "overloaded", NULL, "The server is out of memory.");
        http_error(call, &e);
        return;
    }
    *j = (struct job){.app = app, .call = call, .fn = fn, .body = http_take_body(call)};
    j->work.data = j;
    call->user = j;
    app->num_jobs++;
    if (j->body.len > POOL_BODY && uv_queue_work(&app->loop, &j->work, work, after_work) == 0)
        return;
    work(&j->work);
    after_work(&j->work, 0);
}

void job_done(struct http_call *call) {
    struct job *j = call->user;
    call->user = NULL;
    if (!j)
        return;
    if (j->answered) {
        job_free(j);
        return;
    }
    j->call = NULL;
    uv_cancel((uv_req_t *)&j->work); // after_work() comes all the same, soon if the pool has not begun
}
