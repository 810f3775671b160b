// A terminal's expression is written as text, with those that it names in groups, and then read as one. In Lark a lexer
// cuts text into terminals, and of several that fit takes the longest; here a terminal may be any text that it matches.
// So more is accepted where terminals overlap: "if" may be a NAME, and `a b` with %ignore " " two names or, if names
// may have blanks, one.
#include "lark_terminals.h"

#include "../regex/regex_dfa.h"
#include "../regex/regex_expr.h"
#include "buf.h"
#include "utf8.h"

static bool write_alternatives(struct lark_file *f, struct buf *out, int depth);

static bool refuse(const struct lark_file *f, const char *what) { return lark_fail(f, what) != EXPR_NONE; }

// ---- patterns

// The characters of a string literal, or of a range's end, as a pattern that takes them alone.
static bool write_string(struct lark_file *f, const struct lark_token *t, struct buf *out) {
    struct source s = f->source;
    const char *end = t->at + t->len - 1;
    while (*end != '"') // flags
        end--;
    s.at = t->at + 1;
    s.end = end;
    while (s.at < end) {
        const char *at = s.at;
        int32_t c = source_char(&s, '"');
        if (c < 0)
            return false;
        if (c >= 0xd800 && c <= 0xdfff)
            return source_refuse(&s, STATUS_INVALID, at, "half of a pair of surrogates") != EXPR_NONE;
        buf_fmt(out, "\\u{%x}", (unsigned)c);
    }
    return true;
}

static bool has_flag(const struct lark_token *t, char flag) {
    for (const char *p = t->at + t->len - 1; p > t->at && *p != '"' && *p != '/'; p--)
        if (*p == flag)
            return true;
    return false;
}

static bool write_range(struct lark_file *f, struct buf *out) {
    const struct lark_token *first = lark_next(f) - 2, *last = lark_next(f);
    size_t begin = out->len;
    int32_t ends[2] = {0, 0};
    if (!lark_skip(f, LARK_STRING))
        return refuse(f, "a range ends with a string");
    for (int i = 0; i < 2; i++) {
        const struct lark_token *t = i ? last : first;
        struct source s = f->source;
        s.at = t->at + 1;
        s.end = t->at + t->len - 1;
        ends[i] = s.at < s.end ? source_char(&s, '"') : -1;
        if (ends[i] < 0 || s.at != s.end)
            return source_refuse(&f->source, STATUS_INVALID, t->at, "an end of a range is one character") !=
                   EXPR_NONE;
    }
    if (ends[1] < ends[0])
        return source_refuse(&f->source, STATUS_INVALID, first->at,
                             "a range whose end is before its begin") != EXPR_NONE;
    buf_fmt(out, "[\\u{%x}-\\u{%x}]", (unsigned)ends[0], (unsigned)ends[1]);
    return out->len > begin;
}

// A regular expression is read alone first, so that an error is said of its place.
static bool write_regex(struct lark_file *f, const struct lark_token *t, struct buf *out) {
    const char *end = t->at + t->len;
    while (*--end != '/')
        ;
    size_t len = (size_t)(end - t->at) - 1;
    struct err err = {0};
    struct regex_tree *tree = regex_parse(t->at + 1, len, REGEX_DOT_LINE, &err);
    if (!tree)
        return source_refuse(&f->source, err.code, t->at, "%s", err.msg) != EXPR_NONE;
    regex_tree_free(tree);
    bool i = has_flag(t, 'i'), s = has_flag(t, 's');
    buf_fmt(out, "(?%s%s:", i ? "i" : "", s ? "s" : "");
    buf_add(out, t->at + 1, len);
    buf_char(out, ')');
    return true;
}

// The pattern of a name, which is made where it is used first.
static bool write_name(struct lark_file *f, const struct lark_token *t, struct buf *out, int depth) {
    int number = lark_name(f, t);
    if (number < 0)
        return false;
    struct lark_definition *d = &f->definitions[number];
    if (!d->at)
        return source_refuse(&f->source, STATUS_INVALID, t->at, "this terminal is not defined") != EXPR_NONE;
    if (d->in_progress)
        return source_refuse(&f->source, STATUS_INVALID, t->at, "this terminal stands within itself") !=
               EXPR_NONE;
    if (!d->pattern) {
        struct buf pattern = {0};
        int at = f->at;
        f->at = d->body;
        d->in_progress = true;
        bool ok = write_alternatives(f, &pattern, depth + 1);
        if (ok && !lark_next_is(f, LARK_NEWLINE) && !lark_next_is(f, LARK_END))
            ok = refuse(f, "this cannot stand here");
        d = &f->definitions[number]; // they may have moved
        d->in_progress = false;
        if (!ok || !buf_cstr(&pattern)) {
            buf_free(&pattern);
            return false;
        }
        f->at = at;
        d->pattern = pattern.data;
        d->pattern_len = pattern.len;
    }
    buf_lit(out, "(?:");
    buf_add(out, d->pattern, d->pattern_len);
    buf_char(out, ')');
    if (out->len > SOURCE_BYTES)
        return source_refuse(&f->source, STATUS_LIMIT, t->at,
                             "a terminal is too large with those that it names") != EXPR_NONE;
    return true;
}

