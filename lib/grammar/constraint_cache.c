// Constraints that were made lately, so that the same schema is compiled once, and what was refused, so that it is not
// compiled again. Requests for one that another thread compiles wait for it.
#include "buf.h"
#include "grammar.h"
#include "work_time.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ENTRIES = 256, MAX_REFUSALS = 64 };
static const size_t max_refused_bytes = 16 << 20; // of the keys of refusals

struct cached_constraint {
    struct buf key;                // no data: free
    struct constraint *constraint; // NULL: refused
    struct err refusal;
    uint64_t used; // when last
};

// A key that a thread compiles, on its stack.
struct in_work {
    const struct buf *key;
    struct in_work *next;
};

struct constraint_cache {
    pthread_mutex_t lock;
    pthread_cond_t done; // of one in work
    struct in_work *in_work;
    struct vocabulary vocabulary;
    struct token_trie *trie;
    size_t max_bytes;
    uint64_t clock;
    struct constraint_counts counts;
    atomic_bool stopped;
    struct cached_constraint entries[MAX_ENTRIES];
    struct cached_constraint refusals[MAX_REFUSALS]; // apart: refusals push no constraint out
};

struct constraint_cache *constraint_cache_new(struct vocabulary v, size_t max_bytes) {
    struct constraint_cache *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    pthread_mutex_init(&c->lock, NULL); // cannot fail on Linux: no attributes
    pthread_cond_init(&c->done, NULL);
    c->vocabulary = v;
    c->max_bytes = max_bytes;
    return c;
}

static void forget(struct cached_constraint *e) {
    buf_free(&e->key);
    constraint_release(e->constraint);
    *e = (struct cached_constraint){0};
}

