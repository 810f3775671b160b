// Goals: sets of atoms, each there once; which have no value at all; their expressions.
#include "schema_state.h"

#include <stdlib.h>

enum { NOT_ASKED, IN_PROGRESS, DONE, FAILED, MAX_ATOMS = 2000, MAX_REF_HOPS = 100 };

atom value_atom(const struct schema *s, const struct jdoc_value *v, bool negated) {
    return (atom)(v - s->doc.values) << 2 | 2 | negated;
}

// The schema that v alone refers to: the target of a $ref without siblings, the schema that `not` negates.
static const struct jdoc_value *follow(struct schema *s, const struct jdoc_value *v, bool *negated) {
    const struct jdoc_value *ref = schema_get(s, v, "$ref");
    if (ref && (v->len == 1 || schema_draft(s, v) <= DRAFT_7))
        return schema_resolve(s, v, "$ref", ref);
    const struct jdoc_value *inner = v->len == 1 && !s->unevaluated ? schema_get(s, v, "not") : NULL;
    if (inner)
        *negated = !*negated;
    return inner ? inner : v;
}

atom schema_atom(struct schema *s, const struct jdoc_value *v, bool negated) {
    for (int hops = 0; v->type == JDOC_OBJECT && v->len > 0; hops++) {
        const struct jdoc_value *next = follow(s, v, &negated);
        if (!next)
            return ATOM_NEVER; // failed
        if (next == v)
            return (atom)(v - s->doc.values) << 2 | negated;
        if (hops == MAX_REF_HOPS) {
            schema_fail(s, v, STATUS_INVALID, "refers to itself");
            return ATOM_NEVER;
        }
        v = next;
    }
    if (v->type == JDOC_OBJECT || v->type == JDOC_TRUE)
        return negated ? ATOM_NEVER : ATOM_ANY;
    if (v->type == JDOC_FALSE)
        return negated ? ATOM_ANY : ATOM_NEVER;
    schema_fail(s, v, STATUS_INVALID, "expected a schema, found %s", jdoc_type_name(v));
    return ATOM_NEVER;
}

// ---- the table

static uint32_t hash_atoms(const atom *atoms, int n) {
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (int i = 0; i < n; i++)
        h = (h ^ (uint32_t)atoms[i]) * 0xd1b54a32d192ed03u, h ^= h >> 29;
    return (uint32_t)(h >> 16);
}

static bool grow_goals(struct schema *s) {
    if (s->num_goals == s->cap_goals) {
        int cap = s->cap_goals ? 2 * s->cap_goals : 256;
        struct goal_data *more = schema_alloc(s, (size_t)cap * sizeof *more);
        if (!more)
            return false;
        if (s->num_goals)
            memcpy(more, s->goals, (size_t)s->num_goals * sizeof *more);
        s->goals = more;
        s->cap_goals = cap;
    }
    if (2 * (s->num_goals + 1) > s->goal_slots) {
        int slots = s->goal_slots ? 2 * s->goal_slots : 1024;
        int32_t *table = schema_alloc(s, (size_t)slots * sizeof *table);
        if (!table)
            return false;
        for (goal g = 0; g < s->num_goals; g++) {
            uint32_t at = hash_atoms(s->goals[g].atoms, s->goals[g].num_atoms) & (uint32_t)(slots - 1);
            while (table[at])
                at = (at + 1) & (uint32_t)(slots - 1);
            table[at] = g + 1;
        }
        s->goal_table = table;
        s->goal_slots = slots;
    }
    return true;
}

// The goal of sorted atoms.
static goal find_goal(struct schema *s, const atom *atoms, int n) {
    if (!grow_goals(s))
        return -1;
    uint32_t mask = (uint32_t)(s->goal_slots - 1), at = hash_atoms(atoms, n) & mask;
    for (; s->goal_table[at]; at = (at + 1) & mask) {
        const struct goal_data *g = &s->goals[s->goal_table[at] - 1];
        if (g->num_atoms == n && (n == 0 || memcmp(g->atoms, atoms, (size_t)n * sizeof *atoms) == 0))
            return s->goal_table[at] - 1;
    }
    atom *copy = schema_alloc(s, (size_t)(n + 1) * sizeof *copy);
    if (!copy || !schema_step(s, 1 + n))
        return -1;
    if (n)
        memcpy(copy, atoms, (size_t)n * sizeof *copy);
    s->goals[s->num_goals] =
        (struct goal_data){.atoms = copy, .num_atoms = n, .expr = EXPR_NONE, .next_queued = -1};
    s->goal_table[at] = ++s->num_goals;
    return s->num_goals - 1;
}

static int compare_atoms(const void *a, const void *b) {
    atom x = *(const atom *)a, y = *(const atom *)b;
    return (x > y) - (x < y);
}

goal schema_goal(struct schema *s, const atom *atoms, int n) {
    atom list[64], *sorted = list;
    if (s->num_goals == 0) {
        atom never = ATOM_NEVER;
        if (find_goal(s, NULL, 0) != GOAL_ANY || find_goal(s, &never, 1) != GOAL_NEVER)
            return -1;
    }
    if (n > MAX_ATOMS)
        return schema_fail(s, NULL, STATUS_LIMIT, "the schema is too complex"), -1;
    if (n > 64 && !(sorted = schema_alloc(s, (size_t)n * sizeof *sorted)))
        return -1;
    int m = 0;
    for (int i = 0; i < n; i++) {
        if (atoms[i] == ATOM_NEVER)
            return s->failed ? -1 : GOAL_NEVER;
        if (atoms[i] != ATOM_ANY)
            sorted[m++] = atoms[i];
    }
    qsort(sorted, (size_t)m, sizeof *sorted, compare_atoms);
    n = m;
    m = 0;
    for (int i = 0; i < n; i++)
        if (m == 0 || sorted[m - 1] != sorted[i])
            sorted[m++] = sorted[i];
    for (int i = 1; i < m; i++)
        if ((sorted[i - 1] ^ 1) == sorted[i])
            return GOAL_NEVER;
    return find_goal(s, sorted, m);
}

