// The paged cache's bookkeeping; kv_cache.h has the rules, README.md ("Paging") explains them. Pure: it calls
// nothing but malloc's family and memcpy's.
#include "kv_cache.h"

#include "log.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

// ---- SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, 2012)
// ------------------------------------

struct sip {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotl(uint64_t x, int n) { return x << n | x >> (64 - n); }

static inline void sip_rounds(struct sip *s, int n) {
    while (n-- > 0) {
        s->v0 += s->v1;
        s->v2 += s->v3;
        s->v1 = rotl(s->v1, 13) ^ s->v0;
        s->v3 = rotl(s->v3, 16) ^ s->v2;
        s->v0 = rotl(s->v0, 32);
        s->v2 += s->v1;
        s->v0 += s->v3;
        s->v1 = rotl(s->v1, 17) ^ s->v2;
        s->v3 = rotl(s->v3, 21) ^ s->v0;
        s->v2 = rotl(s->v2, 32);
    }
}

static inline struct sip sip_start(uint64_t k0, uint64_t k1) {
    return (struct sip){k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du ^ 0xee, k0 ^ 0x6c7967656e657261u,
                        k1 ^ 0x7465646279746573u};
}

static inline void sip_word(struct sip *s, uint64_t m) {
    s->v3 ^= m;
    sip_rounds(s, 2);
    s->v0 ^= m;
}

// `last` holds the bytes that do not fill a word, and the length modulo 256 in its top byte.
static struct kv_hash sip_finish(struct sip *s, uint64_t last) {
    struct kv_hash h;
    sip_word(s, last);
    s->v2 ^= 0xee;
    sip_rounds(s, 4);
    h.lo = s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
    s->v1 ^= 0xdd;
    sip_rounds(s, 4);
    h.hi = s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
    return h;
}

struct kv_hash kv_root(const struct kv_cache *kv, const void *name, size_t n) {
    const unsigned char *bytes = name;
    struct sip s = sip_start(kv->key[0], kv->key[1]);
    uint64_t word = 0;
    for (size_t i = 0; i < n; i++) { // little-endian words, whatever the machine
        word |= (uint64_t)bytes[i] << (8 * (i & 7));
        if ((i & 7) == 7) {
            sip_word(&s, word);
            word = 0;
        }
    }
    return sip_finish(&s, word | (uint64_t)n << 56);
}

// The second half of the key is inverted, so that no salt, whatever its bytes, has the hash of a block.
struct kv_hash kv_chain(const struct kv_cache *kv, struct kv_hash parent, const token_id *tokens) {
    struct sip s = sip_start(kv->key[0], ~kv->key[1]);
    int n = kv->block_size, i = 0;
    sip_word(&s, parent.lo);
    sip_word(&s, parent.hi);
    for (; i + 1 < n; i += 2)
        sip_word(&s, (uint32_t)tokens[i] | (uint64_t)(uint32_t)tokens[i + 1] << 32);
    uint64_t last = i < n ? (uint32_t)tokens[i] : 0;
    return sip_finish(&s, last | (16 + 4 * (uint64_t)n) << 56);
}

static bool hash_equal(struct kv_hash a, struct kv_hash b) { return a.lo == b.lo && a.hi == b.hi; }

// ---- start and end
// -----------------------------------------------------------------------------------------

enum status kv_init(struct kv_cache *kv, int num_blocks, int block_size, const uint64_t key[2], bool share) {
    CHECK(num_blocks >= 1 && block_size >= 1);
    *kv = (struct kv_cache){
        .num_blocks = num_blocks,
        .block_size = block_size,
        .num_free = num_blocks,
        .free_head = 0,
        .free_tail = num_blocks - 1,
        .share = share,
        .index_size = 1,
        .key = {key[0], key[1]},
    };
    while (kv->index_size < num_blocks && kv->index_size <= INT_MAX / 2)
        kv->index_size *= 2;
    size_t n = (size_t)num_blocks;
    if (!(kv->tokens = calloc(n, (size_t)block_size * sizeof *kv->tokens)) ||
        !(kv->blocks = calloc(n, sizeof *kv->blocks)) || !(kv->seen = calloc(n, sizeof *kv->seen)) ||
        !(kv->index = calloc((size_t)kv->index_size, sizeof *kv->index))) {
        kv_destroy(kv);
        return STATUS_NOMEM;
    }
    for (int i = 0; i < kv->index_size; i++)
        kv->index[i] = KV_NONE;
    for (block_id b = 0; b < num_blocks; b++) {
        kv->blocks[b].prev = b - 1; // KV_NONE for the first
        kv->blocks[b].next = b + 1 < num_blocks ? b + 1 : KV_NONE;
        kv->blocks[b].chain = KV_NONE;
    }
    return STATUS_OK;
}

void kv_destroy(struct kv_cache *kv) {
    free(kv->blocks);
    free(kv->tokens);
    free(kv->index);
    free(kv->seen);
    *kv = (struct kv_cache){0};
}

// ---- free list (rules 1 and 4)
// -----------------------------------------------------------------------------

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
// -------------------------------------------------------------

static block_id *bucket_of(const struct kv_cache *kv, struct kv_hash h) {
    return &kv->index[h.lo & (uint64_t)(kv->index_size - 1)];
}

static token_id *block_tokens(const struct kv_cache *kv, block_id id) {
    return kv->tokens + (size_t)id * (size_t)kv->block_size;
}

static bool block_holds(const struct kv_cache *kv, block_id id, const token_id *tokens) {
    return memcmp(block_tokens(kv, id), tokens, (size_t)kv->block_size * sizeof *tokens) == 0;
}

// The published block with this hash that holds these tokens, or KV_NONE.
static block_id index_find(const struct kv_cache *kv, struct kv_hash h, const token_id *tokens) {
    block_id id = *bucket_of(kv, h);
    while (id != KV_NONE && !(hash_equal(kv->blocks[id].hash, h) && block_holds(kv, id, tokens)))
        id = kv->blocks[id].chain;
    return id;
}

static void index_insert(struct kv_cache *kv, block_id id, struct kv_hash h, const token_id *tokens) {
    struct kv_block *b = &kv->blocks[id];
    block_id *bucket = bucket_of(kv, h);
    memcpy(block_tokens(kv, id), tokens, (size_t)kv->block_size * sizeof *tokens);
    b->published = true;
    b->hash = h;
    b->chain = *bucket;
    *bucket = id;
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

// ---- block tables
// ------------------------------------------------------------------------------------------

int kv_blocks_for(const struct kv_cache *kv, int num_tokens) {
    return num_tokens / kv->block_size + (num_tokens % kv->block_size != 0);
}

int kv_match(struct kv_cache *kv, struct block_table *t, struct kv_hash root, const token_id *tokens, int n) {
    CHECK(t->len == 0 && n >= 0);
    t->num_hashed = 0;
    t->hash = root;
    if (!kv->share)
        return 0;
    for (int end = kv->block_size; end <= n; end += kv->block_size) {
        const token_id *block = tokens + end - kv->block_size;
        struct kv_hash h = kv_chain(kv, t->hash, block);
        block_id id = index_find(kv, h, block);
        if (id == KV_NONE)
            break;
        CHECK(t->len < t->cap);
        if (kv->blocks[id].ref++ == 0)
            free_unlink(kv, id);
        t->ids[t->len++] = id;
        t->num_hashed++;
        t->hash = h;
        if (end > INT_MAX - kv->block_size)
            break;
    }
    return t->len * kv->block_size;
}

void kv_unmatch(struct kv_cache *kv, struct block_table *t) {
    CHECK(t->len == t->num_hashed);
    while (t->len > 0) { // the reverse order of kv_match() finds every neighbour in place
        block_id id = t->ids[--t->len];
        if (--kv->blocks[id].ref == 0)
            free_relink(kv, id);
    }
    t->num_hashed = 0;
}

bool kv_grow(struct kv_cache *kv, struct block_table *t, int num_tokens) {
    int need = kv_blocks_for(kv, num_tokens);
    CHECK(need <= t->cap);
    if (need - t->len > kv->num_free)
        return false;
    while (t->len < need) {
        block_id id = kv->free_head;
        free_unlink(kv, id);
        if (kv->blocks[id].published) {
            index_remove(kv, id);
            kv->num_evicted++;
        }
        kv->blocks[id].ref = 1;
        t->ids[t->len++] = id;
    }
    return true;
}

void kv_publish(struct kv_cache *kv, struct block_table *t, struct kv_hash root, const token_id *tokens,
                int num_computed) {
    int full = num_computed / kv->block_size;
    if (!kv->share)
        return;
    CHECK(full <= t->len);
    if (t->num_hashed == 0)
        t->hash = root;
    for (; t->num_hashed < full; t->num_hashed++) {
        const token_id *block = tokens + (size_t)t->num_hashed * (size_t)kv->block_size;
        t->hash = kv_chain(kv, t->hash, block);
        if (index_find(kv, t->hash, block) == KV_NONE)
            index_insert(kv, t->ids[t->num_hashed], t->hash, block);
    }
}

void kv_release(struct kv_cache *kv, struct block_table *t) {
    while (t->len > 0) {
        block_id id = t->ids[--t->len];
        CHECK(kv->blocks[id].ref > 0);
        if (--kv->blocks[id].ref == 0)
            free_append(kv, id);
    }
    t->num_hashed = 0;
}

int64_t kv_slot(const struct kv_cache *kv, const struct block_table *t, int pos) {
    CHECK(pos >= 0 && pos / kv->block_size < t->len);
    return (int64_t)t->ids[pos / kv->block_size] * kv->block_size + pos % kv->block_size;
}

// ---- the rules, checked
// ------------------------------------------------------------------------------------

int kv_check(const struct kv_cache *kv, const struct block_table *const *tables, int num_tables) {
    bool rule2 = true, rule3 = true, entries = false;
    int num_free = 0, num_listed = 0, num_published = 0, num_indexed = 0;
    memset(kv->seen, 0, (size_t)kv->num_blocks * sizeof *kv->seen);
    for (int i = 0; i < num_tables; i++)
        for (int j = 0; j < tables[i]->len; j++) {
            block_id id = tables[i]->ids[j];
            if (id < 0 || id >= kv->num_blocks)
                return 1;
            kv->seen[id]++;
            // What is not yet hashed may still be written, so it is neither published nor shared.
            rule2 &= j < tables[i]->num_hashed || (!kv->blocks[id].published && kv->blocks[id].ref == 1);
        }
    for (block_id id = 0; id < kv->num_blocks; id++) {
        if (kv->seen[id] != kv->blocks[id].ref)
            return 1;
        num_free += kv->blocks[id].ref == 0;
        num_published += kv->blocks[id].published;
    }
    // The list is linked both ways, each block once; entries follow what is none.
    block_id prev = KV_NONE;
    for (block_id id = kv->free_head; id != KV_NONE; prev = id, id = kv->blocks[id].next) {
        if (id < 0 || id >= kv->num_blocks || ++num_listed > kv->num_blocks || kv->blocks[id].prev != prev)
            return 4;
        if (kv->blocks[id].ref != 0)
            return 1;
        if (entries && !kv->blocks[id].published)
            return 4;
        entries = kv->blocks[id].published;
    }
    if (num_listed != num_free)
        return 1; // in no table and not on the list: lost
    if (kv->free_tail != prev || kv->num_free != num_listed)
        return 4;
    // The index names every published block once, in its bucket, and nothing else.
    for (int i = 0; i < kv->index_size; i++)
        for (block_id id = kv->index[i]; id != KV_NONE; id = kv->blocks[id].chain) {
            if (++num_indexed > num_published)
                return 3;
            rule3 &= kv->blocks[id].published && bucket_of(kv, kv->blocks[id].hash) == &kv->index[i];
        }
    return !rule2 ? 2 : !rule3 || num_indexed != num_published ? 3 : 0;
}
