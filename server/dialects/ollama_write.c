// Responses of Ollama's API: lines of JSON, or one object. Arguments of a call are an object, so a call is kept until it is
// whole.
#include "ollama.h"

#include "openai.h"

#include <stdlib.h>
#include <string.h>

struct ollama_output {
    bool generates;                   // /api/generate: `response`, and `context`
    struct buf ids;                   // of prompt and output, 1,2,3: the context
    struct buf text, thinking, calls; // of a line
    struct buf call, arguments;       // the call that is being written, up to its arguments
    bool in_call;
};

// ---- in parts

void ollama_write_error(struct buf *b, const struct api_error *e) {
    buf_lit(b, "{\"error\":\"");
    if (*e->param) {
        json_escape(b, e->param, strlen(e->param));
        buf_lit(b, ": ");
    }
    json_escape(b, e->message, strlen(e->message));
    buf_lit(b, "\"}");
}

static bool only_loads(const struct response *r) { return r->request->max_tokens == 0; }

static bool output_lost(const struct ollama_output *o) {
    return o->ids.failed || o->text.failed || o->thinking.failed || o->calls.failed || o->call.failed ||
           o->arguments.failed;
}

static void begin_output(struct response *r, bool generates) {
    struct ollama_output *o = r->state = calloc(1, sizeof *o);
    if (o)
        o->generates = generates;
    r->head.failed |= !o;
}
static void begin_chat(struct response *r) { begin_output(r, false); }
static void begin_generate(struct response *r) { begin_output(r, true); }

static void end_output(struct response *r) {
    struct ollama_output *o = r->state;
    struct buf *all[] = {&o->ids, &o->text, &o->thinking, &o->calls, &o->call, &o->arguments};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        buf_free(all[i]);
    free(o);
}

static size_t output_bytes(const struct response *r) {
    const struct ollama_output *o = r->state;
    return o->ids.len + o->text.len + o->thinking.len + o->calls.len + o->call.len + o->arguments.len;
}

// ---- what a piece has

static void begin_call(struct ollama_output *o, const struct response *r, const struct output_part *part,
                       const char *text) {
    buf_clear(&o->call);
    buf_clear(&o->arguments);
    buf_lit(&o->call, "{\"id\":");
    chat_write_call_id(&o->call, r, 0, part, text);
    buf_fmt(&o->call, ",\"function\":{\"index\":%d,\"name\":", part->call);
    json_quote(&o->call, text + part->begin, part->len);
    o->in_call = true;
}

static void end_call(struct ollama_output *o) {
    if (!o->in_call)
        return;
    if (o->calls.len)
        buf_char(&o->calls, ',');
    buf_add(&o->calls, o->call.data, o->call.len);
    buf_lit(&o->calls, ",\"arguments\":");
    chat_write_arguments(&o->calls, o->arguments.data, o->arguments.len);
    buf_lit(&o->calls, "}}");
    o->in_call = false;
}

static void take_ids(struct ollama_output *o, const struct piece *p) {
    for (size_t i = 0; p->prompt && i < p->prompt->len; i++)
        buf_fmt(&o->ids, o->ids.len ? ",%d" : "%d", p->prompt->ids[i]);
    if (!p->token_ids || !p->token_ids->len)
        return;
    if (o->ids.len)
        buf_char(&o->ids, ',');
    buf_add(&o->ids, p->token_ids->data, p->token_ids->len);
}

// True: there is something for a line.
static bool take_piece(struct ollama_output *o, const struct response *r, const struct piece *p) {
    size_t num = 0;
    const char *text = NULL;
    const struct output_part *parts = p->output ? output_parts(p->output, &num, &text) : NULL;
    buf_clear(&o->text);
    buf_clear(&o->thinking);
    buf_clear(&o->calls);
    if (!p->output)
        buf_add(&o->text, p->text, p->len);
    for (size_t i = 0; i < num; i++) {
        struct buf *to = parts[i].kind == PART_CONTENT     ? &o->text
                         : parts[i].kind == PART_REASONING ? &o->thinking
                                                           : &o->arguments;
        if (parts[i].kind != PART_ARGUMENTS)
            end_call(o);
        if (parts[i].kind == PART_CALL)
            begin_call(o, r, &parts[i], text);
        else
            buf_add(to, text + parts[i].begin, parts[i].len);
    }
    if (p->finish != FINISH_NONE)
        end_call(o);
    if (o->generates && !only_loads(r))
        take_ids(o, p);
    return o->text.len || o->thinking.len || o->calls.len || (p->logprobs && p->logprobs->tops.len);
}

// The object up to "done"; of the text only what take_piece() took last.
static void write_content(struct buf *b, const struct response *r, const struct ollama_output *o,
                          const struct logprob_lists *logprobs) {
    buf_lit(b, "{\"model\":");
    json_quote(b, r->request->base.model, strlen(r->request->base.model));
    buf_lit(b, ",\"created_at\":");
    dialect_write_time(b, r->created);
    buf_str(b, o->generates ? ",\"response\":" : ",\"message\":{\"role\":\"assistant\",\"content\":");
    json_quote(b, o->text.data, o->text.len);
    if (o->thinking.len) {
        buf_lit(b, ",\"thinking\":");
        json_quote(b, o->thinking.data, o->thinking.len);
    }
    if (o->calls.len) {
        buf_lit(b, ",\"tool_calls\":[");
        buf_add(b, o->calls.data, o->calls.len);
        buf_char(b, ']');
    }
    if (!o->generates)
        buf_char(b, '}');
    if (logprobs && logprobs->tops.len) {
        buf_lit(b, ",\"logprobs\":[");
        buf_add(b, logprobs->tops.data, logprobs->tops.len);
        buf_char(b, ']');
    }
    b->failed |= output_lost(o);
}

