// Constraints that were made lately, so that the same schema is compiled once.
#include "buf.h"
#include "grammar.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ENTRIES = 256 };

struct entry {
    struct buf key;
    struct constraint *constraint; // NULL: free
    uint64_t used;                 // when last
};

struct constraint_cache {
    pthread_mutex_t lock;
    const struct tokenizer *tokenizer;
    struct token_trie *trie;
    size_t max_bytes;
    uint64_t clock;
    struct constraint_counts counts;
    struct entry entries[MAX_ENTRIES];
};

struct constraint_cache *constraint_cache_new(const struct tokenizer *t, size_t max_bytes) {
    struct constraint_cache *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    pthread_mutex_init(&c->lock, NULL); // cannot fail on Linux: no attributes
    c->tokenizer = t;
    c->max_bytes = max_bytes;
    return c;
}

static void forget(struct entry *e) {
    buf_free(&e->key);
    constraint_release(e->constraint);
    *e = (struct entry){0};
}

void constraint_cache_free(struct constraint_cache *c) {
    if (!c)
        return;
    for (int i = 0; i < MAX_ENTRIES; i++)
        forget(&c->entries[i]);
    token_trie_free(c->trie);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static void write_key(struct buf *b, const struct grammar_part *p) {
    const int numbers[] = {(int)p->kind, (int)p->language, (int)p->token, p->num, p->min, p->max};
    buf_add(b, numbers, sizeof numbers);
    buf_add(b, &p->len, sizeof p->len);
    buf_add(b, p->text ? p->text : "", p->len);
    const struct grammar_literals *l = p->literals;
    for (int i = 0; l && i < 3; i++)
        buf_add(b, l->words[i], strlen(l->words[i]) + 1);
    if (l) {
        buf_str(b, l->quote ? l->quote : "");
        buf_int(b, l->quote_token);
        buf_char(b, (char)('0' + 2 * l->bare_keys + l->arguments));
    }
    for (int i = 0; i < p->num; i++)
        write_key(b, &p->parts[i]);
}

// With the lock. NULL: not there.
static struct constraint *find(struct constraint_cache *c, const struct buf *key) {
    for (int i = 0; i < MAX_ENTRIES; i++) {
        struct entry *e = &c->entries[i];
        if (e->constraint && e->key.len == key->len && memcmp(e->key.data, key->data, key->len) == 0) {
            e->used = ++c->clock;
            constraint_retain(e->constraint);
            return e->constraint;
        }
    }
    return NULL;
}

// With the lock: forgets those that were used longest ago until the rest, which grow as they are used, and one more
// have room. Requests keep theirs. Where that one goes.
static struct entry *make_room(struct constraint_cache *c) {
    for (;;) {
        struct entry *oldest = NULL, *place = NULL;
        size_t bytes = 0;
        for (int i = 0; i < MAX_ENTRIES; i++) {
            struct entry *e = &c->entries[i];
            if (!e->constraint) {
                place = e;
                continue;
            }
            bytes += constraint_bytes(e->constraint) + e->key.len;
            oldest = !oldest || e->used < oldest->used ? e : oldest;
        }
        if (place && (!oldest || bytes <= c->max_bytes))
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

struct constraint *constraint_cache_get(struct constraint_cache *c, const struct grammar_part *root,
                                        const struct json_style *style, struct err *err) {
    struct buf key = {0};
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
    struct constraint *found = find(c, &key);
    c->counts.cached += found != NULL;
    make_room(c);
    if (!found && !c->trie)
        c->trie = token_trie_new(c->tokenizer);
    const struct token_trie *trie = c->trie;
    pthread_mutex_unlock(&c->lock);
    if (!found) {
        struct constraint *made = trie ? constraint_new(root, style, trie, err) : NULL;
        if (!trie)
            err_set(err, STATUS_NOMEM, "out of memory");
        pthread_mutex_lock(&c->lock);
        *(made ? &c->counts.compiled : &c->counts.refused) += 1;
        if (made && (found = find(c, &key))) { // another thread was faster
            constraint_release(made);
        } else if (made) {
            constraint_retain(made);
            *make_room(c) = (struct entry){key, made, ++c->clock};
            key = (struct buf){0};
            found = made;
        }
        pthread_mutex_unlock(&c->lock);
    }
    buf_free(&key);
    return found;
}
