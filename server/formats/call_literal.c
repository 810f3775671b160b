// Calls written as literals of a programming language: NAME(key=value, …), or a list of such, and NAME{key:value,…}. They are
// read when they are whole.
#include "argument_types.h"
#include "parser_state.h"
#include "utf8.h"

enum { MAX_DEPTH = 32 };

struct literal_reader {
    const char *at, *end;
    struct buf *out;
    bool python;              // or Gemma's
    const json_t *parameters; // the schema of the outermost object
};

static void skip_blanks(struct literal_reader *r) {
    while (r->at < r->end && output_blank(*r->at))
        r->at++;
}

static bool take(struct literal_reader *r, char c) {
    skip_blanks(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static bool begins(const struct literal_reader *r, const char *text) {
    size_t n = strlen(text);
    return (size_t)(r->end - r->at) >= n && memcmp(r->at, text, n) == 0;
}

static bool is_word(char c) {
    return c == '_' || c == '-' || c == '.' || c == '$' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
           (c >= 'a' && c <= 'z') || (unsigned char)c >= 0x80;
}

static const char *take_word(struct literal_reader *r, size_t *len) {
    skip_blanks(r);
    const char *begin = r->at;
    while (r->at < r->end && is_word(*r->at))
        r->at++;
    *len = (size_t)(r->at - begin);
    return begin;
}

// ---- strings, as Python's language reference has them

static void put_code(struct buf *text, uint32_t code) {
    char bytes[4];
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        code = 0xfffd; // half of a pair is no character
    buf_add(text, bytes, utf8_encode(bytes, code));
}

// Digits of a base at r->at, at most so many. -1: fewer than `least`.
static int64_t take_digits(struct literal_reader *r, int base, int least, int most) {
    int64_t code = 0;
    const char *at = r->at;
    for (; at < r->end && at - r->at < most; at++) {
        const char *hex = "0123456789abcdef", *digit = memchr(hex, *at >= 'A' ? *at | 32 : *at, (size_t)base);
        if (!digit)
            break;
        code = code * base + (digit - hex);
    }
    if (at - r->at < least)
        return -1;
    r->at = at;
    return code;
}

// Takes the rest of an escape, behind its backslash. One that is none stays as it is written, with its backslash.
static void take_escape(struct literal_reader *r, struct buf *text) {
    static const char letters[] = "n\nt\tr\rb\bf\fa\av\v\\\\''\"\"";
    char c = r->at < r->end ? *r->at : 0;
    for (size_t i = 0; c && i + 1 < sizeof letters; i += 2)
        if (letters[i] == c) {
            buf_char(text, letters[i + 1]);
            r->at++;
            return;
        }
    if (c == '\n') { // the line goes on
        r->at++;
        return;
    }
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    const char *begin = r->at;
    r->at += digits > 0;
    int64_t code = digits ? take_digits(r, 16, digits, digits) : take_digits(r, 8, 1, 3);
    if (code >= 0xd800 && code < 0xdc00 && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u') {
        const char *low_at = r->at;
        r->at += 2;
        int64_t low = take_digits(r, 16, 4, 4);
        if (low >= 0xdc00 && low < 0xe000)
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        else
            r->at = low_at;
    }
    if (code >= 0) {
        put_code(text, (uint32_t)code);
        return;
    }
    r->at = begin;
    buf_char(text, '\\');
}

// The letters before a string's quotes: r, b, u, f and pairs of them, of any case. How many.
static size_t string_prefix(const char *at, const char *end, bool *raw) {
    size_t n = 0;
    *raw = false;
    while (n < 2 && at + n < end && strchr("rRbBuUfF", at[n]) && at[n])
        *raw |= (at[n++] | 32) == 'r';
    return at + n < end && (at[n] == '\'' || at[n] == '"') ? n : 0;
}

static bool begins_string(const struct literal_reader *r) {
    bool raw;
    return begins(r, OUTPUT_QUOTE) || begins(r, "\"") || begins(r, "'") ||
           (r->python && string_prefix(r->at, r->end, &raw) > 0);
}

// Appends the text of one string; false: it has no end.
static bool take_one_string(struct literal_reader *r, struct buf *text) {
    static const char *const marks[] = {OUTPUT_QUOTE, "'''", "\"\"\"", "'", "\""};
    bool raw = false;
    if (r->python)
        r->at += string_prefix(r->at, r->end, &raw);
    size_t i = r->python ? 1 : 0;
    while (i < sizeof marks / sizeof *marks - 1 &&
           (!begins(r, marks[i]) || (!r->python && (i == 1 || i == 2))))
        i++;
    const char *mark = marks[i];
    r->at += strlen(mark);
    while (r->at < r->end && !begins(r, mark)) {
        char c = *r->at++;
        if (c != '\\' || i == 0)
            buf_char(text, c);
        else if (!raw)
            take_escape(r, text);
        else {
            buf_char(text, c);
            if (r->at < r->end)
                buf_char(text, *r->at++);
        }
    }
    if (r->at == r->end)
        return false;
    r->at += strlen(mark);
    return true;
}

// Strings side by side are one.
static bool take_string(struct literal_reader *r) {
    struct buf text = {0};
    bool ok = take_one_string(r, &text);
    while (ok && r->python) {
        const char *behind = r->at;
        skip_blanks(r);
        if (!begins_string(r)) {
            r->at = behind;
            break;
        }
        ok = take_one_string(r, &text);
    }
    if (ok)
        json_quote(r->out, text.data, text.len);
    r->out->failed |= text.failed;
    buf_free(&text);
    return ok;
}

static bool take_value(struct literal_reader *r, int depth);

// Whether a member's key and colon are at `at`, behind the comma; of the outermost object one that the schema names.
static bool begins_member(const struct literal_reader *r, const char *at, bool outermost) {
    struct literal_reader ahead = *r;
    const json_t *properties = outermost ? json_object_get(r->parameters, "properties") : NULL;
    const char *word = ahead.at = at;
    while (ahead.at < ahead.end && is_word(*ahead.at))
        ahead.at++;
    size_t len = (size_t)(ahead.at - word);
    char name[256];
    if (!len || ahead.at == ahead.end || *ahead.at != ':' || len >= sizeof name)
        return false;
    memcpy(name, word, len);
    name[len] = 0;
    return !json_object_size(properties) || json_object_get(properties, name);
}

// A string that a model wrote without its marks: up to the next member, or what closes the value.
static void take_bare(struct literal_reader *r, char close, bool outermost) {
    const char *end = r->at;
    for (int depth = 0; end < r->end; end++) {
        bool closes = *end == close && (outermost ? end + 1 == r->end : depth == 0);
        bool next = *end == ',' && (depth == 0 || outermost) &&
                    (close == ']' || begins_member(r, end + 1, outermost));
        if (closes || next)
            break;
        depth += *end == '{' || *end == '[';
        depth -= (*end == '}' || *end == ']') && depth > 0;
    }
    const char *last = end;
    while (last > r->at && output_blank(last[-1]))
        last--;
    json_quote(r->out, r->at, (size_t)(last - r->at));
    r->at = end;
}

// A value within brackets. Gemma leaves out the marks of strings at times: what is no value, or not of the types that the
// schema has for it (0: unknown), is the text of one, as Ollama repairs it.
static bool take_member(struct literal_reader *r, char close, unsigned types, int depth) {
    if (r->python)
        return take_value(r, depth);
    skip_blanks(r);
    const char *begin = r->at;
    size_t before = r->out->len;
    bool ok = take_value(r, depth);
    if (!ok && depth > MAX_DEPTH)
        return false;
    struct literal_reader behind = *r;
    skip_blanks(&behind);
    ok = ok && behind.at < r->end && (*behind.at == ',' || *behind.at == close);
    unsigned type = ok && types ? argument_type_of(r->out->data + before, r->out->len - before) : 0;
    bool any = types & GRAMMAR_ARRAY && types & GRAMMAR_OBJECT; // the schema says nothing
    if (ok && (any || !type || type & types || !(types & GRAMMAR_STRING)))
        return true;
    if (begin == r->end || (!ok && (begins_string(&(struct literal_reader){.at = begin, .end = r->end}) ||
                                    *begin == ',' || *begin == close)))
        return false;
    r->out->len = before;
    r->at = begin;
    take_bare(r, close, depth == 1);
    return true;
}

static bool take_list(struct literal_reader *r, char close, int depth) {
    buf_char(r->out, '[');
    for (bool first = true; !take(r, close); first = false) {
        if (!first && (!take(r, ',') || take(r, close)))
            return *(r->at - 1) == close && (buf_char(r->out, ']'), true);
        if (!first)
            buf_lit(r->out, ", ");
        if (!take_member(r, close, 0, depth + 1))
            return false;
    }
    buf_char(r->out, ']');
    return true;
}

// key:value or key=value, up to `close`. A key is a word or a string.
static bool take_pairs(struct literal_reader *r, char between, char close, int depth) {
    buf_char(r->out, '{');
    for (bool first = true; !take(r, close); first = false) {
        if (!first && !take(r, ','))
            return false;
        if (!first && take(r, close))
            break;
        if (!first)
            buf_lit(r->out, ", ");
        skip_blanks(r);
        size_t len = 0;
        const char *word = NULL;
        if (begins_string(r)) {
            if (!take_string(r))
                return false;
        } else {
            word = take_word(r, &len);
            if (!len)
                return false;
            json_quote(r->out, word, len);
        }
        buf_lit(r->out, ": ");
        unsigned types = depth == 0 && r->parameters ? argument_types(r->parameters, word, len) : 0;
        if (!take(r, between) || !take_member(r, close, types, depth + 1))
            return false;
    }
    buf_char(r->out, '}');
    return true;
}

static bool take_value(struct literal_reader *r, int depth) {
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};
    if (depth > MAX_DEPTH)
        return false;
    skip_blanks(r);
    if (begins_string(r))
        return take_string(r);
    if (take(r, '['))
        return take_list(r, ']', depth);
    if (take(r, '('))
        return take_list(r, ')', depth);
    if (take(r, '{'))
        return take_pairs(r, ':', '}', depth);
    size_t len;
    const char *word;
    if (r->at < r->end && *r->at == '+')
        r->at++;
    word = take_word(r, &len);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i][0]) == len && memcmp(word, words[i][0], len) == 0)
            return buf_str(r->out, words[i][1]), true;
    if (len && (word[len - 1] == 'e' || word[len - 1] == 'E') && r->at < r->end && *r->at == '+') { // 1e+5
        r->at++;
        take_word(r, &len);
        len = (size_t)(r->at - word);
    }
    if (!argument_number_type(word, len))
        return false;
    buf_add(r->out, word, len);
    return true;
}

