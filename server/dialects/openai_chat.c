// /v1/chat/completions: messages in, a message out.
#include "openai.h"

#include "api/generic_tools.h"
#include "api/sampling_fields.h"
#include "api/structured.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

// ---- in

#define INT_TOP 2147483647.0

// Fields that only chat has.
struct chat_request {
    bool logprobs, add_generation_prompt, continue_final, parallel_calls, include_reasoning,
        separate_reasoning;
    int max_completion_tokens, top_logprobs; // -1: not given
};

#define AT(field) offsetof(struct chat_request, field)
static const struct field own_fields[] = {
    {"max_completion_tokens", F_INT, 1, INT_TOP, false, AT(max_completion_tokens)},
    {"logprobs", F_BOOL, 0, 0, false, AT(logprobs)},
    {"top_logprobs", F_INT, 0, MAX_TOP_LOGPROBS, false, AT(top_logprobs)},
    {"add_generation_prompt", F_BOOL, 0, 0, false, AT(add_generation_prompt)},
    {"continue_final_message", F_BOOL, 0, 0, false, AT(continue_final)},
    {"parallel_tool_calls", F_BOOL, 0, 0, false, AT(parallel_calls)},
    {"include_reasoning", F_BOOL, 0, 0, false, AT(include_reasoning)},
    {"separate_reasoning", F_BOOL, 0, 0, false, AT(separate_reasoning)},
};
static const struct field fields[] = {
    {"max_tokens", F_INT, 1, INT_TOP, false, offsetof(struct completion_request, max_tokens)},
    {"thinking_token_budget", F_INT, -1, INT_TOP, false,
     offsetof(struct completion_request, reasoning_budget)},
};
#define COUNT(table) (sizeof(table) / sizeof(table)[0])
#define API(where)                                                                                           \
    { {field_rules, where, fields_inside_chat}, fields, COUNT(fields), own_fields, COUNT(own_fields) }
static const struct openai_api completes = API(OPENAI_CHAT), renders = API(TEMPLATE_BODY);

// Whether reasoning is told apart, and whether the output has any form that must be read.
static bool read_reasoning(struct completion_request *r, const struct served_model *m,
                           const struct chat_request *own, const json_t *root, struct api_error *e) {
    const json_t *v = field_get(root, "reasoning_format");
    const char *format = v ? json_name(v) : "auto";
    if (!format ||
        (strcmp(format, "auto") != 0 && strcmp(format, "deepseek") != 0 && strcmp(format, "none") != 0))
        return api_fail(e, 400, "invalid_type", "reasoning_format",
                        "'reasoning_format' must be \"auto\", \"deepseek\" or \"none\".");
    const struct output_format *f = m->format;
    r->reads_reasoning =
        f && (f->think_close || f->harmony) && own->separate_reasoning && strcmp(format, "none") != 0;
    r->hides_reasoning = !own->include_reasoning;
    if (f && !own->continue_final && (r->tools || r->reads_reasoning || f->harmony))
        r->format = f;
    return true;
}

static bool add_prediction(struct completion_request *r, const struct served_model *m, const json_t *text,
                           struct api_error *e) {
    if (!json_is_string(text))
        return api_fail(
            e, 400, "invalid_type", "prediction",
            "'prediction' must be {\"type\": \"content\", \"content\": a text or parts of text}.");
    size_t len = json_string_length(text);
    if (text_is_hopeless(m, len)) // it could not be the output
        return true;
    enum status st =
        tokenizer_encode(m->tokenizer, json_string_value(text), len, TOKENIZE_CONTINUES, &r->prediction);
    return st == STATUS_NOMEM ? api_fail_memory(e) : true;
}

static bool read_prediction(struct completion_request *r, const struct served_model *m, const json_t *root,
                            struct api_error *e) {
    const json_t *v = field_get(root, "prediction"), *content = json_object_get(v, "content");
    const char *type = json_name(json_object_get(v, "type"));
    if (!v)
        return true;
    if (!type || strcmp(type, "content") != 0 || !json_is_array(content) || json_array_size(content) == 0)
        return add_prediction(r, m, type && strcmp(type, "content") == 0 ? content : NULL, e);
    for (size_t i = 0; i < json_array_size(content); i++)
        if (!add_prediction(r, m, json_object_get(json_array_get(content, i), "text"), e))
            return false;
    return true;
}

