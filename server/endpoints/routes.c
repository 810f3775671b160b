#include "routes.h"

#include "api/tokenize.h"
#include "build_id.h"
#include "cache_watch.h"
#include "dialects/anthropic.h"
#include "dialects/llama_completion.h"
#include "dialects/ollama.h"
#include "dialects/openai.h"
#include "dialects/responses.h"
#include "dialects/tgi.h"
#include "engine.h"
#include "engine_look.h"
#include "explain.h"
#include "handlers.h"
#include "log.h"
#include "page/page.h"
#include "process/nearest.h"
#include "requests/completion.h"
#include "requests/decisions.h"
#include "requests/exchange.h"
#include "requests/job.h"
#include "requests/reply.h"
#include "requests/vectors.h"
#include "stored_responses.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

// ---- the table

// Whether a key is needed is written on the route, and the default is that it is; what has no route needs one, too.
struct route {
    const char *path, *name;     // the name in metrics and logs; NULL: the path
    bool prefix;                 // path ends in '/', and something follows
    const char *end;             // that ends so; NULL: whatever it is
    bool open;                   // no key: liveness only
    bool early;                  // also while loading, draining or dead
    bool admin;                  // changes the server: it needs an admin key
    bool page;                   // or a file of the page
    bool deletes;                // GET's takes DELETE, too
    bool owned;                  // by its key: it takes no admin key
    bool posts;                  // stands for POST beside another row of its path
    const struct api_form *form; // of errors, where no dialect has it; NULL: OpenAI's
    // One of these. Responds to GET at once, or to POST with the body in the request;
    void (*get)(struct app *app, struct http_request *request);
    void (*post)(struct app *app, struct http_request *request);
    // or starts an exchange with the body of a POST.
    job_fn *job;
    bool reads_files; // that job
    const struct dialect *completion;
    const struct vector_dialect *vectors;
    const struct decision_dialect *decisions;
    const struct exchange_kind *exchange; // takes an admin key, too, unless it is owned
    bool gets;                            // that exchange is by GET
};

static void get_page(struct app *app, struct http_request *request);
static void get_metrics(struct app *app, struct http_request *request);
static void get_info(struct app *app, struct http_request *request);

// All paths that begin with `folder`.
#define BELOW(folder, rest) .path = (folder), .name = folder rest, .prefix = true