bool literal_to_json(const char *text, size_t len, struct buf *out) {
    struct literal_reader r = {.at = text, .end = text + len, .out = out, .python = true};
    bool ok = take_value(&r, 0);
    skip_blanks(&r);
    return ok && r.at == r.end;
}

// The quote at pos, or three of them: begins or ends a string. OPEN: what comes will tell.
static enum match is_triple(const struct output_parser *p, size_t pos) {
    const char *data = p->in.data;
    for (size_t i = 1; i < 3; i++)
        if (pos + i == p->in.len)
            return p->ended ? MATCH_NO : MATCH_OPEN;
        else if (data[pos + i] != data[pos])
            return MATCH_NO;
    return MATCH_YES;
}

// From pos to behind the bracket that closes the one there; strings count as a whole.
static bool find_bracket(struct output_parser *p, bool python) {
    struct parsed_call *c = &p->call;
    for (; c->pos < p->in.len; c->pos++) {
        char at = p->in.data[c->pos];
        enum match m = output_match(p, c->pos, OUTPUT_QUOTE);
        if (m == MATCH_OPEN)
            return false;
        if (m == MATCH_YES && (!c->quote || c->quote == '<')) {
            c->quote = c->quote ? 0 : '<';
            c->pos += strlen(OUTPUT_QUOTE) - 1;
        } else if (c->quote && c->quote != '<' && at == '\\') {
            c->scan.escaped = !c->scan.escaped;
            continue;
        } else if (c->quote == '<' || (c->quote && (at != c->quote || c->scan.escaped))) {
            c->scan.escaped = false;
            continue;
        } else if (at == '\'' || at == '"') {
            m = python && (!c->quote || c->triple) ? is_triple(p, c->pos) : MATCH_NO;
            if (m == MATCH_OPEN)
                return false;
            if (c->triple && m == MATCH_NO)
                continue;
            c->triple = m == MATCH_YES && !c->quote;
            c->quote = c->quote ? 0 : at;
            c->pos += m == MATCH_YES ? 2 : 0;
        } else if (strchr("([{", at) && at) {
            c->scan.depth++;
        } else if (strchr(")]}", at) && at && --c->scan.depth == 0) {
            c->pos++;
            return true;
        }
        c->scan.escaped = false;
    }
    return false;
}

