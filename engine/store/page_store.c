#include "page_store.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void page_store_name(const char *identity, char text[PAGE_STORE_NAME]) {
    const struct kv_cache naming = {.config = {.key = {0, 0}}};
    struct kv_hash h = kv_root(&naming, identity, strlen(identity));
    snprintf(text, PAGE_STORE_NAME, "%016" PRIx64 "%016" PRIx64, h.hi, h.lo);
}
