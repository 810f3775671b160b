#include "network.h"

#include "analysis.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NFA = 1 << 20, MAX_DEPTH = 4000, MAX_EMPTY_TURNS = 256, MAX_MERGES = 64 };

struct compiler {
    struct grammar_builder *b;
    struct grammar *g;
    uint8_t *facts;
    int32_t *rule_starts, *object_starts; // -1: not compiled
    int cap_nfa, cap_targets, cap_loops;
    int depth;
    int32_t dead, give_back; // a SPLIT of none, a RETURN
};

static int32_t fail(struct compiler *c, enum status code, const char *message) {
    return gb_fail(c->b, code, message);
}

static int32_t add_state(struct compiler *c, enum stop_kind kind, int32_t a, int32_t b) {
    if (a == EXPR_NONE && kind != NFA_RETURN)
        return EXPR_NONE;
    if (c->g->num_nfa >= MAX_NFA)
        return fail(c, STATUS_LIMIT, "the grammar is too large");
    if (!gb_grow(c->b, &c->g->nfa, c->g->num_nfa, &c->cap_nfa, sizeof *c->g->nfa))
        return EXPR_NONE;
    c->g->nfa[c->g->num_nfa] = (struct net_state){(uint8_t)kind, a, b};
    return c->g->num_nfa++;
}

// Room for n targets, to be filled by the caller; -1: failed.
static int32_t add_targets(struct compiler *c, int n) {
    int32_t first = c->g->num_targets;
    for (int i = 0; i < n; i++) {
        if (!gb_grow(c->b, &c->g->targets, c->g->num_targets, &c->cap_targets, sizeof *c->g->targets))
            return EXPR_NONE;
        c->g->targets[c->g->num_targets++] = c->dead;
    }
    return first;
}

static int32_t compile(struct compiler *c, expr e, int32_t next);

static int32_t split(struct compiler *c, int32_t x, int32_t y) {
    int32_t first = add_targets(c, 2);
    if (first == EXPR_NONE)
        return EXPR_NONE;
    c->g->targets[first] = x;
    c->g->targets[first + 1] = y;
    return add_state(c, NFA_SPLIT, first, 2);
}

// part once, and again as often as it comes, then next; skip: not even once. One copy of part.
static int32_t star(struct compiler *c, expr part, int32_t next, bool skip) {
    int32_t fork = split(c, c->dead, next);
    if (fork == EXPR_NONE)
        return EXPR_NONE;
    int32_t body = compile(c, part, fork);
    c->g->targets[c->g->nfa[fork].a] = body;
    return skip ? fork : body;
}

static int32_t counted(struct compiler *c, expr part, int min, int max, int32_t next) {
    if (!gb_grow(c->b, &c->g->loops, c->g->num_loops, &c->cap_loops, sizeof *c->g->loops))
        return EXPR_NONE;
    int32_t loop = c->g->num_loops++;
    const struct net_state *after = next >= 0 ? &c->g->nfa[next] : NULL;
    c->g->loops[loop] = (struct net_loop){.after = next, .min = min, .max = max};
    c->g->loops[loop].quiet = after && after->kind == NFA_SET && !byte_set_takes_plain(&c->b->sets[after->a]);
    int32_t body = compile(c, part, add_state(c, NFA_AGAIN, loop, 0));
    c->g->loops[loop].body = body;
    return body == EXPR_NONE ? EXPR_NONE : add_state(c, NFA_LOOP, loop, 0);
}

// Where a repetition of a repetition is one: X{a,b}{c,d} is X{ac,bd} where no number between is left out. Each count that is
// not kept is one less to be told apart.
static struct expr_node merge_repeats(const struct compiler *c, struct expr_node n, int depth) {
    expr part = n.first;
    if (c->b->nodes[part].kind == EXPR_RULE)
        part = c->b->rules[c->b->nodes[part].first].body;
    struct expr_node in = c->b->nodes[part];
    if (in.kind != EXPR_REPEAT || depth == MAX_MERGES)
        return n;
    in = merge_repeats(c, in, depth + 1);
    int64_t min = (int64_t)n.min * in.min, max = n.max < 0 || in.max < 0 ? -1 : (int64_t)n.max * in.max;
    bool whole = n.max == n.min ||
                 (n.min == 0 ? in.min <= 1 : in.max < 0 || (int64_t)n.min * in.max + 1 >= min + in.min);
    if (!whole || min > INT32_MAX || max > INT32_MAX || c->facts[in.first] & TAKES_NOTHING)
        return n;
    return (struct expr_node){.kind = EXPR_REPEAT, .first = in.first, .min = (int)min, .max = (int)max};
}

