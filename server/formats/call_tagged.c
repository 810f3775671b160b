// Calls whose arguments stand between tags, each as plain text: the tool's schema says which are strings.
#include "argument_types.h"
#include "json_strings.h"
#include "parser_state.h"

static void add_escaped(struct output_parser *p, size_t begin, size_t end) {
    struct buf b = {0};
    json_escape(&b, p->in.data + begin, end - begin);
    output_add(p, PART_ARGUMENTS, b.data, b.len);
    p->failed |= b.failed;
    buf_free(&b);
}

static void add_literal(struct output_parser *p, const char *text) {
    output_add(p, PART_ARGUMENTS, text, strlen(text));
}

// The type of JSON whose numbers may be of any size.
static unsigned type_at(const char *json, size_t len) {
    return *json == '{' ? GRAMMAR_OBJECT : *json == '[' ? GRAMMAR_ARRAY : argument_type_of(json, len);
}

// A value that is not known to be a string: JSON of one of its types, or such as Python writes it; else a string.
static void add_value(struct output_parser *p, size_t begin, size_t end) {
    const unsigned types = p->call.types, others = types & ~(unsigned)GRAMMAR_STRING;
    const char *text = p->in.data + begin;
    struct buf json = {0};
    unsigned type = argument_type_of(text, end - begin);
    if (type & others || (type == GRAMMAR_STRING && types == others)) {
        output_add(p, PART_ARGUMENTS, text, end - begin);
    } else if (types == others && literal_to_json(text, end - begin, &json) &&
               type_at(json.data, json.len) & others) {
        output_add(p, PART_ARGUMENTS, json.data, json.len);
    } else {
        add_literal(p, "\"");
        add_escaped(p, begin, end);
        add_literal(p, "\"");
    }
    p->failed |= json.failed;
    buf_free(&json);
}

// Whether what there is of a value, which may be a string, may yet become one of its other types.
static bool may_be_other(const struct output_parser *p) {
    static const struct {
        const char *word; // or its first bytes
        unsigned type;
    } begins[] = {{"null", GRAMMAR_NULL}, {"true", GRAMMAR_BOOLEAN}, {"false", GRAMMAR_BOOLEAN}};
    const struct parsed_call *c = &p->call;
    size_t at = c->mark, end = p->in.len;
    while (at < end && output_blank(p->in.data[at]))
        at++;
    char first = at < end ? p->in.data[at] : 0;
    if (at == end || (first == '{' && c->types & GRAMMAR_OBJECT) ||
        (first == '[' && c->types & GRAMMAR_ARRAY))
        return true;
    if (c->types & (ARGUMENT_INTEGER | ARGUMENT_FRACTION)) {
        size_t number = at;
        while (number < end && strchr("+-.0123456789eE", p->in.data[number]) && p->in.data[number])
            number++;
        if (number > at && (number == end || output_blank(p->in.data[number]) || p->in.data[number] == '<'))
            return true;
    }
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        size_t len = strlen(begins[i].word), have = end - at < len ? end - at : len;
        if (c->types & begins[i].type && memcmp(begins[i].word, p->in.data + at, have) == 0 &&
            (have == end - at || output_blank(p->in.data[at + have]) || p->in.data[at + have] == '<'))
            return true;
    }
    return false;
}

// The key from mark to pos; what follows it says the type, or the schema does.
static bool begin_argument(struct output_parser *p) {
    struct parsed_call *c = &p->call;
    struct buf b = {0};
    size_t begin = c->mark, end = c->pos;
    while (begin < end && output_blank(p->in.data[begin]))
        begin++;
    while (end > begin && output_blank(p->in.data[end - 1]))
        end--;
    buf_str(&b, c->num_arguments++ ? ", " : "");
    json_quote(&b, p->in.data + begin, end - begin);
    buf_lit(&b, ": ");
    output_add(p, PART_ARGUMENTS, b.data, b.len);
    c->types = argument_types(c->parameters, p->in.data + begin, end - begin);
    p->failed |= b.failed;
    buf_free(&b);
    return end > begin;
}

static bool contains(const struct output_parser *p, size_t begin, size_t end, const char *what) {
    for (size_t n = strlen(what); begin + n <= end; begin++)
        if (memcmp(p->in.data + begin, what, n) == 0)
            return true;
    return false;
}

