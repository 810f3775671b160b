// The adapters of an engine: which slots of its devices are taken.
#pragma once

#include "adapter.h"
#include "engine.h"
#include "models/model_file.h"
#include "ranks/ranks.h"

#include <pthread.h>

struct adapters { // start it zeroed
    struct ranks *ranks;
    const struct kv_cache *kv; // its key keys their hashes
    const struct model_config *model;
    enum dtype *down; // (L) of the layers' down matrices
    int max, max_rank;
    pthread_mutex_t lock;
    bool *taken; // (max), under lock
    uint64_t last_id;
};

// Prepares adapters for a model whose weights are loaded, on devices that take adapters; nothing with max_loras 0.
// STATUS_NOMEM; adapters_destroy() is right in any case, when all adapters are gone.
enum status adapters_init(struct adapters *a, struct ranks *ranks, const struct kv_cache *kv,
                          const struct model_config *model, const struct model_file *f, enum dtype floats,
                          const struct engine_config *c);
void adapters_destroy(struct adapters *a);

// Whether the engine can have the adapters that it is to have: the device has them, and there is one process.
// STATUS_INVALID.
enum status adapters_check(const struct engine_config *c, const struct backend_ops *ops, struct err *err);

// As engine_adapter_open().
struct adapter *adapters_open(struct adapters *a, const char *path, struct err *err);
