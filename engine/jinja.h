// The language of chat templates, private to engine/:
//
//   source → jinja_lex (tokens) → jinja_parse (tree of nodes) → jinja_eval (runs it) → marked bytes
//
// Semantics are those of Jinja 3.1 as Hugging Face transformers sets it up: an immutable sandbox,
// trim_blocks, lstrip_blocks, loop controls. Sources: the Jinja documentation, and its behaviour on the
// golden files.
//
// Provenance: every byte of a string has a mark, 1 where a client wrote it. A string is a view of bytes with
// a parallel array of marks, so slices are free and every operation that moves bytes moves marks.
//
// Errors leave by longjmp. Whatever was allocated lies in an arena, so there is nothing to undo on the way.
#pragma once

#include "chat.h"

#include <setjmp.h>

#define JINJA_MAX_SOURCE ((size_t)1 << 20)
#define JINJA_MAX_NESTING 64     // in the source
#define JINJA_MAX_STEPS 1000000  // nodes run, elements and KiB looked at
#define JINJA_MAX_CALLS 32       // macros within macros
#define JINJA_MAX_EVAL_DEPTH 800 // frames of eval() and exec() on the C stack
#define JINJA_MAX_VALUE_DEPTH 100
#define JINJA_MAX_RANGE 10000
#define JINJA_MAX_OUTPUT(input) (4 * (input) + ((size_t)1 << 20))
#define JINJA_MAX_MEMORY(input) (8 * (input) + ((size_t)64 << 20)) // what rendering may add to its arena

struct arena_block;
struct chat_arena {
    struct arena_block *blocks;
    char *at, *end;
    size_t used, limit; // bytes
    size_t input;       // bytes of text that the caller put in
    uint64_t seed;      // of the hash tables
};

// ---- values

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
        struct loop *loop;
        struct macro *macro;
        const struct builtin *fn;
        struct method *method;
        struct cycler *cycler; // joiner too
    };
};

struct chat_value {
    struct value v;
};

struct marked { // grows at its end; marks run parallel
    char *p;
    uint8_t *marks;
    size_t len, cap;
};

struct str {
    const char *p;
    const uint8_t *marks; // (len); NULL: every byte has `mark`
    size_t len;
    struct marked *buf; // where the bytes lie, if at its end one may append; may be NULL
    bool mark;
    bool safe; // Markup of Jinja: + escapes what is added
};

struct list {
    struct value *v;
    size_t len, cap;
    bool spent; // a generator that was read
};

struct entry {
    struct value key, val;
    uint64_t hash;
};

struct dict { // ordered by insertion
    struct entry *e;
    uint32_t *index; // hash table of places + 1, from 8 entries on
    size_t len, cap, index_cap;
};

struct undefined {
    struct value name;
    const char *owner;   // type name of the object that lacks the name; NULL: a variable
    const char *message; // instead, where not NULL
};

struct loop {
    struct list *items;
    size_t at;
    int depth0;
    struct value changed; // arguments of the last loop.changed()
};

