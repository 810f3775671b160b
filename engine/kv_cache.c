// The paged cache's bookkeeping; kv_cache.h has the rules, README.md ("Paging") explains them. Pure: it calls
// nothing but malloc's family and memcpy's. Over 600 lines: pages, groups, hits and snapshots share one set of rules.
#include "kv_cache.h"

#include "log.h"
#include "minmax.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

// ---- start and end

enum status kv_init(struct kv_cache *kv, const struct kv_config *config) {
    CHECK(config->num_blocks >= 1 && config->block_size >= 1);
    CHECK(config->num_groups >= 1 && config->num_groups <= KV_MAX_GROUPS);
    *kv = (struct kv_cache){
        .config = *config,
        .num_free = config->num_blocks,
        .free_head = 0,
        .free_tail = config->num_blocks - 1,
        .index_size = 1,
    };
    for (int g = 0; g < config->num_groups; g++) {
        kv->has_window |= config->groups[g].kind == KV_WINDOW;
        kv->has_state |= config->groups[g].kind == KV_STATE;
        CHECK(config->groups[g].kind != KV_WINDOW ||
              (config->groups[g].window >= 1 && config->max_ahead >= 1));
    }
    while (kv->index_size < config->num_blocks && kv->index_size <= INT_MAX / 2)
        kv->index_size *= 2;
    kv->evicted_size = min_int(kv->index_size, KV_MAX_EVICTED);
    size_t n = (size_t)config->num_blocks;
    if (!(kv->tokens = calloc(n, (size_t)config->block_size * sizeof *kv->tokens)) ||
        !(kv->names = calloc((size_t)config->block_size, sizeof *kv->names)) ||
        !(kv->blocks = calloc(n, sizeof *kv->blocks)) || !(kv->seen = calloc(n, sizeof *kv->seen)) ||
        !(kv->index = calloc((size_t)kv->index_size, sizeof *kv->index)) ||
        !(kv->evicted = calloc((size_t)kv->evicted_size, sizeof *kv->evicted))) {
        kv_destroy(kv);
        return STATUS_NOMEM;
    }
    kv->common = kv_root(kv, NULL, 0);
    for (int i = 0; i < kv->index_size; i++)
        kv->index[i] = KV_NONE;
    for (block_id b = 0; b < config->num_blocks; b++) {
        kv->blocks[b].prev = b - 1; // KV_NONE for the first
        kv->blocks[b].next = b + 1 < config->num_blocks ? b + 1 : KV_NONE;
        kv->blocks[b].chain = KV_NONE;
    }
    return STATUS_OK;
}

void kv_destroy(struct kv_cache *kv) {
    free(kv->blocks);
    free(kv->tokens);
    free(kv->names);
    free(kv->index);
    free(kv->evicted);
    free(kv->seen);
    *kv = (struct kv_cache){0};
}

void kv_seq_init(struct kv_seq *seq, block_id *ids, int cap) {
    *seq = (struct kv_seq){.cap = cap};
    for (int g = 0; g < KV_MAX_GROUPS; g++)
        seq->tables[g] =
            (struct block_table){.ids = ids + (size_t)g * (size_t)cap, .live = KV_NONE, .saved = KV_NONE};
}

// Empties a sequence that holds nothing any more. The hashes of its tokens stay.
static void seq_clear(struct kv_seq *seq) {
    const struct kv_seq old = *seq;
    kv_seq_init(seq, old.tables[0].ids, old.cap);
    seq->hashes = old.hashes;
    seq->num_hashes = old.num_hashes;
    seq->spans = old.spans;
    seq->num_spans = old.num_spans;
    seq->retain = old.retain;
}

// ---- free list (rules 1 and 4)

// A block keeps its prev and next after this, so that kv_unmatch() can put it back where it was.
static void free_unlink(struct kv_cache *kv, block_id id) {
    const struct kv_block *b = &kv->blocks[id];
    *(b->prev == KV_NONE ? &kv->free_head : &kv->blocks[b->prev].next) = b->next;
    *(b->next == KV_NONE ? &kv->free_tail : &kv->blocks[b->next].prev) = b->prev;
    kv->num_free--;
}

// Puts a block between its own prev and next.
static void free_relink(struct kv_cache *kv, block_id id) {
    const struct kv_block *b = &kv->blocks[id];
    *(b->prev == KV_NONE ? &kv->free_head : &kv->blocks[b->prev].next) = id;
    *(b->next == KV_NONE ? &kv->free_tail : &kv->blocks[b->next].prev) = id;
    kv->num_free++;
}

