// A bounded queue of values between threads. Fixed capacity, elements copied in and out; nothing is shared.
#pragma once

#include "status.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mailbox {
    pthread_mutex_t lock;
    pthread_cond_t readable, writable;
    unsigned char *data; // (cap, elem)
    size_t elem, cap, head, len;
    bool closed, woken;
};

// Room for cap elements of elem bytes. STATUS_NOMEM leaves nothing allocated.
enum status mailbox_init(struct mailbox *m, size_t elem, size_t cap);
void mailbox_destroy(struct mailbox *m); // no thread may be inside

// Puts one value. try: false at once when full or closed. put: waits for room; false when closed.
bool mailbox_try_put(struct mailbox *m, const void *value);
bool mailbox_put(struct mailbox *m, const void *value);
// Takes up to max values without waiting; returns how many.
size_t mailbox_take(struct mailbox *m, void *values, size_t max);
// Waits until there is a value, the mailbox is closed, it is woken, or timeout_ns (< 0: for ever) has passed; true: there
// is a value.
bool mailbox_wait(struct mailbox *m, int64_t timeout_ns);
// Ends one mailbox_wait(), this one or the next.
void mailbox_wake(struct mailbox *m);
// Wakes every waiter; later puts fail; what is inside can still be taken.
void mailbox_close(struct mailbox *m);

#ifdef __cplusplus
}
#endif
