#include "response_store.h"

#include "log.h"
#include "response_files.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { NUM_BUCKETS = 4096, OVERHEAD = 256 }; // bytes of a response besides its texts

struct stored {
    struct stored *next;          // in its bucket; of those that are gone
    struct stored *older, *newer; // of all
    struct response_file about;
    char *text;        // (about.lens)
    bool dirty, saved; // to be written; in its file
};

struct response_store {
    pthread_mutex_t lock, disk; // disk first: whoever has it brings the files up to date for all
    size_t bytes, num, max;
    uint64_t number; // of the newest
    struct stored *buckets[NUM_BUCKETS], *oldest, *newest;
    struct response_files *files; // NULL: none
    struct stored *gone;          // their files are to be removed
    size_t num_dirty, skipped, unsaved;
    int problem; // errno of the last write; 0: it went well. Of who has `disk`
};

struct response_store *response_store_new(size_t max_bytes) {
    struct response_store *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->max = max_bytes;
    if (pthread_mutex_init(&s->lock, NULL) != 0 || pthread_mutex_init(&s->disk, NULL) != 0) {
        free(s);
        return NULL;
    }
    return s;
}

static size_t texts_len(const struct response_file *f) {
    return f->lens[STORED_BODY] + f->lens[STORED_ITEMS] + f->lens[STORED_EVENTS];
}

static size_t size_of(const struct stored *one) { return texts_len(&one->about) + OVERHEAD; }

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
    while (*at && memcmp((*at)->about.key, key, SHA256_BYTES) != 0)
        at = &(*at)->next;
    return at;
}

// replaced: another one has its key, and will have its file.
static void remove_stored(struct response_store *s, struct stored **at, bool replaced) {
    struct stored *one = *at;
    *at = one->next;
    *(one->older ? &one->older->newer : &s->oldest) = one->newer;
    *(one->newer ? &one->newer->older : &s->newest) = one->older;
    s->bytes -= size_of(one);
    s->num--;
    s->num_dirty -= one->dirty;
    free(one->text);
    one->text = NULL;
    one->next = s->gone;
    if (s->files && !replaced)
        s->gone = one;
    else
        free(one);
}

static void add_stored(struct response_store *s, struct stored *one) {
    struct stored **at = find_stored(s, one->about.key);
    if (*at)
        remove_stored(s, at, true);
    while (s->oldest && s->bytes + size_of(one) > s->max)
        remove_stored(s, find_stored(s, s->oldest->about.key), false);
    at = find_stored(s, one->about.key);
    *at = one;
    one->older = s->newest;
    *(s->newest ? &s->newest->newer : &s->oldest) = one;
    s->newest = one;
    s->bytes += size_of(one);
    s->num++;
    s->num_dirty += one->dirty;
}

static struct stored *take_gone(struct response_store *s) {
    struct stored *one = s->gone;
    s->gone = one ? one->next : NULL;
    return one;
}

void response_store_free(struct response_store *s) {
    if (!s)
        return;
    response_files_close(s->files);
    s->files = NULL;
    while (s->oldest)
        remove_stored(s, find_stored(s, s->oldest->about.key), false);
    for (struct stored *one; (one = take_gone(s));)
        free(one);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->disk);
    free(s);
}

