// Shapes are those of docs/openapi.json of huggingface/text-generation-inference at db931fc. A request is rewritten as one of
// /v1/completions, whose other fields `parameters` may have, too.
#include "tgi.h"

#include "api/rewrite.h"
#include "openai.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

// ---- in

static const struct tgi_name {
    const char *theirs, *ours;
} names[] = {
    {"inputs", "prompt"},         {"max_new_tokens", "max_tokens"}, {"truncate", "truncate_prompt_tokens"},
    {"top_n_tokens", "logprobs"}, {"adapter_id", "model"},          {"grammar", "structured_outputs"},
};
enum { NUM_NAMES = sizeof names / sizeof names[0] };

static const char *own_name(const char *theirs) {
    for (int i = 0; i < NUM_NAMES; i++)
        if (strcmp(theirs, names[i].theirs) == 0)
            return names[i].ours;
    return theirs;
}

// An error speaks of the fields that the client has sent.
static void name_fields(struct api_error *e) {
    for (int i = 0; i < NUM_NAMES; i++) {
        size_t n = strlen(names[i].ours);
        if (strncmp(e->param, names[i].ours, n) != 0 || (e->param[n] && !strchr(".[", e->param[n])))
            continue;
        snprintf(e->param, sizeof e->param, "%s", names[i].theirs);
        char ours[40], text[sizeof e->message];
        int quoted = snprintf(ours, sizeof ours, "'%s", names[i].ours);
        char *at = strstr(e->message, ours);
        if (!at)
            return;
        snprintf(text, sizeof text, "%.*s'%s%s", (int)(at - e->message), e->message, names[i].theirs,
                 at + quoted);
        memcpy(e->message, text, sizeof text);
        return;
    }
}

// {"type": "json" | "json_schema" | "regex", "value": …}; json_schema has its schema one level below.
static bool rewrite_grammar(json_t *out, const json_t *grammar, struct api_error *e) {
    const char *type = json_string_value(json_object_get(grammar, "type"));
    json_t *value = json_object_get(grammar, "value");
    if (type && strcmp(type, "json_schema") == 0)
        value = json_object_get(value, "schema");
    bool regex = type && strcmp(type, "regex") == 0;
    if (!value || (!regex && strncmp(type ? type : "", "json", 4) != 0))
        return api_fail(
            e, 400, "invalid_type", "grammar",
            "'grammar' must be {\"type\": \"json\", \"json_schema\" or \"regex\", \"value\": …}.");
    json_t *outputs = json_object();
    return rewrite_set(outputs, regex ? "regex" : "json", json_incref(value), e)
               ? rewrite_set(out, "structured_outputs", outputs, e)
               : (json_decref(outputs), false);
}

// It samples where it is told to, or where a stage asks for more than the likeliest token.
static bool samples(const json_t *p) {
    static const char *const stages[] = {"temperature", "top_p", "typical_p"};
    for (int i = 0; i < 3; i++) {
        const json_t *v = field_get(p, stages[i]);
        if (v && json_number_value(v) != 1)
            return true;
    }
    return json_is_true(field_get(p, "do_sample")) || field_get(p, "top_k");
}

static bool refuse(struct api_error *e, const char *name, const char *why) {
    return api_fail(e, 400, "unsupported_parameter", name, "'%s' %s", name, why);
}

