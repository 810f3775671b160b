// From a body to a completion: parsed inline or in the pool, then submitted.
#include "api/field_table.h"
#include "api/structured.h"
#include "completion.h"
#include "completion_state.h"
#include "job.h"
#include "log.h"
#include "past_requests.h"
#include "reply.h"
#include "text.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// The body is parsed: gives it to the engine.
static void begin_completion(struct completion *c) {
    struct app *app = c->app;
    struct api_error *e = &c->error;
    ignored_merge(app->ignored, c->request.ignored); // of good requests: a bad one's names may be anything
    if (c->request.request_id[0] && !c->http->head.request_id)
        memcpy(c->http->request_id, c->request.request_id, sizeof c->request.request_id);
    snprintf(c->id, sizeof c->id, "%s%s", c->dialect->id_prefix,
             c->request.request_id[0] ? c->request.request_id : c->http->request_id);
    c->state = COMPLETION_RUNNING;
    c->last_write = http_now();
    for (size_t i = 0; i < c->request.num_prompts; i++)
        c->num_prompt += (int64_t)c->request.prompts[i].len;
    c->num_choices = (int)c->request.num_prompts * c->request.n;
    c->response = (struct response){.request = &c->request,
                                    .model = &app->model,
                                    .id = c->id,
                                    .fingerprint = app->fingerprint,
                                    .created = (int64_t)time(NULL),
                                    .num_choices = c->num_choices};
    c->dialect->begin(&c->response);
    c->choices = calloc((size_t)c->num_choices, sizeof *c->choices);
    if (!c->choices || !app_salt(app, &c->http->head, &c->request.salt, &c->request.salt_len)) {
        c->num_choices = 0;
        completion_fail_memory(c);
    } else if (!app_accepts(app, e) || !completion_submit(c, e)) {
        completion_fail(c, e);
    } else {
        uint8_t tenant[SHA256_BYTES];
        app_tenant(app, &c->http->head, tenant);
        past_requests_add(app->past, c->id, strlen(c->dialect->id_prefix), tenant, c->choices[0].id,
                          &c->request);
    }
}

static void begin_or_fail(struct completion *c) {
    if (!c->error.status) {
        begin_completion(c);
        return;
    }
    c->state = COMPLETION_RUNNING;
    completion_fail(c, &c->error);
}

static struct completion *of_work(struct pool_work *w) {
    return (struct completion *)((char *)w - offsetof(struct completion, work));
}

// The pool takes no work: it is stopped, or there is no memory for it.
static void fail_work(struct completion *c) {
    if (app_accepts(c->app, &c->error))
        api_fail_memory(&c->error);
}

static void
parse_work(struct pool_work *w) { // pool: touches nothing but this completion and the immutable model
    struct completion *c = of_work(w);
    c->dialect->parse(&c->request, &c->app->model, c->body.data, c->body.len, &c->error);
}

static void compile_work(struct pool_work *w) { // pool, too
    struct completion *c = of_work(w);
    structured_compile(&c->request, &c->app->model, &c->error);
}

static void after_compile(struct pool_work *w, bool done) {
    struct completion *c = of_work(w);
    if (!c->http) {
        completion_free(c);
        return;
    }
    if (!done)
        fail_work(c);
    begin_or_fail(c);
    http_run(&c->app->http);
}

static void after_parse(struct pool_work *w, bool done) {
    struct completion *c = of_work(w);
    struct http *http = &c->app->http;
    http_free_body(http, &c->body);
    if (!c->http) {
        completion_free(c);
        return;
    }
    if (*c->request.ignored)
        http_header(c->http, "x-quire-ignored", c->request.ignored);
    if (!done)
        fail_work(c);
    if (!c->error.status && c->request.structured) {
        c->work = (struct pool_work){.work = compile_work, .done = after_compile};
        if (work_pool_queue(&c->app->pool, &c->client, &c->work))
            return;
        fail_work(c);
    }
    begin_or_fail(c);
    http_run(http);
}

// Whether the model gives what the dialect asks for; otherwise the request has its response.
static bool check_kind(const struct app *app, struct http_request *request) {
    bool vectors = app->model.pooling != POOLING_NONE, scores = app->model.ranks;
    const struct dialect *d = request->dialect;
    if ((d->vector != NULL) == vectors && d->of_scores == scores)
        return true;
    REPLY_ERROR(request, 400, "unsupported_model", "model", "%s",
                scores    ? "This model ranks documents: POST /v1/rerank or /v1/score."
                : vectors ? "This model gives embeddings, not completions or scores: POST /v1/embeddings."
                : d->of_scores
                    ? "This model gives completions. To rank documents start the server with a reranker."
                    : "This model gives completions. For embeddings start the server with an embedding "
                      "model, or with --pooling last, mean or cls.");
    return false;
}

void completion_start(struct app *app, struct http_request *request) {
    if (!check_kind(app, request))
        return;
    struct completion *c = calloc(1, sizeof *c);
    struct api_error e = {.retry_after = 5};
    if (!c) {
        api_fail_memory(&e);
        reply_error(request, &e);
        return;
    }
    c->app = app;
    c->dialect = request->dialect;
    c->http = request;
    c->predicted_ns = -1;
    c->next = app->completions;
    if (c->next)
        c->next->prev = c;
    app->completions = c;
    app->num_completions++;
    request->user = c;
    c->body = http_take_body(request);
    app_tenant(app, &request->head, c->request.tenant);
    const char *key = app->auth.num_keys ? app_key(&request->head) : NULL;
    c->key = key ? auth_find(&app->auth, key, strlen(key)) : -1;
    c->client = app_client(app, request);
    c->work = (struct pool_work){.work = parse_work, .done = after_parse};
    if ((c->body.len > POOL_BODY || http_turn_over(&app->http)) &&
        work_pool_queue(&app->pool, &c->client, &c->work))
        return;
    parse_work(&c->work);
    after_parse(&c->work, true);
}
