#include "analysis.h"

#include "work_time.h"

#include <stdlib.h>
#include <string.h>

static bool object_takes(const struct object *o, const uint8_t *facts) {
    int required = 0;
    for (int i = 0; i < o->num_kinds; i++) {
        required += o->kinds[i].required;
        if (o->kinds[i].required && !(facts[o->kinds[i].value] & TAKES_TEXT))
            return false;
    }
    return o->max < 0 || (required <= o->max && o->min <= o->max);
}

static uint8_t facts_of(const struct grammar_builder *b, const struct expr_node *n, const uint8_t *facts) {
    uint8_t all = TAKES_TEXT | TAKES_NOTHING, any = 0;
    switch (n->kind) {
    case EXPR_NEVER: return 0;
    case EXPR_EMPTY: return all;
    case EXPR_SET: return TAKES_TEXT;
    case EXPR_DFA: return b->dfas[n->first]->label[0] >= 0 ? all : TAKES_TEXT;
    case EXPR_REPEAT: return n->min == 0 ? all : facts[n->first];
    case EXPR_GUARD: return facts[n->first];
    case EXPR_RULE: return b->rules[n->first].body < 0 ? 0 : facts[b->rules[n->first].body];
    case EXPR_OBJECT: return object_takes(&b->objects[n->first], facts) ? TAKES_TEXT : 0;
    case EXPR_SEQ:
    case EXPR_ALT: break;
    }
    for (int i = 0; i < n->count; i++) {
        all &= facts[b->children[n->first + i]];
        any |= facts[b->children[n->first + i]];
    }
    return n->kind == EXPR_SEQ ? all : any;
}

// The least solution: children come before those they stand in, so only rules take more than one round.
enum status expr_facts(const struct grammar_builder *b, uint8_t *facts, struct err *err) {
    memset(facts, 0, (size_t)b->num_nodes);
    int64_t work = 0;
    for (bool changed = true; changed;) {
        changed = false;
        work += b->num_nodes;
        if (!work_time_left(err))
            return err->code;
        if (work > INT64_C(400000000))
            return err_set(err, STATUS_LIMIT,
                           "the grammar is too large: its rules depend on one another too far");
        for (int i = 0; i < b->num_nodes; i++) {
            uint8_t now = facts_of(b, &b->nodes[i], facts);
            changed |= now != facts[i];
            facts[i] = now;
        }
    }
    return STATUS_OK;
}

// ---- left recursion

static bool is_rule(const struct grammar_builder *b, expr e, int rule) {
    return b->nodes[e].kind == EXPR_RULE && b->nodes[e].first == rule;
}

static void resolve_rule(struct grammar_builder *b, int rule) {
    expr body = b->rules[rule].body;
    if (body < 0)
        return;
    struct expr_node n = b->nodes[body];
    int count = n.kind == EXPR_ALT ? n.count : 1, num_first = 0, num_more = 0;
    expr *first = malloc((size_t)count * sizeof *first), *more = malloc((size_t)count * sizeof *more);
    if (!first || !more)
        gb_fail(b, STATUS_NOMEM, "out of memory");
    for (int i = 0; i < count && first && more; i++) {
        expr e = n.kind == EXPR_ALT ? b->children[n.first + i] : body;
        struct expr_node part = b->nodes[e];
        bool again = is_rule(b, e, rule);
        if (part.kind == EXPR_SEQ && is_rule(b, b->children[part.first], rule)) {
            expr *rest = malloc((size_t)part.count * sizeof *rest); // gb_seq() moves the children
            if (!rest) {
                gb_fail(b, STATUS_NOMEM, "out of memory");
                break;
            }
            memcpy(rest, b->children + part.first + 1, (size_t)(part.count - 1) * sizeof *rest);
            more[num_more++] = gb_seq(b, rest, part.count - 1);
            free(rest);
        } else if (!again) { // one that is nothing but itself adds nothing
            first[num_first++] = e;
        }
    }
    if (first && more && num_first < count)
        b->rules[rule].body =
            gb_seq_of(b, gb_alt(b, first, num_first), gb_repeat(b, gb_alt(b, more, num_more), 0, -1));
    free(first);
    free(more);
}

// The expressions that may stand at the beginning of e, one after another; EXPR_NONE: no more.
static expr leftmost(const struct grammar_builder *b, const uint8_t *facts, expr e, int i) {
    const struct expr_node *n = &b->nodes[e];
    switch (n->kind) {
    case EXPR_RULE: return i == 0 ? b->rules[n->first].body : EXPR_NONE;
    case EXPR_GUARD:
    case EXPR_REPEAT: return i == 0 ? n->first : EXPR_NONE;
    case EXPR_ALT: return i < n->count ? b->children[n->first + i] : EXPR_NONE;
    case EXPR_SEQ:
        if (i < n->count && (i == 0 || facts[b->children[n->first + i - 1]] & TAKES_NOTHING))
            return b->children[n->first + i];
        return EXPR_NONE;
    default: return EXPR_NONE;
    }
}

// Depth first, without recursion: an expression that is met within itself begins with itself.
static enum status find_circle(const struct grammar_builder *b, const uint8_t *facts, struct err *err) {
    struct path_step {
        expr e;
        int next;
    } *path = malloc(((size_t)b->num_nodes + 1) * sizeof *path);
    uint8_t *seen = calloc((size_t)b->num_nodes + 1, 1); // 1: on the path, 2: done
    enum status s = STATUS_OK;
    if (!path || !seen)
        s = err_set(err, STATUS_NOMEM, "out of memory");
    for (int r = 0; s == STATUS_OK && r < b->num_rules; r++) {
        int depth = 0;
        if (b->rules[r].body < 0 || seen[b->rules[r].body])
            continue;
        path[depth++] = (struct path_step){b->rules[r].body, 0};
        seen[b->rules[r].body] = 1;
        while (depth && s == STATUS_OK) {
            struct path_step *top = &path[depth - 1];
            expr e = leftmost(b, facts, top->e, top->next++);
            if (e == EXPR_NONE) {
                seen[top->e] = 2;
                depth--;
            } else if (seen[e] == 1) {
                const char *name = b->rules[r].name;
                for (int i = depth - 1; i >= 0; i--)
                    if (b->nodes[path[i].e].kind == EXPR_RULE) {
                        name = b->rules[b->nodes[path[i].e].first].name;
                        break;
                    }
                s = err_set(err, STATUS_INVALID,
                            "rule '%.80s' begins with itself by way of another rule (left recursion)", name);
            } else if (!seen[e]) {
                seen[e] = 1;
                path[depth++] = (struct path_step){e, 0};
            }
        }
    }
    free(path);
    free(seen);
    return s;
}

enum status resolve_left_recursion(struct grammar_builder *b, struct err *err) {
    for (int r = 0; r < b->num_rules; r++) {
        if (b->rules[r].body < 0)
            return err_set(err, STATUS_INVALID, "rule '%.80s' is used and not defined", b->rules[r].name);
        resolve_rule(b, r);
    }
    if (gb_failed(b, err) != STATUS_OK)
        return b->err.code;
    uint8_t *facts = malloc((size_t)b->num_nodes + 1);
    enum status s = facts ? expr_facts(b, facts, err) : err_set(err, STATUS_NOMEM, "out of memory");
    if (s == STATUS_OK)
        s = find_circle(b, facts, err);
    free(facts);
    return s;
}
