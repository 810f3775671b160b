// Over 600 lines: frames, sets, threads and states are numbered within one another.
#include "matcher.h"

#include "hash.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

// Where a reading of the text stands: an NFA state, the state of its automaton, the frames that wait below, and the state of
// the guard, -1 where none looks.
struct thread {
    int32_t nfa, sub, stack, guard;
};

// A frame that waits. RETURN: goes on at `nfa`. LOOP: a is its count. OBJECT: a its set of kinds seen, b the last
// one with a place in the order, c the members so far, d the kind of the member at hand.
struct match_frame {
    int32_t parent;
    enum frame_kind { FRAME_RETURN, FRAME_LOOP, FRAME_OBJECT } kind;
    int32_t nfa, a, b, c, d;
};

struct match_state {
    uint32_t first, num; // threads
    bool may_end;
};

// Numbers of items that are equal.
struct match_table {
    int32_t *slots; // -1: free
    size_t num_slots, used;
};

struct matcher {
    struct grammar *g;
    struct match_state *states;
    struct edge *edges; // (num_states, num_classes)
    int32_t *notes;     // (num_states)
    struct thread *threads;
    struct match_frame *frames; // [0]: the empty stack
    uint64_t *sets;             // of kinds seen: (num_words) each as its object needs
    size_t num_states, cap_states, num_threads, cap_threads, num_frames, cap_frames, num_sets, cap_sets,
        cap_edges, cap_notes;
    struct match_table state_table, frame_table;
    struct thread *now; // (MAX_THREADS) of the set being made: those that take bytes first
    struct thread *todo;
    struct match_table met; // of threads in `seen`
    struct thread *seen;
    size_t num_now, num_todo, num_seen;
    bool may_end;
    int32_t guard;  // of threads that arrive
    int32_t failed; // MATCHER_FAILED or MATCHER_LIMIT; 0: not
    uint32_t work;  // of this step
    uint64_t all_work, walk_work;
    uint16_t walk; // the number of the walk, never 0
};

const struct grammar *matcher_grammar(const struct matcher *m) { return m->g; }

// ---- tables

static bool table_grow(struct match_table *t, uint64_t (*hash)(const struct matcher *, int32_t),
                       const struct matcher *m) {
    if (t->used * 2 < t->num_slots)
        return true;
    size_t num = t->num_slots ? 2 * t->num_slots : 256;
    int32_t *slots = malloc(num * sizeof *slots);
    if (!slots)
        return false;
    memset(slots, -1, num * sizeof *slots);
    for (size_t i = 0; i < t->num_slots; i++)
        if (t->slots[i] >= 0) {
            size_t at = hash(m, t->slots[i]) & (num - 1);
            while (slots[at] >= 0)
                at = (at + 1) & (num - 1);
            slots[at] = t->slots[i];
        }
    free(t->slots);
    t->slots = slots;
    t->num_slots = num;
    return true;
}

static void table_clear(struct match_table *t) {
    if (t->slots)
        memset(t->slots, -1, t->num_slots * sizeof *t->slots);
    t->used = 0;
}

static bool reserve(void *array, size_t need, size_t *cap, size_t size) {
    void **items = array;
    if (need <= *cap)
        return true;
    size_t more = *cap ? *cap : 64;
    while (more < need)
        more *= 2;
    void *p = realloc(*items, more * size);
    if (!p)
        return false;
    *items = p;
    *cap = more;
    return true;
}

static int32_t failed(struct matcher *m) {
    m->failed = MATCHER_FAILED;
    return -1;
}

static void spend(struct matcher *m, uint32_t work) {
    m->work += work;
    if (m->work > MAX_STEP_WORK && !m->failed)
        m->failed = MATCHER_LIMIT;
}

// ---- frames

static uint64_t hash_of_frame(const struct match_frame *f) { return hash_bytes(1, f, sizeof *f); }
static uint64_t frame_hash(const struct matcher *m, int32_t i) { return hash_of_frame(&m->frames[i]); }

