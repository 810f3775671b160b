// The smallest automaton is that of the coarsest sets of states that arrows respect: sets are split until the arrows of
// all states of one lead to the same sets (Moore, 1956). Only states are looked at again from which an arrow leads to one
// that changed its set, and the largest part of a set does not (Hopcroft, 1971).
#include "dfa_build.h"

#include "../work_time.h"

#include <stdlib.h>
#include <string.h>

static void *no_memory(struct err *err) {
    err_set(err, STATUS_NOMEM, "out of memory for an automaton");
    return NULL;
}

bool dfa_build_begin(struct dfa_build *b, const uint8_t class_of[256], int num_classes, struct err *err) {
    *b = (struct dfa_build){.d = calloc(1, sizeof *b->d)};
    if (!b->d)
        return no_memory(err) != NULL;
    memcpy(b->d->class_of, class_of, 256);
    b->d->num_classes = num_classes;
    return true;
}

int dfa_build_state(struct dfa_build *b, int32_t label, struct err *err) {
    struct dfa *d = b->d;
    if (!work_time_left(err))
        return -1;
    if (d->num_states == DFA_MAX_STATES) {
        err_set(err, STATUS_LIMIT, "it needs more than %d states", DFA_MAX_STATES);
        return -1;
    }
    if (d->num_states == b->cap) {
        int cap = b->cap ? 2 * b->cap : 32;
        int32_t *next = realloc(d->next, (size_t)cap * (size_t)d->num_classes * sizeof *next);
        d->next = next ? next : d->next;
        int32_t *labels = next ? realloc(d->label, (size_t)cap * sizeof *labels) : NULL;
        d->label = labels ? labels : d->label;
        if (!labels) {
            no_memory(err);
            return -1;
        }
        b->cap = cap;
    }
    for (int c = 0; c < d->num_classes; c++)
        dfa_build_arrow(b, d->num_states, c, DFA_DEAD);
    d->label[d->num_states] = label;
    return d->num_states++;
}

void dfa_build_free(struct dfa_build *b) {
    dfa_free(b->d);
    b->d = NULL;
}

// ---- classes

// By hashes of the columns. (A collision of hashes would leave one class too many.)
void dfa_merge_classes(struct dfa *d) {
    size_t n = (size_t)d->num_states, k = (size_t)d->num_classes;
    uint64_t hashes[256] = {0};
    int same[256]; // the first class, in the order of bytes, whose column is the same
    int order[256], num = 0, class_new[256];
    for (size_t s = 0; s < n; s++)
        for (size_t c = 0; c < k; c++)
            hashes[c] = (hashes[c] ^ (uint32_t)d->next[s * k + c]) * 0x9e3779b97f4a7c15u + (hashes[c] >> 29);
    memset(same, 0xff, sizeof same);
    for (int byte = 0; byte < 256; byte++) {
        int c = d->class_of[byte];
        for (int i = 0; i < num && same[c] < 0; i++)
            if (hashes[order[i]] == hashes[c])
                same[c] = order[i];
        if (same[c] < 0) {
            same[c] = c;
            order[num++] = c;
        }
    }
    for (size_t s = 0; s < n; s++)
        for (size_t c = 0; c < k; c++)
            if (same[c] >= 0 && d->next[s * k + c] != d->next[s * k + (size_t)same[c]]) {
                same[c] = (int)c;
                order[num++] = (int)c;
            }
    for (int i = 0; i < num; i++)
        class_new[order[i]] = i;
    for (int byte = 0; byte < 256; byte++)
        d->class_of[byte] = (uint8_t)class_new[same[d->class_of[byte]]];
    for (size_t s = 0; s < n; s++) {
        int32_t row[256];
        for (int i = 0; i < num; i++)
            row[i] = d->next[s * k + (size_t)order[i]];
        memcpy(d->next + s * (size_t)num, row, (size_t)num * sizeof *row);
    }
    d->num_classes = num;
}

// ---- the smallest automaton

