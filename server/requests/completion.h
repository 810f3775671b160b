// One client's completion: its choices, from submission to the end of the response, in whatever dialect.
#pragma once

#include "exchange.h"

void completion_start(struct app *app, struct http_request *request, const struct dialect *dialect);