static void free_append(struct kv_cache *kv, block_id id) {
    struct kv_block *b = &kv->blocks[id];
    b->prev = b->published ? kv->free_tail : KV_NONE;
    b->next = b->published ? KV_NONE : kv->free_head;
    free_relink(kv, id);
}

// ---- index of published blocks (rules 2 and 3)

static block_id *bucket_of(const struct kv_cache *kv, struct kv_hash h) {
    return &kv->index[h.lo & (uint64_t)(kv->index_size - 1)];
}

static token_id *block_tokens(const struct kv_cache *kv, block_id id) {
    return kv->tokens + (size_t)id * (size_t)kv->config.block_size;
}

static bool block_holds(const struct kv_cache *kv, block_id id, const token_id *tokens) {
    return memcmp(block_tokens(kv, id), tokens, (size_t)kv->config.block_size * sizeof *tokens) == 0;
}

static bool hash_equal(struct kv_hash a, struct kv_hash b) { return a.lo == b.lo && a.hi == b.hi; }

block_id kv_find(const struct kv_cache *kv, struct kv_hash h, int group, const token_id *tokens) {
    block_id id = *bucket_of(kv, h);
    while (id != KV_NONE && !(kv->blocks[id].group == group && hash_equal(kv->blocks[id].hash, h) &&
                              block_holds(kv, id, tokens)))
        id = kv->blocks[id].chain;
    return id;
}

// Publishes a block under its hash, where none like it is.
static void index_insert(struct kv_cache *kv, block_id id, const token_id *tokens, enum kv_change change) {
    struct kv_block *b = &kv->blocks[id];
    block_id *bucket = bucket_of(kv, b->hash);
    if (kv_find(kv, b->hash, b->group, tokens) != KV_NONE)
        return;
    memcpy(block_tokens(kv, id), tokens, (size_t)kv->config.block_size * sizeof *tokens);
    b->published = true;
    b->chain = *bucket;
    *bucket = id;
    if (kv->watch)
        kv->watch(kv->watch_arg, change, id);
}

static void index_remove(struct kv_cache *kv, block_id id) {
    struct kv_block *b = &kv->blocks[id];
    block_id *at = bucket_of(kv, b->hash);
    while (*at != id) {
        CHECK(*at != KV_NONE);
        at = &kv->blocks[*at].chain;
    }
    *at = b->chain;
    b->chain = KV_NONE;
    b->published = false;
}

// ---- how much

static int blocks_for(const struct kv_config *c, int num_tokens) {
    return num_tokens / c->block_size + (num_tokens % c->block_size != 0);
}

int kv_blocks_for(const struct kv_cache *kv, int num_tokens) { return blocks_for(&kv->config, num_tokens); }

// The most blocks that [kv_first_kept(p), p + max_ahead) touches, whatever p.
static int window_blocks(const struct kv_config *c, int g) {
    int64_t span = (int64_t)c->groups[g].window - 1 + (KV_TILE - 1) + c->max_ahead, size = c->block_size;
    int64_t most = (span + 2 * (size - 1)) / size;
    return most < INT_MAX ? (int)most : INT_MAX;
}

int64_t kv_pages(const struct kv_config *c, int num_tokens) {
    int64_t pages = 0;
    int blocks = blocks_for(c, num_tokens);
    for (int g = 0; g < c->num_groups; g++)
        switch (c->groups[g].kind) {
        case KV_FULL: pages += blocks; break;
        case KV_WINDOW: pages += min_int(blocks, window_blocks(c, g)); break;
        case KV_STATE: pages += 1 + c->share; break; // live, and the snapshot that it begins as
        }
    return pages;
}

int kv_max_tokens(const struct kv_config *c, int max_tokens) {
    int fits = 0, beyond = max_tokens; // the largest length known to fit, the smallest known not to
    if (kv_pages(c, max_tokens) <= c->num_blocks)
        return max_tokens;
    while (fits + 1 < beyond) {
        int middle = fits + (beyond - fits) / 2;
        *(kv_pages(c, middle) <= c->num_blocks ? &fits : &beyond) = middle;
    }
    return fits;
}

