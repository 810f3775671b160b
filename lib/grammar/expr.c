#include "expr.h"

#include "buf.h"
#include "regex/code_dfa.h"
#include "regex/code_set.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_EXPRS = 1 << 20 };
static const int64_t max_bytes = 64 << 20; // of automata and objects

struct grammar_builder *gb_new(void) {
    struct grammar_builder *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    for (int i = 0; i < 256; i++)
        b->single[i] = EXPR_NONE;
    b->empty = b->never = b->blanks = b->chars = b->one_char = b->any = b->integer = b->number = EXPR_NONE;
    b->style = (struct json_style){.order = JSON_ORDER_SCHEMA, .max_blanks = 32};
    return b;
}

static void object_free(struct object *o) {
    dfa_free(o->keys);
    free(o->kinds);
    free(o->lists);
    free(o->list_starts);
}

void gb_free(struct grammar_builder *b) {
    if (!b)
        return;
    for (int i = 0; i < b->num_dfas; i++)
        dfa_free(b->dfas[i]);
    for (int i = 0; i < b->num_rules; i++)
        free(b->rules[i].name);
    for (int i = 0; i < b->num_objects; i++)
        object_free(&b->objects[i]);
    free(b->nodes);
    free(b->children);
    free(b->sets);
    free(b->dfas);
    free(b->rules);
    free(b->objects);
    free(b);
}

enum status gb_failed(const struct grammar_builder *b, struct err *err) {
    return b->err.code == STATUS_OK ? STATUS_OK : err_set(err, b->err.code, "%s", b->err.msg);
}

expr gb_fail(struct grammar_builder *b, enum status code, const char *message) {
    err_set(&b->err, code, "%s", message);
    return EXPR_NONE;
}

bool gb_grow(struct grammar_builder *b, void *array, int num, int *cap, size_t size) {
    void **items = array;
    if (b->err.code != STATUS_OK)
        return false;
    if (num < *cap)
        return true;
    if (num >= 4 * MAX_EXPRS) {
        gb_fail(b, STATUS_LIMIT, "the grammar is too large");
        return false;
    }
    int more = *cap ? 2 * *cap : 64;
    void *p = realloc(*items, (size_t)more * size);
    if (!p) {
        gb_fail(b, STATUS_NOMEM, "out of memory");
        return false;
    }
    *items = p;
    *cap = more;
    return true;
}

static expr add(struct grammar_builder *b, struct expr_node node) {
    if (b->num_nodes >= MAX_EXPRS)
        return gb_fail(b, STATUS_LIMIT, "the grammar is too large");
    if (!gb_grow(b, &b->nodes, b->num_nodes, &b->cap_nodes, sizeof *b->nodes))
        return EXPR_NONE;
    b->nodes[b->num_nodes] = node;
    return b->num_nodes++;
}

expr gb_never(struct grammar_builder *b) {
    if (b->never < 0)
        b->never = add(b, (struct expr_node){.kind = EXPR_NEVER});
    return b->never;
}

expr gb_empty(struct grammar_builder *b) {
    if (b->empty < 0)
        b->empty = add(b, (struct expr_node){.kind = EXPR_EMPTY});
    return b->empty;
}

expr gb_byte(struct grammar_builder *b, const bool set[256]) {
    struct byte_set s = {0};
    for (int i = 0; i < 256; i++)
        s.bits[i / 64] |= (uint64_t)set[i] << (i % 64);
    if (!gb_grow(b, &b->sets, b->num_sets, &b->cap_sets, sizeof *b->sets))
        return EXPR_NONE;
    b->sets[b->num_sets++] = s;
    return add(b, (struct expr_node){.kind = EXPR_SET, .first = b->num_sets - 1});
}

