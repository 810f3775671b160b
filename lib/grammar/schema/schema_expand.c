// From atoms to forms: reads what all atoms of a goal say of a value of one type, and branches where there is a choice,
// the narrowest first, without those alternatives that contradict what is known.
#include "schema_state.h"

// ---- what is known already

enum verdict { UNKNOWN, HOLDS, CONTRADICTS };

// parent: whose atom it is.
static enum verdict atom_verdict(struct schema *s, enum json_type type, const struct clause *c, atom a,
                                 const struct origin *parent) {
    if (a == ATOM_ANY)
        return HOLDS;
    if (a == ATOM_NEVER || atom_excludes(s, a, type))
        return CONTRADICTS;
    if (atom_excludes(s, atom_not(a), type))
        return HOLDS;
    for (const struct origin *o = parent; o; o = o->parent)
        if (o->atom == a)
            return UNKNOWN; // it refers to itself
    for (const struct origin *o = c->read; o; o = o->next) {
        if (o->atom == a)
            return HOLDS;
        if (o->atom == (a ^ 1))
            return CONTRADICTS;
    }
    return UNKNOWN;
}

static enum verdict count_verdict(const struct clause *c, const struct fact *f) {
    int64_t min = 0, max = -1;
    for (const struct fact_list *l = c->facts; l; l = l->next)
        if (l->fact.kind == FACT_COUNT) {
            min = l->fact.min > min ? l->fact.min : min;
            max = l->fact.max >= 0 && (max < 0 || l->fact.max < max) ? l->fact.max : max;
        }
    if ((f->max >= 0 && min > f->max) || (max >= 0 && f->min > max))
        return CONTRADICTS;
    return f->min <= min && (f->max < 0 || (max >= 0 && max <= f->max)) ? HOLDS : UNKNOWN;
}

static bool requires(const struct schema *s, const struct fact_list *l, const struct jdoc_value *name) {
    for (; l; l = l->next)
        if (l->fact.kind == FACT_REQUIRED && schema_same_text(s, l->fact.node, name))
            return true;
    return false;
}

static enum verdict property_verdict(struct schema *s, const struct clause *c, const struct fact_list *with,
                                     const struct fact *f) {
    bool required = false;
    goal g = object_member(s, c, f->node, &required);
    if (f->kind == FACT_REQUIRED)
        return required ? HOLDS : goal_is_empty(s, g) ? CONTRADICTS : UNKNOWN;
    if ((required || requires(s, with, f->node)) && goal_is_empty(s, schema_goal_and(s, g, f->atom)))
        return CONTRADICTS;
    return goal_is_empty(s, schema_goal_and(s, g, atom_not(f->atom))) ? HOLDS : UNKNOWN;
}

static enum verdict alternative_verdict(struct schema *s, enum json_type type, const struct clause *c,
                                        const struct alternative *a, const struct origin *parent) {
    enum verdict all = HOLDS;
    for (const struct fact_list *l = a->facts; l && all != CONTRADICTS; l = l->next) {
        const struct fact *f = &l->fact;
        enum verdict v = f->kind == FACT_ATOM    ? atom_verdict(s, type, c, f->atom, parent)
                         : f->kind == FACT_COUNT ? count_verdict(c, f)
                         : f->kind == FACT_PROPERTY || f->kind == FACT_REQUIRED
                             ? property_verdict(s, c, a->facts, f)
                             : UNKNOWN;
        all = v == CONTRADICTS ? v : v == UNKNOWN ? UNKNOWN : all;
    }
    return all;
}

// ---- the search

static bool apply(struct schema *s, struct clause *c, const struct schema_choice *choice,
                  const struct alternative *a) {
    for (const struct fact_list *l = a->facts; l; l = l->next)
        if (!(l->fact.kind == FACT_ATOM ? clause_todo(s, c, l->fact.atom, choice->parent)
                                        : clause_add(s, c, l->fact)))
            return false;
    return true;
}

// Turns round what lies on the list before `end`: what a schema says first is read first.
static void reverse_todo(struct clause *c, const struct todo *end) {
    const struct todo *back = end;
    while (c->todo != end) {
        struct todo *t = (struct todo *)c->todo;
        c->todo = t->next;
        t->next = back;
        back = t;
    }
    c->todo = back;
}

