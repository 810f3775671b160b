// Adapters through HTTP: vLLM's paths to load and unload them, llama-server's list. routes.c has checked the key.
#include "api/fields.h"
#include "api/loras.h"
#include "handlers.h"
#include "log.h"
#include "requests/reply.h"

#include <stdlib.h>
#include <string.h>

static bool read_text(const json_t *root, const char *name, const char **text, struct api_error *e) {
    const json_t *v = field_get(root, name);
    *text = json_name(v);
    if (!v)
        return api_fail(e, 400, "missing_required_parameter", name, "'%s' is needed.", name);
    return *text || api_fail(e, 400, "invalid_type", name, "'%s' must be a string, without NUL.", name);
}

static bool is_model(const struct served_model *m, const char *name) {
    bool found = false;
    for (size_t i = 0; i < m->num_names; i++)
        found |= strcmp(m->names[i], name) == 0;
    return found;
}

// A reason in which a path stands as the client wrote it: where files lie is nobody's business.
static void fail_without_path(enum status st, const char *why, const char *real, const char *path,
                              struct api_error *e) {
    struct buf text = {0};
    log_msg(LOG_WARN, "adapter=refused why=\"%s\"", why);
    bool cut = strlen(why) + 1 == sizeof((struct err *)0)->msg; // perhaps amid the path
    for (const char *at; !cut && (at = strstr(why, real)); why = at + strlen(real)) {
        buf_add(&text, why, (size_t)(at - why));
        buf_str(&text, path);
    }
    buf_str(&text, cut ? "the log says why" : why);
    const char *said = buf_cstr(&text);
    if (said)
        api_fail(e, 400, NULL, st == STATUS_LIMIT ? NULL : "lora_path", "The adapter is not loaded: %s.",
                 said);
    else
        api_fail_memory(e);
    buf_free(&text);
}

static bool load(const struct served_model *m, const json_t *root, struct buf *out, struct api_error *e) {
    const char *name, *path;
    const json_t *replace = field_get(root, "load_inplace");
    struct err err = {0};
    char *real;
    if (!read_text(root, "lora_name", &name, e) || !read_text(root, "lora_path", &path, e))
        return false;
    if (replace && !json_is_boolean(replace))
        return api_fail(e, 400, "invalid_type", "load_inplace", "'load_inplace' must be true or false.");
    if (!lora_name_ok(name, strlen(name)) || is_model(m, name))
        return api_fail(e, 400, NULL, "lora_name",
                        "'lora_name' must be 1 to %d letters, digits and '._-', and not the model's.",
                        MAX_LORA_NAME);
    enum status st = loras_resolve(m->lora_root, path, &real, &err);
    if (st != STATUS_OK)
        return api_fail(e, st == STATUS_IO ? 404 : 400, NULL, "lora_path", "The adapter is not loaded: %s.",
                        err.msg);
    st = loras_load(m->loras, name, real, json_is_true(replace), &err);
    if (st == STATUS_OK)
        buf_fmt(out, "{\"message\":\"Success: the adapter '%s' has been loaded successfully.\"}", name);
    else if (st == STATUS_CANCELLED)
        api_fail(e, 400, NULL, "lora_name", "The adapter '%.64s' has already been loaded.", name);
    else if (st == STATUS_NOMEM)
        api_fail_memory(e);
    else
        fail_without_path(st, err.msg, real, path, e);
    free(real);
    return st == STATUS_OK;
}

static bool unload(const struct served_model *m, const json_t *root, struct buf *out, struct api_error *e) {
    const char *name;
    if (!read_text(root, "lora_name", &name, e))
        return false;
    if (!loras_unload(m->loras, name, strlen(name)))
        return api_fail(e, 404, NULL, "lora_name", "The adapter '%.64s' cannot be found.", name);
    buf_fmt(out, "{\"message\":\"Success: the adapter '%s' has been removed successfully.\"}", name);
    return true;
}

static bool respond(const struct served_model *m, const char *body, size_t len, struct buf *out,
                    char *ignored, struct api_error *e,
                    bool (*fn)(const struct served_model *, const json_t *, struct buf *,
                               struct api_error *)) {
    json_t *root = body_load(body, len, e);
    *ignored = '\0';
    bool ok = root && fn(m, root, out, e);
    json_decref(root);
    return ok;
}

bool lora_load_response(const struct served_model *m, const char *body, size_t len, struct buf *out,
                        char *ignored, struct api_error *e) {
    return respond(m, body, len, out, ignored, e, load);
}

bool lora_unload_response(const struct served_model *m, const char *body, size_t len, struct buf *out,
                          char *ignored, struct api_error *e) {
    return respond(m, body, len, out, ignored, e, unload);
}

static void write_lora(void *arg, const struct lora *a) {
    struct buf *b = arg;
    buf_fmt(b, "%s{\"id\":%llu,\"path\":", b->len > 1 ? "," : "", (unsigned long long)a->adapter->id - 1);
    json_quote(b, a->name, strlen(a->name)); // where files lie is nobody's business
    buf_lit(b, ",\"scale\":1.0}");
}

// llama-server's. A request names its adapter as its model; here they are read only.
void get_loras(struct app *app, struct http_request *request) {
    struct buf b = {0};
    buf_char(&b, '[');
    loras_each(app->loras, write_lora, &b);
    buf_char(&b, ']');
    reply_json(request, &b);
}