// From pos to behind the brace before the mark that ends the call: strings without marks may hold anything.
static bool find_brace(struct output_parser *p) {
    struct parsed_call *c = &p->call;
    const char *const marks[] = {p->format->call_close, p->format->call_open};
    for (; c->pos < p->in.len; c->pos++) {
        enum match m = output_match(p, c->pos, OUTPUT_QUOTE);
        if (m == MATCH_OPEN)
            return false;
        if (m == MATCH_YES) {
            c->quote = c->quote ? 0 : '<';
            c->pos += strlen(OUTPUT_QUOTE) - 1;
        }
        if (c->quote || p->in.data[c->pos] != '}')
            continue;
        size_t next = c->pos + 1;
        for (size_t most = next + MAX_DEPTH;
             next < p->in.len && next < most && output_blank(p->in.data[next]);)
            next++;
        for (int i = 0; i < 2; i++) {
            m = next < p->in.len ? output_match(p, next, marks[i]) : MATCH_OPEN;
            if (m == MATCH_OPEN && !p->ended)
                return false;
            if (m == MATCH_YES) {
                c->pos++;
                return true;
            }
        }
    }
    return false;
}

static bool find_close(struct output_parser *p) {
    struct parsed_call *c = &p->call;
    if (c->format->syntax == CALLS_PYTHON)
        return find_bracket(p, true);
    if (!c->plain && find_brace(p))
        return true;
    if (!p->ended)
        return false;
    if (!c->plain) { // without the mark that ends it
        c->plain = true;
        c->pos = c->mark;
        c->quote = 0;
        c->scan = (struct json_scan){0};
    }
    return find_bracket(p, false);
}