static int32_t repeat(struct compiler *c, const struct expr_node *outer, int32_t next) {
    const struct expr_node merged = merge_repeats(c, *outer, 0), *n = &merged;
    bool empty = c->facts[n->first] & TAKES_NOTHING, takes = c->facts[n->first] & TAKES_TEXT;
    int min = empty ? 0 : n->min;
    if (!takes)
        return n->min == 0 ? next : c->dead;
    if (n->max < 0 && min <= 1)
        return star(c, n->first, next, min == 0);
    if (n->max == 1)
        return split(c, compile(c, n->first, next), next); // min is 0
    if (empty && n->max > MAX_EMPTY_TURNS)
        return fail(c, STATUS_LIMIT, "what may be empty is repeated too often");
    if (n->max > 0 && n->max <= 8 && c->b->nodes[n->first].kind == EXPR_SET) {
        int32_t end = next;
        for (int i = n->max; i > 0; i--) {
            int32_t one = compile(c, n->first, next);
            next = i > min ? split(c, one, end) : one;
        }
        return next;
    }
    return counted(c, n->first, min, n->max, next);
}

static int32_t object(struct compiler *c, int number) {
    struct net_object *n = &c->g->objects[number];
    const struct object *o = &c->b->objects[number];
    if (c->object_starts[number] >= 0)
        return c->object_starts[number];
    size_t kinds = (size_t)o->num_kinds + 1;
    *n = (struct net_object){
        .o = o, .values = malloc(kinds * sizeof *n->values), .bits = malloc(kinds * sizeof *n->bits)};
    if (!n->values || !n->bits)
        return fail(c, STATUS_NOMEM, "out of memory");
    for (int i = 0; i < o->num_kinds; i++) {
        n->values[i] = EXPR_NONE;
        n->num_required += o->kinds[i].required;
        n->bits[i] = o->kinds[i].required || o->kinds[i].once ? n->num_bits++ : -1;
    }
    n->key = compile(c, o->key, add_state(c, NFA_KEY, number, 0));
    n->close = compile(c, o->close, add_state(c, NFA_LEAVE, number, 0));
    n->comma = compile(c, o->comma, n->key);
    n->after = compile(c, o->end, add_state(c, NFA_MEMBERS, number, 0));
    n->colon = compile(c, o->colon, add_state(c, NFA_VALUE, number, 0));
    int32_t start = compile(c, o->open, add_state(c, NFA_OBJECT, number, 0));
    c->object_starts[number] = start;
    for (int i = 0; i < o->num_kinds; i++)
        if (c->facts[o->kinds[i].value] & TAKES_TEXT) {
            int32_t value = compile(c, o->kinds[i].value, c->give_back);
            if (value == EXPR_NONE)
                return EXPR_NONE;
            n->values[i] = value;
        }
    return start;
}

// The NFA state where e begins, behind which comes next. EXPR_NONE: failed.
static int32_t compile_node(struct compiler *c, expr e, int32_t next) {
    struct expr_node n = c->b->nodes[e];
    int32_t first;
    switch (n.kind) {
    case EXPR_NEVER: return c->dead;
    case EXPR_EMPTY: return next;
    case EXPR_SET: return add_state(c, NFA_SET, n.first, next);
    case EXPR_DFA: return add_state(c, NFA_DFA, n.first, next);
    case EXPR_RULE:
        return add_state(c, NFA_CALL, n.first, next); // the rule's number, its network's start later
    case EXPR_REPEAT: return repeat(c, &n, next);
    case EXPR_GUARD:
        first = compile(c, n.first, add_state(c, NFA_UNGUARD, 0, next));
        return first == EXPR_NONE ? EXPR_NONE : add_state(c, NFA_GUARD, 0, first);
    case EXPR_OBJECT: {
        int32_t start = object(c, n.first);
        return start == EXPR_NONE ? EXPR_NONE : add_state(c, NFA_CALL, -2 - start, next);
    }
    case EXPR_SEQ:
        for (int i = n.count - 1; i >= 0 && next != EXPR_NONE; i--)
            next = compile(c, c->b->children[n.first + i], next);
        return next;
    case EXPR_ALT: break;
    }
    first = add_targets(c, n.count);
    if (first == EXPR_NONE)
        return EXPR_NONE;
    int live = 0;
    for (int i = 0; i < n.count; i++) {
        int32_t start = compile(c, c->b->children[n.first + i], next);
        if (start == EXPR_NONE)
            return EXPR_NONE;
        if (start != c->dead)
            c->g->targets[first + live++] = start;
    }
    return add_state(c, NFA_SPLIT, first, live);
}