static const struct route routes[] = {
    {.path = "/v1/completions", .completion = &openai_completions},
    {.path = "/v1/chat/completions", .completion = &openai_chat},
    {.path = "/v1/chat/completions/input_tokens", .job = openai_count_response},
    {.path = "/v1/messages", .completion = &anthropic_messages},
    {.path = "/v1/messages/count_tokens", .form = &anthropic_form, .job = anthropic_count_response},
    {.path = "/api/chat", .completion = &ollama_chat},
    {.path = "/api/generate", .completion = &ollama_generate},
    {.path = "/api/embed", .vectors = &ollama_embed},
    {.path = "/api/embeddings", .vectors = &ollama_embeddings},
    {.path = "/api/tags", .form = &ollama_form, .get = get_ollama_tags},
    {.path = "/api/ps", .form = &ollama_form, .get = get_ollama_ps},
    {.path = "/api/show", .form = &ollama_form, .post = post_ollama_show},
    {.path = "/api/version", .early = true, .form = &ollama_form, .get = get_ollama_version},
    {.path = "/generate", .completion = &tgi_generate},
    {.path = "/generate_stream", .completion = &tgi_stream},
    {.path = "/info", .form = &tgi_form, .get = get_info},
    {.path = "/", .name = "POST /", .posts = true, .completion = &tgi_root},
    {.path = "/", .early = true, .page = true, .get = get_root},
    {BELOW("/page/", "{file}"), .early = true, .page = true, .get = get_page},
    {.path = "/v1/responses", .completion = &openai_responses},
    {.path = "/v1/responses/input_tokens", .job = responses_count},
    {.path = "/v1/responses/compact", .completion = &openai_compaction},
    {BELOW("/v1/responses/", "{id}/cancel"), .end = "/cancel", .owned = true,
     .exchange = &response_cancellation},
    {BELOW("/v1/responses/", "{id}"), .gets = true, .deletes = true, .owned = true,
     .exchange = &stored_response},
    {.path = "/v1/embeddings", .vectors = &openai_embeddings},
    {.path = "/v1/rerank", .vectors = &cohere_rerank},
    {.path = "/v1/score", .vectors = &vllm_score},
    {.path = "/v1/systemone", .decisions = &systemone},
    {.path = "/classify", .decisions = &vllm_classify},
    {.path = "/completion", .completion = &llama_completion},
    {.path = "/infill", .completion = &llama_infill},
    {.path = "/tokenize", .job = tokenize_response},
    {.path = "/detokenize", .job = detokenize_response},
    {.path = "/tokenizer_info", .get = get_tokenizer_info},
    {.path = "/apply-template", .job = openai_template_response},
    {.path = "/v1/models", .get = get_models},
    {BELOW("/v1/models/", "{id}"), .get = get_model},
    {.path = "/health", .open = true, .early = true, .get = get_health},
    {.path = "/livez", .open = true, .early = true, .get = get_livez},
    {.path = "/readyz", .open = true, .early = true, .get = get_readyz},
    {.path = "/version", .early = true, .get = get_version},
    {.path = "/load", .early = true, .get = get_load},
    {.path = "/props", .get = get_props},
    {.path = "/slots", .get = get_slots},
    {.path = "/v1/engine", .gets = true, .exchange = &engine_look},
    {BELOW("/v1/engine/pages/", "{page}"), .gets = true, .exchange = &engine_look},
    {.path = "/v1/cache/explain", .exchange = &prompt_explanation},
    {BELOW("/v1/cache/explain/", "{id}"), .gets = true, .exchange = &past_explanation},
    {.path = "/v1/cache/events", .gets = true, .exchange = &cache_watch},
    {.path = "/v1/estimate", .exchange = &prompt_estimate},
    {.path = "/lora-adapters", .get = get_loras},
    {.path = "/v1/load_lora_adapter", .admin = true, .reads_files = true, .job = lora_load_response},
    {.path = "/v1/unload_lora_adapter", .admin = true, .reads_files = true, .job = lora_unload_response},
    {.path = "/metrics", .early = true, .get = get_metrics},
    {.path = "", .name = "other", .early = true}, // of unknown paths
};
#define COUNT(table) (sizeof(table) / sizeof(table)[0])
enum { ROUTE_OTHER = COUNT(routes) - 1 };
_Static_assert(COUNT(routes) <= METRICS_MAX_ROUTES, "metrics has a row for each route");

static const char *route_name(int index) {
    return routes[index].name ? routes[index].name : routes[index].path;
}

static void get_metrics(struct app *app, struct http_request *request) {
    reply_metrics(app, request, route_name, COUNT(routes));
}

// Of Text Generation Inference: max_input_tokens leaves room for one token.
static void get_info(struct app *app, struct http_request *request) {
    const struct config *c = app->config;
    int context = app->model.max_model_len;
    struct buf b = {0};
    buf_lit(&b, "{\"model_id\":");
    json_quote(&b, app->names.items[0], strlen(app->names.items[0]));
    buf_fmt(&b,
            ",\"model_sha\":null,\"model_pipeline_tag\":\"text-generation\",\"max_concurrent_requests\":%d,"
            "\"max_best_of\":1,\"max_stop_sequences\":%d,\"max_input_tokens\":%d,\"max_total_tokens\":%d,",
            engine_info(app->engine)->max_num_seqs + c->max_num_queued_seqs, DETOK_MAX_STOPS, context - 1,
            context);
    buf_fmt(&b,
            "\"validation_workers\":1,\"max_client_batch_size\":1,\"router\":\"quire\",\"version\":\"%s\","
            "\"sha\":null,\"docker_label\":null}",
            build_version);
    reply_json(request, &b);
}

static bool takes_get(const struct route *r) { return r->get || r->gets; }

static const struct api_form *form_of(const struct route *r) {
    return r->completion  ? r->completion->form
           : r->vectors   ? r->vectors->form
           : r->decisions ? r->decisions->form
                          : r->form;
}

// For Allow.
static const char *methods_of(const struct route *r) {
    return r->deletes ? "GET, HEAD, DELETE, OPTIONS" : takes_get(r) ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
}

