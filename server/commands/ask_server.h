// A running server, as the commands that ask one are told of it. The caller's thread.
#pragma once

#include "http/client.h"
#include "process/config.h"

#include <jansson.h>

// Whether an argument that may be a MODEL is a server's address: it has a scheme, or is HOST:PORT[/PATH] and no file.
bool server_is_named(const char *argument);
// The server of --url or `named` (NULL: not given), else of --host and --port. false: the URL is none.
bool server_url(const struct config *c, const char *named, struct client_url *url);
// GETs JSON of a path below the URL's, with the key of --api-key. The caller frees *out, NULL where it fails. stop: as in struct
// client_request.
enum status server_get(const struct config *c, const struct client_url *url, const char *path,
                       const volatile sig_atomic_t *stop, json_t **out, struct err *err);
