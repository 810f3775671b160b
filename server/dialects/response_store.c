#include "response_store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { NUM_BUCKETS = 4096, OVERHEAD = 256 }; // bytes of a response besides its texts

struct stored {
    struct stored *next;          // in its bucket
    struct stored *older, *newer; // of all
    uint8_t key[SHA256_BYTES];    // of owner and id
    char *text;                   // (body_len + items_len)
    size_t body_len, items_len;
};

struct response_store {
    pthread_mutex_t lock;
    size_t bytes, max;
    struct stored *buckets[NUM_BUCKETS], *oldest, *newest;
};

struct response_store *response_store_new(size_t max_bytes) {
    struct response_store *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->max = max_bytes;
    if (pthread_mutex_init(&s->lock, NULL) != 0) {
        free(s);
        return NULL;
    }
    return s;
}

static size_t size_of(const struct stored *one) { return one->body_len + one->items_len + OVERHEAD; }

static bool make_key(uint8_t key[SHA256_BYTES], const uint8_t owner[SHA256_BYTES], const char *id) {
    struct buf b = {0};
    buf_add(&b, owner, SHA256_BYTES);
    buf_str(&b, id);
    if (!b.failed)
        sha256(b.data, b.len, key);
    bool ok = !b.failed;
    buf_free(&b);
    return ok;
}

static struct stored **find_stored(struct response_store *s, const uint8_t key[SHA256_BYTES]) {
    struct stored **at = &s->buckets[(key[0] | key[1] << 8) % NUM_BUCKETS];
    while (*at && memcmp((*at)->key, key, SHA256_BYTES) != 0)
        at = &(*at)->next;
    return at;
}

static void remove_stored(struct response_store *s, struct stored **at) {
    struct stored *one = *at;
    *at = one->next;
    *(one->older ? &one->older->newer : &s->oldest) = one->newer;
    *(one->newer ? &one->newer->older : &s->newest) = one->older;
    s->bytes -= size_of(one);
    free(one->text);
    free(one);
}

void response_store_free(struct response_store *s) {
    if (!s)
        return;
    while (s->oldest)
        remove_stored(s, find_stored(s, s->oldest->key));
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void response_store_put(struct response_store *s, const uint8_t owner[SHA256_BYTES], const char *id,
                        const struct buf *body, const struct buf *items) {
    struct stored *one = calloc(1, sizeof *one);
    if (!one || body->failed || items->failed || !make_key(one->key, owner, id) ||
        !(one->text = malloc(body->len + items->len + 1))) {
        free(one);
        return;
    }
    memcpy(one->text, body->data, body->len);
    memcpy(one->text + body->len, items->data, items->len);
    one->body_len = body->len;
    one->items_len = items->len;
    pthread_mutex_lock(&s->lock);
    struct stored **at = find_stored(s, one->key);
    if (*at)
        remove_stored(s, at);
    while (s->oldest && s->bytes + size_of(one) > s->max)
        remove_stored(s, find_stored(s, s->oldest->key));
    if (size_of(one) <= s->max) {
        at = find_stored(s, one->key);
        *at = one;
        one->older = s->newest;
        *(s->newest ? &s->newest->newer : &s->oldest) = one;
        s->newest = one;
        s->bytes += size_of(one);
        one = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    if (one)
        free(one->text);
    free(one);
}

bool response_store_get(struct response_store *s, const uint8_t owner[SHA256_BYTES], const char *id,
                        struct buf *body, struct buf *items) {
    uint8_t key[SHA256_BYTES];
    if (!make_key(key, owner, id))
        return false;
    pthread_mutex_lock(&s->lock);
    const struct stored *one = *find_stored(s, key);
    if (one && body)
        buf_add(body, one->text, one->body_len);
    if (one && items)
        buf_add(items, one->text + one->body_len, one->items_len);
    pthread_mutex_unlock(&s->lock);
    return one && !(body && body->failed) && !(items && items->failed);
}

bool response_store_delete(struct response_store *s, const uint8_t owner[SHA256_BYTES], const char *id) {
    uint8_t key[SHA256_BYTES];
    if (!make_key(key, owner, id))
        return false;
    pthread_mutex_lock(&s->lock);
    struct stored **at = find_stored(s, key);
    bool found = *at != NULL;
    if (found)
        remove_stored(s, at);
    pthread_mutex_unlock(&s->lock);
    return found;
}
