// See regex.h.
#include "regex.h"

#ifdef QUIRE_HAVE_PCRE2

#include "buf.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum { MAX_EXPRESSION = 16 << 10, HEAP_KIB = 256 << 10 };

bool regex_available(const struct model_file *f, struct err *err) {
    (void)f, (void)err;
    return true;
}

static pcre2_code *of(const struct regex *r) { return (pcre2_code *)(uintptr_t)r; }

// \p{Han} as \p{sc:Han}: from 10.40 on PCRE2 has the former match characters that many scripts share, as U+3002, and
// tokenizers do not.
static void name_scripts(struct text_view in, struct buf *out) {
    for (size_t i = 0, n; i < in.len; i += n) {
        bool property = in.len - i > 3 && in.data[i] == '\\' &&
                        (in.data[i + 1] == 'p' || in.data[i + 1] == 'P') && in.data[i + 2] == '{';
        n = in.data[i] != '\\' ? 1 : property ? 3 + (in.data[i + 3] == '^') : 2;
        n = n < in.len - i ? n : in.len - i;
        buf_add(out, in.data + i, n);
        const char *end = property ? memchr(in.data + i + n, '}', in.len - i - n) : NULL;
        if (end && end - (in.data + i + n) > 2) // shorter names are of categories
            buf_str(out, "sc:");
    }
}

// NULL with *code: malformed, or out of memory.
static pcre2_code *compile(struct text_view pattern, uint32_t options, pcre2_compile_context *context,
                           int *code) {
    struct buf named = {0};
    size_t at;
    name_scripts(pattern, &named);
    pcre2_code *c =
        named.failed ? NULL : pcre2_compile((PCRE2_SPTR)named.data, named.len, options, code, &at, context);
    buf_free(&named);
    // Where a long name is none of a script, or PCRE2 is older
    return c ? c : pcre2_compile((PCRE2_SPTR)pattern.data, pattern.len, options, code, &at, context);
}

struct regex *regex_new(const char *pattern) {
    int code;
    pcre2_code *c = compile((struct text_view){pattern, strlen(pattern)}, PCRE2_UTF, NULL, &code);
    if (c)
        pcre2_jit_compile(c, PCRE2_JIT_COMPLETE); // where it fails, the interpreter gives the same, slower
    return (struct regex *)c;
}

void regex_free(struct regex *r) { pcre2_code_free(of(r)); }

// ---- translation

struct translator {
    struct text_view in;
    size_t at;
    struct buf out;
    const char *problem; // or NULL
};

static char peek(const struct translator *t, size_t ahead) {
    return ahead < t->in.len - t->at ? t->in.data[t->at + ahead] : 0;
}

static void copy_bytes(struct translator *t, size_t n) {
    buf_add(&t->out, t->in.data + t->at, n);
    t->at += n;
}

// Copies up to the next `end` and it.
static void copy_through(struct translator *t, char end) {
    const char *at = memchr(t->in.data + t->at, end, t->in.len - t->at);
    copy_bytes(t, at ? (size_t)(at - t->in.data) + 1 - t->at : t->in.len - t->at);
}

// Expansions of escapes, outside and inside a class.
static const struct {
    char letter;
    const char *outside, *inside;
} escapes[] = {
    {'s', "[" REGEX_SPACES "]", REGEX_SPACES},
    {'S', "[^" REGEX_SPACES "]", NULL},
    {'w', "[" REGEX_WORD "]", REGEX_WORD},
    {'W', "[^" REGEX_WORD "]", NULL},
    {'d', "\\p{Nd}", "\\p{Nd}"},
    {'D', "\\P{Nd}", "\\P{Nd}"},
    {'h', "[0-9A-Fa-f]", "0-9A-Fa-f"},
    {'v', "\\x{B}", "\\x{B}"},
    {'b', "(?:(?<=[" REGEX_WORD "])(?![" REGEX_WORD "])|(?<![" REGEX_WORD "])(?=[" REGEX_WORD "]))",
     "\\x{8}"},
    {'B', "(?:(?<=[" REGEX_WORD "])(?=[" REGEX_WORD "])|(?<![" REGEX_WORD "])(?![" REGEX_WORD "]))", NULL}};

