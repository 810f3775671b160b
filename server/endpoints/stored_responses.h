// /v1/responses/{id} and its input_items: of responses that --store keeps.
#pragma once

#include "requests/exchange.h"

extern const struct exchange_kind stored_response; // GET, DELETE
