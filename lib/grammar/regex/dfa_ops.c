// Constructors of automata, and operations on them.
#include "dfa_build.h"
#include "int_sets.h"

#include <stdlib.h>
#include <string.h>

static void *no_memory(struct err *err) {
    err_set(err, STATUS_NOMEM, "out of memory for an automaton");
    return NULL;
}

// ---- lengths

// The ranges of a code point's first byte, and the states that read the rest of it.
enum { TAIL_1, TAIL_2, TAIL_E0, TAIL_ED, TAIL_3, TAIL_F0, TAIL_F4, NUM_TAILS };
static const struct {
    unsigned char first, last;
    int8_t tail; // -1: the code point ends here
} leads[] = {{0x00, 0x7f, -1},      {0xc2, 0xdf, TAIL_1},  {0xe0, 0xe0, TAIL_E0},
             {0xe1, 0xec, TAIL_2},  {0xed, 0xed, TAIL_ED}, {0xee, 0xef, TAIL_2},
             {0xf0, 0xf0, TAIL_F0}, {0xf1, 0xf3, TAIL_3},  {0xf4, 0xf4, TAIL_F4}},
  tails[NUM_TAILS] = {
      [TAIL_1] = {0x80, 0xbf, -1},      [TAIL_2] = {0x80, 0xbf, TAIL_1}, [TAIL_E0] = {0xa0, 0xbf, TAIL_1},
      [TAIL_ED] = {0x80, 0x9f, TAIL_1}, [TAIL_3] = {0x80, 0xbf, TAIL_2}, [TAIL_F0] = {0x90, 0xbf, TAIL_2},
      [TAIL_F4] = {0x80, 0x8f, TAIL_2}};

struct dfa *dfa_length(int min, int max, struct err *err) {
    uint8_t class_of[256] = {0};
    int num_classes = 0;
    unsigned char firsts[256];
    for (int byte = 0; byte < 256; byte++) {
        static const uint8_t begins[] = {0x80, 0x90, 0xa0, 0xc0, 0xc2, 0xe0, 0xe1,
                                         0xed, 0xee, 0xf0, 0xf1, 0xf4, 0xf5};
        if (byte == 0 || memchr(begins, byte, sizeof begins))
            firsts[num_classes++] = (unsigned char)byte;
        class_of[byte] = (uint8_t)(num_classes - 1);
    }
    int last = max < 0 ? min : max;
    struct dfa_build b;
    bool ok = dfa_build_begin(&b, class_of, num_classes, err);
    if (ok && max >= 0 && min > max)
        return dfa_build_end(&b, err);
    for (int i = 0; ok && i <= last; i++) // the state of i code points is i * (NUM_TAILS + 1)
        for (int t = -1; ok && t < NUM_TAILS; t++)
            ok = dfa_build_state(&b, t < 0 && i >= min ? 0 : -1, err) >= 0;
    for (int i = 0; ok && i <= last; i++) {
        int here = i * (NUM_TAILS + 1), to = i < last ? here + NUM_TAILS + 1 : here;
        for (int c = 0; c < num_classes && (i < last || max < 0); c++) {
            for (size_t l = 0; l < sizeof leads / sizeof *leads; l++)
                if (firsts[c] >= leads[l].first && firsts[c] <= leads[l].last)
                    dfa_build_arrow(&b, here, c, leads[l].tail < 0 ? to : here + 1 + leads[l].tail);
            for (int t = 0; t < NUM_TAILS; t++)
                if (firsts[c] >= tails[t].first && firsts[c] <= tails[t].last)
                    dfa_build_arrow(&b, here + 1 + t, c, tails[t].tail < 0 ? to : here + 1 + tails[t].tail);
        }
    }
    if (ok)
        return dfa_build_end(&b, err);
    dfa_build_free(&b);
    return NULL;
}

struct dfa *dfa_any(struct err *err) {
    return dfa_length(0, -1, err);
}

