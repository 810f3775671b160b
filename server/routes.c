#include "routes.h"

#include "job.h"
#include "log.h"
#include "stream.h"
#include "tokenize.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

void http_error(struct http_call *call, const struct api_error *e) {
    struct buf b = {0};
    char seconds[16];
    if (e->status == 401)
        http_header(call, "WWW-Authenticate", "Bearer");
    if (e->retry_after > 0) {
        snprintf(seconds, sizeof seconds, "%d", e->retry_after);
        http_header(call, "Retry-After", seconds);
    }
    if (e->status == 500 || e->status == 501) // trying again gives the same
        http_header(call, "x-should-retry", "false");
    write_error(&b, e);
    http_reply(call, e->status, "application/json", b.data, b.len);
    buf_free(&b);
}

#define ERROR(call, status, code, param, ...)                                                                \
    do {                                                                                                     \
        struct api_error error_ = {0};                                                                       \
        api_fail(&error_, status, code, param, __VA_ARGS__);                                                 \
        http_error(call, &error_);                                                                           \
    } while (0)

void http_json(struct http_call *call, struct buf *b) {
    if (b->failed)
        ERROR(call, 503, "overloaded", NULL, "The server is out of memory.");
    else
        http_reply(call, 200, "application/json", b->data, b->len);
    buf_free(b);
}

// ---- handlers

static void get_models(struct app *app, struct http_call *call) {
    struct buf b = {0};
    buf_lit(&b, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < app->names.len; i++) {
        if (i)
            buf_char(&b, ',');
        write_model(&b, app->names.items[i], app->created, app->model.max_model_len);
    }
    buf_lit(&b, "]}");
    http_json(call, &b);
}

static void get_model(struct app *app, struct http_call *call) {
    const char *id = call->path + strlen(call->route->path);
    for (size_t i = 0; i < app->names.len; i++)
        if (strcmp(app->names.items[i], id) == 0) {
            struct buf b = {0};
            write_model(&b, id, app->created, app->model.max_model_len);
            http_json(call, &b);
            return;
        }
    ERROR(call, 404, "model_not_found", "model", "The model '%.200s' does not exist.", id);
}

static void reply_health(struct http_call *call, const char *problem) {
    struct buf b = {0};
    if (problem) {
        struct api_error e = {.retry_after = 5};
        api_fail(&e, 503, problem, NULL, "The server is not ready: %s.", problem);
        http_error(call, &e);
        return;
    }
    buf_lit(&b, "{\"status\":\"ok\"}");
    http_json(call, &b);
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

// Alive, and making progress: an engine that has work and ends no step is reported, so that a supervisor
// restarts us.
static void get_health(struct app *app, struct http_call *call) {
    const char *problem = state_problem(app);
    struct service_stats stats;
    app_stats(app, &stats);
    if (stats.dead)
        problem = "engine_unavailable";
    else if (!problem && stats.busy &&
             (double)(http_now() - stats.last_progress) / 1e9 > app->config->watchdog_timeout)
        problem = "engine_stalled";
    reply_health(call, problem);
}

static void get_livez(struct app *app, struct http_call *call) {
    (void)app;
    reply_health(call, NULL);
}

static void get_readyz(struct app *app, struct http_call *call) {
    struct service_stats stats;
    app_stats(app, &stats);
    reply_health(call, stats.dead ? "engine_unavailable" : state_problem(app));
}

static void get_version(struct app *app, struct http_call *call) {
    (void)app;
    struct buf b = {0};
    buf_lit(&b, "{\"version\":\"" QUIRE_VERSION "\"}");
    http_json(call, &b);
}

static const char *const route_names[NUM_ROUTES];

static void get_metrics(struct app *app, struct http_call *call) {
    struct service_stats stats;
    app_stats(app, &stats);
    struct timespec cpu;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu); // this is the loop thread
    struct metrics_page page = {
        .name_space = app->config->metrics_namespace,
        .model = app->names.items[0],
        .stats = &stats,
        .info = app->engine ? engine_info(app->engine) : NULL,
        .prefix_caching = app->config->prefix_caching,
        .loop_cpu_seconds = (double)cpu.tv_sec + (double)cpu.tv_nsec / 1e9,
        .connections = app->http.num_conns,
        .streams = app->num_streams,
        .route_names = route_names,
        .num_routes = NUM_ROUTES,
    };
    struct buf b = {0};
    metrics_write(&app->metrics, &page, &b);
    if (b.failed)
        ERROR(call, 503, "overloaded", NULL, "The server is out of memory.");
    else
        http_reply(call, 200, "text/plain; version=0.0.4; charset=utf-8", b.data, b.len);
    buf_free(&b);
}

static void get_tokenizer_info(struct app *app, struct http_call *call) {
    struct buf b = {0};
    write_tokenizer_info(&b, &app->model);
    http_json(call, &b);
}

static void post_tokenize(struct app *app, struct http_call *call) { job_start(app, call, tokenize_answer); }
static void post_detokenize(struct app *app, struct http_call *call) {
    job_start(app, call, detokenize_answer);
}

// ---- the table

