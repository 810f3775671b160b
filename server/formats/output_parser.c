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
    buf_free(&p->ids);
    output_parser_free(p->probe);
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

static void enter_call(struct output_parser *p, size_t pos, const char *opening) {
    struct buf name = p->call.name, id = p->call.id;
    buf_clear(&name);
    buf_clear(&id);
    p->call = (struct parsed_call){.format = p->format,
                                   .opening = opening,
                                   .origin = pos,
                                   .begin = pos,
                                   .pos = pos,
                                   .name = name,
                                   .id = id};
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

static void enter(struct output_parser *p, enum output_state next, size_t pos, const char *mark) {
    p->state = next;
    if (next == OUT_CALL)
        enter_call(p, pos, mark);
    else if (next == OUT_SECTION)
        p->section = pos;
    else
        p->at = p->scan = pos;
    p->lead_dropped |= next == OUT_THINK;
}

// A mark that ends a call or reasoning once more, directly behind the first, means nothing.
static enum match is_stray(const struct output_parser *p, size_t *len) {
    const struct output_format *f = p->format;
    const char *const marks[] = {p->after_call ? f->call_close : f->think_close,
                                 p->after_call ? f->section_close : NULL};
    enum match found = MATCH_NO;
    for (int i = 0; i < 2 && p->lead_dropped && p->solid <= p->at; i++) {
        enum match m = output_match(p, p->scan, marks[i]);
        if (m == MATCH_YES) {
            *len = strlen(marks[i]);
            return m;
        }
        found = m == MATCH_OPEN ? m : found;
    }
    return found;
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
            enter(p, next, p->scan + strlen(mark), mark);
            return true;
        }
        enum match stray = is_stray(p, &len);
        if (stray == MATCH_YES) {
            p->at = p->scan += len;
            return true;
        }
        open = stray == MATCH_OPEN;
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
    enum match end =
        p->reasoning ? output_match(p, pos, f->think_close) : MATCH_NO; // which the prompt has had
    if (m == MATCH_OPEN || (m == MATCH_NO && end == MATCH_OPEN))
        return false;
    if (m == MATCH_YES || end == MATCH_YES) {
        p->at = p->scan = pos + strlen(m == MATCH_YES ? f->think_open : f->think_close);
        p->lead_dropped = true;
        p->state = m == MATCH_YES ? OUT_THINK : OUT_TEXT;
        return true;
    }
    p->state = OUT_TEXT;
    p->scan = p->at;
    char first = f->syntax == CALLS_JSON ? '{' : '[';
    if (p->tools && f->bare && pos < p->in.len && p->in.data[pos] == first)
        enter_call(p, pos, NULL);
    return true;
}

static void add_reasoning(struct output_parser *p, size_t end) {
    output_add(p, PART_REASONING, p->in.data + p->at, end - p->at);
    p->thought |= end > p->at;
    p->at = end;
}

enum { MAX_PROBES = 64 }; // of one output: what reads a text again and again has a bound

// At `scan` is the mark of calls, and the reasoning is not closed before. Where it is closed behind, the mark belongs to it.
// Where it never is, a model has left that out, and calls: as vLLM, SGLang and Kimi's own reader have it. MATCH_YES: it is a
// call; NO: it is reasoning; OPEN: what comes will tell.
static enum match is_unclosed_call(struct output_parser *p) {
    size_t from = p->seek;
    enum match m = MATCH_NO;
    while (p->seek < p->in.len && !(m = output_match(p, p->seek, p->format->think_close)))
        p->seek++;
    if (m == MATCH_YES)
        return MATCH_NO;
    bool call = p->probe && p->probe->num_calls > 0;
    if (p->probe && !call) {
        output_push(p->probe, p->in.data + from, p->seek - from);
        if (p->ended)
            output_end(p->probe);
        call = p->probe->num_calls > 0 && p->probe->parts[0].kind == PART_CALL;
        if (!call && (p->ended || p->probe->num_parts || output_failed(p->probe)))
            return MATCH_NO;
    }
    return !p->ended ? MATCH_OPEN : call ? MATCH_YES : MATCH_NO;
}

static void end_probe(struct output_parser *p) {
    output_parser_free(p->probe);
    p->probe = NULL;
}

