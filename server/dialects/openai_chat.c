// /v1/chat/completions: messages in, a message out.
#include "openai.h"

#include "messages.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

// ---- in

#define INT_TOP 2147483647.0

struct chat_request { // what only chat has
    bool logprobs, add_generation_prompt, continue_final;
    int max_completion_tokens, top_logprobs; // -1: not given
};

#define AT(field) offsetof(struct chat_request, field)
static const struct field own_fields[] = {
    {"max_completion_tokens", F_INT, 1, INT_TOP, false, AT(max_completion_tokens)},
    {"logprobs", F_BOOL, 0, 0, false, AT(logprobs)},
    {"top_logprobs", F_INT, 0, MAX_TOP_LOGPROBS, false, AT(top_logprobs)},
    {"add_generation_prompt", F_BOOL, 0, 0, false, AT(add_generation_prompt)},
    {"continue_final_message", F_BOOL, 0, 0, false, AT(continue_final)},
};
static const struct field fields[] = {
    {"max_tokens", F_INT, 1, INT_TOP, false, offsetof(struct completion_request, max_tokens)},
};
#define COUNT(table) (sizeof(table) / sizeof(table)[0])
#define API(bit)                                                                                             \
    { bit, fields, COUNT(fields), own_fields, COUNT(own_fields) }
static const struct openai_api completes = API(OPENAI_CHAT), renders = API(TEMPLATE_BODY);

// Reads all fields; those of chat alone to own. *r needs freeing, also on failure.
static bool read_body(struct completion_request *r, struct chat_request *own, const struct served_model *m,
                      json_t *root, const struct openai_api *api, struct api_error *e) {
    *own =
        (struct chat_request){.max_completion_tokens = -1, .top_logprobs = -1, .add_generation_prompt = true};
    *r = openai_defaults(m);
    r->max_tokens = INT_MAX;
    if (!root || !openai_read_fields(r, m, root, api, own, e))
        return false;
    if (own->max_completion_tokens > 0)
        r->max_tokens = own->max_completion_tokens;
    if (!openai_read_options(r, m, root, e))
        return false;
    if (own->top_logprobs > 0 && !own->logprobs)
        return api_fail(e, 400, NULL, "top_logprobs", "'top_logprobs' needs 'logprobs': true.");
    if (own->logprobs && !r->logprob_ids)
        r->logprobs = own->top_logprobs > 0 ? own->top_logprobs : 0;
    return true;
}

static bool read_prompt(struct completion_request *r, const struct chat_request *own,
                        const struct served_model *m, const json_t *root, struct api_error *e) {
    if (!(r->prompts = calloc(1, sizeof *r->prompts)))
        return api_fail_memory(e);
    r->num_prompts = 1;
    if (!chat_prompt(m, root, own->add_generation_prompt, own->continue_final, &r->prompts[0], e))
        return false;
    openai_truncate(r, m, &r->prompts[0]);
    return true;
}

static bool parse_body(struct completion_request *r, const struct served_model *m, const char *body,
                       size_t len, struct api_error *e) {
    struct chat_request own;
    json_t *root = body_load(body, len, e);
    bool ok = read_body(r, &own, m, root, &completes, e) && read_prompt(r, &own, m, root, e) &&
              openai_check_room(r, m, r->prompts[0].len, "messages", e);
    return openai_parse_end(r, m, root, &completes, ok, e);
}

bool openai_count_response(const struct served_model *m, const char *body, size_t len, struct buf *out,
                           char *ignored, struct api_error *e) {
    struct chat_request own;
    struct completion_request r;
    json_t *root = body_load(body, len, e);
    bool ok = read_body(&r, &own, m, root, &completes, e) && read_prompt(&r, &own, m, root, e);
    ok = openai_parse_end(&r, m, root, &completes, ok, e);
    memcpy(ignored, r.ignored, IGNORED_SIZE);
    if (ok) {
        buf_fmt(out, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}", r.prompts[0].len);
        completion_request_free(&r);
    }
    return e->status == 0;
}

bool openai_template_response(const struct served_model *m, const char *body, size_t len, struct buf *out,
                              char *ignored, struct api_error *e) {
    struct chat_request own;
    struct completion_request r;
    struct buf text = {0};
    json_t *root = body_load(body, len, e);
    bool ok = read_body(&r, &own, m, root, &renders, e) &&
              chat_text(m, root, own.add_generation_prompt, own.continue_final, &text, e);
    ok = openai_parse_end(&r, m, root, &renders, ok, e);
    memcpy(ignored, r.ignored, IGNORED_SIZE);
    if (ok) {
        out->failed |= text.failed;
        buf_lit(out, "{\"prompt\":");
        json_quote(out, text.data, text.len);
        buf_char(out, '}');
        completion_request_free(&r);
    }
    buf_free(&text);
    return e->status == 0;
}

