// Forms of objects. Members are told apart by name: those that some keyword names have a place of their own; all other
// names fall into classes by the patterns that they match, and a class has one schema. Over 600 lines: what an object may
// hold is decided and written by one set of rules.
#include "schema_keys.h"
#include "schema_members.h"

#include <stdlib.h>

enum { MAX_AUTOMATA = 60, MAX_EXISTS = 6 };

// A member that has to be there and is of a class.
struct witness {
    int class;
    goal goal;
};
struct object_form {
    struct name *names;
    int num_names;
    // tells the classes apart by label; owned by the schema. NULL: there is one class, of all other names
    struct dfa *others;
    goal *classes; // (num_classes) GOAL_NEVER: no such member
    int num_classes;
    struct witness witnesses[MAX_EXISTS];
    int num_witnesses;
    int min, max;
    bool distinct; // of a class there is one member at most
};

// ---- the form

struct object_draft {
    struct schema *s;
    const struct fact **facts; // (num_facts) the oldest first
    int num_facts;
    const struct fact **wide; // (num_wide) those of them that speak of members by pattern, and of others
    int num_wide;
    struct form **forms;
    struct name_table names;
    int min, max;
    const struct jdoc_value *counted; // the keyword that `min` is of
    struct dfa *keys;                 // owned: what all names match, NULL: any
    // automata that tell other names apart: patterns, then those of EXISTS facts' names, then `keys`
    const struct dfa *automata[MAX_AUTOMATA];
    int num_automata;
    struct dfa *own[MAX_EXISTS]; // those automata that have to be freed
    int num_own;
    int keys_bit;   // -1: none
    uint64_t *sets; // of the classes, owned
    struct dfa *others;
    goal *classes;
    int num_classes;
    const struct fact *exists[MAX_EXISTS];
    int exists_bit[MAX_EXISTS];
    int num_exists;
};

static void draft_free(struct object_draft *d) {
    dfa_free(d->keys);
    for (int i = 0; i < d->num_own; i++)
        dfa_free(d->own[i]);
    free(d->sets);
}

// The bit of an automaton; -1: failed.
static int automaton_bit(struct object_draft *d, const struct dfa *a) {
    for (int i = 0; a && i < d->num_automata; i++)
        if (d->automata[i] == a)
            return i;
    if (!a || d->num_automata == MAX_AUTOMATA) {
        if (a)
            schema_fail(d->s, NULL, STATUS_LIMIT, "more than %d patterns of the members of one object",
                        MAX_AUTOMATA);
        return -1;
    }
    d->automata[d->num_automata] = a;
    return d->num_automata++;
}

static bool add_names(struct object_draft *d, const struct node_list *l) {
    for (; l; l = l->next) {
        const struct jdoc_value *names = node_names(d->s, l), *patterns = node_patterns(d->s, l);
        if (names)
            JDOC_EACH_KEY(&d->s->doc, k, names)
        if (!names_find(d->s, &d->names, k, true))
            return false;
        if (patterns)
            JDOC_EACH_KEY(&d->s->doc, k, patterns)
        if (automaton_bit(d, schema_regex(d->s, k)) < 0)
            return false;
    }
    return true;
}

// Sets d->keys to the strings that every name must match; NULL: any name.
static bool read_keys(struct object_draft *d) {
    const struct atom_list *atoms = NULL;
    bool any = true;
    for (int i = 0; i < d->num_facts; i++)
        if (d->facts[i]->kind == FACT_NAMES) {
            struct atom_list *a = schema_alloc(d->s, sizeof *a);
            if (!a)
                return false;
            *a = (struct atom_list){d->facts[i]->name_atom, atoms};
            atoms = a;
        }
    d->keys_bit = -1;
    if (!atoms)
        return true;
    goal g = names_goal(d->s, atoms);
    d->keys = g < 0 ? NULL : string_goal_dfa(d->s, g, &any);
    if (d->keys)
        d->keys_bit = automaton_bit(d, d->keys);
    return d->keys ? d->keys_bit >= 0 : any && !d->s->failed;
}

