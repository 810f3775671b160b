// Events and bodies of /v1/responses. The output is a list of items, reasoning, messages and calls, one open at a time:
// a part of another kind closes it. A body is the response that the last event of a stream would carry.
#include "responses.h"

#include "api/rewrite.h"

#include <stdlib.h>
#include <string.h>

enum responses_item {
    ITEM_NONE,
    ITEM_REASONING,
    ITEM_MESSAGE,
    ITEM_CALL,
    ITEM_CUSTOM,
    ITEM_SHELL,
    ITEM_PATCH
};
static const char *const item_types[] = {
    "", "reasoning", "message", "function_call", "custom_tool_call", "local_shell_call", "apply_patch_call"};

struct responses_state {
    int64_t sequence;         // of the next event
    int num_items;            // begun
    bool queued;              // and no event has said otherwise
    enum responses_item open; // the last one
    struct buf output;        // the closed items, with commas between them
    struct buf text;     // of the open item; of a call its arguments, of a custom one that ends its input
    struct buf logprobs; // of the open message
    struct buf call;     // ,"call_id":…,"name":… of the open call
    struct buf name;     // its name, quoted
    enum finish_reason finish;
};

// Where a response goes: events, where out is not NULL; the state in any case.
struct responses_writer {
    struct sse_queue *out;
    const struct response *r;
    struct responses_state *s;
};

static struct responses_writer writer_of(struct sse_queue *out, const struct response *r) {
    return (struct responses_writer){out, r, r->state};
}

void responses_begin(struct response *r) {
    struct buf *b = &r->head;
    if (!(r->state = calloc(1, sizeof(struct responses_state))))
        b->failed = true;
    buf_lit(b, "{\"id\":");
    json_quote(b, r->id, strlen(r->id));
    buf_lit(b, ",\"object\":\"response\",\"created_at\":");
    buf_int(b, r->created);
    buf_add(b, r->request->repeated.data, r->request->repeated.len);
}

void responses_end(struct response *r) {
    struct responses_state *s = r->state;
    if (!s)
        return;
    buf_free(&s->output);
    buf_free(&s->text);
    buf_free(&s->logprobs);
    buf_free(&s->call);
    buf_free(&s->name);
    free(s);
    r->state = NULL;
}

size_t responses_state_bytes(const struct response *r) {
    const struct responses_state *s = r->state;
    return s ? s->output.len + s->text.len + s->logprobs.len : 0;
}

// ---- items

static void append_buf(struct buf *b, const struct buf *more) {
    buf_add(b, more->data, more->len);
    b->failed |= more->failed;
}

// "item_id":"msg_…", with `name` in place of item_id. As long as the response, and one of its own for each item.
static void write_item_id(struct buf *b, const struct responses_writer *w, const char *name) {
    static const char *const prefix[] = {"", "rs", "msg", "fc", "ctc", "lsh", "apc"};
    char id[REQUEST_ID_SIZE + 24];
    const char *own = w->r->id + strlen(RESPONSES_PREFIX);
    int n = snprintf(id, sizeof id, "%s_%s_%d", prefix[w->s->open], own, w->s->num_items - 1);
    buf_fmt(b, "\"%s\":", name);
    json_quote(b, id, (size_t)n);
}

static void write_text_part(struct buf *b, const struct responses_state *s) {
    bool message = s->open == ITEM_MESSAGE;
    buf_fmt(b, "{\"type\":\"%s\",\"text\":", message ? "output_text" : "reasoning_text");
    json_quote(b, s->text.data, s->text.len);
    if (message) {
        buf_lit(b, ",\"annotations\":[],\"logprobs\":[");
        append_buf(b, &s->logprobs);
        buf_char(b, ']');
    }
    buf_char(b, '}');
}

