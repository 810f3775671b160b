// Requests of an exchange to the engine, known by their ids.
#include "exchange.h"

#include "api/loras.h"
#include "log.h"
#include "past_requests.h"

#include <stdlib.h>
#include <string.h>

// ---- by id

static struct engine_request **bucket_of(const struct app *app, uint64_t id) {
    return &app->table[id & (app->table_size - 1)];
}

struct engine_request *engine_request_find(const struct app *app, uint64_t id) {
    struct engine_request *r = *bucket_of(app, id);
    while (r && r->id != id)
        r = r->next;
    return r;
}

static void table_add(struct app *app, struct engine_request *r) {
    struct engine_request **b = bucket_of(app, r->id);
    r->next = *b;
    *b = r;
}

static void table_remove(struct app *app, struct engine_request *r) {
    struct engine_request **b = bucket_of(app, r->id);
    while (*b && *b != r)
        b = &(*b)->next;
    CHECK(*b == r);
    *b = r->next;
    r->id = 0;
}

// ---- submission

bool exchange_make_requests(struct exchange *x, const char *id_prefix, size_t num, int per_prompt,
                            struct api_error *e) {
    struct app *app = x->app;
    struct api_request *q = x->request;
    const char *key = app->auth.num_keys ? app_key(&x->http->head) : NULL;
    if (q->request_id[0] && !x->http->head.request_id)
        memcpy(x->http->request_id, q->request_id, sizeof q->request_id);
    x->id_prefix = strlen(id_prefix);
    snprintf(x->id, sizeof x->id, "%s%s", id_prefix, q->request_id[0] ? q->request_id : x->http->request_id);
    x->key = key ? auth_find(&app->auth, key, strlen(key)) : -1;
    app_tenant(app, &x->http->head, q->tenant); // a parser may have lost it
    for (size_t i = 0; i < q->num_prompts; i++)
        x->num_prompt += (int64_t)q->prompts[i].len;
    x->per_prompt = per_prompt;
    if (!x->sampling)
        x->sampling = app->model.sampling;
    if (!(x->requests = calloc(num, sizeof *x->requests)) ||
        !app_salt(app, &x->http->head, &q->salt, &q->salt_len))
        return api_fail_memory(e);
    x->num_requests = (int)num;
    return true;
}

// The queue is full of tokens, not of requests.
static bool is_short_of_tokens(struct app *app) {
    struct service_stats stats;
    app_stats(app, &stats);
    return stats.running + stats.waiting <
           engine_info(app->engine)->max_num_seqs + app->config->max_num_queued_seqs;
}

static int retry_after(struct app *app) {
    struct service_stats stats;
    app_stats(app, &stats);
    int seconds = 1 + stats.waiting / engine_info(app->engine)->max_num_seqs;
    return seconds < 30 ? seconds : 30;
}

static bool fail_submission(struct app *app, enum status why, const char *message, struct api_error *e) {
    e->retry_after = why == STATUS_INVALID ? 0 : retry_after(app);
    switch (why) {
    case STATUS_INVALID: return api_fail(e, 400, "context_length_exceeded", "prompt", "%s", message);
    case STATUS_LIMIT:
        app->metrics.rejected[is_short_of_tokens(app)]++;
        return api_fail(e, 503, "overloaded", NULL, "The queue is full; try again later.");
    case STATUS_STOPPING: return api_fail(e, 503, "shutting_down", NULL, "The server is shutting down.");
    case STATUS_DEVICE: return api_fail(e, 503, "engine_unavailable", NULL, "The engine has failed.");
    default: return api_fail_memory(e);
    }
}

static enum status submit_one(struct exchange *x, int i, make_request_fn *make, struct err *err) {
    struct app *app = x->app;
    struct engine_request *r = &x->requests[i];
    *r = (struct engine_request){.id = ++app->next_id, .exchange = x, .index = i};
    struct request *made = make(x, r);
    int64_t now = http_now(); // before it can have begun
    enum status status = made ? service_submit(app->service, made, err) : STATUS_NOMEM;
    if (status != STATUS_OK) {
        r->id = 0;
        request_free(made);
        return status;
    }
    table_add(app, r);
    if (!x->submitted)
        x->submitted = now;
    if (x->request->lora)
        x->request->lora->num_requests++;
    x->num_submitted++;
    x->num_open++;
    return STATUS_OK;
}

