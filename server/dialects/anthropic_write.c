// Responses of the Messages API: blocks in a body, or as events with the block that is open as their state.
#include "anthropic.h"

#include "openai.h"

#include <stdlib.h>
#include <string.h>

struct anthropic_stream {
    bool open;           // a block is
    enum part_kind kind; // its
    int index;           // of the block that is open, or of the next one
};

// ---- pieces of both forms

static void write_error(struct buf *b, const struct api_error *e) {
    const char *type = e->status == 401                       ? "authentication_error"
                       : e->status == 403                     ? "permission_error"
                       : e->status == 404                     ? "not_found_error"
                       : e->status == 413                     ? "request_too_large"
                       : e->status == 429                     ? "rate_limit_error"
                       : e->status == 503 || e->status == 529 ? "overloaded_error"
                       : e->status == 408 || e->status == 504 ? "timeout_error"
                       : e->status >= 500 && e->status != 501 ? "api_error"
                                                              : "invalid_request_error";
    buf_fmt(b, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"", type);
    if (*e->param) {
        json_escape(b, e->param, strlen(e->param));
        buf_lit(b, ": ");
    }
    json_escape(b, e->message, strlen(e->message));
    buf_lit(b, "\"}");
    if (e->request_id) {
        buf_lit(b, ",\"request_id\":");
        json_quote(b, e->request_id, strlen(e->request_id));
    }
    buf_char(b, '}');
}

static void write_usage(struct buf *b, const struct usage *u) {
    buf_fmt(b,
            "\"usage\":{\"input_tokens\":%lld,\"cache_creation_input_tokens\":0,"
            "\"cache_read_input_tokens\":%lld,\"output_tokens\":%lld",
            (long long)(u->prompt - u->cached), (long long)u->cached, (long long)u->completion);
    if (u->reasoning >= 0)
        buf_fmt(b, ",\"output_tokens_details\":{\"thinking_tokens\":%lld}", (long long)u->reasoning);
    buf_char(b, '}');
}

// p NULL: the message has only begun.
static void write_stop(struct buf *b, const struct piece *p) {
    const char *reason = !p                                             ? NULL
                         : p->finish == FINISH_LENGTH                   ? "max_tokens"
                         : p->stop                                      ? "stop_sequence"
                         : p->output && output_num_calls(p->output) > 0 ? "tool_use"
                                                                        : "end_turn";
    buf_fmt(b,
            reason ? "\"stop_reason\":\"%s\",\"stop_sequence\":" : "\"stop_reason\":null,\"stop_sequence\":",
            reason);
    if (p && p->stop)
        json_quote(b, p->stop, p->stop_len);
    else
        buf_lit(b, "null");
}