// ---- side by side

enum { MAX_SIDES = 64 };
_Static_assert(MAX_SIDES < 1 << (31 - DFA_STATE_BITS), "a state and its automaton are one integer");

struct dfa_product {
    const struct dfa *list[MAX_SIDES + 1];
    int n;         // of the list that the set of those that accept is about
    bool all;      // text ends as soon as one of them is dead
    bool shortest; // nothing goes on where text may end
    bool valid;    // list[n] is there too: it must not be dead
    int32_t (*label)(void *arg, uint64_t set, struct err *err); // -1: not accepted, -2: err is set
    void *arg;
};

// Bytes that no automaton tells apart share a class; first[c]: a byte of it.
static int join_classes(const struct dfa_product *p, uint8_t class_of[256], unsigned char first[256]) {
    uint32_t hashes[256];
    int num = 0, sides = p->n + p->valid;
    for (int b = 0; b < 256; b++) {
        uint32_t hash = 0;
        for (int i = 0; i < sides; i++)
            hash = (hash ^ p->list[i]->class_of[b]) * 0x9e3779b1u + (hash >> 15);
        int c = 0;
        for (; c < num; c++) {
            int i = hashes[c] == hash ? 0 : sides + 1;
            while (i < sides && p->list[i]->class_of[b] == p->list[i]->class_of[first[c]])
                i++;
            if (i == sides)
                break;
        }
        if (c == num) {
            hashes[num] = hash;
            first[num++] = (unsigned char)b;
        }
        class_of[b] = (uint8_t)c;
    }
    return num;
}

// The state of the automata that are in the states of `live`; -1 with err.
static int product_state(const struct dfa_product *p, struct dfa_build *b, struct int_sets *states,
                         const int32_t *live, int num, struct err *err) {
    int before = states->num, s = int_sets_add(states, live, num);
    if (s < before) {
        if (s == -1)
            no_memory(err);
        if (s == -2)
            err_set(err, STATUS_LIMIT, "its automaton is too large");
        return s < 0 ? -1 : s;
    }
    uint64_t set = 0;
    bool valid = !p->valid;
    for (int i = 0; i < num; i++) {
        int side = live[i] >> DFA_STATE_BITS;
        if (p->list[side]->label[live[i] & ((1 << DFA_STATE_BITS) - 1)] < 0)
            continue;
        if (side == p->n)
            valid = true;
        else
            set |= (uint64_t)1 << side;
    }
    int32_t label = valid ? p->label(p->arg, set, err) : -1;
    return label < -1 ? -1 : dfa_build_state(b, label, err);
}

// The state that a byte leads to; DFA_DEAD; -2 with err.
static int product_step(const struct dfa_product *p, struct dfa_build *b, struct int_sets *states, int s,
                        unsigned char byte, struct err *err) {
    int32_t to[MAX_SIDES + 1];
    int len, num = 0, num_list = 0;
    const int32_t *live = int_sets_get(states, s, &len);
    bool valid = !p->valid;
    if (p->shortest && b->d->label[s] >= 0)
        return DFA_DEAD;
    for (int i = 0; i < len; i++) {
        int side = live[i] >> DFA_STATE_BITS;
        int32_t next = dfa_step(p->list[side], live[i] & ((1 << DFA_STATE_BITS) - 1), byte);
        if (next < 0)
            continue;
        to[num++] = side << DFA_STATE_BITS | next;
        num_list += side < p->n;
        valid |= side == p->n;
    }
    if (!valid || (p->all && num_list < p->n) || num == 0)
        return DFA_DEAD;
    int state = product_state(p, b, states, to, num, err);
    return state < 0 ? -2 : state;
}

