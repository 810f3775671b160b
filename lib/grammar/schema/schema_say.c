// Translates a schema, for values of one type, into facts and choices; its negation into "some keyword does not
// hold". Here are the keywords that apply schemas to the same value.
#include "schema_assert.h"

// ---- applicators

// Whether an enclosing schema counts what this one evaluates.
static bool counts_evaluated(struct say *p) {
    for (const struct origin *o = p->s->unevaluated ? p->origin : NULL; o; o = o->detached ? NULL : o->parent)
        if (!atom_negated(o->atom) && !atom_is_value(o->atom)) {
            const struct jdoc_value *v = atom_node(p->s, o->atom);
            if (schema_get(p->s, v, "unevaluatedProperties") || schema_get(p->s, v, "unevaluatedItems"))
                return true;
        }
    return false;
}

enum { MAX_EXACT = 6 };

static bool say_any_of(struct say *p, const struct jdoc_value *list) {
    struct schema_choice *choice = choice_begin(p->s, p->origin);
    bool exact = counts_evaluated(p);
    struct fact facts[MAX_EXACT];
    int n = 0;
    if (exact && list->len > MAX_EXACT)
        return schema_fail(
            p->s, list, STATUS_LIMIT,
            "is not supported with more than %d schemas beside unevaluatedProperties or unevaluatedItems",
            MAX_EXACT);
    EACH_ELEMENT(p, e, list) {
        facts[0] = fact_atom(p, e, false);
        if (!exact && (!choice || !choice_add(p->s, choice, facts, 1)))
            return false;
    }
    for (unsigned set = 1; exact && set < 1u << list->len; set++) { // which of them hold
        n = 0;
        EACH_ELEMENT(p, e, list) {
            facts[n] = fact_atom(p, e, !(set >> n & 1));
            n++;
        }
        if (!choice || !choice_add(p->s, choice, facts, n))
            return false;
    }
    clause_choose(p->c, choice);
    return true;
}

static bool say_one_of(struct say *p, const struct jdoc_value *list) {
    struct schema *s = p->s;
    struct schema_choice *choice = choice_begin(s, p->origin);
    atom *atoms = schema_alloc(s, ((size_t)list->len + 1) * sizeof *atoms);
    struct fact *facts = schema_alloc(s, ((size_t)list->len + 1) * sizeof *facts);
    int n = 0;
    if (!choice || !atoms || !facts)
        return false;
    EACH_ELEMENT(p, e, list) {
        atom a = schema_atom(s, e, false);
        if (a != ATOM_NEVER && !atom_excludes(s, a, p->type))
            atoms[n++] = a;
    }
    for (int i = 0; i < n; i++) {
        int m = 0;
        facts[m++] = (struct fact){.kind = FACT_ATOM, .atom = atoms[i]};
        for (int j = 0; j < n; j++) {
            atom both[] = {atoms[i], atoms[j]};
            if (j == i || (!s->unevaluated && goal_is_empty_of(s, schema_goal(s, both, 2), p->type)))
                continue;
            facts[m++] = (struct fact){.kind = FACT_ATOM, .atom = atom_not(atoms[j])};
        }
        if (!schema_step(s, n) || !choice_add(s, choice, facts, m))
            return false;
    }
    clause_choose(p->c, choice);
    return !s->failed;
}

static bool say_if(struct say *p, bool negated) {
    const struct jdoc_value *if_ = p->k.of[KEYWORD_IF], *then = p->k.of[KEYWORD_THEN],
                            *else_ = p->k.of[KEYWORD_ELSE];
    if (!if_ || (!then && !else_ && (negated || !counts_evaluated(p))))
        return true;
    struct fact yes[] = {fact_atom(p, if_, false), {.kind = FACT_ATOM, .atom = ATOM_ANY}};
    struct fact no[] = {fact_atom(p, if_, true), {.kind = FACT_ATOM, .atom = ATOM_ANY}};
    if (then)
        yes[1] = fact_atom(p, then, negated);
    if (else_)
        no[1] = fact_atom(p, else_, negated);
    if (negated)
        return (!then || or_facts(p, yes, 2)) && (!else_ || or_facts(p, no, 2));
    struct schema_choice *choice = choice_begin(p->s, p->origin);
    if (!choice || !choice_add(p->s, choice, yes, 2) || !choice_add(p->s, choice, no, 2))
        return false;
    clause_choose(p->c, choice);
    return !p->s->failed;
}

static bool say_references(struct say *p, bool negated) {
    static const struct {
        enum keyword keyword;
        const char *name;
    } all[] = {{KEYWORD_REF, "$ref"},
               {KEYWORD_DYNAMIC_REF, "$dynamicRef"},
               {KEYWORD_RECURSIVE_REF, "$recursiveRef"}};
    for (int i = 0; i < 3; i++) {
        const struct jdoc_value *ref = p->k.of[all[i].keyword];
        const struct jdoc_value *target = ref ? schema_resolve(p->s, p->k.self, all[i].name, ref) : NULL;
        if (ref &&
            (!target || !(negated ? SAY_OR(p, fact_atom(p, target, true)) : say_also(p, target, false))))
            return false;
    }
    return true;
}

static bool say_applicators(struct say *p) {
    const struct jdoc_value **of = p->k.of;
    if (of[KEYWORD_ALL_OF])
        EACH_ELEMENT(p, e, of[KEYWORD_ALL_OF])
    if (!say_also(p, e, false))
        return false;
    return (!of[KEYWORD_NOT] || say_also(p, of[KEYWORD_NOT], true)) && say_if(p, false) &&
           (!of[KEYWORD_ANY_OF] || say_any_of(p, of[KEYWORD_ANY_OF])) &&
           (!of[KEYWORD_ONE_OF] || say_one_of(p, of[KEYWORD_ONE_OF]));
}

