#include "dataset.h"

#include "dataset_file.h"
#include "dataset_trace.h"
#include "log.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Kinds of keys, so that no made-up prefix meets a made-up suffix by chance.
enum { KEY_PREFIX = 1, KEY_PROMPT = 2 };
static uint64_t key_of(unsigned kind, uint64_t i) { return ((uint64_t)kind << 56) ^ i; }

static void *must(void *p) {
    CHECK(p);
    return p;
}

void dataset_free(struct dataset *d) {
    if (!d)
        return;
    for (size_t i = 0; i < d->num; i++)
        item_free(&d->items[i]);
    free(d->items);
    free(d->text);
    json_decref(d->json);
    free(d);
}

// The whole file, NUL-terminated. NULL: message says why.
static char *read_file(const char *path, char *message, size_t size) {
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    long len = -1;
    if (f && fseek(f, 0, SEEK_END) == 0 && (len = ftell(f)) >= 0 && fseek(f, 0, SEEK_SET) == 0) {
        text = must(malloc((size_t)len + 1));
        if (fread(text, 1, (size_t)len, f) == (size_t)len) {
            text[len] = 0;
        } else {
            free(text);
            text = NULL;
        }
    }
    if (f)
        fclose(f);
    if (!text)
        snprintf(message, size, "%s: cannot be read", path);
    else if (strlen(text) != (size_t)len)
        snprintf(message, size, "%s: has NUL bytes: no text", path);
    else
        return text;
    free(text);
    return NULL;
}

static void shuffle(struct dataset *d) {
    struct rng r = rng_seed((uint64_t)d->o->seed, 3);
    for (size_t i = d->num; i > 1; i--) {
        size_t j = (size_t)rng_below(&r, i);
        struct item swap = d->items[i - 1];
        d->items[i - 1] = d->items[j];
        d->items[j] = swap;
    }
}

struct dataset *dataset_open(const struct options *o, char *message, size_t size) {
    struct dataset *d = must(calloc(1, sizeof *d));
    d->o = o;
    d->kind = o->dataset;
    if (d->kind < DATASET_SHAREGPT)
        return d;
    bool trace = d->kind >= DATASET_AZURE;
    d->text = read_file(o->dataset_path, message, size);
    if (!d->text ||
        !(trace ? dataset_read_trace(d, message, size) : dataset_read_prompts(d, message, size))) {
        dataset_free(d);
        return NULL;
    }
    if (d->num == 0) {
        snprintf(message, size, "%s: no %s in it", o->dataset_path,
                 trace ? "requests of that time" : "prompts");
        dataset_free(d);
        return NULL;
    }
    d->repeats = !trace;
    if (!trace && !o->no_shuffle)
        shuffle(d);
    return d;
}

size_t dataset_size(const struct dataset *d) {
    return d->kind < DATASET_SHAREGPT || d->repeats ? SIZE_MAX : d->num;
}

static uint32_t draw_length(struct rng *r, int64_t middle, double ratio) {
    int64_t low = (int64_t)((double)middle * (1 - ratio)), high = (int64_t)((double)middle * (1 + ratio));
    if (low < 1)
        low = 1;
    return (uint32_t)(low + (int64_t)rng_below(r, (uint64_t)(high - low + 1)));
}

static struct item make_random(const struct options *o, size_t i) {
    struct rng r = rng_seed((uint64_t)o->seed, 16 + i);
    uint32_t turns = (uint32_t)o->num_turns;
    struct item it = {.turns = must(calloc(turns, sizeof *it.turns)), .num_turns = turns};
    for (uint32_t k = 0; k < turns; k++) {
        struct turn *t = &it.turns[k];
        t->segments = must(calloc(2, sizeof *t->segments));
        if (k == 0 && o->prefix_len)
            t->segments[t->num_segments++] = (struct segment){key_of(KEY_PREFIX, 0), (uint32_t)o->prefix_len};
        uint32_t len = draw_length(&r, o->input_len, o->range_ratio);
        t->segments[t->num_segments++] = (struct segment){key_of(KEY_PROMPT, (uint64_t)i << 20 | k), len};
        t->input = len + (k == 0 ? (uint32_t)o->prefix_len : 0);
        t->output = draw_length(&r, o->output_len, o->range_ratio);
    }
    return it;
}

static struct item make_prefix(const struct options *o, size_t i) {
    struct rng r = rng_seed((uint64_t)o->seed, 16 + i);
    struct item it = {.turns = must(calloc(1, sizeof *it.turns)), .num_turns = 1};
    struct turn *t = it.turns;
    t->segments = must(calloc(2, sizeof *t->segments));
    t->num_segments = 2;
    t->segments[0] = (struct segment){key_of(KEY_PREFIX, rng_below(&r, (uint64_t)o->num_prefixes)),
                                      (uint32_t)o->group_prefix_len};
    t->segments[1] = (struct segment){key_of(KEY_PROMPT, (uint64_t)i << 20), (uint32_t)o->group_suffix_len};
    t->input = (uint32_t)(o->group_prefix_len + o->group_suffix_len);
    t->output = (uint32_t)o->group_output_len;
    return it;
}

struct item dataset_item(const struct dataset *d, size_t i) {
    if (d->kind == DATASET_RANDOM)
        return make_random(d->o, i);
    if (d->kind == DATASET_PREFIX)
        return make_prefix(d->o, i);
    const struct item *from = &d->items[i % d->num];
    struct item it = *from;
    it.turns = must(calloc(it.num_turns, sizeof *it.turns));
    for (uint32_t k = 0; k < it.num_turns; k++) {
        it.turns[k] = from->turns[k];
        size_t bytes = from->turns[k].num_segments * sizeof(struct segment);
        if (bytes)
            it.turns[k].segments = memcpy(must(malloc(bytes)), from->turns[k].segments, bytes);
    }
    return it;
}

// A set of hashes of prefixes: open addressing, 0 is empty.
struct prefix_ideal {
    uint64_t *slots;
    size_t num, cap;
};

struct prefix_ideal *prefix_ideal_new(void) {
    struct prefix_ideal *p = must(calloc(1, sizeof *p));
    p->cap = 1024;
    p->slots = must(calloc(p->cap, sizeof *p->slots));
    return p;
}

void prefix_ideal_free(struct prefix_ideal *p) {
    if (p)
        free(p->slots);
    free(p);
}

// True: it was there.
static bool insert(struct prefix_ideal *p, uint64_t hash) {
    if (p->num * 2 >= p->cap) {
        struct prefix_ideal larger = {must(calloc(p->cap * 2, sizeof *p->slots)), 0, p->cap * 2};
        for (size_t i = 0; i < p->cap; i++)
            if (p->slots[i])
                insert(&larger, p->slots[i]);
        free(p->slots);
        *p = larger;
    }
    size_t at = (size_t)hash & (p->cap - 1);
    for (; p->slots[at]; at = (at + 1) & (p->cap - 1))
        if (p->slots[at] == hash)
            return true;
    p->slots[at] = hash;
    p->num++;
    return false;
}

uint32_t prefix_ideal_add(struct prefix_ideal *p, const struct turn *t) {
    uint64_t chain = 0;
    uint32_t have = 0;
    bool hit = true;
    for (uint32_t i = 0; i < t->num_segments; i++) {
        struct rng mix = rng_seed(chain ^ t->segments[i].key, t->segments[i].tokens);
        chain = rng_next(&mix) | 1;
        hit = insert(p, chain) && hit;
        if (hit)
            have += t->segments[i].tokens;
    }
    return have && have >= t->input ? t->input - 1 : have;
}
