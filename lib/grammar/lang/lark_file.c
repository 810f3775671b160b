// The syntax is Lark's with what llguidance adds to it (by its description). Left out, with a sentence: templates,
// %declare, %override, %extend, %regex, grammars in grammars, and attributes of generation.
#include "lark_file.h"

#include "../grow.h"

// Lark's module `common` (lark/grammars/common.lark), as regular expressions.
static const struct {
    const char *name, *pattern;
} common[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", "(?:[0-9]+\\.[0-9]*|\\.[0-9]+)"},
    {"FLOAT", "(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
    {"SIGNED_FLOAT", "[+-]?(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
    {"NUMBER", "(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
    {"SIGNED_NUMBER", "[+-]?(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\.)*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[A-Za-z]"},
    {"WORD", "[A-Za-z]+"},
    {"CNAME", "[_A-Za-z][_A-Za-z0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "\\/\\/[^\\n]*"},
    {"C_COMMENT", "\\/\\*[^*]*\\*+(?:[^*\\/][^*]*\\*+)*\\/"},
    {"SQL_COMMENT", "--[^\\n]*"},
};

static bool no_memory(struct lark_file *f) {
    err_set(f->source.err, STATUS_NOMEM, "out of memory for a grammar");
    return false;
}

expr lark_fail(const struct lark_file *f, const char *what) {
    return source_refuse(&f->source, STATUS_INVALID, lark_next(f)->at, "%s", what);
}

static bool refuse(const struct lark_file *f, const char *what) { return lark_fail(f, what) != EXPR_NONE; }

bool lark_skip_bar(struct lark_file *f) {
    int at = f->at;
    while (f->tokens.items[at].kind == LARK_NEWLINE)
        at++;
    bool is = f->tokens.items[at].kind == '|';
    f->at = is ? at + 1 : f->at;
    return is;
}

bool lark_skip_alias(struct lark_file *f) {
    if (!lark_skip(f, LARK_ARROW) || lark_skip(f, LARK_RULE) || lark_skip(f, LARK_TERMINAL))
        return true;
    return refuse(f, "a name is expected");
}

int lark_name(struct lark_file *f, const struct lark_token *name) {
    int number = source_name(&f->source, &f->names, name->at, name->len);
    if (number == f->num_definitions) {
        if (!grow_room(&f->definitions, sizeof *f->definitions, number, &f->cap_definitions))
            return no_memory(f) - 1;
        f->definitions[f->num_definitions++] =
            (struct lark_definition){.terminal = name->kind == LARK_TERMINAL, .made = EXPR_NONE};
    }
    return number;
}

static int take_number(struct lark_file *f, int most) {
    struct source digits = {.at = lark_next(f)->at, .end = f->source.end};
    return lark_skip(f, LARK_NUMBER) ? source_number(&digits, most) : -1;
}

int lark_take_repeat(struct lark_file *f, int *min, int *max) {
    const struct lark_token *begin = lark_next(f);
    bool braces = begin->kind == '{';
    *min = begin->kind == '+';
    *max = begin->kind == '?' ? 1 : -1;
    if (lark_skip(f, '+') || lark_skip(f, '*') || lark_skip(f, '?'))
        return 1;
    if (!lark_skip(f, '~') && !lark_skip(f, '{'))
        return 0;
    *min = *max = braces && lark_next_is(f, ',') ? 0 : take_number(f, MAX_REPEAT);
    if (lark_skip(f, braces ? ',' : LARK_RANGE))
        *max = braces && lark_next_is(f, '}') ? -1
               : lark_next_is(f, LARK_NUMBER) ? take_number(f, MAX_REPEAT)
                                              : -2;
    if (*min < 0 || *max < -1 || (braces && !lark_skip(f, '}')))
        return source_refuse(&f->source, STATUS_INVALID, begin->at,
                             "a repeat is written as ~2, ~2..3, {2}, {2,} or {2,3}");
    if (*min > MAX_REPEAT || *max > MAX_REPEAT)
        return source_refuse(&f->source, STATUS_LIMIT, begin->at, "a repeat of more than %d", MAX_REPEAT);
    if (*max >= 0 && *max < *min)
        return source_refuse(&f->source, STATUS_INVALID, begin->at, "a repeat whose end is before its begin");
    return 1;
}

// ---- statements

// Skips to the end of what a statement defines.
static void skip_body(struct lark_file *f) {
    while (lark_skip_bar(f) || !(lark_next_is(f, LARK_NEWLINE) || lark_next_is(f, LARK_END)))
        f->at += !lark_next_is(f, LARK_NEWLINE) && !lark_next_is(f, LARK_END);
}

static bool end_statement(struct lark_file *f) {
    if (!lark_next_is(f, LARK_NEWLINE) && !lark_next_is(f, LARK_END))
        return refuse(f, "this cannot stand here");
    return true;
}

// Gives a terminal of the module `common` a name.
static bool import(struct lark_file *f, const struct lark_token *from, const struct lark_token *as) {
    size_t i = 0, num = sizeof common / sizeof *common;
    while (i < num && !lark_token_is(from, common[i].name))
        i++;
    if (i == num)
        return source_refuse(&f->source, STATUS_INVALID, from->at,
                             "the module common has no such terminal") != EXPR_NONE;
    int number = lark_name(f, as);
    if (number < 0)
        return false;
    struct lark_definition *d = &f->definitions[number];
    if (d->at || !d->terminal)
        return source_refuse(&f->source, STATUS_INVALID, as->at,
                             d->at ? "this name is defined twice"
                                   : "a terminal needs a name in upper case") != EXPR_NONE;
    free(d->pattern);
    d->at = as->at;
    d->pattern_len = strlen(common[i].pattern);
    d->pattern = malloc(d->pattern_len + 1);
    if (!d->pattern)
        return no_memory(f);
    memcpy(d->pattern, common[i].pattern, d->pattern_len + 1);
    return true;
}

// common.NAME, common.NAME -> NAME, common (NAME, NAME)
static bool read_import(struct lark_file *f) {
    if (!lark_next_is(f, LARK_RULE) || !lark_token_is(lark_next(f), "common"))
        return refuse(f, "the module common alone can be imported from");
    f->at++;
    if (lark_skip(f, '(')) {
        do {
            const struct lark_token *name = lark_next(f);
            if (!lark_skip(f, LARK_TERMINAL))
                return refuse(f, "the name of a terminal is expected");
            if (!import(f, name, name))
                return false;
        } while (lark_skip(f, ','));
        return lark_skip(f, ')') || refuse(f, ") is expected");
    }
    if (!lark_skip(f, '.') || !lark_next_is(f, LARK_TERMINAL))
        return refuse(f, "an import is written as common.NAME");
    const struct lark_token *from = lark_next(f), *as = from;
    f->at++;
    if (lark_skip(f, LARK_ARROW)) {
        as = lark_next(f);
        if (!lark_skip(f, LARK_RULE) && !lark_skip(f, LARK_TERMINAL))
            return refuse(f, "a name is expected");
    }
    return import(f, from, as);
}

static bool read_directive(struct lark_file *f) {
    const struct lark_token *name = lark_next(f);
    if (lark_token_is(name, "%import")) {
        f->at++;
        return read_import(f);
    }
    if (lark_token_is(name, "%ignore")) {
        f->at++;
        if (!grow_room(&f->ignores, sizeof *f->ignores, f->num_ignores, &f->cap_ignores))
            return no_memory(f);
        f->ignores[f->num_ignores++] = f->at;
        skip_body(f);
        return true;
    }
    if (lark_token_is(name, "%llguidance")) { // a mark of the language, if it is empty
        f->at++;
        const struct lark_token *json = lark_next(f);
        size_t blanks = json->len > 1 ? strspn(json->at + 1, " \t\r\n") : 0;
        if (!lark_skip(f, LARK_JSON) || blanks + 2 != json->len)
            return refuse(f, "%llguidance is supported with {} alone");
        return true;
    }
    return refuse(f, "of statements %import, %ignore and %llguidance {} are supported");
}

// [capture, lazy, suffix="..."] behind a rule's name
static bool read_attributes(struct lark_file *f, struct lark_definition *d) {
    do {
        const struct lark_token *key = lark_next(f);
        if (!lark_skip(f, LARK_RULE))
            return refuse(f, "an attribute is expected");
        if (lark_token_is(key, "lazy")) {
            d->lazy = true;
        } else if (lark_token_is(key, "capture")) {
            if (lark_skip(f, '=') && !lark_skip(f, LARK_STRING))
                return refuse(f, "a string is expected");
        } else if (lark_token_is(key, "suffix")) {
            d->lazy = true;
            d->suffix = f->at + 1;
            if (!lark_skip(f, '=') ||
                !(lark_skip(f, LARK_STRING) || lark_skip(f, LARK_REGEX) || lark_skip(f, LARK_TERMINAL)))
                return refuse(f, "a suffix is a string, a regular expression or a terminal");
        } else {
            f->at--;
            return refuse(f, "of attributes capture, lazy and suffix are supported");
        }
    } while (lark_skip(f, ','));
    return lark_skip(f, ']') || refuse(f, "] is expected");
}

static bool read_definition(struct lark_file *f) {
    while (lark_skip(f, '!') || lark_skip(f, '?')) // about trees
        ;
    const struct lark_token *name = lark_next(f);
    if (!lark_skip(f, LARK_RULE) && !lark_skip(f, LARK_TERMINAL))
        return refuse(f, "a rule, a terminal or a statement is expected");
    int number = lark_name(f, name);
    if (number < 0)
        return false;
    struct lark_definition d = {.at = name->at, .terminal = name->kind == LARK_TERMINAL, .made = EXPR_NONE};
    if (f->definitions[number].at) {
        f->at--;
        return refuse(f, "this name is defined twice");
    }
    if (lark_next_is(f, '{'))
        return refuse(f, "templates are not supported");
    if (lark_skip(f, '.') && !lark_skip(f, LARK_NUMBER)) // a priority, which only matters to a lexer
        return refuse(f, "a priority is a number");
    if (!d.terminal && lark_skip(f, '[') && !read_attributes(f, &d))
        return false;
    if (!lark_skip(f, ':'))
        return refuse(f, ": is expected");
    d.body = f->at;
    f->definitions[number] = d;
    skip_body(f);
    return true;
}

bool lark_file_read(struct lark_file *f, const char *text, size_t len, struct err *err) {
    if (!source_begin(&f->source, "Lark grammar", text, len, err) ||
        !lark_tokens_read(&f->source, &f->tokens))
        return false;
    while (!lark_next_is(f, LARK_END)) {
        if (lark_skip(f, LARK_NEWLINE))
            continue;
        if (!(lark_next_is(f, LARK_DIRECTIVE) ? read_directive(f) : read_definition(f)) || !end_statement(f))
            return false;
    }
    return true;
}

void lark_file_free(struct lark_file *f) {
    for (int i = 0; i < f->num_definitions; i++)
        free(f->definitions[i].pattern);
    free(f->definitions);
    free(f->ignores);
    free(f->tokens.items);
    int_sets_free(&f->names);
}
