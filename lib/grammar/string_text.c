// Text as strings of JSON and Python hold it: what has to be escaped is, byte by byte, and nothing else. So an expression's
// leaves are escaped one by one, whatever it is made of.
#include "expr.h"

#include <stdlib.h>
#include <string.h>

// The letter behind the backslash in the byte's short escape; 0: it has none.
static char short_escape(int byte) {
    static const char to[128] = {
        ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't', ['"'] = '"', ['\\'] = '\\'};
    return byte < 128 ? to[byte] : 0;
}

// The bytes that a string may hold escaped only: control characters first.
enum { NUM_ESCAPED = 34 };
static unsigned char escaped_byte(int i) { return (unsigned char)(i < 32 ? i : i == 32 ? '"' : '\\'); }

static int hex_digit(int v) { return v < 10 ? '0' + v : 'a' + v - 10; }

// Places within an escape: behind the backslash, behind `u`, `u0`, `u00`, `u000` and `u001`.
enum string_place { PLAIN, SLASH, U, U0, U00, U000, U001, PLACES };

// Bytes of escaped text that are alike: those that d does not tell apart, but what escapes are made of.
static void escape_classes(const struct dfa *d, struct dfa *e, unsigned char *samples) {
    static const char alone[] = "\"\\bfnrtu0123456789abcde";
    int32_t seen[3 * 256];
    memset(seen, -1, sizeof seen);
    for (int c = 0; c < 256; c++) {
        bool own = c && strchr(alone, c);
        int key = own ? 512 + c : d->class_of[c] + (c < 0x20 ? 256 : 0);
        if (seen[key] < 0) {
            samples[e->num_classes] = (unsigned char)c;
            seen[key] = e->num_classes++;
        }
        e->class_of[c] = (uint8_t)seen[key];
    }
}

// Whether some text of d has a byte that is written as an escape.
static bool has_escapes(const struct dfa *d) {
    for (int q = 0; q < d->num_states; q++)
        for (int i = 0; i < NUM_ESCAPED; i++)
            if (dfa_step(d, q, escaped_byte(i)) != DFA_DEAD)
                return true;
    return false;
}

enum { MAX_ESCAPED = 1 << 24 }; // entries of a table

// NULL: b failed.
static struct dfa *make_escaped(struct grammar_builder *b, const struct dfa *d) {
    struct dfa *e = calloc(1, sizeof *e);
    int32_t(*at)[PLACES] =
        malloc(((size_t)d->num_states + 1) * sizeof *at); // numbers of states; -1: not needed
    unsigned char samples[256];
    if (!e || !at)
        goto failed;
    escape_classes(d, e, samples);
    for (int q = 0; q < d->num_states; q++) {
        memset(at[q], -1, sizeof at[q]);
        at[q][PLAIN] = e->num_states++;
        for (int i = 0; i < NUM_ESCAPED; i++) {
            int c = escaped_byte(i);
            if (dfa_step(d, q, (unsigned char)c) == DFA_DEAD)
                continue;
            enum string_place last = short_escape(c) ? SLASH : c < 16 ? U000 : U001;
            for (enum string_place p = SLASH; p <= (last == U001 ? U00 : last); p++)
                at[q][p] = at[q][p] < 0 ? e->num_states++ : at[q][p];
            at[q][last] = at[q][last] < 0 ? e->num_states++ : at[q][last];
        }
    }
    size_t width = (size_t)e->num_classes, rows = (size_t)e->num_states + 1;
    if (rows * width > MAX_ESCAPED) {
        gb_fail(b, STATUS_LIMIT, "a list of texts is too large with its escapes");
        goto failed;
    }
    e->next = malloc(rows * width * sizeof *e->next);
    e->label = malloc(rows * sizeof *e->label);
    if (!e->next || !e->label)
        goto failed;
    for (size_t i = 0; i < rows * width; i++)
        e->next[i] = DFA_DEAD;
    for (size_t i = 0; i < rows; i++)
        e->label[i] = -1;
#define EDGE(place, byte) e->next[(size_t)at[q][place] * width + e->class_of[(unsigned char)(byte)]]
    for (int q = 0; q < d->num_states; q++) {
        e->label[at[q][PLAIN]] = d->label[q];
        static const char between[] = {'\\', 'u', '0', '0', '0'};
        for (enum string_place p = PLAIN; p < U00; p++)
            if (at[q][p + 1] >= 0)
                EDGE(p, between[p]) = at[q][p + 1];
        if (at[q][U000] >= 0)
            EDGE(U00, '0') = at[q][U000];
        if (at[q][U001] >= 0)
            EDGE(U00, '1') = at[q][U001];
        for (size_t k = 0; k < width; k++) {
            int32_t next = dfa_step(d, q, samples[k]);
            if (next != DFA_DEAD && samples[k] >= 0x20 && !short_escape(samples[k]))
                e->next[(size_t)at[q][PLAIN] * width + k] = at[next][PLAIN];
        }
        for (int i = 0; i < NUM_ESCAPED; i++) {
            int c = escaped_byte(i);
            int32_t next = dfa_step(d, q, (unsigned char)c);
            if (next == DFA_DEAD)
                continue;
            if (short_escape(c))
                EDGE(SLASH, short_escape(c)) = at[next][PLAIN];
            else
                EDGE(c < 16 ? U000 : U001, hex_digit(c % 16)) = at[next][PLAIN];
        }
    }
#undef EDGE
    free(at);
    return e;
failed:
    gb_fail(b, STATUS_NOMEM, "out of memory"); // the first failure stays
    free(at);
    dfa_free(e);
    return NULL;
}