// Pages that a group takes on the way to num_tokens, where the table has `len` blocks, of which `held` come back as the
// window moves on.
static int group_missing(const struct kv_config *c, int g, int len, int held, int num_tokens) {
    int rest = max_int(blocks_for(c, num_tokens) - len, 0);
    return c->groups[g].kind == KV_FULL ? rest : min_int(rest, max_int(window_blocks(c, g) - held, 0));
}

int kv_missing(const struct kv_cache *kv, const struct kv_seq *seq, int num_tokens) {
    int pages = -seq->reserved;
    for (int g = 0; g < kv->config.num_groups; g++) {
        const struct block_table *t = &seq->tables[g];
        pages += kv->config.groups[g].kind == KV_STATE
                     ? t->live == KV_NONE
                     : group_missing(&kv->config, g, seq->len, seq->len - t->first, num_tokens);
    }
    return max_int(pages, 0);
}

// The first block of which a step at `position` may read, of a window.
static int first_kept(const struct kv_config *c, int g, int position) {
    const struct kv_group_spec *group = &c->groups[g];
    return kv_first_kept(position, group->window, group->chunked) / c->block_size;
}

int kv_first_served(const struct kv_config *c, int g, int num_blocks) {
    switch (c->groups[g].kind) {
    case KV_WINDOW: return first_kept(c, g, num_blocks * c->block_size);
    case KV_STATE: return max_int(num_blocks - 1, 0);
    case KV_FULL: break;
    }
    return 0;
}

int kv_missing_after(const struct kv_cache *kv, int num_cached, int num_tokens) {
    int pages = 0, len = num_cached / kv->config.block_size;
    for (int g = 0; g < kv->config.num_groups; g++)
        pages +=
            kv->config.groups[g].kind == KV_STATE
                ? 1
                : group_missing(&kv->config, g, len, len - kv_first_served(&kv->config, g, len), num_tokens);
    return pages;
}

// ---- pages

static void remember_evicted(struct kv_cache *kv, const struct kv_block *b) {
    kv->num_evicted++;
    kv->evicted[b->hash.lo & (uint64_t)(kv->evicted_size - 1)] =
        (struct kv_evicted){.hash = b->hash, .when = kv->clock, .group = b->group};
}

// Rule 4: retained entries at the head go to the end, each once.
static void pass_over(struct kv_cache *kv) {
    for (block_id id; kv->blocks[id = kv->free_head].retained;) {
        kv->blocks[id].retained = false;
        free_unlink(kv, id);
        free_append(kv, id);
    }
}

// Takes the oldest free page, off the sequence's reservation where it has one. NULL: for a copy, which none counts on.
static block_id page_take(struct kv_cache *kv, struct kv_seq *seq, int group) {
    CHECK(kv->free_head != KV_NONE);
    pass_over(kv);
    block_id id = kv->free_head;
    struct kv_block *b = &kv->blocks[id];
    free_unlink(kv, id);
    if (b->published) {
        if (kv->watch)
            kv->watch(kv->watch_arg, KV_EVICTED, id);
        index_remove(kv, id);
        remember_evicted(kv, b);
        kv->num_cached[b->group]--;
    }
    kv->num_active[group]++;
    b->ref = 1;
    b->retained = false;
    b->group = (uint8_t)group;
    b->touched = kv->clock;
    b->parent = 0;
    if (seq && seq->reserved > 0) {
        seq->reserved--;
        kv->num_reserved--;
        b->exclusive = kv->config.groups[group].kind == KV_WINDOW;
    }
    return id;
}

static void page_share(struct kv_cache *kv, block_id id) {
    const int group = kv->blocks[id].group;
    if (kv->blocks[id].ref++ > 0)
        return;
    free_unlink(kv, id);
    kv->num_cached[group]--;
    kv->num_active[group]++;
}

// A page that the sequence's reservation counted on is promised to it again.
static void page_drop(struct kv_cache *kv, struct kv_seq *seq, block_id id) {
    struct kv_block *b = &kv->blocks[id];
    CHECK(b->ref > 0);
    if (b->exclusive) {
        b->exclusive = false;
        seq->reserved++;
        kv->num_reserved++;
    }
    if (--b->ref == 0) {
        b->touched = kv->clock;
        b->retained = b->published && (b->retained || seq->retain);
        kv->num_active[b->group]--;
        kv->num_cached[b->group] += b->published;
        free_append(kv, id);
    }
}