goal schema_goal_and(struct schema *s, goal g, atom a) {
    if (g < 0 || a == ATOM_ANY || g == GOAL_NEVER)
        return g;
    const struct goal_data *d = &s->goals[g];
    atom list[64], *all = list;
    int n = d->num_atoms;
    if (n >= 64 && !(all = schema_alloc(s, (size_t)(n + 1) * sizeof *all)))
        return -1;
    if (n)
        memcpy(all, d->atoms, (size_t)n * sizeof *all);
    all[n] = a;
    return schema_goal(s, all, n + 1);
}

// ---- forms

bool goal_forms(struct schema *s, goal g, enum json_type type, const struct form **forms) {
    *forms = NULL;
    if (g < 0 || s->failed)
        return false;
    if (!s->goals[g].types && !(s->goals[g].types = schema_alloc(s, NUM_TYPES * sizeof *s->goals[g].types)))
        return false;
    struct goal_type *t = &s->goals[g].types[type];
    if (t->state == FAILED) {
        err_set(s->err, t->err->code, "%s", t->err->msg);
        s->failed = true;
        return false;
    }
    if (t->state != DONE) {
        t->state = IN_PROGRESS;
        bool ok = s->expand(s, g, type, &t->forms);
        t->state = ok ? DONE : NOT_ASKED;
        if (!ok)
            return false;
    }
    *forms = t->forms;
    return true;
}

// A failure here is none of the schema's, unless it asks for the forms later.
bool goal_is_empty_of(struct schema *s, goal g, enum json_type type) {
    const struct form *forms;
    if (g < 0 || g == GOAL_ANY || s->failed)
        return false;
    if (g == GOAL_NEVER)
        return true;
    const struct goal_type *types = s->goals[g].types;
    if (types && (types[type].state == IN_PROGRESS || types[type].state == FAILED))
        return false;
    if (!(types && types[type].state == DONE) && s->depth >= MAX_DEPTH)
        return false;
    struct err *outer = s->err, inner = {0};
    int place_depth = s->place_depth;
    s->err = &inner;
    s->place_depth = 0;
    s->depth++;
    bool ok = goal_forms(s, g, type, &forms);
    s->depth--;
    s->err = outer;
    s->place_depth = place_depth;
    if (ok)
        return forms == NULL;
    s->failed = false;
    if (inner.code == STATUS_NOMEM || s->steps > MAX_STEPS) { // of the whole
        err_set(s->err, inner.code, "%s", inner.msg);
        s->failed = true;
    }
    struct err *kept = s->failed || !s->goals[g].types ? NULL : schema_alloc(s, sizeof *kept);
    if (kept) {
        *kept = inner;
        s->goals[g].types[type] = (struct goal_type){.state = FAILED, .err = kept};
    }
    return false;
}

bool goal_is_empty(struct schema *s, goal g) {
    for (int t = 0; t < NUM_TYPES; t++)
        if (!goal_is_empty_of(s, g, (enum json_type)t))
            return false;
    return true;
}

// ---- expressions

static bool all_forms(struct schema *s, goal g) {
    const struct form *forms;
    for (int t = 0; t < NUM_TYPES; t++)
        if (!goal_forms(s, g, (enum json_type)t, &forms))
            return false;
    return true;
}

// Whether every form is written without goals of other values.
static bool is_simple(const struct goal_data *d) {
    for (int t = TYPE_ARRAY; t <= TYPE_OBJECT; t++)
        for (const struct form *f = d->types[t].forms; f; f = f->next)
            if (!f->any)
                return false;
    return true;
}

static expr new_rule(struct schema *s, goal g) {
    char name[80];
    const struct goal_data *d = &s->goals[g];
    schema_name(s, atom_node(s, d->atoms[0]), name, sizeof name);
    return gb_rule(s->b, name);
}

expr goal_expr(struct schema *s, goal g) {
    if (g < 0 || s->failed)
        return EXPR_NONE;
    if (g == GOAL_ANY)
        return gb_json_any(s->b);
    if (g == GOAL_NEVER)
        return gb_never(s->b);
    if (s->goals[g].expr != EXPR_NONE)
        return s->goals[g].expr;
    if (!all_forms(s, g))
        return EXPR_NONE;
    if (is_simple(&s->goals[g]))
        return s->goals[g].expr = s->write(s, g);
    if (s->queue_end >= 0)
        s->goals[s->queue_end].next_queued = g;
    else
        s->queue = g;
    s->queue_end = g;
    return s->goals[g].expr = new_rule(s, g);
}

bool goals_write(struct schema *s) {
    while (s->queue >= 0 && !s->failed) {
        goal g = s->queue;
        s->queue = s->goals[g].next_queued;
        if (s->queue < 0)
            s->queue_end = -1;
        gb_define(s->b, s->goals[g].expr, s->write(s, g));
        if (!schema_step(s, 1))
            return false;
        if (gb_failed(s->b, s->err) != STATUS_OK)
            s->failed = true;
    }
    return !s->failed;
}