#define GET_METHODS "GET, HEAD, OPTIONS"
#define POST_METHODS "POST, OPTIONS"

static const struct route routes[NUM_ROUTES] = {
    {"/v1/completions", false, false, false, true, POST_METHODS, NULL, stream_start},
    {"/v1/chat/completions", false, false, false, true, POST_METHODS, NULL, stream_start_chat},
    {"/tokenize", false, false, false, false, POST_METHODS, NULL, post_tokenize},
    {"/detokenize", false, false, false, false, POST_METHODS, NULL, post_detokenize},
    {"/tokenizer_info", false, false, false, false, GET_METHODS, get_tokenizer_info, NULL},
    {"/v1/models", false, false, false, false, GET_METHODS, get_models, NULL},
    {"/v1/models/", true, false, false, false, GET_METHODS, get_model, NULL},
    {"/health", false, true, true, false, GET_METHODS, get_health, NULL},
    {"/livez", false, true, true, false, GET_METHODS, get_livez, NULL},
    {"/readyz", false, true, true, false, GET_METHODS, get_readyz, NULL},
    {"/version", false, false, true, false, GET_METHODS, get_version, NULL},
    {"/metrics", false, false, true, false, GET_METHODS, get_metrics, NULL},
    {"", false, false, true, false, "", NULL, NULL},
};
static const char *const route_names[NUM_ROUTES] = {"/v1/completions",
                                                    "/v1/chat/completions",
                                                    "/tokenize",
                                                    "/detokenize",
                                                    "/tokenizer_info",
                                                    "/v1/models",
                                                    "/v1/models/{id}",
                                                    "/health",
                                                    "/livez",
                                                    "/readyz",
                                                    "/version",
                                                    "/metrics",
                                                    "other"};

const struct route *route_find(const char *path) {
    for (int i = 0; i < ROUTE_OTHER; i++) {
        size_t n = strlen(routes[i].path);
        if (routes[i].prefix ? strncmp(path, routes[i].path, n) == 0 && path[n]
                             : strcmp(path, routes[i].path) == 0)
            return &routes[i];
    }
    return &routes[ROUTE_OTHER];
}

int route_index(const struct route *route) { return route ? (int)(route - routes) : ROUTE_OTHER; }

// ---- before any body is read

static void make_request_id(struct http_call *call) {
    static const char hex[] = "0123456789abcdef";
    if (http_request_id_ok(call->head.request_id)) {
        snprintf(call->request_id, sizeof call->request_id, "%s", call->head.request_id);
        return;
    }
    call->head.request_id = NULL;
    uint8_t random[16];
    if (getrandom(random, sizeof random, GRND_NONBLOCK) != sizeof random) {
        int64_t now = http_now();
        memcpy(random, &now, sizeof now);
        memcpy(random + 8, &call, 8);
    }
    for (size_t i = 0; i < sizeof random; i++) {
        call->request_id[2 * i] = hex[random[i] >> 4];
        call->request_id[2 * i + 1] = hex[random[i] & 15];
    }
    call->request_id[2 * sizeof random] = '\0';
}

static bool has_key(const struct app *app, const struct http_head *head) {
    const char *key = head->api_key;
    if (head->authorization && strncasecmp(head->authorization, "bearer ", 7) == 0) {
        key = head->authorization + 7;
        while (*key == ' ')
            key++;
    }
    return key && auth_check(&app->auth, key, strlen(key));
}

static bool is_allowed_origin(const struct app *app, const char *origin) {
    for (size_t i = 0; i < app->config->allowed_origins.len; i++)
        if (strcmp(app->config->allowed_origins.items[i], origin) == 0)
            return true;
    return false;
}