static int32_t frame_number(struct matcher *m, const struct match_frame *f) {
    if (!table_grow(&m->frame_table, frame_hash, m))
        return failed(m);
    size_t mask = m->frame_table.num_slots - 1, at = hash_of_frame(f) & mask;
    for (; m->frame_table.slots[at] >= 0; at = (at + 1) & mask)
        if (memcmp(&m->frames[m->frame_table.slots[at]], f, sizeof *f) == 0)
            return m->frame_table.slots[at];
    if (!reserve(&m->frames, m->num_frames + 1, &m->cap_frames, sizeof *m->frames))
        return failed(m);
    m->frames[m->num_frames] = *f;
    m->frame_table.slots[at] = (int32_t)m->num_frames;
    m->frame_table.used++;
    return (int32_t)m->num_frames++;
}

// Tail calls need no frame: an NFA state that only returns adds none.
static int32_t push_return(struct matcher *m, int32_t nfa, int32_t stack) {
    if (m->g->nfa[nfa].kind == NFA_RETURN)
        return stack;
    return frame_number(m, &(struct match_frame){.parent = stack, .kind = FRAME_RETURN, .nfa = nfa});
}

// ---- objects: which kinds of members may still come

static bool seen_bit(const struct matcher *m, const struct net_object *n, const struct match_frame *f,
                     int kind) {
    int bit = n->bits[kind];
    return bit >= 0 && f->a >= 0 && m->sets[f->a + bit / 64] >> (bit % 64) & 1;
}

// The number of the set whose words were written behind the last one. Equal sets share one: the first place where
// they stand.
static int32_t set_number(struct matcher *m, size_t words) {
    const uint64_t *made = m->sets + m->num_sets;
    for (size_t i = 0; i + words <= m->num_sets; i++)
        if (memcmp(m->sets + i, made, words * sizeof *made) == 0)
            return (int32_t)i;
    m->num_sets += words;
    return (int32_t)(m->num_sets - words);
}

static size_t set_words(const struct net_object *n) { return (size_t)(n->num_bits + 63) / 64; }

// The set that is `set` and one kind more; -1 is the empty one.
static int32_t set_with(struct matcher *m, const struct net_object *n, int32_t set, int kind) {
    size_t words = set_words(n);
    int bit = n->bits[kind];
    if (bit < 0)
        return set;
    if (!reserve(&m->sets, m->num_sets + words, &m->cap_sets, sizeof *m->sets))
        return failed(m);
    uint64_t *made = m->sets + m->num_sets;
    if (set >= 0)
        memcpy(made, m->sets + set, words * sizeof *made);
    else
        memset(made, 0, words * sizeof *made);
    made[bit / 64] |= UINT64_C(1) << (bit % 64);
    return set_number(m, words);
}

static int missing(const struct matcher *m, const struct net_object *n, const struct match_frame *f) {
    int left = 0;
    for (int i = 0; n->num_required && i < n->o->num_kinds; i++)
        left += n->o->kinds[i].required && !seen_bit(m, n, f, i);
    return left;
}

static bool closable(const struct matcher *m, const struct net_object *n, const struct match_frame *f) {
    return f->c >= n->o->min && missing(m, n, f) == 0;
}

// The members that may still come behind one of `kind`, as far as keys that come once go.
static int to_come(const struct matcher *m, const struct net_object *n, const struct match_frame *f,
                   int kind) {
    int num = 0;
    for (int i = n->o->ordered ? kind + 1 : 0; i < n->o->num_kinds; i++)
        num += i != kind && n->values[i] >= 0 && n->o->kinds[i].once && !seen_bit(m, n, f, i);
    return num;
}

// Whether a member of a kind may come now, so that the object can still be completed.
static bool allowed(const struct matcher *m, const struct net_object *n, const struct match_frame *f,
                    int kind) {
    const struct object *o = n->o;
    const struct member_kind *k = &o->kinds[kind];
    if (n->values[kind] < 0 || (k->once && seen_bit(m, n, f, kind)))
        return false;
    if (o->ordered && k->once) {
        if (kind <= f->b)
            return false;
        for (int i = f->b + 1; n->num_required && i < kind; i++)
            if (o->kinds[i].once && o->kinds[i].required)
                return false; // it would come too late
    }
    if (f->c + 1 < o->min && !n->free_ahead[0] && f->c + 1 + to_come(m, n, f, kind) < o->min)
        return false;
    bool fills = k->required && !seen_bit(m, n, f, kind);
    return o->max < 0 || f->c + 1 + missing(m, n, f) - fills <= o->max;
}