// p: `parameters`, an object.
static bool rewrite_parameters(json_t *out, json_t *p, bool stream, struct api_error *e) {
    static const char *const other[] = {"echo",  "n", "prompt_logprobs", "stream_options", "return_token_ids",
                                        "suffix"};
    const char *name;
    json_t *value;
    if (json_integer_value(json_object_get(p, "best_of")) > 1)
        return refuse(e, "best_of", "is not supported: one sequence is generated.");
    if (json_is_true(json_object_get(p, "watermark")))
        return refuse(e, "watermark", "is not supported.");
    if (stream && json_is_true(json_object_get(p, "decoder_input_details")))
        return refuse(e, "decoder_input_details", "is not for streams.");
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        if (field_get(p, other[i]))
            return refuse(e, other[i], "is for /v1/completions.");
    json_object_foreach(p, name, value) {
        static const char *const read_here[] = {"best_of", "watermark",        "decoder_input_details",
                                                "details", "return_full_text", "do_sample",
                                                "grammar"};
        bool here = json_is_null(value);
        for (size_t i = 0; i < sizeof read_here / sizeof read_here[0]; i++)
            here |= strcmp(name, read_here[i]) == 0;
        if (!here && !rewrite_set(out, own_name(name), json_incref(value), e))
            return false;
    }
    const json_t *grammar = field_get(p, "grammar");
    return (samples(p) || rewrite_set(out, "temperature", json_integer(0), e)) &&
           (!grammar || rewrite_grammar(out, grammar, e));
}

enum { ASKS_NO, ASKS_YES, ASKS_IN_BODY };

struct tgi_wishes {
    bool stream, details, full_text, prefill;
};

static bool read_wishes(struct tgi_wishes *w, const json_t *root, const json_t *p, int streams,
                        struct api_error *e) {
    static const struct field fields[] = {
        {"details", F_BOOL, 0, 0, false, offsetof(struct tgi_wishes, details)},
        {"return_full_text", F_BOOL, 0, 0, false, offsetof(struct tgi_wishes, full_text)},
        {"decoder_input_details", F_BOOL, 0, 0, false, offsetof(struct tgi_wishes, prefill)},
    };
    static const struct field stream = {"stream", F_BOOL, 0, 0, false, offsetof(struct tgi_wishes, stream)};
    *w = (struct tgi_wishes){.stream = streams == ASKS_YES};
    return fields_read(w, fields, 3, p, e) &&
           (streams != ASKS_IN_BODY || fields_read(w, &stream, 1, root, e));
}

static bool read_prompt(struct completion_request *r, const struct served_model *m, const json_t *root,
                        struct api_error *e) {
    return openai_read_prompts(r, m, root, "prompt", 1, NULL, e);
}

static json_t *rewrite_body(json_t *root, struct tgi_wishes *w, int streams, struct api_error *e) {
    static const char sglang[] =
        "'inputs' is missing; SGLang's own form is not supported: /v1/completions takes OpenAI's.";
    const json_t *inputs = field_get(root, "inputs");
    json_t *p = json_object_get(root, "parameters"), *out = json_object(), *none = json_object();
    bool ok = (out && none) || api_fail_memory(e);
    p = !p || json_is_null(p) ? none : p;
    if (ok && !json_is_string(inputs))
        ok = api_fail(e, 400, inputs ? "invalid_type" : "missing_required_parameter", "inputs", "%s",
                      inputs                    ? "'inputs' must be a string."
                      : field_get(root, "text") ? sglang
                                                : "'inputs' is missing.");
    if (ok && !json_is_object(p))
        ok = api_fail(e, 400, "invalid_type", "parameters", "'parameters' must be an object.");
    ok = ok && read_wishes(w, root, p, streams, e) && rewrite_parameters(out, p, w->stream, e) &&
         rewrite_copy(out, "prompt", root, "inputs", e) &&
         rewrite_set(out, "stream", json_boolean(w->stream), e) &&
         rewrite_set(out, "include_stop_str_in_output", json_true(), e) &&
         (!w->prefill || rewrite_set(out, "prompt_logprobs", json_integer(0), e));
    if (ok && !field_get(out, "logprobs") && (w->stream || w->details || w->prefill))
        ok = rewrite_set(out, "logprobs", json_integer(0), e);
    if (!ok) {
        json_decref(out);
        out = NULL;
    }
    json_decref(none);
    return out;
}