void response_store_put(struct response_store *s, const uint8_t owner[SHA256_BYTES], const char *id,
                        const struct buf *body, const struct buf *items, const struct buf *events,
                        enum stored_as as) {
    const struct buf *const texts[STORED_TEXTS] = {body, items, events};
    struct stored *one = calloc(1, sizeof *one);
    bool ok = one && make_key(one->about.key, owner, id);
    for (int i = 0; i < STORED_TEXTS && ok; i++) {
        ok = !texts[i] || !texts[i]->failed;
        one->about.lens[i] = texts[i] ? texts[i]->len : 0;
    }
    if (ok && size_of(one) > s->max)
        one->about.lens[STORED_EVENTS] = 0;
    if (!ok || !(one->text = malloc(texts_len(&one->about) + 1))) {
        free(one);
        return;
    }
    size_t at = 0;
    for (int i = 0; i < STORED_TEXTS; i++)
        if (one->about.lens[i]) {
            memcpy(one->text + at, texts[i]->data, one->about.lens[i]);
            at += one->about.lens[i];
        }
    one->about.unfinished = as == STORED_UNFINISHED;
    one->dirty = s->files && as != STORED_UNSAVED;
    pthread_mutex_lock(&s->lock);
    one->about.number = ++s->number;
    struct stored **before = find_stored(s, one->about.key);
    bool fits = size_of(one) <= s->max;
    if (fits)
        add_stored(s, one);
    else if (*before)
        remove_stored(s, before, false);
    pthread_mutex_unlock(&s->lock);
    if (fits)
        return;
    free(one->text);
    free(one);
}

bool response_store_get(struct response_store *s, const uint8_t owner[SHA256_BYTES], const char *id,
                        struct buf *body, struct buf *items, struct buf *events) {
    struct buf *const out[STORED_TEXTS] = {body, items, events};
    uint8_t key[SHA256_BYTES];
    size_t at = 0;
    bool ok = true;
    if (!make_key(key, owner, id))
        return false;
    pthread_mutex_lock(&s->lock);
    const struct stored *one = *find_stored(s, key);
    for (int i = 0; one && i < STORED_TEXTS; i++) {
        if (out[i])
            buf_add(out[i], one->text + at, one->about.lens[i]);
        ok &= !out[i] || !out[i]->failed;
        at += one->about.lens[i];
    }
    pthread_mutex_unlock(&s->lock);
    return one && ok;
}

bool response_store_delete(struct response_store *s, const uint8_t owner[SHA256_BYTES], const char *id) {
    uint8_t key[SHA256_BYTES];
    if (!make_key(key, owner, id))
        return false;
    pthread_mutex_lock(&s->lock);
    struct stored **at = find_stored(s, key);
    bool found = *at != NULL;
    if (found)
        remove_stored(s, at, false);
    pthread_mutex_unlock(&s->lock);
    return found;
}

// ---- files

enum status response_store_open(struct response_store *s, const char *folder, struct err *err) {
    s->files = response_files_open(folder, err);
    return s->files ? STATUS_OK : STATUS_IO;
}

bool response_store_waits(const struct response_store *s) { return s->files; }

static bool end_unfinished(const struct response_store *s, struct stored *one,
                           void (*ended)(struct buf *body, struct buf *events)) {
    struct buf texts[STORED_TEXTS] = {{0}}, whole = {0};
    size_t at = 0;
    for (int i = 0; i < STORED_TEXTS; i++) {
        buf_add(&texts[i], one->text + at, one->about.lens[i]);
        at += one->about.lens[i];
    }
    ended(&texts[STORED_BODY], &texts[STORED_EVENTS]);
    for (int i = 0; i < STORED_TEXTS; i++) {
        one->about.lens[i] = texts[i].len;
        buf_add(&whole, texts[i].data, texts[i].len);
        whole.failed |= texts[i].failed;
        buf_free(&texts[i]);
    }
    free(one->text);
    one->text = whole.data;
    one->about.unfinished = 0;
    one->dirty = true;
    one->saved = false;
    return !whole.failed && size_of(one) <= s->max;
}

// Takes a file, whose response may have been being made when the server was ended. False: it is damaged.
static bool take_file(struct response_store *s, const struct response_file *f,
                      void (*ended)(struct buf *body, struct buf *events)) {
    struct stored *one = calloc(1, sizeof *one);
    if (!one || !(one->text = response_files_read(s->files, f))) {
        free(one);
        return false;
    }
    one->about = *f;
    one->saved = true;
    if (f->unfinished && !end_unfinished(s, one, ended)) {
        free(one->text);
        free(one);
        return false;
    }
    pthread_mutex_lock(&s->lock);
    add_stored(s, one);
    pthread_mutex_unlock(&s->lock);
    return true;
}