// A mark of calls within reasoning. MATCH_NO: it is none, or belongs to it; YES: the reasoning is over; OPEN: it waits.
static enum match leave_thinking(struct output_parser *p) {
    enum match found;
    enum output_state next = OUT_TEXT;
    const char *mark = call_mark(p, p->scan, &found, &next);
    if (found != MATCH_YES || p->num_probes == MAX_PROBES)
        return found == MATCH_OPEN ? MATCH_OPEN : MATCH_NO;
    if (!p->probe) {
        p->probe = output_parser_new(p->format, p->tools, false, false);
        p->failed |= !p->probe;
        p->seek = p->scan;
        p->num_probes++;
    }
    enum match m = is_unclosed_call(p);
    if (m != MATCH_OPEN)
        end_probe(p);
    if (m != MATCH_YES)
        return m;
    add_reasoning(p, p->solid > p->at ? p->solid : p->at);
    p->at = p->scan;
    enter(p, next, p->scan + strlen(mark), mark);
    return m;
}

static bool think_step(struct output_parser *p) {
    size_t first = p->at;
    while (first < p->in.len && output_blank(p->in.data[first]))
        first++;
    enum match twice = p->thought || p->probe ? MATCH_NO : output_match(p, first, p->format->think_open);
    if (twice == MATCH_OPEN && first < p->in.len)
        return false;
    if (twice == MATCH_YES) {
        p->at = p->scan = first + strlen(p->format->think_open);
        p->thought = p->lead_dropped = true;
    }
    for (; p->lead_dropped && p->at < p->in.len && output_blank(p->in.data[p->at]); p->at++)
        p->scan = p->at + 1;
    if (p->at < p->in.len)
        p->lead_dropped = false;
    enum match m = MATCH_NO, call = MATCH_NO;
    while (p->scan < p->in.len && !(m = output_match(p, p->scan, p->format->think_close)) &&
           !(call = leave_thinking(p)))
        skip_byte(p);
    if (call == MATCH_YES)
        return true;
    bool over = p->ended && m == MATCH_NO && call == MATCH_NO;
    add_reasoning(p, over ? p->in.len : p->solid > p->at ? p->solid : p->at);
    if (m != MATCH_YES)
        return false;
    p->at = p->scan = p->scan + strlen(p->format->think_close);
    p->lead_dropped = true;
    p->after_call = false;
    p->state = OUT_TEXT;
    return true;
}

// ---- calls

static bool is_behind(const struct output_parser *p, size_t pos, const char *mark) {
    size_t len = mark ? strlen(mark) : 0;
    return len && pos >= len && memcmp(p->in.data + pos - len, mark, len) == 0;
}

enum { MAX_BLANKS = 64 }; // that are read again

static size_t behind_blanks(const struct output_parser *p, size_t pos) {
    for (size_t end = pos + MAX_BLANKS; pos < p->in.len && pos < end && output_blank(p->in.data[pos]);)
        pos++;
    return pos;
}

// Where a call in the syntax of another format begins, if one may: behind a mark that both have, or as JSON or Python. YES
// with *pos.
static enum match begins_as(const struct output_parser *p, const struct output_format *f, size_t *pos) {
    const struct parsed_call *c = &p->call;
    size_t at = behind_blanks(p, c->origin);
    *pos = c->origin;
    if (f == p->format || f->harmony || f->bare || f->syntax == CALLS_NONE || f->syntax == CALLS_BRACES ||
        !c->opening)
        return MATCH_NO;
    if (at == p->in.len)
        return p->ended ? MATCH_NO : MATCH_OPEN;
    size_t len = strlen(c->opening);
    if (f->call_open && strncmp(f->call_open, c->opening, len) == 0 && is_behind(p, c->origin, c->opening)) {
        const char *rest = f->call_open + len;
        *pos = c->origin + strlen(rest);
        return *rest ? output_match(p, c->origin, rest) : MATCH_YES;
    }
    if (f->section_open && f->call_open && strcmp(f->section_open, c->opening) == 0) {
        *pos = at + strlen(f->call_open);
        return output_match(p, at, f->call_open);
    }
    if (f->syntax == CALLS_JSON && !f->list && !f->name_key)
        return strchr("{[", p->in.data[at]) && p->in.data[at] ? MATCH_YES : MATCH_NO;
    return f->syntax == CALLS_PYTHON && (p->in.data[at] == '[' || is_behind(p, c->origin, c->opening))
               ? MATCH_YES
               : MATCH_NO;
}