// For the response: r->response_fields has `details`; r->repeated the prompt's text.
static bool parse_by(struct completion_request *r, const struct served_model *m, const char *body, size_t len,
                     int streams, struct api_error *e) {
    struct tgi_wishes wishes = {0};
    json_t *root = body_load(body, len, e), *own = root ? rewrite_body(root, &wishes, streams, e) : NULL;
    bool ok = openai_completions_read(r, m, own, read_prompt, INT_MAX, e);
    const json_t *inputs = field_get(root, "inputs");
    if (ok && r->structured) // it is compiled later
        snprintf(r->structured->param, sizeof r->structured->param, "grammar");
    if (ok && wishes.full_text)
        json_escape(&r->repeated, json_string_value(inputs), json_string_length(inputs));
    if (ok && (wishes.details || wishes.prefill))
        buf_add(&r->response_fields, "details", sizeof "details");
    json_decref(root);
    if (ok && (r->repeated.failed || r->response_fields.failed)) {
        completion_request_free(r);
        ok = api_fail_memory(e);
    }
    if (!ok)
        name_fields(e);
    return ok;
}

static bool parse_generate(struct completion_request *r, const struct served_model *m, const char *body,
                           size_t len, struct api_error *e) {
    return parse_by(r, m, body, len, ASKS_NO, e);
}

static bool parse_stream(struct completion_request *r, const struct served_model *m, const char *body,
                         size_t len, struct api_error *e) {
    return parse_by(r, m, body, len, ASKS_YES, e);
}

static bool parse_root(struct completion_request *r, const struct served_model *m, const char *body,
                       size_t len, struct api_error *e) {
    return parse_by(r, m, body, len, ASKS_IN_BODY, e);
}

// ---- out: tokens

struct tgi_token { // of logprob_lists.values; its alternatives, as JSON, lie in .tops
    token_id id;
    float logprob;
    size_t top, top_len;
};

struct tgi_output {
    struct buf text, held; // of the response so far; of pieces without a token
    int num;               // events
    token_id last;
};

static void begin(struct response *r) {
    r->state = calloc(1, sizeof(struct tgi_output));
    r->head.failed |= !r->state;
}

static void end(struct response *r) {
    struct tgi_output *o = r->state;
    if (o) {
        buf_free(&o->text);
        buf_free(&o->held);
    }
    free(o);
}

static size_t output_bytes(const struct response *r) {
    const struct tgi_output *o = r->state;
    return o->text.len + o->held.len;
}

// text NULL: the token's own
static void write_token(struct buf *b, const struct response *r, token_id id, float logprob, const char *text,
                        size_t len) {
    bool special = tokenizer_is_special(r->model->tokenizer, id) && !len;
    if (!text || special)
        text = openai_token_text(r->model->tokenizer, id, &len);
    buf_fmt(b, "{\"id\":%d,\"text\":", id);
    json_quote(b, text, len);
    buf_lit(b, ",\"logprob\":");
    json_float(b, logprob);
    buf_fmt(b, ",\"special\":%s}", special ? "true" : "false");
}

static void add_logprob(struct logprob_lists *l, const struct response *r, const struct service_event *ev,
                        int64_t offset) {
    (void)offset;
    struct tgi_token t = {.id = ev->token, .logprob = ev->logprob, .top = l->tops.len};
    for (int i = 0; i < ev->num_top && i < r->request->logprobs && ev->top_ids[i] >= 0; i++) {
        if (i)
            buf_char(&l->tops, ',');
        write_token(&l->tops, r, ev->top_ids[i], ev->top_logprobs[i], NULL, 0);
    }
    t.top_len = l->tops.len - t.top;
    buf_add(&l->values, &t, sizeof t);
}

static void write_prefill(struct buf *b, const struct response *r, token_id id, float logprob, bool first) {
    size_t len;
    const char *text = openai_token_text(r->model->tokenizer, id, &len);
    buf_fmt(b, "{\"id\":%d,\"text\":", id);
    json_quote(b, text, len);
    buf_lit(b, ",\"logprob\":");
    if (first)
        buf_lit(b, "null");
    else
        json_float(b, logprob);
    buf_char(b, '}');
}

static void add_prompt_logprob(struct buf *b, const struct response *r, const struct service_event *ev) {
    buf_char(b, ',');
    write_prefill(b, r, ev->token, ev->logprob, false);
}

