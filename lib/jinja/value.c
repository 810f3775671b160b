#include "value.h"

#include "hash.h"

#include <string.h>

// ---- lists and dicts

bool list_push(struct chat_arena *a, struct list *l, struct value v) {
    if (l->len == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 4;
        struct value *p = arena_alloc(a, cap * sizeof *p);
        if (!p)
            return false;
        if (l->len)
            memcpy(p, l->v, l->len * sizeof *p);
        l->v = p;
        l->cap = cap;
    }
    l->v[l->len++] = v;
    return true;
}

struct list *list_new(struct jinja *j) {
    return jinja_alloc(j, sizeof(struct list));
}

void list_add(struct jinja *j, struct list *l, struct value v) {
    jinja_steps(j, 1);
    if (!list_push(j->a, l, v))
        jinja_no_memory(j, 2 * l->cap * sizeof v);
}

struct list *list_copy(struct jinja *j, const struct list *l) {
    struct list *r = list_new(j);
    for (size_t i = 0; i < l->len; i++)
        list_add(j, r, l->v[i]);
    return r;
}

static bool value_hash(const struct chat_arena *a, struct value v, uint64_t *hash, int *budget) {
    if (--*budget < 0)
        return false;
    switch (v.kind) {
    case V_STRING: *hash = hash_bytes(a->seed, v.s->p, v.s->len); return true;
    case V_BOOL:
    case V_INT:
    case V_FLOAT: { // equal numbers are one key, whatever their type
        double f = as_float(v) + 0.0;
        *hash = hash_bytes(a->seed ^ 1, &f, sizeof f);
        return true;
    }
    case V_TUPLE: {
        uint64_t h = a->seed + v.l->len, part;
        for (size_t i = 0; i < v.l->len; i++) {
            if (!value_hash(a, v.l->v[i], &part, budget))
                return false;
            h = hash_mix(h ^ part, 0x9e3779b97f4a7c15u);
        }
        *hash = h;
        return true;
    }
    case V_NULL:
    case V_UNDEFINED: *hash = (uint64_t)v.kind; return true;
    default: return false;
    }
}

static size_t dict_slot(const struct dict *d, struct value key, uint64_t hash) {
    size_t i = hash & (d->index_cap - 1);
    for (; d->index[i]; i = (i + 1) & (d->index_cap - 1)) {
        const struct dict_entry *e = &d->e[d->index[i] - 1];
        if (e->hash == hash && value_equal(NULL, e->key, key, 0))
            break;
    }
    return i;
}

struct value *dict_find(const struct dict *d, struct value key, uint64_t hash) {
    if (d->index) {
        size_t i = dict_slot(d, key, hash);
        return d->index[i] ? &d->e[d->index[i] - 1].val : NULL;
    }
    for (size_t i = 0; i < d->len; i++)
        if (d->e[i].hash == hash && value_equal(NULL, d->e[i].key, key, 0))
            return &d->e[i].val;
    return NULL;
}

bool dict_put(struct chat_arena *a, struct dict *d, struct value key, uint64_t hash, struct value v) {
    struct value *old = dict_find(d, key, hash);
    if (old) {
        *old = v;
        return true;
    }
    if (d->len == d->cap) {
        size_t cap = d->cap ? 2 * d->cap : 4;
        struct dict_entry *e = arena_alloc(a, cap * sizeof *e);
        if (!e || cap > UINT32_MAX / 4)
            return false;
        if (d->len)
            memcpy(e, d->e, d->len * sizeof *e);
        d->e = e;
        d->cap = cap;
        if (cap > 8) {
            uint32_t *index = arena_alloc(a, 2 * cap * sizeof *index);
            if (!index)
                return false;
            d->index = index;
            d->index_cap = 2 * cap;
            for (size_t i = 0; i < d->len; i++)
                d->index[dict_slot(d, d->e[i].key, d->e[i].hash)] = (uint32_t)i + 1;
        }
    }
    d->e[d->len] = (struct dict_entry){.key = key, .val = v, .hash = hash};
    if (d->index)
        d->index[dict_slot(d, key, hash)] = (uint32_t)d->len + 1;
    d->len++;
    return true;
}

struct dict *dict_new(struct jinja *j) {
    return jinja_alloc(j, sizeof(struct dict));
}

static uint64_t key_hash(struct jinja *j, struct value key) {
    uint64_t hash;
    int budget = 1000;
    if (key.kind == V_STRING)
        jinja_bytes(j, key.s->len);
    if (!value_hash(j->a, key, &hash, &budget))
        jinja_fail(j, STATUS_INVALID, "unhashable type: '%s'", value_type(key));
    return hash;
}

void dict_set(struct jinja *j, struct dict *d, struct value key, struct value v) {
    jinja_steps(j, 1);
    if (!dict_put(j->a, d, key, key_hash(j, key), v))
        jinja_no_memory(j, 2 * d->cap * sizeof *d->e);
}

struct value *dict_get(struct jinja *j, const struct dict *d, struct value key) {
    return dict_find(d, key, key_hash(j, key));
}

