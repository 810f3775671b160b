// Forms of arrays: schemas of the first items and of the rest, bounds, and items that have to be there (`contains`), each
// tried at every place where it may stand.
#include "schema_state.h"

enum { MAX_FIRST = 1000, MAX_WITNESSES = 4, MAX_COUNTED = 64 };

struct array_form {
    goal *first; // (num_first)
    int num_first;
    goal rest;
    int min, max;
    goal witnesses[MAX_WITNESSES]; // of the rest, in any order, between items as `rest` says
    int num_witnesses;
    const struct jdoc_value *unique; // uniqueItems, NULL: not asked for
};

// ---- reading the facts

struct array_draft {
    struct schema *s;
    const struct clause *c;
    struct form **forms;
    struct array_form a;
    const struct fact *demands[MAX_WITNESSES + 1]; // of `contains`
    int num_demands;
};

static bool is_none(const struct fact *f) { return f->kind == FACT_CONTAINS && f->max == 0; }

// The goal of item i; i -1: of the items behind all others.
static goal item_goal(struct schema *s, const struct clause *c, int64_t i) {
    int n = 0;
    for (const struct fact_list *l = c->facts; l; l = l->next)
        n++;
    atom *atoms = schema_alloc(s, (size_t)(n + 1) * sizeof *atoms);
    if (!atoms || !schema_step(s, n))
        return -1;
    n = 0;
    for (const struct fact_list *l = c->facts; l; l = l->next) {
        const struct fact *f = &l->fact;
        if (f->kind == FACT_ITEM && i == f->min)
            atoms[n++] = f->atom;
        if (f->kind == FACT_ITEMS && (i < 0 || i >= f->min))
            atoms[n++] = f->atom;
        if (is_none(f) && (i < 0 || i >= f->from))
            atoms[n++] = atom_not(f->atom);
    }
    return schema_goal(s, atoms, n);
}

static bool read_facts(struct array_draft *d) {
    int64_t first = 0, min = 0, max = -1;
    for (const struct fact_list *l = d->c->facts; l; l = l->next) {
        const struct fact *f = &l->fact;
        int64_t needs = f->kind == FACT_ITEM       ? f->min + 1
                        : f->kind == FACT_ITEMS    ? f->min
                        : f->kind == FACT_CONTAINS ? f->from
                                                   : 0;
        first = needs > first ? needs : first;
        if (f->kind == FACT_COUNT) {
            min = f->min > min ? f->min : min;
            max = f->max >= 0 && (max < 0 || f->max < max) ? f->max : max;
        }
        if (f->kind == FACT_CONTAINS && !is_none(f)) {
            if (d->num_demands > MAX_WITNESSES)
                return schema_fail(d->s, NULL, STATUS_LIMIT, "more than %d `contains` of one array",
                                   MAX_WITNESSES);
            d->demands[d->num_demands++] = f;
        }
    }
    if (max >= 0 && first > max)
        first = max;
    if (first > MAX_FIRST)
        return schema_fail(d->s, NULL, STATUS_LIMIT,
                           "more than %d items of an array have schemas of their own", MAX_FIRST);
    d->a.min = (int)min;
    d->a.max = (int)max;
    d->a.num_first = (int)first;
    d->a.first = schema_alloc(d->s, ((size_t)first + 1) * sizeof *d->a.first);
    for (int i = 0; d->a.first && i < first; i++)
        d->a.first[i] = item_goal(d->s, d->c, i);
    d->a.rest = item_goal(d->s, d->c, -1);
    return d->a.first && !d->s->failed;
}

// ---- placing what has to be there

// Shortens the array to what may be there. false: nothing may.
static bool narrow(struct schema *s, struct array_form *a) {
    for (int i = 0; i < a->num_first && (a->max < 0 || i < a->max); i++)
        if (goal_is_empty(s, a->first[i]))
            a->max = i;
    if ((a->max < 0 || a->max > a->num_first) && !a->num_witnesses && goal_is_empty(s, a->rest))
        a->max = a->num_first;
    for (int i = 0; i < a->num_witnesses; i++)
        if (goal_is_empty(s, a->witnesses[i]))
            return false;
    if (a->num_witnesses && a->min < a->num_first + a->num_witnesses)
        a->min = a->num_first + a->num_witnesses;
    if (a->max >= 0 && a->num_first > a->max)
        a->num_first = a->max;
    return a->max < 0 || a->min <= a->max;
}

