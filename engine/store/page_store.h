// A place where pages are kept, as kv_store.c drives it: a disk, a server, or memory.
#pragma once

#include "kv_store.h"

struct page_store_ops {
    const char *where;
    // NULL with err: as kv_store_open().
    void *(*open)(const struct kv_store_config *config, struct err *err);
    void (*close)(void *store);                // NULL is allowed
    void (*key)(void *store, uint64_t key[2]); // leaves a random one where nothing outlives the process
    // Any thread, without waiting.
    bool (*has)(void *store, struct kv_hash hash, int group);
    int64_t (*age)(void *store, struct kv_hash hash, int group);
    void (*stats)(void *store, struct kv_store_stats *out);
    // Of one thread, and of another one: n transfers, which are all of one kind; st[i] says what became of each. STATUS_OK,
    // STATUS_INVALID: it is not there; STATUS_FORMAT: it is damaged or another's; STATUS_STOPPING: another process
    // writes; STATUS_IO: err says why.
    void (*write)(void *store, struct kv_transfer *const *t, int n, enum status *st, struct err *err);
    void (*read)(void *store, struct kv_transfer *const *t, int n, enum status *st, struct err *err);
    void (*refresh)(
        void *store); // of the thread that writes, about once a second where it has nothing to write; or NULL
};

enum { PAGE_STORE_NAME = 33 }; // with the NUL

// 32 hexadecimal digits for an identity.
void page_store_name(const char *identity, char text[PAGE_STORE_NAME]);

extern const struct page_store_ops page_store_disk, page_store_valkey, page_store_memory;