expr gb_bytes(struct grammar_builder *b, const char *text, size_t len) {
    expr part[64], all = gb_empty(b);
    for (size_t at = 0; at < len && all >= 0;) { // long texts in pieces
        int n = 0;
        part[n++] = all;
        for (; n < 64 && at < len; at++) {
            unsigned char c = (unsigned char)text[at];
            if (b->single[c] < 0) {
                bool set[256] = {0};
                set[c] = true;
                b->single[c] = gb_byte(b, set);
            }
            part[n++] = b->single[c];
        }
        all = gb_seq(b, part, n);
    }
    return all;
}

// Children in one list; those that are of the same kind give theirs.
static expr list(struct grammar_builder *b, enum expr_kind kind, const expr *parts, int n) {
    enum expr_kind none = kind == EXPR_SEQ ? EXPR_EMPTY : EXPR_NEVER;
    int first = b->num_children;
    for (int i = 0; i < n; i++) {
        if (parts[i] < 0)
            return EXPR_NONE;
        struct expr_node node = b->nodes[parts[i]];
        if (node.kind == none)
            continue;
        if (kind == EXPR_SEQ && node.kind == EXPR_NEVER) {
            b->num_children = first;
            return gb_never(b);
        }
        int from = node.kind == kind ? node.first : 0, count = node.kind == kind ? node.count : 1;
        for (int c = 0; c < count; c++) {
            if (!gb_grow(b, &b->children, b->num_children, &b->cap_children, sizeof *b->children))
                return EXPR_NONE;
            b->children[b->num_children++] = node.kind == kind ? b->children[from + c] : parts[i];
        }
    }
    int count = b->num_children - first;
    if (count <= 1) {
        b->num_children = first;
        return count ? b->children[first] : kind == EXPR_SEQ ? gb_empty(b) : gb_never(b);
    }
    return add(b, (struct expr_node){.kind = kind, .first = first, .count = count});
}

expr gb_seq(struct grammar_builder *b, const expr *parts, int n) { return list(b, EXPR_SEQ, parts, n); }

// The byte of a set of one; -1: it has several.
static int only_byte(const struct byte_set *s) {
    int byte = -1;
    for (int i = 0; i < 4; i++) {
        uint64_t bits = s->bits[i];
        if (bits && (byte >= 0 || (bits & (bits - 1))))
            return -1;
        byte = bits ? 64 * i + __builtin_ctzll(bits) : byte;
    }
    return byte;
}

// Appends the bytes of an expression that takes one text alone; false: it takes others, or is no list of bytes.
static bool add_text(const struct grammar_builder *b, expr e, struct buf *out) {
    const struct expr_node *n = &b->nodes[e];
    bool seq = n->kind == EXPR_SEQ;
    size_t before = out->len;
    if (n->kind == EXPR_EMPTY)
        return true;
    for (int i = 0; i < (seq ? n->count : 1); i++) {
        const struct expr_node *part = seq ? &b->nodes[b->children[n->first + i]] : n;
        int byte = part->kind == EXPR_SET ? only_byte(&b->sets[part->first]) : -1;
        if (byte < 0) {
            out->len = before;
            return false;
        }
        buf_char(out, (char)byte);
    }
    return true;
}

enum { MANY_TEXTS = 16 }; // that one automaton takes sooner than a thread each

// The texts among many alternatives become one automaton.
static expr join_texts(struct grammar_builder *b, expr alt) {
    int first = b->nodes[alt].first, count = b->nodes[alt].count, num_others = 0, num_texts = 0;
    expr *others = malloc(((size_t)count + 1) * sizeof *others), e = EXPR_NONE;
    size_t *lens = malloc((size_t)count * sizeof *lens);
    const char **texts = malloc((size_t)count * sizeof *texts);
    struct buf bytes = {.failed = !others || !lens || !texts};
    struct err err = {0};
    for (int i = 0; !bytes.failed && i < count; i++) {
        size_t before = bytes.len;
        if (add_text(b, b->children[first + i], &bytes))
            lens[num_texts++] = bytes.len - before;
        else
            others[num_others++] = b->children[first + i];
    }
    const char *at = bytes.data ? bytes.data : "";
    for (int i = 0; !bytes.failed && i < num_texts; at += lens[i++])
        texts[i] = at;
    if (bytes.failed) {
        gb_fail(b, STATUS_NOMEM, "out of memory");
    } else if (num_texts < MANY_TEXTS) {
        e = alt;
    } else {
        struct dfa *d = dfa_literals(texts, lens, num_texts, &err);
        others[num_others++] = d ? gb_dfa(b, d) : gb_fail(b, err.code, err.msg);
        e = list(b, EXPR_ALT, others, num_others);
    }
    buf_free(&bytes);
    free(texts);
    free(lens);
    free(others);
    return e;
}