static bool read_exists(struct object_draft *d, const struct fact *f) {
    bool any = false;
    int bit = -1;
    if (d->num_exists == MAX_EXISTS)
        return schema_fail(d->s, NULL, STATUS_LIMIT,
                           "the schema is too complex: a negation asks for more than %d members", MAX_EXISTS);
    if (f->within == FACT_MATCHING && (bit = automaton_bit(d, schema_regex(d->s, f->node))) < 0)
        return false;
    if (f->within == FACT_NAMES) {
        goal g = schema_goal(d->s, &f->name_atom, 1);
        struct dfa *own = g < 0 ? NULL : string_goal_dfa(d->s, g, &any);
        if (!own && !any)
            return false;
        if (own) {
            d->own[d->num_own++] = own;
            if ((bit = automaton_bit(d, own)) < 0)
                return false;
        }
    }
    d->exists[d->num_exists] = f;
    d->exists_bit[d->num_exists++] = bit;
    return f->within != FACT_OTHERS || add_names(d, f->nodes);
}

static bool draft_read(struct object_draft *d) {
    struct schema *s = d->s;
    int64_t min = 0, max = -1;
    for (int i = 0; i < d->num_facts; i++) { // names in the schema's order, then those that are only required
        const struct fact *f = d->facts[i];
        struct name *n = f->kind == FACT_PROPERTY ? names_find(s, &d->names, f->node, true) : NULL;
        if (f->kind == FACT_PROPERTY && (!n || !names_add(s, n, f->atom)))
            return false;
    }
    for (int i = 0; i < d->num_facts; i++) {
        const struct fact *f = d->facts[i];
        if (f->kind == FACT_REQUIRED) {
            struct name *n = names_find(s, &d->names, f->node, true);
            if (!n)
                return false;
            n->required = true;
        } else if (f->kind == FACT_COUNT) {
            d->counted = f->min > min ? f->node : d->counted;
            min = f->min > min ? f->min : min;
            max = f->max >= 0 && (max < 0 || f->max < max) ? f->max : max;
        } else if (f->kind == FACT_MATCHING) {
            if (automaton_bit(d, schema_regex(s, f->node)) < 0)
                return false;
        } else if (f->kind == FACT_OTHERS && !add_names(d, f->nodes)) {
            return false;
        } else if (f->kind == FACT_EXISTS && !read_exists(d, f)) {
            return false;
        }
    }
    d->min = (int)min;
    d->max = (int)max;
    return read_keys(d);
}

// Sets the goal of the members of each name. *may false: a required member can have no value.
static bool goals_of_names(struct object_draft *d, bool *may) {
    struct schema *s = d->s;
    int required = 0;
    for (int i = 0; i < d->names.num && *may; i++) {
        struct name *n = &d->names.names[i];
        const char *text = s->doc.text + n->text->at;
        for (int j = 0; j < d->num_wide; j++) {
            const struct fact *f = d->wide[j];
            const struct dfa *p = f->kind == FACT_MATCHING ? schema_regex(s, f->node) : NULL;
            if (((p && dfa_match(p, text, n->text->len) >= 0) ||
                 (f->kind == FACT_OTHERS && !nodes_name(s, f->nodes, n->text))) &&
                !names_add(s, n, f->atom))
                return false;
        }
        if (d->keys && dfa_match(d->keys, text, n->text->len) < 0 && !names_add(s, n, ATOM_NEVER))
            return false;
        n->goal = names_goal(s, n->atoms);
        *may = !(n->required && goal_is_empty(s, n->goal));
        required += n->required;
        if (s->failed || !schema_step(s, 1 + d->num_wide))
            return false;
    }
    if (d->min < required)
        d->min = required;
    *may = *may && (d->max < 0 || d->min <= d->max);
    return true;
}

// Whether a class of other names is among those that an EXISTS or OTHERS fact speaks of.
static bool class_is_other(struct object_draft *d, const struct node_list *l, uint64_t set) {
    for (; l; l = l->next) {
        const struct jdoc_value *patterns = node_patterns(d->s, l);
        if (patterns)
            JDOC_EACH_KEY(&d->s->doc, k, patterns)
        if (set >> automaton_bit(d, schema_regex(d->s, k)) & 1)
            return false;
    }
    return true;
}

