// See schema_explore.h.
#include "schema_explore.h"

#include "../regex/dfa_build.h"
#include "../work_time.h"
#include "hash.h"

#include <stdlib.h>

struct explored {
    const struct explore *x;
    unsigned char *states; // (num) in the numbers of the automaton
    int num, cap, slots;
    int32_t *table; // number + 1, by the hash of the state
    // Labels in the order in which they occur, so that their numbers are below that of states; and back.
    int32_t *dense, *original;
    int num_labels;
    uint64_t seed;
    struct dfa_build build;
    struct err *err;
};

static bool explored_grow(struct explored *e) {
    int cap = e->cap ? 2 * e->cap : 64, slots = 4 * cap;
    unsigned char *states = realloc(e->states, (size_t)cap * e->x->state_size);
    if (states)
        e->states = states;
    int32_t *table = calloc((size_t)slots, sizeof *table);
    if (!states || !table) {
        free(table);
        err_set(e->err, STATUS_NOMEM, "out of memory for an automaton");
        return false;
    }
    for (int i = 0; i < e->num; i++) {
        size_t at = hash_bytes(e->seed, states + (size_t)i * e->x->state_size, e->x->state_size) &
                    (size_t)(slots - 1);
        while (table[at])
            at = (at + 1) & (size_t)(slots - 1);
        table[at] = i + 1;
    }
    free(e->table);
    e->table = table;
    e->cap = cap;
    e->slots = slots;
    return true;
}

// The number of a state; -1: failed.
static int explored_number(struct explored *e, const void *state) {
    size_t size = e->x->state_size;
    if (e->num == e->cap && !explored_grow(e))
        return -1;
    size_t at = hash_bytes(e->seed, state, size) & (size_t)(e->slots - 1);
    for (; e->table[at]; at = (at + 1) & (size_t)(e->slots - 1))
        if (memcmp(e->states + (size_t)(e->table[at] - 1) * size, state, size) == 0)
            return e->table[at] - 1;
    int32_t label = e->x->label(e->x->arg, state);
    if (label >= 0 && e->dense[label] == 0) {
        e->original[e->num_labels] = label;
        e->dense[label] = ++e->num_labels;
    }
    int number = dfa_build_state(&e->build, label < 0 ? -1 : e->dense[label] - 1, e->err);
    if (number < 0)
        return -1;
    memcpy(e->states + (size_t)number * size, state, size);
    e->table[at] = number + 1;
    e->num = number + 1;
    return number;
}

struct dfa *explore(const struct explore *x, const void *start, struct err *err) {
    struct explored e = {.x = x, .err = err, .seed = hash_seed()};
    unsigned char *next = calloc(2, x->state_size), *from = next ? next + x->state_size : NULL;
    e.dense = calloc(2 * (size_t)x->num_labels + 2, sizeof *e.dense);
    e.original = e.dense ? e.dense + x->num_labels + 1 : NULL;
    bool ok = next && e.dense;
    if (!ok)
        err_set(err, STATUS_NOMEM, "out of memory for an automaton");
    ok = ok && dfa_build_begin(&e.build, x->class_of, x->num_classes, err) && explored_number(&e, start) == 0;
    for (int s = 0; ok && s < e.num; s++) {
        ok = work_time_left(err);
        memcpy(from, e.states + (size_t)s * x->state_size, x->state_size);
        for (int c = 0; ok && c < x->num_classes; c++) {
            memset(next, 0, x->state_size);
            if (!x->step(x->arg, from, c, next))
                continue;
            int to = explored_number(&e, next);
            ok = to >= 0;
            if (ok)
                dfa_build_arrow(&e.build, s, c, to);
        }
    }
    free(next);
    free(e.states);
    free(e.table);
    struct dfa *d = NULL;
    if (ok)
        d = dfa_build_end(&e.build, err);
    else
        dfa_build_free(&e.build);
    for (int s = 0; d && s < d->num_states; s++)
        if (d->label[s] >= 0)
            d->label[s] = e.original[d->label[s]];
    free(e.dense);
    return d;
}