bool kv_reserve(struct kv_cache *kv, struct kv_seq *seq, int num_tokens) {
    const struct kv_config *c = &kv->config;
    int pages = 0;
    CHECK(seq->reserved == 0);
    for (int g = 0; g < c->num_groups; g++) {
        const struct block_table *t = &seq->tables[g];
        int own = 0;
        for (int i = t->first; c->groups[g].kind == KV_WINDOW && i < seq->len; i++)
            own += kv->blocks[t->ids[i]].ref == 1;
        pages += c->groups[g].kind == KV_STATE ? t->live == KV_NONE
                                               : group_missing(c, g, seq->len, own, num_tokens);
    }
    if (pages > kv_available(kv))
        return false;
    seq->reserved = pages;
    kv->num_reserved += pages;
    for (int g = 0; g < c->num_groups; g++)
        for (int i = seq->tables[g].first; c->groups[g].kind == KV_WINDOW && i < seq->len; i++) {
            struct kv_block *b = &kv->blocks[seq->tables[g].ids[i]];
            b->exclusive = b->ref == 1;
        }
    return true;
}

bool kv_grow(struct kv_cache *kv, struct kv_seq *seq, int num_tokens) {
    const struct kv_config *c = &kv->config;
    int need = blocks_for(c, num_tokens), pages = 0, len = max_int(seq->len, need);
    CHECK(need <= seq->cap);
    for (int g = 0; g < c->num_groups; g++)
        pages += c->groups[g].kind == KV_STATE ? seq->tables[g].live == KV_NONE : len - seq->len;
    if (pages > kv_available(kv) + seq->reserved)
        return false;
    for (int g = 0; g < c->num_groups; g++) {
        struct block_table *t = &seq->tables[g];
        bool state = c->groups[g].kind == KV_STATE;
        if (state && t->live == KV_NONE)
            t->live = page_take(kv, seq, g);
        for (int i = seq->len; i < len; i++)
            t->ids[i] = state ? KV_NONE : page_take(kv, seq, g);
    }
    seq->len = len;
    return true;
}

void kv_trim(struct kv_cache *kv, struct kv_seq *seq, int position) {
    const struct kv_config *c = &kv->config;
    for (int g = 0; g < c->num_groups; g++) {
        struct block_table *t = &seq->tables[g];
        int keep = 0;
        if (c->groups[g].kind == KV_WINDOW)
            keep = first_kept(c, g, position);
        else if (c->groups[g].kind == KV_STATE)
            keep = max_int(position - 1, 0) / c->block_size;
        for (; t->first < min_int(keep, seq->len); t->first++) {
            if (t->ids[t->first] != KV_NONE)
                page_drop(kv, seq, t->ids[t->first]);
            t->ids[t->first] = KV_NONE;
        }
        if (t->saved != KV_NONE && position > seq->saved_at) {
            page_drop(kv, seq, t->saved);
            t->saved = KV_NONE;
        }
    }
}

void kv_release(struct kv_cache *kv, struct kv_seq *seq) {
    int num_groups = kv->config.num_groups;
    for (; seq->len > 0; seq->len--)
        for (int g = 0; g < num_groups; g++) {
            const struct block_table *t = &seq->tables[g];
            if (seq->len > t->first && t->ids[seq->len - 1] != KV_NONE)
                page_drop(kv, seq, t->ids[seq->len - 1]);
        }
    for (int g = 0; g < num_groups; g++) {
        struct block_table *t = &seq->tables[g];
        if (t->live != KV_NONE)
            page_drop(kv, seq, t->live);
        if (t->saved != KV_NONE)
            page_drop(kv, seq, t->saved);
    }
    kv->num_reserved -= seq->reserved;
    seq_clear(seq);
}

int64_t kv_slot(const struct kv_cache *kv, const struct kv_seq *seq, int group, int pos) {
    int size = kv->config.block_size;
    const struct block_table *t = &seq->tables[group];
    CHECK(pos >= 0 && pos / size >= t->first && pos / size < seq->len);
    return (int64_t)t->ids[pos / size] * size + pos % size;
}

// ---- prefixes

const token_id *kv_block_names(const struct kv_cache *kv, const struct kv_seq *seq, const token_id *tokens,
                               int i) {
    int size = kv->config.block_size, first = i * size;
    if (!seq || seq->num_spans == 0)
        return tokens + first;
    kv_seq_names(seq, tokens, first, size, kv->names);
    return kv->names;
}

