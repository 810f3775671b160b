// Choices by their ids at the engine.
#include "completion_state.h"
#include "log.h"

static struct choice **bucket_of(struct app *app, uint64_t id) {
    return &app->table[id & (app->table_size - 1)];
}

struct choice *choice_table_find(struct app *app, uint64_t id) {
    struct choice *ch = *bucket_of(app, id);
    while (ch && ch->id != id)
        ch = ch->next;
    return ch;
}

void choice_table_add(struct app *app, struct choice *ch) {
    struct choice **b = bucket_of(app, ch->id);
    ch->next = *b;
    *b = ch;
}

void choice_table_remove(struct app *app, struct choice *ch) {
    if (!ch->id)
        return;
    struct choice **b = bucket_of(app, ch->id);
    while (*b && *b != ch)
        b = &(*b)->next;
    CHECK(*b == ch);
    *b = ch->next;
    ch->id = 0;
}
