#include "tiers.h"

#include "clock.h"
#include "minmax.h"

#include <stdlib.h>
#include <string.h>

// A page that does not come within so long is a miss.
static const int64_t PATIENCE_NS = 2000000000;

// A page on its way, in the page of host memory with its number.
struct passage {
    struct kv_transfer transfer;
    struct kv_wanted wanted; // of one that is read
    struct fetch *fetch;     // that waits for it; NULL: nobody does any more
    bool taken;
};

// A request that waits for pages.
struct fetch {
    struct request *request;
    struct kv_wanted *wanted; // (num)
    int num, next;            // next: to be asked for
    // With a store that is far: pages that it is asked about, in the order of kv_want()'s questions, before `wanted` is known.
    struct kv_transfer look;
    struct kv_wanted *asked; // (num_asked)
    int num_asked, num_answered;
    bool looking;
    int under_way;
    int room;             // pages that it may take without losing some of its own
    int64_t began, moved; // monotonic ns; moved: when a page last came
    struct fetch *after;
};

struct publication {
    block_id id;
    struct kv_hash hash;
    bool retained;
};

struct tiers {
    struct engine *engine;
    struct kv_store *store;
    struct scheduler *sched;
    struct kv_cache *kv;
    struct record *record;
    enum kv_role role;
    bool private;
    struct passage *passages; // (num_passages)
    int num_passages, num_reading, num_writing;
    struct passage **unused, **copying; // (num_unused), (num_copying)
    int num_unused, num_copying;
    token_id *names;           // (num_passages, block_size)
    struct publication *queue; // (queue_size) a ring of what is to be written
    int queue_size, first, num;
    struct kv_wanted *wanted; // (num_blocks) scratch
    struct fetch *fetches;    // in the order in which they began
    int num_looking;
    struct tier_counts counts;
};

// ---- writing behind

// A full queue forgets its oldest, which is also the first to be evicted.
void tiers_note(struct tiers *t, enum kv_change change, block_id id) {
    const struct kv_block *b = t ? &t->kv->blocks[id] : NULL;
    if (!t || change != KV_PUBLISHED || t->role == KV_CONSUMER || (t->private && !b->common))
        return;
    if (t->num == t->queue_size) {
        t->first = (t->first + 1) % t->queue_size;
        t->num--;
        t->counts.skipped++;
    }
    t->queue[(t->first + t->num++) % t->queue_size] = (struct publication){id, b->hash, b->retained};
}

static int32_t page_of(const struct tiers *t, const struct passage *p) { return (int32_t)(p - t->passages); }

// Takes a passage for a page. Fewer are taken for each way than there are.
static struct passage *begin_passage(struct tiers *t, const token_id *names, struct kv_hash hash,
                                     uint64_t parent, int group, enum kv_transfer_kind kind) {
    struct passage *p = t->unused[--t->num_unused];
    memcpy(p->transfer.tokens, names, (size_t)t->kv->config.block_size * sizeof *names);
    p->taken = true;
    p->transfer.hash = hash;
    p->transfer.parent = parent;
    p->transfer.group = group;
    p->transfer.kind = kind;
    p->transfer.page = engine_host_page(t->engine, page_of(t, p));
    *(kind == KV_WRITE ? &t->num_writing : &t->num_reading) += 1;
    return p;
}

static void end_passage(struct tiers *t, struct passage *p) {
    p->taken = false;
    t->unused[t->num_unused++] = p;
    *(p->transfer.kind == KV_WRITE ? &t->num_writing : &t->num_reading) -= 1;
}

// Copies a page of the device out, to be written, or one that was read in. It ends in end_copies().
static void begin_copy(struct tiers *t, struct passage *p, block_id id) {
    struct kv_move move = {.from = id, .to = page_of(t, p), .to_tier = KV_HOST};
    if (p->transfer.kind == KV_READ)
        move = (struct kv_move){.from = page_of(t, p), .from_tier = KV_HOST, .to = id};
    engine_kv_copy(t->engine, &move, 1);
    t->copying[t->num_copying++] = p;
}

static void end_copies(struct tiers *t) {
    if (t->num_copying == 0 || !engine_kv_copied(t->engine))
        return;
    for (int i = 0; i < t->num_copying; i++) {
        struct passage *p = t->copying[i];
        if (p->transfer.kind == KV_WRITE) {
            engine_host_clear(t->engine, page_of(t, p), p->transfer.group);
            kv_store_post(t->store, &p->transfer);
        } else {
            end_passage(t, p);
        }
    }
    t->num_copying = 0;
}

