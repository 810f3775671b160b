// Pages on a Valkey or Redis server, by hiredis, which is all that is known of its protocol:
//
//   quire:secret                  16 random bytes of whoever came first
//   quire:IDENTITY:HASH:GROUP     a page: a checksum of what follows, tokens, bytes
//
// How much it keeps and what goes first is the server's: maxmemory and maxmemory-policy. What fails is tried again after a
// while; until then all is a miss.
#include "crc32c.h"
#include "page_store.h"

#ifdef QUIRE_HAVE_HIREDIS
#include "clock.h"
#include "log.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

// Connecting and answering take no longer; after a failure nothing is tried for a while; pages in a pipeline at most.
enum { CONNECT_MS = 1000, ANSWER_MS = 2000, AT_ONCE = 1024 };
static const int64_t PAUSE_NS = 10000000000;
enum { KNOWN = 1 << 16, KEY_TEXT = 128 };

struct connection {
    redisContext *context; // NULL: none
    int64_t retry_at;      // monotonic ns
};

struct valkey {
    char *host, *user, *password;
    int port, database, block_size;
    size_t page_bytes, value_bytes;
    char name[PAGE_STORE_NAME];
    uint64_t key[2];
    struct connection connections[2]; // of the thread that writes, and of the one that reads
    unsigned char *value;             // (value_bytes) of the thread that writes
    // Some of the pages that were seen there, by their hash: these are not written again.
    _Atomic uint64_t known[KNOWN];
};

static uint64_t known_as(struct kv_hash h, int group) { return (h.hi ^ (uint64_t)group << 56) | 1; }

static void note_known(struct valkey *s, struct kv_hash h, int group) {
    atomic_store_explicit(&s->known[h.lo % KNOWN], known_as(h, group), memory_order_relaxed);
}

static bool valkey_has(void *store, struct kv_hash h, int group) {
    struct valkey *s = store;
    return atomic_load_explicit(&s->known[h.lo % KNOWN], memory_order_relaxed) == known_as(h, group);
}

// ---- connections

static enum status fail(struct valkey *s, struct connection *c, const char *doing, struct err *err) {
    err_set(err, STATUS_IO, "%s port %d: cannot %s: %s", s->host, s->port, doing,
            c->context && *c->context->errstr ? c->context->errstr : "no answer in time");
    redisFree(c->context); // NULL is allowed
    c->context = NULL;
    c->retry_at = clock_now_ns() + PAUSE_NS;
    return STATUS_IO;
}

// The answer to the oldest command; NULL: the connection is no more.
static redisReply *next_reply(struct connection *c) {
    void *reply = NULL;
    return redisGetReply(c->context, &reply) == REDIS_OK ? reply : NULL;
}

// Runs one command whose answer is no error.
static bool run_command(struct connection *c, int argc, const char **argv, const size_t *lengths) {
    redisReply *r = redisCommandArgv(c->context, argc, argv, lengths);
    bool good = r && r->type != REDIS_REPLY_ERROR;
    if (r && !good)
        snprintf(c->context->errstr, sizeof c->context->errstr, "%.100s", r->str);
    if (r)
        freeReplyObject(r);
    return good;
}

static bool introduce(struct valkey *s, struct connection *c) {
    char number[16];
    const char *auth[3] = {"AUTH", s->user ? s->user : s->password, s->password};
    const char *choose[2] = {"SELECT", number};
    const char *secret[4] = {"SET", "quire:secret", (const char *)s->key, "NX"};
    const size_t lengths[4] = {3, 12, sizeof s->key, 2};
    snprintf(number, sizeof number, "%d", s->database);
    return (!s->password || run_command(c, s->user ? 3 : 2, auth, NULL)) &&
           (s->database == 0 || run_command(c, 2, choose, NULL)) && run_command(c, 4, secret, lengths);
}

static enum status connect_to(struct valkey *s, struct connection *c, struct err *err) {
    const struct timeval connecting = {.tv_sec = CONNECT_MS / 1000}, answering = {.tv_sec = ANSWER_MS / 1000};
    if (c->context)
        return STATUS_OK;
    if (clock_now_ns() < c->retry_at)
        return STATUS_IO; // err was told when it failed
    c->context = redisConnectWithTimeout(s->host, s->port, connecting);
    if (!c->context || c->context->err || redisSetTimeout(c->context, answering) != REDIS_OK)
        return fail(s, c, "connect", err);
    return introduce(s, c) ? STATUS_OK : fail(s, c, "log in", err);
}

// ---- pages