// Writes a message up to its content.
static void write_head(struct buf *b, const struct response *r) {
    buf_lit(b, "{\"id\":");
    json_quote(b, r->id, strlen(r->id));
    buf_lit(b, ",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
    json_quote(b, r->request->base.model, strlen(r->request->base.model));
    buf_lit(b, ",\"content\":[");
}

static bool is_hidden(const struct response *r, const struct output_part *part) {
    return part->kind == PART_REASONING && r->request->hides_reasoning;
}

// The parts of a piece; `plain` is the only one of an output that is text. Returns how many.
static size_t parts_of(const struct piece *p, struct output_part *plain, const struct output_part **parts,
                       const char **text) {
    size_t num = p->len > 0;
    *plain = (struct output_part){.kind = PART_CONTENT, .len = p->len};
    *parts = plain;
    *text = p->text;
    if (p->output)
        *parts = output_parts(p->output, &num, text);
    return num;
}

// ---- a stream

static void begin_response(struct response *r) {
    r->state = calloc(1, sizeof(struct anthropic_stream));
    r->head.failed |= !r->state;
}

static void end_response(struct response *r) { free(r->state); }

static struct buf *event_begin(struct sse_queue *out, const char *name) {
    struct buf *b = sse_begin(out);
    buf_fmt(b, "event: %s\ndata: {\"type\":\"%s\"", name, name);
    return b;
}

static void event_end(struct sse_queue *out) {
    buf_lit(&out->bytes, "}\n\n");
    sse_end(out);
}

static void write_start(struct sse_queue *out, const struct response *r, const struct usage *usage) {
    struct buf *b = event_begin(out, "message_start");
    buf_lit(b, ",\"message\":");
    write_head(b, r);
    buf_lit(b, "],");
    write_stop(b, NULL);
    buf_char(b, ',');
    write_usage(b, usage);
    buf_char(b, '}');
    event_end(out);
}

static struct buf *delta_begin(struct sse_queue *out, const struct anthropic_stream *s, const char *type,
                               const char *member) {
    struct buf *b = event_begin(out, "content_block_delta");
    buf_fmt(b, ",\"index\":%d,\"delta\":{\"type\":\"%s\",\"%s\":", s->index, type, member);
    return b;
}

static void delta_end(struct sse_queue *out) {
    buf_char(&out->bytes, '}');
    event_end(out);
}

// Clients want a signature of reasoning, and nobody looks at it.
static void close_block(struct sse_queue *out, const struct response *r, struct anthropic_stream *s) {
    if (!s->open)
        return;
    if (s->kind == PART_REASONING) {
        json_quote(delta_begin(out, s, "signature_delta", "signature"), r->id, strlen(r->id));
        delta_end(out);
    }
    buf_fmt(event_begin(out, "content_block_stop"), ",\"index\":%d", s->index);
    event_end(out);
    s->open = false;
    s->index++;
}

static void open_block(struct sse_queue *out, const struct response *r, struct anthropic_stream *s,
                       const struct output_part *part, const char *text) {
    struct buf *b = event_begin(out, "content_block_start");
    buf_fmt(b, ",\"index\":%d,\"content_block\":", s->index);
    if (part->kind == PART_CONTENT) {
        buf_lit(b, "{\"type\":\"text\",\"text\":\"\"}");
    } else if (part->kind == PART_REASONING) {
        buf_lit(b, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    } else {
        buf_lit(b, "{\"type\":\"tool_use\",\"id\":");
        chat_write_call_id_as(b, r, 0, part, text, "toolu_");
        buf_lit(b, ",\"name\":");
        json_quote(b, text + part->begin, part->len);
        buf_lit(b, ",\"input\":{}}");
    }
    event_end(out);
    if (s->index == 0) {
        event_begin(out, "ping");
        event_end(out);
    }
    s->open = true;
    s->kind = part->kind == PART_CALL ? PART_ARGUMENTS : part->kind;
}

static void write_part(struct sse_queue *out, const struct response *r, struct anthropic_stream *s,
                       const struct output_part *part, const char *text) {
    static const char *const deltas[][2] = {[PART_CONTENT] = {"text_delta", "text"},
                                            [PART_REASONING] = {"thinking_delta", "thinking"},
                                            [PART_ARGUMENTS] = {"input_json_delta", "partial_json"}};
    if (!s->open || s->kind != part->kind) {
        close_block(out, r, s);
        open_block(out, r, s, part, text);
    }
    if (part->kind == PART_CALL || part->len == 0)
        return;
    json_quote(delta_begin(out, s, deltas[part->kind][0], deltas[part->kind][1]), text + part->begin,
               part->len);
    delta_end(out);
}

static void write_piece(struct sse_queue *out, const struct response *r, const struct piece *p,
                        const struct usage *usage) {
    struct anthropic_stream *s = r->state;
    struct output_part plain;
    const struct output_part *parts;
    const char *text;
    size_t num = parts_of(p, &plain, &parts, &text);
    for (size_t i = 0; i < num; i++)
        if (!is_hidden(r, &parts[i]))
            write_part(out, r, s, &parts[i], text);
    if (p->finish == FINISH_NONE)
        return;
    close_block(out, r, s);
    struct buf *b = event_begin(out, "message_delta");
    buf_lit(b, ",\"delta\":{");
    write_stop(b, p);
    buf_lit(b, "},");
    write_usage(b, usage);
    event_end(out);
}

static void write_done(struct sse_queue *out, const struct response *r, const struct usage *usage) {
    (void)r, (void)usage;
    event_begin(out, "message_stop");
    event_end(out);
}

static void write_fail(struct sse_queue *out, const struct response *r, const struct api_error *e) {
    (void)r;
    struct buf *b = sse_begin(out);
    buf_lit(b, "event: error\ndata: ");
    write_error(b, e);
    buf_lit(b, "\n\n");
    sse_end(out);
}

// ---- a body

// The block that begins with a part; returns how many of the num parts it has.
static size_t write_block(struct buf *b, const struct response *r, const struct output_part *parts,
                          size_t num, const char *text) {
    struct buf all = {0};
    size_t n = parts->kind == PART_CALL;
    for (enum part_kind kind = n ? PART_ARGUMENTS : parts->kind; n < num && parts[n].kind == kind; n++)
        buf_add(&all, text + parts[n].begin, parts[n].len);
    if (parts->kind == PART_CONTENT) {
        buf_lit(b, "{\"type\":\"text\",\"text\":");
        json_quote(b, all.data, all.len);
    } else if (parts->kind == PART_REASONING) {
        buf_lit(b, "{\"type\":\"thinking\",\"thinking\":");
        json_quote(b, all.data, all.len);
        buf_lit(b, ",\"signature\":");
        json_quote(b, r->id, strlen(r->id));
    } else {
        buf_lit(b, "{\"type\":\"tool_use\",\"id\":");
        chat_write_call_id_as(b, r, 0, parts, text, "toolu_");
        buf_lit(b, ",\"name\":");
        json_quote(b, text + parts->begin, parts->len);
        buf_lit(b, ",\"input\":");
        chat_write_arguments(b, all.data, all.len);
    }
    buf_char(b, '}');
    b->failed |= all.failed;
    buf_free(&all);
    return n;
}

static void write_whole(struct buf *b, const struct response *r, const struct piece *p,
                        const struct usage *usage) {
    struct output_part plain;
    const struct output_part *parts;
    const char *text;
    size_t num = parts_of(p, &plain, &parts, &text);
    bool any = false;
    write_head(b, r);
    for (size_t i = 0; i < num;) {
        if (is_hidden(r, &parts[i])) {
            i++;
            continue;
        }
        if (any)
            buf_char(b, ',');
        any = true;
        i += write_block(b, r, parts + i, num - i, text);
    }
    buf_lit(b, "],");
    write_stop(b, p);
    buf_char(b, ',');
    write_usage(b, usage);
    buf_char(b, '}');
}

const struct api_form anthropic_form = {.error = write_error, .overloaded = 529, .id_header = "request-id"};

const struct dialect anthropic_messages = {
    .id_prefix = "msg_",
    .form = &anthropic_form,
    .parse = anthropic_parse,
    .begin = begin_response,
    .end = end_response,
    .role = write_start,
    .piece = write_piece,
    .done = write_done,
    .fail = write_fail,
    .whole = write_whole,
};
