#include "token_counts.h"

#include "log.h"

#include <stdlib.h>

static unsigned home(const struct token_counts *c, token_id token) {
    return (unsigned)token * 2654435769u & ((unsigned)c->cap - 1); // Knuth's multiplicative hash
}

// The token's entry, added where it is new. The index is at most half full, so the search ends.
static struct token_count *entry(struct token_counts *c, token_id token) {
    unsigned mask = (unsigned)c->cap - 1, at = home(c, token);
    while (c->index[at] != 0 && c->list[c->index[at] - 1].token != token)
        at = (at + 1) & mask;
    if (c->index[at] == 0) {
        c->list[c->num] = (struct token_count){.token = token};
        c->index[at] = ++c->num;
    }
    return &c->list[c->index[at] - 1];
}

bool token_counts_init(struct token_counts *c, int max_tokens, const token_id *prompt, int n) {
    *c = (struct token_counts){.cap = 2};
    while (c->cap / 2 < max_tokens)
        c->cap *= 2;
    c->list = malloc((size_t)max_tokens * sizeof *c->list);
    c->index = calloc((size_t)c->cap, sizeof *c->index);
    if (!c->list || !c->index)
        return false;
    for (int i = 0; i < n; i++)
        entry(c, prompt[i])->prompt++;
    return true;
}

void token_counts_free(struct token_counts *c) {
    free(c->list);
    free(c->index);
    *c = (struct token_counts){0};
}

void token_counts_add(struct token_counts *c, token_id token) {
    if (c->list)
        entry(c, token)->output++;
}

struct token_count *token_counts_find(struct token_counts *c, token_id token) {
    return entry(c, token);
}

// The token taken back is the last that was added. If it was new, its entry is the last of the list, and no other
// entry was put behind its place in the index.
void token_counts_take_back(struct token_counts *c, token_id token) {
    if (!c->list)
        return;
    struct token_count *e = entry(c, token);
    CHECK(e->output > 0);
    if (--e->output > 0 || e->prompt > 0)
        return;
    CHECK(e == &c->list[c->num - 1]);
    unsigned at = home(c, token);
    while (c->index[at] != c->num)
        at = (at + 1) & ((unsigned)c->cap - 1);
    c->index[at] = 0;
    c->num--;
}
