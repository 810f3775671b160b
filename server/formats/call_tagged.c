// Calls whose arguments stand between tags, each as plain text: the tool's schema says which are strings.
#include "parser_state.h"

#include "json_strings.h"

// Whether a schema allows strings, and whether anything else but null.
static void allowed_types(const json_t *schema, bool *strings, bool *others, int depth) {
    static const char *const lists[] = {"anyOf", "oneOf"};
    const json_t *type = json_object_get(schema, "type"), *values = json_object_get(schema, "enum");
    for (size_t i = 0; i < (json_is_array(type) ? json_array_size(type) : 1); i++) {
        const char *name = json_name(json_is_array(type) ? json_array_get(type, i) : type);
        *strings |= name && strcmp(name, "string") == 0;
        *others |= name && strcmp(name, "string") != 0 && strcmp(name, "null") != 0;
    }
    for (size_t i = 0; !type && i < json_array_size(values); i++)
        *(json_is_string(json_array_get(values, i)) ? strings : others) = true;
    for (size_t k = 0; k < 2 && depth < 4; k++) {
        const json_t *list = json_object_get(schema, lists[k]);
        for (size_t i = 0; i < json_array_size(list); i++)
            allowed_types(json_array_get(list, i), strings, others, depth + 1);
    }
}

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

// A value that may be something else than a string: JSON where it is.
static void add_value(struct output_parser *p, size_t begin, size_t end, bool may_be_string) {
    const char *text = p->in.data + begin;
    json_t *v = json_loadb(text, end - begin, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    const char *word = NULL;
    for (size_t i = 0; i < 3; i++)
        if (strlen(words[i][0]) == end - begin && memcmp(text, words[i][0], end - begin) == 0)
            word = words[i][1];
    if (v && !(json_is_string(v) && may_be_string)) {
        output_add(p, PART_ARGUMENTS, text, end - begin);
    } else if (word && !may_be_string) {
        add_literal(p, word);
    } else {
        add_literal(p, "\"");
        add_escaped(p, begin, end);
        add_literal(p, "\"");
    }
    json_decref(v);
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
    bool strings = false, others = false;
    buf_clear(&b);
    buf_add(&b, p->in.data + begin, end - begin);
    const char *key = buf_cstr(&b);
    const json_t *schema = key ? json_object_get(c->properties, key) : NULL;
    allowed_types(schema, &strings, &others, 0);
    c->strings = strings || !schema || !others;
    c->string = c->strings && !others;
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
static enum step_result find(struct output_parser *p, const char *what, size_t most) {
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
    c->first = true;
    if (c->string)
        add_literal(p, "\"");
}

static enum step_result in_text(struct output_parser *p) {
    const struct output_format *f = p->format;
    struct parsed_call *c = &p->call;
    if (c->first && c->mark == p->in.len)
        return STEP_WAIT;
    if (c->first && f->argument.trim && p->in.data[c->mark] == '\n')
        c->mark++;
    c->pos = c->pos < c->mark ? c->mark : c->pos;
    c->first = false;
    enum step_result r = find(p, f->argument.close, 0);
    size_t end = c->pos;
    if (f->argument.trim && end > c->mark && p->in.data[end - 1] == '\n' && (r == STEP_MORE || !p->ended))
        end--;
    if (c->string) {
        add_escaped(p, c->mark, end);
        c->mark = end;
    }
    if (r != STEP_MORE)
        return STEP_WAIT;
    if (c->string)
        add_literal(p, "\"");
    else
        add_value(p, c->mark, end, c->strings);
    c->pos += strlen(f->argument.close);
    c->step = STEP_NEXT;
    return STEP_MORE;
}

// An argument, or the end of the call, which STEP_TAIL reads.
static enum step_result next_argument(struct output_parser *p) {
    const struct output_format *f = p->format;
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

enum step_result call_tagged_step(struct output_parser *p) {
    const struct output_format *f = p->format;
    struct parsed_call *c = &p->call;
    enum step_result r;
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
        output_begin_call(p);
        c->properties = output_tool_properties(p, c->name.data, c->name.len);
        add_literal(p, "{");
        c->step = STEP_NEXT;
        return STEP_MORE;
    case STEP_NEXT: return next_argument(p);
    case STEP_KEY:
        if ((r = find(p, f->argument.mid, MAX_NAME)) != STEP_MORE)
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
            c->string = c->strings = true;
        else if (contains(p, c->mark, c->pos, "string=\"false\""))
            c->string = c->strings = false;
        c->pos += strlen(f->argument.value);
        begin_text(p);
        return STEP_MORE;
    default: return in_text(p);
    }
}
