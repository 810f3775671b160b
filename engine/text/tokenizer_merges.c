// See tokenizer_merges.h.
#include "tokenizer_merges.h"

#include "hash.h"
#include "merge_heap.h"

#include <stdlib.h>

enum {
    SMALL_WORD = 32,      // symbols; up to here scanning for the best pair beats a heap
    MAX_MERGES = 1 << 23, // ranks are exact as floats
};

static uint32_t merge_hash(const struct tokenizer *t, token_id left, token_id right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    return (uint32_t)hash_mix(key ^ t->seed, 0x9e3779b97f4a7c15u ^ (t->seed >> 7)) & t->merge_mask;
}

// The slot of what two neighbours become, or the free one where it would be.
static struct merge_slot *merge_slot(const struct tokenizer *t, token_id left, token_id right) {
    uint32_t s = merge_hash(t, left, right);
    while (t->merges[s].id >= 0 && !(t->merges[s].left == left && t->merges[s].right == right))
        s = (s + 1) & t->merge_mask;
    return &t->merges[s];
}

// The merge of two neighbours, or NULL.
static const struct merge_slot *find_merge(const struct tokenizer *t, token_id left, token_id right) {
    const struct merge_slot *s = merge_slot(t, left, right);
    return s->id >= 0 ? s : NULL;
}

// Merges n symbols in place, scanning for the best pair; returns how many are left.
static size_t merge_small(const struct tokenizer *t, token_id *ids, size_t n) {
    const struct merge_slot *pair[SMALL_WORD]; // of symbol i and the next, or NULL
    for (size_t i = 0; i + 1 < n; i++)
        pair[i] = find_merge(t, ids[i], ids[i + 1]);
    for (;;) {
        size_t best = n;
        int32_t rank = INT32_MAX;
        for (size_t i = 0; i + 1 < n; i++)
            if (pair[i] && pair[i]->rank < rank) {
                best = i;
                rank = pair[i]->rank;
            }
        if (best == n)
            return n;
        ids[best] = pair[best]->id;
        memmove(ids + best + 1, ids + best + 2, (n - best - 2) * sizeof *ids);
        if (best + 2 < n)
            memmove(pair + best, pair + best + 1, (n - best - 2) * sizeof *pair);
        n--;
        if (best > 0)
            pair[best - 1] = find_merge(t, ids[best - 1], ids[best]);
        if (best + 1 < n)
            pair[best] = find_merge(t, ids[best], ids[best + 1]);
    }
}

struct bpe_symbol {
    token_id id; // -1: merged into the one before
    int32_t prev, next;
};
struct bpe_merger {
    const struct tokenizer *t;
    struct bpe_symbol *symbols;
    struct merge_heap heap;
};

static void pair_push(struct bpe_merger *m, int32_t left) {
    int32_t right = left < 0 ? -1 : m->symbols[left].next;
    if (right < 0)
        return;
    const struct merge_slot *s = find_merge(m->t, m->symbols[left].id, m->symbols[right].id);
    if (!s)
        return;
    merge_heap_push(&m->heap, (struct merge_pair){-(float)s->rank, left, (uint32_t)(s - m->t->merges)});
}

