#include "source.h"

#include "../grow.h"
#include "utf8.h"

enum { MAX_NAME = 256 };

bool source_begin(struct source *s, const char *language, const char *text, size_t len, struct err *err) {
    *s = (struct source){.begin = text, .at = text, .end = text + len, .language = language, .err = err};
    if (len > SOURCE_BYTES) {
        err_set(err, STATUS_LIMIT, "the %s has more than %d bytes", language, SOURCE_BYTES);
        return false;
    }
    if (!utf8_valid((const unsigned char *)text, len)) {
        err_set(err, STATUS_INVALID, "the %s is not valid UTF-8", language);
        return false;
    }
    return true;
}

expr source_refuse(const struct source *s, enum status code, const char *at, const char *fmt, ...) {
    char what[400];
    int line = 1, column = 1;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    utf8_scrub(what);
    for (const char *p = s->begin; p < at; p++) {
        column += !utf8_continues(*p);
        if (*p == '\n') {
            line++;
            column = 1;
        }
    }
    err_set(s->err, code, "%s, line %d, column %d: %s", s->language, line, column, what);
    return EXPR_NONE;
}

int source_number(struct source *s, int most) {
    int value = -1;
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++) {
        value = (value < 0 ? 0 : value) * 10 + (*s->at - '0');
        if (value > most)
            value = most + 1;
    }
    return value;
}

// digits: how many; at most 8
static int32_t hex(struct source *s, int digits, const char *at) {
    uint32_t value = 0;
    for (int i = 0; i < digits; i++) {
        char c = s->at < s->end ? *s->at : 0;
        int digit = c >= '0' && c <= '9'                 ? c - '0'
                    : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                         : -1;
        if (digit < 0)
            return source_refuse(s, STATUS_INVALID, at, "this escape needs %d hexadecimal digits", digits);
        value = value * 16 + (uint32_t)digit;
        s->at++;
    }
    if (value > 0x10ffff)
        return source_refuse(s, STATUS_INVALID, at, "there is no such code point");
    return (int32_t)value;
}

static int32_t escape(struct source *s, char quote) {
    static const char letters[] = "nrtbfvae0", values[] = "\n\r\t\b\f\v\a\x1b";
    const char *at = s->at - 1, *letter;
    if (s->at == s->end)
        return source_refuse(s, STATUS_INVALID, at, "\\ is the last character");
    char c = *s->at++;
    if (c == 'x')
        return hex(s, 2, at);
    if (c == 'U')
        return hex(s, 8, at);
    if (c == 'u') {
        int32_t high = hex(s, 4, at);
        if (high < 0xd800 || high > 0xdbff || !source_skip(s, "\\u"))
            return high;
        int32_t low = hex(s, 4, at); // a pair, as JSON has it
        if (low >= 0 && (low < 0xdc00 || low > 0xdfff))
            return source_refuse(s, STATUS_INVALID, at, "half of a pair of surrogates");
        return low < 0 ? -1 : 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    }
    if (c && (letter = strchr(letters, c)))
        return values[letter - letters];
    if (is_one_of(c, quote == ']' ? "\\\"'[]^$.*+?(){}|/-" : "\\\"'[]/?"))
        return c;
    return source_refuse(s, STATUS_INVALID, at, "this escape is not known");
}

int32_t source_char(struct source *s, char quote) {
    size_t n;
    if (source_skip(s, "\\"))
        return escape(s, quote);
    uint32_t c = utf8_decode(s->at, &n);
    s->at += n;
    return (int32_t)c;
}

int source_name(const struct source *s, struct int_sets *names, const char *name, size_t len) {
    int32_t chars[MAX_NAME];
    if (len > MAX_NAME)
        return source_refuse(s, STATUS_LIMIT, name, "a name of more than %d characters", MAX_NAME);
    for (size_t i = 0; i < len; i++)
        chars[i] = (unsigned char)name[i];
    int before = names->num, number = int_sets_add(names, chars, (int)len);
    if (number < 0)
        err_set(s->err, STATUS_NOMEM, "out of memory for a grammar");
    if (number == before && number == MAX_RULES)
        return source_refuse(s, STATUS_LIMIT, name, "more than %d rules", MAX_RULES);
    return number < 0 ? -1 : number;
}

bool expr_stack_push(struct expr_stack *s, expr e, struct err *err) {
    if (e == EXPR_NONE)
        return false;
    if (!grow_room(&s->items, sizeof *s->items, s->num, &s->cap)) {
        err_set(err, STATUS_NOMEM, "out of memory for a grammar");
        return false;
    }
    s->items[s->num++] = e;
    return true;
}