static void write_behind(struct tiers *t) {
    const size_t size = (size_t)t->kv->config.block_size;
    while (t->num > 0 && t->num_writing < t->num_passages / 2) {
        const struct publication q = t->queue[t->first];
        const struct kv_block *b = &t->kv->blocks[q.id];
        t->first = (t->first + 1) % t->queue_size;
        t->num--;
        if (!b->published || b->hash.lo != q.hash.lo || b->hash.hi != q.hash.hi) {
            t->counts.skipped++;
            continue;
        }
        if (kv_store_has(t->store, q.hash, b->group))
            continue;
        const token_id *names = t->kv->tokens + (size_t)q.id * size;
        struct passage *p = begin_passage(t, names, b->hash, b->parent, b->group, KV_WRITE);
        p->fetch = NULL;
        p->transfer.retained = q.retained;
        begin_copy(t, p, q.id);
    }
}

// ---- fetching

static bool store_has(void *arg, struct kv_hash hash, int group) {
    return kv_store_has(((struct tiers *)arg)->store, hash, group);
}

// Every page that may be of use, as if the store had it.
static bool note_question(void *arg, struct kv_hash hash, int group) {
    struct fetch *f = arg;
    f->asked[f->num_asked++] = (struct kv_wanted){.hash = hash, .group = group};
    return true;
}

static bool answered(void *arg, struct kv_hash hash, int group) {
    struct fetch *f = arg;
    (void)hash;
    (void)group;
    return f->look.have[f->num_answered++];
}

// Finds what the request would hit, of the pages that has() has.
static bool find_wanted(struct tiers *t, struct fetch *f,
                        bool (*has)(void *arg, struct kv_hash hash, int group), void *arg) {
    const struct request *r = f->request;
    int num = kv_want(t->kv, &f->request->seq, r->root, r->tokens, r->num_tokens - 1, has, arg, t->wanted,
                      kv_available(t->kv), NULL);
    if (num == 0 || !(f->wanted = malloc((size_t)num * sizeof *f->wanted)))
        return false;
    memcpy(f->wanted, t->wanted, (size_t)num * sizeof *f->wanted);
    f->num = num;
    return true;
}

// Asks a store that is far.
static bool ask_store(struct tiers *t, struct fetch *f) {
    const struct request *r = f->request;
    size_t most = (size_t)kv_blocks_for(t->kv, r->num_tokens) * (size_t)t->kv->config.num_groups;
    f->asked = malloc(most * sizeof *f->asked);
    f->look = (struct kv_transfer){.kind = KV_LOOK, .owner = f, .have = calloc(most, sizeof *f->look.have)};
    if (!f->asked || !f->look.have ||
        kv_want(t->kv, &f->request->seq, r->root, r->tokens, r->num_tokens - 1, note_question, f, t->wanted,
                1, NULL) == 0)
        return false; // all of it is here
    f->look.asked = f->asked;
    f->look.num_asked = f->num_asked;
    f->looking = true;
    t->num_looking++;
    kv_store_post(t->store, &f->look);
    return true;
}

static void free_fetch(struct fetch *f) {
    free(f->wanted);
    free(f->asked);
    free(f->look.have);
    free(f);
}

// A request that may hit pages of the store waits for them, beside those that run.
static void begin_fetch(struct tiers *t, struct request *r) {
    struct fetch *f = calloc(1, sizeof *f), **end = &t->fetches;
    if (!f)
        return;
    f->request = r;
    f->room = kv_available(t->kv);
    f->began = f->moved = clock_now_ns();
    if (kv_store_is_near(t->store) ? !find_wanted(t, f, store_has, t) : !ask_store(t, f)) {
        free_fetch(f);
        return;
    }
    f->room -= kv_touch(t->kv, &r->seq, r->root, r->tokens, r->num_tokens - 1);
    f->num = max_int(min_int(f->num, f->room), 0);
    while (*end)
        end = &(*end)->after;
    *end = f;
    t->counts.fetches++;
    record_hold(t->record, r->id);
    sched_hold(t->sched, r);
}