struct dfa *gb_dfa_escaped(struct grammar_builder *b, struct dfa *d) {
    if (!d || !has_escapes(d))
        return d;
    struct dfa *e = make_escaped(b, d);
    dfa_free(d);
    return e;
}

// ---- expressions

static expr escaped_byte_text(struct grammar_builder *b, int c) {
    char text[] = {'\\', short_escape(c), '0', '0', (char)('0' + c / 16), (char)hex_digit(c % 16)};
    if (text[1])
        return gb_bytes(b, text, 2);
    text[1] = 'u';
    return gb_bytes(b, text, sizeof text);
}

static expr escaped_set(struct grammar_builder *b, struct byte_set s) {
    expr parts[NUM_ESCAPED + 1];
    int num = 0;
    bool plain[256];
    if (byte_set_has(&s, 0xff))
        return gb_fail(b, STATUS_INVALID, "a control token cannot stand in a string");
    for (int c = 0; c < 256; c++)
        plain[c] = byte_set_has(&s, c) && c >= 0x20 && c != '"' && c != '\\';
    for (int i = 0; i < NUM_ESCAPED; i++)
        if (byte_set_has(&s, escaped_byte(i)))
            parts[num++] = escaped_byte_text(b, escaped_byte(i));
    if (num == 0)
        return EXPR_NONE;
    if (memchr(plain, true, sizeof plain))
        parts[num++] = gb_byte(b, plain);
    return gb_alt(b, parts, num);
}

// Marks e and all that stands in it, by way of rules, too. false: out of memory.
static bool mark_within(const struct grammar_builder *b, expr e, uint8_t *within) {
    expr *path = malloc((size_t)b->num_nodes * sizeof *path);
    int depth = 0;
    if (!path)
        return false;
    within[path[depth++] = e] = 1;
    while (depth) {
        const struct expr_node *n = &b->nodes[path[--depth]];
        bool list = n->kind == EXPR_SEQ || n->kind == EXPR_ALT;
        int count = list ? n->count : n->kind == EXPR_REPEAT || n->kind == EXPR_RULE;
        for (int i = 0; i < count; i++) {
            expr child = list                     ? b->children[n->first + i]
                         : n->kind == EXPR_REPEAT ? n->first
                                                  : b->rules[n->first].body;
            if (child >= 0 && !within[child])
                within[path[depth++] = child] = 1;
        }
    }
    free(path);
    return true;
}

// made: of all before it; rules are there and get their bodies later
static expr escape_node(struct grammar_builder *b, expr e, const expr *made) {
    struct expr_node n = b->nodes[e];
    expr *parts, all;
    switch (n.kind) {
    case EXPR_NEVER:
    case EXPR_EMPTY: return e;
    case EXPR_SET:
        all = escaped_set(b, b->sets[n.first]);
        return all == EXPR_NONE && b->err.code == STATUS_OK ? e : all;
    case EXPR_DFA: return has_escapes(b->dfas[n.first]) ? gb_dfa(b, make_escaped(b, b->dfas[n.first])) : e;
    case EXPR_REPEAT: return gb_repeat(b, made[n.first], n.min, n.max);
    case EXPR_RULE: return gb_rule(b, b->rules[n.first].name);
    case EXPR_SEQ:
    case EXPR_ALT: break;
    default: return gb_fail(b, STATUS_INVALID, "JSON by a schema cannot stand in a grammar of a string");
    }
    if (!(parts = malloc((size_t)n.count * sizeof *parts)))
        return gb_fail(b, STATUS_NOMEM, "out of memory");
    for (int i = 0; i < n.count; i++)
        parts[i] = made[b->children[n.first + i]];
    all = n.kind == EXPR_SEQ ? gb_seq(b, parts, n.count) : gb_alt(b, parts, n.count);
    free(parts);
    return all;
}

expr gb_escaped(struct grammar_builder *b, expr e) {
    int num = b->num_nodes;
    uint8_t *within = e < 0 ? NULL : calloc((size_t)num, 1);
    expr *made = e < 0 ? NULL : malloc((size_t)num * sizeof *made), result = EXPR_NONE;
    if (!within || !made || !mark_within(b, e, within)) {
        gb_fail(b, STATUS_NOMEM, "out of memory"); // unless there is another reason
    } else {
        for (int i = 0; i < num; i++) // parts are made before the whole
            made[i] = within[i] ? escape_node(b, i, made) : EXPR_NONE;
        for (int i = 0; i < num; i++) {
            expr body =
                within[i] && b->nodes[i].kind == EXPR_RULE ? b->rules[b->nodes[i].first].body : EXPR_NONE;
            if (body >= 0)
                gb_define(b, made[i], made[body]);
        }
        result = made[e];
    }
    free(within);
    free(made);
    return result;
}
