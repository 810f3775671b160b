// GET /v1/engine and /v1/engine/pages/{i}: a look at the engine as JSON. docs/api.md has its shape.
#pragma once

#include "requests/exchange.h"

extern const struct exchange_kind engine_look;