// The answer of a store that is far; its request may have left meanwhile.
static void take_answer(struct tiers *t, struct fetch *f) {
    f->looking = false;
    f->moved = clock_now_ns();
    t->num_looking--;
    if (f->look.good && f->request && find_wanted(t, f, answered, f))
        f->num = max_int(min_int(f->num, f->room), 0);
    if (!f->request)
        free_fetch(f);
}

static void end_fetch(struct tiers *t, struct fetch *f) {
    struct fetch **at = &t->fetches;
    for (int i = 0; i < t->num_passages; i++)
        if (t->passages[i].fetch == f)
            t->passages[i].fetch = NULL;
    while (*at != f)
        at = &(*at)->after;
    *at = f->after;
    if (f->request) {
        f->request->fetch_ns = clock_now_ns() - f->began;
        record_ready(t->record, f->request->id);
        sched_ready(t->sched, f->request);
    }
    f->request = NULL;
    if (!f->looking) // else take_answer() frees it
        free_fetch(f);
}

static const token_id *names_of(const struct tiers *t, const struct request *r, int block) {
    return kv_block_names(t->kv, &r->seq, r->tokens, block);
}

static bool is_under_way(const struct tiers *t, const struct kv_wanted *w) {
    for (int i = 0; i < t->num_passages; i++) {
        const struct passage *p = &t->passages[i];
        if (p->taken && p->transfer.kind == KV_READ && p->wanted.group == w->group &&
            p->wanted.hash.lo == w->hash.lo && p->wanted.hash.hi == w->hash.hi)
            return true;
    }
    return false;
}

// Asks for its next pages, as many as there is room for. One that another fetch has asked for comes with that.
static void ask_on(struct tiers *t, struct fetch *f) {
    for (; f->next < f->num && t->num_reading < t->num_passages - t->num_passages / 2; f->next++) {
        const struct kv_wanted *w = &f->wanted[f->next];
        const token_id *names = names_of(t, f->request, w->block);
        if (kv_find(t->kv, w->hash, w->group, names) != KV_NONE)
            continue;
        if (is_under_way(t, w))
            return;
        struct passage *p = begin_passage(t, names, w->hash, w->parent, w->group, KV_READ);
        p->wanted = *w;
        p->fetch = f;
        f->under_way++;
        kv_store_post(t->store, &p->transfer);
    }
}

// A page has come: from now on it is in the cache.
static void take_read(struct tiers *t, struct passage *p) {
    struct fetch *f = p->fetch;
    block_id id = p->transfer.good ? kv_adopt(t->kv, &p->wanted, p->transfer.tokens) : KV_NONE;
    if (id != KV_NONE) {
        record_adopt(t->record, &p->wanted, p->transfer.tokens, t->kv->config.block_size);
        begin_copy(t, p, id);
    } else {
        end_passage(t, p);
    }
    if (!f)
        return;
    f->under_way--;
    f->moved = clock_now_ns();
    if (id == KV_NONE && kv_find(t->kv, p->wanted.hash, p->wanted.group, p->transfer.tokens) == KV_NONE)
        f->num = f->next; // neither came nor is here: those behind it are of no use
}

static void take_ended(struct tiers *t, struct kv_transfer *done) {
    switch (done->kind) {
    case KV_LOOK: take_answer(t, done->owner); break;
    case KV_READ: take_read(t, done->owner); break;
    case KV_WRITE: end_passage(t, done->owner); break;
    }
}

void tiers_pump(struct tiers *t) {
    if (!t)
        return;
    end_copies(t);
    const bool may_copy = t->num_copying == 0;
    for (struct kv_transfer *done; may_copy && (done = kv_store_take(t->store));)
        take_ended(t, done);
    for (struct request *r; t->role != KV_PRODUCER && (r = sched_to_fetch(t->sched));)
        begin_fetch(t, r);
    int64_t now = clock_now_ns();
    for (struct fetch *f = t->fetches, *after; f; f = after) {
        after = f->after;
        ask_on(t, f);
        bool late = now - f->moved > PATIENCE_NS;
        t->counts.late_fetches += late;
        if (late || (!f->looking && f->next == f->num && f->under_way == 0))
            end_fetch(t, f);
    }
    if (may_copy)
        write_behind(t);
    end_copies(t); // at once, but on devices
}

