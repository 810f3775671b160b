// Paged KV cache: the bookkeeping. Integers only; the bytes belong to the backend.
//
// Think of virtual memory. A *block* is a page frame of one pool. A *block table* is a page table: entry i names the
// block that holds what a group of layers keeps of tokens [i*block_size, (i+1)*block_size) of one sequence. Layers that
// keep the same kind of state form a *group* (kv_group.h), and a sequence has a table for each; any page of the pool may
// serve any group, so memory is never split among them by guess. Shared blocks are always full, hence never written,
// hence need no copy-on-write.
//
//   KV_FULL    every block stays until the sequence ends.
//   KV_WINDOW  blocks that no later step reads are given back (kv_trim()); their entries become KV_NONE.
//   KV_STATE   one page, `live`, is the state after the last computed token. A *snapshot* is a copy of it: entry i is the
//              state after block i. Its page is in the table only while a planned step copies from or to it; then it is
//              a cache entry like any other. A sequence needs no snapshot of its own past, so it holds none.
//
// Rules (kv_check() tests all but 5 by number):
//   1. A block is on the free list (ref 0) or in `ref` block tables.
//   2. Only full blocks are published, and a published block is never written again. Of two equal blocks the first is
//      published.
//   3. A free block may stay published: it is a cache entry; reusing it evicts the entry.
//   4. The free list is the eviction order, oldest first; a sequence returns its tail before its head, since others
//      share heads. Blocks that are no cache entry lead the list. One that a sequence with `retain` gave back goes to the
//      end once more when its turn comes.
//   5. One thread: every call on a kv_cache comes from the engine thread.
//   6. A table names pages that were taken or found for its group. Entries before `first` are KV_NONE; from there on a
//      full and a window group has every block, a state group a few snapshots.
//   7. Reserved pages are free: the sum of what sequences have reserved is num_reserved, at most num_free. An exclusive
//      page is in one table.
//   8. A live and a saved state belong to one sequence and are not published.
//   9. Of each group num_active pages are in block tables, and num_cached are published and in none.
//
// A block is found by its group and a 128-bit keyed hash of its tokens and all tokens before it (a SipHash-2-4-128 chain
// from a root, which stands for salt and adapter), and a hit compares the block's own tokens too, so that not
// even a broken hash can serve another user's keys. The chain is the sequence's: all groups share it.
//
// A *span* is a range of a sequence that is no tokens, such as an image. Whatever its ids are, the cache takes their *names*
// in their place, which are negative and made of the span's hash; the chain takes the whole hash, too.
//
// The term and the idea: Kwon et al., "Efficient Memory Management for Large Language Model Serving with
// PagedAttention", SOSP 2023. The hash: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012.
#pragma once

#include "kv_group.h"
#include "status.h"
#include "token.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t block_id; // 0 <= id < num_blocks; KV_NONE is "no block"
#define KV_NONE (-1)

struct kv_hash {
    uint64_t lo, hi;
};

// Positions [first, first + len) of a sequence are no tokens.
struct kv_span {
    int first, len;      // len >= 1
    struct kv_hash hash; // of what is there: spans of equal hash and length share pages. kv_root() makes one
    bool whole;          // its rows attend to one another in both directions: one step computes all of them
    // Its rows are those of so many frames, of lines, of columns; len in all. 0: they rotate as text does. Part of what is
    // there, whatever the hash is of.
    int grid[3];
};

struct kv_config {
    int num_blocks; // pages of the pool, >= 1
    int block_size; // tokens, >= 1
    int num_groups; // 1..KV_MAX_GROUPS
    struct kv_group_spec groups[KV_MAX_GROUPS];
    // The most tokens of one sequence that unresolved steps compute together: bounds what a window group holds.
    int max_ahead;
    int snapshot_tokens; // KV_STATE: tokens between two snapshots of a sequence, at least; 0 counts as 1
    uint64_t key[2];     // 16 random bytes: keys the hash, so that clients cannot aim for collisions
    bool share;          // false: nothing is published, nothing matches
};

struct kv_block {
    int32_t ref;         // block tables that name this block
    block_id prev, next; // free list, KV_NONE at the ends
    block_id chain;      // next block in the same index bucket
    uint8_t group;       // that it was last taken for; 0: none yet
    bool published;
    bool common;         // its chain begins at the common root; while published
    bool retained;       // passed over once before it is evicted
    bool exclusive;      // a reservation counts on it: no other sequence may share it
    uint32_t touched;    // kv_cache.clock when it was last taken or given back by its last sequence
    struct kv_hash hash; // of the tokens up to this block's end; meaningful while published, or a snapshot
    uint64_t parent;     // hash.lo of the block before it, or of the root; while published, 0: not known
};

