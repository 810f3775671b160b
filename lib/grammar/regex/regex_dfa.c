// A tree becomes a nondeterministic automaton over code points (Thompson, 1968), its sets of states the states of a
// deterministic one, and code points bytes. Nothing backtracks.
#include "regex_dfa.h"

#include "../work_time.h"

#include "../front.h"
#include "../grow.h"
#include "code_dfa.h"
#include "code_set.h"

enum { MAX_NFA_STATES = 1 << 20, MAX_ARROWS = 1 << 24 };

static void *no_memory(struct err *err) {
    err_set(err, STATUS_NOMEM, "out of memory for a regular expression");
    return NULL;
}

// ---- nondeterministic

enum nfa_kind {
    NFA_CHARS,    // a code point of a set, then `to`
    NFA_SPLIT,    // `to` or `other`
    NFA_BEGIN,    // `to` at the begin of text
    NFA_END,      // `to` at its end
    NFA_ACCEPT,   // text may end
    NFA_ANYTHING, // any text, and it may end
};
struct nfa_state {
    enum nfa_kind kind;
    int set; // -1: any code point
    int to, other;
};

struct nfa {
    const struct regex_tree *t;
    struct nfa_state *states;
    int num, cap;
    struct err *err;
};

static int add_state(struct nfa *n, struct nfa_state s) {
    if (n->num == MAX_NFA_STATES) {
        err_set(n->err, STATUS_LIMIT, "a regular expression is too large with its repeats written out");
        return -1;
    }
    if (!grow_room(&n->states, sizeof *n->states, n->num, &n->cap)) {
        no_memory(n->err);
        return -1;
    }
    n->states[n->num] = s;
    return n->num++;
}

static int add_split(struct nfa *n, int to, int other) {
    return to < 0 || other < 0 ? -1 : add_state(n, (struct nfa_state){NFA_SPLIT, 0, to, other});
}

static int compile(struct nfa *n, int node, int next);

static int compile_repeat(struct nfa *n, const struct regex_node *node, int next) {
    int child = n->t->children[node->first], at = next;
    int num = node->min;
    if (node->max < 0) { // a loop, which takes the last of `min` too
        int loop = add_split(n, next, next), body = loop < 0 ? -1 : compile(n, child, loop);
        if (body < 0)
            return -1;
        n->states[loop].to = body;
        at = num > 0 ? body : loop;
        num -= num > 0;
    }
    for (int i = node->min; i < node->max && at >= 0; i++) {
        int body = compile(n, child, at);
        if (body == at)
            return at; // empty, however often
        at = add_split(n, body, next);
    }
    for (int i = 0; i < num && at >= 0; i++) {
        int body = compile(n, child, at);
        if (body == at)
            return at;
        at = body;
    }
    return at;
}

// The state that takes what the node means and then is in `next`; -1 with err. As deep as the tree.
static int compile(struct nfa *n, int index, int next) {
    const struct regex_node *node = &n->t->nodes[index];
    const int *children = regex_children(n->t, node);
    switch (node->kind) {
    case REGEX_CHARS: return add_state(n, (struct nfa_state){NFA_CHARS, node->set, next, 0});
    case REGEX_BEGIN: return add_state(n, (struct nfa_state){NFA_BEGIN, 0, next, 0});
    case REGEX_END: return add_state(n, (struct nfa_state){NFA_END, 0, next, 0});
    case REGEX_SEQ:
        for (int i = node->num; i-- > 0 && next >= 0;)
            next = compile(n, children[i], next);
        return next;
    case REGEX_ALT: {
        int at = compile(n, children[node->num - 1], next);
        for (int i = node->num - 1; i-- > 0 && at >= 0;)
            at = add_split(n, compile(n, children[i], next), at);
        return at;
    }
    case REGEX_REPEAT: return compile_repeat(n, node, next);
    default:
        regex_error(n->err, STATUS_INVALID, node->at,
                    "a look ahead is supported at the begin of the text alone, as in ^(?!...)");
        return -1;
    }
}