static bool goals_of_classes(struct object_draft *d) {
    struct schema *s = d->s;
    struct err err = {0};
    d->num_classes = 1;
    if (d->num_automata > 0) {
        d->others = dfa_classify(d->automata, d->num_automata, NULL, NULL, &d->sets, &err);
        if (!d->others)
            return schema_fail(s, NULL, err.code, "names of members: %s", err.msg);
        for (int i = 0; i < d->others->num_states; i++)
            if (d->others->label[i] >= d->num_classes)
                d->num_classes = d->others->label[i] + 1;
        if (!schema_own(s, d->others) || !schema_count(s, d->others))
            return false;
    }
    d->classes = schema_alloc(s, (size_t)d->num_classes * sizeof *d->classes);
    for (int i = 0; d->classes && i < d->num_classes; i++) {
        uint64_t set = d->sets ? d->sets[i] : 0;
        const struct atom_list *atoms = NULL;
        for (int j = 0; j < d->num_facts; j++) {
            const struct fact *f = d->facts[j];
            if (!(f->kind == FACT_MATCHING && set >> automaton_bit(d, schema_regex(s, f->node)) & 1) &&
                !(f->kind == FACT_OTHERS && class_is_other(d, f->nodes, set)))
                continue;
            struct atom_list *a = schema_alloc(s, sizeof *a);
            if (!a)
                return false;
            *a = (struct atom_list){f->atom, atoms};
            atoms = a;
        }
        d->classes[i] = d->keys_bit >= 0 && !(set >> d->keys_bit & 1) ? GOAL_NEVER : names_goal(s, atoms);
        if (d->classes[i] < 0)
            return false;
        if (goal_is_empty(s, d->classes[i]))
            d->classes[i] = GOAL_NEVER;
    }
    return d->classes && !s->failed;
}

// How many names the classes have whose members may be, at most `most`.
static int64_t count_class_names(struct object_draft *d, const struct object_form *o, int64_t most) {
    bool any = false;
    for (int i = 0; i < o->num_classes; i++)
        any |= o->classes[i] != GOAL_NEVER;
    if (!any || !o->others)
        return any ? most : 0;
    struct dfa names = *o->others;
    names.label = schema_alloc(d->s, ((size_t)names.num_states + 1) * sizeof *names.label);
    for (int q = 0; names.label && q < names.num_states; q++) {
        int class = o->others->label[q];
        names.label[q] = class < 0 || o->classes[class] == GOAL_NEVER ? -1 : 0;
    }
    if (!names.label)
        return most;
    struct err err = {0}; // a product with itself leaves out what leads to no name
    struct dfa *live = dfa_intersect(&names, &names, &err);
    int64_t num = live ? dfa_count(live, most) : most;
    dfa_free(live);
    return num;
}

// Whether there are enough members that may be.
static bool has_room(struct object_draft *d, const struct object_form *o) {
    int64_t may = 0;
    for (int i = 0; i < o->num_names && may < o->min; i++)
        may += o->names[i].required || !goal_is_empty(d->s, o->names[i].goal);
    return may >= o->min || may + count_class_names(d, o, o->min - may) >= o->min;
}

static bool keep_object(struct object_draft *d, struct object_form o) {
    int required = o.num_witnesses;
    for (int i = 0; i < o.num_names; i++)
        required += o.names[i].required;
    if (o.min < required)
        o.min = required;
    if ((o.max >= 0 && o.min > o.max) || !has_room(d, &o))
        return !d->s->failed;
    struct object_form *own = schema_alloc(d->s, sizeof *own);
    struct form *f = own ? form_add(d->s, d->forms) : NULL;
    if (!f)
        return false;
    *own = o;
    f->object = own;
    return true;
}

static bool selects_name(struct object_draft *d, int exists, const struct name *n) {
    const struct fact *f = d->exists[exists];
    int bit = d->exists_bit[exists];
    if (f->within == FACT_OTHERS)
        return !nodes_name(d->s, f->nodes, n->text);
    return bit < 0 || dfa_match(d->automata[bit], d->s->doc.text + n->text->at, n->text->len) >= 0;
}

static bool selects_class(struct object_draft *d, int exists, int class) {
    const struct fact *f = d->exists[exists];
    uint64_t set = d->sets ? d->sets[class] : 0;
    if (f->within == FACT_OTHERS)
        return class_is_other(d, f->nodes, set);
    return d->exists_bit[exists] < 0 || set >> d->exists_bit[exists] & 1;
}