int64_t tiers_watch_ns(const struct tiers *t) {
    if (t && t->num_copying > 0)
        return 1000000;
    return t && (t->fetches || t->num > 0) ? PATIENCE_NS / 2 : -1;
}

void tiers_forget(struct tiers *t, const struct request *r) {
    for (struct fetch *f = t ? t->fetches : NULL; f; f = f->after)
        if (f->request == r) {
            f->request = NULL;
            end_fetch(t, f);
            return;
        }
}

void tiers_count_start(struct tiers *t, const struct request *r) {
    if (t && r->fetch_ns > 0 && r->num_cached > r->expect_cached)
        t->counts.hit_tokens += (uint64_t)(r->num_cached - r->expect_cached);
}

void tiers_look(struct tiers *t, struct kv_seq *seq, struct kv_hash root, const token_id *tokens, int n,
                struct tier_look *look) {
    if (!t)
        return;
    int num = kv_want(t->kv, seq, root, tokens, n, store_has, t, t->wanted, t->kv->config.num_blocks,
                      &look->num_cached);
    look->age_s = num > 0 ? kv_store_age(t->store, t->wanted[0].hash, t->wanted[0].group) : -1;
}

// ---- start and end

struct tiers *tiers_open(struct engine *engine, struct scheduler *sched, enum kv_role role, bool private,
                         struct record *record, void (*notify)(void *arg), void *arg, struct err *err) {
    struct kv_store *store = engine_store(engine);
    struct kv_cache *kv = engine_kv(engine);
    struct tiers *t = store ? calloc(1, sizeof *t) : NULL;
    if (!t) {
        if (store)
            err_set(err, STATUS_NOMEM, "out of memory for the KV store");
        return NULL;
    }
    const size_t num = (size_t)engine_info(engine)->num_host_pages, size = (size_t)kv->config.block_size;
    *t = (struct tiers){.engine = engine,
                        .store = store,
                        .sched = sched,
                        .kv = kv,
                        .record = record,
                        .role = role,
                        .private = private,
                        .num_passages = (int)num,
                        .queue_size = kv->config.num_blocks};
    t->passages = calloc(num, sizeof *t->passages);
    t->names = calloc(num * size, sizeof *t->names);
    t->unused = calloc(num, sizeof *t->unused);
    t->copying = calloc(num, sizeof *t->copying);
    t->queue = calloc((size_t)t->queue_size, sizeof *t->queue);
    t->wanted = calloc((size_t)kv->config.num_blocks, sizeof *t->wanted);
    if (!t->passages || !t->names || !t->unused || !t->copying || !t->queue || !t->wanted) {
        err_set(err, STATUS_NOMEM, "out of memory for the KV store");
        tiers_close(t, false);
        return NULL;
    }
    for (size_t i = 0; i < num; i++) {
        t->passages[i].transfer.tokens = t->names + i * size;
        t->passages[i].transfer.owner = &t->passages[i];
        t->unused[t->num_unused++] = &t->passages[i];
    }
    kv_store_notify(store, notify, arg);
    return t;
}

// Transfers that the store has.
static int num_posted(const struct tiers *t) {
    return t->num_reading + t->num_writing - t->num_copying + t->num_looking;
}

static void take_back(struct tiers *t, struct kv_transfer *done) {
    if (done->kind == KV_LOOK)
        take_answer(t, done->owner);
    else
        end_passage(t, done->owner);
}

void tiers_close(struct tiers *t, bool sound) {
    if (!t)
        return;
    const int64_t end = clock_now_ns() + PATIENCE_NS; // pages that are not written by then are lost
    kv_store_notify(t->store, NULL, NULL);
    while (t->fetches)
        end_fetch(t, t->fetches);
    for (bool more = sound; more || num_posted(t) > 0;) {
        if (more)
            end_copies(t);
        if (more && t->num_copying == 0)
            write_behind(t);
        if (num_posted(t) > 0)
            take_back(t, kv_store_wait(t->store));
        more = more && (t->num > 0 || t->num_copying > 0) && clock_now_ns() < end;
    }
    free(t->passages);
    free(t->names);
    free(t->unused);
    free(t->copying);
    free(t->queue);
    free(t->wanted);
    free(t);
}

void tiers_counts(const struct tiers *t, struct tier_counts *counts, struct kv_store_stats *store) {
    if (!t)
        return;
    *counts = t->counts;
    kv_store_stats(t->store, store);
}
