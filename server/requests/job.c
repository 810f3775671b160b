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

void job_start(struct app *app, struct http_request *request, job_fn *fn, bool reads_files) {
    static const struct exchange_kind kinds[] = {
        {.size = sizeof(struct job), .read = read_job},
        {.size = sizeof(struct job), .read = read_job, .reads_files = true}};
    struct job *j = (struct job *)exchange_new(app, request, &kinds[reads_files]);
    if (!j)
        return;
    j->fn = fn;
    exchange_run(&j->exchange);
}