// Tries every member that may be the one that EXISTS fact number `at` asks for. Recursion: MAX_EXISTS.
static bool place_exists(struct object_draft *d, const struct object_form *o, int at) {
    struct schema *s = d->s;
    if (!schema_step(s, 8))
        return false;
    if (at == d->num_exists)
        return keep_object(d, *o);
    atom wanted = d->exists[at]->atom;
    for (int i = 0; i < o->num_names; i++) {
        goal g = schema_goal_and(s, o->names[i].goal, wanted);
        if (s->failed)
            return false;
        if (!selects_name(d, at, &o->names[i]) || goal_is_empty(s, g))
            continue;
        struct object_form own = *o;
        own.names = schema_alloc(s, (size_t)o->num_names * sizeof *own.names);
        if (!own.names)
            return false;
        memcpy(own.names, o->names, (size_t)o->num_names * sizeof *own.names);
        own.names[i].goal = g;
        own.names[i].required = true;
        if (!place_exists(d, &own, at + 1))
            return false;
    }
    for (int i = 0; i < o->num_witnesses; i++) { // a member that is there for another reason, too
        goal g = schema_goal_and(s, o->witnesses[i].goal, wanted);
        if (s->failed)
            return false;
        if (!selects_class(d, at, o->witnesses[i].class) || goal_is_empty(s, g))
            continue;
        struct object_form own = *o;
        own.witnesses[i].goal = g;
        if (!place_exists(d, &own, at + 1))
            return false;
    }
    for (int i = 0; i < o->num_classes; i++) {
        goal g = schema_goal_and(s, o->classes[i], wanted);
        if (s->failed)
            return false;
        if (!selects_class(d, at, i) || goal_is_empty(s, g))
            continue;
        struct object_form own = *o;
        own.witnesses[own.num_witnesses++] = (struct witness){i, g};
        if (!place_exists(d, &own, at + 1))
            return false;
    }
    return !s->failed;
}

// An object whose properties are described is written with these alone, unless the schema speaks of others: a model is
// to fill in a form, and what it writes is as valid.
static void leave_out_others(struct object_draft *d) {
    bool described = false;
    int may = 0; // members of names that there are
    for (int i = 0; i < d->names.num; i++)
        if (!goal_is_empty(d->s, d->names.names[i].goal)) {
            described |= d->names.names[i].atoms != NULL;
            may++;
        }
    for (int i = 0; i < d->num_facts; i++)
        if (d->facts[i]->kind == FACT_OTHERS || d->facts[i]->kind == FACT_MATCHING)
            return;
    if (d->s->as_written || !described || d->num_exists > 0 || d->min > may)
        return;
    for (int i = 0; i < d->num_classes; i++)
        d->classes[i] = GOAL_NEVER;
}

// Keys that no property names may be equal, and count once then. Where more than one member is asked for, a class of such keys
// has one member at most; where that is too few, it is refused.
static bool ask_distinct(struct object_draft *d, struct object_form *o) {
    int required = 0, may = 0, others = 0;
    for (int i = 0; i < d->names.num; i++) {
        required += d->names.names[i].required;
        may += !goal_is_empty(d->s, d->names.names[i].goal);
    }
    for (int i = 0; i < d->num_classes; i++)
        others += d->classes[i] != GOAL_NEVER;
    o->distinct = !d->s->as_written && others > 0 && d->min > 1 && d->min > required;
    return !o->distinct || (d->min <= may + others && d->num_exists == 0) ||
           schema_fail(d->s, d->counted, STATUS_INVALID,
                       "more members than properties name cannot be asked for: other keys may be equal");
}