// Reads all fields; those of chat alone to own. *r needs freeing, also on failure.
static bool read_body(struct completion_request *r, struct chat_request *own, const struct served_model *m,
                      json_t *root, const struct openai_api *api, struct api_error *e) {
    *own = (struct chat_request){.max_completion_tokens = -1,
                                 .top_logprobs = -1,
                                 .add_generation_prompt = true,
                                 .parallel_calls = true,
                                 .include_reasoning = true,
                                 .separate_reasoning = true};
    *r = openai_defaults(m);
    r->max_tokens = INT_MAX;
    r->reasoning_budget = m->reasoning_budget;
    if (!root || !chat_read_functions(root, &r->functions, e) || !openai_read_fields(r, m, root, api, own, e))
        return false;
    if (own->max_completion_tokens > 0)
        r->max_tokens = own->max_completion_tokens;
    if (!openai_read_options(r, m, root, e))
        return false;
    if (own->top_logprobs > 0 && !own->logprobs)
        return api_fail(e, 400, NULL, "top_logprobs", "'top_logprobs' needs 'logprobs': true.");
    if (own->logprobs && !r->logprob_ids)
        r->logprobs = own->top_logprobs > 0 ? own->top_logprobs : 0;
    r->one_call = !own->parallel_calls || r->functions;
    if (!read_prediction(r, m, root, e))
        return false;
    bool ok = (api != &completes || (chat_read_tools(r, m, root, e) && structured_read(r, m, root, e))) &&
              read_reasoning(r, m, own, root, e) && generic_tools_rewrite(root, m, e);
    if (!ok && r->functions)
        chat_name_functions(e);
    return ok;
}

static bool read_prompt(struct completion_request *r, const struct chat_request *own,
                        const struct served_model *m, const json_t *root, struct api_error *e) {
    if (!(r->base.prompts = calloc(1, sizeof *r->base.prompts)))
        return api_fail_memory(e);
    r->base.num_prompts = 1;
    if (!chat_prompt(m, root, own->add_generation_prompt, own->continue_final, &r->base.prompts[0],
                     &r->thinking, e))
        return false;
    prompt_truncate(r, m, &r->base.prompts[0]);
    if (!structured_binds(r) || !r->reads_reasoning || r->thinking)
        return true;
    bool thinks;
    bool ok = chat_thinks(m, root, own->add_generation_prompt, own->continue_final, &thinks, e);
    r->no_thinking = !thinks;
    return ok;
}

bool openai_chat_read(struct completion_request *r, const struct served_model *m, json_t *root,
                      json_t *foreign, struct api_error *e) {
    struct chat_request own;
    bool ok = read_body(r, &own, m, root, &completes, e);
    r->foreign_tools = json_incref(foreign);
    return ok && read_prompt(r, &own, m, root, e) && structured_finish(r, m, e);
}

static bool parse_body(struct completion_request *r, const struct served_model *m, const char *body,
                       size_t len, struct api_error *e) {
    json_t *root = body_load(body, len, e);
    bool ok = openai_chat_read(r, m, root, NULL, e) &&
              openai_check_room(m, r->max_tokens, r->base.prompts[0].len, "messages", e);
    return openai_parse_end(r, m, root, &completes, ok, e);
}

