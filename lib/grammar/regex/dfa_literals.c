// The smallest automaton of a list of texts. They are sorted, so that a state is made once no further text goes through
// it, and only where none is like it (Daciuk, Mihov, Watson and Watson, 2000): no state is made that is not kept.
#include "../grow.h"
#include "../work_time.h"
#include "dfa_build.h"
#include "int_sets.h"

enum { MAX_ENTRIES = 1 << 24 }; // of the table

struct listed_text {
    const char *p;
    size_t len;
};

static int compare_texts(const void *a, const void *b) {
    const struct listed_text *x = a, *y = b;
    size_t n = x->len < y->len ? x->len : y->len;
    int c = n ? memcmp(x->p, y->p, n) : 0;
    return c ? c : (x->len > y->len) - (x->len < y->len);
}

// A state is its arrows, by byte, and whether text may end in it. Those on the way of the last text are open.
struct text_states {
    struct int_sets states; // the others; the start is made last
    int32_t *arrows;        // (num) of the open states: those of the deepest last
    int num, cap;
    int *first; // (the longest text + 1) of each open state
    bool *ends;
};

static int32_t make_arrow(unsigned char byte, int to) { return (int32_t)byte << DFA_STATE_BITS | to; }

static bool push(struct text_states *l, int32_t item, struct err *err) {
    if (!grow_room(&l->arrows, sizeof *l->arrows, l->num, &l->cap))
        return err_set(err, STATUS_NOMEM, "out of memory for an automaton") == STATUS_OK;
    l->arrows[l->num++] = item;
    return true;
}

// Makes the deepest open state, to which `text` leads with `depth` bytes, where it is new, and tells the one before.
static bool close_state(struct text_states *l, const struct listed_text *text, size_t depth,
                        struct err *err) {
    if (!push(l, l->ends[depth], err))
        return false;
    int s = int_sets_add(&l->states, l->arrows + l->first[depth], l->num - l->first[depth]);
    if (s == -1)
        return err_set(err, STATUS_NOMEM, "out of memory for an automaton") == STATUS_OK;
    if (s < 0 || s >= 1 << DFA_STATE_BITS)
        return err_set(err, STATUS_LIMIT, "a list of texts needs more than %d states", 1 << DFA_STATE_BITS) ==
               STATUS_OK;
    l->num = l->first[depth];
    return depth == 0 || push(l, make_arrow((unsigned char)text->p[depth - 1], s), err);
}

static bool add_texts(struct text_states *l, const struct listed_text *texts, int n, struct err *err) {
    for (int i = 0; i <= n; i++) {
        const struct listed_text *before = i ? &texts[i - 1] : NULL, *t = i < n ? &texts[i] : NULL;
        size_t same = 0, depth = before ? before->len : 0;
        while (before && t && same < depth && same < t->len && before->p[same] == t->p[same])
            same++;
        if (!work_time_left(err))
            return false;
        for (; before && depth > same; depth--)
            if (!close_state(l, before, depth, err))
                return false;
        for (; t && depth < t->len; depth++) {
            l->first[depth + 1] = l->num;
            l->ends[depth + 1] = false;
        }
        if (t)
            l->ends[t->len] = true;
    }
    return n == 0 || close_state(l, NULL, 0, err);
}

// The table. States are numbered from the last one made on, the start.
static struct dfa *make_table(const struct text_states *l, struct err *err) {
    struct dfa *d = calloc(1, sizeof *d);
    size_t n = (size_t)l->states.num, k = 0;
    int len, unused = -1;
    bool used[256] = {false};
    for (int s = 0; s < l->states.num; s++) {
        const int32_t *arrows = int_sets_get(&l->states, s, &len);
        for (int i = 0; i + 1 < len; i++)
            used[arrows[i] >> DFA_STATE_BITS] = true;
    }
    for (int byte = 0; d && byte < 256; byte++) {
        if (!used[byte] && unused < 0)
            unused = (int)k++;
        d->class_of[byte] = (uint8_t)(used[byte] ? (int)k++ : unused);
    }
    if (n * k > MAX_ENTRIES) {
        err_set(err, STATUS_LIMIT, "a list of texts needs more than %d MiB", MAX_ENTRIES >> 18);
        free(d);
        return NULL;
    }
    if (!d || !(d->next = malloc((n * k + 1) * sizeof *d->next)) ||
        !(d->label = malloc((n + 1) * sizeof *d->label))) {
        err_set(err, STATUS_NOMEM, "out of memory for an automaton");
        dfa_free(d);
        return NULL;
    }
    d->num_states = (int)n;
    d->num_classes = (int)k;
    memset(d->next, 0xff, n * k * sizeof *d->next); // DFA_DEAD
    for (size_t s = 0; s < n; s++) {
        const int32_t *arrows = int_sets_get(&l->states, (int)(n - 1 - s), &len);
        for (int i = 0; i + 1 < len; i++)
            d->next[s * k + d->class_of[arrows[i] >> DFA_STATE_BITS]] =
                (int32_t)n - 1 - (arrows[i] & ((1 << DFA_STATE_BITS) - 1));
        d->label[s] = arrows[len - 1] ? 0 : -1;
    }
    dfa_merge_classes(d);
    return d;
}

struct dfa *dfa_literals(const char *const *texts, const size_t *lens, int n, struct err *err) {
    struct text_states l = {0};
    struct listed_text *sorted = malloc(((size_t)n + 1) * sizeof *sorted);
    struct dfa *d = NULL;
    size_t longest = 0;
    for (int i = 0; sorted && i < n; i++) {
        sorted[i] = (struct listed_text){texts[i], lens[i]};
        longest = lens[i] > longest ? lens[i] : longest;
    }
    l.first = calloc(longest + 1, sizeof *l.first);
    l.ends = calloc(longest + 1, sizeof *l.ends);
    if (!sorted || !l.first || !l.ends) {
        err_set(err, STATUS_NOMEM, "out of memory for an automaton");
    } else {
        if (n > 0)
            qsort(sorted, (size_t)n, sizeof *sorted, compare_texts);
        if (add_texts(&l, sorted, n, err))
            d = make_table(&l, err);
    }
    int_sets_free(&l.states);
    free(l.arrows);
    free(l.first);
    free(l.ends);
    free(sorted);
    return d;
}