bool form_object(struct schema *s, const struct clause *c, struct form **forms) {
    struct object_draft *d = schema_alloc(s, sizeof *d);
    int n = 0;
    bool may = true;
    if (!d)
        return false;
    *d = (struct object_draft){.s = s, .forms = forms};
    for (const struct fact_list *l = c->facts; l; l = l->next)
        n++;
    d->facts = schema_alloc(s, ((size_t)n + 1) * sizeof *d->facts);
    if (!d->facts)
        return false;
    d->num_facts = n;
    d->wide = schema_alloc(s, ((size_t)n + 1) * sizeof *d->wide);
    if (!d->wide)
        return false;
    for (const struct fact_list *l = c->facts; l; l = l->next) {
        d->facts[--n] = &l->fact;
        if (l->fact.kind == FACT_MATCHING || l->fact.kind == FACT_OTHERS)
            d->wide[d->num_wide++] = &l->fact;
    }
    bool ok = draft_read(d) && goals_of_names(d, &may);
    if (ok && may) {
        ok = goals_of_classes(d);
        if (ok)
            leave_out_others(d);
        struct object_form o = {.names = d->names.names,
                                .num_names = d->names.num,
                                .others = d->others,
                                .classes = d->classes,
                                .num_classes = d->num_classes,
                                .min = d->min,
                                .max = d->max};
        ok = ok && ask_distinct(d, &o) && place_exists(d, &o, 0);
    }
    draft_free(d);
    return ok && !s->failed;
}

// ---- writing

// How a member is written. name: NULL: one that no schema names.
static expr write_member(struct schema *s, goal g, const struct jdoc_value *name, enum json_members written) {
    if (written != MEMBERS_TAGS)
        return goal_expr(s, g);
    const struct grammar_tags *tags = gb_tags(s->b)->of;
    return s->write_tagged(s, g,
                           tags->types(tags->of, name ? s->doc.text + name->at : NULL, name ? name->len : 0));
}

static expr write_object(struct schema *s, const struct object_form *o, enum json_members written) {
    int num = 0, num_labels = 0, num_lists = 0;
    size_t most = (size_t)o->num_names + (size_t)o->num_classes + (size_t)o->num_witnesses + 1;
    struct member_kind *kinds = schema_alloc(s, most * sizeof *kinds);
    int32_t *lists = schema_alloc(s, most * sizeof *lists),
            *starts = schema_alloc(s, (most + 1) * sizeof *starts);
    struct key_name *names = schema_alloc(s, most * sizeof *names);
    int *label_of_class = schema_alloc(s, most * sizeof *label_of_class);
    bool others = false;
    if (!kinds || !lists || !starts || !names || !label_of_class)
        return EXPR_NONE;
    for (int i = 0; i < o->num_names; i++) {
        const struct name *n = &o->names[i];
        names[i] = (struct key_name){s->doc.text + n->text->at, n->text->len, -1};
        if (goal_is_empty(s, n->goal))
            continue;
        kinds[num] = (struct member_kind){write_member(s, n->goal, n->text, written), n->required, true};
        starts[num_labels] = num_lists;
        lists[num_lists++] = num++;
        names[i].label = num_labels++;
    }
    for (int i = 0; i < o->num_classes; i++) {
        label_of_class[i] = -1;
        if (o->classes[i] == GOAL_NEVER)
            continue;
        others = true;
        starts[num_labels] = num_lists;
        kinds[num] = (struct member_kind){write_member(s, o->classes[i], NULL, written), false, o->distinct};
        lists[num_lists++] = num++;
        for (int j = 0; j < o->num_witnesses; j++)
            if (o->witnesses[j].class == i) {
                kinds[num] =
                    (struct member_kind){write_member(s, o->witnesses[j].goal, NULL, written), true, false};
                lists[num_lists++] = num++;
            }
        label_of_class[i] = num_labels++;
    }
    starts[num_labels] = num_lists;
    if (s->failed)
        return EXPR_NONE;
    struct json_object object = {.kinds = kinds,
                                 .num_kinds = num,
                                 .lists = lists,
                                 .list_starts = starts,
                                 .min = o->min,
                                 .max = o->max,
                                 .written = written};
    if (num > 0 && !(object.keys = schema_keys(s, names, o->num_names, o->others,
                                               others ? label_of_class : NULL, num_labels)))
        return EXPR_NONE;
    return gb_json_object(s->b, &object);
}

expr object_expr(struct schema *s, const struct form *f, enum json_members written) {
    goal all[] = {GOAL_ANY};
    struct object_form any = {.classes = all, .num_classes = 1, .max = -1};
    return write_object(s, f->any ? &any : f->object, written);
}
