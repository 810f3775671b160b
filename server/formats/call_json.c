// Calls as JSON objects, and those of which only the arguments are. The text of the arguments goes on as the model wrote it.
#include "parser_state.h"

// The string of JSON at begin, into out.
static bool read_string(const struct output_parser *p, size_t begin, size_t end, struct buf *out) {
    json_t *v = json_loadb(p->in.data + begin, end - begin, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    bool ok = json_is_string(v);
    buf_clear(out);
    if (ok)
        buf_add(out, json_string_value(v), json_string_length(v));
    json_decref(v);
    return ok;
}

static bool key_is(const struct buf *key, const char *name) {
    return key->len == strlen(name) && memcmp(key->data, name, key->len) == 0;
}

static int value_of_key(const struct buf *key) {
    static const struct {
        const char *key;
        int value;
    } keys[] = {{"name", VALUE_NAME},           {"tool_name", VALUE_NAME},
                {"arguments", VALUE_ARGUMENTS}, {"parameters", VALUE_ARGUMENTS},
                {"function", VALUE_FUNCTION},   {"id", VALUE_ID},
                {"tool_call_id", VALUE_ID}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (key_is(key, keys[i].key))
            return keys[i].value;
    return VALUE_OTHER;
}

static bool knows_name(
    const struct output_parser *p) { // without marks around it only a tool's name says that it is a call
    const struct parsed_call *c = &p->call;
    return c->name.len > 0 && c->name.len <= MAX_NAME &&
           (!(p->format->bare || c->format != p->format) || output_has_tool(p, c->name.data, c->name.len));
}

// Sends what the model wrote as arguments, from mark to pos. What is no object goes out when it is whole: as the object in a
// string, and none where it is null or empty.
static void send_arguments(struct output_parser *p, bool whole) {
    struct parsed_call *c = &p->call;
    if (c->object || p->in.data[c->mark] == '{') {
        c->object = true;
        output_add(p, PART_ARGUMENTS, p->in.data + c->mark, c->pos - c->mark);
        c->mark = c->pos;
    } else if (whole) {
        struct buf text = {0};
        size_t len = c->pos - c->mark;
        size_t begin = 0;
        bool string = read_string(p, c->mark, c->pos, &text);
        while (string && begin < text.len && output_blank(text.data[begin]))
            begin++;
        if (string && begin < text.len && strchr("{[", text.data[begin]) && text.data[begin])
            output_add(p, PART_ARGUMENTS, text.data, text.len);
        else if (string && begin == text.len)
            output_add(p, PART_ARGUMENTS, "{}", 2);
        else if (len == 4 && memcmp(p->in.data + c->mark, "null", 4) == 0)
            output_add(p, PART_ARGUMENTS, "{}", 2);
        else
            output_add(p, PART_ARGUMENTS, p->in.data + c->mark, len);
        p->failed |= text.failed;
        buf_free(&text);
    }
}

static enum parse_step begin_object(struct output_parser *p, char c) {
    struct parsed_call *call = &p->call;
    call->pos++;
    if (c == '[' && !call->list) {
        call->list = true;
    } else if (c == '{') {
        struct buf name = call->name, id = call->id;
        buf_clear(&name);
        buf_clear(&id);
        *call = (struct parsed_call){.format = call->format,
                                     .opening = call->opening,
                                     .origin = call->origin,
                                     .tried = call->tried,
                                     .step = STEP_KEY,
                                     .begin = call->begin,
                                     .pos = call->pos,
                                     .list = call->list,
                                     .json = call->json,
                                     .name = name,
                                     .id = id};
    } else if (call->list && c == ']') {
        return STEP_DONE;
    } else if (!(call->list && c == ',' && call->begun)) {
        call->pos--;
        return STEP_FAILED;
    }
    return STEP_MORE;
}

static enum parse_step end_object(struct output_parser *p) {
    struct parsed_call *c = &p->call;
    if (!c->begun && !knows_name(p))
        return STEP_FAILED;
    if (!c->begun)
        output_begin_call(p);
    if (c->arguments_end) {
        size_t pos = c->pos;
        c->mark = c->arguments;
        c->pos = c->arguments_end;
        send_arguments(p, true);
        c->pos = pos;
    } else if (!c->has_arguments) {
        output_add(p, PART_ARGUMENTS, "{}", 2);
    }
    output_end_call(p);
    c->step = STEP_BEGIN;
    return c->list ? STEP_MORE : STEP_DONE;
}

static enum parse_step begin_value(struct output_parser *p, char c) {
    struct parsed_call *call = &p->call;
    call->step = STEP_IN_VALUE;
    call->mark = call->pos;
    call->scan = (struct json_scan){0};
    if (call->value == VALUE_FUNCTION && c == '{' && !call->nested) {
        call->nested = true;
        call->step = STEP_KEY;
        call->pos++;
    } else if (call->value == VALUE_FUNCTION) {
        call->value = VALUE_NAME;
    } else if (call->value == VALUE_ARGUMENTS && !call->has_arguments && knows_name(p)) {
        output_begin_call(p);
        call->has_arguments = true;
    } else if (call->value == VALUE_ARGUMENTS && call->has_arguments) {
        call->value = VALUE_OTHER; // a second time
    }
    return STEP_MORE;
}

static enum parse_step in_value(struct output_parser *p) {
    struct parsed_call *c = &p->call;
    bool whole = json_scan_value(p, &c->scan, &c->pos);
    if (c->value == VALUE_ARGUMENTS && c->has_arguments)
        send_arguments(p, whole);
    if (!whole)
        return STEP_WAIT;
    c->step = STEP_NEXT;
    if (c->value == VALUE_NAME && !c->begun)
        read_string(p, c->mark, c->pos, &c->name);
    else if (c->value == VALUE_ID && !c->begun)
        read_string(p, c->mark, c->pos, &c->id);
    else if (c->value == VALUE_ARGUMENTS && !c->has_arguments) {
        c->arguments = c->mark;
        c->arguments_end = c->pos;
    }
    return STEP_MORE;
}

enum parse_step call_json_step(struct output_parser *p) {
    struct parsed_call *c = &p->call;
    if (c->step == STEP_IN_VALUE)
        return in_value(p);
    while (c->pos < p->in.len && output_blank(p->in.data[c->pos]))
        c->pos++;
    if (c->pos == p->in.len)
        return STEP_WAIT;
    char at = p->in.data[c->pos];
    switch (c->step) {
    case STEP_BEGIN: return begin_object(p, at);
    case STEP_KEY: // or the object's end
        if (at == '"') {
            size_t end = c->pos;
            struct json_scan scan = {0};
            struct buf key = {0};
            if (!json_scan_value(p, &scan, &end))
                return end - c->pos > MAX_NAME ? STEP_FAILED : STEP_WAIT;
            bool ok = read_string(p, c->pos, end, &key);
            c->value = value_of_key(&key);
            buf_free(&key);
            c->pos = end;
            c->step = STEP_COLON;
            return ok ? STEP_MORE : STEP_FAILED;
        }
        if (at != '}')
            return STEP_FAILED;
        c->step = STEP_NEXT;
        return STEP_MORE;
    case STEP_COLON:
        if (at != ':')
            return STEP_FAILED;
        c->pos++;
        c->step = STEP_VALUE;
        return STEP_MORE;
    case STEP_VALUE: return begin_value(p, at);
    default: // STEP_NEXT
        if (at == ',') {
            c->pos++;
            c->step = STEP_KEY;
            return STEP_MORE;
        }
        if (at == '}')
            c->pos++;
        else if (!c->has_arguments && !c->arguments_end)
            return STEP_FAILED;
        if (at == '}' && c->nested) {
            c->nested = false;
            return STEP_MORE;
        }
        return end_object(p); // models forget the last brace
    }
}

// ---- NAME mid {…}

static enum parse_step named_value(struct output_parser *p) {
    struct parsed_call *c = &p->call;
    while (c->step == STEP_VALUE && c->pos < p->in.len && output_blank(p->in.data[c->pos]))
        c->pos++;
    if (c->pos == p->in.len)
        return STEP_WAIT;
    if (c->step == STEP_VALUE && p->in.data[c->pos] != '{') {
        enum match end = output_match(p, c->pos, c->format->call_close); // no arguments
        if (end != MATCH_YES)
            return end == MATCH_OPEN ? STEP_WAIT : STEP_FAILED;
        output_begin_call(p);
        output_add(p, PART_ARGUMENTS, "{}", 2);
        output_end_call(p);
        return STEP_DONE;
    }
    if (c->step == STEP_VALUE) {
        output_begin_call(p);
        c->mark = c->pos;
        c->step = STEP_IN_VALUE;
    }
    bool whole = json_scan_value(p, &c->scan, &c->pos);
    send_arguments(p, whole);
    if (whole)
        output_end_call(p);
    return whole ? STEP_DONE : STEP_WAIT;
}

enum parse_step call_named_step(struct output_parser *p) {
    const struct output_format *f = p->call.format;
    struct parsed_call *c = &p->call;
    size_t at = c->begin;
    if (c->json)
        return call_json_step(p);
    if (c->step != STEP_BEGIN)
        return named_value(p);
    while (at < p->in.len && output_blank(p->in.data[at]))
        at++;
    if (at < p->in.len && strchr("[{", p->in.data[at]) && output_match(p, at, f->mid) == MATCH_NO) {
        c->json = true;
        return STEP_MORE;
    }
    enum parse_step r = output_find_name(p, f->mid, "{"); // a model may leave out what is between
    bool marked = c->pos >= at + c->name.len + strlen(f->mid);
    if (r == STEP_MORE && (!marked || f != p->format) && !output_has_tool(p, c->name.data, c->name.len))
        return STEP_FAILED;
    if (r == STEP_MORE)
        c->step = STEP_VALUE;
    return r;
}
