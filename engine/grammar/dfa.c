#include "dfa.h"

#include <stdlib.h>

void dfa_free(struct dfa *d) {
    if (!d)
        return;
    free(d->next);
    free(d->label);
    free(d);
}

int32_t dfa_match(const struct dfa *d, const char *text, size_t len) {
    int32_t s = d->num_states ? 0 : DFA_DEAD;
    for (size_t i = 0; i < len && s >= 0; i++)
        s = dfa_step(d, s, (unsigned char)text[i]);
    return s < 0 ? -1 : d->label[s];
}

bool dfa_is_empty(const struct dfa *d) { return d->num_states == 0; }

// The number of ways into each state, which are taken once all ways into it are counted; a circle has no such order.
int64_t dfa_count(const struct dfa *d, int64_t most) {
    size_t n = (size_t)d->num_states, k = (size_t)d->num_classes;
    int64_t *ways = calloc(n + 1, sizeof *ways), texts = 0;
    int *into = calloc(n + 1, sizeof *into), *todo = calloc(n + 1, sizeof *todo);
    int bytes[256] = {0};
    size_t num_todo = 0, num_done = 0;
    if (!ways || !into || !todo)
        texts = most;
    for (int b = 0; b < 256; b++)
        bytes[d->class_of[b]]++;
    for (size_t i = 0; i < n * k && into; i++)
        if (d->next[i] >= 0)
            into[d->next[i]]++;
    if (n > 0 && texts < most && into[0] == 0) {
        ways[0] = 1;
        todo[num_todo++] = 0;
    }
    while (num_done < num_todo && texts < most) {
        int s = todo[num_done++];
        if (d->label[s] >= 0)
            texts = ways[s] < most - texts ? texts + ways[s] : most;
        for (size_t c = 0; c < k; c++) {
            int32_t to = d->next[(size_t)s * k + c];
            if (to < 0)
                continue;
            bool many = ways[s] > (most - ways[to]) / bytes[c];
            ways[to] = many ? most : ways[to] + ways[s] * bytes[c];
            if (--into[to] == 0)
                todo[num_todo++] = to;
        }
    }
    free(ways);
    free(into);
    free(todo);
    return num_done < n ? most : texts;
}