// States in sets: each set is a run of elems, with those that have to be looked at (again) at its begin.
struct minimise {
    const struct dfa *d;
    int *into_first, *into; // the states from where arrows lead into each state
    int num_sets;
    int *elems, *place;      // (states) and where each stands
    int *set_of;             // (states; -1 too, which is for DFA_DEAD)
    int *first, *end, *open; // (sets) open: how many are to be looked at
    int *queue, num_queue;   // (sets) that have any
    // Groups of states with the same arrows, of the set being split.
    uint64_t *hashes;            // (groups)
    int *member, *count, *begin; // (groups) one of its states; how many there are, and where
    int *group_of, *sorted;      // (states to be looked at) and by groups
    int *slots, num_slots;       // a hash table of groups, -1: free
    int *memory;
};

static void minimise_free(struct minimise *m) {
    free(m->into_first);
    free(m->into);
    free(m->hashes);
    free(m->memory);
}

static bool list_arrows(struct minimise *m) {
    const struct dfa *d = m->d;
    size_t n = (size_t)d->num_states, k = (size_t)d->num_classes, num = 0;
    m->into_first = calloc(n + 2, sizeof *m->into_first);
    for (size_t i = 0; m->into_first && i < n * k; i++)
        if (d->next[i] >= 0) {
            m->into_first[d->next[i] + 2]++; // one place on: filling moves each to its begin
            num++;
        }
    m->into = malloc((num + 1) * sizeof *m->into);
    if (!m->into || !m->into_first)
        return false;
    for (size_t s = 2; s < n + 2; s++)
        m->into_first[s] += m->into_first[s - 1];
    for (size_t s = 0, i = 0; s < n; s++)
        for (size_t c = 0; c < k; c++, i++)
            if (d->next[i] >= 0)
                m->into[m->into_first[d->next[i] + 1]++] = (int)s;
    return true;
}

// Cuts arrows off that lead to states from where no text may end. false: out of memory.
static bool trim(struct dfa *d, const struct minimise *m) {
    size_t n = (size_t)d->num_states, k = (size_t)d->num_classes;
    bool *alive = calloc(n + 1, sizeof *alive);
    int *todo = malloc((n + 1) * sizeof *todo), num_todo = 0, num_alive = 0;
    if (!alive || !todo) {
        free(alive);
        free(todo);
        return false;
    }
    for (size_t s = 0; s < n; s++)
        if (d->label[s] >= 0) {
            alive[s] = true;
            todo[num_todo++] = (int)s;
        }
    for (; num_todo > 0; num_alive++) {
        int s = todo[--num_todo];
        for (int i = m->into_first[s]; i < m->into_first[s + 1]; i++)
            if (!alive[m->into[i]]) {
                alive[m->into[i]] = true;
                todo[num_todo++] = m->into[i];
            }
    }
    for (size_t i = 0; (size_t)num_alive < n && i < n * k; i++)
        if (d->next[i] >= 0 && !alive[d->next[i]])
            d->next[i] = DFA_DEAD;
    if (n > 0 && !alive[0])
        d->num_states = 0;
    free(alive);
    free(todo);
    return true;
}

// Puts a state among those to be looked at.
static void open_state(struct minimise *m, int s) {
    int set = m->set_of[s], from = m->place[s], to = m->first[set] + m->open[set];
    if (from < to)
        return;
    int other = m->elems[to];
    m->elems[from] = other;
    m->place[other] = from;
    m->elems[to] = s;
    m->place[s] = to;
    if (m->open[set]++ == 0)
        m->queue[m->num_queue++] = set;
}

static void add_set(struct minimise *m, int set, int first, int end) {
    m->first[set] = first;
    m->end[set] = end;
    m->open[set] = 0;
    for (int i = first; i < end; i++) {
        m->set_of[m->elems[i]] = set;
        m->place[m->elems[i]] = i;
    }
}