// Looks for a text from pos on; WAIT: it may yet come.
static enum parse_step find(struct output_parser *p, const char *what, size_t most) {
    struct parsed_call *c = &p->call;
    for (; c->pos < p->in.len; c->pos++) {
        enum match m = output_match(p, c->pos, what);
        if (m != MATCH_NO)
            return m == MATCH_YES ? STEP_MORE : STEP_WAIT;
        if (most && c->pos - c->mark > most)
            return STEP_FAILED;
    }
    return STEP_WAIT;
}

static void begin_text(struct output_parser *p) {
    struct parsed_call *c = &p->call;
    c->mark = c->pos;
    c->step = STEP_IN_VALUE;
    c->arguments = c->pos;
    c->scan = (struct json_scan){0};
    c->first = true;
    c->string = c->plain = false;
}

// Whether the closing tag whose end is at pos ends the value: another argument follows, or the end of the call, or there is
// no more. Else it is text of the value, such as a file that speaks of these tags.
static enum match is_closed(const struct output_parser *p, size_t pos) {
    const struct output_format *f = p->call.format;
    const char *const marks[] = {f->argument.open, f->call_close, f->section_close, f->call_open,
                                 f->section_open};
    enum match found = MATCH_NO;
    for (size_t most = pos + MAX_NAME; pos < p->in.len && pos < most && output_blank(p->in.data[pos]);)
        pos++;
    if (pos == p->in.len)
        return p->ended ? MATCH_YES : MATCH_OPEN;
    for (size_t i = 0; i < sizeof marks / sizeof *marks && found != MATCH_YES; i++) {
        enum match m = output_match(p, pos, marks[i]);
        found = m == MATCH_NO ? found : m;
    }
    return found;
}

// Looks for the end of the value from pos on; WAIT: it may yet come.
static enum parse_step find_end(struct output_parser *p) {
    struct parsed_call *c = &p->call;
    for (; c->pos < p->in.len; c->pos++) {
        enum match m = output_match(p, c->pos, c->format->argument.close);
        if (m == MATCH_YES)
            m = is_closed(p, c->pos + strlen(c->format->argument.close));
        if (m != MATCH_NO)
            return m == MATCH_YES ? STEP_MORE : STEP_WAIT;
    }
    return STEP_WAIT;
}

// The same of an object or a list of JSON: tags within its strings are text. MORE with `plain` set: it is none.
static enum parse_step find_json_end(struct output_parser *p) {
    struct parsed_call *c = &p->call;
    size_t begin = c->mark, end;
    while (begin < p->in.len && output_blank(p->in.data[begin]))
        begin++;
    if (begin == p->in.len && !p->ended)
        return STEP_WAIT;
    c->plain = begin == p->in.len || !strchr("{[", p->in.data[begin]) || !p->in.data[begin];
    if (c->plain)
        return STEP_MORE;
    bool whole = c->scan.begun && !c->scan.depth; // found before
    if (!whole && !(whole = json_scan_value(p, &c->scan, &c->arguments)) && !p->ended)
        return STEP_WAIT;
    for (end = c->arguments; end < p->in.len && output_blank(p->in.data[end]); end++)
        continue;
    enum match m = whole ? output_match(p, end, c->format->argument.close) : MATCH_NO;
    if (m == MATCH_YES)
        m = is_closed(p, end + strlen(c->format->argument.close));
    c->pos = m == MATCH_YES ? end : c->pos;
    c->plain = m == MATCH_NO;
    return m == MATCH_OPEN ? STEP_WAIT : STEP_MORE;
}