static int32_t compile(struct compiler *c, expr e, int32_t next) {
    if (e < 0 || next == EXPR_NONE)
        return EXPR_NONE;
    if (e < c->b->num_nodes && c->facts && !(c->facts[e] & TAKES_TEXT))
        return c->dead;
    if (c->depth == MAX_DEPTH)
        return fail(c, STATUS_LIMIT, "the grammar is nested too deep");
    c->depth++;
    int32_t start = compile_node(c, e, next);
    c->depth--;
    return start;
}

// ---- classes of bytes

// Bytes stay in one class where class_of has them in one, too. seen: (256, 256), of earlier rounds.
static void refine(struct grammar *g, const uint8_t *class_of, int32_t *seen, int32_t round) {
    uint8_t out[256];
    int num = 0;
    for (int c = 0; c < 256; c++) {
        int32_t *pair = &seen[g->class_of[c] * 256 + class_of[c]];
        if (*pair < round * 256) {
            g->sample[num] = (unsigned char)c;
            *pair = round * 256 + num++;
        }
        out[c] = (uint8_t)(*pair % 256);
    }
    memcpy(g->class_of, out, sizeof out);
    g->num_classes = num;
}

// The class of a byte in UTF-8 and in JSON strings: classes tell apart which bytes may follow one another.
static uint8_t text_class(int c) {
    static const unsigned char ends[] = {0x1f, 0x7f, 0x8f, 0x9f, 0xbf, 0xc1, 0xdf, 0xe0,
                                         0xec, 0xed, 0xef, 0xf0, 0xf3, 0xf4, 0xff};
    if (c == '"' || c == '\\')
        return (uint8_t)(100 + (c == '"'));
    uint8_t i = 0;
    while (c > ends[i])
        i++;
    return i;
}

static bool classify(struct grammar *g) {
    uint8_t class_of[256];
    int32_t *seen = calloc(256 * 256, sizeof *seen), round = 1;
    if (!seen)
        return false;
    for (int c = 0; c < 256; c++)
        class_of[c] = text_class(c);
    refine(g, class_of, seen, round++);
    for (int i = 0; i < g->b->num_sets; i++) {
        for (int c = 0; c < 256; c++)
            class_of[c] = byte_set_has(&g->b->sets[i], c);
        refine(g, class_of, seen, round++);
    }
    for (int i = 0; i < g->b->num_dfas; i++)
        refine(g, g->b->dfas[i]->class_of, seen, round++);
    for (int i = 0; i < g->b->num_objects; i++)
        if (g->b->objects[i].keys)
            refine(g, g->b->objects[i].keys->class_of, seen, round++);
    free(seen);
    return true;
}

// ---- the end

// Marks the states of keys from which a kind that may come again and again is in reach, against the arrows.
static bool mark_free(struct net_object *n) {
    const struct dfa *d = n->o->keys;
    if (!d)
        return true;
    n->free_ahead = calloc((size_t)d->num_states + 1, 1);
    if (!n->free_ahead)
        return false;
    for (int q = 0; q < d->num_states; q++)
        for (int i = d->label[q] < 0 ? 0 : n->o->list_starts[d->label[q]];
             d->label[q] >= 0 && i < n->o->list_starts[d->label[q] + 1]; i++)
            n->free_ahead[q] |= !n->o->kinds[n->o->lists[i]].once && n->values[n->o->lists[i]] >= 0;
    for (bool changed = true; changed;) {
        changed = false;
        for (int q = d->num_states - 1; q >= 0; q--)
            for (int c = 0; c < d->num_classes && !n->free_ahead[q]; c++) {
                int32_t next = d->next[(size_t)q * (size_t)d->num_classes + (size_t)c];
                if (next >= 0 && n->free_ahead[next])
                    n->free_ahead[q] = changed = true;
            }
    }
    n->plain = malloc((size_t)d->num_states + 1);
    return n->plain && dfa_mark_plain(d, n->free_ahead, n->plain);
}

static bool mark_dfas(struct grammar *g) {
    g->dfas = calloc((size_t)g->b->num_dfas + 1, sizeof *g->dfas);
    for (int i = 0; g->dfas && i < g->b->num_dfas; i++) {
        const struct dfa *d = g->b->dfas[i];
        struct net_dfa *n = &g->dfas[i];
        size_t states = (size_t)d->num_states, width = (size_t)d->num_classes;
        n->plain = malloc(states + 1);
        n->quiet = malloc(states + 1);
        n->goes_on = calloc(states + 1, 1);
        if (!n->plain || !n->quiet || !n->goes_on || !dfa_mark_plain(d, NULL, n->plain))
            return false;
        dfa_mark_quiet(d, n->quiet);
        n->plain_char = dfa_takes_plain_char(d);
        for (size_t q = 0; q < states; q++)
            for (size_t c = 0; c < width && !n->goes_on[q]; c++)
                n->goes_on[q] = d->next[q * width + c] >= 0;
    }
    return g->dfas != NULL;
}