struct macro {
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

// ---- source

enum token_kind {
    T_EOF,
    T_DATA,
    T_VAR_BEGIN,
    T_VAR_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_FLOAT,
    T_OP
};

// Operators are their character; those of two are:
enum {
    OP_EQ = 'e',
    OP_NE = 'n',
    OP_GE = 'g',
    OP_LE = 'l',
    OP_FLOORDIV = 'd',
    OP_POW = 'p',
    OP_IN = 'i',
    OP_NOT_IN = 'j'
};

struct token {
    enum token_kind kind;
    int op;
    uint32_t line, column; // from 1
    const char *p;         // data, name, string after its escapes
    size_t len;
    int64_t i;
    double f;
};

enum node_kind {
    N_TEXT,
    N_OUTPUT,
    N_BLOCK,
    N_IF,
    N_FOR,
    N_SET,
    N_SET_BLOCK,
    N_MACRO,
    N_CALL_BLOCK,
    N_FILTER_BLOCK,
    N_WITH,
    N_SCOPE,
    N_BREAK,
    N_CONTINUE,
    N_CONST,
    N_NAME,
    N_LIST,
    N_TUPLE,
    N_DICT,
    N_ATTR,
    N_ITEM,
    N_SLICE,
    N_CALL,
    N_FILTER,
    N_TEST,
    N_NEGATE,
    N_PLUS,
    N_BINARY,
    N_COMPARE,
    N_AND,
    N_OR,
    N_NOT,
    N_COND,
    N_CONCAT,
    N_NS_TARGET, // ns.attribute as the target of set
    N_INPUT,     // what a filter block filters
};

// Which members a kind uses is said where the parser makes it.
struct node {
    enum node_kind kind;
    int op;
    uint32_t line;
    const struct str *name; // interned: equal names are one pointer
    const struct builtin *fn;
    struct node *a, *b, *c, *d;
    struct node **list; // (num)
    size_t num;
    const int *ops; // (num) of a comparison
    struct args *args;
    struct value v;
    bool uses_varargs, uses_kwargs, uses_caller; // of a macro
};

struct args {
    struct node **pos;        // (num)
    const struct str **names; // (num_kw)
    struct node **kw;
    size_t num, num_kw;
    struct node *star, *star_star; // or NULL
};

struct chat_template {
    struct chat_arena *arena;
    struct node *root;
    const struct str *loop, *caller, *varargs, *kwargs; // names
};

struct jinja_source { // what lexer and parser share
    struct chat_arena *arena;
    struct err *err;
    enum status status;
    jmp_buf env;
    struct token *tokens;
    size_t num_tokens, cap_tokens;
};

void jinja_lex(struct jinja_source *s, const char *source, size_t len);
void jinja_parse(struct jinja_source *s, struct chat_template *t);
void *source_alloc(struct jinja_source *s, size_t n);
_Noreturn void source_fail(struct jinja_source *s, enum status status, uint32_t line, uint32_t column,
                           const char *fmt, ...) __attribute__((format(printf, 5, 6)));

// ---- running

struct binding {
    const struct str *name;
    struct value v;
};

struct scope {
    struct scope *parent;
    struct binding *vars;
    size_t num, cap;
    bool captured; // by a macro: may not be used again for the next turn of a loop
};

struct jinja {
    struct chat_arena *a;
    const struct chat_template *t;
    const struct dict *globals;
    struct scope *scope;
    struct marked *out;
    size_t max_out;
    struct value input; // of N_INPUT
    int64_t steps;
    int calls, depth;
    uint32_t line;
    struct err *err;
    enum status status;
    jmp_buf env;
};

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

enum flow jinja_exec(struct jinja *j, const struct node *n);
_Noreturn void jinja_fail(struct jinja *j, enum status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void jinja_fail_undefined(struct jinja *j, struct value u);
void jinja_steps(struct jinja *j, size_t n); // counts them, and fails at the limit
static inline void jinja_bytes(struct jinja *j, size_t n) { jinja_steps(j, n >> 10); }

struct kwarg {
    const struct str *name;
    struct value v;
};

struct call {
    struct value self;  // of a method, input of a filter or test
    struct value *args; // (num)
    struct kwarg *kw;
    size_t num, num_kw;
};

// `params`: names, space separated; after a call is bound, args has one value for each, V_ABSENT where not
// given. A leading
// '!' refuses keywords, "*" leaves the arguments alone. `min` of them are required. fn NULL: known, but the
// sandbox refuses it.
struct builtin {
    const char *name;
    struct value (*fn)(struct jinja *j, struct call *c);
    const char *params;
    size_t min;
};

const struct builtin *jinja_filter(const char *name, size_t len); // NULL: none of that name
const struct builtin *jinja_test(const char *name, size_t len);
const struct builtin *jinja_global(const char *name, size_t len);
const struct builtin *jinja_method(enum value_kind kind, const char *name, size_t len);
const struct builtin *builtin_find(const struct builtin *table, const char *name, size_t len);
struct value jinja_call(struct jinja *j, struct value f, struct call *c);
struct value jinja_invoke(struct jinja *j, const struct builtin *f, struct call *c); // binds and calls
struct value jinja_attr(struct jinja *j, struct value v, const struct str *name);
struct value jinja_item(struct jinja *j, struct value v, struct value key);
struct value jinja_slice(struct jinja *j, struct value v, struct value from, struct value to,
                         struct value step);
struct value jinja_binary(struct jinja *j, int op, struct value a, struct value b);
bool jinja_compare(struct jinja *j, int op, struct value a, struct value b);

// jinja_text.c, jinja_format.c, jinja_filters.c
extern const struct builtin jinja_str_methods[], jinja_filters[];
void text_padded(struct jinja *j, struct marked *out, const struct str *s, size_t width, char align); // < ^ >
struct value str_format(struct jinja *j, struct call *c);
struct value text_percent(struct jinja *j, const struct str *format, struct value args); // format % args
struct str *text_strip(struct jinja *j, const struct str *s, const struct str *chars, bool left, bool right);
struct str *text_case(struct jinja *j, const struct str *s,
                      char how); // u upper, l lower, c capitalize, t title, s swap
struct str *text_replace(struct jinja *j, const struct str *s, const struct str *from, const struct str *to,
                         int64_t count);
struct list *text_lines(struct jinja *j, const struct str *s, bool keep);
struct str *text_escape(struct jinja *j, const struct str *s); // & < > ' "
bool text_is_space(uint32_t c);
bool text_is_word(uint32_t c);
bool text_parse_int(const struct str *s, int base, int64_t *out);
bool text_parse_float(const struct str *s, double *out);

// jinja_json.c
void value_repr(struct jinja *j, struct marked *out, struct value v, int depth);
struct value filter_tojson(struct jinja *j, struct call *c);
int value_format_float(char out[32], double f); // as Python's repr(); returns the length

// ---- jinja_value.c

void *arena_alloc(struct chat_arena *a, size_t n); // zeroed; NULL: out of memory, or over the arena's limit
void *jinja_alloc(struct jinja *j, size_t n);      // zeroed
bool list_push(struct chat_arena *a, struct list *l, struct value v);
bool dict_put(struct chat_arena *a, struct dict *d, struct value key, uint64_t hash, struct value v);
struct value *dict_find(const struct chat_arena *a, const struct dict *d, struct value key, uint64_t hash);
bool value_hash(const struct chat_arena *a, struct value v, uint64_t *hash,
                int *budget); // false: cannot be a key

struct list *list_new(struct jinja *j);
void list_add(struct jinja *j, struct list *l, struct value v);
struct dict *dict_new(struct jinja *j);
void dict_set(struct jinja *j, struct dict *d, struct value key, struct value v);
struct value *dict_get(struct jinja *j, const struct dict *d, struct value key); // NULL: not there
struct value *dict_get_text(const struct chat_arena *a, const struct dict *d, const char *key, size_t len);

void marked_reserve(struct jinja *j, struct marked *b, size_t more);
void marked_put(struct jinja *j, struct marked *b, const char *p, size_t n, bool mark);
void marked_puts(struct jinja *j, struct marked *b, const char *text);
void marked_put_str(struct jinja *j, struct marked *b, const struct str *s);
void marked_put_part(struct jinja *j, struct marked *b, const struct str *s, size_t from, size_t to);
void marked_put_code(struct jinja *j, struct marked *b, uint32_t code, bool mark);
struct str *marked_str(struct jinja *j, struct marked *b); // the buffer becomes the string's
struct str *marked_blend(struct jinja *j,
                         struct marked *b); // the same; a client's words anywhere make all of it content

struct str *str_new(struct jinja *j, const char *p, size_t len); // does not copy; template text
struct str *str_part(struct jinja *j, const struct str *s, size_t from, size_t to);
struct str *str_concat(struct jinja *j, const struct str *a, const struct str *b);
static inline bool str_mark(const struct str *s, size_t i) { return s->marks ? s->marks[i] != 0 : s->mark; }
bool str_is(const struct str *s, const char *text);
bool str_equal(const struct str *a, const struct str *b);
size_t str_find(const struct str *s, size_t from, const struct str *what); // SIZE_MAX: not found
size_t str_count(struct jinja *j, const struct str *s);                    // code points
uint32_t utf8_decode(const char *p, size_t *len);                          // of valid UTF-8
size_t utf8_encode(char out[4], uint32_t code);
void utf8_scrub(char *text); // replaces what a cut left over

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

static inline bool is_number(struct value v) {
    return v.kind == V_INT || v.kind == V_FLOAT || v.kind == V_BOOL;
}
static inline bool is_integer(struct value v) { return v.kind == V_INT || v.kind == V_BOOL; }
static inline int64_t as_int(struct value v) { return v.kind == V_BOOL ? v.b : v.i; }
static inline double as_float(struct value v) { return v.kind == V_FLOAT ? v.f : (double)as_int(v); }
static inline bool is_listlike(struct value v) {
    return v.kind == V_LIST || v.kind == V_TUPLE || v.kind == V_GENERATOR || v.kind == V_VIEW;
}

const char *value_type(struct value v); // Python's name of the type
bool value_truth(struct value v);
bool value_equal(struct jinja *j, struct value a, struct value b,
                 int depth); // j may be NULL: nothing is counted
int value_order(struct jinja *j, struct value a, struct value b, const char *op,
                int depth); // -1, 0, 1; 2: a NaN
bool value_contains(struct jinja *j, struct value where, struct value what);
struct str *value_str(struct jinja *j, struct value v);    // Python's str()
struct list *value_items(struct jinja *j, struct value v); // what a loop goes through
struct list *value_sorted(struct jinja *j, const struct list *keys, const struct list *items, bool reverse);