static long long ns(double ms) { return (long long)(ms * 1e6); }

// From "done" on, of a response that ends.
static void write_end(struct buf *b, const struct response *r, const struct ollama_output *o,
                      const struct piece *p, const struct usage *u) {
    const struct timings *t = &r->timings;
    buf_fmt(b, ",\"done\":true,\"done_reason\":\"%s\"",
            only_loads(r)                ? "load"
            : p->finish == FINISH_LENGTH ? "length"
                                         : "stop");
    if (o->ids.len) {
        buf_lit(b, ",\"context\":[");
        buf_add(b, o->ids.data, o->ids.len);
        buf_char(b, ']');
    }
    buf_fmt(b, ",\"total_duration\":%lld,\"load_duration\":0", ns(t->total_ms));
    if (!only_loads(r))
        buf_fmt(b,
                ",\"prompt_eval_count\":%lld,\"prompt_eval_duration\":%lld,\"eval_count\":%lld,\"eval_"
                "duration\":%lld",
                (long long)u->prompt, ns(t->prompt_ms), (long long)u->completion, ns(t->generation_ms));
    buf_char(b, '}');
}

// ---- a stream, a body

static void write_piece(struct sse_queue *out, const struct response *r, const struct piece *p,
                        const struct usage *usage) {
    struct ollama_output *o = r->state;
    if (take_piece(o, r, p)) {
        struct buf *b = sse_begin(out);
        write_content(b, r, o, p->logprobs);
        buf_lit(b, ",\"done\":false}\n");
        sse_end(out);
    }
    if (p->finish == FINISH_NONE)
        return;
    struct buf *b = sse_begin(out);
    buf_clear(&o->text);
    buf_clear(&o->thinking);
    buf_clear(&o->calls);
    write_content(b, r, o, NULL);
    write_end(b, r, o, p, usage);
    buf_char(b, '\n');
    sse_end(out);
}

static void write_done(struct sse_queue *out, const struct response *r, const struct usage *usage) {
    (void)out, (void)r, (void)usage; // the line with "done": true is the last one
}

static void write_fail(struct sse_queue *out, const struct response *r, const struct api_error *e) {
    (void)r;
    struct buf *b = sse_begin(out);
    ollama_write_error(b, e);
    buf_char(b, '\n');
    sse_end(out);
}

static void write_whole(struct buf *b, const struct response *r, const struct piece *p,
                        const struct usage *usage) {
    struct ollama_output *o = r->state;
    take_piece(o, r, p);
    write_content(b, r, o, p->logprobs);
    write_end(b, r, o, p, usage);
}

const struct api_form ollama_form = {.error = ollama_write_error, .any_type = true};

const struct dialect ollama_chat = {.id_prefix = "chat-",
                                    .form = &ollama_form,
                                    .is_lines = true,
                                    .parse = ollama_parse_chat,
                                    .begin = begin_chat,
                                    .end = end_output,
                                    .state_bytes = output_bytes,
                                    .logprob = openai_chat_logprob,
                                    .piece = write_piece,
                                    .done = write_done,
                                    .fail = write_fail,
                                    .whole = write_whole};

const struct dialect ollama_generate = {.id_prefix = "gen-",
                                        .form = &ollama_form,
                                        .is_lines = true,
                                        .parse = ollama_parse_generate,
                                        .begin = begin_generate,
                                        .end = end_output,
                                        .state_bytes = output_bytes,
                                        .logprob = openai_chat_logprob,
                                        .piece = write_piece,
                                        .done = write_done,
                                        .fail = write_fail,
                                        .whole = write_whole};

// ---- vectors

static void write_vectors(struct buf *b, const struct vector_response *r) {
    buf_lit(b, "{\"model\":");
    json_quote(b, r->request->base.model, strlen(r->request->base.model));
    buf_lit(b, ",\"embeddings\":[");
    for (size_t i = 0; i < r->request->base.num_prompts; i++) {
        if (i)
            buf_char(b, ',');
        openai_write_vector(b, r, i);
    }
    buf_fmt(b, "],\"total_duration\":%lld,\"load_duration\":0,\"prompt_eval_count\":%lld}", ns(r->total_ms),
            (long long)r->num_prompt);
}

static void write_one_vector(struct buf *b, const struct vector_response *r) {
    buf_lit(b, "{\"embedding\":");
    openai_write_vector(b, r, 0);
    buf_char(b, '}');
}

const struct vector_dialect ollama_embed = {
    .id_prefix = "embd-", .form = &ollama_form, .parse = ollama_parse_embed, .write = write_vectors};

const struct vector_dialect ollama_embeddings = {
    .id_prefix = "embd-", .form = &ollama_form, .parse = ollama_parse_embeddings, .write = write_one_vector};
