#include "dataset_items.h"

#include "log.h"

#include <stdlib.h>

struct item *dataset_add(struct dataset *d, uint32_t num_turns) {
    if (d->num == d->cap) {
        d->cap = d->cap ? d->cap * 2 : 256;
        d->items = realloc(d->items, d->cap * sizeof *d->items);
        CHECK(d->items);
    }
    struct item *it = &d->items[d->num++];
    *it = (struct item){.turns = calloc(num_turns, sizeof *it->turns), .num_turns = num_turns};
    CHECK(it->turns);
    return it;
}

void item_free(struct item *it) {
    for (uint32_t t = 0; t < it->num_turns; t++)
        free(it->turns[t].segments);
    free(it->turns);
    *it = (struct item){0};
}