static bool keep_form(struct array_draft *d, const struct array_form *a) {
    struct array_form *own = schema_alloc(d->s, sizeof *own);
    if (!own)
        return false;
    *own = *a;
    bool may = narrow(d->s, own);
    if (d->s->failed || !may)
        return !d->s->failed;
    if (own->unique && (own->max < 0 || own->max > 1))
        return schema_fail(d->s, own->unique, STATUS_INVALID,
                           "is not supported for arrays of more than one item");
    struct form *f = form_add(d->s, d->forms);
    if (f)
        f->array = own;
    return f != NULL;
}

struct array_placing {
    int demand, left; // items of this demand that are still to be placed
    int slot;         // where the next one may be: first items, then witnesses
    bool exact;       // all others are not so
};
static bool place(struct array_draft *d, const struct array_form *a, struct array_placing p);

static bool next_demand(struct array_draft *d, const struct array_form *a, int demand) {
    if (demand == d->num_demands)
        return keep_form(d, a);
    const struct fact *f = d->demands[demand];
    if (f->max < 0)
        return place(d, a, (struct array_placing){demand, (int)f->min, (int)f->from, false});
    for (int64_t n = f->min; n <= f->max; n++) {
        if (n > MAX_FIRST + MAX_WITNESSES || (a->max >= 0 && n > a->max))
            break;
        if (!place(d, a, (struct array_placing){demand, (int)n, (int)f->from, true}))
            return false;
    }
    return true;
}

// A copy whose first items are its own.
static bool copy_form(struct schema *s, const struct array_form *a, struct array_form *own) {
    *own = *a;
    own->first = schema_alloc(s, ((size_t)a->num_first + 1) * sizeof *own->first);
    if (!own->first)
        return false;
    if (a->num_first)
        memcpy(own->first, a->first, (size_t)a->num_first * sizeof *own->first);
    return true;
}

// Recursion: one level for each slot, at most MAX_FIRST + MAX_WITNESSES of each demand.
static bool place(struct array_draft *d, const struct array_form *a, struct array_placing p) {
    struct schema *s = d->s;
    atom wanted = d->demands[p.demand]->atom;
    int slots = a->num_first + a->num_witnesses;
    struct array_form own;
    if (!schema_step(s, 4) || ++s->place_depth > 2 * MAX_FIRST)
        return schema_fail(s, NULL, STATUS_LIMIT, "`contains` of one array has too many places");
    bool ok = true;
    if (p.slot < slots) { // this one, or not
        if (p.left > 0 && (ok = copy_form(s, a, &own))) {
            goal *g = p.slot < a->num_first ? &own.first[p.slot] : &own.witnesses[p.slot - a->num_first];
            *g = schema_goal_and(s, *g, wanted);
            if (p.slot < a->num_first && own.min < p.slot + 1)
                own.min = p.slot + 1;
            if (!goal_is_empty(s, *g) && (own.max < 0 || own.min <= own.max))
                ok = place(d, &own, (struct array_placing){p.demand, p.left - 1, p.slot + 1, p.exact});
        }
        if (ok && (p.left > 0 || p.exact)) {
            ok = copy_form(s, a, &own);
            if (ok && p.exact) {
                goal *g = p.slot < a->num_first ? &own.first[p.slot] : &own.witnesses[p.slot - a->num_first];
                *g = schema_goal_and(s, *g, atom_not(wanted));
            }
            ok = ok && place(d, &own, (struct array_placing){p.demand, p.left, p.slot + 1, p.exact});
        } else if (ok) {
            ok = next_demand(d, a, p.demand + 1);
        }
    } else if (p.left > 0 && (a->max >= 0 && a->num_first + a->num_witnesses + 1 > a->max)) {
        ok = true;           // no room
    } else if (p.left > 0) { // a new one among the rest
        own = *a;
        goal g = schema_goal_and(s, a->rest, wanted);
        if (!goal_is_empty(s, g)) {
            if (own.num_witnesses == MAX_WITNESSES)
                return schema_fail(s, NULL, STATUS_LIMIT,
                                   "`contains` asks for more than %d items of an array", MAX_WITNESSES);
            own.witnesses[own.num_witnesses++] = g;
            ok = place(d, &own, (struct array_placing){p.demand, p.left - 1, p.slot + 1, p.exact});
        }
    } else {
        own = *a;
        if (p.exact)
            own.rest = schema_goal_and(s, a->rest, atom_not(wanted));
        ok = next_demand(d, &own, p.demand + 1);
    }
    s->place_depth--;
    return ok && !s->failed;
}

