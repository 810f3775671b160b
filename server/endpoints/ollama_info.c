// Ollama's small responses: which model there is, and what it can do.
#include "handlers.h"

#include "api/messages.h"
#include "api/rewrite.h"
#include "build_id.h"
#include "dialects/ollama.h"
#include "engine.h"
#include "page/page.h"
#include "requests/job.h"
#include "requests/reply.h"

#include <ctype.h>
#include <string.h>

// ,"details":{…}
static void write_details(struct buf *b, const struct engine_info *info) {
    double billions = (double)info->num_params / 1e9;
    char type[sizeof info->weights_dtype];
    size_t n = 0;
    for (; info->weights_dtype[n]; n++)
        type[n] = (char)toupper((unsigned char)info->weights_dtype[n]);
    buf_lit(b, ",\"details\":{\"parent_model\":\"\",\"format\":\"gguf\",\"family\":");
    json_quote(b, info->model.arch, strlen(info->model.arch));
    buf_lit(b, ",\"families\":[");
    json_quote(b, info->model.arch, strlen(info->model.arch));
    buf_fmt(b, "],\"parameter_size\":\"%.1f%s\",\"quantization_level\":",
            billions < 1 ? billions * 1e3 : billions, billions < 1 ? "M" : "B");
    json_quote(b, type, n);
    buf_char(b, '}');
}

// The digest names the model and how it is computed.
static void write_model(struct buf *b, const struct app *app, const char *name) {
    const struct engine_info *info = engine_info(app->engine);
    uint8_t digest[SHA256_BYTES];
    sha256(app->fingerprint, strlen(app->fingerprint), digest);
    buf_lit(b, "{\"name\":");
    json_quote(b, name, strlen(name));
    buf_lit(b, ",\"model\":");
    json_quote(b, name, strlen(name));
    buf_fmt(b, ",\"size\":%llu,\"digest\":\"", (unsigned long long)info->file_bytes);
    for (size_t i = 0; i < SHA256_BYTES; i++)
        buf_fmt(b, "%02x", digest[i]);
    buf_char(b, '"');
    write_details(b, info);
}

void get_ollama_tags(struct app *app, struct http_request *request) {
    struct buf b = {0};
    buf_lit(&b, "{\"models\":[");
    for (size_t i = 0; i < app->names.len; i++) {
        if (i)
            buf_char(&b, ',');
        write_model(&b, app, app->names.items[i]);
        buf_lit(&b, ",\"modified_at\":");
        dialect_write_time(&b, app->created);
        buf_char(&b, '}');
    }
    buf_lit(&b, "]}");
    reply_json(request, &b);
}

void get_ollama_ps(struct app *app, struct http_request *request) {
    const struct engine_info *info = engine_info(app->engine);
    struct buf b = {0};
    buf_lit(&b, "{\"models\":[");
    write_model(&b, app, app->names.items[0]);
    buf_fmt(&b, ",\"expires_at\":\"9999-12-31T23:59:59Z\",\"size_vram\":%llu,\"context_length\":%d}]}",
            strncmp(info->device, "cpu", 3) == 0 ? 0ULL : (unsigned long long)info->weight_bytes,
            app->model.max_model_len);
    reply_json(request, &b);
}

static void write_capabilities(struct buf *b, const struct served_model *m) {
    buf_str(b, m->pooling != POOLING_NONE ? ",\"capabilities\":[\"embedding\""
                                          : ",\"capabilities\":[\"completion\"");
    if (tokenizer_fim(m->tokenizer))
        buf_lit(b, ",\"insert\"");
    if (chat_calls_tools(m))
        buf_lit(b, ",\"tools\"");
    if (rewrite_can_reason(m))
        buf_lit(b, ",\"thinking\"");
    buf_char(b, ']');
}

// Clients plan with the context length: it is the server's, not the model's.
static void write_shown(struct buf *b, const struct app *app) {
    const struct engine_info *info = engine_info(app->engine);
    const struct model_config *c = &info->model;
    const char *source = app->model.template_source;
    buf_lit(b, "{\"license\":\"\",\"modelfile\":\"\",\"parameters\":\"\",\"template\":");
    json_quote(b, source ? source : "", source ? strlen(source) : 0);
    write_details(b, info);
    buf_lit(b, ",\"model_info\":{\"general.architecture\":");
    json_quote(b, c->arch, strlen(c->arch));
    buf_lit(b, ",\"general.basename\":");
    json_quote(b, app->names.items[0], strlen(app->names.items[0]));
    buf_fmt(b,
            ",\"general.parameter_count\":%llu,\"%s.context_length\":%d,\"%s.embedding_length\":%d,"
            "\"%s.block_count\":%d,\"%s.vocab_size\":%d}",
            (unsigned long long)info->num_params, c->arch, app->model.max_model_len, c->arch, c->hidden,
            c->arch, c->num_layers, c->arch, c->vocab);
    write_capabilities(b, &app->model);
    buf_lit(b, ",\"modified_at\":");
    dialect_write_time(b, app->created);
    buf_char(b, '}');
}

void post_ollama_show(struct app *app, struct http_request *request) {
    struct buf body = http_take_body(request), b = {0};
    struct api_error e = {0};
    bool ok = body.len <= POOL_BODY || api_fail(&e, 413, "request_too_large", NULL, "The body is too large.");
    json_t *root = ok ? body_load(body.data, body.len, &e) : NULL;
    if (root && !field_get(root, "model") && field_get(root, "name")) // its older name
        json_object_set(root, "model", json_object_get(root, "name"));
    if (root && ollama_model(&app->model, root, &e)) {
        write_shown(&b, app);
        reply_json(request, &b);
    } else {
        reply_error(request, &e);
    }
    json_decref(root);
    http_free_body(&app->http, &body);
}

// Ollama's clients ask whether somebody is here; browsers get the page.
void get_root(struct app *app, struct http_request *request) {
    static const char text[] = "Quire is running";
    if (page_wanted(app, request, true)) {
        page_reply(request);
        return;
    }
    if (!app->config->no_page)
        http_header(request, "Vary", "Accept");
    http_reply(request, 200, "text/plain; charset=utf-8", text, sizeof text - 1);
}
