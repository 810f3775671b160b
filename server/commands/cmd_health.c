// quire health [URL]: asks a running server whether it is well, for the health checks of containers and
// supervisors, so that an image needs no HTTP client. Exit code 0: 200; 1: any other response, or none within
// TIMEOUT.
#include "commands.h"
#include "http/client.h"
#include "process/console.h"

#include <stdio.h>
#include <string.h>

enum { TIMEOUT_MS = 5000, MAX_RESPONSE = 65536, EXIT_UNWELL = 1 };

static int ask_server(const struct client_url *url) {
    static char body[MAX_RESPONSE + 1];
    const struct client_request request = {.method = "GET", .timeout_ms = TIMEOUT_MS, .total_ms = TIMEOUT_MS};
    struct http_client c;
    struct err err = {0};
    size_t len = 0, got = 1;
    enum status status = client_open(&c, url, &request, &err);
    if (status != STATUS_OK) {
        complain("%s", err.msg);
        return EXIT_UNWELL;
    }
    while (status == STATUS_OK && got > 0 && len < MAX_RESPONSE) {
        status = client_read(&c, body + len, MAX_RESPONSE - len, &got, &err);
        len += got;
    }
    client_close(&c);
    body[len] = '\0';
    if (status != STATUS_OK)
        complain("%s port %s: %s", url->host, url->port, err.msg);
    else if (c.status != 200)
        complain("status %d: %.400s", c.status, body);
    if (status != STATUS_OK || c.status != 200)
        return EXIT_UNWELL;
    printf("%s\n", body);
    return fflush(stdout) == 0 ? 0 : EXIT_UNWELL;
}

int cmd_health(const struct config *c) {
    struct client_url url = {.path = "/health"};
    snprintf(url.host, sizeof url.host, "%s", c->host);
    snprintf(url.port, sizeof url.port, "%d", c->port);
    if (c->args.len > 1 || (c->args.len == 1 && !client_parse_url(c->args.items[0], &url))) {
        complain("usage: quire health [[http://]HOST:PORT[/PATH]]%s",
                 client_url_hint(c->args.len == 1 ? c->args.items[0] : NULL));
        return EXIT_USAGE;
    }
    return ask_server(&url);
}
