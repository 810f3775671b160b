// Completions that go on in the background, of dialects that keep responses.
#include "completion_background.h"

#include "completion_state.h"
#include "dialects/response_store.h"
#include "follow.h"

#include <string.h>

// From now on the response has a record, and the client is another exchange's.
bool completion_detach(struct completion *c, struct api_error *e) {
    struct exchange *x = &c->exchange;
    const struct completion_request *q = &c->request;
    struct http_request *client = x->http;
    struct background *b = background_new(client);
    struct buf body = {0};
    if (!b)
        return api_fail_memory(e);
    c->dialect->snapshot(&body, &c->response, RESPONSE_QUEUED, NULL, NULL);
    if (q->stream)
        c->dialect->role(&b->request.out, &c->response, NULL);
    response_store_put(x->app->store, q->base.tenant, x->id, &body, &q->items, &b->request.out.bytes,
                       STORED_UNFINISHED);
    x->http = &b->request;
    x->background = b;
    x->app->num_background++;
    b->request.streaming = c->begun = q->stream;
    background_show(b);
    if (!follow_start(x->app, client, b, q->base.tenant, x->id, &body, q->stream))
        completion_cancel(x, NULL); // its client will never know its id
    buf_free(&body);
    return true;
}

static void save_last(struct exchange *x) { // perhaps in the pool
    struct completion *c = (struct completion *)x;
    if (!x->background->deleted)
        completion_keep(x);
    else
        response_store_save(c->response.model->store, c->request.base.tenant, x->id);
}

void completion_end_made(struct exchange *x) {
    struct completion *c = (struct completion *)x;
    if (x->background->deleted)
        response_store_delete(x->app->store, c->request.base.tenant, x->id);
    background_end(x->background);
}

// Writes the last events of one that does not end by itself.
static void write_end(struct completion *c, enum response_stage stage) {
    struct exchange *x = &c->exchange;
    c->stage = stage;
    if (x->background->request.streaming)
        c->dialect->fail(&x->http->out, &c->response, stage == RESPONSE_FAILED ? &x->error : NULL);
}

static void save_end(struct exchange *x) {
    exchange_step(x, completion_waits((struct completion *)x), save_last, completion_end_made);
}

void completion_end_background(struct completion *c) {
    if (c->exchange.error.status)
        write_end(c, RESPONSE_FAILED);
    save_end(&c->exchange);
}

bool completion_cancel(struct exchange *x, struct buf *body) {
    struct completion *c = (struct completion *)x;
    if (x->state != EXCHANGE_OPEN || x->held)
        return false;
    exchange_cancel(x);
    x->state = EXCHANGE_ENDED;
    exchange_log(x, 200, "cancelled");
    write_end(c, RESPONSE_CANCELLED);
    if (body)
        c->dialect->snapshot(body, &c->response, RESPONSE_CANCELLED, NULL, NULL);
    save_end(x);
    return true;
}

struct exchange *completion_find(const struct app *app, const uint8_t owner[SHA256_BYTES], const char *id) {
    for (struct exchange *x = app->num_background ? app->exchanges : NULL; x; x = x->next)
        if (x->background && !x->background->ended && strcmp(x->id, id) == 0 &&
            memcmp(((struct completion *)x)->request.base.tenant, owner, SHA256_BYTES) == 0)
            return x;
    return NULL;
}

void completion_snapshot(const struct exchange *x, struct buf *body) {
    const struct completion *c = (const struct completion *)x;
    // The pool may write the others, and the state.
    const struct response held = {
        .request = &c->request, .model = c->response.model, .head = c->response.head};
    enum response_stage stage = x->state == EXCHANGE_ENDED  ? c->stage
                                : x->requests[0].num_tokens ? RESPONSE_RUNNING
                                                            : RESPONSE_QUEUED;
    if (x->held && stage == RESPONSE_ENDED)
        stage = RESPONSE_RUNNING;
    c->dialect->snapshot(body, x->held ? &held : &c->response, stage, NULL,
                         stage == RESPONSE_FAILED ? &x->error : NULL);
}