// Hash of block i of the sequence, whose spans come before the names.
static struct kv_hash chain_block(const struct kv_cache *kv, const struct kv_seq *seq, int i,
                                  struct kv_hash parent, const token_id *tokens) {
    int size = kv->config.block_size, first = i * size, end = first + size, num = seq ? seq->num_spans : 0;
    for (int s = num ? kv_find_span(seq->spans, num, first) : 0; s < num && seq->spans[s].first < end; s++) {
        const struct kv_span *span = &seq->spans[s];
        int from = max_int(first, span->first), to = min_int(end, span->first + span->len);
        parent = kv_span_chain(kv, parent, span, from - first, from - span->first, to - from);
    }
    return kv_chain(kv, parent, kv_block_names(kv, seq, tokens, i));
}

// Another root, which is a parent like any other, begins another chain: no hash of one is ever taken for one of the other.
struct kv_hash kv_seq_chain(const struct kv_cache *kv, struct kv_seq *seq, int i, struct kv_hash parent,
                            const token_id *tokens) {
    if (!seq || !seq->hashes)
        return chain_block(kv, seq, i, parent, tokens);
    CHECK(i < seq->cap);
    if (i == 0 && (seq->num_hashes == 0 || !hash_equal(seq->hashes[0], parent))) {
        seq->hashes[0] = parent;
        seq->num_hashes = 1;
    }
    if (i >= seq->num_hashes || !hash_equal(seq->hashes[i], parent))
        return chain_block(kv, seq, i, parent, tokens);
    if (i + 1 == seq->num_hashes)
        seq->hashes[seq->num_hashes++] = chain_block(kv, seq, i, parent, tokens);
    return seq->hashes[i + 1];
}

// A group serves a hit that ends where it has had every block, without a gap, since kv_first_served(). So one pass over the
// blocks finds the longest hit of all groups, and the tables keep what each block found until it is known.
int kv_match(struct kv_cache *kv, struct kv_seq *seq, struct kv_hash root, const token_id *tokens, int n) {
    const struct kv_config *c = &kv->config;
    struct kv_hash h = root;
    int run[KV_MAX_GROUPS] = {0}; // blocks up to here that the group has without a gap
    int best = 0;
    bool more = c->share;
    CHECK(seq->len == 0 && seq->num_hashed == 0 && n >= 0);
    seq->hash = root;
    for (int i = 0; more && i < n / c->block_size; i++) {
        bool served = true;
        CHECK(i < seq->cap);
        h = kv_seq_chain(kv, seq, i, h, tokens);
        const token_id *block = kv_block_names(kv, seq, tokens, i);
        for (int g = 0; g < c->num_groups; g++) {
            block_id id = kv_find(kv, h, g, block);
            if (id != KV_NONE && kv->blocks[id].exclusive)
                id = KV_NONE;
            seq->tables[g].ids[i] = id;
            run[g] = id == KV_NONE ? 0 : run[g] + 1;
            served &= i + 1 - run[g] <= kv_first_served(c, g, i + 1);
            more &= c->groups[g].kind != KV_FULL || id != KV_NONE;
        }
        if (served) {
            best = i + 1;
            seq->hash = h;
        }
    }
    seq->len = seq->num_hashed = best;
    for (int g = 0; g < c->num_groups; g++) {
        struct block_table *t = &seq->tables[g];
        t->first = kv_first_served(c, g, best);
        for (int i = 0; i < best; i++)
            if (i < t->first)
                t->ids[i] = KV_NONE;
            else
                page_share(kv, t->ids[i]);
    }
    seq->snapshot_at = best * c->block_size;
    seq->restores = kv->has_state && best > 0;
    return best * c->block_size;
}

void kv_unmatch(struct kv_cache *kv, struct kv_seq *seq) {
    CHECK(seq->len == seq->num_hashed && seq->reserved == 0);
    // The reverse order of kv_match() finds every neighbour in place.
    for (int g = kv->config.num_groups; g-- > 0;)
        for (int i = seq->len; i-- > seq->tables[g].first;) {
            block_id id = seq->tables[g].ids[i];
            if (--kv->blocks[id].ref > 0)
                continue;
            kv->num_active[g]--;
            kv->num_cached[g]++;
            free_relink(kv, id);
        }
    seq_clear(seq);
}