// The open item as it is so far; before its first part where `empty`.
static void write_item(struct buf *b, const struct responses_writer *w, const char *status, bool empty) {
    const struct responses_state *s = w->s;
    buf_char(b, '{');
    write_item_id(b, w, "id");
    buf_fmt(b, ",\"type\":\"%s\",\"status\":\"%s\"", item_types[s->open], status);
    if (s->open >= ITEM_SHELL) {
        append_buf(b, &s->call);
        responses_write_typed(b, item_types[s->open], &s->text);
    } else if (s->open >= ITEM_CALL) {
        append_buf(b, &s->call);
        buf_str(b, s->open == ITEM_CUSTOM ? ",\"input\":" : ",\"arguments\":");
        json_quote(b, s->text.data, empty ? 0 : s->text.len);
    } else {
        buf_str(b, s->open == ITEM_MESSAGE ? ",\"role\":\"assistant\",\"content\":["
                                           : ",\"summary\":[],\"content\":[");
        if (!empty)
            write_text_part(b, s);
        buf_char(b, ']');
    }
    buf_char(b, '}');
    b->failed |= s->text.failed;
}

// ---- events

// {"type":TYPE,"sequence_number":N to event_end().
static struct buf *event_begin(const struct responses_writer *w, const char *type) {
    struct buf *b = sse_begin(w->out);
    buf_fmt(b, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%lld", type, type,
            (long long)w->s->sequence++);
    return b;
}

static void event_end(const struct responses_writer *w) {
    buf_lit(&w->out->bytes, "}\n\n");
    sse_end(w->out);
}

// An event of the open item; of its content where `content`.
static struct buf *item_event(const struct responses_writer *w, const char *type, bool content) {
    struct buf *b = event_begin(w, type);
    buf_char(b, ',');
    write_item_id(b, w, "item_id");
    buf_fmt(b, ",\"output_index\":%d", w->s->num_items - 1);
    if (content)
        buf_lit(b, ",\"content_index\":0");
    return b;
}

static void write_item_event(const struct responses_writer *w, const char *type, const char *status,
                             bool empty) {
    struct buf *b = event_begin(w, type);
    buf_fmt(b, ",\"output_index\":%d,\"item\":", w->s->num_items - 1);
    write_item(b, w, status, empty);
    event_end(w);
}

static void write_part_event(const struct responses_writer *w, const char *type) {
    struct buf *b = item_event(w, type, true);
    buf_lit(b, ",\"part\":");
    write_text_part(b, w->s);
    event_end(w);
}

// ,"NAME":TEXT, and of a message's text the log-probabilities.
static void write_text_event(const struct responses_writer *w, const char *type, const char *name,
                             const char *text, size_t len, const struct buf *logprobs) {
    struct buf *b = item_event(w, type, true);
    buf_fmt(b, ",\"%s\":", name);
    json_quote(b, text, len);
    if (w->s->open == ITEM_MESSAGE) {
        buf_lit(b, ",\"logprobs\":[");
        if (logprobs)
            append_buf(b, logprobs);
        buf_char(b, ']');
    }
    event_end(w);
}

// ---- the output

static void close_item(const struct responses_writer *w, const char *status) {
    struct responses_state *s = w->s;
    if (s->open == ITEM_NONE)
        return;
    if (s->open == ITEM_CUSTOM)
        responses_custom_input(&s->text);
    if (s->open == ITEM_PATCH && strcmp(status, "incomplete") == 0)
        status = "in_progress";          // these have no other word for it
    if (w->out && s->open >= ITEM_SHELL) // the action is known now
        write_item_event(w, "response.output_item.added", "in_progress", false);
    else if (w->out && s->open == ITEM_CUSTOM) {
        static const char *const ends[][2] = {{"delta", "delta"}, {"done", "input"}};
        for (int i = 0; i < 2; i++) {
            char type[48];
            snprintf(type, sizeof type, "response.custom_tool_call_input.%s", ends[i][0]);
            struct buf *b = item_event(w, type, false);
            buf_fmt(b, ",\"%s\":", ends[i][1]);
            json_quote(b, s->text.data, s->text.len);
            event_end(w);
        }
    } else if (w->out && s->open == ITEM_CALL) {
        struct buf *b = item_event(w, "response.function_call_arguments.done", false);
        buf_lit(b, ",\"name\":");
        append_buf(b, &s->name);
        buf_lit(b, ",\"arguments\":");
        json_quote(b, s->text.data, s->text.len);
        event_end(w);
    } else if (w->out) {
        write_text_event(
            w, s->open == ITEM_MESSAGE ? "response.output_text.done" : "response.reasoning_text.done", "text",
            s->text.data, s->text.len, &s->logprobs);
        write_part_event(w, "response.content_part.done");
    }
    if (w->out)
        write_item_event(w, "response.output_item.done", status, false);
    if (s->output.len)
        buf_char(&s->output, ',');
    write_item(&s->output, w, status, false);
    s->open = ITEM_NONE;
    buf_clear(&s->text);
    buf_clear(&s->logprobs);
    buf_clear(&s->call);
    buf_clear(&s->name);
}

