#include "mailbox.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum status mailbox_init(struct mailbox *m, size_t elem, size_t cap) {
    *m = (struct mailbox){.elem = elem, .cap = cap};
    m->data = calloc(cap, elem);
    if (!m->data)
        return STATUS_NOMEM;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->readable, &attr);
    pthread_cond_init(&m->writable, &attr);
    pthread_condattr_destroy(&attr);
    return STATUS_OK;
}

void mailbox_destroy(struct mailbox *m) {
    if (!m->data)
        return;
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->readable);
    pthread_cond_destroy(&m->writable);
    free(m->data);
    *m = (struct mailbox){0};
}

// With the lock held and room for one.
static void append(struct mailbox *m, const void *value) {
    memcpy(m->data + (m->head + m->len) % m->cap * m->elem, value, m->elem);
    m->len++;
    pthread_cond_signal(&m->readable);
}

bool mailbox_try_put(struct mailbox *m, const void *value) {
    pthread_mutex_lock(&m->lock);
    bool room = !m->closed && m->len < m->cap;
    if (room)
        append(m, value);
    pthread_mutex_unlock(&m->lock);
    return room;
}

bool mailbox_put(struct mailbox *m, const void *value) {
    pthread_mutex_lock(&m->lock);
    while (!m->closed && m->len == m->cap)
        pthread_cond_wait(&m->writable, &m->lock);
    bool open = !m->closed;
    if (open)
        append(m, value);
    pthread_mutex_unlock(&m->lock);
    return open;
}

size_t mailbox_take(struct mailbox *m, void *values, size_t max) {
    unsigned char *dst = values;
    pthread_mutex_lock(&m->lock);
    size_t n = m->len < max ? m->len : max;
    for (size_t i = 0; i < n; i++) {
        memcpy(dst + i * m->elem, m->data + m->head * m->elem, m->elem);
        m->head = (m->head + 1) % m->cap;
    }
    m->len -= n;
    if (n > 0)
        pthread_cond_broadcast(&m->writable);
    pthread_mutex_unlock(&m->lock);
    return n;
}

bool mailbox_wait(struct mailbox *m, int64_t timeout_ns) {
    struct timespec until;
    if (timeout_ns >= 0) {
        clock_gettime(CLOCK_MONOTONIC, &until);
        int64_t ns = until.tv_nsec + timeout_ns % 1000000000;
        until.tv_sec += (time_t)(timeout_ns / 1000000000 + ns / 1000000000);
        until.tv_nsec = (long)(ns % 1000000000);
    }
    pthread_mutex_lock(&m->lock);
    int rc = 0;
    while (m->len == 0 && !m->closed && !m->woken && rc == 0)
        rc = timeout_ns < 0 ? pthread_cond_wait(&m->readable, &m->lock)
                            : pthread_cond_timedwait(&m->readable, &m->lock, &until);
    bool ready = m->len > 0;
    m->woken = false;
    pthread_mutex_unlock(&m->lock);
    return ready;
}

void mailbox_wake(struct mailbox *m) {
    pthread_mutex_lock(&m->lock);
    m->woken = true;
    pthread_cond_broadcast(&m->readable);
    pthread_mutex_unlock(&m->lock);
}

void mailbox_close(struct mailbox *m) {
    pthread_mutex_lock(&m->lock);
    m->closed = true;
    pthread_cond_broadcast(&m->readable);
    pthread_cond_broadcast(&m->writable);
    pthread_mutex_unlock(&m->lock);
}