static struct dfa *product_run(const struct dfa_product *p, struct err *err) {
    struct dfa_build b;
    struct int_sets states = {0};
    uint8_t class_of[256];
    unsigned char first[256];
    int num_classes = join_classes(p, class_of, first), num = 0;
    if (!dfa_build_begin(&b, class_of, num_classes, err))
        return NULL;
    int32_t live[MAX_SIDES + 1];
    for (int i = 0; i < p->n + p->valid; i++)
        if (p->list[i]->num_states > 0)
            live[num++] = i << DFA_STATE_BITS;
    bool ok = (p->all && num < p->n + p->valid) || product_state(p, &b, &states, live, num, err) >= 0;
    for (int s = 0; ok && s < b.d->num_states; s++)
        for (int c = 0; ok && c < num_classes; c++) {
            int to = product_step(p, &b, &states, s, first[c], err);
            if ((ok = to >= DFA_DEAD))
                dfa_build_arrow(&b, s, c, to);
        }
    int_sets_free(&states);
    if (ok)
        return dfa_build_end(&b, err);
    dfa_build_free(&b);
    return NULL;
}

static int32_t accept_set(void *arg, uint64_t set, struct err *err) {
    (void)err;
    return set == *(const uint64_t *)arg ? 0 : -1;
}

static int32_t accept_any(void *arg, uint64_t set, struct err *err) {
    (void)arg, (void)err;
    return set ? 0 : -1;
}

struct dfa *dfa_intersect(const struct dfa *a, const struct dfa *b, struct err *err) {
    uint64_t both = 3;
    return product_run(&(struct dfa_product){{a, b}, .n = 2, .all = true, .label = accept_set, .arg = &both},
                       err);
}

struct dfa *dfa_shortest(const struct dfa *a, struct err *err) {
    return product_run(&(struct dfa_product){{a}, .n = 1, .shortest = true, .label = accept_any}, err);
}

struct dfa *dfa_union(const struct dfa *a, const struct dfa *b, struct err *err) {
    return product_run(&(struct dfa_product){{a, b}, .n = 2, .label = accept_any}, err);
}

struct dfa *dfa_complement(const struct dfa *a, struct err *err) {
    uint64_t none = 0;
    struct dfa *any = dfa_any(err);
    struct dfa_product p = {{a, any}, .n = 1, .valid = true, .label = accept_set, .arg = &none};
    struct dfa *d = any ? product_run(&p, err) : NULL;
    dfa_free(any);
    return d;
}

struct classify {
    bool (*keep)(void *arg, uint64_t set);
    void *arg;
    struct int_sets sets; // of two integers each
};

static int32_t number_set(void *arg, uint64_t set, struct err *err) {
    struct classify *c = arg;
    if (c->keep && !c->keep(c->arg, set))
        return -1;
    int label =
        int_sets_add(&c->sets, (const int32_t[]){(int32_t)(uint32_t)set, (int32_t)(uint32_t)(set >> 32)}, 2);
    if (label < 0)
        no_memory(err);
    return label < 0 ? -2 : label;
}

struct dfa *dfa_classify(const struct dfa *const *list, int n, bool (*keep)(void *arg, uint64_t set),
                         void *arg, uint64_t **sets, struct err *err) {
    struct classify c = {keep, arg, {0}};
    struct dfa *any = dfa_any(err), *d = NULL;
    struct dfa_product p = {.n = n, .valid = true, .label = number_set, .arg = &c};
    memcpy(p.list, list, (size_t)n * sizeof *list);
    p.list[n] = any;
    if (any)
        d = product_run(&p, err);
    dfa_free(any);
    *sets = d ? malloc(((size_t)c.sets.num + 1) * sizeof **sets) : NULL;
    for (int i = 0; *sets && i < c.sets.num; i++)
        (*sets)[i] = (uint32_t)c.sets.items[2 * i] | (uint64_t)(uint32_t)c.sets.items[2 * i + 1] << 32;
    int_sets_free(&c.sets);
    if (d && !*sets) {
        dfa_free(d);
        return no_memory(err);
    }
    return d;
}