// Whether only what is required may still come.
static bool is_tight(const struct matcher *m, const struct net_object *n, const struct match_frame *f) {
    return n->o->max >= 0 && f->c + 1 + missing(m, n, f) > n->o->max;
}

// Whether some key from state q on is that of an allowed kind.
static bool key_ahead(struct matcher *m, const struct net_object *n, const struct match_frame *f, int32_t q) {
    const struct dfa *d = n->o->keys;
    if (!d || d->num_states == 0 || (n->o->max >= 0 && f->c >= n->o->max))
        return false;
    if (n->free_ahead[q] && !is_tight(m, n, f))
        return true;
    uint8_t *been = calloc((size_t)d->num_states, 1);
    int32_t *path = malloc((size_t)d->num_states * sizeof *path);
    bool found = false;
    int depth = 0;
    if (been && path) {
        path[depth++] = q;
        been[q] = 1;
    } else {
        failed(m);
    }
    spend(m, (uint32_t)d->num_states / 256);
    while (depth && !found && !m->failed) {
        q = path[--depth];
        spend(m, 1 + (uint32_t)d->num_classes / 64);
        if (d->label[q] >= 0)
            for (int i = n->o->list_starts[d->label[q]]; i < n->o->list_starts[d->label[q] + 1] && !found;
                 i++) {
                found = allowed(m, n, f, n->o->lists[i]);
                spend(m, 1 + (uint32_t)n->o->num_kinds / 64);
            }
        for (int c = 0; c < d->num_classes; c++) {
            int32_t next = d->next[(size_t)q * (size_t)d->num_classes + (size_t)c];
            if (next >= 0 && !been[next]) {
                been[next] = 1;
                path[depth++] = next;
            }
        }
    }
    free(been);
    free(path);
    return found;
}

// ---- sets of threads

static uint64_t hash_of_thread(const struct thread *t) { return hash_bytes(2, t, sizeof *t); }
static uint64_t seen_hash(const struct matcher *m, int32_t i) { return hash_of_thread(&m->seen[i]); }

// A thread arrives at an NFA state; each place is looked at once.
static void arrive(struct matcher *m, int32_t nfa, int32_t sub, int32_t stack) {
    struct thread t = {nfa, sub, stack, m->guard};
    if (m->failed)
        return;
    if (!table_grow(&m->met, seen_hash, m)) {
        failed(m);
        return;
    }
    size_t mask = m->met.num_slots - 1, at = hash_of_thread(&t) & mask;
    for (; m->met.slots[at] >= 0; at = (at + 1) & mask)
        if (memcmp(&m->seen[m->met.slots[at]], &t, sizeof t) == 0)
            return;
    spend(m, 1);
    if (m->num_seen == MAX_THREADS && !m->failed)
        m->failed = MATCHER_LIMIT;
    if (m->failed)
        return;
    m->met.slots[at] = (int32_t)m->num_seen;
    m->met.used++;
    m->seen[m->num_seen++] = t;
    m->todo[m->num_todo++] = t;
}

// Between two members, at the beginning (comma: false) or behind one.
static void members(struct matcher *m, const struct net_object *n, int32_t stack, bool comma) {
    struct match_frame f = m->frames[stack];
    if (closable(m, n, &f))
        arrive(m, n->close, 0, stack);
    if (key_ahead(m, n, &f, 0))
        arrive(m, comma ? n->comma : n->key, 0, stack);
}

static void loop_again(struct matcher *m, const struct net_loop *l, int32_t number, int32_t count,
                       int32_t parent) {
    if (count >= l->min)
        arrive(m, l->after, 0, parent);
    if (l->max < 0 || count < l->max) {
        int32_t stack = frame_number(
            m, &(struct match_frame){.parent = parent, .kind = FRAME_LOOP, .nfa = number, .a = count});
        arrive(m, l->body, 0, stack);
    }
}