// The same merges in the same order, from a heap; n log n for n symbols. Merges ids in place; *n: how many.
static enum status merge_large(const struct tokenizer *t, token_id *ids, size_t *n) {
    struct bpe_merger m = {.t = t};
    enum status st = STATUS_NOMEM;
    if (*n > INT32_MAX)
        return STATUS_NOMEM;
    m.symbols = malloc(*n * sizeof *m.symbols);
    m.heap.pairs = malloc(3 * *n * sizeof *m.heap.pairs);
    if (!m.symbols || !m.heap.pairs)
        goto fail;
    int32_t count = (int32_t)*n;
    for (int32_t i = 0; i < count; i++)
        m.symbols[i] = (struct bpe_symbol){ids[i], i - 1, i + 1 < count ? i + 1 : -1};
    for (int32_t i = 0; i < count; i++)
        pair_push(&m, i);
    while (m.heap.num > 0) {
        struct merge_pair pair = merge_heap_pop(&m.heap);
        const struct merge_slot *merge = &t->merges[pair.what];
        struct bpe_symbol *left = &m.symbols[pair.left];
        if (left->id != merge->left || left->next < 0 || m.symbols[left->next].id != merge->right)
            continue; // one of them has been merged with another
        struct bpe_symbol *right = &m.symbols[left->next];
        left->id = merge->id;
        left->next = right->next;
        right->id = -1;
        if (left->next >= 0)
            m.symbols[left->next].prev = pair.left;
        pair_push(&m, left->prev);
        pair_push(&m, pair.left);
    }
    *n = 0;
    for (int32_t i = 0; i >= 0; i = m.symbols[i].next)
        ids[(*n)++] = m.symbols[i].id;
    st = STATUS_OK;
fail:
    free(m.symbols);
    free(m.heap.pairs);
    return st;
}

enum status merge_symbols(const struct tokenizer *t, token_id *ids, size_t *n) {
    if (*n > SMALL_WORD)
        return merge_large(t, ids, n);
    *n = merge_small(t, ids, *n);
    return STATUS_OK;
}

// ---- loading

static bool load_merge(struct vocab_loader *l, struct text_view s, int32_t rank, char *scratch,
                       merge_decode_fn *decode) {
    struct tokenizer *t = l->t;
    const char *space = s.len > 2 ? memchr(s.data + 1, ' ', s.len - 2) : NULL;
    bool sound_left = false, sound_right = false;
    size_t left_len = 0, len = 0;
    token_id left = -1, right = -1, id = -1;
    if (space) {
        size_t n = (size_t)(space - s.data);
        left_len = decode((struct text_view){s.data, n}, scratch, &sound_left);
        len =
            left_len + decode((struct text_view){space + 1, s.len - n - 1}, scratch + left_len, &sound_right);
    }
    if (sound_left && sound_right) {
        left = find_piece(t, scratch, left_len);
        right = find_piece(t, scratch + left_len, len - left_len);
        id = find_piece(t, scratch, len);
    }
    if (left < 0 || right < 0 || id < 0) {
        model_file_bad(l->f, l->err, "merge %d ('%.*s') of tokenizer.ggml.merges %s", rank,
                       (int)(s.len < 64 ? s.len : 64), s.data,
                       space ? "names or makes a token that is not in the vocabulary"
                             : "is not two tokens with a space between");
        return false;
    }
    struct merge_slot *slot = merge_slot(t, left, right);
    if (slot->id < 0) // the first counts
        *slot = (struct merge_slot){left, right, id, rank};
    return true;
}

bool load_merges(struct vocab_loader *l, merge_decode_fn *decode) {
    struct tokenizer *t = l->t;
    struct meta_array merges;
    if (meta_array(l->f, "tokenizer.ggml.merges", true, META_STRING, &merges, l->err))
        return false;
    if (merges.count > MAX_MERGES) {
        model_file_bad(l->f, l->err, "key tokenizer.ggml.merges has %llu merges, expected at most %d",
                       (unsigned long long)merges.count, MAX_MERGES);
        return false;
    }
    uint32_t size = 4;
    while (size < merges.count + merges.count / 2)
        size *= 2;
    t->merge_mask = size - 1;
    t->merges = malloc(size * sizeof *t->merges);
    char *scratch = malloc(2 * t->max_token_len + 2);
    if (!t->merges || !scratch) {
        free(scratch);
        err_set(l->err, STATUS_NOMEM, "%s: out of memory for %llu merges", l->f->name,
                (unsigned long long)merges.count);
        return false;
    }
    memset(t->merges, 0xff, size * sizeof *t->merges);
    bool ok = true;
    for (uint64_t i = 0; ok && i < merges.count; i++) {
        struct text_view s = meta_next_str(&merges);
        if (s.len > 2 * t->max_token_len + 1) // also keeps it inside scratch
            s.len = 0;
        ok = load_merge(l, s, (int32_t)i, scratch, decode);
    }
    free(scratch);
    return ok;
}
