// Shared state of the files schema*.c, which compile a JSON Schema to expressions.
//
// A schema, or its negation, is an atom; a goal is a set of atoms that hold together. A goal is expanded for each JSON
// type to forms: conjunctions of facts about one value of that type, of which any may hold. Facts name goals for the
// values within. Goals are hash-consed, so that a recursive schema comes back to a goal that is there.
//
//   schema_read.c   the document: keywords, resources, $ref, JSON pointers for messages
//   schema_uri.c    URI references
//   schema_keywords.c the keywords of a schema, and their shapes
//   schema_goal.c   goals: hash-consing, which are empty
//   schema_say.c    keywords that apply schemas to the same value, and negations, to facts and choices
//   schema_assert.c keywords for one type, likewise
//   schema_unevaluated.c unevaluatedProperties and unevaluatedItems, likewise
//   schema_keys.c   automata of the names of members
//   schema_members.c the members of an object by name
//   schema_clause.c facts and choices
//   schema_number.c, schema_string.c, schema_array.c, schema_object.c: facts of that type to forms
//   schema_expand.c atoms to forms: branches, contradictions
//   schema_write.c  forms to expressions
//   schema.c        schema_to_expr()
//
// All memory is one arena that lives until schema_to_expr() returns, but automata.
#pragma once

#include "../front.h"
#include "json/jdoc.h"

#include <string.h>

typedef int32_t atom;
typedef int32_t goal;
enum { GOAL_ANY, GOAL_NEVER }; // the first two
enum { ATOM_NEVER = -1, ATOM_ANY = -2 };
enum { MAX_STEPS = 3000000, MAX_FORMS = 300, MAX_DEPTH = 40 };

enum json_type { TYPE_NULL, TYPE_BOOLEAN, TYPE_NUMBER, TYPE_STRING, TYPE_ARRAY, TYPE_OBJECT, NUM_TYPES };
enum draft { DRAFT_4, DRAFT_6, DRAFT_7, DRAFT_2019, DRAFT_2020 };

#define FACT_KINDS(X)                                                                                        \
    X(BOOLEAN)  /* min: 0 or 1, the value */                                                                 \
    X(AT_LEAST) /* number; node; min 1: more than it */                                                      \
    X(AT_MOST)                                                                                               \
    X(MULTIPLE) /* number; node */                                                                           \
    X(INTEGER)                                                                                               \
    X(ONE_OF)   /* number, string; node: `enum`'s list, or a value */                                        \
    X(COUNT)    /* min to max characters, items, members */                                                  \
    X(PATTERN)  /* string; node */                                                                           \
    X(FORMAT)   /* string, number; node */                                                                   \
    X(ITEM)     /* array; item `min`, if there is one, is as the atom says */                                \
    X(ITEMS)    /* array; items from `min` on */                                                             \
    X(CONTAINS) /* array; min to max of the items from `from` on */                                          \
    X(UNIQUE)                                                                                                \
    X(PROPERTY) /* object; node: a name; the member is as the atom says, if it is there */                   \
    X(REQUIRED) /* object; node: a name */                                                                   \
    X(MATCHING) /* object; node: a pattern; members whose name matches */                                    \
    X(OTHERS)   /* object; members that properties and patternProperties of no node name */                  \
    X(NAMES)    /* object; all names, as strings */                                                          \
    X(EXISTS)   /* object; some member of those that `within` says is as the atom says */                    \
    X(ATOM)     /* of the value itself */
enum fact_kind {
#define X(name) FACT_##name,
    FACT_KINDS(X)
#undef X
};
struct fact {
    enum fact_kind kind,
        within;   // within: of EXISTS, MATCHING, OTHERS or NAMES (whose name is not as name_atom says)
    bool negated; // MULTIPLE, INTEGER, ONE_OF, PATTERN, FORMAT
    atom atom, name_atom;
    const struct jdoc_value *node;
    const struct node_list *nodes; // OTHERS
    int64_t min, max, from;        // max -1: no end
};
struct node_list {
    const struct jdoc_value *node; // a schema, or an object that is a value
    bool value;
    const struct node_list *next;
};

struct fact_list {
    struct fact fact;
    const struct fact_list *next;
};
struct schema_choice { // any of these holds, each a list of facts that hold together
    const struct alternative {
        const struct fact_list *facts;
        const struct alternative *next;
    } * alternatives;
    const struct origin *parent; // of atoms among the facts
    const struct schema_choice *next;
};
// An atom that has been read, and because of which other it was.
struct origin {
    atom atom;
    const struct origin *parent, *next;
    bool detached; // its evaluated members do not count for its parents: it stands within a `not`
};
struct todo {
    atom atom;
    const struct origin *parent;
    const struct todo *next;
};
struct clause {
    const struct fact_list *facts; // the newest first
    const struct schema_choice *choices;
    const struct origin *read;
    const struct todo *todo;
    bool branched; // some alternative was taken
    bool dead;     // its facts contradict each other
};