void grammar_free(struct grammar *g) {
    if (!g)
        return;
    for (int i = 0; g->objects && i < g->b->num_objects; i++) {
        free(g->objects[i].values);
        free(g->objects[i].bits);
        free(g->objects[i].free_ahead);
        free(g->objects[i].plain);
    }
    for (int i = 0; g->dfas && i < g->b->num_dfas; i++) {
        free(g->dfas[i].plain);
        free(g->dfas[i].quiet);
        free(g->dfas[i].goes_on);
    }
    free(g->dfas);
    gb_free(g->b);
    free(g->nfa);
    free(g->targets);
    free(g->loops);
    free(g->objects);
    free(g);
}

size_t grammar_bytes(const struct grammar *g) {
    return (size_t)g->b->bytes + (size_t)g->b->num_nodes * sizeof *g->b->nodes +
           (size_t)g->b->num_children * sizeof *g->b->children + (size_t)g->num_nfa * sizeof *g->nfa +
           (size_t)g->num_targets * sizeof *g->targets;
}

static void build(struct compiler *c, expr root) {
    struct grammar *g = c->g;
    struct grammar_builder *b = c->b;
    int32_t none = add_targets(c, 0);
    c->dead = add_state(c, NFA_SPLIT, none, 0);
    c->give_back = g->give_back = add_state(c, NFA_RETURN, 0, 0);
    g->start = compile(c, root, add_state(c, NFA_END, 0, 0));
    for (int i = 0; i < b->num_rules; i++)
        c->rule_starts[i] = compile(c, b->rules[i].body, c->give_back);
    if (b->err.code != STATUS_OK)
        return;
    for (int i = 0; i < g->num_nfa; i++) {
        struct net_state *s = &g->nfa[i];
        if (s->kind == NFA_CALL)
            s->a = s->a >= 0 ? c->rule_starts[s->a] : -2 - s->a;
    }
    for (int i = 0; i < b->num_objects; i++)
        if (g->objects[i].o && !mark_free(&g->objects[i]))
            gb_fail(b, STATUS_NOMEM, "out of memory");
    if (!mark_dfas(g) || !classify(g))
        gb_fail(b, STATUS_NOMEM, "out of memory");
}

struct grammar *grammar_finish(struct grammar_builder *b, expr root, struct err *err) {
    struct grammar *g = calloc(1, sizeof *g);
    struct compiler c = {.b = b, .g = g};
    if (!g) {
        gb_free(b);
        err_set(err, STATUS_NOMEM, "out of memory");
        return NULL;
    }
    g->b = b;
    // The marks of JSON are told apart in any grammar.
    if (root < 0 || gb_bytes(b, "{}(),:=\"", 8) < 0 || gb_failed(b, err) != STATUS_OK ||
        resolve_left_recursion(b, err) != STATUS_OK)
        goto failed;
    c.facts = malloc((size_t)b->num_nodes + 1);
    c.rule_starts = malloc(((size_t)b->num_rules + 1) * sizeof *c.rule_starts);
    c.object_starts = malloc(((size_t)b->num_objects + 1) * sizeof *c.object_starts);
    g->objects = calloc((size_t)b->num_objects + 1, sizeof *g->objects);
    if (!c.facts || !c.rule_starts || !c.object_starts || !g->objects) {
        err_set(err, STATUS_NOMEM, "out of memory");
        goto failed;
    }
    memset(c.object_starts, -1, ((size_t)b->num_objects + 1) * sizeof *c.object_starts);
    if (expr_facts(b, c.facts, err) != STATUS_OK)
        goto failed;
    if (!(c.facts[root] & TAKES_TEXT)) {
        err_set(err, STATUS_INVALID, "no text at all is allowed");
        goto failed;
    }
    build(&c, root);
    if (gb_failed(b, err) != STATUS_OK)
        goto failed;
    free(c.facts);
    free(c.rule_starts);
    free(c.object_starts);
    return g;
failed:
    gb_failed(b, err);
    err_set(err, STATUS_INVALID, "the grammar is empty");
    free(c.facts);
    free(c.rule_starts);
    free(c.object_starts);
    grammar_free(g);
    return NULL;
}
