// See parser_state.h.
#include "parser_state.h"

#include <stdlib.h>

bool output_failed(const struct output_parser *p) {
    return p->failed || p->in.failed || p->text.failed || p->call.name.failed || p->call.id.failed ||
           p->ids.failed;
}

// ---- parts

static struct output_part *new_part(struct output_parser *p, enum part_kind kind) {
    if (p->num_parts == p->cap_parts) {
        size_t cap = p->cap_parts ? 2 * p->cap_parts : 4;
        struct output_part *grown = realloc(p->parts, cap * sizeof *grown);
        if (!grown) {
            p->failed = true;
            return NULL;
        }
        p->parts = grown;
        p->cap_parts = cap;
    }
    struct output_part *part = &p->parts[p->num_parts++];
    *part = (struct output_part){.kind = kind, .call = p->num_calls - 1, .begin = p->text.len};
    return part;
}

void output_add(struct output_parser *p, enum part_kind kind, const char *text, size_t len) {
    if (!len || output_failed(p))
        return;
    struct output_part *last = p->num_parts ? &p->parts[p->num_parts - 1] : NULL;
    if (!last || last->kind != kind)
        last = new_part(p, kind);
    if (!last)
        return;
    buf_add(&p->text, text, len);
    last->len += len;
    p->said |= kind == PART_CONTENT;
}

void output_end_call(struct output_parser *p) { p->num_ended++; }

static bool knows_id(const struct output_parser *p, const struct buf *id) {
    for (size_t at = 0; at < p->ids.len; at += strlen(p->ids.data + at) + 1)
        if (strlen(p->ids.data + at) == id->len && memcmp(p->ids.data + at, id->data, id->len) == 0)
            return true;
    return false;
}

void output_begin_call(struct output_parser *p) {
    struct parsed_call *c = &p->call;
    p->num_calls++;
    c->begun = p->said = true;
    struct output_part *part = output_failed(p) ? NULL : new_part(p, PART_CALL);
    if (!part)
        return;
    buf_add(&p->text, c->name.data, c->name.len);
    part->len = c->name.len;
    part->id = p->text.len;
    if (c->id.len && !knows_id(p, &c->id)) { // two calls do not share one
        buf_add(&p->ids, c->id.data, c->id.len);
        buf_char(&p->ids, 0);
        buf_add(&p->text, c->id.data, c->id.len);
        part->id_len = c->id.len;
    }
}

// ---- tools

static const json_t *find_tool(const struct output_parser *p, const char *name, size_t len) {
    for (size_t i = 0; i < json_array_size(p->tools); i++) {
        const json_t *tool = json_array_get(p->tools, i), *inner = json_object_get(tool, "function"),
                     *at = inner ? inner : tool, *its = json_object_get(at, "name");
        if (json_is_string(its) && json_string_length(its) == len &&
            memcmp(json_string_value(its), name, len) == 0)
            return at;
    }
    return NULL;
}

bool output_has_tool(const struct output_parser *p, const char *name, size_t len) {
    return len > 0 && find_tool(p, name, len) != NULL;
}

const json_t *output_tool_parameters(const struct output_parser *p, const char *name, size_t len) {
    const json_t *tool = find_tool(p, name, len), *schema = json_object_get(tool, "parameters");
    return schema ? schema : json_object_get(tool, "input_schema");
}

// ---- names and values

bool json_scan_value(const struct output_parser *p, struct json_scan *s, size_t *pos) {
    for (; *pos < p->in.len; (*pos)++) {
        char c = p->in.data[*pos];
        if (s->string) {
            s->string = s->escaped || c != '"';
            s->escaped = !s->escaped && c == '\\';
            if (s->string || s->depth > 0)
                continue;
        } else if (!s->depth && s->begun && (output_blank(c) || strchr(",}]<", c))) {
            return true; // behind a scalar
        } else if (c == '"') {
            s->string = s->begun = true;
            continue;
        } else if (c == '{' || c == '[') {
            s->depth++;
            s->begun = true;
            continue;
        } else if (c == '}' || c == ']') {
            if (--s->depth > 0)
                continue;
        } else {
            s->begun |= !output_blank(c);
            continue;
        }
        (*pos)++;
        return true;
    }
    return p->ended && s->begun && !s->string && !s->depth;
}

bool output_read_name(struct output_parser *p, size_t begin, size_t end) {
    const struct output_format *f = p->call.format;
    struct parsed_call *c = &p->call;
    while (begin < end && output_blank(p->in.data[begin]))
        begin++;
    while (end > begin && output_blank(p->in.data[end - 1]))
        end--;
    const char *text = p->in.data + begin;
    size_t len = end - begin, mid = f->id_mid ? strlen(f->id_mid) : 0;
    if (f->kimi_ids) { // functions.NAME:0
        const char *colon = memrchr(text, ':', len);
        buf_add(&c->id, text, colon ? len : 0);
        len = colon ? (size_t)(colon - text) : len;
        if (len > 10 && memcmp(text, "functions.", 10) == 0) {
            text += 10;
            len -= 10;
        }
    }
    for (size_t i = 0; mid && i + mid <= len; i++)
        if (memcmp(text + i, f->id_mid, mid) == 0) {
            buf_add(&c->id, text + i + mid, len - i - mid);
            len = i;
        }
    buf_add(&c->name, text, len);
    for (size_t i = 0; i < len; i++)
        if (output_blank(text[i]) || strchr("<>{}[]()\"", text[i]))
            return false;
    return len > 0 && len <= MAX_NAME;
}

enum parse_step output_find_name(struct output_parser *p, const char *end, const char *other) {
    struct parsed_call *c = &p->call;
    for (; c->pos < p->in.len && c->pos - c->begin <= 2 * MAX_NAME; c->pos++) {
        enum match m = output_match(p, c->pos, end), o = output_match(p, c->pos, other);
        if (m == MATCH_OPEN || (m == MATCH_NO && o == MATCH_OPEN))
            return STEP_WAIT;
        if (m == MATCH_YES || o == MATCH_YES) {
            bool ok = output_read_name(p, c->begin, c->pos);
            c->pos += m == MATCH_YES ? strlen(end) : 0;
            return ok ? STEP_MORE : STEP_FAILED;
        }
    }
    return c->pos < p->in.len ? STEP_FAILED : STEP_WAIT;
}
