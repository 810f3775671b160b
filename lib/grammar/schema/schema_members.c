// See schema_members.h.
#include "schema_members.h"

enum { MAX_NAMES = 20000 };

static uint32_t hash_name(const struct schema *s, const struct jdoc_value *v) {
    uint32_t h = 2166136261u;
    for (uint32_t i = 0; i < v->len; i++)
        h = (h ^ (unsigned char)s->doc.text[v->at + i]) * 16777619u;
    return h ^ h >> 15;
}

static bool names_grow(struct schema *s, struct name_table *t) {
    int cap = t->cap ? 2 * t->cap : 16, slots = 4 * cap;
    struct name *names = schema_alloc(s, (size_t)cap * sizeof *names);
    int32_t *table = schema_alloc(s, (size_t)slots * sizeof *table);
    if (!names || !table || cap > 2 * MAX_NAMES)
        return schema_fail(s, NULL, STATUS_LIMIT, "more than %d names of members of one object", MAX_NAMES);
    if (t->num)
        memcpy(names, t->names, (size_t)t->num * sizeof *names);
    *t = (struct name_table){names, t->num, cap, slots, table};
    for (int i = 0; i < t->num; i++) {
        uint32_t at = hash_name(s, names[i].text) & (uint32_t)(slots - 1);
        while (table[at])
            at = (at + 1) & (uint32_t)(slots - 1);
        table[at] = i + 1;
    }
    return true;
}

struct name *names_find(struct schema *s, struct name_table *t, const struct jdoc_value *text, bool make) {
    if (make && t->num == t->cap && !names_grow(s, t))
        return NULL;
    if (!t->slots)
        return NULL;
    uint32_t mask = (uint32_t)(t->slots - 1), at = hash_name(s, text) & mask;
    for (; t->table[at]; at = (at + 1) & mask)
        if (schema_same_text(s, t->names[t->table[at] - 1].text, text))
            return &t->names[t->table[at] - 1];
    if (!make || !schema_step(s, 1))
        return NULL;
    t->names[t->num] = (struct name){.text = text, .goal = GOAL_ANY};
    t->table[at] = ++t->num;
    return &t->names[t->num - 1];
}

bool names_add(struct schema *s, struct name *n, atom a) {
    struct atom_list *l = schema_alloc(s, sizeof *l);
    if (!l)
        return false;
    *l = (struct atom_list){a, n->atoms};
    n->atoms = l;
    return true;
}

goal names_goal(struct schema *s, const struct atom_list *l) {
    int n = 0;
    for (const struct atom_list *i = l; i; i = i->next)
        n++;
    atom *atoms = schema_alloc(s, (size_t)(n + 1) * sizeof *atoms);
    if (!atoms)
        return -1;
    n = 0;
    for (; l; l = l->next)
        atoms[n++] = l->atom;
    return schema_goal(s, atoms, n);
}

// The names that a node of an OTHERS fact sets apart: its own, or those of `properties`.
const struct jdoc_value *node_names(const struct schema *s, const struct node_list *l) {
    const struct jdoc_value *names = l->value ? l->node : schema_get(s, l->node, "properties");
    return names && names->type == JDOC_OBJECT ? names : NULL;
}
const struct jdoc_value *node_patterns(const struct schema *s, const struct node_list *l) {
    const struct jdoc_value *patterns = l->value ? NULL : schema_get(s, l->node, "patternProperties");
    return patterns && patterns->type == JDOC_OBJECT ? patterns : NULL;
}

// Whether some node of an OTHERS fact names this member.
bool nodes_name(struct schema *s, const struct node_list *l, const struct jdoc_value *name) {
    for (; l; l = l->next) {
        const struct jdoc_value *names = node_names(s, l), *patterns = node_patterns(s, l);
        if (names)
            JDOC_EACH_KEY(&s->doc, k, names)
        if (schema_same_text(s, k, name))
            return true;
        if (patterns)
            JDOC_EACH_KEY(&s->doc, k, patterns) {
                const struct dfa *d = schema_regex(s, k);
                if (!d || dfa_match(d, s->doc.text + name->at, name->len) >= 0)
                    return true;
            }
        schema_step(s, 1);
    }
    return false;
}

const struct node_list *object_closed(const struct schema *s, const struct clause *c) {
    for (const struct fact_list *l = c->facts; l; l = l->next) {
        bool patterns = false;
        if (l->fact.kind != FACT_OTHERS || l->fact.atom != ATOM_NEVER)
            continue;
        for (const struct node_list *n = l->fact.nodes; n; n = n->next)
            patterns = patterns || node_patterns(s, n);
        if (!patterns)
            return l->fact.nodes;
    }
    return NULL;
}

bool object_selects(struct schema *s, const struct fact *exists, const struct jdoc_value *name) {
    if (exists->within == FACT_OTHERS)
        return !nodes_name(s, exists->nodes, name);
    const struct dfa *d = schema_regex(s, exists->node);
    return d && dfa_match(d, s->doc.text + name->at, name->len) >= 0;
}

goal object_member(struct schema *s, const struct clause *c, const struct jdoc_value *name, bool *required) {
    const struct atom_list *atoms = NULL;
    for (const struct fact_list *l = c->facts; l; l = l->next) {
        const struct fact *f = &l->fact;
        bool same =
            (f->kind == FACT_PROPERTY || f->kind == FACT_REQUIRED) && schema_same_text(s, f->node, name);
        *required = *required || (same && f->kind == FACT_REQUIRED);
        if (!(same && f->kind == FACT_PROPERTY) &&
            !(f->kind == FACT_OTHERS && f->atom == ATOM_NEVER && !nodes_name(s, f->nodes, name)))
            continue;
        struct atom_list *a = schema_alloc(s, sizeof *a);
        if (!a)
            return -1;
        *a = (struct atom_list){f->atom, atoms};
        atoms = a;
    }
    return schema_step(s, 2) ? names_goal(s, atoms) : -1;
}

bool object_contradicts(struct schema *s, const struct clause *c) {
    struct name_table t = {0};
    for (const struct fact_list *l = c->facts; l; l = l->next) {
        const struct fact *f = &l->fact;
        if (f->kind != FACT_REQUIRED)
            continue;
        struct name *n = names_find(s, &t, f->node, true);
        if (!n)
            return false;
        n->required = true;
    }
    for (const struct fact_list *l = t.num ? c->facts : NULL; l; l = l->next) {
        struct name *n = l->fact.kind == FACT_PROPERTY ? names_find(s, &t, l->fact.node, false) : NULL;
        if (n && !names_add(s, n, l->fact.atom))
            return false;
    }
    for (int i = 0; i < t.num; i++)
        if (goal_is_empty(s, names_goal(s, t.names[i].atoms)))
            return true;
    return false;
}