// Follows a thread up to NFA states that take a byte.
static void follow(struct matcher *m, struct thread t) {
    const struct grammar *g = m->g;
    const struct net_state *s = &g->nfa[t.nfa];
    struct match_frame f = m->frames[t.stack];
    m->guard = t.guard;
    switch ((enum stop_kind)s->kind) {
    case NFA_DFA:
        if (g->b->dfas[s->a]->label[t.sub] >= 0)
            arrive(m, s->b, 0, t.stack);
        if (g->dfas[s->a].goes_on[t.sub])
            m->now[m->num_now++] = t;
        break;
    case NFA_SET:
    case NFA_KEY: m->now[m->num_now++] = t; break;
    case NFA_SPLIT:
        for (int32_t i = 0; i < s->b; i++)
            arrive(m, g->targets[s->a + i], 0, t.stack);
        break;
    case NFA_CALL: arrive(m, s->a, 0, push_return(m, s->b, t.stack)); break;
    case NFA_RETURN: arrive(m, f.nfa, 0, f.parent); break;
    case NFA_LOOP: loop_again(m, &g->loops[s->a], s->a, 0, t.stack); break;
    case NFA_AGAIN: {
        const struct net_loop *l = &g->loops[s->a];
        loop_again(m, l, s->a, l->max < 0 && f.a == l->min ? f.a : f.a + 1, f.parent);
        break;
    }
    case NFA_OBJECT: {
        struct match_frame o = {
            .parent = t.stack, .kind = FRAME_OBJECT, .nfa = s->a, .a = -1, .b = -1, .d = -1};
        int32_t stack = frame_number(m, &o);
        if (!m->failed)
            members(m, &g->objects[s->a], stack, false);
        break;
    }
    case NFA_VALUE: {
        int32_t value = g->objects[s->a].values[f.d];
        f.d = -1;
        int32_t stack = frame_number(m, &f);
        arrive(m, value, 0, push_return(m, g->objects[s->a].after, stack));
        break;
    }
    case NFA_MEMBERS: members(m, &g->objects[s->a], t.stack, true); break;
    case NFA_LEAVE: arrive(m, g->give_back, 0, f.parent); break;
    case NFA_GUARD:
    case NFA_UNGUARD:
        m->guard = s->kind == NFA_GUARD ? 0 : -1;
        arrive(m, s->b, 0, t.stack);
        break;
    case NFA_END: m->may_end = true; break;
    }
}

// At the end of a key: adds a thread for each kind that the member may be of.
static void end_key(struct matcher *m, const struct thread *t, const struct net_object *n) {
    const struct match_frame f = m->frames[t->stack];
    int32_t label = n->o->keys->label[t->sub];
    for (int i = label < 0 ? 0 : n->o->list_starts[label]; label >= 0 && i < n->o->list_starts[label + 1];
         i++) {
        int kind = n->o->lists[i];
        if (!allowed(m, n, &f, kind))
            continue;
        struct match_frame with = f;
        with.a = seen_bit(m, n, &f, kind) ? f.a : set_with(m, n, f.a, kind);
        with.b = n->o->ordered && n->o->kinds[kind].once ? kind : f.b;
        with.c = n->o->max >= 0 || f.c < n->o->min ? f.c + 1 : f.c;
        with.d = kind;
        int32_t stack = frame_number(m, &with);
        arrive(m, n->colon, 0, stack);
    }
}

static void take(struct matcher *m, const struct thread *t, unsigned char byte) {
    const struct grammar *g = m->g;
    const struct net_state *s = &g->nfa[t->nfa];
    m->guard = t->guard < 0 ? -1 : dfa_step(g->b->dfas[g->b->guard], t->guard, byte);
    if (t->guard >= 0 && m->guard == DFA_DEAD)
        return;
    if (s->kind == NFA_SET) {
        if (byte_set_has(&g->b->sets[s->a], byte))
            arrive(m, s->b, 0, t->stack);
    } else if (s->kind == NFA_DFA) {
        int32_t next = dfa_step(g->b->dfas[s->a], t->sub, byte);
        if (next >= 0)
            arrive(m, t->nfa, next, t->stack);
    } else {
        const struct net_object *n = &g->objects[s->a];
        int32_t next = dfa_step(n->o->keys, t->sub, byte);
        if (next >= 0 && key_ahead(m, n, &m->frames[t->stack], next))
            arrive(m, t->nfa, next, t->stack);
        else if (next == DFA_DEAD && byte == n->o->key_end) // behind a backslash part of the key
            end_key(m, t, n);
    }
}