static void translate_escape(struct translator *t, bool inside) {
    char c = peek(t, 1);
    for (size_t i = 0; i < sizeof escapes / sizeof escapes[0]; i++)
        if (c == escapes[i].letter) {
            const char *to = inside ? escapes[i].inside : escapes[i].outside;
            if (to)
                buf_str(&t->out, to);
            else
                t->problem = "has \\S, \\W or \\B inside a class";
            t->at += 2;
            return;
        }
    if (c == 'u' && t->in.len - t->at >= 6) {
        buf_str(&t->out, "\\x{");
        t->at += 2;
        copy_bytes(t, 4);
        buf_char(&t->out, '}');
        return;
    }
    bool alphanumeric = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (c == 0 || (alphanumeric && !strchr(inside ? "tnrfaepPx" : "tnrfaepPxAzZ", c)))
        t->problem = "has an escape that is not supported";
    copy_bytes(t, c ? 2 : 1);
    if (c && strchr("pPx", c) && peek(t, 0) == '{')
        copy_through(t, '}');
}

static void translate_class(struct translator *t);
static void translate_members(struct translator *t);

// A class inside of a class adds its characters.
static void translate_union(struct translator *t) {
    t->at++;
    translate_members(t);
    if (!t->problem && peek(t, 0) != ']')
        t->problem = "has && in a class inside of a class";
    t->at += !t->problem;
}

// The inside of a class up to its end or a `&&`.
static void translate_members(struct translator *t) {
    size_t begin = t->at;
    while (t->at < t->in.len && !t->problem) {
        char c = peek(t, 0);
        if ((c == ']' && t->at > begin) || (c == '&' && peek(t, 1) == '&'))
            return;
        if (c == '[' && peek(t, 1) != '^' && peek(t, 1) != ':')
            translate_union(t);
        else if (c == '[')
            t->problem = "has a negated or named class inside of a class";
        else if (c == '\\')
            translate_escape(t, true);
        else
            copy_bytes(t, 1);
    }
    t->problem = t->problem ? t->problem : "has a class without an end";
}

// [a&&[^b]] is an a before which no b stands.
static void translate_class(struct translator *t) {
    size_t start = t->out.len;
    copy_bytes(t, peek(t, 1) == '^' ? 2 : 1);
    translate_members(t);
    buf_char(&t->out, ']');
    while (!t->problem && peek(t, 0) == '&') {
        struct buf left = {0};
        if (peek(t, 2) != '[' || t->in.data[t->at - 1] == '[') {
            t->problem = "has && without classes around it";
            break;
        }
        buf_add(&left, t->out.data + start, t->out.len - start);
        t->out.len = start;
        buf_str(&t->out, "(?:(?=");
        t->at += 2;
        translate_class(t);
        buf_char(&t->out, ')');
        buf_add(&t->out, left.data, left.len);
        buf_char(&t->out, ')');
        t->out.failed |= left.failed;
        buf_free(&left);
    }
    if (!t->problem && peek(t, 0) != ']')
        t->problem = "has a class without an end";
    t->at += !t->problem;
}