// None of a list, or two of it.
static bool say_not_one_of(struct say *p, const struct jdoc_value *list) {
    struct fact *facts = schema_alloc(p->s, ((size_t)list->len + 1) * sizeof *facts);
    int n = 0;
    if (!facts)
        return false;
    EACH_ELEMENT(p, e, list)
    facts[n++] = fact_atom(p, e, true);
    if (!or_facts(p, facts, n))
        return false;
    EACH_ELEMENT(p, a, list)
    for (const struct jdoc_value *b = jdoc_after(&p->s->doc, list, a, false); b;
         b = jdoc_after(&p->s->doc, list, b, false))
        if (!SAY_OR(p, fact_atom(p, a, false), fact_atom(p, b, false)))
            return false;
    return true;
}

static bool say_not_applicators(struct say *p) {
    const struct jdoc_value **of = p->k.of;
    if (of[KEYWORD_ALL_OF])
        EACH_ELEMENT(p, e, of[KEYWORD_ALL_OF])
    if (!SAY_OR(p, fact_atom(p, e, true)))
        return false;
    if (of[KEYWORD_ANY_OF]) {
        struct fact *facts = schema_alloc(p->s, ((size_t)of[KEYWORD_ANY_OF]->len + 1) * sizeof *facts);
        int n = 0;
        if (!facts)
            return false;
        EACH_ELEMENT(p, e, of[KEYWORD_ANY_OF])
        facts[n++] = fact_atom(p, e, true);
        if (!or_facts(p, facts, n))
            return false;
    }
    return (!of[KEYWORD_NOT] || SAY_OR(p, fact_atom(p, of[KEYWORD_NOT], false))) && say_if(p, true) &&
           (!of[KEYWORD_ONE_OF] || say_not_one_of(p, of[KEYWORD_ONE_OF]));
}

// ---- a schema

// `type`, and what it leaves of the rest: *done, there is nothing more to say.
static bool say_type(struct say *p, bool negated, bool *done) {
    const struct jdoc_value *type = p->k.of[KEYWORD_TYPE];
    bool integers = false;
    if (!type)
        return true;
    unsigned set = keyword_type_set(p->s, type, &integers);
    if (!(set >> p->type & 1)) {
        *done = true;
        if (negated)
            p->holds = true;
        else
            p->c->dead = true;
        return true;
    }
    struct fact f = {.kind = FACT_INTEGER, .node = type, .min = p->k.draft > DRAFT_4};
    return p->type != TYPE_NUMBER || !integers || say_scalar(p, f, negated);
}

static bool say_schema(struct say *p, bool negated) {
    const struct jdoc_value **of = p->k.of;
    bool done = false;
    if (!say_type(p, negated, &done) || done || p->s->failed)
        return !p->s->failed;
    if (of[KEYWORD_ENUM] && !say_values(p, of[KEYWORD_ENUM], false, negated))
        return false;
    if (of[KEYWORD_CONST] && !say_values(p, of[KEYWORD_CONST], true, negated))
        return false;
    if (p->c->dead || p->holds)
        return true;
    bool ok = say_references(p, negated) && (p->type == TYPE_NUMBER   ? say_number(p, negated)
                                             : p->type == TYPE_STRING ? say_string(p, negated)
                                             : p->type == TYPE_ARRAY  ? say_array(p, negated)
                                             : p->type == TYPE_OBJECT ? say_object(p, negated)
                                                                      : true);
    return ok && (negated ? say_not_applicators(p) : say_applicators(p));
}

bool atom_say(struct schema *s, enum json_type type, struct clause *c, const struct origin *o) {
    struct say p = {.s = s, .type = type, .c = c, .origin = o};
    const struct jdoc_value *v = atom_node(s, o->atom);
    bool negated = atom_negated(o->atom);
    if (negated && !(p.choice = choice_begin(s, o)))
        return false;
    if (atom_is_value(o->atom)) {
        if (!(negated ? say_not_value(&p, v) : say_value(&p, v)))
            return false;
    } else {
        if (!keywords_read(s, v, &p.k))
            return false;
        if (negated)
            for (int i = 0; i < 2; i++) {
                enum keyword k = i ? KEYWORD_UNEVALUATED_PROPERTIES : KEYWORD_UNEVALUATED_ITEMS;
                if (p.k.of[k] && type == (i ? TYPE_OBJECT : TYPE_ARRAY))
                    return schema_fail(s, p.k.of[k], STATUS_INVALID, "is not supported within `not`");
            }
        if (!say_schema(&p, negated))
            return false;
    }
    if (s->failed)
        return false;
    if (negated && !p.holds) {
        if (!p.choice->alternatives)
            c->dead = true;
        clause_choose(c, p.choice);
    }
    return true;
}

bool atom_excludes(struct schema *s, atom a, enum json_type type) {
    struct keywords k;
    bool integers;
    if (a < 0)
        return a == ATOM_NEVER;
    const struct jdoc_value *v = atom_node(s, a);
    if (atom_negated(a))
        return false;
    if (atom_is_value(a))
        return schema_type(v) != type;
    if (!keywords_read(s, v, &k))
        return false;
    if (k.of[KEYWORD_TYPE] && !(keyword_type_set(s, k.of[KEYWORD_TYPE], &integers) >> type & 1))
        return true;
    if (k.of[KEYWORD_CONST] && schema_type(k.of[KEYWORD_CONST]) != type)
        return true;
    if (!k.of[KEYWORD_ENUM])
        return false;
    JDOC_EACH(&s->doc, e, k.of[KEYWORD_ENUM])
    if (schema_type(e) == type)
        return false;
    return true;
}
