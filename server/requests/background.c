#include "background.h"

#include <stdlib.h>
#include <string.h>

struct background *background_new(const struct http_request *client) {
    struct background *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    const char *const from[] = {client->path, client->head.authorization, client->head.api_key,
                                client->head.traceparent};
    struct http_request *r = &b->request;
    bool ok = true;
    for (size_t i = 0; i < sizeof from / sizeof *from; i++)
        ok &= !from[i] || (b->strings[i] = strdup(from[i]));
    b->references = 1;
    r->http = client->http;
    r->state = HTTP_WORK;
    r->route = client->route;
    r->form = client->form;
    r->arrived = client->arrived;
    memcpy(r->method, client->method, sizeof r->method);
    memcpy(r->request_id, client->request_id, sizeof r->request_id);
    r->path = b->strings[0];
    r->head.authorization = b->strings[1];
    r->head.api_key = b->strings[2];
    r->head.traceparent = b->strings[3];
    if (ok)
        return b;
    background_release(b);
    return NULL;
}

struct background *background_hold(struct background *b) {
    b->references++;
    return b;
}

void background_release(struct background *b) {
    if (!b || --b->references > 0)
        return;
    for (size_t i = 0; i < sizeof b->strings / sizeof *b->strings; i++) {
        if (b->strings[i]) // a key, perhaps
            explicit_bzero(b->strings[i], strlen(b->strings[i]));
        free(b->strings[i]);
    }
    buf_free(&b->request.headers);
    sse_free(&b->request.out);
    free(b);
}

static void tell(struct background *b) {
    b->shown = b->request.out.bytes.len;
    for (struct background_listener *l = b->listeners; l; l = l->next)
        l->heard(l);
}

void background_show(struct background *b) {
    if (b->shown < b->request.out.bytes.len)
        tell(b);
}

void background_end(struct background *b) {
    b->ended = true;
    tell(b);
}

void background_listen(struct background *b, struct background_listener *l) {
    l->next = b->listeners;
    b->listeners = l;
}

void background_leave(struct background *b, struct background_listener *l) {
    struct background_listener **at = &b->listeners;
    while (*at && *at != l)
        at = &(*at)->next;
    if (*at)
        *at = l->next;
}
