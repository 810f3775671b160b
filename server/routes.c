#include "routes.h"

#include "build_id.h"
#include "completion.h"
#include "dialects/openai.h"
#include "dialects/tokenize.h"
#include "job.h"
#include "log.h"
#include "reply.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

// ---- handlers

static void get_models(struct app *app, struct http_request *request) {
    struct buf b = {0};
    buf_lit(&b, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < app->names.len; i++) {
        if (i)
            buf_char(&b, ',');
        openai_write_model(&b, app->names.items[i], app->created, app->model.max_model_len);
    }
    buf_lit(&b, "]}");
    reply_json(request, &b);
}

static void get_model(struct app *app, struct http_request *request) {
    const char *id = request->path + strlen(request->route->path);
    for (size_t i = 0; i < app->names.len; i++)
        if (strcmp(app->names.items[i], id) == 0) {
            struct buf b = {0};
            openai_write_model(&b, id, app->created, app->model.max_model_len);
            reply_json(request, &b);
            return;
        }
    REPLY_ERROR(request, 404, "model_not_found", "model", "The model '%.200s' does not exist.", id);
}

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
static void get_health(struct app *app, struct http_request *request) {
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

static void get_livez(struct app *app, struct http_request *request) {
    (void)app;
    reply_health(request, NULL);
}

static void get_readyz(struct app *app, struct http_request *request) {
    struct service_stats stats;
    app_stats(app, &stats);
    reply_health(request, stats.dead ? "engine_unavailable" : state_problem(app));
}

static void get_version(struct app *app, struct http_request *request) {
    (void)app;
    struct buf b = {0};
    buf_fmt(&b, "{\"version\":\"%s\"}", build_version);
    reply_json(request, &b);
}

static const char *const route_names[NUM_ROUTES];

static void get_metrics(struct app *app, struct http_request *request) {
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
        .streams = app->num_completions,
        .route_names = route_names,
        .num_routes = NUM_ROUTES,
    };
    struct buf b = {0};
    metrics_write(&app->metrics, &page, &b);
    if (b.failed)
        REPLY_ERROR(request, 503, "overloaded", NULL, "The server is out of memory.");
    else
        http_reply(request, 200, "text/plain; version=0.0.4; charset=utf-8", b.data, b.len);
    buf_free(&b);
}

static void get_tokenizer_info(struct app *app, struct http_request *request) {
    struct buf b = {0};
    write_tokenizer_info(&b, &app->model);
    reply_json(request, &b);
}

static void post_tokenize(struct app *app, struct http_request *request) {
    job_start(app, request, tokenize_response);
}
static void post_detokenize(struct app *app, struct http_request *request) {
    job_start(app, request, detokenize_response);
}

// ---- the table

#define GET_METHODS "GET, HEAD, OPTIONS"
#define POST_METHODS "POST, OPTIONS"

