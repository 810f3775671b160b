#include "completion_request.h"

#include "grammar/grammar.h"

#include <stdlib.h>

void completion_request_free(struct completion_request *r) {
    api_request_free(&r->base);
    token_buf_free(&r->prediction);
    for (int i = 0; i < r->num_stops; i++)
        free(r->stops[i]);
    free(r->stops);
    free((void *)(uintptr_t)r->history.dry_breakers);
    free((void *)(uintptr_t)r->history.dry_sequences);
    free(r->allowed);
    free(r->bad_words);
    free(r->bias);
    free(r->logprob_ids);
    json_decref(r->tools);
    json_decref(r->callable);
    json_decref(r->foreign_tools);
    if (r->structured)
        part_arena_free(&r->structured->arena);
    free(r->structured);
    constraint_release(r->constraint);
    buf_free(&r->items);
    buf_free(&r->repeated);
    buf_free(&r->response_fields);
    *r = (struct completion_request){0};
}
