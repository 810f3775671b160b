#include "explain.h"

#include "api/fields.h"
#include "api/loras.h"
#include "dialects/openai.h"
#include "engine_view.h"
#include "prompt_view.h"
#include "requests/past_requests.h"

#include <stdlib.h>
#include <string.h>

#define PAST_PATH "/cache/explain/"

// ---- what is asked

struct explanation {
    struct exchange exchange; // first
    struct completion_request request;
    bool parsed;
    struct prompt_view view;
    struct buf salts[PROMPT_ROOTS];
    const struct tokenizer *tokenizer;
    int block_size;
    char adapter[MAX_LORA_NAME + 1];
    bool salted, keyed; // the client's cache_salt, or its key, has a part in it
    bool details;       // where tokens differ may be told: nobody else's are there
    bool admin;         // and what the others are
};

static bool read_prompt(struct exchange *exchange, const char *body, size_t len, struct api_error *e) {
    struct explanation *x = (struct explanation *)exchange;
    json_t *root = body_load(body, len, e);
    if (!root)
        return false;
    bool chat = field_get(root, "messages") != NULL;
    json_decref(root);
    const struct dialect *d = chat ? &openai_chat : &openai_completions;
    x->parsed = d->parse(&x->request, &exchange->app->model, body, len, e);
    exchange->ignored = x->request.base.ignored;
    if (x->parsed && x->request.base.num_prompts != 1)
        return api_fail(e, 400, "out_of_range", "prompt", "One prompt can be explained, not %zu.",
                        x->request.base.num_prompts);
    return x->parsed;
}

// The salt of the engine's request: of an adapter, 0: none, and of a client's salt, as request_new() joins them.
static bool make_salt(struct explanation *x, int i, uint64_t adapter, const char *salt, size_t len) {
    struct buf *b = &x->salts[i];
    const struct app *app = x->exchange.app;
    char *own = len ? malloc(len) : NULL;
    bool ok = own || !len;
    if (own)
        memcpy(own, salt, len);
    ok = ok && app_salt(app, &x->exchange.http->head, &own, &len);
    if (ok && (adapter || len)) {
        buf_add(b, &adapter, sizeof adapter);
        buf_add(b, own, len);
    }
    free(own);
    x->view.salts[i] = b->data;
    x->view.num_salts[i] = (int)b->len;
    return ok && !b->failed;
}

static void begin_common(struct explanation *x) {
    struct app *app = x->exchange.app;
    x->admin = app_is_admin(app, &x->exchange.http->head);
    x->tokenizer = app->model.tokenizer;
    x->block_size = engine_info(app->engine)->block_size;
    x->keyed = app->has_tenants && !app->config->share_prefixes;
    x->details = x->admin || !app->has_tenants || !app->config->share_prefixes;
    x->view.query.run = prompt_view_run;
    x->exchange.query = &x->view.query;
    for (int i = 0; i < PROMPT_ROOTS; i++)
        x->view.num_salts[i] = -1;
}

static bool begin_prompt(struct exchange *exchange, struct api_error *e) {
    struct explanation *x = (struct explanation *)exchange;
    const struct completion_request *r = &x->request;
    if (exchange->app->model.pooling != POOLING_NONE)
        return api_fail(e, 400, "unsupported_model", "model", "This model gives no completions.");
    begin_common(x);
    uint64_t adapter = r->base.lora ? r->base.lora->adapter->domain : 0;
    x->salted = r->base.salted;
    snprintf(x->adapter, sizeof x->adapter, "%s", r->base.lora ? r->base.lora->name : "");
    x->view.tokens = r->base.prompts[0].ids;
    x->view.num_tokens = (int)r->base.prompts[0].len;
    x->view.priority = r->base.priority;
    x->view.all_rows =
        r->sampling.num_prompt_logprobs > 0 || r->prompt_logprobs >= 0 || (r->echo && r->logprobs >= 0);
    x->view.cap = x->view.num_tokens / x->block_size + 1;
    x->view.ids = malloc((size_t)x->view.cap * KV_MAX_GROUPS * sizeof *x->view.ids);
    if (!x->view.ids || !make_salt(x, 0, adapter, r->base.salt, r->base.salt_len) ||
        (r->base.salted && !make_salt(x, 1, adapter, NULL, 0)) ||
        (adapter && !make_salt(x, 2, 0, r->base.salt, r->base.salt_len)))
        return api_fail_memory(e);
    return true;
}

