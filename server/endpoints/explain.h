// Why the cache missed, and when a first token would come. docs/api.md has their shapes.
#pragma once

#include "requests/exchange.h"

extern const struct exchange_kind prompt_explanation; // POST /v1/cache/explain
extern const struct exchange_kind past_explanation;   // GET /v1/cache/explain/{id}
extern const struct exchange_kind prompt_estimate;    // POST /v1/estimate