// ---- states

static uint64_t hash_of_threads(const struct thread *t, size_t n, bool may_end) {
    return hash_bytes(3 + may_end, t, n * sizeof *t);
}
static uint64_t state_hash(const struct matcher *m, int32_t i) {
    const struct match_state *s = &m->states[i];
    return hash_of_threads(m->threads + s->first, s->num, s->may_end);
}

static int by_place(const void *x, const void *y) { return memcmp(x, y, sizeof(struct thread)); }

static void begin(struct matcher *m) {
    m->num_now = m->num_todo = m->num_seen = 0;
    m->may_end = false;
    m->failed = 0;
    m->work = 0;
    if (m->met.num_slots > 1024) { // of an unusually large set
        free(m->met.slots);
        m->met = (struct match_table){0};
    }
    table_clear(&m->met);
}

// The state of num threads, in order. MATCHER_FAILED: out of memory.
static int32_t state_number(struct matcher *m, const struct thread *threads, size_t num, bool may_end) {
    if (!table_grow(&m->state_table, state_hash, m))
        return MATCHER_FAILED;
    size_t mask = m->state_table.num_slots - 1, at = hash_of_threads(threads, num, may_end) & mask;
    for (; m->state_table.slots[at] >= 0; at = (at + 1) & mask) {
        const struct match_state *s = &m->states[m->state_table.slots[at]];
        if (s->num == num && s->may_end == may_end &&
            memcmp(m->threads + s->first, threads, num * sizeof *threads) == 0)
            return m->state_table.slots[at];
    }
    size_t classes = (size_t)m->g->num_classes, need = m->num_states + 1;
    if (!reserve(&m->states, need, &m->cap_states, sizeof *m->states) ||
        !reserve(&m->edges, need * classes, &m->cap_edges, sizeof *m->edges) ||
        !reserve(&m->notes, need, &m->cap_notes, sizeof *m->notes) ||
        !reserve(&m->threads, m->num_threads + num + 1, &m->cap_threads, sizeof *m->threads))
        return MATCHER_FAILED;
    int32_t number = (int32_t)m->num_states++;
    m->states[number] = (struct match_state){(uint32_t)m->num_threads, (uint32_t)num, may_end};
    memmove(m->threads + m->num_threads, threads, num * sizeof *threads); // matcher_keep() moves them down
    m->num_threads += num;
    for (size_t c = 0; c < classes; c++)
        m->edges[(size_t)number * classes + c] = (struct edge){.to = MATCHER_UNKNOWN};
    m->notes[number] = 0;
    m->state_table.slots[at] = number;
    m->state_table.used++;
    return number;
}

// The state of the threads that have arrived.
static int32_t finish(struct matcher *m) {
    while (m->num_todo && !m->failed)
        follow(m, m->todo[--m->num_todo]);
    m->all_work += m->work;
    if (m->failed)
        return m->failed;
    if (m->num_now == 0 && !m->may_end)
        return MATCHER_DEAD;
    if (m->num_now > 1)
        qsort(m->now, m->num_now, sizeof *m->now, by_place);
    return state_number(m, m->now, m->num_now, m->may_end);
}

int32_t matcher_start(struct matcher *m) {
    begin(m);
    m->guard = -1;
    arrive(m, m->g->start, 0, 0);
    return finish(m);
}

int32_t matcher_step(struct matcher *m, int32_t state, unsigned char byte) {
    size_t at = (size_t)state * (size_t)m->g->num_classes + m->g->class_of[byte];
    if (m->edges[at].to != MATCHER_UNKNOWN)
        return m->edges[at].to;
    const struct match_state s = m->states[state];
    begin(m);
    spend(m, s.num);
    for (uint32_t i = 0; i < s.num; i++)
        take(m, &m->threads[s.first + i], byte);
    int32_t next = finish(m);
    uint32_t work = m->work < MAX_STEP_WORK ? m->work : MAX_STEP_WORK - 1;
    if (next != MATCHER_FAILED) // memory may come back
        m->edges[at] = (struct edge){.to = next, .work = (uint16_t)(work / 4)};
    return next;
}

