// GET and DELETE of responses that are kept.
#include "stored_responses.h"

#include "dialects/response_store.h"
#include "dialects/responses.h"
#include "requests/reply.h"

#include <stdlib.h>
#include <string.h>

#define PREFIX "/responses/"
#define ITEMS "/input_items"
enum { MAX_ITEMS = 100, DEFAULT_ITEMS = 20 };

static void list_items(struct http_request *request, const char *id, const struct buf *items) {
    const char *limit = http_query(request, "limit"), *order = http_query(request, "order");
    char *end = NULL;
    long n = limit ? strtol(limit, &end, 10) : DEFAULT_ITEMS;
    if (n < 1 || n > MAX_ITEMS || (limit && *end)) {
        REPLY_ERROR(request, 400, "out_of_range", "limit", "'limit' must be from 1 to %d.", MAX_ITEMS);
        return;
    }
    if (order && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0) {
        REPLY_ERROR(request, 400, NULL, "order", "'order' must be asc or desc.");
        return;
    }
    struct buf b = {0};
    responses_write_items(&b, id, items, (size_t)n, !(order && strcmp(order, "asc") == 0),
                          http_query(request, "after"));
    reply_json(request, &b);
}

void stored_response(struct app *app, struct http_request *request) {
    const char *path = strstr(request->path, PREFIX) + strlen(PREFIX),
               *stream = http_query(request, "stream");
    size_t len = strlen(path), tail = strlen(ITEMS);
    bool lists = len > tail && strcmp(path + len - tail, ITEMS) == 0;
    bool deletes = strcmp(request->method, "DELETE") == 0;
    uint8_t owner[SHA256_BYTES];
    struct buf body = {0}, items = {0};
    char *id = strndup(path, lists ? len - tail : len);
    app_tenant(app, &request->head, owner);
    if (!id || !app->model.store || (deletes && lists) ||
        !(deletes ? response_store_delete(app->model.store, owner, id)
                  : response_store_get(app->model.store, owner, id, &body, &items))) {
        REPLY_ERROR(request, 404, NULL, NULL, "There is no response '%.120s'%s.", id ? id : "",
                    app->model.store ? "" : ": the server keeps none without --store");
    } else if (stream && strcmp(stream, "true") == 0) {
        REPLY_ERROR(request, 400, "unsupported_parameter", "stream", "A kept response is not streamed.");
    } else if (lists) {
        list_items(request, id, &items);
    } else if (deletes) {
        buf_lit(&body, "{\"id\":");
        json_quote(&body, id, strlen(id));
        buf_lit(&body, ",\"object\":\"response\",\"deleted\":true}");
        reply_json(request, &body);
    } else {
        reply_json(request, &body);
    }
    buf_free(&body);
    buf_free(&items);
    free(id);
}