static enum parse_step in_text(struct output_parser *p) {
    const struct output_format *f = p->call.format;
    struct parsed_call *c = &p->call;
    if (c->first && c->mark == p->in.len)
        return STEP_WAIT;
    if (c->first && f->argument.trim && p->in.data[c->mark] == '\n')
        c->mark++;
    c->pos = c->pos < c->mark ? c->mark : c->pos;
    c->first = false;
    enum parse_step r = STEP_MORE;
    if (c->types == GRAMMAR_STRING)
        c->plain = true;
    if (!c->plain && (r = find_json_end(p)) == STEP_WAIT)
        return STEP_WAIT;
    if (c->plain)
        r = find_end(p);
    size_t end = c->pos;
    if (f->argument.trim && end > c->mark && p->in.data[end - 1] == '\n' && (r == STEP_MORE || !p->ended))
        end--;
    if (!c->string && c->types & GRAMMAR_STRING && (c->types == GRAMMAR_STRING || !may_be_other(p))) {
        c->string = true;
        add_literal(p, "\"");
    }
    if (c->string) {
        add_escaped(p, c->mark, end);
        c->mark = end;
    }
    if (r != STEP_MORE)
        return STEP_WAIT;
    if (c->string)
        add_literal(p, "\"");
    else
        add_value(p, c->mark, end);
    c->pos += strlen(f->argument.close);
    c->step = STEP_NEXT;
    return STEP_MORE;
}

// An argument, or the end of the call, which STEP_TAIL reads.
static enum parse_step next_argument(struct output_parser *p) {
    const struct output_format *f = p->call.format;
    struct parsed_call *c = &p->call;
    size_t pos = c->pos;
    while (pos < p->in.len && output_blank(p->in.data[pos]))
        pos++;
    enum match m = pos < p->in.len ? output_match(p, pos, f->argument.open)
                   : p->ended      ? MATCH_NO
                                   : MATCH_OPEN;
    if (m == MATCH_OPEN)
        return STEP_WAIT;
    if (m == MATCH_YES) {
        c->mark = c->pos = pos + strlen(f->argument.open);
        c->step = STEP_KEY;
        return STEP_MORE;
    }
    add_literal(p, "}");
    output_end_call(p);
    return STEP_DONE;
}

enum parse_step call_tagged_step(struct output_parser *p) {
    const struct output_format *f = p->call.format;
    struct parsed_call *c = &p->call;
    enum parse_step r;
    switch (c->step) {
    case STEP_BEGIN:
        if (f->mid)
            r = output_find_name(p, f->mid, NULL);
        else
            r = output_find_name(p, f->argument.open, f->call_close);
        if (r != STEP_MORE)
            return r;
        if (!f->mid && c->pos >= strlen(f->argument.open) &&
            output_match(p, c->pos - strlen(f->argument.open), f->argument.open) == MATCH_YES)
            c->pos -= strlen(f->argument.open);
        size_t next = c->pos;
        while (next < p->in.len && next - c->pos < MAX_NAME && output_blank(p->in.data[next]))
            next++;
        if (next < p->in.len && p->in.data[next] == '{') // JSON: another format has that
            return STEP_FAILED;
        if (next == p->in.len && !p->ended) { // the bytes behind decide
            c->pos = c->begin;
            buf_clear(&c->name);
            buf_clear(&c->id);
            return STEP_WAIT;
        }
        if (f != p->format && (c->pos == p->in.len || !output_has_tool(p, c->name.data, c->name.len)))
            return STEP_FAILED;
        output_begin_call(p);
        c->parameters = output_tool_parameters(p, c->name.data, c->name.len);
        add_literal(p, "{");
        c->step = STEP_NEXT;
        return STEP_MORE;
    case STEP_NEXT: return next_argument(p);
    case STEP_KEY:
        if ((r = find(p, f->argument.mid, 16 * MAX_NAME)) != STEP_MORE)
            return r;
        if (!begin_argument(p))
            return STEP_FAILED;
        c->mark = c->pos += strlen(f->argument.mid);
        c->step = STEP_VALUE;
        if (!f->argument.value)
            begin_text(p);
        return STEP_MORE;
    case STEP_VALUE: // attributes
        if ((r = find(p, f->argument.value, MAX_NAME)) != STEP_MORE)
            return r;
        if (contains(p, c->mark, c->pos, "string=\"true\""))
            c->types = GRAMMAR_STRING;
        else if (contains(p, c->mark, c->pos, "string=\"false\""))
            c->types = ARGUMENT_ANY & ~GRAMMAR_STRING;
        c->pos += strlen(f->argument.value);
        begin_text(p);
        return STEP_MORE;
    default: return in_text(p);
    }
}
