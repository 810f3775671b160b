// /v1/responses/{id} and its input_items: of responses that --store keeps. Loop thread.
#pragma once

#include "requests/app.h"

void stored_response(struct app *app, struct http_request *request); // GET, DELETE
