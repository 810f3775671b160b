#include "app.h"

#include "dialects/response_store.h"
#include "processes.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *app_group_error(const struct app *app) {
    return app->config->processes ? processes_error(app->config->processes) : "";
}

void app_stats(struct app *app, struct service_stats *stats) {
    *stats = (struct service_stats){0};
    if (app->service)
        service_stats(app->service, stats);
    if (*app_group_error(app)) // the engine thread may be held by MPI, and not know yet
        stats->dead = true;
}

const char *app_key(const struct http_head *head) {
    const char *key = head->api_key;
    if (head->authorization && strncasecmp(head->authorization, "bearer ", 7) == 0) {
        key = head->authorization + 7;
        while (*key == ' ')
            key++;
    }
    return key;
}

void app_tenant(const struct app *app, const struct http_head *head, uint8_t out[SHA256_BYTES]) {
    bool outlive = app->auth.num_keys > 0 && app->store && response_store_waits(app->store);
    const char *key = app->has_tenants || outlive ? app_key(head) : NULL; // the next start may have another
    memset(out, 0, SHA256_BYTES);
    if (key)
        sha256(key, strlen(key), out);
}

struct work_client app_client(const struct app *app, const struct http_request *request) {
    struct work_client client;
    app_tenant(app, &request->head, client.id);
    if (app->auth.num_keys < 2)
        memcpy(client.id, request->conn->peer, sizeof request->conn->peer);
    return client;
}

bool app_salt(const struct app *app, const struct http_head *head, char **salt, size_t *len) {
    uint8_t both[SHA256_BYTES + MAX_SALT];
    if (!app->has_tenants || app->config->share_prefixes)
        return true;
    app_tenant(app, head, both);
    if (*len)
        memcpy(both + SHA256_BYTES, *salt, *len);
    free(*salt);
    if (!(*salt = malloc(SHA256_BYTES)))
        return false;
    sha256(both, SHA256_BYTES + *len, (uint8_t *)*salt);
    *len = SHA256_BYTES;
    return true;
}

struct key_note app_key_note(const struct app *app, const struct http_head *head) {
    const char *key = app->auth.num_keys > 0 ? app_key(head) : NULL;
    const char *name = key ? auth_name(&app->auth, key, strlen(key)) : NULL;
    struct key_note note = {""};
    if (name)
        snprintf(note.text, sizeof note.text, " key=%s", name);
    return note;
}

bool app_is_admin(const struct app *app, const struct http_head *head) {
    const char *key = app->admin.num_keys > 0 ? app_key(head) : NULL;
    return key && auth_check(&app->admin, key, strlen(key));
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

bool app_gives(const struct app *app, bool vectors, bool scores, struct api_error *e) {
    const struct served_model *m = &app->model;
    bool embeds = m->pooling != POOLING_NONE;
    return (vectors == embeds && scores == m->ranks) ||
           api_fail(e, 400, "unsupported_model", "model", "%s",
                    m->ranks ? "This model ranks documents: POST /v1/rerank or /v1/score."
                    : embeds ? "This model gives embeddings, not completions or scores: POST /v1/embeddings."
                    : scores
                        ? "This model gives completions. To rank documents start the server with a reranker."
                        : "This model gives completions. For embeddings start the server with an embedding "
                          "model, or with --pooling last, mean or cls.");
}
