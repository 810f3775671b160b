// Pages in the host's memory, for devices with memory of their own. The oldest go first; a page that was asked for since it came
// to the front goes behind the others once more (CLOCK: Corbató, 1968).
#include "page_store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct memory_page {
    struct kv_hash hash;
    int group; // -1: none is here
    bool used; // asked for since it was written, or passed over
    int next;  // of the same bucket; -1: none
    time_t when;
};

struct memory {
    pthread_mutex_t lock;
    struct memory_page *pages; // (num_pages) a ring, whose oldest is pages[hand]
    char *bytes;               // (num_pages, tokens and page)
    int *buckets;              // (mask + 1)
    size_t each, token_bytes, page_bytes, mask;
    int num_pages, num, hand;
    int64_t max_bytes;
};

static int *bucket_of(const struct memory *s, struct kv_hash h, int group) {
    return &s->buckets[(h.lo + (uint64_t)group) & s->mask];
}

// Under lock. -1: it is not here.
static int find_page(const struct memory *s, struct kv_hash h, int group) {
    int i = *bucket_of(s, h, group);
    while (i >= 0 &&
           !(s->pages[i].hash.lo == h.lo && s->pages[i].hash.hi == h.hi && s->pages[i].group == group))
        i = s->pages[i].next;
    return i;
}

static char *bytes_of(const struct memory *s, int i) { return s->bytes + (size_t)i * s->each; }

static void drop_page(struct memory *s, int i) {
    struct memory_page *p = &s->pages[i];
    if (p->group < 0)
        return;
    int *at = bucket_of(s, p->hash, p->group);
    while (*at != i)
        at = &s->pages[*at].next;
    *at = p->next;
    p->group = -1;
    s->num--;
}

static bool memory_has(void *store, struct kv_hash hash, int group) {
    struct memory *s = store;
    pthread_mutex_lock(&s->lock);
    int i = find_page(s, hash, group);
    if (i >= 0)
        s->pages[i].used = true;
    pthread_mutex_unlock(&s->lock);
    return i >= 0;
}

static int64_t memory_age(void *store, struct kv_hash hash, int group) {
    struct memory *s = store;
    pthread_mutex_lock(&s->lock);
    int i = find_page(s, hash, group);
    int64_t age = i < 0 ? -1 : (int64_t)(time(NULL) - s->pages[i].when);
    pthread_mutex_unlock(&s->lock);
    return i >= 0 && age < 0 ? 0 : age; // the clock may have been set back
}

static void write_one(struct memory *s, const struct kv_transfer *t) {
    if (find_page(s, t->hash, t->group) >= 0)
        return;
    for (int passed = 0; s->pages[s->hand].used && passed < s->num_pages; passed++) {
        s->pages[s->hand].used = false;
        s->hand = (s->hand + 1) % s->num_pages;
    }
    int i = s->hand, *bucket = bucket_of(s, t->hash, t->group);
    s->hand = (s->hand + 1) % s->num_pages;
    drop_page(s, i);
    s->pages[i] = (struct memory_page){
        .hash = t->hash, .group = t->group, .used = t->retained, .next = *bucket, .when = time(NULL)};
    *bucket = i;
    s->num++;
    memcpy(bytes_of(s, i), t->tokens, s->token_bytes);
    memcpy(bytes_of(s, i) + s->token_bytes, t->page, s->page_bytes);
}

static void memory_write(void *store, struct kv_transfer *const *t, int n, enum status *st, struct err *err) {
    struct memory *s = store;
    (void)err;
    for (int i = 0; i < n; i++) {
        pthread_mutex_lock(&s->lock);
        write_one(s, t[i]);
        pthread_mutex_unlock(&s->lock);
        st[i] = STATUS_OK;
    }
}

static void memory_read(void *store, struct kv_transfer *const *t, int n, enum status *st, struct err *err) {
    struct memory *s = store;
    (void)err;
    for (int i = 0; i < n; i++) {
        pthread_mutex_lock(&s->lock);
        int at = find_page(s, t[i]->hash, t[i]->group);
        st[i] = at < 0                                                       ? STATUS_INVALID
                : memcmp(bytes_of(s, at), t[i]->tokens, s->token_bytes) == 0 ? STATUS_OK
                                                                             : STATUS_FORMAT;
        if (st[i] == STATUS_OK)
            memcpy(t[i]->page, bytes_of(s, at) + s->token_bytes, s->page_bytes);
        if (st[i] == STATUS_FORMAT)
            drop_page(s, at);
        pthread_mutex_unlock(&s->lock);
    }
}

static void memory_close(void *store) {
    struct memory *s = store;
    if (!s)
        return;
    pthread_mutex_destroy(&s->lock);
    free(s->pages);
    free(s->bytes);
    free(s->buckets);
    free(s);
}

static void *memory_open(const struct kv_store_config *config, struct err *err) {
    struct memory *s = calloc(1, sizeof *s);
    size_t tokens = (size_t)config->block_size * sizeof(token_id), each = tokens + config->page_bytes;
    int64_t num = config->max_bytes / (int64_t)each;
    if (num < 1) {
        err_set(err, STATUS_INVALID, "a KV store of %lld bytes has no room for %d pages of %zu",
                (long long)config->max_bytes, 1, each);
    } else if (s) {
        *s = (struct memory){.each = each,
                             .token_bytes = tokens,
                             .page_bytes = config->page_bytes,
                             .num_pages = num < 1 << 28 ? (int)num : 1 << 28,
                             .max_bytes = config->max_bytes,
                             .mask = 1023};
        while (s->mask + 1 < (size_t)s->num_pages)
            s->mask = 2 * s->mask + 1;
        pthread_mutex_init(&s->lock, NULL); // cannot fail on Linux: no attributes
        s->pages = calloc((size_t)s->num_pages, sizeof *s->pages);
        s->bytes = calloc((size_t)s->num_pages, each); // touched as it fills
        s->buckets = malloc((s->mask + 1) * sizeof *s->buckets);
    }
    if (s && s->pages && s->bytes && s->buckets) {
        for (size_t i = 0; i <= s->mask; i++)
            s->buckets[i] = -1;
        for (int i = 0; i < s->num_pages; i++)
            s->pages[i].group = -1;
        return s;
    }
    err_set(err, STATUS_NOMEM, "out of memory for a KV store of %lld bytes", (long long)config->max_bytes);
    if (s && s->mask)
        memory_close(s);
    else
        free(s);
    return NULL;
}

// No process is after this one: the caller's own key will do.
static void memory_key(void *store, uint64_t key[2]) {
    (void)store;
    (void)key;
}

static void memory_stats(void *store, struct kv_store_stats *out) {
    struct memory *s = store;
    pthread_mutex_lock(&s->lock);
    out->bytes = (int64_t)s->num * (int64_t)s->each;
    out->max_bytes = s->max_bytes;
    out->pages = s->num;
    out->writer = true;
    pthread_mutex_unlock(&s->lock);
}

const struct page_store_ops page_store_memory = {.where = "memory",
                                                 .open = memory_open,
                                                 .close = memory_close,
                                                 .key = memory_key,
                                                 .has = memory_has,
                                                 .age = memory_age,
                                                 .stats = memory_stats,
                                                 .write = memory_write,
                                                 .read = memory_read};
