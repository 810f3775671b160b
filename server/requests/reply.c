#include "reply.h"

#include "dialects/openai.h"

#include <stdio.h>
#include <string.h>

void reply_error(struct http_request *request, const struct api_error *error) {
    struct buf b = {0};
    struct api_error own = *error, *e = &own;
    const struct api_form *form = request->form ? request->form : &openai_form;
    own.request_id = request->request_id;
    if (form->overloaded && e->code && strcmp(e->code, "overloaded") == 0)
        e->status = form->overloaded;
    char seconds[16];
    if (e->status == 401)
        http_header(request, "WWW-Authenticate", "Bearer");
    if (e->retry_after > 0) {
        snprintf(seconds, sizeof seconds, "%d", e->retry_after);
        http_header(request, "Retry-After", seconds);
    }
    if (e->status == 500 || e->status == 501) // trying again gives the same
        http_header(request, "x-should-retry", "false");
    form->error(&b, e);
    http_reply(request, e->status, "application/json", b.data, b.len);
    buf_free(&b);
}

void reply_json(struct http_request *request, struct buf *b) {
    if (b->failed)
        REPLY_ERROR(request, 503, "overloaded", NULL, "The server is out of memory.");
    else
        http_reply(request, 200, "application/json", b->data, b->len);
    buf_free(b);
}
