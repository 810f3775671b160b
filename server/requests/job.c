#include "job.h"

struct job {
    struct exchange exchange; // first
    job_fn *fn;
    char ignored[IGNORED_SIZE];
};

static bool read_job(struct exchange *x, const char *body, size_t len, struct api_error *e) {
    struct job *j = (struct job *)x;
    x->ignored = j->ignored;
    return j->fn(&x->app->model, body, len, &x->out, j->ignored, e);
}

static void start(struct app *app, struct http_request *request, job_fn *fn,
                  const struct exchange_kind *kind) {
    struct job *j = (struct job *)exchange_new(app, request, kind);
    if (!j)
        return;
    j->fn = fn;
    exchange_run(&j->exchange);
}

void job_start(struct app *app, struct http_request *request, job_fn *fn) {
    static const struct exchange_kind kind = {.size = sizeof(struct job), .read = read_job};
    start(app, request, fn, &kind);
}

void job_start_pooled(struct app *app, struct http_request *request, job_fn *fn) {
    static const struct exchange_kind kind = {
        .size = sizeof(struct job), .reads_files = true, .read = read_job};
    start(app, request, fn, &kind);
}
