// Responses that are kept, of completions whose dialect has a body for later.
#include "background.h"
#include "completion_state.h"

#include "dialects/response_store.h"

bool completion_is_kept(const struct completion *c) {
    return c->dialect->snapshot && c->request.items.len > 0;
}

bool completion_waits(const struct completion *c) {
    return completion_is_kept(c) && response_store_waits(c->response.model->store);
}

static void write_body(const struct completion *c, struct buf *body) {
    buf_clear(body);
    c->dialect->snapshot(body, &c->response, c->stage, c->stage == RESPONSE_ENDED ? &c->usage : NULL,
                         c->stage == RESPONSE_FAILED ? &c->exchange.error : NULL);
}

// Where its file cannot be written, it is kept until the server ends, and the body says so.
static void keep_body(struct completion *c, struct buf *body) {
    struct response_store *store = c->response.model->store;
    const struct background *b = c->exchange.background;
    const struct buf *events = b && !b->request.out.bytes.failed ? &b->request.out.bytes : NULL;
    const uint8_t *owner = c->request.base.tenant;
    response_store_put(store, owner, c->response.id, body, &c->request.items, events, STORED_WHOLE);
    if (response_store_save(store, owner, c->response.id))
        return;
    c->response.unkept = true;
    write_body(c, body);
    response_store_put(store, owner, c->response.id, body, &c->request.items, events, STORED_UNSAVED);
}

void completion_keep(struct exchange *x) {
    struct completion *c = (struct completion *)x;
    struct buf body = {0};
    write_body(c, &body);
    keep_body(c, &body);
    buf_free(&body);
}

void completion_keep_whole(struct completion *c, struct buf *body) { keep_body(c, body); }
