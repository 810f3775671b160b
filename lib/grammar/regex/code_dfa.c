#include "code_dfa.h"

#include "code_set.h"
#include "dfa_build.h"
#include "int_sets.h"

#include <stdlib.h>
#include <string.h>

void code_dfa_free(struct code_dfa *d) {
    free(d->ranges);
    free(d->class_of);
    free(d->ends);
    free(d->first);
    free(d->arrows);
    *d = (struct code_dfa){0};
}

// Where a run of bytes, or of code points, leads.
struct code_run {
    uint32_t first, last;
    int32_t to;
};

// The bytes that may come in one place of a code point.
struct row {
    int num;
    struct code_run runs[256];
};

enum { MAX_BYTES = 1 << 24 }; // runs in all

// States are those of the automaton, then the nodes: places within a code point.
struct expand {
    const struct code_dfa *d;
    const struct code_run *runs; // of the state's code points, ascending
    int num_runs;
    struct int_sets nodes; // runs of bytes
    struct code_run *rows; // runs of bytes of the states, one after the other
    int *row_first;        // (states + 1)
    int cap_rows;
    int status; // 0, or as int_sets_add() has it
};

static void row_add(struct row *r, uint32_t first, uint32_t last, int32_t to) {
    struct code_run *end = r->num ? &r->runs[r->num - 1] : NULL;
    if (end && end->to == to && end->last + 1 == first)
        end->last = last;
    else
        r->runs[r->num++] = (struct code_run){first, last, to};
}

static int32_t add_node(struct expand *x, const struct row *row) {
    int node = int_sets_add(&x->nodes, (const int32_t *)row->runs, 3 * row->num);
    if (node < 0 || x->d->num_states + node >= DFA_MAX_STATES)
        x->status = node < 0 ? node : -2;
    return node < 0 ? 0 : x->d->num_states + node;
}

// A node that accepts any `num` continuation bytes of a code point, and leads to `to`.
static int32_t full_node(struct expand *x, int num, int32_t to) {
    for (; num > 0; num--)
        to = add_node(x, &(struct row){1, {{0x80, 0xbf, to}}});
    return to;
}

// Adds to a row where the code points of [lo, hi] lead. Its bytes are lead + (code point - base >> 6 * rest), with
// `rest` bytes behind each. At most 3 deep.
static void add_codes(struct expand *x, struct row *row, uint32_t lo, uint32_t hi, uint32_t base,
                      uint32_t lead, int rest) {
    uint32_t step = 1u << 6 * rest;
    int at = 0, end = x->num_runs; // the first run that does not end before lo
    while (at < end) {
        int middle = at + (end - at) / 2;
        if (x->runs[middle].last < lo)
            at = middle + 1;
        else
            end = middle;
    }
    for (; at < x->num_runs && x->runs[at].first <= hi && !x->status; at++) {
        const struct code_run *r = &x->runs[at];
        uint32_t first = r->first > lo ? r->first : lo, last = r->last < hi ? r->last : hi;
        while (first <= last && !x->status) {
            uint32_t byte = (first - base) / step, begin = base + byte * step, after = begin + step;
            if (first == begin && last >= after - 1) {
                uint32_t num = (last + 1 - begin) / step;
                row_add(row, lead + byte, lead + byte + num - 1, full_node(x, rest, r->to));
                first = begin + num * step;
                continue;
            }
            struct row inner;
            inner.num = 0;
            add_codes(x, &inner, first, after - 1 < hi ? after - 1 : hi, begin, 0x80, rest - 1);
            row_add(row, lead + byte, lead + byte, add_node(x, &inner));
            first = after;
        }
        lo = first > lo ? first : lo; // the inner row has the other runs that begin there
    }
}

static bool add_state(struct expand *x, int state, const struct row *row) {
    int first = x->row_first[state];
    if (first + row->num >= x->cap_rows) {
        int cap = 2 * (first + row->num) + 2;
        struct code_run *rows = cap <= MAX_BYTES ? realloc(x->rows, (size_t)cap * sizeof *rows) : NULL;
        if (!rows) {
            x->status = cap <= MAX_BYTES ? -1 : -2;
            return false;
        }
        x->rows = rows;
        x->cap_rows = cap;
    }
    memcpy(x->rows + first, row->runs, (size_t)row->num * sizeof *row->runs);
    x->row_first[state + 1] = first + row->num;
    return true;
}

