#include "int_sets.h"

#include "../grow.h"

void int_sets_free(struct int_sets *s) {
    free(s->items);
    free(s->starts);
    free(s->hashes);
    free(s->slots);
    *s = (struct int_sets){0};
}

static uint32_t hash_items(const int32_t *items, int len) {
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (int i = 0; i < len; i++) {
        h = (h ^ (uint32_t)items[i]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return (uint32_t)h;
}

static bool make_room(struct int_sets *s, int len) {
    if (s->num == s->cap) {
        int cap = s->cap ? 2 * s->cap : 32, num_slots = 4 * cap;
        if (!grow_to(&s->starts, sizeof *s->starts, (size_t)cap + 1) ||
            !grow_to(&s->hashes, sizeof *s->hashes, (size_t)cap) ||
            !grow_to(&s->slots, sizeof *s->slots, (size_t)num_slots))
            return false;
        s->cap = cap;
        s->num_slots = num_slots;
        s->starts[s->num] = s->num ? s->starts[s->num] : 0;
        memset(s->slots, 0xff, (size_t)num_slots * sizeof *s->slots);
        for (int i = 0; i < s->num; i++) {
            uint32_t at = s->hashes[i];
            while (s->slots[at & (uint32_t)(num_slots - 1)] >= 0)
                at++;
            s->slots[at & (uint32_t)(num_slots - 1)] = i;
        }
    }
    size_t need = s->starts[s->num] + (size_t)len;
    if (s->items && need <= s->cap_items)
        return true;
    size_t cap = s->cap_items ? s->cap_items : 128;
    while (cap < need)
        cap *= 2;
    if (!grow_to(&s->items, sizeof *s->items, cap))
        return false;
    s->cap_items = cap;
    return true;
}

int int_sets_add(struct int_sets *s, const int32_t *items, int len) {
    uint32_t hash = hash_items(items, len), at = hash;
    if (!make_room(s, len))
        return -1;
    int32_t *slot;
    for (; *(slot = &s->slots[at & (uint32_t)(s->num_slots - 1)]) >= 0; at++) {
        int other_len;
        const int32_t *other = int_sets_get(s, *slot, &other_len);
        if (s->hashes[*slot] == hash && other_len == len &&
            (len == 0 || memcmp(other, items, (size_t)len * sizeof *items) == 0))
            return *slot;
    }
    size_t end = s->starts[s->num] + (size_t)len;
    if (end > INT_SETS_MAX)
        return -2;
    if (len > 0)
        memcpy(s->items + s->starts[s->num], items, (size_t)len * sizeof *items);
    s->starts[s->num + 1] = (uint32_t)end;
    s->hashes[s->num] = hash;
    return *slot = s->num++;
}
