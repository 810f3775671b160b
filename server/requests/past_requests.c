#include "past_requests.h"

#include "prompt_view.h"

#include <stdlib.h>
#include <string.h>

struct past_requests {
    struct past_request items[PROMPT_PAST]; // a ring
    uint64_t num;
};

struct past_requests *past_requests_new(void) {
    return calloc(1, sizeof(struct past_requests));
}

void past_requests_add(struct past_requests *p, const char *client_id, size_t prefix,
                       const struct api_request *q, uint64_t id) {
    struct past_request *r = &p->items[p->num++ % PROMPT_PAST];
    *r = (struct past_request){.id = id, .prefix = prefix, .salted = q->salted};
    snprintf(r->client_id, sizeof r->client_id, "%s", client_id);
    snprintf(r->adapter, sizeof r->adapter, "%s", q->lora ? q->lora->name : "");
    memcpy(r->tenant, q->tenant, SHA256_BYTES);
}

const struct past_request *past_requests_find(const struct past_requests *p, const char *id,
                                              const uint8_t *tenant) {
    uint64_t n = p->num < PROMPT_PAST ? p->num : PROMPT_PAST;
    for (uint64_t i = 0; i < n; i++) {
        const struct past_request *r = &p->items[(p->num - 1 - i) % PROMPT_PAST];
        if ((strcmp(r->client_id, id) == 0 || strcmp(r->client_id + r->prefix, id) == 0) &&
            (!tenant || memcmp(r->tenant, tenant, SHA256_BYTES) == 0))
            return r;
    }
    return NULL;
}
