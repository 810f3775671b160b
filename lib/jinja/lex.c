// The white space that a tag takes with it is settled here: "-" takes all of it on its side, a block or a
// comment takes the newline after it (trim_blocks) and the blanks before it on its line (lstrip_blocks), "+"
// prevents that.
#include "lex.h"

#include "jinja.h"
#include "str_ops.h"
#include "utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct lexer {
    struct jinja_source *s;
    const char *p;
    size_t len, at;
    size_t line_at; // where the line count has got to
    uint32_t line, column;
    bool line_starting;
};

static void lex_locate(struct lexer *l, size_t at) {
    for (; l->line_at < at; l->line_at++) {
        if (l->p[l->line_at] == '\n') {
            l->line++;
            l->column = 1;
        } else if (!utf8_continues(l->p[l->line_at])) {
            l->column++;
        }
    }
}

#define LEX_FAIL(l, at_, ...)                                                                                \
    (lex_locate(l, at_), source_fail((l)->s, STATUS_FORMAT, (l)->line, (l)->column, __VA_ARGS__))

static struct token *lex_add(struct lexer *l, enum token_kind kind, size_t at) {
    struct jinja_source *s = l->s;
    if (s->num_tokens == s->cap_tokens) {
        size_t cap = s->cap_tokens ? 2 * s->cap_tokens : 64;
        struct token *t = source_alloc(s, cap * sizeof *t);
        if (s->num_tokens)
            memcpy(t, s->tokens, s->num_tokens * sizeof *t);
        s->tokens = t;
        s->cap_tokens = cap;
    }
    lex_locate(l, at);
    struct token *t = &s->tokens[s->num_tokens++];
    *t = (struct token){.kind = kind, .line = l->line, .column = l->column};
    return t;
}

static bool looking_at(const struct lexer *l, size_t at, const char *text) {
    size_t n = strlen(text);
    return n <= l->len - at && memcmp(l->p + at, text, n) == 0;
}

static size_t skip_space(const struct lexer *l, size_t at) {
    while (at < l->len) {
        size_t n;
        if (!text_is_space(utf8_decode(l->p + at, &n)))
            break;
        at += n;
    }
    return at;
}

static size_t back_over_space(const struct lexer *l, size_t from, size_t to) {
    while (to > from) {
        size_t at = to - 1, n;
        while (at > from && utf8_continues(l->p[at]))
            at--;
        if (!text_is_space(utf8_decode(l->p + at, &n)))
            break;
        to = at;
    }
    return to;
}

// Text up to a tag at `to`, without what the tag strips. `lstrip`: the tag is not a variable.
static void add_data(struct lexer *l, size_t from, size_t to, char sign, bool lstrip) {
    if (sign == '-') {
        to = back_over_space(l, from, to);
    } else if (sign != '+' && lstrip) {
        size_t line = to;
        while (line > from && l->p[line - 1] != '\n')
            line--;
        if ((line > from || l->line_starting) && back_over_space(l, line, to) == line)
            to = line;
    }
    if (to > from) {
        struct token *t = lex_add(l, T_DATA, from);
        t->p = l->p + from;
        t->len = to - from;
    }
}

// The end of a block, comment or variable at `at`, of which `end` is the bare form: the place after it and
// after what it takes along; 0: no end here.
static size_t tag_end(struct lexer *l, size_t at, const char *end) {
    size_t past;
    bool trims = end[0] != '}'; // a variable keeps its newline
    if (l->p[at] == '-' && looking_at(l, at + 1, end))
        past = skip_space(l, at + 3);
    else if (trims && l->p[at] == '+' && looking_at(l, at + 1, end))
        past = at + 3;
    else if (looking_at(l, at, end))
        past = at + 2 + (trims && at + 2 < l->len && l->p[at + 2] == '\n');
    else
        return 0;
    l->line_starting = l->p[past - 1] == '\n';
    return past;
}

static int lex_hex(const struct lexer *l, size_t at, size_t digits, uint32_t *out) {
    *out = 0;
    for (size_t i = 0; i < digits; i++) {
        char c = at + i < l->len ? l->p[at + i] : 0;
        int d = c >= '0' && c <= '9'                 ? c - '0'
                : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                     : -1;
        if (d < 0)
            return 0;
        *out = *out << 4 | (uint32_t)d;
    }
    return 1;
}

