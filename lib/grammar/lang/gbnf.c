// GBNF as llama.cpp reads it (by its guide), and what xgrammar's EBNF has besides: a rule may go on
// over lines, as long as no `name ::=` begins there; names with _ and .; \d, \s, \w in classes.
#include "../grow.h"
#include "../regex/code_set.h"
#include "buf.h"
#include "source.h"
#include "utf8.h"

struct gbnf_rule {
    expr rule, body; // EXPR_NONE: not met, not defined
    const char *use; // where it is used, for messages; NULL: nowhere
};

struct gbnf {
    struct source s;
    struct grammar_builder *b;
    struct int_sets names;
    struct gbnf_rule *rules;
    int num_rules, cap_rules;
    struct expr_stack pending;
    struct buf text; // of a literal
};

// ---- blanks and names

static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

// Blanks and comments; newlines too, if `lines`.
static void skip_blanks(struct source *s, bool lines) {
    for (; s->at < s->end; s->at++) {
        if (*s->at == '#')
            while (s->at < s->end && *s->at != '\n' && *s->at != '\r')
                s->at++;
        bool line = s->at < s->end && (*s->at == '\n' || *s->at == '\r');
        if (s->at == s->end || !(*s->at == ' ' || *s->at == '\t' || (line && lines)))
            return;
    }
}

static size_t name_len(const struct source *s) {
    size_t n = 0;
    while (s->at + n < s->end && is_name_char(s->at[n]))
        n++;
    return n;
}

// Whether a definition begins here.
static bool at_definition(struct source s) {
    s.at += name_len(&s);
    bool named = s.at > s.begin && is_name_char(s.at[-1]);
    skip_blanks(&s, false);
    return named && source_is(&s, "::=");
}

// Blanks within a rule. Outside of groups a rule ends at a line's end, if the next one defines a rule.
static void skip_in_rule(struct gbnf *g, bool nested) {
    struct source line = g->s;
    skip_blanks(&line, false);
    g->s.at = line.at;
    skip_blanks(&line, true);
    if (nested || (line.at < line.end && !at_definition(line)))
        g->s.at = line.at;
}

// The number of the rule whose name stands here; -1 with err.
static int take_name(struct gbnf *g) {
    const char *name = g->s.at;
    size_t len = name_len(&g->s);
    int number = source_name(&g->s, &g->names, name, len);
    if (number < 0)
        return -1;
    g->s.at += len;
    if (number == g->num_rules) {
        char text[257];
        if (!grow_room(&g->rules, sizeof *g->rules, number, &g->cap_rules)) {
            err_set(g->s.err, STATUS_NOMEM, "out of memory for a grammar");
            return -1;
        }
        memcpy(text, name, len);
        text[len] = 0;
        g->rules[g->num_rules++] = (struct gbnf_rule){gb_rule(g->b, text), EXPR_NONE, NULL};
    }
    return g->rules[number].rule == EXPR_NONE ? -1 : number;
}

// ---- literals, classes, tokens

static expr parse_literal(struct gbnf *g) {
    const char *at = g->s.at++;
    int32_t c = 0;
    buf_clear(&g->text);
    while (c >= 0 && g->s.at < g->s.end && *g->s.at != '"') {
        const char *before = g->s.at;
        char bytes[4];
        c = source_char(&g->s, '"');
        if (c >= 0xd800 && c <= 0xdfff)
            c = source_refuse(&g->s, STATUS_INVALID, before, "half of a pair of surrogates");
        if (c >= 0)
            buf_add(&g->text, bytes, utf8_encode(bytes, (uint32_t)c));
    }
    if (c < 0)
        return EXPR_NONE;
    if (!source_skip(&g->s, "\""))
        return source_refuse(&g->s, STATUS_INVALID, at, "\" has no end");
    if (g->text.failed) {
        err_set(g->s.err, STATUS_NOMEM, "out of memory for a grammar");
        return EXPR_NONE;
    }
    return gb_bytes(g->b, g->text.len ? g->text.data : "", g->text.len);
}

static expr any_char(struct gbnf *g) { return gb_chars(g->b, &(struct code_range){0, CODE_MAX}, 1, false); }

