// The store's two threads: one writes and looks what other processes did, one reads.
#include "kv_store.h"

#include "clock.h"
#include "log.h"
#include "page_store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// How often a process that does not write looks for pages of the one that does, however busy it is; how long nothing is written after a failure;
// at most how often a failure is logged.
enum { REFRESH_MS = 1000, PAUSE_MS = 10000, LOG_MS = 60000 };
enum { AT_ONCE = 16 }; // transfers that a thread takes
static const int64_t MS = 1000000;

struct transfers { // first in, first out
    struct kv_transfer *first, **end;
};

struct kv_store {
    const struct page_store_ops *ops;
    void *pages;          // of ops
    pthread_t threads[2]; // that writes, that reads
    int num_threads;

    pthread_mutex_t lock; // all below
    void (*notify)(void *arg);
    void *notify_arg;
    pthread_cond_t work[2], one_ended;
    struct transfers posted[2], ended;
    struct kv_store_stats stats;
    int64_t logged; // monotonic ns of the last failure that was logged; 0: none
    bool closing;
};

static void append(struct transfers *q, struct kv_transfer *t) {
    t->next = NULL;
    *q->end = t;
    q->end = &t->next;
}

static struct kv_transfer *take(struct transfers *q) {
    struct kv_transfer *t = q->first;
    if (t && !(q->first = t->next))
        q->end = &q->first;
    return t;
}

// Under lock.
static void log_failure(struct kv_store *s, const struct err *err) {
    int64_t now = clock_now_ns();
    if (s->logged && now - s->logged < LOG_MS * MS)
        return;
    s->logged = now;
    log_msg(LOG_WARN, "the KV store fails, and the server goes on without it: %s", err->msg);
}

static void note_ends(struct kv_store *s, struct kv_transfer *const *t, const enum status *st, int n,
                      bool writes, int64_t ns, const struct err *err) {
    pthread_mutex_lock(&s->lock);
    *(writes ? &s->stats.write_ns : &s->stats.read_ns) += (uint64_t)ns;
    for (int i = 0; i < n; i++) {
        const bool good = t[i]->good = st[i] == STATUS_OK;
        s->stats.writes += good && t[i]->kind == KV_WRITE;
        s->stats.reads += good && t[i]->kind == KV_READ;
        s->stats.corrupt += st[i] == STATUS_FORMAT;
        s->stats.failed += st[i] == STATUS_IO;
        append(&s->ended, t[i]);
    }
    if (err->code == STATUS_IO)
        log_failure(s, err);
    pthread_cond_signal(&s->one_ended);
    if (s->notify) // under lock: whoever ends it with kv_store_notify() is not called any more
        s->notify(s->notify_arg);
    pthread_mutex_unlock(&s->lock);
}

// The next transfers of a thread; 0: none came in time. A question goes alone. Under lock.
static int wait_for_work(struct kv_store *s, bool writes, struct kv_transfer **t) {
    struct transfers *posted = &s->posted[!writes];
    struct timespec until;
    int n = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += REFRESH_MS / 1000;
    while (!posted->first && !s->closing) {
        if (!writes || !s->ops->refresh)
            pthread_cond_wait(&s->work[!writes], &s->lock);
        else if (pthread_cond_timedwait(&s->work[!writes], &s->lock, &until) != 0)
            break;
    }
    while (n < AT_ONCE && posted->first &&
           (n == 0 || (posted->first->kind != KV_LOOK && t[0]->kind != KV_LOOK)))
        t[n++] = take(posted);
    return n;
}

static void *run_thread(struct kv_store *s, bool writes) {
    int64_t paused = 0;    // nothing is written before
    int64_t refreshed = 0; // 0: never
    for (bool more = true; more;) {
        struct kv_transfer *t[AT_ONCE];
        enum status st[AT_ONCE];
        struct err err = {0};
        pthread_mutex_lock(&s->lock);
        int n = wait_for_work(s, writes, t);
        more = n > 0 || !s->closing;
        pthread_mutex_unlock(&s->lock);
        int64_t began = clock_now_ns();
        for (int i = 0; i < n; i++)
            st[i] = STATUS_STOPPING;
        if (n > 0 && !writes)
            s->ops->read(s->pages, t, n, st, &err);
        else if (n > 0 && began >= paused)
            s->ops->write(s->pages, t, n, st, &err);
        if (n > 0)
            note_ends(s, t, st, n, writes, clock_now_ns() - began, &err);
        if (writes && err.code == STATUS_IO)
            paused = clock_now_ns() + PAUSE_MS * MS;
        if (writes && more && s->ops->refresh && clock_now_ns() - refreshed >= REFRESH_MS * MS) {
            s->ops->refresh(s->pages);
            refreshed = clock_now_ns();
        }
    }
    return NULL;
}