// A string literal at l->at; escapes as in Python.
static void lex_string(struct lexer *l) {
    static const char names[] = "abfnrtv\\'\"", codes[] = "\a\b\f\n\r\t\v\\'\"";
    size_t start = l->at, n = 0;
    char quote = l->p[l->at++];
    size_t end = l->at;
    while (end < l->len && l->p[end] != quote)
        end += l->p[end] == '\\' ? 2 : 1;
    if (end >= l->len)
        LEX_FAIL(l, start, "a string without its end");
    char *out = source_alloc(l->s, end - l->at + 1); // no escape gets longer
    while (l->at < end) {
        char c = l->p[l->at++];
        if (c != '\\') {
            out[n++] = c;
            continue;
        }
        c = l->p[l->at++];
        const char *known = c ? strchr(names, c) : NULL;
        uint32_t code = 0;
        size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
        if (known) {
            out[n++] = codes[known - names];
        } else if (c == '\n') {
            continue;
        } else if (digits) {
            if (!lex_hex(l, l->at, digits, &code) || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
                LEX_FAIL(l, l->at - 2, "\\%c without %zu hexadecimal digits of a character", c, digits);
            l->at += digits;
            n += utf8_encode(out + n, code);
        } else if (c >= '0' && c <= '7') {
            code = (uint32_t)(c - '0');
            for (int i = 0; i < 2 && l->p[l->at] >= '0' && l->p[l->at] <= '7'; i++)
                code = code * 8 + (uint32_t)(l->p[l->at++] - '0');
            n += utf8_encode(out + n, code);
        } else if (c == 'N') {
            LEX_FAIL(l, l->at - 2, "\\N{name} is not supported");
        } else {
            out[n++] = '\\';
            out[n++] = c;
        }
    }
    l->at = end + 1;
    struct token *t = lex_add(l, T_STRING, start);
    t->p = out;
    t->len = n;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_name(char c) {
    return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' || (unsigned char)c >= 0x80;
}

// Copies digits and their underscores away; returns the place after.
static size_t lex_digits(const struct lexer *l, size_t at, char *out, size_t *n) {
    while (at < l->len &&
           (is_digit(l->p[at]) || (l->p[at] == '_' && at + 1 < l->len && is_digit(l->p[at + 1])))) {
        if (l->p[at] != '_' && *n < 400)
            out[(*n)++] = l->p[at];
        at++;
    }
    return at;
}

static void lex_number(struct lexer *l) {
    char text[420];
    size_t n = 0, start = l->at, at = lex_digits(l, l->at, text, &n);
    bool is_float = false, after_dot = start > 0 && l->p[start - 1] == '.'; // a.0.1 are two indices
    if (l->p[start] == '0' && at == start + 1 && at < l->len && strchr("xXoObB", l->p[at]) && l->p[at])
        LEX_FAIL(l, start, "integers with a base are not supported");
    if (!after_dot) {
        if (at + 1 < l->len && l->p[at] == '.' && is_digit(l->p[at + 1])) {
            text[n++] = '.';
            at = lex_digits(l, at + 1, text, &n);
            is_float = true;
        }
        size_t e = at + 1;
        if (at < l->len && (l->p[at] | 32) == 'e') {
            if (e < l->len && (l->p[e] == '+' || l->p[e] == '-'))
                e++;
            if (e < l->len && is_digit(l->p[e])) {
                text[n++] = 'e';
                if (l->p[e - 1] == '-')
                    text[n++] = '-';
                at = lex_digits(l, e, text, &n);
                is_float = true;
            }
        }
    }
    text[n] = 0;
    if (n >= 400)
        LEX_FAIL(l, start, "a number of over 400 digits");
    struct token *t = lex_add(l, is_float ? T_FLOAT : T_INT, start);
    errno = 0;
    if (is_float)
        t->f = strtod(text, NULL);
    else
        t->i = strtoll(text, NULL, 10);
    if (!is_float && errno)
        LEX_FAIL(l, start, "the integer %.40s does not fit into 64 bits", text);
    l->at = at;
}

static int two_char_op(const struct lexer *l) {
    static const char pairs[][3] = {"==", "!=", ">=", "<=", "//", "**"};
    static const char ops[] = {OP_EQ, OP_NE, OP_GE, OP_LE, OP_FLOORDIV, OP_POW};
    for (size_t i = 0; i < sizeof ops; i++)
        if (looking_at(l, l->at, pairs[i]))
            return ops[i];
    return 0;
}

// Lexes the text between the marks of a variable or a block.
static void lex_inside(struct lexer *l, size_t begin, bool block) {
    char open[JINJA_MAX_NESTING];
    size_t depth = 0;
    const char *end = block ? "%}" : "}}";
    for (;;) {
        l->at = skip_space(l, l->at);
        if (l->at >= l->len)
            LEX_FAIL(l, begin, "a tag without its end");
        size_t past = depth == 0 ? tag_end(l, l->at, end) : 0;
        if (past) {
            lex_add(l, block ? T_BLOCK_END : T_VAR_END, l->at);
            l->at = past;
            return;
        }
        char c = l->p[l->at];
        if (is_digit(c)) {
            lex_number(l);
        } else if (is_name(c)) {
            struct token *t = lex_add(l, T_NAME, l->at);
            t->p = l->p + l->at;
            while (l->at < l->len && is_name(l->p[l->at]))
                l->at++;
            t->len = (size_t)(l->p + l->at - t->p);
        } else if (c == '"' || c == '\'') {
            lex_string(l);
        } else {
            int op = two_char_op(l);
            if (!op && (c == 0 || !strchr("+-/*%~[](){}><=.:|,", c)))
                LEX_FAIL(l, l->at, "unexpected character U+%04X", (unsigned)c);
            struct token *t = lex_add(l, T_OP, l->at);
            t->op = op ? op : c;
            l->at += op ? 2 : 1;
            if (op)
                continue;
            if (c == '(' || c == '[' || c == '{') {
                if (depth == JINJA_MAX_NESTING)
                    source_fail(l->s, STATUS_LIMIT, l->line, l->column, "nested over %d deep",
                                JINJA_MAX_NESTING);
                open[depth++] = c == '(' ? ')' : c == '[' ? ']' : '}';
            } else if (c == ')' || c == ']' || c == '}') {
                if (depth == 0 || open[--depth] != c)
                    LEX_FAIL(l, l->at - 1, "unexpected '%c'", c);
            }
        }
    }
}

// {% raw %} … {% endraw %} at l->at: true, if there is one.
static bool lex_raw(struct lexer *l, size_t from, size_t tag) {
    char sign = tag + 2 < l->len && (l->p[tag + 2] == '-' || l->p[tag + 2] == '+') ? l->p[tag + 2] : 0;
    size_t at = skip_space(l, tag + 2 + (sign != 0));
    if (!looking_at(l, at, "raw"))
        return false;
    at = skip_space(l, at + 3);
    if (looking_at(l, at, "-%}"))
        at = skip_space(l, at + 3);
    else if (looking_at(l, at, "%}"))
        at += 2;
    else
        return false;
    add_data(l, from, tag, sign, true);
    l->line_starting = l->p[at - 1] == '\n';
    for (size_t i = at; i + 1 < l->len; i++) {
        if (l->p[i] != '{' || l->p[i + 1] != '%')
            continue;
        char end_sign = i + 2 < l->len && (l->p[i + 2] == '-' || l->p[i + 2] == '+') ? l->p[i + 2] : 0;
        size_t k = skip_space(l, i + 2 + (end_sign != 0));
        if (!looking_at(l, k, "endraw"))
            continue;
        k = skip_space(l, k + 6);
        bool starting = l->line_starting;
        size_t past = k < l->len ? tag_end(l, k, "%}") : 0;
        if (!past)
            continue;
        bool after = l->line_starting;
        l->line_starting = starting;
        add_data(l, at, i, end_sign, true);
        l->line_starting = after;
        l->at = past;
        return true;
    }
    LEX_FAIL(l, tag, "raw without endraw");
}

void jinja_lex(struct jinja_source *s, const char *source, size_t len) {
    if (len > JINJA_MAX_SOURCE)
        source_fail(s, STATUS_LIMIT, 0, 0, "chat template of %zu bytes: at most %zu", len, JINJA_MAX_SOURCE);
    if (!utf8_valid((const unsigned char *)source, len))
        source_fail(s, STATUS_FORMAT, 0, 0, "chat template: not UTF-8");
    // Newlines are one character, and the last of the source is not part of it.
    char *p = source_alloc(s, len + 1);
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (source[i] == '\r' && i + 1 < len && source[i + 1] == '\n')
            continue;
        p[n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (n > 0 && p[n - 1] == '\n')
        n--;
    p[n] = 0;
    struct lexer l = {.s = s, .p = p, .len = n, .line = 1, .column = 1, .line_starting = true};
    while (l.at < l.len) {
        size_t from = l.at, tag = from;
        while (tag + 1 < l.len && !(p[tag] == '{' && strchr("%{#", p[tag + 1]) && p[tag + 1]))
            tag++;
        if (tag + 1 >= l.len) {
            add_data(&l, from, l.len, '+', false);
            break;
        }
        char kind = p[tag + 1];
        if (kind == '%' && lex_raw(&l, from, tag))
            continue;
        char sign = p[tag + 2] == '-' || p[tag + 2] == '+' ? p[tag + 2] : 0;
        add_data(&l, from, tag, sign, kind != '{');
        l.at = tag + 2 + (sign != 0);
        l.line_starting = false;
        if (kind != '#') {
            lex_add(&l, kind == '%' ? T_BLOCK_BEGIN : T_VAR_BEGIN, tag);
            lex_inside(&l, tag, kind == '%');
            continue;
        }
        size_t past = 0;
        for (; l.at + 1 < l.len && !past; l.at++)
            past = tag_end(&l, l.at, "#}");
        if (!past)
            LEX_FAIL(&l, tag, "a comment without its end");
        l.at = past;
    }
    lex_add(&l, T_EOF, l.len);
}
