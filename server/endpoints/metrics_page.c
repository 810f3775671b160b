// GET /metrics: gathers what metrics.c writes.
#include "api/loras.h"
#include "dialects/response_store.h"
#include "handlers.h"
#include "requests/exchange.h"
#include "requests/reply.h"

#include <time.h>

enum { MAX_ADAPTERS = 1024 }; // --max-loras has no more

struct adapter_list {
    struct metrics_adapter *adapters;
    int num;
};

static void add_adapter(void *arg, const struct lora *a) {
    struct adapter_list *l = arg;
    if (l->num == MAX_ADAPTERS)
        return;
    struct metrics_adapter *out = &l->adapters[l->num++];
    *out = (struct metrics_adapter){.requests = a->num_requests};
    snprintf(out->name, sizeof out->name, "%s", a->name);
}

void reply_metrics(struct app *app, struct http_request *request, const char *(*route_name)(int),
                   int num_routes) {
    static struct metrics_adapter adapters[MAX_ADAPTERS]; // of the loop thread
    struct adapter_list list = {adapters, 0};
    struct service_stats stats;
    struct metrics_census census;
    app_stats(app, &stats);
    loras_each(app->loras, add_adapter, &list);
    exchange_census(app, &census, adapters, list.num);
    struct timespec cpu;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu); // this is the loop thread
    struct metrics_page page = {
        .name_space = app->config->metrics_namespace,
        .model = app->names.items[0],
        .stats = &stats,
        .info = app->engine ? engine_info(app->engine) : NULL,
        .census = &census,
        .grammars = constraint_cache_counts(app->model.constraints),
        .adapters = adapters,
        .num_adapters = list.num,
        .max_adapters = app->config->max_loras,
        .prefix_caching = app->config->prefix_caching,
        .start_time = (double)app->created,
        .loop_cpu_seconds = (double)cpu.tv_sec + (double)cpu.tv_nsec / 1e9,
        .connections = app->http.num_conns,
        .streams = app->num_streams,
        .route_name = route_name,
        .num_routes = num_routes,
    };
    if (app->store) {
        const struct response_counts c = response_store_counts(app->store);
        page.stored = (struct metrics_stored){.on = true,
                                              .has_files = c.has_files,
                                              .num = c.num,
                                              .bytes = c.bytes,
                                              .skipped_files = c.skipped,
                                              .unsaved = c.unsaved};
    }
    if (app->otlp)
        otlp_counts(app->otlp, &page.spans);
    struct buf b = {0};
    metrics_write(&app->metrics, &page, &b);
    if (b.failed)
        REPLY_ERROR(request, 503, "overloaded", NULL, "The server is out of memory.");
    else
        http_reply(request, 200, "text/plain; version=0.0.4; charset=utf-8", b.data, b.len);
    buf_free(&b);
}
