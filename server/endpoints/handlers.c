// Handlers of models, health and llama-server's small pages.
#include "handlers.h"

#include "api/loras.h"
#include "api/sampling_fields.h"
#include "api/tokenize.h"
#include "build_id.h"
#include "dialects/openai.h"
#include "requests/reply.h"

#include <stdlib.h>
#include <string.h>

// ---- models

struct lora_list {
    struct app *app;
    struct buf *out;
};

static void write_adapter(void *arg, const struct lora *a) {
    const struct lora_list *l = arg;
    buf_char(l->out, ',');
    openai_write_model(l->out, a->name, l->app->names.items[0], l->app->created, &l->app->model);
}

void get_models(struct app *app, struct http_request *request) {
    struct buf b = {0};
    buf_lit(&b, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < app->names.len; i++) {
        if (i)
            buf_char(&b, ',');
        openai_write_model(&b, app->names.items[i], NULL, app->created, &app->model);
    }
    struct lora_list list = {app, &b};
    loras_each(app->loras, write_adapter, &list);
    buf_lit(&b, "],\"has_more\":false}"); // Anthropic's
    reply_json(request, &b);
}

void get_model(struct app *app, struct http_request *request) {
    const char *id = strstr(request->path, "/models/") + strlen("/models/");
    for (size_t i = 0; i < app->names.len; i++)
        if (strcmp(app->names.items[i], id) == 0) {
            struct buf b = {0};
            openai_write_model(&b, id, NULL, app->created, &app->model);
            reply_json(request, &b);
            return;
        }
    struct lora *a = loras_find(app->loras, id, strlen(id));
    if (a) {
        struct buf b = {0};
        openai_write_model(&b, a->name, app->names.items[0], app->created, &app->model);
        lora_release(a);
        reply_json(request, &b);
        return;
    }
    REPLY_ERROR(request, 404, "model_not_found", "model", "The model '%.200s' does not exist.", id);
}

// ---- health

static void reply_health(struct http_request *request, const char *problem) {
    struct buf b = {0};
    if (problem) {
        struct api_error e = {.retry_after = 5};
        api_fail(&e, 503, problem, NULL, "The server is not ready: %s.", problem);
        reply_error(request, &e);
        return;
    }
    buf_lit(&b, "{\"status\":\"ok\"}");
    reply_json(request, &b);
}

static const char *state_problem(const struct app *app) {
    switch (app->state) {
    case APP_LOADING: return "loading_model";
    case APP_DRAINING: return "shutting_down";
    case APP_DEAD: return "engine_unavailable";
    case APP_READY: break;
    }
    return NULL;
}

// Steps of a slow machine may take longer than --watchdog-timeout: a stall is several times what the steps in
// flight should take. Of the first one nothing is known, so it gets a multiple of the timeout.
enum { STALL_FACTOR = 8, ALARM_SECONDS = 10 };

static bool is_stalled(const struct app *app, const struct service_stats *stats) {
    double limit = app->config->watchdog_timeout, expected = (double)stats->expected_ns / 1e9;
    if (stats->steps == 0)
        limit *= STALL_FACTOR;
    if (limit < STALL_FACTOR * expected)
        limit = STALL_FACTOR * expected;
    return stats->busy && (double)(http_now() - stats->last_progress) / 1e9 > limit;
}

// Alive, and making progress: an engine that has work and ends no step is reported, so that a supervisor
// restarts us.
void get_health(struct app *app, struct http_request *request) {
    const char *problem = state_problem(app);
    struct service_stats stats;
    app_stats(app, &stats);
    if (stats.dead)
        problem = "engine_unavailable";
    else if (!problem && is_stalled(app, &stats))
        problem = "engine_stalled";
    else if (!problem && watchdog_alarmed(&app->watchdog, ALARM_SECONDS))
        problem = "server_stalled"; // not now, as this is said, but a moment ago
    reply_health(request, problem);
}

void get_livez(struct app *app, struct http_request *request) {
    (void)app;
    reply_health(request, NULL);
}

void get_readyz(struct app *app, struct http_request *request) {
    struct service_stats stats;
    app_stats(app, &stats);
    reply_health(request, stats.dead ? "engine_unavailable" : state_problem(app));
}

// vLLM's: the requests that are being responded to.
void get_load(struct app *app, struct http_request *request) {
    struct buf b = {0};
    buf_fmt(&b, "{\"server_load\":%d}", app->num_exchanges);
    reply_json(request, &b);
}

// ---- what is served

void get_version(struct app *app, struct http_request *request) {
    (void)app;
    struct buf b = {0};
    buf_fmt(&b, "{\"version\":\"%s\"}", build_version);
    reply_json(request, &b);
}

// Ollama's clients refuse a server that tells an older one of theirs.
void get_ollama_version(struct app *app, struct http_request *request) {
    (void)app;
    struct buf b = {0};
    buf_fmt(&b, "{\"version\":\"0.20.0\",\"quire\":\"%s\"}", build_version);
    reply_json(request, &b);
}

void get_tokenizer_info(struct app *app, struct http_request *request) {
    struct buf b = {0};
    write_tokenizer_info(&b, &app->model);
    reply_json(request, &b);
}

static void write_sampling(struct buf *b, const struct sampling_params *s) {
    json_t *object = sampling_object(s);
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    b->failed |= text == NULL;
    buf_str(b, text ? text : "");
    free(text);
    json_decref(object);
}

// llama-server's, where clients learn the context length; `params` of requests that say nothing. Ours besides:
// `chat_sampling`, which programs send that a person chats with.
void get_props(struct app *app, struct http_request *request) {
    const struct served_model *m = &app->model;
    struct buf b = {0};
    buf_fmt(&b, "{\"default_generation_settings\":{\"n_ctx\":%d,\"params\":", m->max_model_len);
    write_sampling(&b, &app->sampling);
    buf_lit(&b, "},\"chat_sampling\":");
    write_sampling(&b, &app->chat_sampling);
    buf_char(&b, ',');
    buf_fmt(&b, "\"total_slots\":%d,\"model_alias\":", engine_info(app->engine)->max_num_seqs);
    json_quote(&b, app->names.items[0], strlen(app->names.items[0]));
    buf_lit(&b, ",\"model_path\":"); // where files lie is nobody's business
    json_quote(&b, app->names.items[0], strlen(app->names.items[0]));
    buf_lit(&b, ",\"modalities\":{\"vision\":false,\"audio\":false},");
    buf_fmt(&b, "\"build_info\":\"quire %s\",\"is_sleeping\":false,", build_version);
    write_template_info(&b, m);
    openai_write_pooling(&b, m);
    buf_char(&b, '}');
    reply_json(request, &b);
}

// llama-server's. A slot is one of the requests that may run at once; the running ones come first.
void get_slots(struct app *app, struct http_request *request) {
    struct service_stats stats;
    struct buf b = {0};
    app_stats(app, &stats);
    for (int i = 0; i < engine_info(app->engine)->max_num_seqs; i++)
        buf_fmt(&b, "%s{\"id\":%d,\"n_ctx\":%d,\"speculative\":%s,\"is_processing\":%s}", i ? "," : "[", i,
                app->model.max_model_len, app->drafts_ngrams || engine_draft(app->engine) ? "true" : "false",
                i < stats.running ? "true" : "false");
    buf_char(&b, ']');
    reply_json(request, &b);
}