bool openai_count_response(const struct served_model *m, const char *body, size_t len, struct buf *out,
                           char *ignored, struct api_error *e) {
    struct completion_request r;
    json_t *root = body_load(body, len, e);
    bool ok = openai_chat_read(&r, m, root, NULL, e);
    ok = openai_parse_end(&r, m, root, &completes, ok, e);
    memcpy(ignored, r.base.ignored, IGNORED_SIZE);
    if (ok) {
        openai_write_count(out, r.base.prompts[0].len);
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
    memcpy(ignored, r.base.ignored, IGNORED_SIZE);
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

void openai_chat_logprob(struct logprob_lists *l, const struct response *r, const struct service_event *ev,
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

// ,"finish_reason":… of the choice: a call of a tool is one, though the model has simply stopped.
static void write_choice_end(struct buf *b, const struct response *r, const struct piece *p) {
    if (p->logprobs) {
        buf_lit(b, ",\"logprobs\":{\"content\":[");
        buf_add(b, p->logprobs->tops.data, p->logprobs->tops.len);
        buf_lit(b, "],\"refusal\":null}");
    } else {
        buf_lit(b, ",\"logprobs\":null");
    }
    openai_write_finish(b, r, p);
    openai_write_ids(b, p->token_ids);
    buf_char(b, '}');
}

// A choice of a chunk. `role` announces the message: it has a content even where that is empty.
static void write_delta(struct buf *b, const struct response *r, const struct piece *p, bool role) {
    buf_fmt(b, "{\"index\":%d,\"delta\":{", p->index);
    if (role)
        buf_lit(b, "\"role\":\"assistant\",");
    if (role || p->len) {
        buf_lit(b, "\"content\":");
        json_quote(b, p->text, p->len);
    }
    buf_char(b, '}');
    write_choice_end(b, r, p);
}

// A chunk for each part of the output; the last one has what is of the whole piece.
static void write_parts(struct sse_queue *out, const struct response *r, const struct piece *p,
                        const struct usage *usage) {
    size_t num;
    const char *text;
    const struct output_part *parts = output_parts(p->output, &num, &text);
    const struct piece plain = {.index = p->index};
    while (num > 0 && r->request->hides_reasoning && parts[num - 1].kind == PART_REASONING)
        num--;
    for (size_t i = 0; i < num; i++) {
        if (parts[i].kind == PART_REASONING && r->request->hides_reasoning)
            continue;
        struct buf *b = openai_chunk_begin(out, r);
        buf_fmt(b, "{\"index\":%d,\"delta\":{", p->index);
        chat_write_part(b, r, p->index, &parts[i], text);
        buf_char(b, '}');
        write_choice_end(b, r, i + 1 < num ? &plain : p);
        openai_chunk_end(out, r, NULL, usage, true);
    }
    if (num == 0 && p->finish != FINISH_NONE) {
        write_delta(openai_chunk_begin(out, r), r, p, false);
        openai_chunk_end(out, r, NULL, usage, true);
    }
}

// The first chunks, in the order of the choices, which clients rely on: only they have the role.
static void write_roles(struct sse_queue *out, const struct response *r, const struct usage *usage) {
    for (int i = 0; i < r->num_choices; i++) {
        const struct piece p = {.index = i, .text = ""};
        write_delta(openai_chunk_begin(out, r), r, &p, true);
        openai_chunk_end(out, r, i == 0 && r->request->return_ids ? &r->request->base.prompts[0] : NULL,
                         usage, false);
    }
}

static void write_piece(struct sse_queue *out, const struct response *r, const struct piece *p,
                        const struct usage *usage) {
    if (p->output) {
        write_parts(out, r, p, usage);
        return;
    }
    write_delta(openai_chunk_begin(out, r), r, p, false);
    openai_chunk_end(out, r, NULL, usage, true);
}

static void write_whole(struct buf *b, const struct response *r, const struct piece *pieces,
                        const struct usage *usage) {
    buf_add(b, r->head.data, r->head.len);
    for (int i = 0; i < r->num_choices; i++) {
        const struct piece *p = &pieces[i];
        buf_fmt(b, "%s{\"index\":%d,\"message\":{\"role\":\"assistant\",\"content\":", i ? "," : "",
                p->index);
        if (p->output)
            chat_write_output(b, r, p);
        else
            json_quote(b, p->text, p->len);
        buf_lit(b, ",\"refusal\":null}");
        write_choice_end(b, r, p);
    }
    buf_char(b, ']');
    openai_write_prompt_logprobs(b, pieces[0].prompt_logprobs); // all choices have one prompt
    openai_write_prompt_ids(b, pieces[0].prompt);
    openai_body_end(b, r, usage);
}

const struct dialect openai_chat = {
    .id_prefix = "chatcmpl-",
    .form = &openai_form,
    .parse = parse_body,
    .begin = begin_response,
    .logprob = openai_chat_logprob,
    .prompt_logprob = openai_prompt_logprob,
    .role = write_roles,
    .piece = write_piece,
    .done = openai_done,
    .fail = openai_fail,
    .whole = write_whole,
};