// ---- classes of code points

static int compare_codes(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

// The ranges between all borders of all sets, without surrogates.
static bool cut_ranges(struct code_dfa *d, const struct int_sets *sets) {
    size_t num = sets->num ? sets->starts[sets->num] : 0, n = 0;
    uint32_t *cuts = malloc((num + 4) * sizeof *cuts);
    if (!cuts)
        return false;
    cuts[n++] = 0;
    cuts[n++] = 0xd800;
    cuts[n++] = 0xe000;
    cuts[n++] = CODE_MAX + 1;
    for (size_t i = 0; i < num; i++)
        cuts[n++] = (uint32_t)sets->items[i] + (i & 1);
    qsort(cuts, n, sizeof *cuts, compare_codes);
    d->ranges = malloc(n * sizeof *d->ranges);
    d->class_of = calloc(n, sizeof *d->class_of);
    for (size_t i = 0; d->ranges && i + 1 < n; i++)
        if (cuts[i] < cuts[i + 1] && cuts[i] != 0xd800)
            d->ranges[d->num_ranges++] = (struct code_range){cuts[i], cuts[i + 1] - 1};
    free(cuts);
    return d->ranges && d->class_of;
}

// The first range that does not end before a code point.
static int find_range(const struct code_dfa *d, uint32_t code) {
    int lo = 0, hi = d->num_ranges;
    while (lo < hi) {
        int middle = lo + (hi - lo) / 2;
        if (d->ranges[middle].last < code)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

// The classes of code points, and which of them each set has.
struct alphabet {
    struct int_sets sets_of; // of each class: the sets that it is in
    int *first, *classes;    // of set i: classes[first[i] .. first[i + 1])
};

static void alphabet_free(struct alphabet *a) {
    int_sets_free(&a->sets_of);
    free(a->first);
    free(a->classes);
}

// Turns a list of (key, value) upside down: counts[value] becomes the begin of its keys, which `to` has one after the
// other. Called twice: to == NULL counts, then it fills.
static void place(int *begin, int *to, int value, int key) {
    if (to)
        to[begin[value + 1]++] = key;
    else
        begin[value + 2]++;
}

static void sum_up(int *begin, int num) {
    for (int i = 0; i <= num; i++)
        begin[i + 1] += begin[i];
}

// Ranges that are in the same sets are of one class.
static bool number_classes(struct code_dfa *d, const struct int_sets *sets, struct alphabet *a,
                           struct err *err) {
    int *begin = calloc((size_t)d->num_ranges + 3, sizeof *begin), *list = NULL, len;
    int64_t total = 0;
    for (int pass = 0; begin && pass < 2; pass++) {
        for (int s = 0; s < sets->num; s++) {
            const int32_t *set = int_sets_get(sets, s, &len);
            for (int i = 0; i < len; i += 2) {
                int r = find_range(d, (uint32_t)set[i]), end = find_range(d, (uint32_t)set[i + 1] + 1);
                for (total += end - r; r < end && total <= INT_SETS_MAX; r++)
                    place(begin, list, r, s);
            }
        }
        if (pass == 0 && total <= INT_SETS_MAX) {
            sum_up(begin, d->num_ranges + 1);
            list = malloc(((size_t)total + 1) * sizeof *list);
            total = 0;
        }
        if (!list)
            break;
    }
    for (int r = 0; list && r < d->num_ranges; r++) {
        d->class_of[r] = int_sets_add(&a->sets_of, list + begin[r], begin[r + 1] - begin[r]);
        if (d->class_of[r] < 0) {
            free(list);
            list = NULL;
        }
    }
    if (!list && total > INT_SETS_MAX)
        err_set(err, STATUS_LIMIT, "a regular expression has too many classes of characters");
    else if (!list)
        no_memory(err);
    d->num_classes = a->sets_of.num;
    free(begin);
    free(list);
    return list != NULL;
}

static bool list_classes(struct alphabet *a, int num_sets, struct err *err) {
    a->first = calloc((size_t)num_sets + 3, sizeof *a->first);
    a->classes = malloc(((size_t)a->sets_of.starts[a->sets_of.num] + 1) * sizeof *a->classes);
    if (!a->first || !a->classes)
        return no_memory(err) != NULL;
    for (int pass = 0, len; pass < 2; pass++) {
        for (int c = 0; c < a->sets_of.num; c++) {
            const int32_t *sets = int_sets_get(&a->sets_of, c, &len);
            for (int i = 0; i < len; i++)
                place(a->first, pass ? a->classes : NULL, sets[i], c);
        }
        if (pass == 0)
            sum_up(a->first, num_sets + 1);
    }
    return true;
}

// ---- deterministic

struct bucket {
    int num, cap;
    int *states;
};

struct subset {
    const struct nfa *n;
    struct code_dfa *d;
    struct alphabet letters;
    // of states of n, one for each state of d; the first one has -1 as well, which keeps it apart
    struct int_sets sets;
    int *met, round;        // (nfa states) the last round in which one was met
    int *todo;              // (3 * nfa states) each is put there by at most two others and once at the begin
    int32_t *members;       // (nfa states + 1)
    bool accepts;           // text may end in one that was met
    struct bucket *buckets; // (classes) where the set's states lead
    int *used, num_used;    // (classes) that have any
    struct err *err;
};

static void subset_free(struct subset *s) {
    for (int c = 0; s->buckets && c < s->d->num_classes; c++)
        free(s->buckets[c].states);
    alphabet_free(&s->letters);
    int_sets_free(&s->sets);
    free(s->met);
    free(s->todo);
    free(s->members);
    free(s->buckets);
    free(s->used);
}

// Puts what is reached from the states in todo without text into members, behind `num` that are there; what may pass no
// more is left out. Returns how many members there are.
static int close_over(struct subset *s, int num_todo, bool at_begin, bool at_end, int num) {
    int begin = num;
    s->round++;
    s->accepts = false;
    while (num_todo > 0) {
        int at = s->todo[--num_todo];
        const struct nfa_state *state = &s->n->states[at];
        if (s->met[at] == s->round)
            continue;
        s->met[at] = s->round;
        s->accepts |= state->kind == NFA_ACCEPT || state->kind == NFA_ANYTHING;
        if (state->kind == NFA_ANYTHING) { // and nothing else counts any more
            s->members[begin] = at;
            return begin + 1;
        }
        if (state->kind == NFA_SPLIT || (state->kind == NFA_BEGIN && at_begin) ||
            (state->kind == NFA_END && at_end))
            s->todo[num_todo++] = state->to;
        if (state->kind == NFA_SPLIT)
            s->todo[num_todo++] = state->other;
        if (state->kind == NFA_CHARS || state->kind == NFA_END)
            s->members[num++] = at;
    }
    return num;
}

static int compare_ints(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

// The number of the state for what todo reaches; -1 with err, -2: nothing.
static int subset_state(struct subset *s, int num_todo, bool at_begin) {
    struct code_dfa *d = s->d;
    int num = 0;
    if (!work_time_left(s->err))
        return -1;
    if (at_begin)
        s->members[num++] = -1;
    num = close_over(s, num_todo, at_begin, false, num);
    if (num == 0 && !s->accepts)
        return -2;
    bool accepts = s->accepts;
    if (accepts)
        s->members[num++] = -2; // text may end without a look at what stands behind
    qsort(s->members, (size_t)num, sizeof *s->members, compare_ints);
    int state = int_sets_add(&s->sets, s->members, num);
    if (state < 0 || d->num_states == DFA_MAX_STATES) {
        if (state == -1)
            no_memory(s->err);
        else
            err_set(s->err, STATUS_LIMIT, "the automaton of a regular expression is too large");
        return -1;
    }
    if (state < d->num_states)
        return state;
    num_todo = 0;
    for (int i = 0; i < num; i++)
        if (s->members[i] >= 0)
            s->todo[num_todo++] = s->members[i];
    close_over(s, num_todo, at_begin, true, 0);
    if (d->num_states + 1 >= d->cap_states) {
        int cap = d->cap_states ? 2 * d->cap_states : 64;
        if (!grow_to(&d->ends, sizeof *d->ends, (size_t)cap) ||
            !grow_to(&d->first, sizeof *d->first, (size_t)cap)) {
            no_memory(s->err);
            return -1;
        }
        d->cap_states = cap;
    }
    d->ends[d->num_states++] = accepts || s->accepts;
    return state;
}

static bool put_in_bucket(struct subset *s, int class, int state) {
    struct bucket *b = &s->buckets[class];
    if (!grow_room(&b->states, sizeof *b->states, b->num, &b->cap))
        return no_memory(s->err) != NULL;
    if (b->num == 0)
        s->used[s->num_used++] = class;
    b->states[b->num++] = state;
    return true;
}

// Sorts the arrows of a state's members by class.
static bool fill_buckets(struct subset *s, int state) {
    int num;
    const int32_t *members = int_sets_get(&s->sets, state, &num);
    s->num_used = 0;
    for (int i = 0; i < num; i++) {
        const struct nfa_state *m = members[i] < 0 ? NULL : &s->n->states[members[i]];
        if (!m || m->kind == NFA_END)
            continue;
        bool any = m->kind == NFA_ANYTHING || m->set < 0;
        int from = any ? 0 : s->letters.first[m->set],
            to = any ? s->d->num_classes : s->letters.first[m->set + 1];
        for (int c = from; c < to; c++)
            if (!put_in_bucket(s, any ? c : s->letters.classes[c],
                               m->kind == NFA_ANYTHING ? members[i] : m->to))
                return false;
    }
    return true;
}

static bool subset_arrows(struct subset *s, int state) {
    struct code_dfa *d = s->d;
    if (!fill_buckets(s, state))
        return false;
    d->first[state] = d->num_arrows;
    for (int i = 0; i < s->num_used; i++) {
        struct bucket *b = &s->buckets[s->used[i]];
        memcpy(s->todo, b->states, (size_t)b->num * sizeof *b->states);
        int to = subset_state(s, b->num, false);
        b->num = 0;
        if (to == -1)
            return false;
        if (to < 0)
            continue;
        if (d->num_arrows == MAX_ARROWS)
            return err_set(s->err, STATUS_LIMIT, "the automaton of a regular expression is too large") ==
                   STATUS_OK;
        if (!grow_room(&d->arrows, sizeof *d->arrows, d->num_arrows, &d->cap_arrows))
            return no_memory(s->err) != NULL;
        d->arrows[d->num_arrows++] = (struct code_arrow){s->used[i], to};
    }
    d->first[state + 1] = d->num_arrows;
    return true;
}

// The automaton of what is accepted from state `start`.
static struct dfa *determinise(const struct nfa *n, int start) {
    struct code_dfa d = {0};
    struct subset s = {.n = n, .d = &d, .err = n->err};
    struct dfa *out = NULL;
    size_t num = (size_t)n->num;
    bool ok = cut_ranges(&d, &n->t->sets) || no_memory(n->err);
    ok = ok && number_classes(&d, &n->t->sets, &s.letters, n->err) &&
         list_classes(&s.letters, n->t->sets.num, n->err);
    if (ok) {
        s.met = calloc(num, sizeof *s.met);
        s.todo = malloc(3 * num * sizeof *s.todo);
        s.members = malloc((num + 2) * sizeof *s.members);
        s.buckets = calloc((size_t)d.num_classes, sizeof *s.buckets);
        s.used = malloc((size_t)d.num_classes * sizeof *s.used);
        ok = (s.met && s.todo && s.members && s.buckets && s.used) || no_memory(n->err);
    }
    if (ok) {
        s.todo[0] = start;
        ok = subset_state(&s, 1, true) >= 0;
    }
    for (int i = 0; ok && i < d.num_states; i++)
        ok = subset_arrows(&s, i);
    subset_free(&s);
    if (ok)
        out = code_dfa_bytes(&d, n->err);
    code_dfa_free(&d);
    return out;
}

// ---- the whole expression

// Text that the nodes take one after the other, but for looks ahead, at its begin; then any text if open_end. With
// open_begin, behind any text.
static struct dfa *nodes_dfa(const struct regex_tree *t, const int *nodes, int num, bool open_begin,
                             bool open_end, struct err *err) {
    struct nfa n = {.t = t, .err = err};
    int at = add_state(&n, (struct nfa_state){open_end ? NFA_ANYTHING : NFA_ACCEPT, 0, 0, 0});
    while (num-- > 0 && at >= 0)
        at = compile(&n, nodes[num], at);
    if (open_begin && at >= 0 && (at = add_split(&n, at, at)) >= 0) {
        int any = add_state(&n, (struct nfa_state){NFA_CHARS, -1, at, 0});
        n.states[at].other = any;
        at = any < 0 ? -1 : at;
    }
    struct dfa *d = at < 0 ? NULL : determinise(&n, at);
    free(n.states);
    return d;
}

// d, which is freed, where another automaton, which is freed too, accepts; or does not.
static struct dfa *restrict_to(struct dfa *d, struct dfa *other, bool negated, struct err *err) {
    if (d && other && negated) {
        struct dfa *all_others = dfa_complement(other, err);
        dfa_free(other);
        other = all_others;
    }
    struct dfa *both = d && other ? dfa_intersect(d, other, err) : NULL;
    dfa_free(d);
    dfa_free(other);
    return both;
}

// One of the outermost alternatives: looks ahead at its begin are expressions of their own about the whole text.
static struct dfa *alternative_dfa(const struct regex_tree *t, int index, bool anchored, struct err *err) {
    const struct regex_node *node = &t->nodes[index];
    const int *nodes = node->kind == REGEX_SEQ ? regex_children(t, node) : &index;
    int num = node->kind == REGEX_SEQ ? node->num : 1, first = 0;
    bool at_begin = anchored;
    for (; first < num; first++) {
        enum regex_kind kind = t->nodes[nodes[first]].kind;
        if (kind != REGEX_BEGIN && (kind != REGEX_LOOK || !at_begin))
            break;
        at_begin |= kind == REGEX_BEGIN;
    }
    struct dfa *d = nodes_dfa(t, first < num ? nodes + first : NULL, num - first, !at_begin, !anchored, err);
    for (int i = 0; i < first && d; i++) {
        const struct regex_node *look = &t->nodes[nodes[i]];
        if (look->kind == REGEX_LOOK)
            d = restrict_to(d, nodes_dfa(t, regex_children(t, look), 1, false, true, err), look->negated,
                            err);
    }
    return d;
}

struct dfa *regex_tree_dfa(const struct regex_tree *t, bool anchored, struct err *err) {
    const struct regex_node *root = &t->nodes[t->root];
    bool looks = false;
    for (int i = 0; i < t->num_nodes; i++)
        looks |= t->nodes[i].kind == REGEX_LOOK;
    if (!looks)
        return nodes_dfa(t, &t->root, 1, !anchored, !anchored, err);
    if (root->kind != REGEX_ALT)
        return alternative_dfa(t, t->root, anchored, err);
    struct dfa *d = alternative_dfa(t, t->children[root->first], anchored, err);
    for (int i = 1; i < root->num && d; i++) {
        struct dfa *next = alternative_dfa(t, t->children[root->first + i], anchored, err);
        struct dfa *either = next ? dfa_union(d, next, err) : NULL;
        dfa_free(d);
        dfa_free(next);
        d = either;
    }
    return d;
}

struct dfa *dfa_regex(const char *pattern, size_t len, bool anchored, struct err *err) {
    struct regex_tree *t = regex_parse(pattern, len, 0, err);
    struct dfa *d = t ? regex_tree_dfa(t, anchored, err) : NULL;
    regex_tree_free(t);
    return d;
}