static bool read_todo(struct schema *s, enum json_type type, struct clause *c) {
    while (c->todo && !c->dead) {
        const struct todo *t = c->todo;
        bool again = false;
        c->todo = t->next;
        for (const struct origin *o = c->read; o; o = o->next) {
            again = again || (o->atom == t->atom && !s->unevaluated);
            c->dead = c->dead || o->atom == (t->atom ^ 1);
        }
        if (again || c->dead)
            continue;
        struct origin *o = schema_alloc(s, sizeof *o);
        if (!o || !schema_step(s, 1))
            return false;
        *o = (struct origin){t->atom, t->parent, c->read, t->parent && atom_negated(t->parent->atom)};
        c->read = o;
        const struct todo *rest = c->todo;
        if (!atom_say(s, type, c, o))
            return false;
        reverse_todo(c, rest);
    }
    return true;
}

// Where the members of an object are a closed set, `EXISTS` is one alternative for each that it may mean. *out: the
// alternatives that a stands for, at the end of a list.
static bool open_exists(struct schema *s, const struct clause *c, const struct alternative *a,
                        const struct alternative ***end) {
    const struct fact_list *exists = a->facts;
    const struct node_list *closed = object_closed(s, c);
    while (exists && exists->fact.kind != FACT_EXISTS)
        exists = exists->next;
    if (!exists || !closed || exists->fact.within == FACT_NAMES) {
        struct alternative *copy = schema_alloc(s, sizeof *copy);
        if (!copy)
            return false;
        copy->facts = a->facts;
        **end = copy;
        *end = (const struct alternative **)&copy->next;
        return true;
    }
    for (; closed; closed = closed->next)
        for (const struct jdoc_value *names = node_names(s, closed), *k = jdoc_first(&s->doc, names); k;
             k = jdoc_after(&s->doc, names, k, true)) {
            if (!object_selects(s, &exists->fact, k))
                continue;
            struct fact facts[] = {{.kind = FACT_REQUIRED, .node = k},
                                   {.kind = FACT_PROPERTY, .node = k, .atom = exists->fact.atom}};
            struct schema_choice one = {0};
            struct alternative *left;
            if (!choice_add(s, &one, facts, 2))
                return false;
            left = (struct alternative *)one.alternatives;
            for (const struct fact_list *l = a->facts; l; l = l->next)
                if (l != exists) {
                    struct fact_list *copy = schema_alloc(s, sizeof *copy);
                    if (!copy)
                        return false;
                    *copy = (struct fact_list){l->fact, left->facts};
                    left->facts = copy;
                }
            **end = left;
            *end = (const struct alternative **)&left->next;
        }
    return !s->failed;
}

// Leaves out what is decided. *unit: the only alternative that is left of some choice, which was taken out.
static bool simplify(struct schema *s, enum json_type type, struct clause *c,
                     const struct schema_choice **unit) {
    const struct schema_choice *kept = NULL;
    *unit = NULL;
    for (const struct schema_choice *h = c->choices, *next; h && !c->dead; h = next) {
        struct schema_choice *left = choice_begin(s, h->parent);
        const struct alternative **end = left ? &left->alternatives : NULL, *opened = NULL, **last = &opened;
        bool holds = false;
        next = h->next;
        if (!left)
            return false;
        for (const struct alternative *a = h->alternatives; a && !*unit; a = a->next)
            if (!open_exists(s, c, a, &last))
                return false;
        for (const struct alternative *a = opened; a && !holds; a = a->next) {
            enum verdict v = alternative_verdict(s, type, c, a, h->parent);
            holds = v == HOLDS && !s->unevaluated;
            if (v == CONTRADICTS)
                continue;
            struct alternative *copy = schema_alloc(s, sizeof *copy);
            if (!copy || s->failed)
                return false;
            copy->facts = a->facts;
            *end = copy;
            end = &copy->next;
        }
        if (holds)
            continue;
        if (*unit) { // look at the others again once it has been read
            struct schema_choice *same = choice_begin(s, h->parent);
            if (!same)
                return false;
            same->alternatives = h->alternatives;
            left = same;
        } else if (!left->alternatives) {
            c->dead = true;
        } else if (!left->alternatives->next) {
            *unit = left;
            continue;
        }
        left->next = kept;
        kept = left;
    }
    const struct schema_choice *back = NULL; // in the order that they had
    while (kept) {
        struct schema_choice *k = (struct schema_choice *)kept;
        kept = k->next;
        k->next = back;
        back = k;
    }
    c->choices = back;
    return !s->failed;
}