// A set for each label, and every state is to be looked at.
static bool first_sets(struct minimise *m) {
    enum { NUM_ARRAYS = 12 };
    const struct dfa *d = m->d;
    size_t n = (size_t)d->num_states + 1;
    for (m->num_slots = 4; (size_t)m->num_slots < 2 * n;)
        m->num_slots *= 2;
    m->memory = malloc((NUM_ARRAYS * n + (size_t)m->num_slots) * sizeof *m->memory);
    m->hashes = malloc(n * sizeof *m->hashes);
    if (!m->memory || !m->hashes)
        return false;
    int **const arrays[] = {&m->elems,  &m->place, &m->first, &m->end,      &m->open,   &m->queue,
                            &m->member, &m->count, &m->begin, &m->group_of, &m->sorted, &m->set_of};
    for (size_t i = 0; i < NUM_ARRAYS; i++)
        *arrays[i] = m->memory + i * n;
    *m->set_of++ = -1;
    m->slots = m->memory + NUM_ARRAYS * n;
    memset(m->slots, 0xff, (size_t)m->num_slots * sizeof *m->slots);
    int *begin = m->queue; // of each label, from -1 on
    memset(begin, 0, n * sizeof *begin);
    for (size_t s = 0; s + 1 < n; s++)
        begin[d->label[s] + 1]++;
    for (size_t i = 0, at = 0; i < n; i++) {
        at += (size_t)begin[i];
        begin[i] = (int)at - begin[i];
    }
    for (size_t s = 0; s + 1 < n; s++)
        m->elems[begin[d->label[s] + 1]++] = (int)s;
    for (size_t i = 0; i + 1 < n; i = (size_t)m->end[m->num_sets++]) { // each begin is now an end
        int end = begin[d->label[m->elems[i]] + 1];
        add_set(m, m->num_sets, (int)i, end);
        m->open[m->num_sets] = end - (int)i;
    }
    for (int i = 0; i < m->num_sets; i++)
        m->queue[m->num_queue++] = i;
    return true;
}

static uint64_t hash_arrows(const struct minimise *m, int s) {
    size_t k = (size_t)m->d->num_classes;
    const int32_t *next = m->d->next + (size_t)s * k;
    uint64_t h = 0;
    for (size_t c = 0; c < k; c++)
        h = (h ^ (uint32_t)m->set_of[next[c]]) * 0x9e3779b97f4a7c15u + (h >> 29);
    return h ^ h >> 32;
}

static bool same_arrows(const struct minimise *m, int s, int t) {
    size_t k = (size_t)m->d->num_classes;
    const int32_t *a = m->d->next + (size_t)s * k, *b = m->d->next + (size_t)t * k;
    for (size_t c = 0; c < k; c++)
        if (m->set_of[a[c]] != m->set_of[b[c]])
            return false;
    return true;
}

// The group of a state; it may be a new one.
static int group(struct minimise *m, int *num, int s) {
    uint64_t hash = hash_arrows(m, s);
    for (uint64_t at = hash;; at++) {
        int *slot = &m->slots[at & (uint64_t)(m->num_slots - 1)];
        if (*slot < 0) {
            m->hashes[*num] = hash;
            m->member[*num] = s;
            m->count[*num] = 0;
            return *slot = (*num)++;
        }
        if (m->hashes[*slot] == hash && same_arrows(m, s, m->member[*slot]))
            return *slot;
    }
}

static void clear_groups(struct minimise *m, int num) {
    for (int g = 0; g < num; g++)
        for (uint64_t at = m->hashes[g];; at++) {
            int *slot = &m->slots[at & (uint64_t)(m->num_slots - 1)];
            if (*slot == g) {
                *slot = -1;
                break;
            }
        }
}

// Sorts the `open` states that were looked at. The first group comes last: those of it that were not stand behind.
static void sort_by_group(struct minimise *m, int first, int open, int num) {
    for (int g = 1, at = 0; g <= num; at += m->count[g++ % num])
        m->begin[g % num] = at;
    for (int i = 0; i < open; i++)
        m->sorted[m->begin[m->group_of[i]]++] = m->elems[first + i];
    for (int i = 0; i < open; i++) {
        m->elems[first + i] = m->sorted[i];
        m->place[m->sorted[i]] = first + i;
    }
}