void kv_publish(struct kv_cache *kv, struct kv_seq *seq, struct kv_hash root, const token_id *tokens,
                int num_computed) {
    const struct kv_config *c = &kv->config;
    int full = num_computed / c->block_size;
    if (!c->share)
        return;
    CHECK(full <= seq->len);
    if (seq->num_hashed == 0)
        seq->hash = root;
    const bool common = hash_equal(root, kv->common);
    for (; seq->num_hashed < full; seq->num_hashed++) {
        uint64_t parent = seq->hash.lo;
        seq->hash = kv_seq_chain(kv, seq, seq->num_hashed, seq->hash, tokens);
        const token_id *block = kv_block_names(kv, seq, tokens, seq->num_hashed);
        for (int g = 0; g < c->num_groups; g++) {
            block_id id = seq->tables[g].ids[seq->num_hashed];
            if (id == KV_NONE)
                continue;
            kv->blocks[id].hash = seq->hash;
            kv->blocks[id].parent = parent;
            kv->blocks[id].common = common;
            if (c->groups[g].kind != KV_STATE)
                index_insert(kv, id, block, KV_PUBLISHED);
        }
    }
    for (int g = 0; g < c->num_groups; g++) {
        const struct block_table *t = &seq->tables[g];
        for (int i = t->first; c->groups[g].kind == KV_STATE && i < (num_computed - 1) / c->block_size; i++)
            if (t->ids[i] != KV_NONE && !kv->blocks[t->ids[i]].published) {
                kv->blocks[t->ids[i]].common = common;
                index_insert(kv, t->ids[i], kv_block_names(kv, seq, tokens, i), KV_PUBLISHED);
            }
    }
}

// ---- pages that come from elsewhere

static bool can_hit(const struct kv_cache *kv, struct kv_hash h, int group, const token_id *names) {
    block_id id = kv_find(kv, h, group, names);
    return id != KV_NONE && !kv->blocks[id].exclusive;
}

// The longest hit is found as in kv_match(), of the pages that are here or can be had.
int kv_want(struct kv_cache *kv, struct kv_seq *seq, struct kv_hash root, const token_id *tokens, int n,
            bool (*has)(void *arg, struct kv_hash hash, int group), void *arg, struct kv_wanted *wanted,
            int max, int *hit) {
    const struct kv_config *c = &kv->config;
    struct kv_hash h = root;
    int run[KV_MAX_GROUPS] = {0}; // blocks up to this one without a gap
    int longest = 0, num = 0;
    bool more = c->share;
    CHECK(seq->len == 0);
    for (int i = 0; more && i < n / c->block_size; i++) {
        bool served = true;
        h = kv_seq_chain(kv, seq, i, h, tokens);
        const token_id *names = kv_block_names(kv, seq, tokens, i);
        for (int g = 0; g < c->num_groups; g++) {
            bool can_be = has(arg, h, g) || can_hit(kv, h, g, names);
            run[g] = can_be ? run[g] + 1 : 0;
            served &= i + 1 - run[g] <= kv_first_served(c, g, i + 1);
            more &= c->groups[g].kind != KV_FULL || can_be;
        }
        longest = served ? i + 1 : longest;
    }
    if (hit)
        *hit = longest * c->block_size;
    h = root;
    for (int i = 0; i < longest; i++) {
        const uint64_t parent = h.lo;
        h = kv_seq_chain(kv, seq, i, h, tokens);
        const token_id *names = kv_block_names(kv, seq, tokens, i);
        for (int g = 0; g < c->num_groups && num < max; g++)
            if (i >= kv_first_served(c, g, longest) && kv_find(kv, h, g, names) == KV_NONE)
                wanted[num++] = (struct kv_wanted){.hash = h, .parent = parent, .block = i, .group = g};
    }
    return num;
}

int kv_touch(struct kv_cache *kv, struct kv_seq *seq, struct kv_hash root, const token_id *tokens, int n) {
    const struct kv_config *c = &kv->config;
    struct kv_hash h = root;
    int num = 0;
    CHECK(seq->len == 0);
    for (int i = 0; c->share && i < n / c->block_size; i++) {
        h = kv_seq_chain(kv, seq, i, h, tokens);
        const token_id *names = kv_block_names(kv, seq, tokens, i);
        for (int g = 0; g < c->num_groups; g++) {
            block_id id = kv_find(kv, h, g, names);
            if (id != KV_NONE && kv->blocks[id].ref == 0)
                kv->seen[num++] = id;
        }
    }
    for (int i = num - 1; i >= 0; i--) {
        free_unlink(kv, kv->seen[i]);
        free_append(kv, kv->seen[i]);
    }
    return num;
}