expr gb_alt(struct grammar_builder *b, const expr *parts, int n) {
    expr e = list(b, EXPR_ALT, parts, n);
    bool many = e >= 0 && b->nodes[e].kind == EXPR_ALT && b->nodes[e].count >= MANY_TEXTS;
    return many ? join_texts(b, e) : e;
}

expr gb_repeat(struct grammar_builder *b, expr part, int min, int max) {
    if (part < 0)
        return EXPR_NONE;
    if (min < 0 || (max >= 0 && max < min))
        return gb_never(b);
    enum expr_kind kind = b->nodes[part].kind;
    if (max == 0 || kind == EXPR_EMPTY || (kind == EXPR_NEVER && min == 0))
        return gb_empty(b);
    if (kind == EXPR_NEVER || (min == 1 && max == 1))
        return part;
    return add(b, (struct expr_node){.kind = EXPR_REPEAT, .first = part, .min = min, .max = max});
}

expr gb_without(struct grammar_builder *b, expr e, const char *stop) {
    if (b->guard_stop && strcmp(b->guard_stop, stop) != 0)
        return gb_fail(b, STATUS_INVALID, "two marks end strings");
    if (!b->guard_stop) {
        expr guard = gb_dfa(b, gb_dfa_without(b, stop, strlen(stop)));
        if (guard == EXPR_NONE)
            return EXPR_NONE;
        b->guard_stop = stop;
        b->guard = b->nodes[guard].first;
    }
    return e < 0 ? EXPR_NONE : add(b, (struct expr_node){.kind = EXPR_GUARD, .first = e});
}

expr gb_dfa(struct grammar_builder *b, struct dfa *d) {
    if (!d)
        return gb_fail(b, STATUS_NOMEM, "out of memory");
    int64_t size = (int64_t)d->num_states * (d->num_classes + 1) * (int64_t)sizeof(int32_t);
    if (b->bytes + size > max_bytes)
        gb_fail(b, STATUS_LIMIT, "the grammar's automata are too large");
    if (!gb_grow(b, &b->dfas, b->num_dfas, &b->cap_dfas, sizeof *b->dfas)) {
        dfa_free(d);
        return EXPR_NONE;
    }
    b->bytes += size;
    b->dfas[b->num_dfas++] = d;
    if (d->num_states == 0)
        return gb_never(b);
    return add(b, (struct expr_node){.kind = EXPR_DFA, .first = b->num_dfas - 1});
}

expr gb_rule(struct grammar_builder *b, const char *name) {
    if (!gb_grow(b, &b->rules, b->num_rules, &b->cap_rules, sizeof *b->rules))
        return EXPR_NONE;
    char *copy = strdup(name);
    if (!copy)
        return gb_fail(b, STATUS_NOMEM, "out of memory");
    b->rules[b->num_rules++] = (struct rule){copy, EXPR_NONE};
    return add(b, (struct expr_node){.kind = EXPR_RULE, .first = b->num_rules - 1});
}

void gb_define(struct grammar_builder *b, expr rule, expr body) {
    if (rule >= 0 && body >= 0)
        b->rules[b->nodes[rule].first].body = body;
}

// ---- code points

