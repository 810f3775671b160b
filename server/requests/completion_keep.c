// Responses that are kept, of completions whose dialect has a body for later.
#include "completion_state.h"

#include "dialects/response_store.h"

bool completion_is_kept(const struct completion *c) {
    return c->dialect->snapshot && c->request.items.len > 0;
}

bool completion_waits(const struct completion *c) {
    return completion_is_kept(c) && response_store_waits(c->response.model->store);
}

// False: its file could not be written. It is kept all the same, until the server ends.
static bool keep_body(struct completion *c, const struct buf *body) {
    struct response_store *store = c->response.model->store;
    const uint8_t *owner = c->request.base.tenant;
    response_store_put(store, owner, c->response.id, body, &c->request.items, NULL, false);
    return response_store_save(store, owner, c->response.id);
}

void completion_keep(struct exchange *x) {
    struct completion *c = (struct completion *)x;
    const struct usage u = completion_usage(c);
    struct buf body = {0};
    c->dialect->snapshot(&body, &c->response, RESPONSE_ENDED, &u, NULL);
    c->response.unkept = !keep_body(c, &body);
    buf_free(&body);
}

void completion_keep_whole(struct completion *c, struct buf *body, const struct usage *usage) {
    if (keep_body(c, body))
        return;
    c->response.unkept = true;
    buf_clear(body);
    c->dialect->snapshot(body, &c->response, RESPONSE_ENDED, usage, NULL);
}