bool exchange_submit(struct exchange *x, int most, make_request_fn *make, struct api_error *e) {
    bool first = x->num_submitted == 0;
    while (x->num_submitted < x->num_requests && (!most || x->num_open < most)) {
        struct err err = {0};
        enum status status = submit_one(x, x->num_submitted, make, &err);
        if (status == STATUS_LIMIT && x->num_open > 0 && most)
            break; // the others when one of these has ended
        if (status != STATUS_OK)
            return fail_submission(x->app, status, err.msg, e);
    }
    if (first)
        past_requests_add(x->app->past, x->id, x->id_prefix, x->request, x->requests[0].id);
    return true;
}

// ---- what comes back

void engine_request_token(struct engine_request *r, const struct service_event *ev) {
    struct exchange *x = r->exchange;
    int64_t now = http_now();
    if (r->num_tokens++ == 0) {
        r->first = now;
        metrics_observe(&x->app->metrics, M_TTFT, (double)(now - x->http->arrived) / 1e9);
    } else {
        metrics_observe(&x->app->metrics, M_INTER_TOKEN, (double)(now - r->last) / 1e9);
    }
    r->last = now;
    if (r->index == 0)
        x->predicted_ns = ev->predicted_ns;
    r->num_cached = ev->num_cached;
    r->engine_scheduled = ev->time_scheduled;
    r->engine_first = ev->time_first_token;
    r->engine_last = ev->time_finished;
}

void engine_request_end(struct engine_request *r, const struct service_event *ev) {
    struct exchange *x = r->exchange;
    table_remove(x->app, r);
    x->num_open--;
    r->num_cached = ev->num_cached > 0 ? ev->num_cached : 0;
    if (r->index > 0)
        return;
    x->timing = *ev;
    x->timing.vector = NULL; // the kind's, or nobody's
    x->predicted_ns = ev->predicted_ns;
}

void exchange_cancel(struct exchange *x) {
    for (int i = 0; i < x->num_submitted; i++) {
        struct engine_request *r = &x->requests[i];
        if (!r->id)
            continue;
        if (!r->complete) // one that a stop string ended is no abort
            service_cancel(x->app->service, r->id, FINISH_CANCELLED);
        x->app->metrics.finished[r->complete ? r->finish : FINISH_CANCELLED]++;
        table_remove(x->app, r);
    }
    x->num_open = 0;
}

struct usage exchange_usage(const struct exchange *x) {
    struct usage u = {.prompt = x->num_prompt, .reasoning = -1};
    for (int i = 0; i < x->num_requests; i++) {
        u.completion += x->requests[i].num_tokens;
        // The other requests of a prompt share its blocks; that is no hit of the client's.
        if (i % x->per_prompt == 0)
            u.cached += x->requests[i].num_cached;
    }
    return u;
}

// ---- for others to see

bool exchange_label(const struct app *app, uint64_t id, struct exchange_label *out) {
    const struct engine_request *r = engine_request_find(app, id);
    if (!r || !r->exchange->http)
        return false;
    const struct http_request *http = r->exchange->http;
    const struct lora *lora = r->exchange->request->lora;
    *out = (struct exchange_label){.request_id = http->request_id, .adapter = lora ? lora->name : ""};
    app_tenant(app, &http->head, out->tenant);
    return true;
}

static void count_request(const struct engine_request *r, struct metrics_census *out,
                          struct metrics_adapter *adapters, int num_adapters) {
    const struct exchange *x = r->exchange;
    const struct lora *lora = x->request->lora;
    int priority = x->request->priority, class = priority < 0 ? 0 : priority == 0 ? 1 : 2;
    int key = x->key < METRICS_MAX_KEYS ? x->key + 1 : METRICS_MAX_KEYS;
    bool runs = r->num_tokens > 0;
    out->open[class][key][runs]++;
    for (int k = 0; lora && k < num_adapters; k++)
        if (strcmp(adapters[k].name, lora->name) == 0)
            (*(runs ? &adapters[k].running : &adapters[k].waiting))++;
}

void exchange_census(const struct app *app, struct metrics_census *out, struct metrics_adapter *adapters,
                     int num_adapters) {
    *out = (struct metrics_census){.num_keys = app->auth.num_keys < METRICS_MAX_KEYS ? (int)app->auth.num_keys
                                                                                     : METRICS_MAX_KEYS};
    for (const struct exchange *x = app->exchanges; x; x = x->next)
        for (int i = 0; i < x->num_submitted; i++)
            if (x->requests[i].id)
                count_request(&x->requests[i], out, adapters, num_adapters);
}
