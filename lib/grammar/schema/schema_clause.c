// Clauses: facts that hold together, choices between facts, and the forms that they end in.
#include "schema_state.h"

bool clause_add(struct schema *s, struct clause *c, struct fact f) {
    if (f.kind == FACT_ATOM)
        return clause_todo(s, c, f.atom, NULL);
    struct fact_list *l = schema_alloc(s, sizeof *l);
    if (!l || !schema_step(s, 1))
        return false;
    *l = (struct fact_list){f, c->facts};
    c->facts = l;
    return true;
}

bool clause_todo(struct schema *s, struct clause *c, atom a, const struct origin *parent) {
    if (s->failed)
        return false;
    if (a == ATOM_NEVER)
        c->dead = true;
    if (a == ATOM_NEVER || a == ATOM_ANY)
        return true;
    for (const struct origin *o = parent; o; o = o->parent)
        if (o->atom == a)
            return schema_fail(s, atom_node(s, a), STATUS_INVALID, "refers to itself");
    struct todo *t = schema_alloc(s, sizeof *t);
    if (!t || !schema_step(s, 1))
        return false;
    *t = (struct todo){a, parent, c->todo};
    c->todo = t;
    return true;
}

struct schema_choice *choice_begin(struct schema *s, const struct origin *parent) {
    struct schema_choice *c = schema_alloc(s, sizeof *c);
    if (c)
        c->parent = parent;
    return c;
}

bool choice_add(struct schema *s, struct schema_choice *choice, const struct fact *facts, int n) {
    struct alternative *a = schema_alloc(s, sizeof *a);
    if (!a || s->failed)
        return false;
    for (int i = n - 1; i >= 0; i--) {
        if (facts[i].kind == FACT_ATOM && facts[i].atom == ATOM_NEVER)
            return !s->failed; // it never holds
        struct fact_list *l = schema_alloc(s, sizeof *l);
        if (!l)
            return false;
        *l = (struct fact_list){facts[i], a->facts};
        a->facts = l;
    }
    const struct alternative **end = &choice->alternatives;
    while (*end)
        end = (const struct alternative **)&(*end)->next;
    *end = a;
    return schema_step(s, n + 1);
}

void clause_choose(struct clause *c, struct schema_choice *choice) {
    choice->next = c->choices;
    c->choices = choice;
}

struct form *form_add(struct schema *s, struct form **forms) {
    struct form *f = schema_alloc(s, sizeof *f);
    int n = 0;
    while (f && *forms) {
        forms = &(*forms)->next;
        n++;
    }
    if (f && n >= MAX_FORMS) {
        schema_fail(s, NULL, STATUS_LIMIT,
                    "the schema is too complex: more than %d alternatives of one value", MAX_FORMS);
        return NULL;
    }
    if (f) {
        *forms = f;
        f->owned_next = s->all_forms;
        s->all_forms = f;
    }
    return f;
}
