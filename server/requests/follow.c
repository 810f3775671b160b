#include "follow.h"

#include "dialects/response_store.h"
#include "reply.h"

#include <stdlib.h>
#include <string.h>

static size_t frame_size(const struct buf *events, size_t at) { // with its length; 0: there is none
    uint32_t n;
    if (events->len - at < sizeof n)
        return 0;
    memcpy(&n, events->data + at, sizeof n);
    return events->len - at - sizeof n < n ? 0 : sizeof n + n;
}

int64_t follow_count(const struct buf *events) {
    int64_t num = 0;
    for (size_t at = 0, n; (n = frame_size(events, at)) > 0; at += n)
        num++;
    return num;
}

// Writes the events that are there, as long as the reader keeps up.
static void take_events(struct follow *f) {
    struct buf all = f->source ? f->source->request.out.bytes : f->events;
    struct sse_queue *out = &f->exchange.http->out;
    size_t n;
    if (f->source)
        all.len = f->source->shown;
    while ((n = frame_size(&all, f->at)) > 0 && !exchange_is_behind(&f->exchange)) {
        if (f->skip > 0) {
            f->skip--;
        } else {
            buf_add(sse_begin(out), all.data + f->at + sizeof(uint32_t), n - sizeof(uint32_t));
            sse_end(out);
        }
        f->at += n;
    }
}

void follow_flush(struct exchange *x) {
    struct follow *f = (struct follow *)x;
    struct http_request *http = x->http;
    if (x->state != EXCHANGE_OPEN || !http || x->held)
        return;
    if (!http->streaming)
        http_stream(http, "text/event-stream; charset=utf-8");
    take_events(f);
    bool more = frame_size(f->source ? &f->source->request.out.bytes : &f->events, f->at) > 0;
    if (exchange_stalls(x)) {
        exchange_give_up(x);
        return;
    }
    if (!more && (!f->source || f->source->ended)) {
        x->state = EXCHANGE_ENDED;
        http_stream_end(http);
        return;
    }
    if (exchange_is_silent(x))
        sse_ping(&http->out);
    exchange_send(x);
}

static void heard(struct background_listener *l) {
    follow_flush((struct exchange *)((char *)l - offsetof(struct follow, listener)));
}

void follow_begin(struct follow *f) {
    f->exchange.streams = true;
    f->listener.heard = heard;
    if (f->source)
        background_listen(f->source, &f->listener);
}

void follow_free(struct exchange *x) {
    struct follow *f = (struct follow *)x;
    if (f->source)
        background_leave(f->source, &f->listener);
    background_release(f->source);
    buf_free(&f->events);
}

// ---- the client that began it

struct first_follow {
    struct follow follow; // first
    uint8_t owner[SHA256_BYTES];
    char id[REQUEST_ID_SIZE + 12];
    struct buf body;
    bool streams;
};

// It is told of a response that it can ask for later, also of a server that has ended meanwhile.
static bool save_record(struct exchange *x, const char *body, size_t len, struct api_error *e) { // pool
    const struct first_follow *f = (const struct first_follow *)x;
    (void)body, (void)len, (void)e;
    response_store_save(x->app->store, f->owner, f->id);
    return true;
}

static bool begin_first(struct exchange *x, struct api_error *e) {
    struct first_follow *f = (struct first_follow *)x;
    (void)e;
    if (f->streams)
        follow_begin(&f->follow);
    return true;
}

static bool write_body(struct exchange *x, struct buf *out, struct api_error *e) {
    struct first_follow *f = (struct first_follow *)x;
    (void)e;
    *out = f->body;
    f->body = (struct buf){0};
    return true;
}

static void free_first(struct exchange *x) {
    buf_free(&((struct first_follow *)x)->body);
    follow_free(x);
}

bool follow_start(struct app *app, struct http_request *client, struct background *source,
                  const uint8_t owner[SHA256_BYTES], const char *id, struct buf *body, bool streams) {
    static const struct exchange_kind kind = {.size = sizeof(struct first_follow),
                                              .reads_files = true,
                                              .read = save_record,
                                              .begin = begin_first,
                                              .flush = follow_flush,
                                              .finish = write_body,
                                              .done = free_first};
    struct first_follow *f = (struct first_follow *)exchange_new(app, client, &kind);
    if (!f)
        return false;
    f->follow.source = background_hold(source);
    memcpy(f->owner, owner, sizeof f->owner);
    snprintf(f->id, sizeof f->id, "%s", id);
    f->body = *body;
    *body = (struct buf){0};
    f->streams = streams;
    f->follow.exchange.must = true;
    exchange_run(&f->follow.exchange);
    return true;
}
