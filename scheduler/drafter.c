#include "drafter.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

void drafter_free(struct drafter *d) {
    if (d && d->free)
        d->free(d->state);
    free(d);
}

static struct drafter *drafter_new(struct drafter of) {
    struct drafter *d = malloc(sizeof *d);
    if (d)
        *d = of;
    return d;
}

// ---- prompt lookup

enum { MAX_MATCH = 32, MAX_CANDIDATES = 64, FIRST_CAPACITY = 256 };

// An n-gram is named by the position of its last token. Those of equal hash form a chain, the latest first.
struct ngrams {
    int min_match, num_indexed;
    int capacity; // a power of two
    int *heads;   // (capacity) by hash; -1: none
    int *before;  // (capacity) by position: the next of its chain; -1: it is the last
};

static void ngrams_free(void *state) {
    struct ngrams *g = state;
    free(g->heads);
    free(g);
}

// The hash of the n-gram that ends at `last`
static size_t hash_at(const struct ngrams *g, const token_id *tokens, int last) {
    uint64_t h = 0;
    for (int i = 0; i < g->min_match; i++)
        h = (h ^ (uint32_t)tokens[last - i]) * 0x9e3779b97f4a7c15u;
    return (h >> 32) & (size_t)(g->capacity - 1);
}

static bool ngrams_grow(struct ngrams *g, int n) {
    int capacity = g->capacity ? g->capacity : FIRST_CAPACITY;
    while (capacity < n && capacity <= INT_MAX / 2)
        capacity *= 2;
    if (capacity == g->capacity)
        return true;
    int *heads = n <= capacity ? malloc((size_t)capacity * 2 * sizeof *heads) : NULL;
    if (!heads)
        return false;
    free(g->heads);
    memset(heads, 0xff, (size_t)capacity * sizeof *heads);
    g->heads = heads;
    g->before = heads + capacity;
    g->capacity = capacity;
    g->num_indexed = 0;
    return true;
}

static int match_length(const token_id *tokens, int end, int at) {
    int len = 0;
    while (len < MAX_MATCH && len <= at && tokens[at - len] == tokens[end - len])
        len++;
    return len;
}

static int ngrams_propose(void *state, const token_id *tokens, int n, token_id *drafts, int max) {
    struct ngrams *g = state;
    if (n <= g->min_match || !ngrams_grow(g, n))
        return 0;
    for (; g->num_indexed < n - 1; g->num_indexed++) { // the last is what is looked for
        int last = g->num_indexed;
        if (last < g->min_match - 1)
            continue;
        int *head = &g->heads[hash_at(g, tokens, last)];
        g->before[last] = *head;
        *head = last;
    }
    int best = g->min_match - 1, at = -1;
    int candidate = g->heads[hash_at(g, tokens, n - 1)];
    for (int i = 0; candidate >= 0 && i < MAX_CANDIDATES && best < MAX_MATCH; i++) {
        int len = match_length(tokens, n - 1, candidate);
        if (len > best) {
            best = len;
            at = candidate;
        }
        candidate = g->before[candidate];
    }
    for (int i = 0; at >= 0 && i < max; i++) // a text that repeats itself goes on in its own drafts
        drafts[i] = at + 1 + i < n ? tokens[at + 1 + i] : drafts[at + 1 + i - n];
    return at >= 0 ? max : 0;
}

struct drafter *ngram_drafter(int min_match) {
    struct ngrams *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->min_match = min_match;
    struct drafter *d = drafter_new((struct drafter){g, ngrams_propose, ngrams_free});
    if (!d)
        ngrams_free(g);
    return d;
}

// ---- lookup in a prediction, as if it stood before the text

struct predicted {
    struct drafter *lookup;
    token_id *tokens; // (capacity) the prediction, then the text
    int num_predicted, num, capacity;
};

static int predicted_propose(void *state, const token_id *tokens, int n, token_id *drafts, int max) {
    struct predicted *p = state;
    int num = p->num_predicted + n;
    if (n > INT_MAX / 4)
        return 0;
    if (num > p->capacity) {
        token_id *grown = realloc(p->tokens, (size_t)num * 2 * sizeof *grown);
        if (!grown)
            return 0;
        p->tokens = grown;
        p->capacity = num * 2;
    }
    for (; p->num < num; p->num++)
        p->tokens[p->num] = tokens[p->num - p->num_predicted];
    return p->lookup->propose(p->lookup->state, p->tokens, num, drafts, max);
}

static void predicted_free(void *state) {
    struct predicted *p = state;
    drafter_free(p->lookup);
    free(p->tokens);
    free(p);
}

struct drafter *predicted_drafter(int min_match, const token_id *predicted, int n) {
    struct predicted *p = n < INT_MAX / 4 ? calloc(1, sizeof *p) : NULL;
    struct drafter *d = NULL;
    if (!p)
        return NULL;
    p->num_predicted = p->num = p->capacity = n;
    p->lookup = ngram_drafter(min_match);
    p->tokens = malloc((size_t)(n > 0 ? n : 1) * sizeof *p->tokens);
    if (p->lookup && p->tokens)
        d = drafter_new((struct drafter){p, predicted_propose, predicted_free});
    if (d && n > 0)
        memcpy(p->tokens, predicted, (size_t)n * sizeof *predicted);
    if (!d)
        predicted_free(p);
    return d;
}

// ---- one or the other

struct either {
    struct drafter *first, *second;
};

static int either_propose(void *state, const token_id *tokens, int n, token_id *drafts, int max) {
    struct either *e = state;
    int num = e->first->propose(e->first->state, tokens, n, drafts, max);
    return num > 0 ? num : e->second->propose(e->second->state, tokens, n, drafts, max);
}

static void either_free(void *state) {
    struct either *e = state;
    drafter_free(e->first);
    drafter_free(e->second);
    free(e);
}

struct drafter *either_drafter(struct drafter *first, struct drafter *second) {
    struct either *e = malloc(sizeof *e);
    struct drafter *d = e ? drafter_new((struct drafter){e, either_propose, either_free}) : NULL;
    if (d)
        *e = (struct either){first, second};
    else
        free(e);
    return d;
}