expr gb_chars(struct grammar_builder *b, const struct code_range *ranges, int n, bool negated) {
    struct code_set set = {0};
    for (int i = 0; i < n; i++)
        code_set_add(&set, ranges[i].first, ranges[i].last);
    code_set_finish(&set);
    if (negated)
        code_set_negate(&set);
    int32_t *classes = calloc((size_t)set.num + 1, sizeof *classes), first[] = {0, 1, 1};
    bool ascii[256] = {0}, ends[] = {false, true};
    struct code_arrow arrow = {0, 1};
    struct err err = {0};
    expr e = EXPR_NONE;
    for (int i = 0; i < set.num; i++)
        for (uint32_t c = set.ranges[i].first; c <= set.ranges[i].last && c < 0x80; c++)
            ascii[c] = true;
    if (!classes || set.failed) {
        gb_fail(b, STATUS_NOMEM, "out of memory");
    } else if (set.num == 0) {
        e = gb_never(b);
    } else if (set.ranges[set.num - 1].last < 0x80) {
        e = gb_byte(b, ascii);
    } else {
        struct code_dfa d = {.num_classes = 1,
                             .num_ranges = set.num,
                             .ranges = set.ranges,
                             .class_of = classes,
                             .num_states = 2,
                             .ends = ends,
                             .first = first,
                             .arrows = &arrow,
                             .num_arrows = 1};
        struct dfa *bytes = code_dfa_bytes(&d, &err);
        e = bytes ? gb_dfa(b, bytes) : gb_fail(b, err.code, err.msg);
    }
    free(classes);
    code_set_free(&set);
    return e;
}

expr gb_object_node(struct grammar_builder *b, const struct object *o) {
    if (!gb_grow(b, &b->objects, b->num_objects, &b->cap_objects, sizeof *b->objects)) {
        struct object copy = *o;
        object_free(&copy);
        return EXPR_NONE;
    }
    b->objects[b->num_objects++] = *o;
    return add(b, (struct expr_node){.kind = EXPR_OBJECT, .first = b->num_objects - 1});
}

void token_code(int32_t token, char code[TOKEN_CODE_BYTES]) {
    code[0] = (char)0xff;
    for (int i = 1; i < TOKEN_CODE_BYTES; i++)
        code[i] = (char)(token >> (8 * (i - 1)));
}

expr gb_token(struct grammar_builder *b, int32_t token) {
    char code[TOKEN_CODE_BYTES];
    token_code(token, code);
    return gb_bytes(b, code, sizeof code);
}

// Texts in which `stop` occurs: state i has seen its first i bytes (Knuth, Morris and Pratt).
static struct dfa *containing(const char *stop, int len) {
    struct dfa *d = calloc(1, sizeof *d);
    int32_t *next = calloc(((size_t)len + 1) * 256, sizeof *next),
            *label = calloc((size_t)len + 1, sizeof *label);
    if (!d || !next || !label) {
        free(d);
        free(next);
        free(label);
        return NULL;
    }
    *d = (struct dfa){.num_states = len + 1, .num_classes = 256, .next = next, .label = label};
    for (int c = 0; c < 256; c++)
        d->class_of[c] = (uint8_t)c;
    int back = 0; // where the automaton is after all but the first byte
    for (int i = 0; i <= len; i++) {
        label[i] = i == len ? 0 : -1;
        for (int c = 0; c < 256; c++)
            next[i * 256 + c] = i == len ? len : i ? next[back * 256 + c] : 0;
        if (i < len) {
            int c = (unsigned char)stop[i];
            int after = i ? next[back * 256 + c] : 0;
            next[i * 256 + c] = i + 1;
            back = after;
        }
    }
    return d;
}

struct dfa *gb_dfa_without(struct grammar_builder *b, const char *stop, size_t len) {
    enum { MAX_STOP = 1024 };
    struct err err = {0};
    if (len > MAX_STOP) {
        gb_fail(b, STATUS_LIMIT, "a marker is longer than 1024 bytes");
        return NULL;
    }
    struct dfa *with = len ? containing(stop, (int)len) : NULL, *d = NULL;
    if (!len || with)
        d = len ? dfa_complement(with, &err) : dfa_any(&err);
    if (!d)
        gb_fail(b, STATUS_NOMEM, "out of memory");
    dfa_free(with);
    return d;
}