static expr parse_class(struct gbnf *g) {
    struct source *s = &g->s;
    const char *at = s->at++;
    struct code_set set = {0};
    bool negated = source_skip(s, "^");
    if (source_is(s, "]"))
        return source_refuse(s, STATUS_INVALID, at, "an empty class");
    while (s->at < s->end && *s->at != ']') {
        const char *member = s->at;
        if (s->at + 1 < s->end && *s->at == '\\' && is_one_of(s->at[1], "dDsSwW")) {
            code_set_add_escape(&set, s->at[1]);
            s->at += 2;
            continue;
        }
        int32_t first = source_char(s, ']'), last = first;
        if (first >= 0 && source_is(s, "-") && s->at + 1 < s->end && s->at[1] != ']') {
            s->at++;
            last = source_char(s, ']');
        }
        if (first < 0 || last < 0) {
            code_set_free(&set);
            return EXPR_NONE;
        }
        if (last < first) {
            code_set_free(&set);
            return source_refuse(s, STATUS_INVALID, member, "a range whose end is before its begin");
        }
        code_set_add(&set, (uint32_t)first, (uint32_t)last);
    }
    expr e = EXPR_NONE;
    code_set_finish(&set);
    if (!source_skip(s, "]"))
        source_refuse(s, STATUS_INVALID, at, "[ has no ]");
    else if (set.failed)
        err_set(s->err, STATUS_NOMEM, "out of memory for a grammar");
    else if (set.num == 0) // surrogates alone
        e = negated ? any_char(g) : gb_never(g->b);
    else
        e = gb_chars(g->b, set.ranges, set.num, negated);
    code_set_free(&set);
    return e;
}

// Control tokens but one.
static expr other_tokens(struct gbnf *g, int32_t token) {
    expr choices[TOKEN_CODE_BYTES];
    char code[TOKEN_CODE_BYTES];
    token_code(token, code);
    bool any[256];
    memset(any, true, sizeof any);
    for (int i = 1; i < TOKEN_CODE_BYTES; i++) { // the codes that differ first in byte i
        bool others[256];
        memset(others, true, sizeof others);
        others[(unsigned char)code[i]] = false;
        expr rest = gb_byte(g->b, others);
        for (int j = i + 1; j < TOKEN_CODE_BYTES; j++)
            rest = gb_seq_of(g->b, rest, gb_byte(g->b, any));
        choices[i - 1] = gb_seq_of(g->b, gb_bytes(g->b, code, (size_t)i), rest);
    }
    return gb_alt(g->b, choices, TOKEN_CODE_BYTES - 1);
}

// <[id]>, a control token, and !<[id]>, anything else. Text has no tokens here: what is anything else is a character.
static expr parse_token(struct gbnf *g) {
    const char *at = g->s.at;
    bool negated = source_skip(&g->s, "!");
    if (!source_skip(&g->s, "<["))
        return source_refuse(&g->s, STATUS_INVALID, at,
                             "tokens are supported by number alone, as in <[1000]>");
    enum { MAX_TOKEN = (1 << 24) - 1 };
    int token = source_number(&g->s, MAX_TOKEN);
    if (token < 0 || token > MAX_TOKEN || !source_skip(&g->s, "]>"))
        return source_refuse(&g->s, STATUS_INVALID, at, "a token is written as <[1000]>");
    return negated ? gb_alt_of(g->b, any_char(g), other_tokens(g, token)) : gb_token(g->b, token);
}

// ---- rules

static expr parse_alternatives(struct gbnf *g, bool nested, int depth);

static bool take_counts(struct gbnf *g, int *min, int *max) {
    struct source *s = &g->s;
    const char *at = s->at++;
    skip_blanks(s, false);
    *min = *max = source_number(s, MAX_REPEAT);
    skip_blanks(s, false);
    if (*min >= 0 && source_skip(s, ",")) {
        skip_blanks(s, false);
        *max = source_number(s, MAX_REPEAT);
        skip_blanks(s, false);
    }
    if (*min < 0 || !source_skip(s, "}"))
        source_refuse(s, STATUS_INVALID, at, "a repeat is written as {2}, {2,} or {2,3}");
    else if (*min > MAX_REPEAT || *max > MAX_REPEAT)
        source_refuse(s, STATUS_LIMIT, at, "a repeat of more than %d", MAX_REPEAT);
    else if (*max >= 0 && *max < *min)
        source_refuse(s, STATUS_INVALID, at, "a repeat whose end is before its begin");
    else
        return true;
    return false;
}

// The item before, repeated. base: where the sequence begins
static bool parse_repeat(struct gbnf *g, int base) {
    char c = *g->s.at;
    int min = c == '+', max = c == '?' ? 1 : -1;
    if (g->pending.num == base)
        return source_refuse(&g->s, STATUS_INVALID, g->s.at, "there is nothing to repeat") != EXPR_NONE;
    if (c == '{' ? !take_counts(g, &min, &max) : !source_skip(&g->s, (char[]){c, 0}))
        return false;
    expr *item = &g->pending.items[g->pending.num - 1];
    *item = gb_repeat(g->b, *item, min, max);
    return *item != EXPR_NONE;
}

