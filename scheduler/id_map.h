// A map from request ids to pointers: open addressing. Not for several threads at once.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct id_slot {
    uint64_t id;
    void *value; // NULL: free
};

struct id_map {
    struct id_slot *slots; // (mask + 1)
    size_t mask, num;
};

// Room for `most` ids without more memory. False: out of memory.
static inline bool id_map_open(struct id_map *m, size_t most) {
    size_t size = 16;
    while (size < 2 * most)
        size *= 2;
    m->mask = size - 1;
    m->num = 0;
    return (m->slots = calloc(size, sizeof *m->slots)) != NULL;
}

static inline void id_map_close(struct id_map *m) { free(m->slots); }

static inline size_t id_map_home(const struct id_map *m, uint64_t id) {
    return (size_t)(id * 0x9e3779b97f4a7c15u >> 32) & m->mask;
}

// The slot of id, or the free one where it belongs.
static inline struct id_slot *id_map_slot(const struct id_map *m, uint64_t id) {
    size_t i = id_map_home(m, id);
    while (m->slots[i].value && m->slots[i].id != id)
        i = (i + 1) & m->mask;
    return &m->slots[i];
}

static inline void *id_map_get(const struct id_map *m, uint64_t id) { return id_map_slot(m, id)->value; }

// value is not NULL; an id that is there keeps its value. False: out of memory, which cannot be within the
// room.
static inline bool id_map_put(struct id_map *m, uint64_t id, void *value) {
    if (2 * m->num > m->mask) {
        struct id_map grown;
        if (!id_map_open(&grown, 2 * m->num))
            return false;
        for (size_t i = 0; i <= m->mask; i++)
            if (m->slots[i].value)
                *id_map_slot(&grown, m->slots[i].id) = m->slots[i];
        grown.num = m->num;
        free(m->slots);
        *m = grown;
    }
    struct id_slot *slot = id_map_slot(m, id);
    m->num += !slot->value;
    if (!slot->value)
        *slot = (struct id_slot){id, value};
    return true;
}

// Takes an id out, if it is there, and moves up what stands behind it in its run.
static inline void id_map_remove(struct id_map *m, uint64_t id) {
    size_t hole = (size_t)(id_map_slot(m, id) - m->slots);
    m->num -= m->slots[hole].value != NULL;
    m->slots[hole].value = NULL;
    for (size_t i = (hole + 1) & m->mask; m->slots[i].value; i = (i + 1) & m->mask) {
        size_t home = id_map_home(m, m->slots[i].id);
        if (((i - home) & m->mask) < ((i - hole) & m->mask))
            continue; // it would stand before its home
        m->slots[hole] = m->slots[i];
        m->slots[i].value = NULL;
        hole = i;
    }
}