// One token of those that are terminals by themselves.
static bool write_token(struct lark_file *f, const struct lark_token *t, struct buf *out, int depth) {
    if (t->kind == LARK_REGEX)
        return write_regex(f, t, out);
    if (t->kind == LARK_TERMINAL)
        return write_name(f, t, out, depth);
    buf_str(out, has_flag(t, 'i') ? "(?i:" : "(?:");
    bool ok = write_string(f, t, out);
    buf_char(out, ')');
    return ok;
}

static bool write_atom(struct lark_file *f, struct buf *out, int depth) {
    const struct lark_token *t = lark_next(f);
    int close = t->kind == '[' ? ']' : ')';
    switch (t->kind) {
    case LARK_STRING:
        f->at++;
        return lark_skip(f, LARK_RANGE) ? write_range(f, out) : write_token(f, t, out, depth);
    case LARK_REGEX:
    case LARK_TERMINAL: f->at++; return write_token(f, t, out, depth);
    case '(':
    case '[':
        f->at++;
        buf_str(out, close == ']' ? "(?:(?:" : "(?:");
        if (!write_alternatives(f, out, depth + 1))
            return false;
        buf_str(out, close == ']' ? ")?)" : ")");
        return lark_skip(f, close) || refuse(f, close == ']' ? "] is expected" : ") is expected");
    case LARK_RULE: return refuse(f, "a terminal cannot have a rule in it");
    case '~':
    case '&': return refuse(f, "the operators & and ~ of regular expressions are not supported");
    default:
        return refuse(f, "a terminal has strings, regular expressions and terminals in it, and not this");
    }
}

static bool write_alternatives(struct lark_file *f, struct buf *out, int depth) {
    if (depth >= MAX_NESTING)
        return source_refuse(&f->source, STATUS_LIMIT, lark_next(f)->at, "this is nested too deep") !=
               EXPR_NONE;
    for (bool first = true; first || lark_skip_bar(f); first = false) {
        if (!first)
            buf_char(out, '|');
        while (!lark_ends_alternative(lark_next(f)->kind)) {
            int min, max, repeat;
            if (!write_atom(f, out, depth) || (repeat = lark_take_repeat(f, &min, &max)) < 0)
                return false;
            if (repeat && max < 0)
                buf_fmt(out, "{%d,}", min);
            else if (repeat)
                buf_fmt(out, "{%d,%d}", min, max);
        }
        if (!lark_skip_alias(f))
            return false;
    }
    return true;
}

// ---- expressions

// The expression of a pattern, which is freed. at: where the source has it
static expr pattern_expr(struct lark_file *f, struct grammar_builder *b, struct buf *pattern, bool lazy,
                         const char *at) {
    struct err err = {0};
    expr e = EXPR_NONE;
    const char *text = buf_cstr(pattern);
    struct regex_tree *t = text ? regex_parse(text, pattern->len, REGEX_DOT_LINE, &err) : NULL;
    if (!text)
        err_set(&err, STATUS_NOMEM, "out of memory for a grammar");
    if (t && !lazy) {
        e = regex_tree_expr(b, t, &err);
    } else if (t) {
        struct dfa *all = regex_tree_dfa(t, true, &err), *shortest = all ? dfa_shortest(all, &err) : NULL;
        dfa_free(all);
        e = shortest ? gb_dfa(b, shortest) : EXPR_NONE;
    }
    regex_tree_free(t);
    buf_free(pattern);
    if (e == EXPR_NONE && err.code != STATUS_OK)
        source_refuse(&f->source, err.code, at, "%s", err.msg);
    return e;
}

expr lark_terminal(struct lark_file *f, struct grammar_builder *b) {
    const struct lark_token *t = lark_next(f);
    struct buf pattern = {0};
    int number = t->kind == LARK_TERMINAL ? lark_name(f, t) : -1;
    if (t->kind == LARK_TERMINAL && (number < 0 || f->definitions[number].made != EXPR_NONE)) {
        f->at++;
        return number < 0 ? EXPR_NONE : f->definitions[number].made;
    }
    if (!write_atom(f, &pattern, 0)) {
        buf_free(&pattern);
        return EXPR_NONE;
    }
    expr e = pattern_expr(f, b, &pattern, false, t->at);
    if (number >= 0)
        f->definitions[number].made = e;
    return e;
}

expr lark_terminals(struct lark_file *f, struct grammar_builder *b, bool lazy, int suffix) {
    const char *at = lark_next(f)->at;
    struct buf pattern = {0};
    buf_lit(&pattern, "(?:");
    bool ok = write_alternatives(f, &pattern, 0);
    buf_char(&pattern, ')');
    if (ok && suffix)
        ok = write_token(f, &f->tokens.items[suffix], &pattern, 0);
    if (ok)
        return pattern_expr(f, b, &pattern, lazy, at);
    buf_free(&pattern);
    return EXPR_NONE;
}