struct value *dict_get_text(const struct chat_arena *a, const struct dict *d, const char *key, size_t len) {
    struct str s = {.p = key, .len = len};
    return dict_find(d, value_of_str(&s), hash_bytes(a->seed, key, len));
}

struct list *dict_pairs(struct jinja *j, const struct dict *d) {
    struct list *l = list_new(j);
    for (size_t i = 0; i < d->len; i++)
        list_add(j, l, value_pair(j, d->e[i].key, d->e[i].val));
    return l;
}

// ---- meaning

struct value value_undefined(struct jinja *j, const char *owner, struct value name) {
    struct undefined *u = jinja_alloc(j, sizeof *u);
    *u = (struct undefined){.name = name, .owner = owner};
    return (struct value){.kind = V_UNDEFINED, .u = u};
}

struct value value_text(struct jinja *j, const char *text) {
    return value_of_str(str_new(j, text, strlen(text)));
}

struct value value_pair(struct jinja *j, struct value a, struct value b) {
    struct list *l = list_new(j);
    list_add(j, l, a);
    list_add(j, l, b);
    return value_of_list(V_TUPLE, l);
}

const char *value_type(struct value v) {
    static const char *const names[] = {
        [V_ABSENT] = "nothing",
        [V_UNDEFINED] = "Undefined",
        [V_NULL] = "NoneType",
        [V_BOOL] = "bool",
        [V_INT] = "int",
        [V_FLOAT] = "float",
        [V_STRING] = "str",
        [V_LIST] = "list",
        [V_TUPLE] = "tuple",
        [V_GENERATOR] = "generator",
        [V_VIEW] = "dict view",
        [V_DICT] = "dict",
        [V_NAMESPACE] = "Namespace",
        [V_LOOP] = "LoopContext",
        [V_MACRO] = "Macro",
        [V_FUNCTION] = "function",
        [V_METHOD] = "method",
        [V_CYCLER] = "Cycler",
        [V_JOINER] = "Joiner",
    };
    return names[v.kind];
}

bool value_truth(struct value v) {
    switch (v.kind) {
    case V_ABSENT:
    case V_UNDEFINED:
    case V_NULL: return false;
    case V_BOOL: return v.b;
    case V_INT: return v.i != 0;
    case V_FLOAT: return v.f != 0;
    case V_STRING: return v.s->len > 0;
    case V_LIST:
    case V_TUPLE:
    case V_VIEW: return v.l->len > 0;
    case V_DICT: return v.d->len > 0;
    default: return true;
    }
}

bool value_equal(struct jinja *j, struct value a, struct value b, int depth) {
    if (j)
        jinja_steps(j, 1);
    if (depth > JINJA_MAX_VALUE_DEPTH) {
        if (j)
            jinja_fail(j, STATUS_LIMIT, "values nested over %d deep", JINJA_MAX_VALUE_DEPTH);
        return false;
    }
    if (is_number(a) && is_number(b))
        return is_integer(a) && is_integer(b) ? as_int(a) == as_int(b) : as_float(a) == as_float(b);
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case V_STRING:
        if (j && a.s->len == b.s->len)
            jinja_bytes(j, a.s->len);
        return str_equal(a.s, b.s);
    case V_LIST:
    case V_TUPLE:
        if (a.l->len != b.l->len)
            return false;
        for (size_t i = 0; i < a.l->len; i++)
            if (!value_equal(j, a.l->v[i], b.l->v[i], depth + 1))
                return false;
        return true;
    case V_DICT:
        if (!j || a.d->len != b.d->len)
            return a.d == b.d;
        for (size_t i = 0; i < a.d->len; i++) {
            const struct value *v = dict_find(b.d, a.d->e[i].key, a.d->e[i].hash);
            if (!v || !value_equal(j, a.d->e[i].val, *v, depth + 1))
                return false;
        }
        return true;
    case V_NULL:
    case V_UNDEFINED: return true;
    case V_METHOD:
        return a.method->fn == b.method->fn && value_equal(j, a.method->self, b.method->self, depth + 1);
    default: return a.l == b.l; // any of the pointers
    }
}

struct list *value_items(struct jinja *j, struct value v) {
    struct list *l;
    switch (v.kind) {
    case V_LIST:
    case V_TUPLE:
    case V_VIEW: return v.l;
    case V_GENERATOR:
        if (v.l->spent)
            return list_new(j);
        v.l->spent = true;
        return v.l;
    case V_UNDEFINED: return list_new(j);
    case V_DICT:
        l = list_new(j);
        for (size_t i = 0; i < v.d->len; i++)
            list_add(j, l, v.d->e[i].key);
        return l;
    case V_STRING:
        l = list_new(j);
        for (size_t i = 0, n; i < v.s->len; i += n) {
            utf8_decode(v.s->p + i, &n);
            list_add(j, l, value_of_str(str_part(j, v.s, i, i + n)));
        }
        return l;
    default: jinja_fail(j, STATUS_INVALID, "'%s' object is not iterable", value_type(v));
    }
}
