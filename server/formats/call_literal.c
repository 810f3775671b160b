// Calls written as literals of a programming language: NAME(key=value, …), or a list of such, and NAME{key:value,…}. They are
// read when they are whole.
#include "argument_types.h"
#include "parser_state.h"

enum { MAX_DEPTH = 32 };

struct literal_reader {
    const char *at, *end;
    struct buf *out;
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

// The character of an escape of four or two digits of hexadecimal, or another; false: it is none.
static bool take_escape(struct literal_reader *r, struct buf *text) {
    static const char letters[] = "n\nt\tr\rb\bf\f0\0";
    if (r->at == r->end)
        return false;
    char c = *r->at++;
    int digits = c == 'u' ? 4 : c == 'x' ? 2 : 0;
    for (size_t i = 0; !digits && i + 1 < sizeof letters; i += 2)
        if (letters[i] == c) {
            buf_char(text, letters[i + 1]);
            return true;
        }
    if (!digits) {
        buf_char(text, c);
        return true;
    }
    unsigned code = 0;
    for (; digits > 0 && r->at < r->end; digits--, r->at++) {
        const char *hex = "0123456789abcdef", *at = strchr(hex, *r->at | 32);
        if (!*r->at || !at)
            return false;
        code = code * 16 + (unsigned)(at - hex);
    }
    if (digits || (code >= 0xd800 && code < 0xe000))
        return false;
    if (code >= 0x800)
        buf_char(text, (char)(0xe0 | code >> 12));
    if (code >= 0x80) {
        buf_char(text, (char)(code >= 0x800 ? 0x80 | (code >> 6 & 63) : 0xc0 | code >> 6));
        code = 0x80 | (code & 63);
    }
    buf_char(text, (char)code);
    return true;
}

static bool take_string(struct literal_reader *r) {
    struct buf text = {0};
    const char *mark = begins(r, OUTPUT_QUOTE) ? OUTPUT_QUOTE : begins(r, "'") ? "'" : "\"";
    bool ok = true, raw = *mark == '<';
    r->at += strlen(mark);
    while (ok && r->at < r->end && !begins(r, mark)) {
        char c = *r->at++;
        if (c == '\\' && !raw)
            ok = take_escape(r, &text);
        else
            buf_char(&text, c);
    }
    ok = ok && r->at < r->end;
    if (ok) {
        r->at += strlen(mark);
        json_quote(r->out, text.data, text.len);
    }
    r->out->failed |= text.failed;
    buf_free(&text);
    return ok;
}

static bool take_value(struct literal_reader *r, int depth);

static bool take_list(struct literal_reader *r, char close, int depth) {
    buf_char(r->out, '[');
    for (bool first = true; !take(r, close); first = false) {
        if (!first && (!take(r, ',') || take(r, close)))
            return *(r->at - 1) == close && (buf_char(r->out, ']'), true);
        if (!first)
            buf_lit(r->out, ", ");
        if (!take_value(r, depth + 1))
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
        if (begins(r, OUTPUT_QUOTE) || begins(r, "\"") || begins(r, "'")) {
            if (!take_string(r))
                return false;
        } else {
            const char *word = take_word(r, &len);
            if (!len)
                return false;
            json_quote(r->out, word, len);
        }
        buf_lit(r->out, ": ");
        if (!take(r, between) || !take_value(r, depth + 1))
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
    if (begins(r, OUTPUT_QUOTE) || begins(r, "\"") || begins(r, "'"))
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
    struct literal_reader r = {text, text + len, out};
    bool ok = take_value(&r, 0);
    skip_blanks(&r);
    return ok && r.at == r.end;
}

// From pos to behind the bracket that closes the one there; strings count as a whole.
static bool find_close(struct output_parser *p) {
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
        } else if (c->quote) {
            c->quote = at == c->quote && at != '<' && !c->scan.escaped ? 0 : c->quote;
        } else if (at == '\'' || at == '"') {
            c->quote = at;
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

static bool convert(struct output_parser *p, size_t begin, size_t end) {
    struct buf out = {0};
    struct literal_reader r = {p->in.data + begin + 1, p->in.data + end, &out};
    bool python = p->format->syntax == CALLS_PYTHON;
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
static enum step_result one_call(struct output_parser *p) {
    struct parsed_call *c = &p->call;
    char open = p->format->syntax == CALLS_PYTHON ? '(' : '{';
    if (c->step == STEP_NAME) {
        while (c->pos < p->in.len && p->in.data[c->pos] != open && c->pos - c->mark <= MAX_NAME)
            c->pos++;
        if (c->pos == p->in.len)
            return STEP_WAIT;
        buf_clear(&c->name);
        if (p->in.data[c->pos] != open || !output_read_name(p, c->mark, c->pos) ||
            (p->format->bare && !output_has_tool(p, c->name.data, c->name.len)))
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

enum step_result call_literal_step(struct output_parser *p) {
    struct parsed_call *c = &p->call;
    if (c->step == STEP_NAME || c->step == STEP_VALUE)
        return one_call(p);
    while (c->pos < p->in.len && output_blank(p->in.data[c->pos]))
        c->pos++;
    if (c->pos == p->in.len)
        return STEP_WAIT;
    char at = p->in.data[c->pos];
    if (c->step == STEP_BEGIN && at == '[' && !c->list && p->format->syntax == CALLS_PYTHON) {
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