static bool settle(struct schema *s, enum json_type type, struct clause *c) {
    for (;;) {
        const struct schema_choice *unit;
        if (!read_todo(s, type, c))
            return false;
        if (!c->dead && type == TYPE_OBJECT && c->branched && object_contradicts(s, c))
            c->dead = true;
        if (s->failed)
            return false;
        if (c->dead || !c->choices)
            return true;
        if (!simplify(s, type, c, &unit))
            return false;
        if (c->dead || !unit)
            return true;
        c->branched = true;
        if (!apply(s, c, unit, unit->alternatives))
            return false;
    }
}

static int num_alternatives(const struct schema_choice *h) {
    int n = 0;
    for (const struct alternative *a = h->alternatives; a; a = a->next)
        n++;
    return n;
}

// Takes the choice with the fewest alternatives out.
static const struct schema_choice *narrowest(struct schema *s, struct clause *c) {
    const struct schema_choice *best = c->choices, *kept = NULL;
    for (const struct schema_choice *h = best; h; h = h->next)
        if (num_alternatives(h) < num_alternatives(best))
            best = h;
    for (const struct schema_choice *h = c->choices; h; h = h->next) {
        struct schema_choice *copy = h == best ? NULL : choice_begin(s, h->parent);
        if (h == best)
            continue;
        if (!copy)
            return NULL;
        copy->alternatives = h->alternatives;
        copy->next = kept;
        kept = copy;
    }
    c->choices = kept;
    return best;
}

static bool finish(struct schema *s, enum json_type type, struct clause *c, struct form **forms) {
    if (s->unevaluated && type >= TYPE_ARRAY) {
        if (!clause_say_unevaluated(s, type, c))
            return false;
        if (c->dead)
            return true;
    }
    if (!c->facts) {
        struct form *f = form_add(s, forms);
        if (f) {
            f->any = true;
            f->booleans = 3;
            f->max = -1;
        }
        return f != NULL;
    }
    if (type == TYPE_BOOLEAN) {
        unsigned left = 3;
        for (const struct fact_list *l = c->facts; l; l = l->next)
            left &= 1u << l->fact.min;
        struct form *f = left ? form_add(s, forms) : NULL;
        if (f)
            f->booleans = left;
        return !left || f;
    }
    return type == TYPE_NUMBER   ? form_number(s, c, forms)
           : type == TYPE_STRING ? form_string(s, c, forms)
           : type == TYPE_ARRAY  ? form_array(s, c, forms)
                                 : form_object(s, c, forms);
}

struct pending {
    struct clause clause;
    struct pending *next;
};

bool goal_expand(struct schema *s, goal g, enum json_type type, struct form **forms) {
    struct pending *pending = schema_alloc(s, sizeof *pending);
    *forms = NULL;
    if (!pending)
        return false;
    for (int i = s->goals[g].num_atoms - 1; i >= 0; i--)
        if (!clause_todo(s, &pending->clause, s->goals[g].atoms[i], NULL))
            return false;
    while (pending) {
        struct clause c = pending->clause;
        pending = pending->next;
        if (!settle(s, type, &c) || !schema_step(s, 1))
            return false;
        if (c.dead)
            continue;
        if (!c.choices) {
            if (!finish(s, type, &c, forms))
                return false;
            continue;
        }
        const struct schema_choice *choice = narrowest(s, &c);
        struct pending **end = &pending, *rest = pending;
        if (!choice)
            return false;
        c.branched = true;
        for (const struct alternative *a = choice->alternatives; a; a = a->next) {
            struct pending *p = schema_alloc(s, sizeof *p);
            if (!p)
                return false;
            p->clause = c;
            if (!apply(s, &p->clause, choice, a))
                return false;
            *end = p;
            end = &p->next;
        }
        *end = rest;
    }
    for (struct form *f = *forms; f; f = f->next) // every value: nothing else is needed
        if (f->any) {
            *forms = f;
            f->next = NULL;
        }
    return true;
}