// A text that is no call of the format may be one of another, which models fall back to; then only of a tool that there is. DONE:
// it is tried; WAIT; FAILED: there is no other.
static enum parse_step try_other(struct output_parser *p) {
    struct parsed_call *c = &p->call;
    const struct output_format *f;
    for (; (f = output_format_at(c->tried)) != NULL; c->tried++) {
        size_t pos;
        enum match m = begins_as(p, f, &pos);
        if (m == MATCH_OPEN)
            return STEP_WAIT;
        if (m == MATCH_NO)
            continue;
        struct parsed_call before = *c;
        enter_call(p, pos, before.opening);
        c->format = f;
        c->origin = before.origin;
        c->tried = before.tried + 1;
        return STEP_DONE;
    }
    return STEP_FAILED;
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
        enter_call(p, f->call_open ? pos + strlen(f->call_open) : p->section,
                   f->call_open ? f->call_open : f->section_open);
    } else if (pos < p->in.len && output_match(p, pos, f->section_open) == MATCH_YES) {
        p->section = pos + strlen(f->section_open); // a second time
    } else if (p->ended ||
               (end == MATCH_NO && call == MATCH_NO && output_match(p, pos, f->section_open) == MATCH_NO)) {
        enter_call(p, p->section, f->section_open);
        p->call.step = STEP_NONE;
    } else {
        return false;
    }
    return true;
}

// Behind a call: its end, which a model may leave out.
static bool tail_step(struct output_parser *p) {
    struct parsed_call *c = &p->call;
    const char *const closes[] = {c->format != p->format ? c->format->call_close : NULL,
                                  p->format->call_close};
    size_t pos = c->pos, next = c->pos;
    bool closed = false;
    for (int i = 0; i < 2; i++) {
        for (pos = next; closes[i] && pos < p->in.len && output_blank(p->in.data[pos]);)
            pos++;
        enum match m = pos < p->in.len ? output_match(p, pos, closes[i]) : MATCH_OPEN;
        if (closes[i] && m == MATCH_OPEN && !p->ended)
            return false;
        closed |= m == MATCH_YES;
        next = m == MATCH_YES ? pos + strlen(closes[i]) : next;
    }
    p->at = p->scan = p->section = c->pos = next;
    p->lead_dropped = p->after_call = true;
    p->state = p->format->section_open ? OUT_SECTION : OUT_TEXT;
    if (!closed && c->format == p->format && p->format->call_close && p->format->syntax == CALLS_JSON &&
        pos < p->in.len && strchr("{,", p->in.data[pos]) &&
        p->in.data[pos]) // another one between one pair of marks
        enter_call(p, pos + (p->in.data[pos] == ','), c->opening);
    return true;
}

// The mark before a call a second time. YES: the call begins behind it.
static enum match is_twice(struct output_parser *p) {
    struct parsed_call *c = &p->call;
    size_t pos = behind_blanks(p, c->origin);
    if (c->format != p->format || c->tried > 0 || !is_behind(p, c->origin, c->opening))
        return MATCH_NO;
    enum match m = pos < p->in.len || p->ended ? output_match(p, pos, c->opening) : MATCH_OPEN;
    if (m == MATCH_YES)
        enter_call(p, pos + strlen(c->opening), c->opening);
    return m;
}

static bool call_step(struct output_parser *p) {
    static enum parse_step (*const steps[])(struct output_parser *) = {
        [CALLS_JSON] = call_json_step,      [CALLS_NAMED] = call_named_step,
        [CALLS_TAGGED] = call_tagged_step,  [CALLS_PYTHON] = call_literal_step,
        [CALLS_BRACES] = call_literal_step,
    };
    if (p->call.step == STEP_TAIL)
        return tail_step(p);
    enum parse_step r = p->call.step == STEP_NONE ? STEP_FAILED : steps[p->call.format->syntax](p);
    bool failed = r == STEP_FAILED || (r == STEP_WAIT && p->ended);
    enum match twice;
    if (r == STEP_DONE) {
        p->call.step = STEP_TAIL;
    } else if (failed && !p->call.begun && (twice = is_twice(p)) != MATCH_NO) {
        return twice == MATCH_YES;
    } else if (failed && !p->call.begun && (r = try_other(p)) != STEP_FAILED) {
        return r == STEP_DONE;
    } else if (r == STEP_FAILED) {
        if (p->call.begun)
            p->at = p->call.pos;
        p->scan = p->call.begun ? p->call.pos : p->call.origin; // the text that looked like a call stays text
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
    if (p->state != OUT_CALL && p->state != OUT_SECTION && !p->probe && p->at > 4096) { // theirs are more
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
