// A store of cache pages that outlives the process: what the prefix cache computed, on disk or on a Valkey server.
// "memory" is the host's, behind a device's, and ends with the process.
//
// A page is known by its group and the chained hash of its tokens (kv_cache.h), so the secret that keys the hash is the
// store's: equal prompts of another process have equal hashes, and nobody without the secret can make one. A page that is
// read has the tokens that were asked for, and the bytes that were written: the store compares both.
//
// Threads: the store has two of its own, one that writes and one that reads. All calls are the engine thread's, which none
// keeps waiting. What cannot be written is forgotten, and what cannot be read is not there: no failure is an error of a
// request.
#pragma once

#include "kv_cache.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kv_store;

// With a store: its pages are read, and pages are written; only the latter; only the former.
enum kv_role { KV_BOTH, KV_PRODUCER, KV_CONSUMER };

struct kv_store_config {
    const char *dir;      // is made where it is not there; or valkey://…, redis://…, memory
    int64_t max_bytes;    // of all that is in dir; a server has bounds of its own
    const char *identity; // of all that decides the bits of a page: what differs lies apart
    int block_size;       // tokens of a page
    size_t page_bytes;
};

enum kv_transfer_kind { KV_READ, KV_WRITE, KV_LOOK };

// A page on its way, or a question which pages are there. The caller owns it and leaves it alone from kv_store_post() until
// it comes out of kv_store_take().
struct kv_transfer {
    struct kv_hash hash;
    uint64_t parent; // as kv_block.parent
    int group;
    enum kv_transfer_kind kind;
    bool retained;                 // KV_WRITE: it counts as asked for once
    bool good;                     // out: it was written, or read, or have is filled
    token_id *tokens;              // (block_size) names, as kv_block_names()
    void *page;                    // (page_bytes)
    const struct kv_wanted *asked; // (num_asked) KV_LOOK: by hash and group
    bool *have;                    // (num_asked) out
    int num_asked;
    void *owner; // the caller's
    struct kv_transfer *next;
};

struct kv_store_stats {
    int64_t bytes, max_bytes, pages; // in dir; of this identity
    uint64_t reads, writes;          // pages
    uint64_t corrupt;                // pages whose checksum or tokens were wrong
    uint64_t failed;                 // transfers that the disk refused
    uint64_t read_ns, write_ns;      // time that they took
    bool writer;                     // this process writes; else another does
    const char *where;               // "disk", "valkey"; NULL: there is no store
};

// Opens or makes the store in dir. STATUS_IO: dir cannot be used; STATUS_INVALID: max_bytes has no room for four pages, or no such
// address;
// STATUS_NOMEM. Of several processes with one dir the first writes; another takes over when it is gone.
struct kv_store *kv_store_open(const struct kv_store_config *config, struct err *err);
// Writes what was posted, and ends. NULL is allowed. Transfers that were not taken are the caller's again.
void kv_store_close(struct kv_store *s);

// Sets the function that a thread of the store calls when a transfer has ended; it calls none of these. NULL: none, and no
// call is under way any more.
void kv_store_notify(struct kv_store *s, void (*notify)(void *arg), void *arg);

// The secret of dir: kv_config.key.
void kv_store_key(const struct kv_store *s, uint64_t key[2]);

// Whether kv_store_has() knows of each page; else KV_LOOK does, and kv_store_has() of some that are there.
bool kv_store_is_near(const struct kv_store *s);
// Whether the store has the page, as far as its index says. It is then among the last to be forgotten.
bool kv_store_has(struct kv_store *s, struct kv_hash hash, int group);
// Seconds since it was written; -1: the store does not have it.
int64_t kv_store_age(struct kv_store *s, struct kv_hash hash, int group);

void kv_store_post(struct kv_store *s, struct kv_transfer *t);
// One that has ended; NULL: none.
struct kv_transfer *kv_store_take(struct kv_store *s);
// Waits for one that was posted.
struct kv_transfer *kv_store_wait(struct kv_store *s);

void kv_store_stats(struct kv_store *s, struct kv_store_stats *out);

#ifdef __cplusplus
}
#endif