static void translate_group(struct translator *t) {
    static const char *const known[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?i)", "(?-i:"};
    if (peek(t, 1) != '?' && peek(t, 1) != '*') {
        copy_bytes(t, 1);
        return;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t n = strlen(known[i]);
        if (t->in.len - t->at >= n && memcmp(t->in.data + t->at, known[i], n) == 0) {
            if (known[i][3] == ')' && t->at > 0)
                break; // Oniguruma puts what follows into a group
            copy_bytes(t, n);
            return;
        }
    }
    t->problem = "has a group that is not supported";
}

static void translate_interval(struct translator *t) {
    copy_through(t, '}');
    if (peek(t, 0) == '+') // which makes it possessive in PCRE2, and repeats it in Oniguruma
        t->problem = "has a + behind an interval";
}

struct regex *regex_translate(struct text_view expression, const struct model_file *f, struct err *err) {
    struct translator t = {.in = expression,
                           .problem = expression.len > MAX_EXPRESSION ? "is longer than 16 KiB"
                                      : expression.len == 0           ? "is empty"
                                                                      : NULL};
    char said[160];
    pcre2_code *c = NULL;
    while (t.at < t.in.len && !t.problem) {
        char ch = peek(&t, 0);
        if (ch == '\\')
            translate_escape(&t, false);
        else if (ch == '[')
            translate_class(&t);
        else if (ch == '(')
            translate_group(&t);
        else if (ch == '{')
            translate_interval(&t);
        else
            copy_bytes(&t, 1);
    }
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!t.problem && !t.out.failed && context) {
        int code;
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        c = compile((struct text_view){t.out.data, t.out.len}, PCRE2_UTF | PCRE2_MULTILINE, context, &code);
        if (!c && code != PCRE2_ERROR_HEAP_FAILED) {
            pcre2_get_error_message(code, (PCRE2_UCHAR *)said, sizeof said);
            t.problem = said;
        }
        if (c)
            pcre2_jit_compile(c, PCRE2_JIT_COMPLETE);
    }
    if (t.problem)
        model_file_bad(f, err, "the regular expression '%.*s' of the tokenizer %s%s",
                       (int)(expression.len < 240 ? expression.len : 240), expression.data,
                       t.problem == said ? "is not supported: " : "", t.problem);
    else if (!c)
        err_set(err, STATUS_NOMEM, "%s: out of memory for a regular expression", f->name);
    pcre2_compile_context_free(context);
    buf_free(&t.out);
    return (struct regex *)c;
}

// ---- search

struct regex_scratch {
    pcre2_match_data *match;
    pcre2_match_context *context;
};

struct regex_scratch *regex_scratch_new(void) {
    struct regex_scratch *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->match = pcre2_match_data_create(1, NULL);
    s->context = pcre2_match_context_create(NULL);
    if (!s->match || !s->context) {
        regex_scratch_free(s);
        return NULL;
    }
    pcre2_set_heap_limit(s->context, HEAP_KIB);
    return s;
}

void regex_scratch_free(struct regex_scratch *s) {
    if (!s)
        return;
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->context);
    free(s);
}

bool regex_find(const struct regex *r, struct regex_scratch *s, struct text_view text, size_t from,
                size_t *start, size_t *end) {
    PCRE2_SPTR subject = (PCRE2_SPTR)text.data;
    int rc = pcre2_match(of(r), subject, text.len, from, PCRE2_NO_UTF_CHECK, s->match, s->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(of(r), subject, text.len, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->match,
                         s->context);
    if (rc < 0)
        return false;
    const size_t *at = pcre2_get_ovector_pointer(s->match);
    *start = at[0];
    *end = at[1];
    return at[0] <= at[1]; // \K could turn it
}

#else // without PCRE2: so that the engine builds with nothing but a C compiler

bool regex_available(const struct model_file *f, struct err *err) {
    model_file_bad(f, err, "its tokenizer needs PCRE2 and utf8proc, and this build lacks them");
    return false;
}
struct regex *regex_new(const char *pattern) {
    return (void)pattern, NULL;
}
struct regex *regex_translate(struct text_view expression, const struct model_file *f, struct err *err) {
    (void)expression;
    regex_available(f, err);
    return NULL;
}
void regex_free(struct regex *r) { (void)r; }
struct regex_scratch *regex_scratch_new(void) {
    return NULL;
}
void regex_scratch_free(struct regex_scratch *s) { (void)s; }
bool regex_find(const struct regex *r, struct regex_scratch *s, struct text_view text, size_t from,
                size_t *start, size_t *end) {
    (void)r, (void)s, (void)text, (void)from, (void)start, (void)end;
    return false;
}

#endif