// Paths that other servers have for the same: the beginning, and what stands for it here.
static const struct {
    const char *path, *ours;
} aliases[] = {
    {"/completions", "/v1/completions"}, // llama-server
    {"/chat/completions", "/v1/chat/completions"},
    {"/chat/completions/input_tokens", "/v1/chat/completions/input_tokens"},
    {"/responses", "/v1/responses"},
    {"/responses/input_tokens", "/v1/responses/input_tokens"},
    {"/responses/compact", "/v1/responses/compact"},
    {"/responses/", "/v1/responses/"},
    {"/embeddings", "/v1/embeddings"},
    {"/rerank", "/v1/rerank"},
    {"/reranking", "/v1/rerank"},
    {"/v1/reranking", "/v1/rerank"},
    {"/v2/rerank", "/v1/rerank"}, // Cohere
    {"/score", "/v1/score"},      // vLLM
    {"/models", "/v1/models"},
    {"/models/", "/v1/models/"},
    {"/v1/health", "/health"},
    {"/ping", "/health"}, // vLLM and SGLang, for SageMaker
};

#define NO_MODELS "This server has the models that it was started with: it fetches, makes and deletes none."

// Paths of other servers that have no counterpart.
static const struct {
    const char *path;
    int status;
    const char *why;
} refused[] = {
    {"/embedding", 501, "llama-server's own form is not supported: /v1/embeddings takes OpenAI's."},
    {"/api/pull", 501, NO_MODELS},
    {"/api/push", 501, NO_MODELS},
    {"/api/create", 501, NO_MODELS},
    {"/api/copy", 501, NO_MODELS},
    {"/api/delete", 501, NO_MODELS},
};

// Below these, the form of errors of paths that are not there.
static const struct {
    const char *path;
    const struct api_form *form;
} error_forms[] = {{"/v1/messages", &anthropic_form}, {"/api", &ollama_form}};

static const struct api_form *error_form(const char *path) {
    for (size_t i = 0; i < COUNT(error_forms); i++) {
        size_t n = strlen(error_forms[i].path);
        if (strncmp(path, error_forms[i].path, n) == 0 && (path[n] == '/' || !path[n]))
            return error_forms[i].form;
    }
    return NULL;
}

static bool is_at(const char *path, const char *route, bool prefix) {
    size_t n = strlen(route);
    return prefix ? strncmp(path, route, n) == 0 && path[n] : strcmp(path, route) == 0;
}

static bool ends_with(const char *path, const char *end) {
    size_t n = strlen(path), tail = strlen(end);
    return n > tail && strcmp(path + n - tail, end) == 0;
}

// Exact match, by our path or another server's; never NULL.
static const struct route *route_find(const char *path, bool posts) {
    for (size_t i = 0; i < COUNT(aliases); i++)
        if (is_at(path, aliases[i].path, aliases[i].path[strlen(aliases[i].path) - 1] == '/')) {
            for (int k = 0; k < ROUTE_OTHER; k++)
                if (strcmp(routes[k].path, aliases[i].ours) == 0 &&
                    (!routes[k].end || ends_with(path, routes[k].end)))
                    return &routes[k];
            path = aliases[i].ours;
        }
    for (int i = 0; i < ROUTE_OTHER; i++)
        if (is_at(path, routes[i].path, routes[i].prefix) && (posts || !routes[i].posts) &&
            (!routes[i].end || ends_with(path, routes[i].end)))
            return &routes[i];
    return &routes[ROUTE_OTHER];
}

// A client whose base URL is wrong asks for a path with too much before it; else the nearest by letters.
static void reply_not_found(struct http_request *request) {
    const char *path = request->path;
    struct nearest near = {.word = path};
    for (size_t i = 0; i < COUNT(refused); i++)
        if (strcmp(path, refused[i].path) == 0) {
            REPLY_ERROR(request, refused[i].status, NULL, NULL, "%s", refused[i].why);
            return;
        }
    for (int i = 0; i < ROUTE_OTHER; i++)
        nearest_try(&near, routes[i].path);
    size_t most = 0, len = strlen(path);
    for (int i = 0; i < ROUTE_OTHER && !near.best; i++) {
        size_t n = strlen(routes[i].path);
        if (n > most && n < len && strcmp(path + len - n, routes[i].path) == 0) {
            most = n;
            near.best = routes[i].path;
        }
    }
    REPLY_ERROR(request, 404, NULL, NULL, "There is no path '%.120s'%s%s%s", path,
                near.best ? "; did you mean '" : ".", near.best ? near.best : "", near.best ? "'?" : "");
}

