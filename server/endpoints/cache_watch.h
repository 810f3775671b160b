// GET /v1/cache/events: which blocks the prefix cache has, as they come and go, in the events of vLLM's KV cache (vllm/distributed/
// kv_events.py), as server-sent events: for routers.
#pragma once

#include "requests/exchange.h"

extern const struct exchange_kind cache_watch;