// A cache entry that was lost to reuse.
struct kv_evicted {
    struct kv_hash hash;
    uint32_t when; // clock
    uint8_t group;
};
enum { KV_MAX_EVICTED = 1 << 15 }; // that are remembered, a power of two

// Tells of changes of the cache entries: a page was published, by a step or by kv_adopt(), or is one no more. It calls no
// function of the cache that changes it.
enum kv_change { KV_PUBLISHED, KV_ADOPTED, KV_EVICTED };
typedef void kv_watch(void *arg, enum kv_change change, block_id id);

struct kv_cache {
    struct kv_config config;
    kv_watch *watch; // the owner's; NULL: none
    void *watch_arg;
    bool has_window, has_state;
    int num_free;
    int num_reserved; // of the free ones, promised to sequences (kv_reserve())
    block_id free_head, free_tail;
    struct kv_hash common;   // the common root
    struct kv_block *blocks; // (num_blocks)
    token_id *tokens;        // (num_blocks, block_size) what a published block holds: ids, and names of spans
    token_id *names;         // (block_size) scratch
    block_id *index;         // (index_size) bucket heads, hash -> published blocks
    int index_size;          // a power of two, at least num_blocks
    struct kv_evicted *evicted; // (evicted_size) by hash: a later one may take an earlier one's place
    int evicted_size;           // a power of two
    int32_t *seen;              // (num_blocks) scratch of kv_check() and kv_touch()
    uint64_t num_evicted;       // cache entries lost to reuse, since kv_init
    int num_active[KV_MAX_GROUPS], num_cached[KV_MAX_GROUPS]; // pages in tables; cache entries in none
    uint32_t clock; // the owner sets it, in any unit; nothing is decided by it
};

// The pages of one sequence in one group.
struct block_table {
    block_id *ids;  // (cap)
    int first;      // entries before it are KV_NONE: given back, or not needed since a prefix hit
    block_id live;  // KV_STATE: the state after the last computed token
    block_id saved; // KV_STATE: its copy before a step that may be rolled back
};

// The pages of one sequence in all groups, and the hash of its leading blocks.
struct kv_seq {
    struct block_table tables[KV_MAX_GROUPS];
    int len, cap;           // blocks, of every table
    int num_hashed;         // leading blocks whose tokens are folded into `hash`
    struct kv_hash hash;    // so that publishing costs the new blocks only, not the whole sequence
    struct kv_hash *hashes; // (cap + 1) of its first 0, 1, … blocks, the owner's memory; NULL: none are kept
    int num_hashes;         // that are known; they outlive kv_unmatch() and kv_release()
    const struct kv_span *spans; // (num_spans) ascending and disjoint, the owner's memory
    int num_spans;
    int reserved;                     // free pages promised to it
    int snapshot_at;                  // KV_STATE: tokens of the last snapshot that it took or found
    int saved_at;                     // KV_STATE: tokens that `saved` is the state after
    bool retain;                      // the owner's: its pages are evicted later than others
    bool restores, saves, rolls_back; // KV_STATE: copies that its next step needs
};

// Allocates everything this cache will ever need. STATUS_NOMEM leaves nothing allocated.
enum status kv_init(struct kv_cache *kv, const struct kv_config *config);
void kv_destroy(struct kv_cache *kv);

// An empty sequence of at most `cap` blocks. ids: (KV_MAX_GROUPS, cap), uninitialised, owned by the caller; what the
// cache's groups do not need is not touched. The caller may set `hashes`: then a block is hashed once, however often it is
// matched and published, so its tokens must not change any more. It may set spans, before the first match.
void kv_seq_init(struct kv_seq *seq, block_id *ids, int cap);

// ---- how much

// Free pages that are not promised to a sequence.
static inline int kv_available(const struct kv_cache *kv) { return kv->num_free - kv->num_reserved; }

// Blocks of a table that covers num_tokens (>= 0).
int kv_blocks_for(const struct kv_cache *kv, int num_tokens);

// The most pages that a sequence of num_tokens holds at any time, alone. Pure; any thread.
int64_t kv_pages(const struct kv_config *config, int num_tokens);

// The longest sequence, of at most max_tokens, whose kv_pages() are in the pool. Pure; any thread.
int kv_max_tokens(const struct kv_config *config, int max_tokens);

// Pages beyond those that it holds and has reserved that a sequence needs at most on its way to num_tokens; of
// kv_missing_after(), one that begins with a hit of num_cached tokens.
int kv_missing(const struct kv_cache *kv, const struct kv_seq *seq, int num_tokens);
int kv_missing_after(const struct kv_cache *kv, int num_cached, int num_tokens);

// ---- prefixes

