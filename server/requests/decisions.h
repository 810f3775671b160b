// Typed decisions, in whatever dialect: the probabilities of all answers. They come whole, when all rows are there.
#pragma once

#include "exchange.h"

void decisions_start(struct app *app, struct http_request *request, const struct decision_dialect *dialect);