block_id kv_adopt(struct kv_cache *kv, const struct kv_wanted *w, const token_id *names) {
    if (!kv->config.share || kv_available(kv) == 0 || kv_find(kv, w->hash, w->group, names) != KV_NONE)
        return KV_NONE;
    block_id id = page_take(kv, NULL, w->group);
    struct kv_block *b = &kv->blocks[id];
    b->hash = w->hash;
    b->parent = w->parent;
    b->common = false; // not known
    index_insert(kv, id, names, KV_ADOPTED);
    b->ref = 0;
    kv->num_active[w->group]--;
    kv->num_cached[w->group]++;
    free_append(kv, id);
    return id;
}

// ---- recurrent state

static int num_states(const struct kv_cache *kv) {
    int n = 0;
    for (int g = 0; g < kv->config.num_groups; g++)
        n += kv->config.groups[g].kind == KV_STATE;
    return n;
}

bool kv_snapshot_due(const struct kv_cache *kv, const struct kv_seq *seq, int position, int last) {
    const struct kv_config *c = &kv->config;
    return kv->has_state && c->share && position > seq->snapshot_at && position % c->block_size == 0 &&
           (position == last || position - seq->snapshot_at >= c->snapshot_tokens);
}

int kv_moves(struct kv_cache *kv, struct kv_seq *seq, int first, int last, int spare, struct kv_move *moves) {
    const struct kv_config *c = &kv->config;
    int n = 0, entry = first / c->block_size - 1;
    bool snapshot = kv_snapshot_due(kv, seq, first, last) && kv_available(kv) >= spare + num_states(kv);
    for (int g = 0; g < c->num_groups; g++) {
        struct block_table *t = &seq->tables[g];
        if (c->groups[g].kind != KV_STATE)
            continue;
        block_id from = seq->restores ? t->ids[entry] : seq->rolls_back ? t->saved : t->live;
        if (from != t->live)
            moves[n++] = (struct kv_move){.from = from, .to = t->live};
        if (seq->saves)
            moves[n++] = (struct kv_move){.from = from, .to = t->saved};
        if (snapshot) {
            t->ids[entry] = page_take(kv, NULL, g);
            moves[n++] = (struct kv_move){.from = from, .to = t->ids[entry]};
            if (seq->num_hashed == entry + 1) // else kv_publish() is yet to come there
                kv->blocks[t->ids[entry]].hash = seq->hash;
        }
    }
    if (snapshot)
        seq->snapshot_at = first;
    seq->restores = seq->saves = seq->rolls_back = false;
    return n;
}

bool kv_checkpoint(struct kv_cache *kv, struct kv_seq *seq, int position) {
    for (int g = 0; g < kv->config.num_groups; g++)
        if (seq->tables[g].saved != KV_NONE) { // after a rollback to here
            CHECK(seq->saved_at == position);
            return true;
        }
    if (kv_available(kv) < num_states(kv))
        return false;
    for (int g = 0; g < kv->config.num_groups; g++)
        if (kv->config.groups[g].kind == KV_STATE)
            seq->tables[g].saved = page_take(kv, NULL, g);
    seq->saved_at = position;
    seq->saves = kv->has_state;
    return true;
}

int kv_rollback(struct kv_cache *kv, struct kv_seq *seq) {
    bool saved = false;
    for (int g = 0; g < kv->config.num_groups; g++)
        saved |= seq->tables[g].saved != KV_NONE;
    CHECK(saved && !seq->saves);
    seq->rolls_back = true;
    return seq->saved_at;
}

// ---- the rules, checked