// Splits a set into groups. States that need no look form the first group. The largest keeps the set's
// number, so that a state changes its set at most log2(states) times; where states lead that changed it is looked at again.
static void split(struct minimise *m, int set) {
    int first = m->first[set], end = m->end[set], open = m->open[set], num = 0, largest = 0;
    m->open[set] = 0;
    if (end - first == 1)
        return;
    group(m, &num, m->elems[end - 1]);
    for (int i = 0; i < open; i++) {
        m->group_of[i] = group(m, &num, m->elems[first + i]);
        m->count[m->group_of[i]]++;
    }
    clear_groups(m, num);
    if (num == 1)
        return;
    sort_by_group(m, first, open, num);
    int rest = end - first - open;
    m->count[0] += rest;
    for (int g = 1; g < num; g++)
        largest = m->count[g] > m->count[largest] ? g : largest;
    if (largest != 0)
        memcpy(m->sorted + open, m->elems + first + open, (size_t)rest * sizeof *m->sorted);
    for (int g = 1, from = first; g <= num; g++) {
        int to = from + m->count[g % num];
        if (g % num == largest) {
            m->first[set] = from;
            m->end[set] = to;
        } else {
            add_set(m, m->num_sets++, from, to);
        }
        from = to;
    }
    for (int g = 1, from = 0; g <= num; g++) {
        int to = from + m->count[g % num];
        for (int i = from; i < to && g % num != largest; i++)
            for (int j = m->into_first[m->sorted[i]]; j < m->into_first[m->sorted[i] + 1]; j++)
                open_state(m, m->into[j]);
        from = to;
    }
}

// One state for each set that is reached from the start. Returns the rows of *num states over the old classes, and in
// members a state of each; NULL: out of memory.
static int32_t *quotient_rows(const struct minimise *m, int *members, int *num) {
    const struct dfa *d = m->d;
    size_t k = (size_t)d->num_classes;
    int num_sets = m->num_sets;
    int *number = malloc(((size_t)num_sets + 1) * sizeof *number); // of each set
    int32_t *rows = malloc(((size_t)num_sets * k + 1) * sizeof *rows);
    *num = 0;
    if (!number || !rows) {
        free(number);
        free(rows);
        return NULL;
    }
    memset(number, 0xff, (size_t)num_sets * sizeof *number);
    if (d->num_states > 0) {
        number[m->set_of[0]] = 0;
        members[(*num)++] = 0;
    }
    for (int i = 0; i < *num; i++)
        for (size_t c = 0; c < k; c++) {
            int32_t to = d->next[(size_t)members[i] * k + c];
            int set = to < 0 ? -1 : m->set_of[to];
            if (set >= 0 && number[set] < 0) {
                number[set] = *num;
                members[(*num)++] = to;
            }
            rows[(size_t)i * k + c] = set < 0 ? DFA_DEAD : number[set];
        }
    free(number);
    return rows;
}

static struct dfa *quotient(const struct minimise *m, struct err *err) {
    int num, *members = malloc(((size_t)m->num_sets + 1) * sizeof *members);
    struct dfa *out = members ? calloc(1, sizeof *out) : NULL;
    if (out) {
        memcpy(out->class_of, m->d->class_of, 256);
        out->num_classes = m->d->num_classes;
        out->next = quotient_rows(m, members, &num);
        out->num_states = out->next ? num : 0;
        out->label = malloc(((size_t)out->num_states + 1) * sizeof *out->label);
        for (int i = 0; out->label && i < out->num_states; i++)
            out->label[i] = m->d->label[members[i]];
    }
    free(members);
    if (out && out->next && out->label) {
        dfa_merge_classes(out);
        return out;
    }
    dfa_free(out);
    return no_memory(err);
}

struct dfa *dfa_build_end(struct dfa_build *b, struct err *err) {
    struct minimise m = {.d = b->d};
    struct dfa *out = NULL;
    dfa_merge_classes(b->d);
    if (list_arrows(&m) && trim(b->d, &m) && first_sets(&m)) {
        while (m.num_queue > 0 && work_time_left(err))
            split(&m, m.queue[--m.num_queue]);
        out = m.num_queue > 0 ? NULL : quotient(&m, err);
    } else {
        no_memory(err);
    }
    minimise_free(&m);
    dfa_build_free(b);
    return out;
}