static void *write_pages(void *arg) { return run_thread(arg, true); }
static void *read_pages(void *arg) { return run_thread(arg, false); }

static const struct page_store_ops *find_ops(const char *where) {
    if (strncmp(where, "valkey://", 9) == 0 || strncmp(where, "redis://", 8) == 0)
        return &page_store_valkey;
    return strcmp(where, "memory") == 0 ? &page_store_memory : &page_store_disk;
}

struct kv_store *kv_store_open(const struct kv_store_config *config, struct err *err) {
    struct kv_store *s = calloc(1, sizeof *s);
    pthread_condattr_t attr;
    void *(*const mains[2])(void *) = {write_pages, read_pages};
    if (!s) {
        err_set(err, STATUS_NOMEM, "out of memory for the KV store");
        return NULL;
    }
    s->ended.end = &s->ended.first;
    pthread_mutex_init(&s->lock, NULL); // none of these can fail on Linux
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    for (int i = 0; i < 2; i++) {
        s->posted[i].end = &s->posted[i].first;
        pthread_cond_init(&s->work[i], &attr);
    }
    pthread_cond_init(&s->one_ended, &attr);
    pthread_condattr_destroy(&attr);
    s->ops = find_ops(config->dir);
    s->pages = s->ops->open(config, err);
    for (; s->pages && s->num_threads < 2; s->num_threads++)
        if (pthread_create(&s->threads[s->num_threads], NULL, mains[s->num_threads], s) != 0) {
            err_set(err, STATUS_NOMEM, "cannot start a thread of the KV store");
            break;
        }
    if (s->num_threads == 2)
        return s;
    kv_store_close(s);
    return NULL;
}

void kv_store_close(struct kv_store *s) {
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    for (int i = 0; i < 2; i++)
        pthread_cond_signal(&s->work[i]);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->num_threads; i++)
        pthread_join(s->threads[i], NULL);
    if (s->pages)
        s->ops->close(s->pages);
    for (int i = 0; i < 2; i++)
        pthread_cond_destroy(&s->work[i]);
    pthread_cond_destroy(&s->one_ended);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void kv_store_notify(struct kv_store *s, void (*notify)(void *arg), void *arg) {
    pthread_mutex_lock(&s->lock);
    s->notify = notify;
    s->notify_arg = arg;
    pthread_mutex_unlock(&s->lock);
}

void kv_store_key(const struct kv_store *s, uint64_t key[2]) { s->ops->key(s->pages, key); }

bool kv_store_is_near(const struct kv_store *s) { return s->ops != &page_store_valkey; }

bool kv_store_has(struct kv_store *s, struct kv_hash hash, int group) {
    return s->ops->has(s->pages, hash, group);
}

int64_t kv_store_age(struct kv_store *s, struct kv_hash hash, int group) {
    return s->ops->age(s->pages, hash, group);
}

void kv_store_post(struct kv_store *s, struct kv_transfer *t) {
    pthread_mutex_lock(&s->lock);
    int reads = t->kind != KV_WRITE;
    append(&s->posted[reads], t);
    pthread_cond_signal(&s->work[reads]);
    pthread_mutex_unlock(&s->lock);
}

struct kv_transfer *kv_store_take(struct kv_store *s) {
    pthread_mutex_lock(&s->lock);
    struct kv_transfer *t = take(&s->ended);
    pthread_mutex_unlock(&s->lock);
    return t;
}

struct kv_transfer *kv_store_wait(struct kv_store *s) {
    struct kv_transfer *t;
    pthread_mutex_lock(&s->lock);
    while (!(t = take(&s->ended)))
        pthread_cond_wait(&s->one_ended, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return t;
}

void kv_store_stats(struct kv_store *s, struct kv_store_stats *out) {
    pthread_mutex_lock(&s->lock);
    *out = s->stats;
    pthread_mutex_unlock(&s->lock);
    out->where = s->ops->where;
    s->ops->stats(s->pages, out);
}
