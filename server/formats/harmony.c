// gpt-oss: messages <|start|>ROLE to=RECIPIENT<|channel|>CHANNEL<|constrain|>TYPE<|message|>TEXT, each ended by a mark or the
// next. The prompt ends with the first one's <|start|>assistant.
#include "parser_state.h"

#define MESSAGE "<|message|>"
enum { MAX_HEADER = 1024 };

static const char *const ends[] = {"<|end|>", "<|return|>", "<|call|>", "<|start|>", "<|channel|>"};

static const char *find_in(const char *text, size_t len, const char *what) {
    return memmem(text, len, what, strlen(what));
}

static bool has_word(const char *text, size_t len, const char *word) {
    return find_in(text, len, word) != NULL;
}

// The recipient of a call: a word behind "to=", functions.NAME or a tool of the request. Others (assistant, python,
// browser.search) are none of the server's, as vLLM has it.
static bool read_recipient(struct output_parser *p, const char *text, size_t len) {
    struct parsed_call *c = &p->call;
    const char *to = find_in(text, len, "to="), *end = text + len;
    buf_clear(&c->name);
    buf_clear(&c->id);
    if (!to)
        return false;
    to += 3;
    bool function = (size_t)(end - to) > 10 && memcmp(to, "functions.", 10) == 0;
    to += function ? 10 : 0;
    const char *stop = to;
    while (stop < end && !output_blank(*stop) && *stop != '<')
        stop++;
    buf_add(&c->name, to, (size_t)(stop - to));
    return stop > to && c->name.len <= MAX_NAME &&
           (function || output_has_tool(p, c->name.data, c->name.len));
}

static void begin_body(struct output_parser *p, const char *header, size_t len) {
    struct buf name = p->call.name, id = p->call.id;
    p->call = (struct parsed_call){.name = name, .id = id};
    bool call = read_recipient(p, header, len);
    if (call && p->tools) {
        p->body = PART_ARGUMENTS;
        output_begin_call(p);
    } else if (p->reasoning && has_word(header, len, "analysis")) {
        p->body = PART_REASONING;
    } else {
        p->body = PART_CONTENT;
    }
    p->state = OUT_BODY;
}

static bool header_step(struct output_parser *p) {
    static const char *const begins[] = {"<|start|>", "<|channel|>", " to="};
    bool marked = false;
    for (size_t i = 0; i < sizeof begins / sizeof *begins && p->at < p->in.len; i++)
        marked |= output_match(p, p->at, begins[i]) != MATCH_NO;
    while (marked && p->scan < p->in.len && p->scan - p->at <= MAX_HEADER) {
        enum match m = output_match(p, p->scan, MESSAGE);
        if (m == MATCH_OPEN)
            return false;
        if (m == MATCH_YES) {
            begin_body(p, p->in.data + p->at, p->scan - p->at);
            p->at = p->scan += strlen(MESSAGE);
            return true;
        }
        p->scan++;
    }
    if (p->at == p->in.len || (marked && p->scan == p->in.len && !p->ended))
        return false;
    if (marked && p->ended) { // the beginning of a header says nothing
        p->at = p->scan = p->in.len;
        return false;
    }
    p->body = PART_CONTENT; // a text without one, whatever it begins with
    p->scan = p->at + 1;
    p->state = OUT_BODY;
    return true;
}

static void add_body(struct output_parser *p) {
    output_add(p, p->body, p->in.data + p->at, p->scan - p->at);
    for (size_t i = p->at; i < p->scan; i++)
        p->call.body |= !output_blank(p->in.data[i]);
}

// No arguments are an empty object.
static void end_call(struct output_parser *p) {
    if (!p->call.body)
        output_add(p, PART_ARGUMENTS, "{}", 2);
    output_end_call(p);
}

bool harmony_step(struct output_parser *p) {
    if (p->state == OUT_HEADER)
        return header_step(p);
    for (; p->scan < p->in.len; p->scan++) {
        enum match found = MATCH_NO;
        for (size_t i = 0; i < sizeof ends / sizeof *ends && found != MATCH_YES; i++) {
            enum match m = output_match(p, p->scan, ends[i]);
            size_t len = m == MATCH_YES && i < 3 ? strlen(ends[i]) : 0; // the others begin the next header
            if (m != MATCH_NO)
                found = m;
            if (m != MATCH_YES)
                continue;
            add_body(p);
            if (p->body == PART_ARGUMENTS)
                end_call(p);
            p->at = p->scan += len;
            p->state = OUT_HEADER;
            return true;
        }
        if (found == MATCH_OPEN)
            break;
    }
    add_body(p);
    p->at = p->scan;
    if (p->ended && p->body == PART_ARGUMENTS && !p->call.has_arguments) {
        p->call.has_arguments = true;
        end_call(p);
    }
    return false;
}
