// See output_format.h. Text is decided from left to right: what may yet become a mark is held back, so a decision never
// depends on where a push ends.
#include "parser_state.h"

#include <stdlib.h>

struct output_parser *output_parser_new(const struct output_format *f, const json_t *tools, bool reasoning,
                                        bool thinking) {
    struct output_parser *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->format = f;
    p->tools = f->syntax == CALLS_NONE && !f->harmony ? NULL : tools;
    p->reasoning = reasoning;
    p->state = f->harmony ? OUT_HEADER : f->think_close && thinking ? OUT_THINK : OUT_LEAD;
    buf_reserve(&p->in, 1); // so that parts of an empty output have an address
    return p;
}

void output_parser_free(struct output_parser *p) {
    if (!p)
        return;
    buf_free(&p->in);
    buf_free(&p->text);
    buf_free(&p->call.name);
    buf_free(&p->call.id);
    free(p->parts);
    free(p);
}

const struct output_part *output_parts(const struct output_parser *p, size_t *num, const char **text) {
    *num = p->num_parts;
    *text = p->text.data;
    return p->parts;
}

void output_clear(struct output_parser *p) {
    p->num_parts = 0;
    buf_clear(&p->text);
}

int output_num_calls(const struct output_parser *p) { return p->num_calls; }
int output_calls_ended(const struct output_parser *p) { return p->num_ended; }

bool output_is_thinking(const struct output_parser *p) {
    return p->state == OUT_THINK || (p->state == OUT_BODY && p->body == PART_REASONING);
}

// ---- text

// The byte at scan belongs to the text.
static void skip_byte(struct output_parser *p) {
    if (!output_blank(p->in.data[p->scan++]))
        p->solid = p->scan;
}

static const char *call_mark(const struct output_parser *p, size_t pos, enum match *found,
                             enum output_state *next) {
    const struct output_format *f = p->format;
    const char *marks[] = {f->section_open, f->call_open};
    *found = MATCH_NO;
    for (int i = 0; p->tools && i < 2; i++) {
        enum match m = output_match(p, pos, marks[i]);
        if (m != MATCH_NO) {
            *found = m;
            *next = i ? OUT_CALL : OUT_SECTION;
            return marks[i];
        }
    }
    return NULL;
}

static void enter_call(struct output_parser *p, size_t pos) {
    struct buf name = p->call.name, id = p->call.id;
    buf_clear(&name);
    buf_clear(&id);
    p->call = (struct parsed_call){.begin = pos, .pos = pos, .name = name, .id = id};
    p->state = OUT_CALL;
}

// Blanks before a call, and after reasoning, are of the format; others are content.
static void add_content(struct output_parser *p, size_t end) {
    while (p->lead_dropped && p->at < end && output_blank(p->in.data[p->at]))
        p->at++;
    if (p->at < end)
        p->lead_dropped = false;
    output_add(p, PART_CONTENT, p->in.data + p->at, end - p->at);
    p->at = end;
}

// The part of the content that is certain; blanks at its end wait for what follows them.
static void add_certain(struct output_parser *p) {
    add_content(p, !p->tools ? p->scan : p->solid > p->at ? p->solid : p->at);
}

static bool is_dropped(const struct output_parser *p, size_t pos, size_t *len, bool *open) {
    for (int i = 0; i < 2; i++) {
        enum match m = output_match(p, pos, p->format->drop[i]);
        *open |= m == MATCH_OPEN;
        if (m == MATCH_YES) {
            *len = strlen(p->format->drop[i]);
            return true;
        }
    }
    return false;
}

static void enter(struct output_parser *p, enum output_state next, size_t pos) {
    p->state = next;
    if (next == OUT_CALL)
        enter_call(p, pos);
    else if (next == OUT_SECTION)
        p->section = pos;
    else
        p->at = p->scan = pos;
    p->lead_dropped |= next == OUT_THINK;
}

static bool text_step(struct output_parser *p) {
    const struct output_format *f = p->format;
    for (; p->scan < p->in.len; skip_byte(p)) {
        enum match found;
        enum output_state next = OUT_TEXT;
        size_t len = 0;
        bool open = false;
        const char *mark = call_mark(p, p->scan, &found, &next);
        if (!mark && f->think_inside && p->reasoning && (found = output_match(p, p->scan, f->think_open))) {
            mark = f->think_open;
            next = OUT_THINK;
        }
        if (found == MATCH_YES) {
            add_certain(p);
            enter(p, next, p->scan + strlen(mark));
            return true;
        }
        if (is_dropped(p, p->scan, &len, &open)) {
            add_content(p, p->scan);
            p->at = p->scan += len;
            return true;
        }
        if (found == MATCH_OPEN || open) {
            add_certain(p);
            return false;
        }
    }
    add_certain(p);
    if (p->ended)
        add_content(p, p->in.len);
    return false;
}