static void key_of(const struct valkey *s, struct kv_hash h, int group, char text[KEY_TEXT]) {
    snprintf(text, KEY_TEXT, "quire:%s:%016" PRIx64 "%016" PRIx64 ":%d", s->name, h.hi, h.lo, group);
}

static void write_pages(void *store, struct kv_transfer *const *t, int n, enum status *st, struct err *err) {
    struct valkey *s = store;
    struct connection *c = &s->connections[0];
    const size_t tokens = (size_t)s->block_size * sizeof(token_id), head = sizeof(uint32_t);
    for (int i = 0; i < n; i++) {
        char key[KEY_TEXT];
        key_of(s, t[i]->hash, t[i]->group, key);
        memcpy(s->value + head, t[i]->tokens, tokens);
        memcpy(s->value + head + tokens, t[i]->page, s->page_bytes);
        uint32_t check = crc32c(0, s->value + head, s->value_bytes - head);
        memcpy(s->value, &check, head);
        const char *argv[3] = {"SET", key, (const char *)s->value};
        const size_t lengths[3] = {3, strlen(key), s->value_bytes};
        st[i] = connect_to(s, c, err);
        if (st[i] == STATUS_OK && !run_command(c, 3, argv, lengths))
            st[i] = fail(s, c, "write", err);
        if (st[i] == STATUS_OK)
            note_known(s, t[i]->hash, t[i]->group);
    }
}

static enum status take_page(const struct valkey *s, const struct kv_transfer *t, const redisReply *r) {
    const size_t tokens = (size_t)s->block_size * sizeof(token_id), head = sizeof(uint32_t);
    uint32_t check;
    if (r->type != REDIS_REPLY_STRING)
        return STATUS_INVALID;
    if ((size_t)r->len != s->value_bytes)
        return STATUS_FORMAT;
    memcpy(&check, r->str, sizeof check);
    if (check != crc32c(0, r->str + head, s->value_bytes - head) ||
        memcmp(r->str + head, t->tokens, tokens) != 0)
        return STATUS_FORMAT;
    memcpy(t->page, r->str + head + tokens, s->page_bytes);
    return STATUS_OK;
}

// Which of the pages that t asks for are there.
static enum status look(struct valkey *s, const struct kv_transfer *t, struct err *err) {
    struct connection *c = &s->connections[1];
    for (int done = 0, n; done < t->num_asked; done += n) {
        n = t->num_asked - done < AT_ONCE ? t->num_asked - done : AT_ONCE;
        for (int i = 0; i < n; i++) {
            char key[KEY_TEXT];
            key_of(s, t->asked[done + i].hash, t->asked[done + i].group, key);
            redisAppendCommand(c->context, "EXISTS %s", key);
        }
        for (int i = 0; i < n; i++) {
            redisReply *r = next_reply(c);
            if (!r)
                return fail(s, c, "ask", err);
            t->have[done + i] = r->type == REDIS_REPLY_INTEGER && r->integer == 1;
            if (t->have[done + i])
                note_known(s, t->asked[done + i].hash, t->asked[done + i].group);
            freeReplyObject(r);
        }
    }
    return STATUS_OK;
}

static void read_pages(void *store, struct kv_transfer *const *t, int n, enum status *st, struct err *err) {
    struct valkey *s = store;
    struct connection *c = &s->connections[1];
    enum status good = connect_to(s, c, err);
    for (int i = 0; i < n && good == STATUS_OK; i++) {
        char key[KEY_TEXT];
        key_of(s, t[i]->hash, t[i]->group, key);
        if (t[i]->kind == KV_READ)
            redisAppendCommand(c->context, "GET %s", key);
    }
    for (int i = 0; i < n; i++) {
        st[i] = good;
        if (good != STATUS_OK)
            continue;
        if (t[i]->kind == KV_LOOK) { // alone
            st[i] = look(s, t[i], err);
            continue;
        }
        redisReply *r = next_reply(c);
        if (!r) {
            st[i] = good = fail(s, c, "read", err);
            continue;
        }
        st[i] = take_page(s, t[i], r);
        if (st[i] != STATUS_OK) // it may be written again
            atomic_store_explicit(&s->known[t[i]->hash.lo % KNOWN], 0, memory_order_relaxed);
        freeReplyObject(r);
    }
}

// ---- start and end