static bool begin_past(struct exchange *exchange, struct api_error *e) {
    struct explanation *x = (struct explanation *)exchange;
    uint8_t tenant[SHA256_BYTES];
    const char *id = strstr(exchange->http->path, PAST_PATH) + strlen(PAST_PATH);
    begin_common(x);
    app_tenant(exchange->app, &exchange->http->head, tenant);
    const struct past_request *r = past_requests_find(exchange->app->past, id, x->admin ? NULL : tenant);
    if (!r)
        return api_fail(e, 404, "request_not_found", NULL,
                        "There is no request '%.120s' among the last %d of this key.", id, PROMPT_PAST);
    x->view.id = r->id;
    x->salted = r->salted;
    snprintf(x->adapter, sizeof x->adapter, "%s", r->adapter);
    return true;
}

// ---- what is answered

static void write_token(struct buf *b, const struct explanation *x, const char *name, token_id id) {
    size_t len;
    const char *text = tokenizer_bytes(x->tokenizer, id, true, &len);
    buf_fmt(b, ",\"%s\":{\"id\":%d,\"text\":", name, (int)id);
    json_quote(b, text, len);
    buf_char(b, '}');
}

static void write_reason(struct buf *b, const char *reason, const char *message) {
    buf_fmt(b, "\"reason\":\"%s\",\"message\":\"%s\"", reason, message);
}

static void write_stop(struct buf *b, const struct explanation *x) {
    static const char *const kinds[] = {[KV_FULL] = "full", [KV_WINDOW] = "window", [KV_STATE] = "state"};
    const struct prompt_view *v = &x->view;
    const struct kv_ending *end = &v->ending;
    buf_fmt(b, ",\"stop\":{\"position\":%d,", v->cached[0]);
    if (!v->share) {
        write_reason(b, "disabled", "The server runs without a prefix cache.");
    } else if (v->all_rows) {
        write_reason(b, "prompt_logprobs", "Log-probabilities of the prompt are computed anew.");
    } else if (v->cached[1] > v->cached[0]) {
        write_reason(b, "salt", "Without its cache_salt more of the prompt would hit.");
        buf_fmt(b, ",\"cached_tokens_without\":%d", v->cached[1]);
    } else if (v->cached[2] > v->cached[0]) {
        write_reason(b, "adapter", "More of the prompt is cached for the model without the adapter.");
        buf_fmt(b, ",\"cached_tokens_without\":%d", v->cached[2]);
    } else if (end->why == KV_END_PROMPT) {
        write_reason(b, "partial_block",
                     "All whole blocks hit; what is left fills none, and the last token is always computed.");
    } else if (end->why == KV_END_EVICTED) {
        write_reason(b, "evicted", "The block was cached, and its page was needed for others.");
        buf_fmt(b, ",\"evicted_s_ago\":%.1f", (double)(v->clock - end->when) * VIEW_CLOCK_NS / 1e9);
    } else if (end->why == KV_END_GROUP) {
        write_reason(b, "group", "The block is cached, but not for all groups of layers.");
        buf_fmt(b, ",\"group\":%d,\"kind\":\"%s\"", end->group, kinds[v->group.kind]);
    } else if (end->why == KV_END_DIFFERS && x->details) {
        write_reason(b, "differs", "What is cached from here on is another text.");
        buf_fmt(b, ",\"differs_at\":%d", v->cached[0] + end->same);
        write_token(b, x, "token", v->token);
        if (x->admin)
            write_token(b, x, "cached_token", end->other);
    } else {
        write_reason(b, "new", "Nothing that follows this prefix is cached, or was lately.");
    }
    buf_char(b, '}');
}