// The root of a chain: keyed hash of n bytes that name salt and adapter; n = 0 is the common root. Also the hash of a span
// by the bytes of what is there. Any thread.
struct kv_hash kv_root(const struct kv_cache *kv, const void *name, size_t n);

// Hash of the block that follows `parent` and holds tokens[0..block_size).
struct kv_hash kv_chain(const struct kv_cache *kv, struct kv_hash parent, const token_id *tokens);

// The first of n spans that ends behind `position`; n: none does. Pure.
int kv_find_span(const struct kv_span *spans, int n, int position);

// A parent for kv_chain() that stands for `parent` and the part of a span that lies in the block: `rows` of it from `at` of
// the block on, which begin with row `skip` of the span.
struct kv_hash kv_span_chain(const struct kv_cache *kv, struct kv_hash parent, const struct kv_span *span,
                             int at, int skip, int rows);

// The positions by which [first, first + n) of a sequence rotate, of axis a from positions[a * stride] on: one further from
// text to text; of a grid's row, those of the text that would stand where the grid begins, and its frame, line and column
// further; behind a grid, one further than the largest in it (Qwen2-VL's get_rope_index() in transformers 4.57; 5.24 leaves
// frames out of that). Whether any is not the position itself. Pure.
bool kv_seq_rope_positions(const struct kv_seq *seq, int first, int n, int32_t *positions, size_t stride);

// tokens[first..first + n) of a sequence as the cache keeps and compares them: names in place of ids in spans. n numbers go
// to `names`.
void kv_seq_names(const struct kv_seq *seq, const token_id *tokens, int first, int n, token_id *names);

// The same of block i, where a sequence has spans in the cache's scratch, until the next call. seq NULL: it has none.
const token_id *kv_block_names(const struct kv_cache *kv, const struct kv_seq *seq, const token_id *tokens,
                               int i);

// The same of block i of a sequence's tokens[0..), behind `parent`: kept, where the sequence keeps hashes and this one's
// parents, or computed. seq: NULL is one that keeps none.
struct kv_hash kv_seq_chain(const struct kv_cache *kv, struct kv_seq *seq, int i, struct kv_hash parent,
                            const token_id *tokens);

// Fills an empty sequence with the longest published prefix of tokens[0..n) under root, in whole blocks, that every
// group serves, and takes a reference to each page: a full group needs all blocks, a window group those that the next
// token sees, a state group a snapshot of its end. Returns the tokens covered: a multiple of block_size, at most n.
// Hashes tokens up to the first block that a full group lacks; without a full group all n.
int kv_match(struct kv_cache *kv, struct kv_seq *seq, struct kv_hash root, const token_id *tokens, int n);

// The group's published block with this hash that holds these tokens, by their names in spans, or KV_NONE.
block_id kv_find(const struct kv_cache *kv, struct kv_hash h, int group, const token_id *tokens);

// The first block that a group must have so that it serves a hit of num_blocks: what a window no longer sees is no loss.
int kv_first_served(const struct kv_config *c, int group, int num_blocks);

// Why a prefix match ends where it does.
enum kv_end {
    KV_END_PROMPT,  // all blocks that the tokens fill hit
    KV_END_GROUP,   // the block is there, but not for `group`
    KV_END_EVICTED, // the block was there for `group` until `when`
    KV_END_DIFFERS, // another block is there, whose first `same` tokens are these
    KV_END_NEW,     // nothing ever followed, as far as is remembered
};
struct kv_ending {
    enum kv_end why;
    int group;
    uint32_t when; // clock
    int same;
    token_id other; // the other block's token behind those; -1: no token
};
// Explains where the prefix match of tokens[0..n) ends: the first `cached`, whose hash is `parent`, are the longest
// prefix that hits. If the full groups have more, it names the page that the other groups lack to serve as much.
// Never KV_END_DIFFERS. seq: as of kv_seq_chain().
struct kv_ending kv_explain(const struct kv_cache *kv, struct kv_seq *seq, struct kv_hash parent,
                            const token_id *tokens, int cached, int n);
// If e is KV_END_NEW: looks, in one pass over the pool, for the block behind the prefix that has most in common with
// the block of these tokens.
void kv_compare(const struct kv_cache *kv, struct kv_hash parent, const token_id *tokens,
                struct kv_ending *e);

// Undoes the kv_match() that was the last call on this cache: the sequence is empty again, and every block is
// back at its place in the eviction order, so that a failed admission leaves no trace.
void kv_unmatch(struct kv_cache *kv, struct kv_seq *seq);

// Publishes the full blocks of tokens[0..num_computed), which are now written and whose tokens are resolved, and the
// snapshots before num_computed, which are now copied. A block equal to one already published stays private: tables are
// append-only. Idempotent.
void kv_publish(struct kv_cache *kv, struct kv_seq *seq, struct kv_hash root, const token_id *tokens,
                int num_computed);

