// GET and DELETE of responses that are kept.
#include "stored_responses.h"

#include "dialects/response_store.h"
#include "dialects/responses.h"

#include <stdlib.h>
#include <string.h>

#define PREFIX "/responses/"
#define ITEMS "/input_items"
enum { MAX_ITEMS = 100, DEFAULT_ITEMS = 20 };

struct stored_response {
    struct exchange exchange; // first
    uint8_t owner[SHA256_BYTES];
    char *id;
    struct buf body, items;
    bool lists, deletes, oldest_first;
    size_t limit;
    char *after; // the id of an item; NULL: from the first
};

static bool read_page(struct stored_response *s, const struct http_request *request, struct api_error *e) {
    const char *limit = http_query(request, "limit"), *order = http_query(request, "order");
    char *end = NULL;
    long n = limit ? strtol(limit, &end, 10) : DEFAULT_ITEMS;
    if (n < 1 || n > MAX_ITEMS || (limit && *end))
        return api_fail(e, 400, "out_of_range", "limit", "'limit' must be from 1 to %d.", MAX_ITEMS);
    if (order && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)
        return api_fail(e, 400, NULL, "order", "'order' must be asc or desc.");
    s->limit = (size_t)n;
    s->oldest_first = order && strcmp(order, "asc") == 0;
    const char *after = http_query(request, "after");
    return !after || (s->after = strdup(after)) || api_fail_memory(e);
}

static bool read_path(struct stored_response *s, const struct http_request *request, struct api_error *e) {
    const char *path = strstr(request->path, PREFIX) + strlen(PREFIX);
    size_t len = strlen(path), tail = strlen(ITEMS);
    s->lists = len > tail && strcmp(path + len - tail, ITEMS) == 0;
    s->deletes = strcmp(request->method, "DELETE") == 0;
    app_tenant(s->exchange.app, &request->head, s->owner);
    s->id = strndup(path, s->lists ? len - tail : len);
    return s->id || api_fail_memory(e);
}

static bool begin_stored(struct exchange *x, struct api_error *e) {
    struct stored_response *s = (struct stored_response *)x;
    struct response_store *store = x->app->store;
    const char *stream = http_query(x->http, "stream");
    if (!read_path(s, x->http, e))
        return false;
    if (!store || (s->deletes && s->lists) ||
        !(s->deletes ? response_store_delete(store, s->owner, s->id)
                     : response_store_get(store, s->owner, s->id, &s->body, &s->items, NULL)))
        return api_fail(e, 404, NULL, NULL, "There is no response '%.120s'%s.", s->id,
                        store ? "" : ": the server keeps none without --store");
    if (stream && strcmp(stream, "true") == 0)
        return api_fail(e, 400, "unsupported_parameter", "stream", "A kept response is not streamed.");
    x->large = x->must = s->deletes ? response_store_waits(store) : s->lists && s->items.len > POOL_BODY;
    return !s->lists || read_page(s, x->http, e);
}

static bool write_stored(struct exchange *x, struct buf *out, struct api_error *e) { // perhaps in the pool
    struct stored_response *s = (struct stored_response *)x;
    (void)e;
    if (s->lists) {
        responses_write_items(out, s->id, &s->items, s->limit, !s->oldest_first, s->after);
    } else if (s->deletes) {
        response_store_save(x->app->store, s->owner, s->id);
        buf_lit(out, "{\"id\":");
        json_quote(out, s->id, strlen(s->id));
        buf_lit(out, ",\"object\":\"response\",\"deleted\":true}");
    } else {
        *out = s->body;
        s->body = (struct buf){0};
    }
    return true;
}

static void free_stored(struct exchange *x) {
    struct stored_response *s = (struct stored_response *)x;
    buf_free(&s->body);
    buf_free(&s->items);
    free(s->id);
    free(s->after);
}

const struct exchange_kind stored_response = {.size = sizeof(struct stored_response),
                                              .begin = begin_stored,
                                              .finish = write_stored,
                                              .done = free_stored};
