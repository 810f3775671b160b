// The hashes of the paged cache: SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, 2012), as a root for salt
// and adapter and as a chain over the blocks of a sequence, and over their spans. kv_cache.h says what they protect from.
// Pure.
#include "kv_cache.h"

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
    struct sip s = sip_start(kv->config.key[0], kv->config.key[1]);
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
    struct sip s = sip_start(kv->config.key[0], ~kv->config.key[1]);
    int n = kv->config.block_size, i = 0;
    sip_word(&s, parent.lo);
    sip_word(&s, parent.hi);
    for (; i + 1 < n; i += 2)
        sip_word(&s, (uint32_t)tokens[i] | (uint64_t)(uint32_t)tokens[i + 1] << 32);
    uint64_t last = i < n ? (uint32_t)tokens[i] : 0;
    return sip_finish(&s, last | (16 + 4 * (uint64_t)n) << 56);
}

// Here the first half of the key is inverted: what it gives is the hash of no salt and of no block. The length is in it, as
// rows of a whole span attend to those behind the block, and gives the third number of the grid.
struct kv_hash kv_span_chain(const struct kv_cache *kv, struct kv_hash parent, const struct kv_span *span,
                             int at, int skip, int rows) {
    struct sip s = sip_start(~kv->config.key[0], kv->config.key[1]);
    sip_word(&s, parent.lo);
    sip_word(&s, parent.hi);
    sip_word(&s, span->hash.lo);
    sip_word(&s, span->hash.hi);
    sip_word(&s, (uint32_t)at | (uint64_t)(uint32_t)rows << 32);
    sip_word(&s, (uint32_t)skip | (uint64_t)(uint32_t)span->len << 32);
    sip_word(&s, (uint32_t)span->grid[0] | (uint64_t)(uint32_t)span->grid[1] << 32);
    return sip_finish(&s, (uint64_t)56 << 56);
}
