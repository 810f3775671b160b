#include "lark_tokens.h"

#include "../grow.h"

static bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
static bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_word(char c) { return is_lower(c) || is_upper(c) || is_digit(c) || c == '_'; }

static char peek(const struct source *s, size_t i) { return i < (size_t)(s->end - s->at) ? s->at[i] : 0; }

// Letters, digits and _, and - between these. Its case is that of its first letter.
static int take_name(struct source *s) {
    const char *first = s->at;
    while (first < s->end && *first == '_')
        first++;
    bool upper = first < s->end && is_upper(*first);
    if (!upper && !(first < s->end && is_lower(*first)))
        return source_refuse(s, STATUS_INVALID, s->at, "a name has no letter behind _");
    while (is_word(peek(s, 0)) || (peek(s, 0) == '-' && is_word(peek(s, 1))))
        s->at++;
    return upper ? LARK_TERMINAL : LARK_RULE;
}

// A literal to its quote, which \ escapes, and the flags behind it.
static int take_literal(struct source *s, char quote, const char *flags, int kind) {
    const char *at = s->at++;
    for (; s->at < s->end && *s->at != quote && *s->at != '\n'; s->at++)
        s->at += *s->at == '\\' && s->at + 1 < s->end;
    if (!source_skip(s, (char[]){quote, 0}))
        return source_refuse(s, STATUS_INVALID, at, "%c has no end in its line", quote);
    while (is_one_of(peek(s, 0), flags))
        s->at++;
    return is_word(peek(s, 0)) ? source_refuse(s, STATUS_INVALID, s->at, "this flag is not supported") : kind;
}

// An object of JSON, by its brackets.
static int take_json(struct source *s) {
    const char *at = s->at;
    int depth = 0;
    do {
        char c = peek(s, 0);
        if (s->at == s->end)
            return source_refuse(s, STATUS_INVALID, at, "{ has no }");
        if (c == '"')
            for (s->at++; s->at < s->end && *s->at != '"'; s->at++)
                s->at += *s->at == '\\' && s->at + 1 < s->end;
        s->at += s->at < s->end;
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    } while (depth > 0);
    return LARK_JSON;
}

static int take_until(struct source *s, char end, int kind) {
    const char *at = s->at;
    while (s->at < s->end && *s->at != end && *s->at != '\n')
        s->at++;
    return source_skip(s, (char[]){end, 0})
               ? kind
               : source_refuse(s, STATUS_INVALID, at, "this has no %c in its line", end);
}

// The kind of the token that begins here, which is taken; -1 with err.
static int take_token(struct source *s, bool json) {
    char c = *s->at;
    if (json && c == '{')
        return take_json(s);
    if (c == '_' || is_lower(c) || is_upper(c))
        return take_name(s);
    if (c == '"')
        return take_literal(s, '"', "i", LARK_STRING);
    if (c == '/')
        return take_literal(s, '/', "isu", LARK_REGEX);
    if (c == '<')
        return take_until(s, '>', LARK_SPECIAL);
    if (source_skip(s, ".."))
        return LARK_RANGE;
    if (source_skip(s, "->"))
        return LARK_ARROW;
    if (is_digit(c) || (c == '-' && is_digit(peek(s, 1)))) {
        for (s->at++; is_digit(peek(s, 0));)
            s->at++;
        return LARK_NUMBER;
    }
    if ((c == '%' || c == '@') && is_word(peek(s, 1))) {
        for (s->at++; is_word(peek(s, 0));)
            s->at++;
        return c == '%' ? LARK_DIRECTIVE : LARK_GRAMMAR;
    }
    if (!is_one_of(c, ":,.(){}[]~|=+*?&!"))
        return source_refuse(s, STATUS_INVALID, s->at, "this character cannot stand here");
    s->at++;
    return (unsigned char)c;
}

static bool add_token(struct source *s, struct lark_tokens *t, int kind, const char *at) {
    if (!grow_room(&t->items, sizeof *t->items, t->num, &t->cap)) {
        err_set(s->err, STATUS_NOMEM, "out of memory for a grammar");
        return false;
    }
    t->items[t->num++] = (struct lark_token){kind, at, (size_t)(s->at - at)};
    return true;
}

bool lark_tokens_read(struct source *s, struct lark_tokens *t) {
    int open = 0; // brackets
    bool json = false;
    while (s->at < s->end) {
        const char *at = s->at;
        if (*at == '#' || source_is(s, "//")) {
            while (s->at < s->end && *s->at != '\n')
                s->at++;
        } else if (is_one_of(*at, " \t\r\n")) {
            s->at++;
            if (*at == '\n' && open == 0 && !json && !add_token(s, t, LARK_NEWLINE, at))
                return false;
        } else {
            int kind = take_token(s, json);
            if (kind < 0 || !add_token(s, t, kind, at))
                return false;
            open += (kind == '(' || kind == '[' || kind == '{') - (kind == ')' || kind == ']' || kind == '}');
            open = open < 0 ? 0 : open;
            json = kind == LARK_DIRECTIVE && !lark_token_is(&t->items[t->num - 1], "%ignore") &&
                   !lark_token_is(&t->items[t->num - 1], "%import");
        }
    }
    return add_token(s, t, LARK_END, s->at);
}