// The log has a line where a write ends otherwise than the one before.
static void tell_outcome(struct response_store *s, int why) {
    if (why && why != s->problem)
        log_msg(LOG_ERROR, "stored=0 responses cannot be written to --store-dir: %s", strerror(why));
    else if (!why && s->problem)
        log_msg(LOG_INFO, "stored=1 responses are written to --store-dir again");
    s->problem = why;
}

// Writes one that is to be written, the oldest first. False: there is none. The caller has both locks.
static bool write_one(struct response_store *s) {
    struct stored *one = s->num_dirty ? s->oldest : NULL;
    while (one && !one->dirty)
        one = one->newer;
    if (!one)
        return false;
    struct response_file about = one->about;
    struct buf texts = {0};
    buf_add(&texts, one->text, texts_len(&about));
    one->dirty = false;
    s->num_dirty--;
    pthread_mutex_unlock(&s->lock);
    int why = texts.failed ? ENOMEM : response_files_write(s->files, &about, texts.data);
    buf_free(&texts);
    tell_outcome(s, why);
    pthread_mutex_lock(&s->lock);
    s->unsaved += why != 0;
    struct stored *now = *find_stored(s, about.key);
    if (now && now->about.number == about.number)
        now->saved = why == 0;
    return true;
}

// The caller has both locks.
static void bring_up_to_date(struct response_store *s) {
    bool changed = false;
    for (;;) {
        struct stored *gone = take_gone(s); // first: a later one may have its key
        if (gone) {
            pthread_mutex_unlock(&s->lock);
            response_files_remove(s->files, gone->about.key);
            free(gone);
            pthread_mutex_lock(&s->lock);
        } else if (!write_one(s)) {
            break;
        }
        changed = true;
    }
    if (!changed)
        return;
    pthread_mutex_unlock(&s->lock);
    response_files_sync(s->files); // the names; some file systems do not know it
    pthread_mutex_lock(&s->lock);
}

void response_store_load(struct response_store *s, void (*ended)(struct buf *body, struct buf *events)) {
    size_t num, skipped, bytes = 0;
    pthread_mutex_lock(&s->disk);
    struct response_file *list = response_files_list(s->files, &num, &skipped);
    size_t first = num;
    while (first > 0 && bytes + texts_len(&list[first - 1]) + OVERHEAD <= s->max)
        bytes += texts_len(&list[--first]) + OVERHEAD;
    for (size_t i = 0; i < first; i++)
        response_files_remove(s->files, list[i].key);
    for (size_t i = first; i < num; i++)
        skipped += !take_file(s, &list[i], ended);
    pthread_mutex_lock(&s->lock);
    s->number = num ? list[num - 1].number : 0;
    s->skipped = skipped;
    free(list);
    bring_up_to_date(s);
    log_msg(skipped ? LOG_WARN : LOG_INFO, "stored_responses=%zu bytes=%zu skipped_files=%zu%s", s->num,
            s->bytes, skipped, skipped ? " (damaged, or not the store's: they are left as they are)" : "");
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_unlock(&s->disk);
}

bool response_store_save(struct response_store *s, const uint8_t owner[SHA256_BYTES], const char *id) {
    uint8_t key[SHA256_BYTES];
    if (!s->files)
        return true;
    bool ok = make_key(key, owner, id);
    pthread_mutex_lock(&s->disk);
    pthread_mutex_lock(&s->lock);
    bring_up_to_date(s);
    const struct stored *one = ok ? *find_stored(s, key) : NULL;
    ok = one && one->saved;
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_unlock(&s->disk);
    return ok;
}

struct response_counts response_store_counts(struct response_store *s) {
    pthread_mutex_lock(&s->lock);
    struct response_counts c = {.num = s->num,
                                .bytes = s->bytes,
                                .skipped = s->skipped,
                                .unsaved = s->unsaved,
                                .has_files = s->files != NULL};
    pthread_mutex_unlock(&s->lock);
    return c;
}