static bool convert(struct output_parser *p, size_t begin, size_t end) {
    struct buf out = {0};
    const struct parsed_call *c = &p->call;
    bool python = c->format->syntax == CALLS_PYTHON;
    struct literal_reader r = {.at = p->in.data + begin + 1,
                               .end = p->in.data + end,
                               .out = &out,
                               .python = python,
                               .parameters = output_tool_parameters(p, c->name.data, c->name.len)};
    bool ok = take_pairs(&r, python ? '=' : ':', python ? ')' : '}', 0) && r.at == r.end;
    if (ok) {
        output_begin_call(p);
        output_add(p, PART_ARGUMENTS, out.data, out.len);
        output_end_call(p);
    }
    p->failed |= out.failed;
    buf_free(&out);
    return ok;
}

// NAME and what is in brackets behind it; NAME from call.mark on.
static enum parse_step one_call(struct output_parser *p) {
    struct parsed_call *c = &p->call;
    char open = c->format->syntax == CALLS_PYTHON ? '(' : '{';
    if (c->step == STEP_NAME) {
        while (c->pos < p->in.len && p->in.data[c->pos] != open && c->pos - c->mark <= MAX_NAME)
            c->pos++;
        if (c->pos == p->in.len)
            return STEP_WAIT;
        buf_clear(&c->name);
        if (p->in.data[c->pos] != open || !output_read_name(p, c->mark, c->pos) ||
            ((p->format->bare || c->format != p->format) && !output_has_tool(p, c->name.data, c->name.len)))
            return STEP_FAILED;
        c->mark = c->pos;
        c->step = STEP_VALUE;
    }
    if (!find_close(p))
        return STEP_WAIT;
    if (!convert(p, c->mark, c->pos))
        return STEP_FAILED;
    c->step = STEP_NEXT;
    return c->list ? STEP_MORE : STEP_DONE;
}

enum parse_step call_literal_step(struct output_parser *p) {
    struct parsed_call *c = &p->call;
    if (c->step == STEP_NAME || c->step == STEP_VALUE)
        return one_call(p);
    while (c->pos < p->in.len && output_blank(p->in.data[c->pos]))
        c->pos++;
    if (c->pos == p->in.len)
        return STEP_WAIT;
    char at = p->in.data[c->pos];
    if (c->step == STEP_BEGIN && at == '[' && !c->list && c->format->syntax == CALLS_PYTHON) {
        c->list = true;
        c->pos++;
        return STEP_MORE;
    }
    if (c->list && at == ']') {
        c->pos++;
        return STEP_DONE;
    }
    if (c->step == STEP_NEXT && at != ',')
        return STEP_FAILED;
    c->pos += c->step == STEP_NEXT;
    c->mark = c->pos;
    c->scan = (struct json_scan){0};
    c->step = STEP_NAME;
    return STEP_MORE;
}
