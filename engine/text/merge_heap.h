// The pairs of neighbouring symbols of a long word that may be merged: the best one on top.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct merge_pair {
    float score;  // the highest goes first
    int32_t left; // the left symbol; of equal scores the first goes first
    // The pair as it was pushed: bytes (SPM) or slot of the merge (BPE). If they differ now, a symbol of it has been
    // merged with another, and the pair is out of date.
    uint32_t what;
};

struct merge_heap {
    struct merge_pair *pairs; // owned; at most one per symbol and two per merge are pushed: 3 per symbol
    size_t num;
};

static inline bool merge_before(struct merge_pair a, struct merge_pair b) {
    return a.score > b.score || (a.score == b.score && a.left < b.left);
}

static inline void merge_heap_push(struct merge_heap *h, struct merge_pair pair) {
    size_t i = h->num++;
    for (; i > 0 && merge_before(pair, h->pairs[(i - 1) / 2]); i = (i - 1) / 2)
        h->pairs[i] = h->pairs[(i - 1) / 2];
    h->pairs[i] = pair;
}

static inline struct merge_pair merge_heap_pop(struct merge_heap *h) {
    struct merge_pair top = h->pairs[0], last = h->pairs[--h->num];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < h->num; i = child) {
        if (child + 1 < h->num && merge_before(h->pairs[child + 1], h->pairs[child]))
            child++;
        if (!merge_before(h->pairs[child], last))
            break;
        h->pairs[i] = h->pairs[child];
    }
    h->pairs[i] = last;
    return top;
}
