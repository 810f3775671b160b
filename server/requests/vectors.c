#include "vectors.h"

#include "api/loras.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

// Floats of a response that the loop writes itself; longer ones are written in the pool.
enum { LARGE = 16 * 1024 };

struct vectors {
    struct exchange exchange; // first
    const struct vector_dialect *dialect;
    struct vector_request request;
    struct vector_response response;
};

static struct vectors *vectors_of(struct exchange *x) { return (struct vectors *)x; }

static bool read_body(struct exchange *x, const char *body, size_t len, struct api_error *e) {
    struct vectors *v = vectors_of(x);
    bool ok = v->dialect->parse(&v->request, &x->app->model, body, len, e);
    x->request = &v->request.base;
    x->ignored = v->request.base.ignored;
    return ok;
}

static struct request *make_request(struct exchange *x, const struct engine_request *r) {
    const struct vector_request *q = &vectors_of(x)->request;
    const struct served_model *m = &x->app->model;
    const struct token_buf *input = &q->base.prompts[r->index];
    const struct request_params p = {
        .id = r->id,
        .prompt = input->ids,
        .num_prompt = (int)input->len,
        .sampling = *x->sampling,
        .priority = q->base.priority,
        .salt = q->base.salt,
        .num_salt = (int)q->base.salt_len,
        .adapter = q->base.lora ? q->base.lora->adapter : NULL,
        .draft = engine_draft(x->app->engine) != NULL,
        .pooling = m->pooling,
        .vector_size = m->vector_room,
        .second_text = q->second_text ? q->second_text[r->index] : 0,
    };
    return request_new(&p, engine_info(x->app->engine)->block_size);
}

// A large body must not take all of the queue.
static bool submit_some(struct exchange *x, struct api_error *e) {
    return exchange_submit(x, 2 * engine_info(x->app->engine)->max_num_seqs, make_request, e);
}

static bool begin_vectors(struct exchange *x, struct api_error *e) {
    struct vectors *v = vectors_of(x);
    const struct served_model *m = &x->app->model;
    if (!exchange_make_requests(x, v->dialect->id_prefix, v->request.base.num_prompts, 1, e))
        return false;
    size_t num = (size_t)x->num_requests * (size_t)m->vector_size;
    v->response = (struct vector_response){.request = &v->request,
                                           .model = m,
                                           .id = x->id,
                                           .created = (int64_t)time(NULL),
                                           .vectors = malloc(num * sizeof(float)),
                                           .num_prompt = x->num_prompt};
    x->large = num > LARGE;
    return v->response.vectors ? submit_some(x, e) : api_fail_memory(e);
}

static void take_vector(struct exchange *x, struct engine_request *r, struct service_event *ev) {
    struct vectors *v = vectors_of(x);
    size_t size = (size_t)x->app->model.vector_size;
    struct api_error e = {0};
    memcpy(v->response.vectors + (size_t)r->index * size, ev->vector, size * sizeof(float));
    r->finish = ev->finish;
    r->complete = true;
    v->response.total_ms = ms_between(x->http->arrived, http_now());
    if (!submit_some(x, &e))
        exchange_fail(x, &e);
}

static void count_kept(struct exchange *x) {
    size_t size = (size_t)x->app->model.vector_size * sizeof(float);
    exchange_keep(x, (size_t)(x->num_submitted - x->num_open) * size);
}

static bool write_response(struct exchange *x, struct buf *out, struct api_error *e) {
    struct vectors *v = vectors_of(x);
    (void)e;
    v->dialect->write(out, &v->response);
    return true;
}

static void free_vectors(struct exchange *x) {
    struct vectors *v = vectors_of(x);
    free(v->response.vectors);
    vector_request_free(&v->request);
}

void vectors_start(struct app *app, struct http_request *request, const struct vector_dialect *dialect) {
    static const struct exchange_kind kind = {.size = sizeof(struct vectors),
                                              .submits = true,
                                              .read = read_body,
                                              .begin = begin_vectors,
                                              .answered = take_vector,
                                              .flush = count_kept,
                                              .finish = write_response,
                                              .done = free_vectors};
    struct vectors *v = (struct vectors *)exchange_new(app, request, &kind);
    if (!v)
        return;
    v->dialect = dialect;
    exchange_run(&v->exchange);
}