void constraint_cache_free(struct constraint_cache *c) {
    if (!c)
        return;
    for (int i = 0; i < MAX_ENTRIES; i++)
        forget(&c->entries[i]);
    for (int i = 0; i < MAX_REFUSALS; i++)
        forget(&c->refusals[i]);
    token_trie_free(c->trie);
    pthread_cond_destroy(&c->done);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

void constraint_cache_stop(struct constraint_cache *c) {
    if (c)
        atomic_store(&c->stopped, true);
}

static void write_key(struct buf *b, const struct grammar_part *p) {
    const int numbers[] = {(int)p->kind, (int)p->language, (int)p->token, p->num, p->min, p->max};
    buf_add(b, numbers, sizeof numbers);
    buf_add(b, &p->len, sizeof p->len);
    buf_add(b, p->text ? p->text : "", p->len);
    const struct grammar_literals *l = p->literals;
    const struct grammar_tags *t = l ? l->tags : NULL;
    const struct grammar_part *const tags[] = {t ? t->open : NULL, t ? t->mid : NULL, t ? t->of_text : NULL,
                                               t ? t->of_value : NULL, t ? t->close : NULL};
    for (size_t i = 0; t && i < sizeof tags / sizeof *tags; i++)
        write_key(b, tags[i]);
    if (t) {
        buf_str(b, t->stop);
        buf_char(b, (char)('0' + t->told));
    }
    for (int i = 0; l && !t && i < 3; i++)
        buf_add(b, l->words[i], strlen(l->words[i]) + 1);
    if (l && !t) {
        buf_str(b, l->quote ? l->quote : "");
        buf_int(b, l->quote_token);
        buf_char(b, (char)('0' + 2 * l->bare_keys + l->arguments));
    }
    for (int i = 0; i < p->num; i++)
        write_key(b, &p->parts[i]);
}

static bool same_key(const struct buf *a, const struct buf *b) {
    return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

// With the lock. NULL: not there.
static struct cached_constraint *find(struct constraint_cache *c, const struct buf *key) {
    for (int i = 0; i < MAX_ENTRIES + MAX_REFUSALS; i++) {
        struct cached_constraint *e = i < MAX_ENTRIES ? &c->entries[i] : &c->refusals[i - MAX_ENTRIES];
        if (e->key.data && same_key(&e->key, key)) {
            e->used = ++c->clock;
            return e;
        }
    }
    return NULL;
}

static bool is_in_work(const struct constraint_cache *c, const struct buf *key) {
    for (const struct in_work *w = c->in_work; w; w = w->next)
        if (same_key(w->key, key))
            return true;
    return false;
}

// With the lock: forgets those that were used longest ago until the rest, which grow as they are used, and one more
// have room. Requests keep theirs. Where that one goes.
static struct cached_constraint *make_room(struct cached_constraint *entries, int num, size_t max_bytes) {
    for (;;) {
        struct cached_constraint *oldest = NULL, *place = NULL;
        size_t bytes = 0;
        for (int i = 0; i < num; i++) {
            struct cached_constraint *e = &entries[i];
            if (!e->key.data) {
                place = e;
                continue;
            }
            bytes += (e->constraint ? constraint_bytes(e->constraint) : 0) + e->key.len;
            oldest = !oldest || e->used < oldest->used ? e : oldest;
        }
        if (place && (!oldest || bytes <= max_bytes))
            return place;
        forget(oldest);
    }
}

struct constraint_counts constraint_cache_counts(struct constraint_cache *c) {
    struct constraint_counts counts = {0};
    if (!c)
        return counts;
    pthread_mutex_lock(&c->lock);
    counts = c->counts;
    pthread_mutex_unlock(&c->lock);
    return counts;
}

// With the lock, which it gives up meanwhile. Takes the key over where the cache keeps what came of it.
static struct constraint *compile(struct constraint_cache *c, struct buf *key,
                                  const struct grammar_part *root, const struct json_style *style,
                                  struct err *err) {
    struct in_work work = {key, c->in_work}, **at = &c->in_work;
    struct constraint *made = NULL;
    c->in_work = &work;
    if (!c->trie)
        c->trie = token_trie_new(c->vocabulary);
    const struct token_trie *trie = c->trie;
    pthread_mutex_unlock(&c->lock);
    work_time_stop_by(&c->stopped);
    if (trie)
        made = constraint_new(root, style, trie, err);
    else
        err_set(err, STATUS_NOMEM, "out of memory");
    work_time_stop_by(NULL);
    pthread_mutex_lock(&c->lock);
    while (*at != &work)
        at = &(*at)->next;
    *at = work.next;
    *(made ? &c->counts.compiled : &c->counts.refused) += 1;
    if (made) {
        constraint_retain(made);
        *make_room(c->entries, MAX_ENTRIES, c->max_bytes) =
            (struct cached_constraint){.key = *key, .constraint = made, .used = ++c->clock};
        *key = (struct buf){0};
    } else if (err->code != STATUS_NOMEM && err->code != STATUS_CANCELLED && key->len <= max_refused_bytes) {
        *make_room(c->refusals, MAX_REFUSALS, max_refused_bytes - key->len) =
            (struct cached_constraint){.key = *key, .refusal = *err, .used = ++c->clock};
        *key = (struct buf){0};
    }
    pthread_cond_broadcast(&c->done);
    return made;
}

struct constraint *constraint_cache_get(struct constraint_cache *c, const struct grammar_part *root,
                                        const struct json_style *style, struct err *err) {
    struct buf key = {0};
    struct constraint *found = NULL;
    struct cached_constraint *e;
    write_key(&key, root);
    buf_int(&key, style->order);
    buf_char(&key, ' ');
    buf_int(&key, style->max_blanks);
    buf_char(&key, style->as_written ? 'w' : '-');
    if (key.failed) {
        buf_free(&key);
        err_set(err, STATUS_NOMEM, "out of memory");
        return NULL;
    }
    pthread_mutex_lock(&c->lock);
    while (!(e = find(c, &key)) && is_in_work(c, &key))
        pthread_cond_wait(&c->done, &c->lock);
    if (!e && atomic_load(&c->stopped)) {
        err_set(err, STATUS_CANCELLED, "nothing more is compiled");
    } else if (!e) {
        found = compile(c, &key, root, style, err);
    } else if (e->constraint) {
        found = e->constraint;
        constraint_retain(found);
        c->counts.cached++;
    } else {
        err_set(err, e->refusal.code, "%s", e->refusal.msg);
        c->counts.refused++;
    }
    make_room(c->entries, MAX_ENTRIES, c->max_bytes); // they grow
    pthread_mutex_unlock(&c->lock);
    buf_free(&key);
    return found;
}