int32_t matcher_text(struct matcher *m, int32_t state, const char *text, size_t len) {
    for (size_t i = 0; i < len && state >= 0; i++)
        state = matcher_step(m, state, (unsigned char)text[i]);
    return state;
}

uint64_t matcher_work(const struct matcher *m) { return m->all_work; }
uint16_t matcher_walk(const struct matcher *m) { return m->walk; }
uint64_t matcher_walk_work(const struct matcher *m) { return m->walk_work; }

void matcher_walk_begin(struct matcher *m) {
    m->walk_work = 0;
    if (++m->walk)
        return;
    m->walk = 1;
    for (size_t i = 0; i < m->num_states * (size_t)m->g->num_classes; i++)
        m->edges[i].walk = 0;
}

int32_t matcher_walk_step(struct matcher *m, int32_t state, unsigned char byte) {
    int32_t to = matcher_step(m, state, byte);
    struct edge *e = &m->edges[(size_t)state * (size_t)m->g->num_classes + m->g->class_of[byte]];
    if (e->walk != m->walk)
        m->walk_work += 4 * (uint64_t)e->work + 4;
    e->walk = m->walk;
    return to;
}

bool matcher_may_end(const struct matcher *m, int32_t state) { return m->states[state].may_end; }
bool matcher_may_go_on(struct matcher *m, int32_t state) { return m->states[state].num > 0; }

// A thread is quiet where no plain text makes more of it: it goes on alone, or not at all.
int matcher_takes_plain(const struct matcher *m, int32_t state) {
    const struct match_state *s = &m->states[state];
    int most = 0;
    for (const struct thread *t = m->threads + s->first, *end = t + s->num; t < end; t++) {
        const struct net_state *nfa = &m->g->nfa[t->nfa];
        const struct match_frame *f = &m->frames[t->stack];
        int num = 0;
        if (t->guard >= 0)
            return 0;
        if (nfa->kind == NFA_KEY) {
            const struct net_object *n = &m->g->objects[nfa->a];
            num = n->plain[t->sub] && !is_tight(m, n, f) ? INT_MAX : 0;
            if (n->o->bare && !num) // the end of its key is plain
                return 0;
        } else if (nfa->kind == NFA_SET) {
            if (byte_set_takes_plain(&m->g->b->sets[nfa->a]))
                return 0;
        } else if (m->g->dfas[nfa->a].quiet[t->sub]) {
            num = m->g->dfas[nfa->a].plain[t->sub] ? INT_MAX : 0;
        } else {
            const struct net_loop *l = f->kind == FRAME_LOOP ? &m->g->loops[f->nfa] : NULL;
            if (!l || !l->quiet || l->body != t->nfa || m->g->nfa[nfa->b].kind != NFA_AGAIN ||
                !m->g->dfas[nfa->a].plain_char || t->sub != 0) // of characters, if it begins here again
                return 0;
            num = l->max < 0 ? INT_MAX : l->max - f->a;
        }
        most = num > most ? num : most;
    }
    return most;
}

const struct edge *matcher_row(const struct matcher *m, int32_t state) {
    return m->edges + (size_t)state * (size_t)m->g->num_classes;
}

int32_t *matcher_note(struct matcher *m, int32_t state) { return m->notes + state; }

size_t matcher_bytes(const struct matcher *m) {
    return m->num_states *
               (sizeof *m->states + sizeof *m->notes + (size_t)m->g->num_classes * sizeof *m->edges) +
           m->num_threads * sizeof *m->threads + m->num_frames * sizeof *m->frames +
           m->num_sets * sizeof *m->sets;
}

// ---- forgetting

static int by_number(const void *x, const void *y) {
    const int32_t *a = x, *b = y;
    return *a < *b ? -1 : *a > *b;
}