// Pages beyond memory: how many tokens they would bring to a prompt, or brought to a request.
static void write_store(struct buf *b, const struct prompt_view *v) {
    buf_lit(b, ",\"store\":");
    if (!v->store_at) {
        buf_lit(b, "null");
        return;
    }
    buf_fmt(b, "{\"where\":\"%s\",", v->store_at);
    if (v->num_tokens == 0)
        buf_fmt(b, "\"fetched_tokens\":%d,\"fetch_ms\":%.3f}", v->num_fetched, (double)v->fetch_ns / 1e6);
    else if (v->store.age_s < 0 || v->all_rows)
        buf_fmt(b, "\"cached_tokens\":%d,\"age_s\":null}", v->cached[0]);
    else
        buf_fmt(b, "\"cached_tokens\":%d,\"age_s\":%lld}", v->store.num_cached, (long long)v->store.age_s);
}

static bool write_explanation(struct exchange *exchange, struct buf *b, struct api_error *e) {
    const struct explanation *x = (struct explanation *)exchange;
    const struct prompt_view *v = &x->view;
    if (v->num_tokens == 0 && !v->found)
        return api_fail(e, 404, "request_not_found", NULL, "The request has not begun, or is forgotten.");
    buf_fmt(b,
            "{\"object\":\"cache.explanation\",\"prompt_tokens\":%d,\"cached_tokens\":%d,\"block_size\":%d,"
            "\"domain\":{\"adapter\":",
            v->num_prompt, v->cached[0], x->block_size);
    if (*x->adapter)
        json_quote(b, x->adapter, strlen(x->adapter));
    else
        buf_lit(b, "null");
    buf_fmt(b, ",\"cache_salt\":%s,\"key\":%s}", x->salted ? "true" : "false", x->keyed ? "true" : "false");
    write_stop(b, x);
    write_store(b, v);
    buf_char(b, '}');
    return true;
}

static bool write_estimate(struct exchange *exchange, struct buf *b, struct api_error *e) {
    (void)e;
    const struct explanation *x = (struct explanation *)exchange;
    const struct prompt_view *v = &x->view;
    buf_fmt(b, "{\"object\":\"estimate\",\"prompt_tokens\":%d,\"cached_tokens\":%d", v->num_prompt,
            v->cached[0]);
    if (v->predicted_ns < 0)
        buf_lit(b, ",\"ttft_ms\":null,\"queue_ms\":null}");
    else
        buf_fmt(b, ",\"ttft_ms\":%.3f,\"queue_ms\":%.3f}", (double)v->predicted_ns / 1e6,
                (double)v->queue_ns / 1e6);
    return true;
}

static void free_explanation(struct exchange *exchange) {
    struct explanation *x = (struct explanation *)exchange;
    if (x->parsed)
        completion_request_free(&x->request);
    for (int i = 0; i < PROMPT_ROOTS; i++)
        buf_free(&x->salts[i]);
    free(x->view.ids);
}

const struct exchange_kind prompt_explanation = {.size = sizeof(struct explanation),
                                                 .read = read_prompt,
                                                 .begin = begin_prompt,
                                                 .finish = write_explanation,
                                                 .done = free_explanation};

const struct exchange_kind past_explanation = {.size = sizeof(struct explanation),
                                               .begin = begin_past,
                                               .finish = write_explanation,
                                               .done = free_explanation};

const struct exchange_kind prompt_estimate = {.size = sizeof(struct explanation),
                                              .read = read_prompt,
                                              .begin = begin_prompt,
                                              .finish = write_estimate,
                                              .done = free_explanation};