// ---- pages that come from elsewhere

// A page that a hit lacks.
struct kv_wanted {
    struct kv_hash hash;
    uint64_t parent; // as kv_block.parent
    int block;       // of the sequence
    int group;
};

// Which pages would make the prefix hit of tokens[0..n) longer, of those that has() says can be had; it is asked for every
// page that may be of use. Writes them to wanted (room for max), ascending by block, and returns how many; beyond max they
// are left out. hit, where not NULL: tokens of that prefix. The sequence is empty, and stays so.
int kv_want(struct kv_cache *kv, struct kv_seq *seq, struct kv_hash root, const token_id *tokens, int n,
            bool (*has)(void *arg, struct kv_hash hash, int group), void *arg, struct kv_wanted *wanted,
            int max, int *hit);

// Makes those free pages that hold blocks of tokens[0..n) the last to be evicted, the first block last of all, so that pages which
// come for the rest do not take their places. Returns how many. The sequence is empty.
int kv_touch(struct kv_cache *kv, struct kv_seq *seq, struct kv_hash root, const token_id *tokens, int n);

// Takes the oldest free page for such a page and publishes it, as the last to be evicted: its bytes must be there before the
// next step. names: (block_size) as kv_block_names(). KV_NONE, and nothing changes: the cache has it, or no page is
// available.
block_id kv_adopt(struct kv_cache *kv, const struct kv_wanted *w, const token_id *names);

// ---- pages

// Promises the sequence every page that it still takes on its way to num_tokens, so that no kv_grow() up to there fails,
// whatever others do. False, and nothing changes, for want of free blocks. Pages that it will give back on the way count
// for it only if no sequence shares them; from now on none will.
bool kv_reserve(struct kv_cache *kv, struct kv_seq *seq, int num_tokens);

// Grows the tables to cover num_tokens, or changes nothing and returns false for want of free blocks. Reuses
// the oldest free block first, which evicts its cache entry. num_tokens fits seq->cap (CHECK).
bool kv_grow(struct kv_cache *kv, struct kv_seq *seq, int num_tokens);

// Gives back what no step reads that computes `position` or later: blocks before the window, snapshots before the
// position, and a saved state. No unresolved step computes an earlier position. Publish before it
// what is to stay in the cache.
void kv_trim(struct kv_cache *kv, struct kv_seq *seq, int position);

// Drops all references, tail first, and what is reserved. Published blocks stay in the cache until reused.
void kv_release(struct kv_cache *kv, struct kv_seq *seq);

// Physical slot of position pos: block * block_size + offset. The table of the group, which is none of states, holds
// the block (CHECK).
int64_t kv_slot(const struct kv_cache *kv, const struct kv_seq *seq, int group, int pos);

// ---- recurrent state

enum { KV_SEQ_MOVES = 3 }; // of a sequence, per state group and step, at most

// Whether a snapshot of the state after `position` tokens is due: at a block boundary that is either `last` or
// snapshot_tokens behind the snapshot before. Never without a state group or sharing.
bool kv_snapshot_due(const struct kv_cache *kv, const struct kv_seq *seq, int position, int last);

// Writes the copies of pages that precede the step which computes from `first` (> 0 where there are any): out of the
// snapshot that kv_match() found, out of or into the saved state, and into a new snapshot. A new one is taken where
// it is due (kv_snapshot_due()) and more than `spare` pages are available; the first kv_publish() with more computed
// tokens publishes it. So a sequence of n tokens makes at most 1 + n / snapshot_tokens of them. No page is the target
// of one move and in another. Returns how many.
int kv_moves(struct kv_cache *kv, struct kv_seq *seq, int first, int last, int spare, struct kv_move *moves);

// For a step that may compute too far: keeps the state after `position` tokens, where that step begins, until kv_trim()
// is called for a later one. kv_moves() of that step copies it. False for want of a page; true without a state group.
bool kv_checkpoint(struct kv_cache *kv, struct kv_seq *seq, int position);

// The step did compute too far, and is resolved, and no later one names the sequence: the next step begins where it
// began. Returns that position. With a state group only; kv_checkpoint() came before (CHECK).
int kv_rollback(struct kv_cache *kv, struct kv_seq *seq);

// ---- the rules, checked

// Verifies the rules against every live sequence. Returns the number of the rule that is broken, 0 when none is.
// O(num_blocks + blocks in tables) time; for tests and idle time.
int kv_check(const struct kv_cache *kv, const struct kv_seq *const *seqs, int num_seqs);

#ifdef __cplusplus
}
#endif
