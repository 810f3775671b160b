#include "cache_watch.h"

#include "cache_events.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { AT_ONCE = 256 };

struct watch {
    struct exchange exchange; // first
    struct cache_events view;
    const struct engine_info *info;
    uint64_t steps; // of the engine when it was asked last: else nothing happens to its pages
    bool answered;  // view is to be written
};

static bool begin_watch(struct exchange *x, struct api_error *e) {
    struct watch *w = (struct watch *)x;
    if (x->app->has_tenants && !app_is_admin(x->app, &x->http->head))
        return api_fail(e, 403, "admin_key_required", NULL,
                        "The events have the tokens of every key's prompts: they need an admin key.");
    w->info = engine_info(x->app->engine);
    w->view.max = AT_ONCE;
    w->view.events = calloc(AT_ONCE, sizeof *w->view.events);
    w->view.tokens = calloc((size_t)AT_ONCE * (size_t)w->info->block_size, sizeof *w->view.tokens);
    if (!w->view.events || !w->view.tokens)
        return api_fail_memory(e);
    w->view.query.run = cache_events_run;
    x->query = &w->view.query;
    x->streams = true;
    x->app->num_watchers++;
    return true;
}

static void take_answer(struct exchange *x, struct engine_request *r, struct service_event *ev) {
    (void)r, (void)ev;
    ((struct watch *)x)->answered = true;
}

static void write_event(struct buf *b, const struct watch *w, int i) {
    const struct cache_event *e = &w->view.events[i];
    const char *medium = strncmp(w->info->device, "cpu", 3) == 0 ? "CPU" : "GPU";
    buf_fmt(b, "{\"type\":\"%s\",\"block_hashes\":[\"%016llx\"]", e->removed ? "BlockRemoved" : "BlockStored",
            (unsigned long long)e->hash);
    if (!e->removed) {
        if (e->parent == w->view.root)
            buf_lit(b, ",\"parent_block_hash\":null");
        else
            buf_fmt(b, ",\"parent_block_hash\":\"%016llx\"", (unsigned long long)e->parent);
        buf_lit(b, ",\"token_ids\":[");
        for (int k = 0; k < w->info->block_size; k++)
            buf_fmt(b, "%s%d", k ? "," : "",
                    (int)w->view.tokens[(size_t)i * (size_t)w->info->block_size + (size_t)k]);
        buf_fmt(b, "],\"block_size\":%d,\"lora_id\":null", w->info->block_size);
    }
    buf_fmt(b, ",\"group_idx\":%d,\"medium\":\"%s\"}", e->group, medium);
}

static void write_batch(struct watch *w, struct sse_queue *out) {
    const struct cache_events *v = &w->view;
    struct timespec now;
    if (v->num == 0 && !v->cleared)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    struct buf *b = sse_begin(out);
    buf_fmt(b, "data: {\"ts\":%lld.%06ld,\"events\":[", (long long)now.tv_sec, now.tv_nsec / 1000);
    if (v->cleared)
        buf_lit(b, "{\"type\":\"AllBlocksCleared\"}");
    for (int i = 0; i < v->num; i++) {
        if (i > 0 || v->cleared)
            buf_char(b, ',');
        write_event(b, w, i);
    }
    buf_lit(b, "]}\n\n");
    sse_end(out);
}

static void flush_watch(struct exchange *x) {
    struct watch *w = (struct watch *)x;
    struct http_request *http = x->http;
    struct service_stats stats;
    if (!http)
        return;
    if (!http->streaming)
        http_stream(http, "text/event-stream; charset=utf-8");
    if (w->answered)
        write_batch(w, &http->out);
    bool more = w->answered && w->view.more;
    w->answered = false;
    if (w->view.failed || x->app->state == APP_DRAINING || x->app->state == APP_DEAD) {
        x->state = EXCHANGE_ENDED;
        http_stream_end(http);
        return;
    }
    if (!exchange_is_behind(x)) {
        app_stats(x->app, &stats);
        if ((more || stats.steps != w->steps) && exchange_ask(x))
            w->steps = stats.steps;
    } else if (exchange_stalls(x)) {
        exchange_give_up(x);
        return;
    }
    if (exchange_is_silent(x))
        sse_ping(&http->out);
    exchange_send(x);
}

static void free_watch(struct exchange *x) {
    struct watch *w = (struct watch *)x;
    x->app->num_watchers -= x->streams;
    free(w->view.events);
    free(w->view.tokens);
}

const struct exchange_kind cache_watch = {.size = sizeof(struct watch),
                                          .watches = true,
                                          .begin = begin_watch,
                                          .answered = take_answer,
                                          .flush = flush_watch,
                                          .done = free_watch};
