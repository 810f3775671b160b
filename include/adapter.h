// A LoRA adapter that an engine has, as requests name it.
//
// Ownership: counted. engine_adapter_open() gives the first reference, a request holds one more while it lives; when the
// last is gone the engine frees its memory, on the thread that let it go. Any thread.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct adapter {     // constant but for refs
    uint64_t id;     // from 1, never the same again
    uint64_t domain; // of the prefix cache: a keyed hash of all that its matrices hold, not 0
    int slot;        // of the engine's devices
    int rank;        // the most of its matrices
    size_t bytes;
    int refs; // changed by the functions below alone
    void (*free)(struct adapter *a);
    void *owner; // the engine's
};

static inline struct adapter *adapter_hold(struct adapter *a) {
    __atomic_fetch_add(&a->refs, 1, __ATOMIC_RELAXED);
    return a;
}

static inline void adapter_release(struct adapter *a) { // NULL is allowed
    if (a && __atomic_sub_fetch(&a->refs, 1, __ATOMIC_ACQ_REL) == 0)
        a->free(a);
}

#ifdef __cplusplus
}
#endif