struct array_form;
struct object_form;
struct form {
    bool any;     // every value of the type
    int min, max; // string: characters, where there is no automaton
    // String: what it may be, or NULL: the texts below, or any. Number: how it is written.
    const struct dfa *text;
    bool owned; // text is freed with the form
    const struct jdoc_value **texts;
    int num_texts;
    bool plain_integer; // number: any integer,
    bool fraction;      // with zeros behind a point, too
    unsigned booleans;  // bit 0: false, bit 1: true
    struct array_form *array;
    struct object_form *object;
    struct form *next, *owned_next;
};

struct goal_data {
    const atom *atoms;
    int num_atoms;
    struct goal_type {
        uint8_t state;
        struct form *forms;
        struct err *err; // why it failed
    } * types;           // (NUM_TYPES), NULL: not asked for yet
    expr expr;
    goal next_queued;
};

struct resource {
    const struct jdoc_value *root;
    const char *uri;
    enum draft draft;
};
struct anchor {
    const char *uri;
    struct text_view name;
    const struct jdoc_value *node;
    bool dynamic;
};
struct cached_dfa {
    enum cached_kind { DFA_PATTERN, DFA_FORMAT, DFA_STRINGS, DFA_NUMBERS } kind;
    const void *name; // a pattern, the name of a format, or the node of a list: (len)
    size_t len;
    struct dfa *dfa;
};

struct schema {
    struct grammar_builder *b;
    struct jdoc doc;
    struct err *err;
    bool failed;
    int64_t steps;
    int depth, place_depth;
    struct schema_block *arena;
    size_t arena_bytes;
    bool as_written;  // every valid instance is taken as it is written, 1.0 for an integer, too
    bool unevaluated; // some schema says unevaluatedProperties or unevaluatedItems

    struct keywords **keywords; // (values of the document) what each schema says, NULL: not read yet

    struct resource *resources;
    int num_resources;
    struct anchor *anchors;
    int num_anchors;

    struct goal_data *goals;
    int num_goals, cap_goals;
    int32_t *goal_table;
    int goal_slots;
    goal queue, queue_end; // goals with bodies still to be written; -1: none
    // The layers above schema_goal.c: all forms of a goal for a type, and the expression of a goal that has its forms.
    bool (*expand)(struct schema *s, goal g, enum json_type type, struct form **forms);
    expr (*write)(struct schema *s, goal g);
    expr (*write_tagged)(struct schema *s, goal g, unsigned types);

    struct cached_dfa *cache;
    int num_cache, cap_cache;
    struct owned_dfa {
        struct dfa *dfa;
        struct owned_dfa *next;
    } * owned;
    struct form *all_forms; // for their automata, by owned_next
};

// ---- schema_read.c

