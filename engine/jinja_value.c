// Values of templates: memory, strings with marks, lists, dicts, equality and order.
#include "hash.h"
#include "jinja.h"
#include "utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- memory

#define BLOCK_SIZE ((size_t)32 << 10)

struct arena_block {
    struct arena_block *next;
    max_align_t data[];
};

struct chat_arena *chat_arena_new(void) {
    struct chat_arena *a = calloc(1, sizeof *a);
    if (a) {
        a->limit = SIZE_MAX;
        a->seed = hash_seed();
    }
    return a;
}

void chat_arena_free(struct chat_arena *a) {
    if (!a)
        return;
    for (struct arena_block *b = a->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(a);
}

void *arena_alloc(struct chat_arena *a, size_t n) {
    if (n > PTRDIFF_MAX - BLOCK_SIZE || n > a->limit || a->used > a->limit - n)
        return NULL;
    n = (n + 15) & ~(size_t)15;
    bool alone = n > BLOCK_SIZE / 4;
    if (alone || n > (size_t)(a->end - a->at)) {
        size_t size = alone ? n : BLOCK_SIZE;
        struct arena_block *b = calloc(1, sizeof *b + size);
        if (!b)
            return NULL;
        b->next = a->blocks;
        a->blocks = b;
        if (alone) {
            a->used += n;
            return b->data;
        }
        a->at = (char *)b->data;
        a->end = a->at + size;
    }
    char *p = a->at;
    a->at += n;
    a->used += n;
    return p;
}

_Noreturn static void no_memory(struct jinja *j, size_t n) {
    if (n > j->a->limit || j->a->used > j->a->limit - n)
        jinja_fail(j, STATUS_LIMIT, "the chat template needs too much memory");
    jinja_fail(j, STATUS_NOMEM, "out of memory for the chat template");
}

void *jinja_alloc(struct jinja *j, size_t n) {
    void *p = arena_alloc(j->a, n);
    if (!p)
        no_memory(j, n);
    return p;
}

// ---- strings

uint32_t utf8_decode(const char *p, size_t *len) {
    const unsigned char *u = (const unsigned char *)p;
    if (u[0] < 0x80) {
        *len = 1;
        return u[0];
    }
    if (u[0] < 0xe0) {
        *len = 2;
        return (uint32_t)(u[0] & 0x1f) << 6 | (u[1] & 0x3f);
    }
    if (u[0] < 0xf0) {
        *len = 3;
        return (uint32_t)(u[0] & 0x0f) << 12 | (uint32_t)(u[1] & 0x3f) << 6 | (u[2] & 0x3f);
    }
    *len = 4;
    return (uint32_t)(u[0] & 0x07) << 18 | (uint32_t)(u[1] & 0x3f) << 12 | (uint32_t)(u[2] & 0x3f) << 6 |
           (u[3] & 0x3f);
}

size_t utf8_encode(char out[4], uint32_t c) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

void utf8_scrub(char *text) {
    for (size_t left = strlen(text); left > 0;) {
        int n = utf8_len((unsigned char *)text, left);
        if (n == 0)
            *text = '?';
        text += n ? n : 1;
        left -= n ? (size_t)n : 1;
    }
}

void marked_reserve(struct jinja *j, struct marked *b, size_t more) {
    if (more <= b->cap - b->len)
        return;
    if (more > j->a->limit)
        jinja_fail(j, STATUS_LIMIT, "the chat template needs too much memory");
    size_t cap = 2 * (b->len + more) + 32;
    char *p = jinja_alloc(j, cap);
    uint8_t *marks = jinja_alloc(j, cap);
    if (b->len) {
        memcpy(p, b->p, b->len);
        memcpy(marks, b->marks, b->len);
    }
    *b = (struct marked){.p = p, .marks = marks, .len = b->len, .cap = cap};
}

void marked_put(struct jinja *j, struct marked *b, const char *p, size_t n, bool mark) {
    if (n == 0)
        return;
    marked_reserve(j, b, n);
    memcpy(b->p + b->len, p, n);
    memset(b->marks + b->len, mark, n);
    b->len += n;
}

void marked_puts(struct jinja *j, struct marked *b, const char *text) {
    marked_put(j, b, text, strlen(text), false);
}

void marked_put_part(struct jinja *j, struct marked *b, const struct str *s, size_t from, size_t to) {
    size_t at = b->len;
    if (from == to)
        return;
    marked_put(j, b, s->p + from, to - from, s->mark);
    if (s->marks)
        memcpy(b->marks + at, s->marks + from, to - from);
    jinja_bytes(j, to - from);
}

void marked_put_str(struct jinja *j, struct marked *b, const struct str *s) {
    marked_put_part(j, b, s, 0, s->len);
}

void marked_put_code(struct jinja *j, struct marked *b, uint32_t code, bool mark) {
    char text[4];
    size_t n = utf8_encode(text, code);
    marked_put(j, b, text, n, mark);
}

struct str *marked_str(struct jinja *j, struct marked *b) {
    struct str *s = jinja_alloc(j, sizeof *s);
    struct marked *own = jinja_alloc(j, sizeof *own);
    *own = *b;
    *s = (struct str){.p = b->p ? b->p : "", .marks = b->marks, .len = b->len, .buf = own};
    return s;
}

struct str *marked_blend(struct jinja *j, struct marked *b) {
    struct str *s = marked_str(j, b);
    if (b->len && memchr(b->marks, 1, b->len)) {
        s->marks = NULL;
        s->buf = NULL;
        s->mark = true;
    }
    return s;
}

struct str *str_new(struct jinja *j, const char *p, size_t len) {
    struct str *s = jinja_alloc(j, sizeof *s);
    *s = (struct str){.p = p, .len = len};
    return s;
}

struct str *str_part(struct jinja *j, const struct str *s, size_t from, size_t to) {
    struct str *t = jinja_alloc(j, sizeof *t);
    *t = *s;
    t->p += from;
    t->marks = s->marks ? s->marks + from : NULL;
    t->len = to - from;
    return t;
}

struct str *str_concat(struct jinja *j, const struct str *a, const struct str *b) {
    struct marked *buf = a->buf;
    if (!buf || a->p + a->len != buf->p + buf->len || buf->cap - buf->len < b->len) {
        buf = jinja_alloc(j, sizeof *buf);
        marked_reserve(j, buf, a->len + b->len);
        marked_put_str(j, buf, a);
    }
    // Appended where a ends: a keeps its length, and who appends to a next finds its end taken.
    if (a->len + b->len == 0)
        return str_new(j, "", 0);
    size_t from = buf->len - a->len;
    marked_put_str(j, buf, b);
    struct str *s = jinja_alloc(j, sizeof *s);
    *s = (struct str){.p = buf->p + from, .marks = buf->marks + from, .len = a->len + b->len, .buf = buf};
    return s;
}

bool str_is(const struct str *s, const char *text) {
    return s->len == strlen(text) && memcmp(s->p, text, s->len) == 0;
}

bool str_equal(const struct str *a, const struct str *b) {
    return a == b || (a->len == b->len && memcmp(a->p, b->p, a->len) == 0);
}

size_t str_find(const struct str *s, size_t from, const struct str *what) {
    if (what->len > s->len - from)
        return SIZE_MAX;
    const char *p = what->len ? memmem(s->p + from, s->len - from, what->p, what->len) : s->p + from;
    return p ? (size_t)(p - s->p) : SIZE_MAX;
}

size_t str_count(struct jinja *j, const struct str *s) {
    size_t n = 0;
    jinja_bytes(j, s->len);
    for (size_t i = 0; i < s->len; i++)
        n += ((unsigned char)s->p[i] & 0xc0) != 0x80;
    return n;
}

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
        no_memory(j, 2 * l->cap * sizeof v);
}