static void get_page(struct app *app, struct http_request *request) {
    if (page_wanted(app, request, false))
        page_reply(request);
    else
        reply_not_found(request);
}

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

static bool has_key(const struct auth *auth, const struct http_head *head) {
    const char *key = app_key(head);
    return key && auth_check(auth, key, strlen(key));
}

// The page's own files tell nothing: a browser gets them before it has a key.
static bool is_page(const struct app *app, const struct http_request *request, const struct route *r) {
    return r->page && page_wanted(app, request, r->get == get_root);
}

static bool is_local_origin(const char *origin) {
    size_t n = strncmp(origin, "https://", 8) == 0 ? 8 : strncmp(origin, "http://", 7) == 0 ? 7 : 0;
    return n && http_host_is_local(origin + n, "localhost");
}

// The origin that a page of this one is told: itself, or *, which says nothing of credentials. NULL: it is not
// allowed.
static const char *find_allowed_origin(const struct app *app, const char *origin) {
    const struct str_list *l = &app->config->allowed_origins;
    for (size_t i = 0; i < l->len; i++) {
        const char *allowed = l->items[i];
        if (strcmp(allowed, "localhost") == 0 ? is_local_origin(origin) : strcmp(allowed, origin) == 0)
            return origin;
        if (strcmp(allowed, "*") == 0)
            return app->config->allow_credentials ? origin : allowed;
    }
    return NULL;
}