bool form_array(struct schema *s, const struct clause *c, struct form **forms) {
    struct array_draft *d = schema_alloc(s, sizeof *d);
    if (!d)
        return false;
    *d = (struct array_draft){.s = s, .c = c, .forms = forms};
    for (const struct fact_list *l = c->facts; l; l = l->next)
        if (l->fact.kind == FACT_UNIQUE)
            d->a.unique = l->fact.node;
    if (!read_facts(d))
        return false;
    return next_demand(d, &d->a, 0);
}

// ---- writing

static expr comma(struct schema *s) {
    expr blanks = gb_json_blanks(s->b);
    return gb_seq_of(s->b, blanks, gb_text(s->b, ","), blanks);
}

// Items of witnesses in the order of `order`, with min to max (-1: any number) others around them.
static expr witnessed(struct schema *s, const struct array_form *a, const int *order, int n, expr rest,
                      int min, int max) {
    struct grammar_builder *b = s->b;
    expr item = gb_seq_of(b, rest, comma(s)), behind = gb_seq_of(b, comma(s), rest);
    if (!schema_step(s, 1))
        return EXPR_NONE;
    if (n == 0)
        return gb_repeat(b, behind, min, max);
    expr witness = goal_expr(s, a->witnesses[order[0]]);
    if (n > 1)
        witness = gb_seq_of(b, witness, comma(s));
    if (min == 0 && max < 0)
        return gb_seq_of(b, gb_repeat(b, item, 0, -1), witness,
                         witnessed(s, a, order + 1, n - 1, rest, 0, -1));
    int most = max < 0 ? min : max, num = 0;
    expr *parts = schema_alloc(s, (size_t)(most + 1) * sizeof *parts);
    if (!parts)
        return EXPR_NONE;
    for (int before = 0; before <= most; before++) {
        bool open = max < 0 && before == most;
        expr tail = witnessed(s, a, order + 1, n - 1, rest, before < min ? min - before : 0,
                              max < 0 ? -1 : max - before);
        parts[num++] = gb_seq_of(b, gb_repeat(b, item, before, open ? -1 : before), witness, tail);
    }
    return gb_alt(b, parts, num);
}

// All orders of the witnesses from `at` on.
static expr orders(struct schema *s, const struct array_form *a, int *order, int at, expr rest, int min,
                   int max) {
    if (at == a->num_witnesses)
        return witnessed(s, a, order, a->num_witnesses, rest, min, max);
    expr all = gb_never(s->b);
    for (int i = at; i < a->num_witnesses; i++) {
        bool same = false;
        for (int j = at; j < i; j++)
            same = same || a->witnesses[order[j]] == a->witnesses[order[i]];
        if (same)
            continue;
        int t = order[at];
        order[at] = order[i];
        order[i] = t;
        all = gb_alt_of(s->b, all, orders(s, a, order, at + 1, rest, min, max));
        order[i] = order[at];
        order[at] = t;
    }
    return all;
}

expr array_expr(struct schema *s, const struct form *f) {
    struct grammar_builder *b = s->b;
    const struct array_form *a = f->array;
    expr rest = goal_is_empty(s, a->rest) ? gb_never(b) : goal_expr(s, a->rest);
    expr *first = schema_alloc(s, ((size_t)a->num_first + 2) * sizeof *first);
    if (!first)
        return EXPR_NONE;
    for (int i = 0; i < a->num_first; i++)
        first[i] = goal_expr(s, a->first[i]);
    if (a->num_witnesses == 0)
        return gb_json_array(b, first, a->num_first, rest, a->min, a->max);
    int fixed = a->num_first + a->num_witnesses;
    int min = a->min > fixed ? a->min - fixed : 0, max = a->max < 0 ? -1 : a->max - fixed;
    if (min > MAX_COUNTED || max > MAX_COUNTED) {
        schema_fail(s, NULL, STATUS_LIMIT, "`contains` is not supported beside bounds of more than %d items",
                    MAX_COUNTED);
        return EXPR_NONE;
    }
    expr all = gb_seq_of(b, gb_text(b, "["), gb_json_blanks(b));
    for (int i = 0; i < a->num_first; i++)
        all = gb_seq_of(b, all, first[i], comma(s));
    int order[MAX_WITNESSES] = {0, 1, 2, 3};
    return gb_seq_of(b, all, orders(s, a, order, 0, rest, min, max), gb_json_blanks(b), gb_text(b, "]"));
}