static size_t num_tokens(const struct piece *p) {
    return p->logprobs ? p->logprobs->values.len / sizeof(struct tgi_token) : 0;
}

static struct tgi_token token_at(const struct piece *p, size_t i) {
    struct tgi_token t;
    memcpy(&t, p->logprobs->values.data + i * sizeof t, sizeof t);
    return t;
}

static void write_tops(struct buf *b, const struct piece *p, const struct tgi_token *t) {
    buf_char(b, '[');
    if (t->top_len)
        buf_add(b, p->logprobs->tops.data + t->top, t->top_len);
    buf_char(b, ']');
}

// ---- out: what ends it

static void write_reason(struct buf *b, const struct response *r, const struct piece *p) {
    bool stop = p->stop, limit = p->finish == FINISH_LENGTH || p->limited;
    const struct completion_request *q = r->request;
    buf_fmt(b, "{\"finish_reason\":\"%s\",\"generated_tokens\":%d,\"seed\":",
            stop    ? "stop_sequence"
            : limit ? "length"
                    : "eos_token",
            p->num_tokens);
    if (q->has_seed && q->sampling.temperature > 0)
        buf_int(b, q->seed);
    else
        buf_lit(b, "null");
}

static void write_text(struct buf *b, const struct response *r, const char *text, size_t len) {
    buf_char(b, '"');
    buf_add(b, r->request->repeated.data, r->request->repeated.len);
    json_escape(b, text, len);
    buf_char(b, '"');
}

// ---- out: a stream

// Whether the tokens' own texts are the text.
static bool texts_match(const struct response *r, const struct piece *p, const struct buf *text) {
    size_t at = 0, len;
    for (size_t i = 0; i < num_tokens(p); i++) {
        const char *own = tokenizer_bytes(r->model->tokenizer, token_at(p, i).id, false, &len);
        if (len > text->len - at || (len && memcmp(text->data + at, own, len) != 0))
            return false;
        at += len;
    }
    return at == text->len;
}

static void write_event(struct sse_queue *out, const struct response *r, const struct piece *p,
                        const struct tgi_token *t, const char *text, size_t len, bool last) {
    struct tgi_output *o = r->state;
    struct buf *b = sse_begin(out);
    buf_fmt(b, "data:{\"index\":%d,\"token\":", ++o->num);
    write_token(b, r, t->id, t->logprob, text, len);
    if (r->request->logprobs > 0) {
        buf_lit(b, ",\"top_tokens\":");
        write_tops(b, p, t);
    }
    buf_lit(b, ",\"generated_text\":");
    if (last)
        write_text(b, r, o->text.data, o->text.len);
    else
        buf_lit(b, "null");
    buf_lit(b, ",\"details\":");
    if (last && r->request->response_fields.len) {
        write_reason(b, r, p);
        buf_fmt(b, ",\"input_length\":%zu}", r->request->base.prompts[0].len);
    } else {
        buf_lit(b, "null");
    }
    buf_lit(b, "}\n\n");
    b->failed |= o->text.failed || o->held.failed;
    sse_end(out);
}

// The end of the characters that are whole before `at`.
static size_t whole_before(const struct buf *text, size_t at) {
    while (at > 0 && at < text->len && (text->data[at] & 0xc0) == 0x80)
        at--;
    return at;
}

// An event is a token. Its text is what it adds, so that all of them are the text; of several at once that is the last one's
// where it cannot be told apart.
static void write_piece(struct sse_queue *out, const struct response *r, const struct piece *p,
                        const struct usage *u) {
    (void)u;
    struct tgi_output *o = r->state;
    size_t n = num_tokens(p), at = 0, sent = 0, len;
    bool ends = p->finish != FINISH_NONE;
    buf_add(&o->text, p->text, p->len);
    buf_add(&o->held, p->text, p->len);
    if (n == 0 && !ends)
        return;
    bool match = texts_match(r, p, &o->held);
    const char *held = o->held.len ? o->held.data : "";
    for (size_t i = 0; i < n; i++) {
        struct tgi_token t = token_at(p, i);
        tokenizer_bytes(r->model->tokenizer, t.id, false, &len);
        at += len;
        size_t upto = i + 1 == n ? o->held.len : match ? whole_before(&o->held, at) : 0;
        write_event(out, r, p, &t, held + sent, upto - sent, ends && i + 1 == n);
        sent = upto;
        o->last = t.id;
    }
    if (n == 0) // its tokens have gone out
        write_event(out, r, p, &(struct tgi_token){.id = o->last}, held, o->held.len, true);
    buf_clear(&o->held);
}