// Responds to a browser that asks whether its page may call us. Default: no.
static void reply_preflight(struct app *app, struct http_request *request) {
    if (!find_allowed_origin(app, request->head.origin)) {
        REPLY_ERROR(request, 400, "origin_not_allowed", NULL, "This origin may not request the server.");
        return;
    }
    http_header(request, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
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
    const char *type = request->form && request->form->any_type ? NULL : h->content_type;
    if (h->length < 0 && !h->num_encoding) {
        request->close = true; // a body may follow all the same
        REPLY_ERROR(request, 400, NULL, NULL, "POST needs a Content-Length or Transfer-Encoding: chunked.");
    } else if (h->length > (int64_t)app->http.limits.max_body) {
        REPLY_ERROR(request, 413, "request_too_large", NULL, "The body must not exceed %zu bytes.",
                    app->http.limits.max_body);
    } else if (type ? !is_json_type(type) : h->origin && !find_allowed_origin(app, h->origin)) {
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

static void allow_origin(const struct app *app, struct http_request *request) {
    const char *origin = request->head.origin, *allowed = origin ? find_allowed_origin(app, origin) : NULL;
    if (!allowed)
        return;
    http_header(request, "Access-Control-Allow-Origin", allowed);
    if (app->config->allow_credentials)
        http_header(request, "Access-Control-Allow-Credentials", "true");
    http_header(request, "Access-Control-Expose-Headers",
                "x-request-id, x-quire-ignored, x-quire-predicted-ttft-ms, retry-after");
    http_header(request, "Vary", "Origin");
}

bool routes_head(void *arg, struct http_request *request) {
    struct app *app = arg;
    const struct http_head *h = &request->head;
    struct api_error e = {0};
    make_request_id(request);
    for (size_t n = strlen(request->path); n > 1 && request->path[n - 1] == '/'; n--)
        request->path[n - 1] = '\0'; // a slash at the end makes no other path
    request->route = request->bad_url ? &routes[ROUTE_OTHER]
                                      : route_find(request->path, strcmp(request->method, "POST") == 0);
    const struct route *r = request->route;
    request->form = r == &routes[ROUTE_OTHER] ? error_form(request->path) : form_of(r);
    if (request->form && request->form->id_header)
        http_header(request, request->form->id_header, request->request_id);
    const struct auth *auth = r->admin && app->admin.num_keys > 0 ? &app->admin : &app->auth;
    bool options = strcmp(request->method, "OPTIONS") == 0, deletes = strcmp(request->method, "DELETE") == 0;
    if (app->state == APP_DRAINING)
        request->close = true;
    allow_origin(app, request);

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
            "out, and the Host header is another's. Behind a proxy give it a key (--api-key-file), or have "
            "the proxy send Host: localhost.");
    } else if (options && h->origin && h->acrm) {
        reply_preflight(app, request);
    } else if (auth->num_keys > 0 && !r->open && !has_key(auth, h) &&
               !(r->exchange && !r->owned && app_is_admin(app, h)) && !is_page(app, request, r)) {
        REPLY_ERROR(request, 401, "invalid_api_key", NULL, "%s",
                    h->authorization || h->api_key ? "The API key is not valid."
                                                   : "An API key is needed: Authorization: Bearer KEY.");
    } else if (options && strcmp(request->path, "*") == 0) {
        http_header(request, "Allow", "GET, HEAD, POST, OPTIONS");
        http_reply(request, 204, NULL, NULL, 0);
    } else if (r == &routes[ROUTE_OTHER]) {
        reply_not_found(request);
    } else if (options) {
        http_header(request, "Allow", methods_of(r));
        http_reply(request, 204, NULL, NULL, 0);
    } else if (!(r->deletes && deletes) &&
               (takes_get(r) ? strcmp(request->method, "GET") != 0
                             : strcmp(request->method, "POST") != 0 || request->is_head)) {
        http_header(request, "Allow", methods_of(r));
        REPLY_ERROR(request, 405, NULL, NULL, "This path takes %s.", methods_of(r));
    } else if (r->admin && (app->admin.num_keys == 0 || !app->config->lora_root)) {
        REPLY_ERROR(request, 403, "adapters_disabled", NULL,
                    "Adapters are loaded at run time where the server has --lora-root and --admin-api-key.");
    } else if (!r->early && !app_accepts(app, &e)) {
        reply_error(request, &e);
    } else if (r->gets) {
        return true; // a response that comes later follows the body, were there one
    } else if (r->get) {
        r->get(app, request);
    } else {
        return check_post(app, request);
    }
    return false;
}

static void start_response(struct app *app, struct http_request *request) {
    const struct route *r = request->route;
    struct api_error e = {0};
    if ((r->completion || r->vectors || r->decisions) &&
        !app_gives(app, r->vectors, r->vectors && r->vectors->scores, &e))
        reply_error(request, &e);
    else if (r->completion)
        completion_start(app, request, r->completion);
    else if (r->vectors)
        vectors_start(app, request, r->vectors);
    else if (r->decisions)
        decisions_start(app, request, r->decisions);
    else if (r->job)
        job_start(app, request, r->job, r->reads_files);
    else if (r->exchange)
        exchange_start(app, request, r->exchange);
    else
        r->post(app, request);
}

void routes_body(void *arg, struct http_request *request) {
    struct app *app = arg;
    struct api_error e = {0};
    switch (request->trouble) {
    case HTTP_BODY_WHOLE:
        if (!app_accepts(app, &e))
            break;
        start_response(app, request);
        return;
    case HTTP_BODY_TOO_LARGE:
        api_fail(&e, 413, "request_too_large", NULL, "The body must not exceed %zu bytes.",
                 app->http.limits.max_body);
        break;
    case HTTP_BODY_NO_ROOM:
        e.retry_after = 5;
        api_fail(&e, 503, "overloaded", NULL, "Too many large requests are being read.");
        break;
    case HTTP_BODY_MALFORMED: api_fail(&e, 400, NULL, NULL, "The body's chunks are malformed."); break;
    case HTTP_BODY_TOO_SLOW: api_fail(&e, 408, "request_timeout", NULL, "The body comes too slowly."); break;
    }
    reply_error(request, &e);
}

void routes_drained(void *app, struct http_request *request) {
    (void)app;
    exchange_drained(request);
}

void routes_done(void *arg, struct http_request *request) {
    struct app *app = arg;
    const struct route *r = request->route ? request->route : &routes[ROUTE_OTHER];
    int route = (int)(r - routes), status = request->gone && !request->streaming ? 499 : request->status;
    metrics_http(&app->metrics, route, request->is_head ? "HEAD" : request->method, status,
                 (double)(http_now() - request->arrived) / 1e9);
    if (!exchange_done(request)) // else it has a line of its own
        log_msg(request->status >= 400 ? LOG_INFO : LOG_DEBUG,
                "http id=%s%s method=%s route=%s status=%d ms=%.1f", request->request_id,
                app_key_note(app, &request->head).text, request->method, route_name(route), status,
                (double)(http_now() - request->arrived) / 1e6);
}
