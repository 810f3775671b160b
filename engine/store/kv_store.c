// The store's two threads: one writes and looks what other processes did, one reads. segments.h has the files.
#include "kv_store.h"

#include "clock.h"
#include "log.h"
#include "segments.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// How often a process that does not write looks for pages of the one that does; how long nothing is written after a failure;
// at most how often a failure is logged.
enum { REFRESH_MS = 1000, PAUSE_MS = 10000, LOG_MS = 60000 };
static const int64_t MS = 1000000;

struct transfers { // first in, first out
    struct kv_transfer *first, **end;
};

struct kv_store {
    struct segment_store *segments;
    void (*notify)(void *arg);
    void *notify_arg;
    size_t page_bytes;
    pthread_t threads[2]; // that writes, that reads
    int num_threads;

    pthread_mutex_t lock; // all below
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
static void note_failure(struct kv_store *s, const struct err *err) {
    int64_t now = clock_now_ns();
    s->stats.failed++;
    if (s->logged && now - s->logged < LOG_MS * MS)
        return;
    s->logged = now;
    log_msg(LOG_WARN, "the KV store fails, and the server goes on without it: %s", err->msg);
}

static void note_end(struct kv_store *s, struct kv_transfer *t, enum status st, int64_t ns,
                     const struct err *err) {
    uint64_t page = t->good ? s->page_bytes : 0;
    pthread_mutex_lock(&s->lock);
    if (t->writes) {
        s->stats.writes += t->good;
        s->stats.written_bytes += page;
        s->stats.write_ns += (uint64_t)ns;
    } else {
        s->stats.reads += t->good;
        s->stats.read_bytes += page;
        s->stats.read_ns += (uint64_t)ns;
        s->stats.corrupt += st == STATUS_FORMAT;
    }
    if (st == STATUS_IO)
        note_failure(s, err);
    append(&s->ended, t);
    pthread_cond_signal(&s->one_ended);
    pthread_mutex_unlock(&s->lock);
    if (s->notify)
        s->notify(s->notify_arg);
}

// The next transfer of a thread; NULL: none came in time. Under lock.
static struct kv_transfer *wait_for_work(struct kv_store *s, bool writes) {
    struct kv_transfer *t = take(&s->posted[!writes]);
    struct timespec until;
    if (t || s->closing)
        return t;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += REFRESH_MS / 1000;
    pthread_cond_timedwait(&s->work[!writes], &s->lock, &until);
    return take(&s->posted[!writes]);
}

static void *run_thread(struct kv_store *s, bool writes) {
    int64_t paused = 0; // nothing is written before
    struct kv_transfer *t;
    bool more = true;
    while (more) {
        struct kv_store_stats now;
        struct err err = {0};
        enum status st = STATUS_STOPPING;
        pthread_mutex_lock(&s->lock);
        t = wait_for_work(s, writes);
        more = t || !s->closing;
        pthread_mutex_unlock(&s->lock);
        int64_t began = clock_now_ns();
        if (t && writes && began >= paused)
            st = segments_write(s->segments, t, &err);
        else if (t && !writes)
            st = segments_read(s->segments, t, &err);
        if (t) {
            t->good = st == STATUS_OK;
            note_end(s, t, st, clock_now_ns() - began, &err);
        }
        if (writes && st == STATUS_IO)
            paused = clock_now_ns() + PAUSE_MS * MS;
        segments_stats(s->segments, &now);
        if (writes && !t && more && !now.writer)
            segments_refresh(s->segments);
    }
    return NULL;
}

static void *write_pages(void *arg) { return run_thread(arg, true); }
static void *read_pages(void *arg) { return run_thread(arg, false); }

struct kv_store *kv_store_open(const struct kv_store_config *config, struct err *err) {
    struct kv_store *s = calloc(1, sizeof *s);
    pthread_condattr_t attr;
    void *(*const mains[2])(void *) = {write_pages, read_pages};
    if (!s) {
        err_set(err, STATUS_NOMEM, "out of memory for the KV store");
        return NULL;
    }
    s->page_bytes = config->page_bytes;
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
    s->segments = segments_open(config, err);
    for (; s->segments && s->num_threads < 2; s->num_threads++)
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
    segments_close(s->segments);
    for (int i = 0; i < 2; i++)
        pthread_cond_destroy(&s->work[i]);
    pthread_cond_destroy(&s->one_ended);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void kv_store_notify(struct kv_store *s, void (*notify)(void *arg), void *arg) {
    s->notify = notify;
    s->notify_arg = arg;
}

void kv_store_key(const struct kv_store *s, uint64_t key[2]) { segments_key(s->segments, key); }

bool kv_store_has(struct kv_store *s, struct kv_hash hash, int group) {
    return segments_has(s->segments, hash, group);
}

int64_t kv_store_age(struct kv_store *s, struct kv_hash hash, int group) {
    return segments_age(s->segments, hash, group);
}

void kv_store_post(struct kv_store *s, struct kv_transfer *t) {
    pthread_mutex_lock(&s->lock);
    append(&s->posted[!t->writes], t);
    pthread_cond_signal(&s->work[!t->writes]);
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
    segments_stats(s->segments, out);
}
