#include "ask_server.h"

#include "buf.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TIMEOUT_MS = 10000, MAX_RESPONSE = 256 << 20 };

bool server_is_named(const char *argument) {
    struct client_url url;
    return strstr(argument, "://") || (client_parse_url(argument, &url) && access(argument, F_OK) != 0);
}

bool server_url(const struct config *c, const char *named, struct client_url *url) {
    *url = (struct client_url){.path = ""};
    snprintf(url->host, sizeof url->host, "%s", c->host);
    snprintf(url->port, sizeof url->port, "%d", c->port);
    named = c->url ? c->url : named;
    if (named && !client_parse_url(named, url))
        return false;
    if (strcmp(url->path, "/") == 0)
        url->path[0] = '\0';
    return true;
}

enum status server_get(const struct config *c, const struct client_url *url, const char *path,
                       const volatile sig_atomic_t *stop, json_t **out, struct err *err) {
    struct client_request request = {.method = "GET",
                                     .key = c->api_keys.len ? c->api_keys.items[0] : NULL,
                                     .timeout_ms = TIMEOUT_MS,
                                     .stop = stop};
    struct http_client client;
    struct buf b = {0};
    char whole[1200], chunk[16384];
    size_t got = 1;
    *out = NULL;
    snprintf(whole, sizeof whole, "%s%s", url->path, path);
    request.path = whole;
    enum status status = client_open(&client, url, &request, err);
    if (status != STATUS_OK)
        return status;
    while (status == STATUS_OK && got > 0 && b.len < MAX_RESPONSE) {
        status = client_read(&client, chunk, sizeof chunk, &got, err);
        buf_add(&b, chunk, got);
    }
    client_close(&client);
    json_t *root = status == STATUS_OK ? json_loadb(b.data ? b.data : "", b.len, 0, NULL) : NULL;
    const char *message = json_string_value(json_object_get(json_object_get(root, "error"), "message"));
    if (status == STATUS_OK && (client.status != 200 || !root))
        status = err_set(err, STATUS_IO, "status %d: %.300s%s", client.status, message ? message : "no JSON",
                         client.status == 401 ? " (--api-key, QUIRE_API_KEY)" : "");
    buf_free(&b);
    if (status == STATUS_OK)
        *out = root;
    else
        json_decref(root);
    return status;
}