static expr parse_group(struct gbnf *g, int depth) {
    const char *at = g->s.at++;
    if (depth >= MAX_NESTING)
        return source_refuse(&g->s, STATUS_LIMIT, at, "groups are nested deeper than %d", MAX_NESTING);
    if (source_is(&g->s, "="))
        return source_refuse(&g->s, STATUS_INVALID, at, "looks ahead, (=...), are not supported");
    expr e = parse_alternatives(g, true, depth + 1);
    if (e != EXPR_NONE && !source_skip(&g->s, ")"))
        return source_refuse(&g->s, STATUS_INVALID, at, "( has no )");
    return e;
}

static expr parse_item(struct gbnf *g, int depth) {
    switch (*g->s.at) {
    case '"': return parse_literal(g);
    case '[': return parse_class(g);
    case '.': g->s.at++; return any_char(g);
    case '(': return parse_group(g, depth);
    case '<':
    case '!': return parse_token(g);
    default: {
        const char *at = g->s.at;
        int number = take_name(g);
        if (number < 0)
            return EXPR_NONE;
        if (!g->rules[number].use)
            g->rules[number].use = at;
        return g->rules[number].rule;
    }
    }
}

static expr parse_sequence(struct gbnf *g, bool nested, int depth) {
    int base = g->pending.num;
    for (skip_in_rule(g, nested); g->s.at < g->s.end; skip_in_rule(g, nested)) {
        char c = *g->s.at;
        if (is_one_of(c, "*+?{")) {
            if (!parse_repeat(g, base))
                return EXPR_NONE;
        } else if (is_one_of(c, "\"[(<!.") || is_name_char(c)) {
            if (!expr_stack_push(&g->pending, parse_item(g, depth), g->s.err))
                return EXPR_NONE;
        } else {
            break;
        }
    }
    expr e = gb_seq(g->b, expr_stack_from(&g->pending, base), g->pending.num - base);
    g->pending.num = base;
    return e;
}

static expr parse_alternatives(struct gbnf *g, bool nested, int depth) {
    int base = g->pending.num;
    do {
        skip_blanks(&g->s, nested || g->pending.num > base); // a line may end behind |
        if (!expr_stack_push(&g->pending, parse_sequence(g, nested, depth), g->s.err))
            return EXPR_NONE;
    } while (source_skip(&g->s, "|"));
    expr e = gb_alt(g->b, expr_stack_from(&g->pending, base), g->pending.num - base);
    g->pending.num = base;
    return e;
}

// A later definition of a name takes the place of an earlier one, as in llama.cpp.
static bool parse_rule(struct gbnf *g) {
    const char *at = g->s.at;
    if (!at_definition(g->s))
        return source_refuse(&g->s, STATUS_INVALID, at, "a rule is written as name ::= ...") != EXPR_NONE;
    int number = take_name(g);
    skip_blanks(&g->s, false);
    source_skip(&g->s, "::=");
    skip_blanks(&g->s, true);
    expr body = number < 0 ? EXPR_NONE : parse_alternatives(g, false, 0);
    if (body == EXPR_NONE)
        return false;
    g->rules[number].body = body;
    at = g->s.at;
    skip_blanks(&g->s, true);
    if (g->s.at < g->s.end && (at == g->s.at || !at_definition(g->s)))
        return source_refuse(&g->s, STATUS_INVALID, at, "this cannot stand here") != EXPR_NONE;
    return true;
}

static expr parse_all(struct gbnf *g) {
    skip_blanks(&g->s, true);
    while (g->s.at < g->s.end)
        if (!parse_rule(g))
            return EXPR_NONE;
    for (int i = 0; i < g->num_rules; i++) {
        if (g->rules[i].body == EXPR_NONE)
            return source_refuse(&g->s, STATUS_INVALID, g->rules[i].use, "this rule is not defined");
        gb_define(g->b, g->rules[i].rule, g->rules[i].body);
    }
    int before = g->num_rules, root = source_name(&g->s, &g->names, "root", 4);
    if (root >= before)
        return source_refuse(&g->s, STATUS_INVALID, g->s.begin, "there is no rule of the name root");
    return root < 0 ? EXPR_NONE : g->rules[root].rule;
}

expr gbnf_to_expr(struct grammar_builder *b, const char *text, size_t len, struct err *err) {
    struct gbnf g = {.b = b};
    if (!source_begin(&g.s, "GBNF grammar", text, len, err))
        return EXPR_NONE;
    expr e = parse_all(&g);
    if (e == EXPR_NONE)
        gb_failed(b, err);
    free(g.pending.items);
    buf_free(&g.text);
    free(g.rules);
    int_sets_free(&g.names);
    return e;
}