// Counts the references of one sequence. Returns the number of the rule that it breaks by itself, 0 when none.
static int check_seq(const struct kv_cache *kv, const struct kv_seq *seq) {
    const struct kv_config *c = &kv->config;
    int broken = 0;
    for (int g = 0; g < c->num_groups; g++) {
        const struct block_table *t = &seq->tables[g];
        bool state = c->groups[g].kind == KV_STATE;
        const block_id own[2] = {t->live, t->saved};
        if (t->first < 0 || t->first > seq->len)
            return 6;
        for (int i = 0; i < seq->len; i++) {
            block_id id = t->ids[i];
            if (id == KV_NONE) {
                if (!state && i >= t->first)
                    broken = 6;
                continue;
            }
            if (id < 0 || id >= c->num_blocks)
                return 1;
            kv->seen[id]++;
            const struct kv_block *b = &kv->blocks[id];
            if (i < t->first || b->group != g)
                broken = 6;
            // A block that is not hashed yet may still be written, so it is neither published nor shared.
            else if (i >= seq->num_hashed && (b->published || b->ref != 1))
                broken = 2;
        }
        for (int i = 0; i < 2; i++)
            if (own[i] != KV_NONE) {
                if (own[i] < 0 || own[i] >= c->num_blocks)
                    return 1;
                kv->seen[own[i]]++;
                const struct kv_block *b = &kv->blocks[own[i]];
                if (!state || b->published || b->ref != 1 || b->group != g)
                    broken = 8;
            }
    }
    return broken;
}

static int check_free_list(const struct kv_cache *kv) {
    int num_free = 0, num_listed = 0;
    bool entries = false;
    for (block_id id = 0; id < kv->config.num_blocks; id++)
        num_free += kv->blocks[id].ref == 0;
    // The list is linked both ways, each block once; entries follow what is none.
    block_id prev = KV_NONE;
    for (block_id id = kv->free_head; id != KV_NONE; prev = id, id = kv->blocks[id].next) {
        if (id < 0 || id >= kv->config.num_blocks || ++num_listed > kv->config.num_blocks ||
            kv->blocks[id].prev != prev)
            return 4;
        if (kv->blocks[id].ref != 0)
            return 1;
        if (entries && !kv->blocks[id].published)
            return 4;
        entries = kv->blocks[id].published;
    }
    if (num_listed != num_free)
        return 1; // in no table and not on the list: lost
    return kv->free_tail != prev || kv->num_free != num_listed ? 4 : 0;
}

// The index names every published block once, in its bucket, and nothing else.
static int check_index(const struct kv_cache *kv) {
    int num_published = 0, num_indexed = 0;
    bool sound = true;
    for (block_id id = 0; id < kv->config.num_blocks; id++)
        num_published += kv->blocks[id].published;
    for (int i = 0; i < kv->index_size; i++)
        for (block_id id = kv->index[i]; id != KV_NONE; id = kv->blocks[id].chain) {
            if (++num_indexed > num_published)
                return 3;
            sound &= kv->blocks[id].published && bucket_of(kv, kv->blocks[id].hash) == &kv->index[i];
        }
    return sound && num_indexed == num_published ? 0 : 3;
}

static int check_counts(const struct kv_cache *kv) {
    int active[KV_MAX_GROUPS] = {0}, cached[KV_MAX_GROUPS] = {0};
    for (block_id id = 0; id < kv->config.num_blocks; id++) {
        const struct kv_block *b = &kv->blocks[id];
        active[b->group] += b->ref > 0;
        cached[b->group] += b->ref == 0 && b->published;
    }
    return memcmp(active, kv->num_active, sizeof active) == 0 &&
                   memcmp(cached, kv->num_cached, sizeof cached) == 0
               ? 0
               : 9;
}

int kv_check(const struct kv_cache *kv, const struct kv_seq *const *seqs, int num_seqs) {
    int broken = 0, reserved = 0, status;
    memset(kv->seen, 0, (size_t)kv->config.num_blocks * sizeof *kv->seen);
    for (int i = 0; i < num_seqs; i++) {
        if ((status = check_seq(kv, seqs[i])) == 1)
            return 1;
        broken = broken ? broken : status;
        reserved += seqs[i]->reserved;
    }
    for (block_id id = 0; id < kv->config.num_blocks; id++) {
        if (kv->seen[id] != kv->blocks[id].ref)
            return 1;
        if (kv->blocks[id].exclusive && kv->blocks[id].ref != 1)
            broken = broken ? broken : 7;
    }
    if ((status = check_free_list(kv)) != 0)
        return status;
    if (broken != 0)
        return broken;
    if (reserved != kv->num_reserved || kv->num_reserved > kv->num_free)
        return 7;
    if ((status = check_index(kv)) != 0)
        return status;
    return check_counts(kv);
}