// ---- log-probabilities: one list, in `tops`

static void write_shown(struct buf *b, const struct response *r, token_id id, float logprob) {
    size_t len;
    const char *s = openai_token_text(r->model->tokenizer, id, &len);
    struct token_label label;
    openai_label(&label, r, id);
    buf_lit(b, "{\"token\":");
    json_quote(b, label.text, label.len);
    buf_lit(b, ",\"logprob\":");
    json_float(b, logprob);
    buf_lit(b, ",\"bytes\":[");
    for (size_t i = 0; i < len; i++) {
        if (i)
            buf_char(b, ',');
        buf_int(b, (unsigned char)s[i]);
    }
    buf_char(b, ']');
}

static void add_logprob(struct logprob_lists *l, const struct response *r, const struct service_event *ev,
                        int64_t offset) {
    (void)offset;
    if (ev->finish == FINISH_STOP && !r->request->include_stop) // no part of the message, as OpenAI has it
        return;
    int k = r->request->logprobs;
    struct buf *b = &l->tops;
    if (l->count++)
        buf_char(b, ',');
    write_shown(b, r, ev->token, ev->logprob);
    buf_lit(b, ",\"top_logprobs\":[");
    for (int i = 0; i < k && i < ev->num_top; i++) {
        if (i)
            buf_char(b, ',');
        write_shown(b, r, ev->top_ids[i], ev->top_logprobs[i]);
        buf_char(b, '}');
    }
    buf_lit(b, "]}");
}

// ---- out

static void begin_response(struct response *r) {
    openai_write_head(r, r->request->stream ? "chat.completion.chunk" : "chat.completion");
}

static void write_choice_end(struct buf *b, const struct piece *p) {
    if (p->logprobs) {
        buf_lit(b, ",\"logprobs\":{\"content\":[");
        buf_add(b, p->logprobs->tops.data, p->logprobs->tops.len);
        buf_lit(b, "],\"refusal\":null}");
    } else {
        buf_lit(b, ",\"logprobs\":null");
    }
    openai_write_finish(b, p);
    openai_write_ids(b, p->token_ids);
    buf_char(b, '}');
}

// A choice of a chunk. `role` announces the message: it has a content even where that is empty.
static void write_delta(struct buf *b, const struct piece *p, bool role) {
    buf_fmt(b, "{\"index\":%d,\"delta\":{", p->index);
    if (role)
        buf_lit(b, "\"role\":\"assistant\",");
    if (role || p->len) {
        buf_lit(b, "\"content\":");
        json_quote(b, p->text, p->len);
    }
    buf_char(b, '}');
    write_choice_end(b, p);
}

// The first chunks, in the order of the choices, which clients rely on: only they have the role.
static void write_roles(struct sse_queue *out, const struct response *r, const struct usage *usage) {
    for (int i = 0; i < r->num_choices; i++) {
        const struct piece p = {.index = i, .text = ""};
        write_delta(openai_chunk_begin(out, r), &p, true);
        openai_chunk_end(out, r, i == 0 && r->request->return_ids ? &r->request->prompts[0] : NULL, usage,
                         false);
    }
}

static void write_piece(struct sse_queue *out, const struct response *r, const struct piece *p,
                        const struct usage *usage) {
    write_delta(openai_chunk_begin(out, r), p, false);
    openai_chunk_end(out, r, NULL, usage, true);
}

static void write_whole(struct buf *b, const struct response *r, const struct piece *pieces,
                        const struct usage *usage) {
    buf_add(b, r->head.data, r->head.len);
    for (int i = 0; i < r->num_choices; i++) {
        const struct piece *p = &pieces[i];
        buf_fmt(b, "%s{\"index\":%d,\"message\":{\"role\":\"assistant\",\"content\":", i ? "," : "",
                p->index);
        json_quote(b, p->text, p->len);
        buf_lit(b, ",\"refusal\":null}");
        write_choice_end(b, p);
    }
    buf_char(b, ']');
    openai_write_prompt_logprobs(b, pieces[0].prompt_logprobs); // all choices have one prompt
    openai_write_prompt_ids(b, pieces[0].prompt);
    openai_body_end(b, r, usage);
}

const struct dialect openai_chat = {
    .id_prefix = "chatcmpl-",
    .parse = parse_body,
    .begin = begin_response,
    .logprob = add_logprob,
    .prompt_logprob = openai_prompt_logprob,
    .role = write_roles,
    .piece = write_piece,
    .done = openai_done,
    .fail = openai_fail,
    .whole = write_whole,
    .error = openai_write_error,
};
