// /v1/responses/{id}, its input_items and cancel: of responses that --store keeps.
#pragma once

#include "requests/exchange.h"

extern const struct exchange_kind stored_response;       // GET, DELETE
extern const struct exchange_kind response_cancellation; // POST