static void open_item(const struct responses_writer *w, enum responses_item kind) {
    w->s->open = kind;
    w->s->num_items++;
    if (w->out && kind < ITEM_SHELL)
        write_item_event(w, "response.output_item.added", "in_progress", true);
    if (w->out && kind < ITEM_CALL)
        write_part_event(w, "response.content_part.added");
}

static void open_call(const struct responses_writer *w, int index, const struct output_part *part,
                      const char *text) {
    struct responses_state *s = w->s;
    buf_lit(&s->call, ",\"call_id\":");
    chat_write_call_id(&s->call, w->r, index, part, text);
    char flat[160];
    snprintf(flat, sizeof flat, "%.*s", (int)part->len, text + part->begin);
    const json_t *known = json_object_get(w->r->request->foreign_tools, flat),
                 *name = json_object_get(known, "name"), *namespace = json_object_get(known, "namespace");
    const char *item = json_string_value(json_object_get(known, "item"));
    enum responses_item kind = ITEM_CALL;
    for (enum responses_item k = ITEM_CUSTOM; item && k <= ITEM_PATCH; k++)
        if (strcmp(item, item_types[k]) == 0)
            kind = k;
    if (known)
        json_quote(&s->name, json_string_value(name), json_string_length(name));
    else
        json_quote(&s->name, text + part->begin, part->len);
    if (kind < ITEM_SHELL) {
        buf_lit(&s->call, ",\"name\":");
        append_buf(&s->call, &s->name);
    }
    if (namespace) {
        buf_lit(&s->call, ",\"namespace\":");
        json_quote(&s->call, json_string_value(namespace), json_string_length(namespace));
    }
    open_item(w, kind);
}

static void add_text(const struct responses_writer *w, enum responses_item kind, const char *text, size_t len,
                     const struct buf *logprobs) {
    struct responses_state *s = w->s;
    if (s->open != kind) {
        close_item(w, "completed");
        open_item(w, kind);
    }
    buf_add(&s->text, text, len);
    if (logprobs && logprobs->len) {
        if (s->logprobs.len)
            buf_char(&s->logprobs, ',');
        append_buf(&s->logprobs, logprobs);
    }
    if (w->out)
        write_text_event(
            w, kind == ITEM_MESSAGE ? "response.output_text.delta" : "response.reasoning_text.delta", "delta",
            text, len, logprobs);
}

static void add_arguments(const struct responses_writer *w, const char *text, size_t len) {
    buf_add(&w->s->text, text, len);
    if (!w->out || w->s->open != ITEM_CALL) // the others need their whole object
        return;
    struct buf *b = item_event(w, "response.function_call_arguments.delta", false);
    buf_lit(b, ",\"delta\":");
    json_quote(b, text, len);
    event_end(w);
}

