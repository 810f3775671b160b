// The adapters that are served, by name. They come with --lora-modules and at run time, and go at run time.
//
// Thread: the list has a lock; any thread. A request holds the adapter that it has found, so that one that is unloaded
// meanwhile stays until it ends.
#pragma once

#include "engine.h"

enum { MAX_LORA_NAME = 64 };

struct lora { // constant but for refs and num_requests
    char name[MAX_LORA_NAME + 1];
    struct adapter *adapter;
    int refs;
    uint64_t num_requests; // ever; the loop thread's
    struct lora *next;     // of the list
};

struct loras; // the list

struct loras *loras_open(void);    // NULL: out of memory
void loras_close(struct loras *l); // before the engine; NULL is allowed
// The engine that loras_load() loads into; before, there are no adapters.
void loras_set_engine(struct loras *l, struct engine *e);

// Held; NULL: there is none of this name.
struct lora *loras_find(struct loras *l, const char *name, size_t len);
struct lora *lora_hold(struct lora *a);
void lora_release(struct lora *a); // NULL is allowed

// Whether it is 1 to 64 letters, digits and "._-".
bool lora_name_ok(const char *name, size_t len);
// Loads an adapter under a name that is none of an adapter, or with `replace` in its place. STATUS_CANCELLED: there is
// one; else as engine_adapter_open().
enum status loras_load(struct loras *l, const char *name, const char *path, bool replace, struct err *err);
bool loras_unload(struct loras *l, const char *name, size_t len); // false: there is none
// Calls fn for each, in the order of loading, under the lock.
void loras_each(struct loras *l, void (*fn)(void *arg, const struct lora *a), void *arg);

// The real path of what `path` names in the folder `root`, for free(): STATUS_IO: there is nothing; STATUS_INVALID: it
// lies elsewhere, or has a file that does. Only then may the path of a request be opened.
enum status loras_resolve(const char *root, const char *path, char **real, struct err *err);