// Keeps the frames that are marked in `number`, which becomes their new numbers, and their sets, copies of `sets`. A
// frame's parent has the lower number, so that frames move down in order.
static void keep_frames(struct matcher *m, int32_t *number, const uint64_t *sets) {
    size_t num = 1;
    for (size_t i = m->num_frames - 1; i > 0; i--)
        if (number[i])
            number[m->frames[i].parent] = 1;
    number[0] = 0;
    m->num_sets = 0;
    table_clear(&m->frame_table);
    for (size_t i = 1; i < m->num_frames; i++) {
        if (!number[i])
            continue;
        struct match_frame f = m->frames[i];
        f.parent = number[f.parent];
        if (f.kind == FRAME_OBJECT && f.a >= 0) {
            size_t words = set_words(&m->g->objects[f.nfa]);
            memcpy(m->sets + m->num_sets, sets + f.a, words * sizeof *sets);
            f.a = set_number(m, words);
        }
        number[i] = (int32_t)num;
        size_t mask = m->frame_table.num_slots - 1, at = hash_of_frame(&f) & mask;
        while (m->frame_table.slots[at] >= 0)
            at = (at + 1) & mask;
        m->frame_table.slots[at] = (int32_t)num;
        m->frame_table.used++;
        m->frames[num++] = f;
    }
    m->num_frames = num;
}

// Keeps the states kept[0..n), which are in order: each moves down.
static void keep_states(struct matcher *m, const int32_t *kept, size_t n, const int32_t *frame_number_of) {
    table_clear(&m->state_table);
    m->num_states = m->num_threads = 0;
    for (size_t i = 0; i < n; i++) {
        struct match_state s = m->states[kept[i]];
        struct thread *threads = m->threads + s.first;
        int32_t note = m->notes[kept[i]];
        for (uint32_t j = 0; j < s.num; j++)
            threads[j].stack = frame_number_of[threads[j].stack];
        if (s.num > 1)
            qsort(threads, s.num, sizeof *threads, by_place);
        m->notes[state_number(m, threads, s.num, s.may_end)] = note; // there is room
    }
}

bool matcher_keep(struct matcher *m, int32_t *states, size_t num) {
    int32_t *kept = malloc((num + 1) * sizeof *kept), *number = calloc(m->num_frames, sizeof *number);
    uint64_t *sets = malloc((m->num_sets + 1) * sizeof *sets);
    bool ok = kept && number && sets;
    size_t n = 0;
    if (ok) {
        memcpy(kept, states, num * sizeof *kept);
        qsort(kept, num, sizeof *kept, by_number);
        for (size_t i = 0; i < num; i++)
            if (n == 0 || kept[n - 1] != kept[i])
                kept[n++] = kept[i];
        for (size_t i = 0; i < n; i++)
            for (uint32_t j = 0; j < m->states[kept[i]].num; j++)
                number[m->threads[m->states[kept[i]].first + j].stack] = 1;
        if (m->num_sets)
            memcpy(sets, m->sets, m->num_sets * sizeof *sets);
        keep_frames(m, number, sets);
        keep_states(m, kept, n, number);
        for (size_t i = 0; i < num; i++)
            states[i] = (int32_t)((int32_t *)bsearch(&states[i], kept, n, sizeof *kept, by_number) - kept);
    }
    free(kept);
    free(number);
    free(sets);
    return ok;
}

struct matcher *matcher_new(struct grammar *g) {
    struct matcher *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->g = g;
    m->walk = 1;
    m->now = malloc(MAX_THREADS * sizeof *m->now);
    m->todo = malloc(MAX_THREADS * sizeof *m->todo);
    m->seen = malloc(MAX_THREADS * sizeof *m->seen);
    if (!m->now || !m->todo || !m->seen || !reserve(&m->frames, 1, &m->cap_frames, sizeof *m->frames)) {
        matcher_free(m);
        return NULL;
    }
    m->frames[0] = (struct match_frame){0};
    m->num_frames = 1;
    return m;
}

void matcher_free(struct matcher *m) {
    if (!m)
        return;
    free(m->states);
    free(m->edges);
    free(m->notes);
    free(m->threads);
    free(m->frames);
    free(m->sets);
    free(m->state_table.slots);
    free(m->frame_table.slots);
    free(m->met.slots);
    free(m->now);
    free(m->todo);
    free(m->seen);
    free(m);
}

bool grammar_takes(struct grammar *g, const char *text, size_t len) {
    struct matcher *m = matcher_new(g);
    int32_t state = m ? matcher_text(m, matcher_start(m), text, len) : MATCHER_FAILED;
    bool takes = state >= 0 && matcher_may_end(m, state);
    matcher_free(m);
    return takes;
}