// A piece's log-probabilities go out with its first text.
static void add_parts(const struct responses_writer *w, const struct piece *p) {
    size_t num;
    const char *text;
    const struct output_part *parts = output_parts(p->output, &num, &text);
    const struct buf *logprobs = p->logprobs ? &p->logprobs->tops : NULL;
    for (size_t i = 0; i < num; i++) {
        const char *bytes = text + parts[i].begin;
        switch (parts[i].kind) {
        case PART_REASONING:
            if (!w->r->request->hides_reasoning)
                add_text(w, ITEM_REASONING, bytes, parts[i].len, NULL);
            break;
        case PART_CONTENT:
            add_text(w, ITEM_MESSAGE, bytes, parts[i].len, logprobs);
            logprobs = NULL;
            break;
        case PART_CALL:
            close_item(w, "completed");
            open_call(w, p->index, &parts[i], text);
            break;
        case PART_ARGUMENTS: add_arguments(w, bytes, parts[i].len); break;
        }
    }
}

static void add_piece(const struct responses_writer *w, const struct piece *p) {
    if (p->output)
        add_parts(w, p);
    else if (p->len || (p->logprobs && p->logprobs->tops.len))
        add_text(w, ITEM_MESSAGE, p->text, p->len, p->logprobs ? &p->logprobs->tops : NULL);
    if (p->finish != FINISH_NONE)
        w->s->finish = p->finish;
}

// An output without any item is an empty message.
static void end_output(const struct responses_writer *w) {
    if (w->s->num_items == 0)
        open_item(w, ITEM_MESSAGE);
    close_item(w, w->s->finish == FINISH_LENGTH ? "incomplete" : "completed");
}

// ---- the response

void responses_write_usage(struct buf *b, const struct usage *usage) {
    buf_fmt(b,
            ",\"usage\":{\"input_tokens\":%lld,\"input_tokens_details\":{\"cached_tokens\":%lld,"
            "\"cache_write_tokens\":0},\"output_tokens\":%lld,",
            (long long)usage->prompt, (long long)usage->cached, (long long)usage->completion);
    buf_fmt(b, "\"output_tokens_details\":{\"reasoning_tokens\":%lld},\"total_tokens\":%lld}",
            (long long)(usage->reasoning > 0 ? usage->reasoning : 0),
            (long long)(usage->prompt + usage->completion));
}

// usage: where it has ended; e: where it has failed. r->state NULL: nothing is said of the output.
static void write_response(struct buf *b, const struct response *r, enum response_stage stage,
                           const struct usage *usage, const struct api_error *e) {
    static const char *const names[] = {"queued", "in_progress", "completed", "failed", "cancelled"};
    const struct responses_state *s = r->state;
    bool cut = stage == RESPONSE_ENDED && s->finish == FINISH_LENGTH;
    buf_add(b, r->head.data, r->head.len);
    buf_str(b, r->request->items.len && !r->unkept ? ",\"store\":true" : ",\"store\":false");
    buf_fmt(b, ",\"status\":\"%s\"", cut ? "incomplete" : names[stage]);
    buf_lit(b, ",\"completed_at\":");
    if (stage == RESPONSE_ENDED && !cut)
        buf_int(b, r->created + (int64_t)(r->timings.total_ms / 1e3));
    else
        buf_lit(b, "null");
    buf_str(b, cut ? ",\"incomplete_details\":{\"reason\":\"max_output_tokens\"}"
                   : ",\"incomplete_details\":null");
    if (e) {
        buf_fmt(b, ",\"error\":{\"code\":\"%s\",\"message\":",
                e->status < 500 ? "invalid_prompt" : "server_error");
        json_quote(b, e->message, strlen(e->message));
        buf_char(b, '}');
    } else {
        buf_lit(b, ",\"error\":null");
    }
    buf_lit(b, ",\"output\":[");
    if (s)
        append_buf(b, &s->output);
    buf_char(b, ']');
    if (usage) {
        responses_write_usage(b, usage);
        if (r->request->timings)
            openai_write_timings(b, &r->timings);
    }
    buf_char(b, '}');
}

