// Shared by schema_say.c and schema_assert.c: the translation of one schema, or its negation, for values of one type.
// With `negated` a function adds alternatives to p->choice: the ways in which its keywords may not hold.
#pragma once

#include "schema_keywords.h"

struct say {
    struct schema *s;
    enum json_type type;
    struct clause *c;
    const struct origin *origin;
    struct keywords k;
    // of a negation
    struct schema_choice *choice;
    bool holds; // the schema has no value of this type: its negation says nothing
};

#define EACH_ELEMENT(p, e, v) JDOC_EACH(&(p)->s->doc, e, v)
#define EACH_MEMBER(p, k, v) JDOC_EACH_KEY(&(p)->s->doc, k, v)

static inline bool say_add(struct say *p, struct fact f) { return clause_add(p->s, p->c, f); }
static inline bool say_also(struct say *p, const struct jdoc_value *schema, bool negated) {
    return clause_todo(p->s, p->c, schema_atom(p->s, schema, negated), p->origin);
}
static inline struct fact fact_atom(struct say *p, const struct jdoc_value *schema, bool negated) {
    return (struct fact){.kind = FACT_ATOM, .atom = schema_atom(p->s, schema, negated)};
}
static inline struct fact fact_required(const struct jdoc_value *name) {
    return (struct fact){.kind = FACT_REQUIRED, .node = name};
}
static inline struct fact fact_absent(const struct jdoc_value *name) {
    return (struct fact){.kind = FACT_PROPERTY, .node = name, .atom = ATOM_NEVER};
}
static inline struct fact fact_count(int64_t min, int64_t max) {
    return (struct fact){.kind = FACT_COUNT, .min = min, .max = max};
}

// An alternative of a negation.
static inline bool or_facts(struct say *p, const struct fact *f, int n) {
    return choice_add(p->s, p->choice, f, n);
}
#define SAY_OR(p, ...)                                                                                       \
    or_facts((p), (const struct fact[]){__VA_ARGS__},                                                        \
             (int)(sizeof((const struct fact[]){__VA_ARGS__}) / sizeof(struct fact)))

// All return false where the schema has failed.
// That the value is one of a list, or where `single`, this one.
bool say_values(struct say *p, const struct jdoc_value *list, bool single, bool negated);
// The same of one value, down to what is in it.
bool say_value(struct say *p, const struct jdoc_value *v);
bool say_not_value(struct say *p, const struct jdoc_value *v);
bool say_scalar(struct say *p, struct fact f, bool negated);
bool say_number(struct say *p, bool negated);
bool say_string(struct say *p, bool negated);
bool say_array(struct say *p, bool negated);
bool say_object(struct say *p, bool negated);
