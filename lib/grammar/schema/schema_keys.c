// See schema_keys.h.
#include "schema_keys.h"

#include "schema_explore.h"

#include <stdlib.h>

struct key_rules {
    const struct key_name *names;
    int num_names;
    const struct dfa *others;
    const int *label_of_class;           // -1: no such member
    uint8_t other_class[256], byte[256]; // of each class of bytes: others' class, a byte of it
    bool byte_is_own[256];               // no other byte is of this class
};
struct key_state {
    int32_t first, end, at; // names first to end begin so; `at` bytes are read
    int32_t other;          // state of `others`, or DFA_DEAD
};

static int compare_names(const void *a, const void *b) {
    const struct key_name *x = a, *y = b;
    size_t n = x->len < y->len ? x->len : y->len;
    int c = n ? memcmp(x->text, y->text, n) : 0;
    return c ? c : (x->len > y->len) - (x->len < y->len);
}

static bool key_step(const void *arg, const void *state, int class, void *next) {
    const struct key_rules *r = arg;
    const struct key_state *from = state;
    struct key_state *to = next;
    *to = *from;
    to->other =
        from->other == DFA_DEAD
            ? DFA_DEAD
            : r->others->next[(size_t)from->other * (size_t)r->others->num_classes + r->other_class[class]];
    char c = (char)r->byte[class];
    if (r->byte_is_own[class]) {
        while (to->first < to->end &&
               (r->names[to->first].len <= (size_t)from->at || r->names[to->first].text[from->at] != c))
            to->first++;
        to->end = to->first;
        while (to->end < from->end && r->names[to->end].text[from->at] == c)
            to->end++;
    } else {
        to->first = to->end;
    }
    to->at = from->at + 1;
    if (to->first == to->end)
        to->first = to->end = to->at = 0;
    return to->end > 0 || to->other != DFA_DEAD;
}

static int32_t key_label(const void *arg, const void *state) {
    const struct key_rules *r = arg;
    const struct key_state *k = state;
    if (k->first < k->end && r->names[k->first].len == (size_t)k->at)
        return r->names[k->first].label;
    int32_t label = k->other == DFA_DEAD ? -1 : r->others->label[k->other];
    return label < 0 ? -1 : r->label_of_class[label];
}

// Each byte that a name has is a class of its own; the others are told apart as `others` does.
static void key_classes(struct key_rules *r, struct explore *x) {
    bool used[256] = {false};
    int class_of_other[256];
    for (int i = 0; i < r->num_names; i++)
        for (size_t j = 0; j < r->names[i].len; j++)
            used[(unsigned char)r->names[i].text[j]] = true;
    memset(class_of_other, -1, sizeof class_of_other);
    for (int b = 0; b < 256; b++) {
        int other = r->others->class_of[b], *class = &class_of_other[other], own = x->num_classes;
        if (used[b] || *class < 0) {
            r->other_class[own] = (uint8_t)other;
            r->byte[own] = (uint8_t)b;
            r->byte_is_own[own] = used[b];
            x->class_of[b] = (uint8_t)own;
            x->num_classes++;
            if (!used[b])
                *class = own;
        } else {
            x->class_of[b] = (uint8_t) * class;
        }
    }
}

struct dfa *schema_keys(struct schema *s, struct key_name *names, int num_names, const struct dfa *others,
                        const int *label_of_class, int num_labels) {
    struct err err = {0};
    struct key_rules *r = schema_alloc(s, sizeof *r);
    struct dfa *any = others ? NULL : dfa_any(&err), *d = NULL;
    if (!r) {
        dfa_free(any);
        return NULL;
    }
    qsort(names, (size_t)num_names, sizeof *names, compare_names);
    *r = (struct key_rules){.names = names,
                            .num_names = num_names,
                            .others = others ? others : any,
                            .label_of_class = label_of_class};
    if (r->others) {
        struct explore x = {.state_size = sizeof(struct key_state),
                            .num_labels = num_labels,
                            .arg = r,
                            .step = key_step,
                            .label = key_label};
        struct key_state start = {0, num_names, 0,
                                  label_of_class && r->others->num_states > 0 ? 0 : DFA_DEAD};
        key_classes(r, &x);
        d = explore(&x, &start, &err);
    }
    dfa_free(any);
    if (!d)
        schema_fail(s, NULL, err.code, "names of members: %s", err.msg);
    return d;
}