// valkey://[[USER:]PASSWORD@]HOST[:PORT][/DATABASE], and the same as redis://
static bool read_url(struct valkey *s, const char *url) {
    const char *at = strstr(url, "://") + 3, *sign = strrchr(at, '@');
    char *end;
    s->port = 6379;
    if (sign) {
        const char *colon = memchr(at, ':', (size_t)(sign - at));
        const char *password = colon ? colon + 1 : at;
        if (colon && colon > at && !(s->user = strndup(at, (size_t)(colon - at))))
            return false;
        if (!(s->password = strndup(password, (size_t)(sign - password))))
            return false;
        at = sign + 1;
    }
    size_t n = *at == '[' ? strcspn(at, "]") + 1 : strcspn(at, ":/"); // [IPv6]
    bool brackets = *at == '[' && n >= 3;
    if (n == 0 || !(s->host = strndup(at + brackets, n - 2 * brackets)))
        return false;
    at += n;
    if (*at == ':') {
        long port = strtol(at + 1, &end, 10);
        if (end == at + 1 || port < 1 || port > 65535)
            return false;
        s->port = (int)port;
        at = end;
    }
    if (*at == '/' && at[1]) {
        long database = strtol(at + 1, &end, 10);
        if (end == at + 1 || database < 0 || database > 1 << 20)
            return false;
        s->database = (int)database;
        at = end;
    }
    return *at == 0 || strcmp(at, "/") == 0;
}

static void valkey_close(void *store) {
    struct valkey *s = store;
    if (!s)
        return;
    for (int i = 0; i < 2; i++)
        redisFree(s->connections[i].context);
    free(s->value);
    free(s->host);
    free(s->user);
    free(s->password);
    free(s);
}

// The key is the server's secret, which connect_to() has set where there was none.
static enum status read_secret(struct valkey *s, struct err *err) {
    struct connection *c = &s->connections[0];
    if (connect_to(s, c, err) != STATUS_OK)
        return STATUS_IO;
    redisReply *r = redisCommand(c->context, "GET quire:secret");
    bool good = r && r->type == REDIS_REPLY_STRING && r->len == (int)sizeof s->key;
    if (good)
        memcpy(s->key, r->str, sizeof s->key);
    if (r)
        freeReplyObject(r);
    return good ? STATUS_OK
                : err_set(err, STATUS_IO, "%s port %d: quire:secret is no secret of 16 bytes", s->host,
                          s->port);
}

static void *valkey_open(const struct kv_store_config *config, struct err *err) {
    struct valkey *s = calloc(1, sizeof *s);
    if (s && !read_url(s, config->dir)) {
        err_set(err, STATUS_INVALID,
                "--kv-store: expected valkey://[[USER:]PASSWORD@]HOST[:PORT][/DATABASE], or a directory");
        valkey_close(s);
        return NULL;
    }
    if (s) {
        s->block_size = config->block_size;
        s->page_bytes = config->page_bytes;
        s->value_bytes =
            sizeof(uint32_t) + (size_t)config->block_size * sizeof(token_id) + config->page_bytes;
        page_store_name(config->identity, s->name);
        s->value = malloc(s->value_bytes);
    }
    if (!s || !s->value || getrandom(s->key, sizeof s->key, 0) != (ssize_t)sizeof s->key) {
        err_set(err, STATUS_NOMEM, "out of memory for the KV store");
    } else if (s->value_bytes > 512u << 20) {
        err_set(err, STATUS_INVALID, "a page of %zu bytes is more than the 512 MiB of a value there",
                s->page_bytes);
    } else if (read_secret(s, err) == STATUS_OK) {
        return s;
    }
    valkey_close(s);
    return NULL;
}

static void valkey_key(void *store, uint64_t key[2]) {
    memcpy(key, ((struct valkey *)store)->key, sizeof((struct valkey *)store)->key);
}

static int64_t valkey_age(void *store, struct kv_hash h, int group) {
    return valkey_has(store, h, group) ? 0 : -1;
}

static void valkey_stats(void *store, struct kv_store_stats *out) {
    (void)store;
    out->writer = true;
}

const struct page_store_ops page_store_valkey = {.where = "valkey",
                                                 .open = valkey_open,
                                                 .close = valkey_close,
                                                 .key = valkey_key,
                                                 .has = valkey_has,
                                                 .age = valkey_age,
                                                 .stats = valkey_stats,
                                                 .write = write_pages,
                                                 .read = read_pages};
#else
static void *refuse(const struct kv_store_config *config, struct err *err) {
    (void)config;
    err_set(err, STATUS_INVALID, "--kv-store valkey:// is not in this build: it was made without hiredis");
    return NULL;
}

const struct page_store_ops page_store_valkey = {.where = "valkey", .open = refuse};
#endif
