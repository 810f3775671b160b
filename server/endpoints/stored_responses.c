// Responses that are kept, and those in the background, which will be.
#include "stored_responses.h"

#include "api/fields.h"
#include "dialects/response_store.h"
#include "dialects/responses.h"
#include "requests/completion_background.h"
#include "requests/follow.h"

#include <stdlib.h>
#include <string.h>

#define PREFIX "/responses/"
#define ITEMS "/input_items"
#define CANCEL "/cancel"
enum { MAX_ITEMS = 100, DEFAULT_ITEMS = 20 };

struct stored_response {
    struct follow follow; // first
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

static bool read_path(struct stored_response *s, const char *end, struct api_error *e) {
    const struct http_request *request = s->follow.exchange.http;
    const char *path = strstr(request->path, PREFIX) + strlen(PREFIX);
    size_t len = strlen(path), tail = strlen(end);
    bool ends = len > tail && strcmp(path + len - tail, end) == 0;
    s->lists = ends && strcmp(end, ITEMS) == 0;
    s->deletes = strcmp(request->method, "DELETE") == 0;
    app_tenant(s->follow.exchange.app, &request->head, s->owner);
    s->id = strndup(path, ends ? len - tail : len);
    return s->id || api_fail_memory(e);
}

static bool fail_absent(const struct stored_response *s, struct api_error *e) {
    return api_fail(e, 404, NULL, NULL, "There is no response '%.120s'%s.", s->id,
                    s->follow.exchange.app->store ? "" : ": the server keeps none without --store");
}

static bool is_background(const struct buf *body) {
    json_t *response = json_loadb(body->data, body->len, JSON_ALLOW_NUL, NULL);
    bool is = json_is_true(json_object_get(response, "background"));
    json_decref(response);
    return is;
}

// Streams the events behind number starting_after, of one that is being made or has ended.
static bool begin_stream(struct stored_response *s, struct exchange *made, struct api_error *e) {
    struct follow *f = &s->follow;
    const char *text = http_query(f->exchange.http, "starting_after");
    char *end = NULL;
    long long after = text ? strtoll(text, &end, 10) : -1;
    if (text && (!*text || *end || after < 0 || after > INT32_MAX))
        return api_fail(e, 400, "out_of_range", "starting_after",
                        "'starting_after' must be the number of an event.");
    const struct buf *events = made ? &made->background->request.out.bytes : &f->events;
    if (!events->len)
        return api_fail(e, 400, "unsupported_parameter", "stream",
                        "Only responses made with 'background' and 'stream' are streamed again.");
    if (!made && !exchange_keep(&f->exchange, events->len))
        return false;
    if (made)
        f->source = background_hold(made->background);
    f->skip = after + 1;
    int64_t num = made ? INT64_MAX : follow_count(events);
    if (after >= num) // the last events of a server that was killed are lost; that of the end is not
        f->skip = num - 1;
    follow_begin(f);
    return true;
}

static bool begin_stored(struct exchange *x, struct api_error *e) {
    struct stored_response *s = (struct stored_response *)x;
    struct response_store *store = x->app->store;
    const char *stream = http_query(x->http, "stream");
    if (!read_path(s, ITEMS, e))
        return false;
    bool streams = !s->deletes && !s->lists && stream && strcmp(stream, "true") == 0;
    struct exchange *made = s->lists ? NULL : completion_find(x->app, s->owner, s->id);
    if (!store || (s->deletes && s->lists) ||
        !(s->deletes ? response_store_delete(store, s->owner, s->id) || made
                     : made || response_store_get(store, s->owner, s->id, &s->body, &s->items,
                                                  streams ? &s->follow.events : NULL)))
        return fail_absent(s, e);
    if (streams)
        return begin_stream(s, made, e);
    if (s->deletes && made) {
        made->background->deleted = true;
        completion_cancel(made, NULL);
    } else if (made) {
        completion_snapshot(made, &s->body);
    }
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
    follow_free(x);
    buf_free(&s->body);
    buf_free(&s->items);
    free(s->id);
    free(s->after);
}

const struct exchange_kind stored_response = {.size = sizeof(struct stored_response),
                                              .begin = begin_stored,
                                              .flush = follow_flush,
                                              .finish = write_stored,
                                              .done = free_stored};

// ---- POST

static bool begin_cancellation(struct exchange *x, struct api_error *e) {
    struct stored_response *s = (struct stored_response *)x;
    if (!read_path(s, CANCEL, e))
        return false;
    struct exchange *made = completion_find(x->app, s->owner, s->id);
    if (made) {
        if (!completion_cancel(made, &s->body))
            completion_snapshot(made, &s->body);
    } else if (!x->app->store || !response_store_get(x->app->store, s->owner, s->id, &s->body, NULL, NULL)) {
        return fail_absent(s, e);
    } else if (!is_background(&s->body)) {
        return api_fail(e, 400, NULL, NULL, "Only responses made with 'background' can be cancelled.");
    }
    return true;
}

const struct exchange_kind response_cancellation = {.size = sizeof(struct stored_response),
                                                    .begin = begin_cancellation,
                                                    .finish = write_stored,
                                                    .done = free_stored};
