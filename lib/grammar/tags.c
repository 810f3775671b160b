// Members of an object between tags: see grammar_tags.
#include "expr.h"

#include <string.h>

void gb_json_tags(struct grammar_builder *b, const struct builder_tags *tags) { b->tags = *tags; }

const struct builder_tags *gb_tags(const struct grammar_builder *b) { return b->tags.of ? &b->tags : NULL; }

size_t gb_flat_part(const struct grammar_part *p, char out[MAX_MID]) {
    if (p->kind == GRAMMAR_TOKEN) {
        token_code(p->token, out);
        return TOKEN_CODE_BYTES;
    }
    if (p->kind == GRAMMAR_TEXT && p->len <= MAX_MID)
        return memcpy(out, p->text, p->len), p->len;
    size_t len = 0;
    for (int i = 0; p->kind == GRAMMAR_SEQ && i < p->num; i++) {
        char part[MAX_MID];
        size_t n = gb_flat_part(&p->parts[i], part);
        if (!n || n > MAX_MID - len)
            return 0;
        memcpy(out + len, part, n);
        len += n;
    }
    return len;
}

// ---- strings that no reader takes for another value

#define BLANKS "[ \\t\\n\\r]*"

// The texts that are a value of one of the types, or begin as one.
static struct dfa *values_of(unsigned types, struct err *err) {
    static const struct {
        unsigned type;
        const char *regex;
    } of[] = {{GRAMMAR_NULL, BLANKS "null" BLANKS},
              {GRAMMAR_BOOLEAN, BLANKS "(?:true|false)" BLANKS},
              {GRAMMAR_NUMBER, BLANKS "-?[0-9]+(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?" BLANKS},
              {GRAMMAR_ARRAY, BLANKS "\\[[\\s\\S]*"},
              {GRAMMAR_OBJECT, BLANKS "\\{[\\s\\S]*"}};
    struct dfa *all = dfa_literals(NULL, NULL, 0, err);
    for (size_t i = 0; all && i < sizeof of / sizeof *of; i++) {
        struct dfa *one = types & of[i].type ? dfa_regex(of[i].regex, strlen(of[i].regex), true, err) : NULL;
        if (!(types & of[i].type))
            continue;
        struct dfa *sum = one ? dfa_union(all, one, err) : NULL;
        dfa_free(one);
        dfa_free(all);
        all = sum;
    }
    return all;
}

// Takes both over; NULL among them gives NULL.
static struct dfa *intersection(struct dfa *x, struct dfa *y, struct err *err) {
    struct dfa *both = x && y ? dfa_intersect(x, y, err) : NULL;
    dfa_free(x);
    dfa_free(y);
    return both;
}

enum { MAX_LENGTHS = 256 }; // that an automaton tells apart

// A length that is counted: none of the characters is one of the stop's, and the first one begins no other value.
static expr counted(struct grammar_builder *b, int min, int max, unsigned others) {
    const uint32_t left_out = (unsigned char)*b->tags.of->stop;
    const struct code_range begin[] = {{'\t', '\n'}, {'\r', '\r'}, {' ', ' '},          {'-', '-'},
                                       {'0', '9'},   {'[', '['},   {'f', 'f'},          {'n', 'n'},
                                       {'t', 't'},   {'{', '{'},   {left_out, left_out}};
    expr rest = gb_chars(b, &(struct code_range){left_out, left_out}, 1, true);
    if (!others)
        return gb_repeat(b, rest, min, max);
    expr first = gb_chars(b, begin, sizeof begin / sizeof *begin, true);
    expr some = gb_seq_of(b, first, gb_repeat(b, rest, min > 1 ? min - 1 : 0, max < 0 ? -1 : max - 1));
    return min > 0 ? some : gb_alt_of(b, gb_empty(b), some);
}

expr gb_tagged_text(struct grammar_builder *b, struct dfa *d, int min, int max, unsigned types) {
    const struct grammar_tags *t = b->tags.of;
    unsigned others = t->told ? 0 : types & ~(unsigned)GRAMMAR_STRING;
    struct err err = {0};
    if (!d && (min > MAX_LENGTHS || max > MAX_LENGTHS))
        return counted(b, min, max, others);
    if (!d && !(d = min > 0 || max >= 0 ? dfa_length(min, max, &err) : dfa_any(&err)))
        return gb_fail(b, err.code, err.msg);
    d = intersection(d, gb_dfa_without(b, t->stop, strlen(t->stop)), &err);
    struct dfa *values = others ? values_of(others, &err) : NULL;
    if (others)
        d = intersection(d, values ? dfa_complement(values, &err) : NULL, &err);
    dfa_free(values);
    if (!d)
        return gb_fail(b, err.code ? err.code : STATUS_NOMEM, err.code ? err.msg : "out of memory");
    if (!dfa_is_empty(d))
        return gb_dfa(b, d);
    dfa_free(d);
    return gb_never(b);
}
