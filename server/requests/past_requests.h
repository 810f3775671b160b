// The engine's ids of clients' requests, the last PROMPT_PAST, for questions about one of them. Loop thread.
#pragma once

#include "api/api_request.h"
#include "api/loras.h"

struct past_request {
    char client_id[REQUEST_ID_SIZE + 12], adapter[MAX_LORA_NAME + 1];
    uint8_t tenant[SHA256_BYTES];
    uint64_t id;   // the engine's
    size_t prefix; // of client_id
    bool salted;
};

struct past_requests;
struct past_requests *past_requests_new(void); // NULL: out of memory; for free()
// client_id: the response's, of which `prefix` bytes are its dialect's.
void past_requests_add(struct past_requests *p, const char *client_id, size_t prefix,
                       const struct api_request *q, uint64_t id);
// The last one of this id, the response's or the request's own. NULL: the tenant has none; a NULL tenant has all.
const struct past_request *past_requests_find(const struct past_requests *p, const char *id,
                                              const uint8_t *tenant);
