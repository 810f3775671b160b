// Responses that are kept (--store): by owner and id, as many bytes as allowed, the oldest go first. Any thread.
#pragma once

#include "buf.h"
#include "http/auth.h"

#include <stdbool.h>

struct response_store;

struct response_store *response_store_new(size_t max_bytes); // NULL: out of memory
void response_store_free(struct response_store *s);          // NULL is allowed
// Keeps copies of a body and of the JSON list of the items that led to it, in place of what has this id. One that does
// not fit is not kept.
void response_store_put(struct response_store *s, const uint8_t owner[SHA256_BYTES], const char *id,
                        const struct buf *body, const struct buf *items);
// Appends copies; either may be NULL. False: there is none of that owner and id, or a buffer has failed.
bool response_store_get(struct response_store *s, const uint8_t owner[SHA256_BYTES], const char *id,
                        struct buf *body, struct buf *items);
// False: there is none of that owner and id.
bool response_store_delete(struct response_store *s, const uint8_t owner[SHA256_BYTES], const char *id);