bool value_hash(const struct chat_arena *a, struct value v, uint64_t *hash, int *budget) {
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
        const struct entry *e = &d->e[d->index[i] - 1];
        if (e->hash == hash && value_equal(NULL, e->key, key, 0))
            break;
    }
    return i;
}

struct value *dict_find(const struct chat_arena *a, const struct dict *d, struct value key, uint64_t hash) {
    (void)a;
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
    struct value *old = dict_find(a, d, key, hash);
    if (old) {
        *old = v;
        return true;
    }
    if (d->len == d->cap) {
        size_t cap = d->cap ? 2 * d->cap : 4;
        struct entry *e = arena_alloc(a, cap * sizeof *e);
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
    d->e[d->len] = (struct entry){.key = key, .val = v, .hash = hash};
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
        no_memory(j, 2 * d->cap * sizeof *d->e);
}

struct value *dict_get(struct jinja *j, const struct dict *d, struct value key) {
    return dict_find(j->a, d, key, key_hash(j, key));
}

struct value *dict_get_text(const struct chat_arena *a, const struct dict *d, const char *key, size_t len) {
    struct str s = {.p = key, .len = len};
    return dict_find(a, d, value_of_str(&s), hash_bytes(a->seed, key, len));
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
            const struct value *v = dict_find(j->a, b.d, a.d->e[i].key, a.d->e[i].hash);
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

int value_order(struct jinja *j, struct value a, struct value b, const char *op, int depth) {
    jinja_steps(j, 1);
    if (depth > JINJA_MAX_VALUE_DEPTH)
        jinja_fail(j, STATUS_LIMIT, "values nested over %d deep", JINJA_MAX_VALUE_DEPTH);
    if (is_integer(a) && is_integer(b))
        return as_int(a) < as_int(b) ? -1 : as_int(a) > as_int(b);
    if (is_number(a) && is_number(b)) {
        double x = as_float(a), y = as_float(b);
        return isnan(x) || isnan(y) ? 2 : x < y ? -1 : x > y;
    }
    if (a.kind == V_STRING && b.kind == V_STRING) { // the order of UTF-8 bytes is that of code points
        size_t n = a.s->len < b.s->len ? a.s->len : b.s->len;
        jinja_bytes(j, n);
        int c = n ? memcmp(a.s->p, b.s->p, n) : 0;
        return c ? (c < 0 ? -1 : 1) : a.s->len < b.s->len ? -1 : a.s->len > b.s->len;
    }
    if (a.kind == b.kind && (a.kind == V_LIST || a.kind == V_TUPLE)) {
        for (size_t i = 0; i < a.l->len && i < b.l->len; i++)
            if (!value_equal(j, a.l->v[i], b.l->v[i], depth + 1))
                return value_order(j, a.l->v[i], b.l->v[i], op, depth + 1);
        return a.l->len < b.l->len ? -1 : a.l->len > b.l->len;
    }
    if (a.kind == V_UNDEFINED || b.kind == V_UNDEFINED)
        jinja_fail_undefined(j, a.kind == V_UNDEFINED ? a : b);
    jinja_fail(j, STATUS_INVALID, "'%s' not supported between instances of '%s' and '%s'", op, value_type(a),
               value_type(b));
}

bool value_contains(struct jinja *j, struct value where, struct value what) {
    if (where.kind == V_STRING) {
        if (what.kind == V_UNDEFINED)
            jinja_fail_undefined(j, what);
        if (what.kind != V_STRING)
            jinja_fail(j, STATUS_INVALID, "'in <string>' requires string as left operand, not %s",
                       value_type(what));
        jinja_bytes(j, where.s->len);
        return str_find(where.s, 0, what.s) != SIZE_MAX;
    }
    if (where.kind == V_DICT)
        return dict_get(j, where.d, what) != NULL;
    const struct list *l = value_items(j, where);
    for (size_t i = 0; i < l->len; i++)
        if (value_equal(j, l->v[i], what, 0))
            return true;
    return false;
}

struct str *value_str(struct jinja *j, struct value v) {
    if (v.kind == V_STRING)
        return v.s;
    if (v.kind == V_UNDEFINED)
        return str_new(j, "", 0);
    struct marked b = {0};
    value_repr(j, &b, v, 0);
    return marked_blend(j, &b);
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

// A stable merge sort, because qsort() is neither stable nor can it fail.
struct list *value_sorted(struct jinja *j, const struct list *keys, const struct list *items, bool reverse) {
    size_t n = items->len;
    size_t *a = jinja_alloc(j, (n + 1) * sizeof *a), *b = jinja_alloc(j, (n + 1) * sizeof *b);
    for (size_t i = 0; i < n; i++)
        a[i] = i;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            size_t mid = lo + width < n ? lo + width : n, hi = lo + 2 * width < n ? lo + 2 * width : n;
            for (size_t i = lo, k = mid, o = lo; o < hi; o++) {
                bool left = k >= hi;
                if (!left && i < mid) {
                    int c = value_order(j, keys->v[a[k]], keys->v[a[i]], "<", 0);
                    left = reverse ? c != 1 : c != -1;
                }
                b[o] = left ? a[i++] : a[k++];
            }
        }
        size_t *t = a;
        a = b;
        b = t;
    }
    struct list *l = list_new(j);
    for (size_t i = 0; i < n; i++)
        list_add(j, l, items->v[a[i]]);
    return l;
}