static void write_done(struct sse_queue *out, const struct response *r, const struct usage *usage) {
    (void)out, (void)r, (void)usage; // the event with generated_text is the last one
}

static void write_error(struct buf *b, const struct api_error *e) {
    const char *code = e->code ? e->code : "";
    const char *type = strcmp(code, "overloaded") == 0 ? "overloaded"
                       : e->status < 500               ? "validation"
                                                       : "generation";
    buf_lit(b, "{\"error\":");
    json_quote(b, e->message, strlen(e->message));
    buf_fmt(b, ",\"error_type\":\"%s\"}", type);
}

static void write_fail(struct sse_queue *out, const struct response *r, const struct api_error *e) {
    (void)r;
    struct buf *b = sse_begin(out);
    buf_lit(b, "data:");
    write_error(b, e);
    buf_lit(b, "\n\n");
    sse_end(out);
}

// ---- out: a body

static void write_details(struct buf *b, const struct response *r, const struct piece *p) {
    const struct token_buf *prompt = &r->request->base.prompts[0];
    buf_lit(b, ",\"details\":");
    write_reason(b, r, p);
    buf_lit(b, ",\"prefill\":[");
    if (p->prompt_logprobs && prompt->len) {
        write_prefill(b, r, prompt->ids[0], 0, true);
        buf_add(b, p->prompt_logprobs->data, p->prompt_logprobs->len);
    }
    buf_lit(b, "],\"tokens\":[");
    for (size_t i = 0; i < num_tokens(p); i++) {
        struct tgi_token t = token_at(p, i);
        if (i)
            buf_char(b, ',');
        write_token(b, r, t.id, t.logprob, NULL, 0);
    }
    buf_char(b, ']');
    if (r->request->logprobs > 0) {
        buf_lit(b, ",\"top_tokens\":[");
        for (size_t i = 0; i < num_tokens(p); i++) {
            struct tgi_token t = token_at(p, i);
            if (i)
                buf_char(b, ',');
            write_tops(b, p, &t);
        }
        buf_char(b, ']');
    }
    buf_char(b, '}');
}

static void write_whole(struct buf *b, const struct response *r, const struct piece *pieces,
                        const struct usage *u) {
    (void)u;
    buf_lit(b, "{\"generated_text\":");
    write_text(b, r, pieces[0].text, pieces[0].len);
    if (r->request->response_fields.len)
        write_details(b, r, &pieces[0]);
    buf_char(b, '}');
}

static void write_list(struct buf *b, const struct response *r, const struct piece *pieces,
                       const struct usage *u) {
    buf_char(b, '[');
    write_whole(b, r, pieces, u);
    buf_char(b, ']');
}

const struct api_form tgi_form = {.error = write_error, .overloaded = 429};

#define DIALECT(parse_function, whole_function)                                                              \
    {                                                                                                        \
        .id_prefix = "tgi-", .form = &tgi_form, .parse = parse_function, .begin = begin, .end = end,         \
        .state_bytes = output_bytes, .logprob = add_logprob, .prompt_logprob = add_prompt_logprob,           \
        .piece = write_piece, .done = write_done, .fail = write_fail, .whole = whole_function                \
    }

const struct dialect tgi_generate = DIALECT(parse_generate, write_whole),
                     tgi_stream = DIALECT(parse_stream, write_whole),
                     tgi_root = DIALECT(parse_root, write_list);