// Path, prefix, open, early, methods, dialect, get, post.
static const struct route routes[NUM_ROUTES] = {
    {"/v1/completions", false, false, false, POST_METHODS, &openai_completions, NULL, completion_start},
    {"/v1/chat/completions", false, false, false, POST_METHODS, &openai_chat, NULL, completion_start},
    {"/tokenize", false, false, false, POST_METHODS, NULL, NULL, post_tokenize},
    {"/detokenize", false, false, false, POST_METHODS, NULL, NULL, post_detokenize},
    {"/tokenizer_info", false, false, false, GET_METHODS, NULL, get_tokenizer_info, NULL},
    {"/v1/models", false, false, false, GET_METHODS, NULL, get_models, NULL},
    {"/v1/models/", true, false, false, GET_METHODS, NULL, get_model, NULL},
    {"/health", false, true, true, GET_METHODS, NULL, get_health, NULL},
    {"/livez", false, true, true, GET_METHODS, NULL, get_livez, NULL},
    {"/readyz", false, true, true, GET_METHODS, NULL, get_readyz, NULL},
    {"/version", false, false, true, GET_METHODS, NULL, get_version, NULL},
    {"/metrics", false, false, true, GET_METHODS, NULL, get_metrics, NULL},
    {"", false, false, true, "", NULL, NULL, NULL},
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

static void make_request_id(struct http_request *request) {
    static const char hex[] = "0123456789abcdef";
    if (http_request_id_ok(request->head.request_id)) {
        snprintf(request->request_id, sizeof request->request_id, "%s", request->head.request_id);
        return;
    }
    request->head.request_id = NULL;
    uint8_t random[16];
    if (getrandom(random, sizeof random, GRND_NONBLOCK) != sizeof random) {
        int64_t now = http_now();
        memcpy(random, &now, sizeof now);
        memcpy(random + 8, &request, 8);
    }
    for (size_t i = 0; i < sizeof random; i++) {
        request->request_id[2 * i] = hex[random[i] >> 4];
        request->request_id[2 * i + 1] = hex[random[i] & 15];
    }
    request->request_id[2 * sizeof random] = '\0';
}

static bool has_key(const struct app *app, const struct http_head *head) {
    const char *key = app_key(head);
    return key && auth_check(&app->auth, key, strlen(key));
}

// The flag's value that allows an origin: itself, or *. NULL: none does.
static const char *find_allowed_origin(const struct app *app, const char *origin) {
    const struct str_list *l = &app->config->allowed_origins;
    for (size_t i = 0; i < l->len; i++)
        if (strcmp(l->items[i], "*") == 0 || strcmp(l->items[i], origin) == 0)
            return l->items[i];
    return NULL;
}

// Responds to a browser that asks whether its page may call us. Default: no.
static void reply_preflight(struct app *app, struct http_request *request) {
    if (!find_allowed_origin(app, request->head.origin)) {
        REPLY_ERROR(request, 400, "origin_not_allowed", NULL, "This origin may not request the server.");
        return;
    }
    http_header(request, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    http_header(request, "Access-Control-Allow-Headers",
                request->head.acrh ? request->head.acrh : "authorization, content-type, x-api-key");
    http_header(request, "Access-Control-Max-Age", "600");
    http_reply(request, 204, NULL, NULL, 0);
}

static bool is_json_type(const char *type) {
    static const char json[] = "application/json";
    size_t n = sizeof json - 1;
    return strncasecmp(type, json, n) == 0 && (type[n] == '\0' || type[n] == ';' || type[n] == ' ');
}

// Whether a POST may send its body; otherwise it has its response.
static bool check_post(struct app *app, struct http_request *request) {
    const struct http_head *h = &request->head;
    if (h->length < 0 && !h->num_encoding) {
        request->close = true; // a body may follow all the same
        REPLY_ERROR(request, 400, NULL, NULL, "POST needs a Content-Length or Transfer-Encoding: chunked.");
    } else if (h->length > (int64_t)app->http.limits.max_body) {
        REPLY_ERROR(request, 413, "request_too_large", NULL, "The body must not exceed %zu bytes.",
                    app->http.limits.max_body);
    } else if (h->content_type ? !is_json_type(h->content_type)
                               : h->origin && !find_allowed_origin(app, h->origin)) {
        // A page may send a body without a type to any site, and says whose page it is.
        REPLY_ERROR(request, 415, NULL, NULL,
                    "Content-Type must be application/json (curl: -H 'Content-Type: application/json').");
    } else if (h->content_encoding && strcasecmp(h->content_encoding, "identity") != 0) {
        REPLY_ERROR(request, 415, NULL, NULL, "Compressed bodies are not supported.");
    } else {
        return true;
    }
    return false;
}

bool routes_head(void *arg, struct http_request *request) {
    struct app *app = arg;
    const struct http_head *h = &request->head;
    struct api_error e = {0};
    make_request_id(request);
    request->route = request->bad_url ? &routes[ROUTE_OTHER] : route_find(request->path);
    request->dialect = request->route->dialect;
    const struct route *r = request->route;
    bool options = strcmp(request->method, "OPTIONS") == 0;
    if (app->state == APP_DRAINING)
        request->close = true;
    const char *allowed = h->origin ? find_allowed_origin(app, h->origin) : NULL;
    if (allowed) {
        http_header(request, "Access-Control-Allow-Origin", allowed);
        http_header(request, "Access-Control-Expose-Headers", "x-request-id, x-quire-ignored, retry-after");
        http_header(request, "Vary", "Origin");
    }

    if (request->refused) { // framing: nothing else of this request can be trusted
        request->close = true;
        REPLY_ERROR(request, request->status, NULL, NULL, "%s", request->refused);
    } else if (request->bad_url) {
        request->close = true;
        REPLY_ERROR(request, 400, NULL, NULL, "The request target is no path, or holds a NUL.");
    } else if (request->conn->over && !r->open) {
        app->metrics.refused_connections++;
        request->close = true;
        e.retry_after = 5;
        api_fail(&e, 503, "overloaded", NULL, "There are too many connections.");
        reply_error(request, &e);
    } else if (app->auth.num_keys == 0 && app->loopback && !r->open &&
               !http_host_is_local(h->host, app->config->host)) {
        REPLY_ERROR(
            request, 403, "host_not_allowed", NULL,
            "Without an API key this server answers to its local names only, to keep other sites' pages "
            "out.");
    } else if (options && h->origin && h->acrm) {
        reply_preflight(app, request);
    } else if (app->auth.num_keys > 0 && !r->open && !has_key(app, h)) {
        REPLY_ERROR(request, 401, "invalid_api_key", NULL, "%s",
                    h->authorization || h->api_key ? "The API key is not valid."
                                                   : "An API key is needed: Authorization: Bearer KEY.");
    } else if (options && strcmp(request->path, "*") == 0) {
        http_header(request, "Allow", "GET, HEAD, POST, OPTIONS");
        http_reply(request, 204, NULL, NULL, 0);
    } else if (r == &routes[ROUTE_OTHER]) {
        REPLY_ERROR(request, 404, NULL, NULL, "There is no such path.");
    } else if (options) {
        http_header(request, "Allow", r->methods);
        http_reply(request, 204, NULL, NULL, 0);
    } else if (!(strcmp(request->method, "GET") == 0 && r->get) &&
               !(strcmp(request->method, "POST") == 0 && r->post && !request->is_head)) {
        http_header(request, "Allow", r->methods);
        REPLY_ERROR(request, 405, NULL, NULL, "This path takes %s.", r->methods);
    } else if (!r->early && !app_accepts(app, &e)) {
        reply_error(request, &e);
    } else if (r->get) {
        r->get(app, request);
    } else {
        return check_post(app, request);
    }
    return false;
}

void routes_body(void *arg, struct http_request *request) {
    struct app *app = arg;
    struct api_error e = {0};
    switch (request->trouble) {
    case HTTP_BODY_WHOLE:
        if (app_accepts(app, &e)) {
            request->route->post(app, request);
            return;
        }
        break;
    case HTTP_BODY_TOO_LARGE:
        api_fail(&e, 413, "request_too_large", NULL, "The body must not exceed %zu bytes.",
                 app->http.limits.max_body);
        break;
    case HTTP_BODY_NO_ROOM:
        e.retry_after = 5;
        api_fail(&e, 503, "overloaded", NULL, "Too many large requests are being read.");
        break;
    case HTTP_BODY_TOO_SLOW: api_fail(&e, 408, "request_timeout", NULL, "The body comes too slowly."); break;
    }
    reply_error(request, &e);
}

void routes_drained(void *app, struct http_request *request) { completion_drained(app, request); }

void routes_done(void *arg, struct http_request *request) {
    struct app *app = arg;
    int route = route_index(request->route),
        status = request->gone && !request->streaming ? 499 : request->status;
    metrics_http(&app->metrics, route, status);
    // Completions write their own line.
    bool is_completion = request->dialect != NULL, logged = is_completion && request->user;
    if (is_completion)
        completion_done(app, request);
    else
        job_done(request);
    if (!logged)
        log_msg(request->status >= 400 ? LOG_INFO : LOG_DEBUG,
                "http id=%s method=%s route=%s status=%d ms=%.1f", request->request_id, request->method,
                route_names[route], status, (double)(http_now() - request->arrived) / 1e6);
}