// The answer to a browser's question whether its page may call us. Default: no.
static void preflight(struct app *app, struct http_call *call) {
    if (!is_allowed_origin(app, call->head.origin)) {
        ERROR(call, 400, "origin_not_allowed", NULL, "This origin may not call the server.");
        return;
    }
    http_header(call, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    http_header(call, "Access-Control-Allow-Headers",
                call->head.acrh ? call->head.acrh : "authorization, content-type, x-api-key");
    http_header(call, "Access-Control-Max-Age", "600");
    http_reply(call, 204, NULL, NULL, 0);
}

static bool is_json_type(const char *type) {
    if (!type)
        return true;
    static const char json[] = "application/json";
    size_t n = sizeof json - 1;
    return strncasecmp(type, json, n) == 0 && (type[n] == '\0' || type[n] == ';' || type[n] == ' ');
}

// Whether a POST may send its body; otherwise it has been answered.
static bool check_post(struct app *app, struct http_call *call) {
    const struct http_head *h = &call->head;
    if (h->length < 0 && !h->num_encoding) {
        call->close = true; // a body may follow all the same
        ERROR(call, 400, NULL, NULL, "POST needs a Content-Length or Transfer-Encoding: chunked.");
    } else if (h->length > (int64_t)app->http.limits.max_body) {
        ERROR(call, 413, "request_too_large", NULL, "The body must not exceed %zu bytes.",
              app->http.limits.max_body);
    } else if (!is_json_type(h->content_type)) {
        ERROR(call, 415, NULL, NULL,
              "Content-Type must be application/json (curl: -H 'Content-Type: application/json').");
    } else if (h->content_encoding && strcasecmp(h->content_encoding, "identity") != 0) {
        ERROR(call, 415, NULL, NULL, "Compressed bodies are not supported.");
    } else {
        return true;
    }
    return false;
}

bool app_accepts(struct app *app, struct api_error *e) {
    e->retry_after = 5;
    switch (app->state) {
    case APP_LOADING: return api_fail(e, 503, "loading_model", NULL, "The model is being loaded.");
    case APP_DRAINING: return api_fail(e, 503, "shutting_down", NULL, "The server is shutting down.");
    case APP_DEAD: return api_fail(e, 503, "engine_unavailable", NULL, "The engine has failed.");
    case APP_READY: break;
    }
    e->retry_after = 0;
    return true;
}

bool routes_head(void *arg, struct http_call *call) {
    struct app *app = arg;
    const struct http_head *h = &call->head;
    struct api_error e = {0};
    make_request_id(call);
    call->route = call->bad_url ? &routes[ROUTE_OTHER] : route_find(call->path);
    const struct route *r = call->route;
    bool options = strcmp(call->method, "OPTIONS") == 0;
    if (app->state == APP_DRAINING)
        call->close = true;
    if (h->origin && is_allowed_origin(app, h->origin)) {
        http_header(call, "Access-Control-Allow-Origin", h->origin);
        http_header(call, "Access-Control-Expose-Headers", "x-request-id, retry-after");
        http_header(call, "Vary", "Origin");
    }

    if (call->refused) { // framing: nothing else of this request can be trusted
        call->close = true;
        ERROR(call, call->status, NULL, NULL, "%s", call->refused);
    } else if (call->bad_url) {
        call->close = true;
        ERROR(call, 400, NULL, NULL, "The path holds a NUL.");
    } else if (call->conn->over && !r->open) {
        app->metrics.refused_connections++;
        call->close = true;
        e.retry_after = 5;
        api_fail(&e, 503, "overloaded", NULL, "There are too many connections.");
        http_error(call, &e);
    } else if (app->auth.num_keys == 0 && app->loopback && !r->open &&
               !http_host_is_local(h->host, app->config->host)) {
        ERROR(call, 403, "host_not_allowed", NULL,
              "Without an API key this server answers to its local names only, to keep other sites' pages "
              "out.");
    } else if (options && h->origin && h->acrm) {
        preflight(app, call);
    } else if (app->auth.num_keys > 0 && !r->open && !has_key(app, h)) {
        ERROR(call, 401, "invalid_api_key", NULL, "%s",
              h->authorization || h->api_key ? "The API key is not valid."
                                             : "An API key is needed: Authorization: Bearer KEY.");
    } else if (options && strcmp(call->path, "*") == 0) {
        http_header(call, "Allow", "GET, HEAD, POST, OPTIONS");
        http_reply(call, 204, NULL, NULL, 0);
    } else if (r == &routes[ROUTE_OTHER]) {
        ERROR(call, 404, NULL, NULL, "There is no such path.");
    } else if (options) {
        http_header(call, "Allow", r->methods);
        http_reply(call, 204, NULL, NULL, 0);
    } else if (!(strcmp(call->method, "GET") == 0 && r->get) &&
               !(strcmp(call->method, "POST") == 0 && r->post && !call->is_head)) {
        http_header(call, "Allow", r->methods);
        ERROR(call, 405, NULL, NULL, "This path takes %s.", r->methods);
    } else if (!r->early && !app_accepts(app, &e)) {
        http_error(call, &e);
    } else if (r->get) {
        r->get(app, call);
    } else {
        return check_post(app, call);
    }
    return false;
}

void routes_body(void *arg, struct http_call *call) {
    struct app *app = arg;
    struct api_error e = {.retry_after = 5};
    if (call->no_room) {
        call->close = true;
        api_fail(&e, 503, "overloaded", NULL, "Too many large requests are being read.");
        http_error(call, &e);
    } else if (call->too_large) {
        call->close = true;
        ERROR(call, 413, "request_too_large", NULL, "The body must not exceed %zu bytes.",
              app->http.limits.max_body);
    } else {
        e.retry_after = 0;
        if (app_accepts(app, &e))
            call->route->post(app, call);
        else
            http_error(call, &e);
    }
}

void routes_drained(void *app, struct http_call *call) { stream_drained(app, call); }

void routes_done(void *arg, struct http_call *call) {
    struct app *app = arg;
    int route = route_index(call->route), status = call->gone && !call->streaming ? 499 : call->status;
    metrics_http(&app->metrics, route, status);
    bool streams = call->route && call->route->streams,
         logged = streams && call->user; // they write their own line
    if (streams)
        stream_done(app, call);
    else
        job_done(call);
    if (!logged)
        log_msg(call->status >= 400 ? LOG_INFO : LOG_DEBUG, "http id=%s method=%s route=%s status=%d ms=%.1f",
                call->request_id, call->method, route_names[route], status,
                (double)(http_now() - call->arrived) / 1e6);
}