// Memory of the arena, zeroed; NULL: the schema has failed.
void *schema_alloc(struct schema *s, size_t bytes);
// Keeps an automaton until the end; false: failed, and d is gone.
bool schema_own(struct schema *s, struct dfa *d);
void schema_free_memory(struct schema *s); // the arena and the document
// Counts work; false: too much of it, the schema has failed.
bool schema_step(struct schema *s, int64_t n);
// The work that an automaton took.
static inline bool schema_count(struct schema *s, const struct dfa *d) {
    return schema_step(s, (int64_t)d->num_states * d->num_classes / 8);
}
// Fails with the JSON pointer of node, where not NULL, before the sentence. Returns false.
bool schema_fail(struct schema *s, const struct jdoc_value *node, enum status code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
// The end of its JSON pointer, as a rule's name.
void schema_name(const struct schema *s, const struct jdoc_value *node, char *name, size_t size);
bool schema_read(struct schema *s, const char *text, size_t len);
// The value of a keyword, null too; NULL: absent.
const struct jdoc_value *schema_get(const struct schema *s, const struct jdoc_value *v, const char *keyword);
enum draft schema_draft(const struct schema *s, const struct jdoc_value *v);
// The target of `$ref`, `$dynamicRef` or `$recursiveRef` of v, whose value is `ref`; NULL: failed.
const struct jdoc_value *schema_resolve(struct schema *s, const struct jdoc_value *v, const char *keyword,
                                        const struct jdoc_value *ref);
enum json_type schema_type(const struct jdoc_value *v);
bool schema_same_text(const struct schema *s, const struct jdoc_value *a, const struct jdoc_value *b);

// ---- schema_uri.c

// A URI reference without fragment, made absolute (RFC 3986, 5.2); out has `cap` bytes. false: it does not fit.
bool schema_uri(const char *base, struct text_view ref, char *out, size_t cap);

// ---- schema_goal.c

// The atom of a schema or of the value that `const` names; ATOM_ANY, ATOM_NEVER where that is plain.
atom schema_atom(struct schema *s, const struct jdoc_value *v, bool negated);
atom value_atom(const struct schema *s, const struct jdoc_value *v, bool negated);
static inline atom atom_not(atom a) {
    return a == ATOM_ANY ? ATOM_NEVER : a == ATOM_NEVER ? ATOM_ANY : a ^ 1;
}
static inline bool atom_negated(atom a) { return a & 1; }
static inline bool atom_is_value(atom a) { return a & 2; }
static inline const struct jdoc_value *atom_node(const struct schema *s, atom a) {
    return &s->doc.values[a >> 2];
}
goal schema_goal(struct schema *s, const atom *atoms, int n); // -1: failed
goal schema_goal_and(struct schema *s, goal g, atom a);
bool goal_is_empty(struct schema *s, goal g); // proved; false: it may have a value, or that is unknown
bool goal_is_empty_of(struct schema *s, goal g, enum json_type type);
// The forms of a goal; false: failed, with s->err.
bool goal_forms(struct schema *s, goal g, enum json_type type, const struct form **forms);
expr goal_expr(struct schema *s, goal g); // EXPR_NONE: failed
bool goals_write(struct schema *s);       // the bodies of all rules that goal_expr() gave out

// ---- schema_clause.c

bool clause_add(struct schema *s, struct clause *c, struct fact f);
bool clause_todo(struct schema *s, struct clause *c, atom a, const struct origin *parent);
struct schema_choice *choice_begin(struct schema *s, const struct origin *parent); // NULL: failed
// An alternative of n facts.
bool choice_add(struct schema *s, struct schema_choice *choice, const struct fact *facts, int n);
void clause_choose(struct clause *c, struct schema_choice *choice);
struct form *form_add(struct schema *s, struct form **forms); // NULL: failed

// ---- schema_say.c

// Adds what an atom says of a value of this type. May set c->dead. false: failed.
bool atom_say(struct schema *s, enum json_type type, struct clause *c, const struct origin *o);
// Whether no value of the type is as the atom says, as far as a glance shows.
bool atom_excludes(struct schema *s, atom a, enum json_type type);

// ---- schema_unevaluated.c

// Adds the facts of unevaluatedProperties and unevaluatedItems, after all other keywords.
bool clause_say_unevaluated(struct schema *s, enum json_type type, struct clause *c);

// ---- schema_expand.c, schema_write.c: for `expand`, `write` and `write_tagged`

bool goal_expand(struct schema *s, goal g, enum json_type type, struct form **forms);
expr goal_write(struct schema *s, goal g);
expr goal_write_call(struct schema *s, goal g, enum json_members written); // its objects, as a call has them
// Its values of some types (bits of grammar.h) between tags: strings as they are, the rest as JSON.
expr goal_write_tagged(struct schema *s, goal g, unsigned types);

// ---- schema_members.c: object_*, node_*; and forms. form_*: adds the forms that a clause's facts give (none, where they
// contradict each other); false: failed. *_expr: how a form is written.

bool form_number(struct schema *s, const struct clause *c, struct form **forms);
bool form_string(struct schema *s, const struct clause *c, struct form **forms);
bool form_array(struct schema *s, const struct clause *c, struct form **forms);
bool form_object(struct schema *s, const struct clause *c, struct form **forms);
// Whether the required members of a clause already contradict each other.
bool object_contradicts(struct schema *s, const struct clause *c);
// The goal of a member of this name by PROPERTY facts alone.
goal object_member(struct schema *s, const struct clause *c, const struct jdoc_value *name, bool *required);
// The schemas that between them name all members that there may be; NULL: others may be there.
const struct node_list *object_closed(const struct schema *s, const struct clause *c);
const struct jdoc_value *node_names(const struct schema *s, const struct node_list *l); // an object or NULL
// Whether a member of this name is among those that an EXISTS fact of OTHERS or MATCHING means.
bool object_selects(struct schema *s, const struct fact *exists, const struct jdoc_value *name);
expr array_expr(struct schema *s, const struct form *f);
expr object_expr(struct schema *s, const struct form *f, enum json_members written);

bool number_equal(struct schema *s, const struct jdoc_value *a, const struct jdoc_value *b);
bool number_is_integer(struct schema *s, const struct jdoc_value *v);
bool number_format_known(const struct schema *s, const struct jdoc_value *format); // int32 and the like
// The strings of `list` (a value, or an array of them), or its numbers without exponents and zeros too many, as an
// automaton that the schema keeps; NULL: failed.
const struct dfa *schema_list(struct schema *s, const struct jdoc_value *list, bool numbers);
// The text of a number without exponent and zeros too many, in the arena. NULL: failed.
const char *number_text(struct schema *s, const struct jdoc_value *v, size_t *len);
// Automata that the schema keeps; NULL: failed, or *annotation: a format that is not known.
const struct dfa *schema_regex(struct schema *s, const struct jdoc_value *pattern);
const struct dfa *schema_format(struct schema *s, const struct jdoc_value *format, bool *annotation);
// The automaton of a form of strings; NULL: failed.
const struct dfa *string_form_dfa(struct schema *s, struct form *f);
// The names that a goal allows, for the caller; NULL with *any: all; NULL otherwise: failed.
struct dfa *string_goal_dfa(struct schema *s, goal g, bool *any);
