// Values of templates, as Python has them: kinds, lists, dicts, truth, equality.
#pragma once

#include "str.h"

enum value_kind {
    V_ABSENT, // an argument that was not given; never seen by a template
    V_UNDEFINED,
    V_NULL,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_STRING,
    V_LIST,
    V_TUPLE,
    V_GENERATOR, // a list that can be read once, has no length and no index
    V_VIEW,      // dict.keys() and the like: a length, no index
    V_DICT,
    V_NAMESPACE,
    V_LOOP,
    V_MACRO,
    V_FUNCTION, // a global
    V_METHOD,   // bound to its object
    V_CYCLER,
    V_JOINER,
    NUM_VALUE_KINDS,
};

struct value {
    enum value_kind kind;
    union {
        bool b;
        int64_t i;
        double f;
        struct str *s;
        struct list *l; // list, tuple, generator, view
        struct dict *d; // dict, namespace
        struct undefined *u;
        struct jinja_loop *loop;
        struct macro *macro;
        const struct builtin *fn;
        struct method *method;
        struct cycler *cycler; // joiner too
    };
};

struct chat_value {
    struct value v;
};

struct list {
    struct value *v;
    size_t len, cap;
    bool spent; // a generator that was read
};

struct dict_entry {
    struct value key, val;
    uint64_t hash;
};

struct dict { // ordered by insertion
    struct dict_entry *e;
    uint32_t *index; // hash table of places + 1, from 8 entries on
    size_t len, cap, index_cap;
};

struct undefined {
    struct value name;
    const char *owner;   // type name of the object that lacks the name; NULL: a variable
    const char *message; // instead, where not NULL
};

struct jinja_loop {
    struct list *items;
    size_t at;
    int depth0;
    struct value changed; // arguments of the last loop.changed()
};

struct macro {
    const struct str *name;
    const struct node *node;
    struct scope *scope; // where it was defined
};

struct method {
    struct value self;
    const struct builtin *fn;
};

struct cycler {
    struct list *items;
    struct str *sep;
    size_t at;
};

// Those that take an arena give false or NULL for want of memory; those that take the state fail.
bool list_push(struct chat_arena *a, struct list *l, struct value v);
bool dict_put(struct chat_arena *a, struct dict *d, struct value key, uint64_t hash, struct value v);
struct value *dict_find(const struct dict *d, struct value key, uint64_t hash); // NULL: not there
struct value *dict_get_text(const struct chat_arena *a, const struct dict *d, const char *key, size_t len);

struct list *list_new(struct jinja *j);
void list_add(struct jinja *j, struct list *l, struct value v);
struct list *list_copy(struct jinja *j, const struct list *l);
struct dict *dict_new(struct jinja *j);
void dict_set(struct jinja *j, struct dict *d, struct value key, struct value v);
struct value *dict_get(struct jinja *j, const struct dict *d, struct value key); // NULL: not there
struct list *dict_pairs(struct jinja *j, const struct dict *d);                  // tuples (key, value)

static inline struct value value_of_bool(bool b) { return (struct value){.kind = V_BOOL, .b = b}; }
static inline struct value value_of_int(int64_t i) { return (struct value){.kind = V_INT, .i = i}; }
static inline struct value value_of_float(double f) { return (struct value){.kind = V_FLOAT, .f = f}; }
static inline struct value value_of_str(struct str *s) { return (struct value){.kind = V_STRING, .s = s}; }
static inline struct value value_of_list(enum value_kind k, struct list *l) {
    return (struct value){.kind = k, .l = l};
}
static inline struct value value_of_dict(struct dict *d) { return (struct value){.kind = V_DICT, .d = d}; }
static inline struct value value_null(void) { return (struct value){.kind = V_NULL}; }
struct value value_undefined(struct jinja *j, const char *owner, struct value name);
struct value value_text(struct jinja *j, const char *text); // of a constant
struct value value_pair(struct jinja *j, struct value a, struct value b);

static inline bool is_number(struct value v) {
    return v.kind == V_INT || v.kind == V_FLOAT || v.kind == V_BOOL;
}
static inline bool is_integer(struct value v) { return v.kind == V_INT || v.kind == V_BOOL; }
static inline int64_t as_int(struct value v) { return v.kind == V_BOOL ? v.b : v.i; }
static inline double as_float(struct value v) { return v.kind == V_FLOAT ? v.f : (double)as_int(v); }
static inline bool is_listlike(struct value v) {
    return v.kind == V_LIST || v.kind == V_TUPLE || v.kind == V_GENERATOR || v.kind == V_VIEW;
}
static inline bool is_given(struct value v) { return v.kind != V_ABSENT && v.kind != V_NULL; }

const char *value_type(struct value v); // Python's name of the type
bool value_truth(struct value v);
// j may be NULL: nothing is counted.
bool value_equal(struct jinja *j, struct value a, struct value b, int depth);
struct list *value_items(struct jinja *j, struct value v); // the elements that a loop visits
