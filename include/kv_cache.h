// Paged KV cache: the bookkeeping. Integers only; the bytes belong to the backend.
//
// Think of virtual memory. A *block* is a page frame: room for the keys and values of block_size
// consecutive tokens, in every layer. A *block table* is a page table: entry i names the block that
// holds tokens [i*block_size, (i+1)*block_size) of one sequence. Shared blocks are always full, hence
// never written, hence need no copy-on-write.
//
// Rules (kv_check() tests 1-4 by number):
//   1. A block is on the free list (ref 0) or in `ref` block tables.
//   2. Only full blocks are published, and a published block is never written again.
//   3. A free block may stay published: it is a cache entry; reusing it evicts the entry.
//   4. The free list is the eviction order, oldest first; a sequence returns its tail before its head. Blocks
//      that are no cache entry lead it: they have nothing to lose.
//   5. One thread: every call on a kv_cache comes from the engine thread.
//
// A block is found by a 128-bit keyed hash of its tokens and all tokens before it (a SipHash-2-4-128 chain
// from a root, which stands for salt and adapter), and a hit compares the block's own tokens too, so that not
// even a broken hash can serve another user's keys.
//
// The term and the idea: Kwon et al., "Efficient Memory Management for Large Language Model Serving with
// PagedAttention", SOSP 2023. The hash: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012.
#pragma once

#include "status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t token_id;
typedef int32_t block_id; // 0 <= id < num_blocks; KV_NONE is "no block"
#define KV_NONE (-1)

struct kv_hash {
    uint64_t lo, hi;
};

struct kv_block {
    int32_t ref;         // block tables that name this block
    block_id prev, next; // free list, KV_NONE at the ends
    block_id chain;      // next block in the same index bucket
    bool published;
    struct kv_hash hash; // of the tokens up to this block's end; meaningful while published
};

struct kv_cache {
    int num_blocks;
    int block_size; // tokens
    int num_free;
    block_id free_head, free_tail;
    bool share;              // false: nothing is published, nothing matches
    struct kv_block *blocks; // (num_blocks)
    token_id *tokens;        // (num_blocks, block_size) what a published block holds
    block_id *index;         // (index_size) bucket heads, hash -> published blocks
    int index_size;          // a power of two, at least num_blocks
    int32_t *seen;           // (num_blocks) scratch of kv_check()
    uint64_t key[2];         // keys the hash, so that clients cannot aim for collisions
    uint64_t num_evicted;    // cache entries lost to reuse, since kv_init
};

struct block_table {
    block_id *ids;       // (cap), owned by the request, allocated at admission
    int len, cap;        // blocks
    int num_hashed;      // leading blocks whose tokens are folded into `hash`
    struct kv_hash hash; // so that publishing costs the new blocks only, not the whole sequence
};

// Allocates everything this cache will ever need. num_blocks >= 1, block_size >= 1; `key` is 16 random bytes.
// STATUS_NOMEM leaves nothing allocated. share = false turns the prefix cache off.
enum status kv_init(struct kv_cache *kv, int num_blocks, int block_size, const uint64_t key[2], bool share);
void kv_destroy(struct kv_cache *kv);

// Blocks needed to hold num_tokens (>= 0).
int kv_blocks_for(const struct kv_cache *kv, int num_tokens);

// The root of a chain: keyed hash of n bytes that name salt and adapter; n = 0 is the common root.
struct kv_hash kv_root(const struct kv_cache *kv, const void *name, size_t n);

// Hash of the block that follows `parent` and holds tokens[0..block_size).
struct kv_hash kv_chain(const struct kv_cache *kv, struct kv_hash parent, const token_id *tokens);

// Fills an empty table with the longest published prefix of tokens[0..n) under root, in whole blocks, and
// takes a reference to each. Returns the tokens covered: a multiple of block_size, at most n.
int kv_match(struct kv_cache *kv, struct block_table *t, struct kv_hash root, const token_id *tokens, int n);

// Undoes the kv_match() that was the last call on this cache: the table is empty again, and every block is
// back at its place in the eviction order, so that a failed admission leaves no trace.
void kv_unmatch(struct kv_cache *kv, struct block_table *t);

// Grows the table to cover num_tokens, or changes nothing and returns false for want of free blocks. Reuses
// the oldest free block first, which evicts its cache entry. num_tokens fits t->cap (CHECK).
bool kv_grow(struct kv_cache *kv, struct block_table *t, int num_tokens);

// Publishes the full blocks of tokens[0..num_computed), whose keys and values are now written and whose
// tokens are resolved. A block equal to one already published stays private: tables are append-only.
// Idempotent.
void kv_publish(struct kv_cache *kv, struct block_table *t, struct kv_hash root, const token_id *tokens,
                int num_computed);

// Drops the table's references, tail first, and empties it. Published blocks stay in the cache until reused.
void kv_release(struct kv_cache *kv, struct block_table *t);

// Physical slot of position pos: block * block_size + offset. pos is covered by the table (CHECK).
int64_t kv_slot(const struct kv_cache *kv, const struct block_table *t, int pos);

// Verifies rules 1-4 against every live table. Returns the number of the rule that is broken, 0 when none is.
// O(num_blocks + blocks in tables) time; for tests and idle time.
int kv_check(const struct kv_cache *kv, const struct block_table *const *tables, int num_tables);

#ifdef __cplusplus
}
#endif