void responses_ended(struct buf *body, struct buf *events) {
    json_t *response = json_loadb(body->data, body->len, JSON_ALLOW_NUL, NULL);
    json_t *error = json_pack("{s:s, s:s}", "code", "server_error", "message",
                              "The server ended while it made this response.");
    body->failed |= json_object_set_new(response, "status", json_string("failed")) != 0;
    body->failed |= json_object_set_new(response, "error", error) != 0;
    buf_clear(body);
    rewrite_json(body, response);
    json_decref(response);
    if (!events->len)
        return;
    int64_t sequence = 0;
    for (size_t at = 0; at + sizeof(uint32_t) <= events->len; sequence++) {
        uint32_t n;
        memcpy(&n, events->data + at, sizeof n);
        at += sizeof n + n;
    }
    struct responses_state state = {.sequence = sequence};
    struct sse_queue out = {.bytes = *events};
    const struct responses_writer w = {.out = &out, .s = &state};
    struct buf *b = event_begin(&w, "response.failed");
    buf_lit(b, ",\"response\":");
    append_buf(b, body);
    event_end(&w);
    *events = out.bytes;
}

void responses_snapshot(struct buf *b, const struct response *r, enum response_stage stage,
                        const struct usage *usage, const struct api_error *e) {
    write_response(b, r, stage, usage, e);
}

static void write_response_event(const struct responses_writer *w, const char *type,
                                 enum response_stage stage, const struct usage *usage,
                                 const struct api_error *e) {
    struct buf *b = event_begin(w, type);
    buf_lit(b, ",\"response\":");
    write_response(b, w->r, stage, usage, e);
    event_end(w);
}

void responses_created(struct sse_queue *out, const struct response *r, const struct usage *usage) {
    (void)usage;
    const struct responses_writer w = writer_of(out, r);
    enum response_stage stage = r->request->background ? RESPONSE_QUEUED : RESPONSE_RUNNING;
    w.s->queued = r->request->background;
    write_response_event(&w, "response.created", stage, NULL, NULL);
    write_response_event(&w, w.s->queued ? "response.queued" : "response.in_progress", stage, NULL, NULL);
}

void responses_piece(struct sse_queue *out, const struct response *r, const struct piece *p,
                     const struct usage *usage) {
    (void)usage;
    const struct responses_writer w = writer_of(out, r);
    if (w.s->queued)
        write_response_event(&w, "response.in_progress", RESPONSE_RUNNING, NULL, NULL);
    w.s->queued = false;
    add_piece(&w, p);
    if (p->finish != FINISH_NONE)
        end_output(&w);
}

void responses_done(struct sse_queue *out, const struct response *r, const struct usage *usage) {
    const struct responses_writer w = writer_of(out, r);
    end_output(&w);
    write_response_event(&w, w.s->finish == FINISH_LENGTH ? "response.incomplete" : "response.completed",
                         RESPONSE_ENDED, usage, NULL);
}

void responses_fail(struct sse_queue *out, const struct response *r, const struct api_error *e) {
    const struct responses_writer w = writer_of(out, r);
    if (!w.s) // no memory for it
        return;
    if (!e) { // no event has this name of its own
        close_item(&w, "incomplete");
        write_response_event(&w, "response.incomplete", RESPONSE_CANCELLED, NULL, NULL);
        return;
    }
    if (w.s->sequence == 0) // clients take no other event before it
        write_response_event(&w, "response.created", RESPONSE_RUNNING, NULL, NULL);
    struct buf *b = event_begin(&w, "error");
    buf_lit(b, ",\"code\":");
    if (e->code)
        json_quote(b, e->code, strlen(e->code));
    else
        buf_lit(b, "null");
    buf_lit(b, ",\"message\":");
    json_quote(b, e->message, strlen(e->message));
    buf_lit(b, ",\"param\":null");
    event_end(&w);
    write_response_event(&w, "response.failed", RESPONSE_FAILED, NULL, e);
}

void responses_whole(struct buf *b, const struct response *r, const struct piece *pieces,
                     const struct usage *usage) {
    const struct responses_writer w = writer_of(NULL, r);
    add_piece(&w, &pieces[0]);
    end_output(&w);
    write_response(b, r, RESPONSE_ENDED, usage, NULL);
}