// Rows of all states, and the nodes that they need.
static bool expand_states(struct expand *x) {
    const struct code_dfa *d = x->d;
    int32_t *to = malloc(((size_t)d->num_classes + 1) * sizeof *to);
    struct code_run *runs = malloc(((size_t)d->num_ranges + 1) * sizeof *runs);
    x->row_first = calloc((size_t)d->num_states + 1, sizeof *x->row_first);
    x->status = to && runs && x->row_first ? 0 : -1;
    x->runs = runs;
    if (to)
        memset(to, 0xff, ((size_t)d->num_classes + 1) * sizeof *to);
    for (int s = 0; s < d->num_states && !x->status; s++) {
        for (int a = d->first[s]; a < d->first[s + 1]; a++)
            to[d->arrows[a].class] = d->arrows[a].to;
        x->num_runs = 0;
        for (int i = 0; i < d->num_ranges; i++) {
            struct code_run *last = x->num_runs ? &runs[x->num_runs - 1] : NULL;
            int32_t target = to[d->class_of[i]];
            if (target < 0)
                continue;
            if (last && last->to == target && last->last + 1 == d->ranges[i].first)
                last->last = d->ranges[i].last;
            else
                runs[x->num_runs++] = (struct code_run){d->ranges[i].first, d->ranges[i].last, target};
        }
        for (int a = d->first[s]; a < d->first[s + 1]; a++)
            to[d->arrows[a].class] = -1;
        struct row row;
        row.num = 0;
        add_codes(x, &row, 0, 0x7f, 0, 0, 0);
        add_codes(x, &row, 0x80, 0x7ff, 0, 0xc0, 1);
        add_codes(x, &row, 0x800, 0xffff, 0, 0xe0, 2);
        add_codes(x, &row, 0x10000, CODE_MAX, 0, 0xf0, 3);
        if (!x->status)
            add_state(x, s, &row);
    }
    free(to);
    free(runs);
    return !x->status;
}

static const struct code_run *row_of(const struct expand *x, int state, int *num) {
    if (state < x->d->num_states) {
        *num = x->row_first[state + 1] - x->row_first[state];
        return x->rows + x->row_first[state];
    }
    const int32_t *items = int_sets_get(&x->nodes, state - x->d->num_states, num);
    *num /= 3;
    return (const struct code_run *)items;
}

static struct dfa *join_states(const struct expand *x, struct err *err) {
    int num_states = x->d->num_states + x->nodes.num, num, num_classes = 0;
    bool begins[257] = {true}; // a class of bytes
    for (int s = 0; s < num_states; s++) {
        const struct code_run *row = row_of(x, s, &num);
        for (int i = 0; i < num; i++)
            begins[row[i].first] = begins[row[i].last + 1] = true;
    }
    uint8_t class_of[256];
    for (int byte = 0; byte < 256; byte++)
        class_of[byte] = (uint8_t)((num_classes += begins[byte]) - 1);
    struct dfa_build b;
    bool ok = dfa_build_begin(&b, class_of, num_classes, err);
    for (int s = 0; ok && s < num_states; s++)
        ok = dfa_build_state(&b, s < x->d->num_states && x->d->ends[s] ? 0 : -1, err) >= 0;
    for (int s = 0; ok && s < num_states; s++) {
        const struct code_run *row = row_of(x, s, &num);
        for (int i = 0; i < num; i++)
            for (int c = class_of[row[i].first]; c <= class_of[row[i].last]; c++)
                dfa_build_arrow(&b, s, c, row[i].to);
    }
    if (ok)
        return dfa_build_end(&b, err);
    dfa_build_free(&b);
    return NULL;
}

struct dfa *code_dfa_bytes(const struct code_dfa *d, struct err *err) {
    struct expand x = {.d = d};
    struct dfa *out = NULL;
    if (expand_states(&x))
        out = join_states(&x, err);
    else if (x.status == -1)
        err_set(err, STATUS_NOMEM, "out of memory for an automaton");
    else
        err_set(err, STATUS_LIMIT, "its automaton is too large");
    int_sets_free(&x.nodes);
    free(x.rows);
    free(x.row_first);
    return out;
}