// The beginning: reasoning, a call without marks, or text.
static bool lead_step(struct output_parser *p) {
    const struct output_format *f = p->format;
    size_t pos = p->at;
    while (pos < p->in.len && output_blank(p->in.data[pos]))
        pos++;
    if (pos == p->in.len && !p->ended)
        return false;
    enum match m = p->reasoning ? output_match(p, pos, f->think_open) : MATCH_NO;
    if (m == MATCH_OPEN)
        return false;
    if (m == MATCH_YES) {
        p->at = p->scan = pos + strlen(f->think_open);
        p->lead_dropped = true;
        p->state = OUT_THINK;
        return true;
    }
    p->state = OUT_TEXT;
    p->scan = p->at;
    char first = f->syntax == CALLS_JSON ? '{' : '[';
    if (p->tools && f->bare && pos < p->in.len && p->in.data[pos] == first)
        enter_call(p, pos);
    return true;
}

static bool think_step(struct output_parser *p) {
    for (; p->lead_dropped && p->at < p->in.len && output_blank(p->in.data[p->at]); p->at++)
        p->scan = p->at + 1;
    if (p->at < p->in.len)
        p->lead_dropped = false;
    enum match m = MATCH_NO;
    while (p->scan < p->in.len && !(m = output_match(p, p->scan, p->format->think_close)))
        skip_byte(p);
    size_t end = p->ended && m == MATCH_NO ? p->in.len : p->solid > p->at ? p->solid : p->at;
    output_add(p, PART_REASONING, p->in.data + p->at, end - p->at);
    p->at = end;
    if (m != MATCH_YES)
        return false;
    p->at = p->scan = p->scan + strlen(p->format->think_close);
    p->lead_dropped = true;
    p->state = OUT_TEXT;
    return true;
}

// Between the calls of a section.
static bool section_step(struct output_parser *p) {
    const struct output_format *f = p->format;
    size_t pos = p->section;
    while (pos < p->in.len && output_blank(p->in.data[pos]))
        pos++;
    enum match call = MATCH_OPEN, end = MATCH_OPEN;
    if (pos < p->in.len) {
        call = f->call_open ? output_match(p, pos, f->call_open) : MATCH_YES;
        end = output_match(p, pos, f->section_close);
    }
    if (end == MATCH_YES) {
        p->at = p->scan = pos + strlen(f->section_close);
        p->state = OUT_TEXT;
    } else if (end == MATCH_NO && call == MATCH_YES) {
        enter_call(p, pos + (f->call_open ? strlen(f->call_open) : 0));
    } else if (p->ended || (end == MATCH_NO && call == MATCH_NO)) {
        p->state = OUT_TEXT; // the rest is text
        p->scan = p->section;
    } else {
        return false;
    }
    return true;
}

// Behind a call: its end, which a model may leave out.
static bool tail_step(struct output_parser *p) {
    const char *close = p->format->call_close;
    size_t pos = p->call.pos;
    while (close && pos < p->in.len && output_blank(p->in.data[pos]))
        pos++;
    enum match m = pos < p->in.len ? output_match(p, pos, close) : MATCH_OPEN;
    if (close && m == MATCH_OPEN && !p->ended)
        return false;
    if (m == MATCH_YES)
        p->call.pos = pos + strlen(close);
    p->at = p->scan = p->section = p->call.pos;
    p->lead_dropped = true;
    p->state = p->format->section_open ? OUT_SECTION : OUT_TEXT;
    return true;
}

static bool call_step(struct output_parser *p) {
    static enum step_result (*const steps[])(struct output_parser *) = {
        [CALLS_JSON] = call_json_step,      [CALLS_NAMED] = call_named_step,
        [CALLS_TAGGED] = call_tagged_step,  [CALLS_PYTHON] = call_literal_step,
        [CALLS_BRACES] = call_literal_step,
    };
    if (p->call.step == STEP_TAIL)
        return tail_step(p);
    enum step_result r = steps[p->format->syntax](p);
    if (r == STEP_DONE) {
        p->call.step = STEP_TAIL;
    } else if (r == STEP_FAILED || (r == STEP_WAIT && p->ended && !p->call.begun)) {
        if (p->call.begun)
            p->at = p->call.pos;
        p->scan = p->call.begun ? p->call.pos : p->call.begin; // it looked like a call and is text
        p->state = OUT_TEXT;
    } else if (r == STEP_WAIT) {
        return false;
    }
    return true;
}

static bool step(struct output_parser *p) {
    switch (p->state) {
    case OUT_LEAD: return lead_step(p);
    case OUT_THINK: return think_step(p);
    case OUT_TEXT: return text_step(p);
    case OUT_SECTION: return section_step(p);
    case OUT_CALL: return call_step(p);
    case OUT_HEADER:
    case OUT_BODY: return harmony_step(p);
    }
    return false;
}

static void run(struct output_parser *p) {
    while (!output_failed(p) && step(p))
        continue;
    if (p->state != OUT_CALL && p->state != OUT_SECTION && p->at > 4096) { // theirs are more
        memmove(p->in.data, p->in.data + p->at, p->in.len - p->at);
        p->in.len -= p->at;
        p->scan -= p->at;
        p->solid -= p->solid < p->at ? p->solid : p->at;
        p->at = 0;
    }
}

void output_push(struct output_parser *p, const char *text, size_t len) {
    if (p->ended)
        return;
    buf_add(&p->in, text, len);
    run(p);
}

void output_end(struct output_parser *p) {
    if (p->ended)
        return;
    p->ended = true;
    run(p);
}
