// Vectors, embeddings or scores, in whatever dialect: one of each input. They come whole, when all inputs are done.
#pragma once

#include "exchange.h"

void vectors_start(struct app *app, struct http_request *request, const struct vector_dialect *dialect);
