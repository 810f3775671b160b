// /v1/completions: prompts of text or ids in, text out.
#include "api/infill.h"
#include "api/sampling_fields.h"
#include "api/structured.h"
#include "openai.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

// ---- in

#define INT_TOP 2147483647.0
#define AT(field) offsetof(struct completion_request, field)

static const struct field fields[] = {
    {"max_tokens", F_INT, 0, INT_TOP, false, AT(max_tokens)},
    {"logprobs", F_INT, 0, MAX_TOP_LOGPROBS, false, AT(logprobs)},
    {"echo", F_BOOL, 0, 0, false, AT(echo)},
    {"add_special_tokens", F_BOOL, 0, 0, false, AT(add_special)},
    {"n_indent", F_INT, 0, INT_TOP, false, AT(n_indent)},
    {"t_max_predict_ms", F_INT, -1, INT_TOP, false, AT(max_predict_ms)},
};
static const struct openai_api api = {.names = {field_rules, OPENAI_COMPLETIONS, fields_inside_options},
                                      .fields = fields,
                                      .num_fields = sizeof fields / sizeof fields[0]};

// `where` names the prompt in messages; the param of errors is always the field.
static bool add_ids(struct token_buf *out, const struct completion_request *r, const struct served_model *m,
                    const json_t *list, const char *param, const char *where, struct api_error *e) {
    size_t n = json_array_size(list);
    if (n == 0)
        return api_fail(e, 400, NULL, param, "'%s' must not be empty.", where);
    if (n > (size_t)m->max_model_len && r->truncate == INT_MAX)
        return api_fail_context(e, param, "the prompt has", n, 0, m->max_model_len);
    if (!(out->ids = calloc(n, sizeof *out->ids)))
        return api_fail_memory(e);
    out->cap = n;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        if (!json_is_integer(id))
            return api_fail(e, 400, "invalid_type", param, "'%s[%zu]' must be a token id, an integer.", where,
                            i);
        if (json_integer_value(id) < 0 || json_integer_value(id) >= m->vocab)
            return api_fail(e, 400, "out_of_range", param, "'%s[%zu]' is out of vocabulary: 0 to %d.", where,
                            i, m->vocab - 1);
        out->ids[out->len++] = (token_id)json_integer_value(id);
    }
    return true;
}

static bool add_text(struct token_buf *out, const struct completion_request *r, const struct served_model *m,
                     const json_t *v, const char *param, struct api_error *e) {
    size_t len = json_string_length(v);
    if (text_is_hopeless(m, len))
        return api_fail_context(e, param, "the prompt has", 0, len, m->max_model_len);
    unsigned flags = TOKENIZE_PARSE_SPECIAL | (r->add_special ? TOKENIZE_ADD_SPECIAL : 0u);
    if (!api_check_encoded(e, param, tokenizer_encode(m->tokenizer, json_string_value(v), len, flags, out)))
        return false;
    if (out->len > 0)
        return true;
    token_id bos = tokenizer_bos(m->tokenizer);
    if (bos < 0)
        return api_fail(e, 400, NULL, param,
                        "The prompt must not be empty: this model has no token to begin with.");
    if (out->cap == 0) {
        if (!(out->ids = malloc(sizeof *out->ids)))
            return api_fail_memory(e);
        out->cap = 1;
    }
    out->ids[out->len++] = bos;
    return true;
}

bool openai_read_prompts(struct completion_request *r, const struct served_model *m, const json_t *root,
                         const char *name, size_t most, const json_t *suffix, struct api_error *e) {
    const json_t *v = field_get(root, name);
    if (!v)
        return api_fail(e, 400, "missing_required_parameter", name, "'%s' is missing.", name);
    const json_t *first = json_is_array(v) ? json_array_get(v, 0) : NULL;
    bool many = json_is_string(first) || json_is_array(first);
    if (!json_is_string(v) && !json_is_array(v))
        return api_fail(
            e, 400, "invalid_type", name,
            "'%s' must be a string, a list of strings, a list of token ids, or a list of such lists.", name);
    if (json_is_array(v) && !first)
        return api_fail(e, 400, NULL, name, "'%s' must not be an empty list.", name);
    size_t num = many ? json_array_size(v) : 1;
    if (num * (size_t)r->n > most)
        return api_fail(e, 400, "out_of_range", name, "%s must not exceed %zu, found %zu.",
                        strcmp(name, "prompt") == 0 ? "Prompts times 'n'" : "Inputs", most,
                        num * (size_t)r->n);
    if (!(r->base.prompts = calloc(num, sizeof *r->base.prompts)))
        return api_fail_memory(e);
    r->base.num_prompts = num;
    for (size_t i = 0; i < num; i++) {
        const json_t *p = many ? json_array_get(v, i) : v;
        char where[32];
        snprintf(where, sizeof where, many ? "%s[%zu]" : "%s", name, i);
        if (many && json_typeof(p) != json_typeof(first))
            return api_fail(e, 400, "invalid_type", name,
                            "'%s' is of another kind than the prompts before it.", where);
        struct token_buf *ids = &r->base.prompts[i];
        const struct infill_texts texts = {.prefix = p, .suffix = suffix, .field = "suffix"};
        if (suffix && !json_is_string(p))
            return api_fail(e, 400, "invalid_type", name, "With 'suffix' a prompt must be a string.");
        if (!(suffix              ? infill_prompt(ids, r, m, &texts, e)
              : json_is_string(p) ? add_text(ids, r, m, p, name, e)
                                  : add_ids(ids, r, m, p, name, where, e)))
            return false;
    }
    return true;
}

static bool read_prompts(struct completion_request *r, const struct served_model *m, const json_t *root,
                         struct api_error *e) {
    const json_t *suffix = field_get(root, "suffix");
    if (suffix && !json_is_string(suffix))
        return api_fail(e, 400, "invalid_type", "suffix", "'suffix' must be a string.");
    suffix = json_string_length(suffix) ? suffix : NULL;
    return openai_read_prompts(r, m, root, "prompt", MAX_CHOICES, suffix, e);
}

bool openai_completions_read(struct completion_request *r, const struct served_model *m, json_t *root,
                             read_prompts_fn *prompts, int max_tokens, struct api_error *e) {
    *r = openai_defaults(m);
    r->max_tokens = max_tokens;
    bool ok = root && openai_read_fields(r, m, root, &api, NULL, e) && openai_read_options(r, m, root, e) &&
              structured_read(r, m, root, e) && structured_finish(r, m, e) && prompts(r, m, root, e);
    for (size_t i = 0; i < r->base.num_prompts && ok; i++) {
        prompt_truncate(r, m, &r->base.prompts[i]);
        ok = openai_check_room(m, r->max_tokens, r->base.prompts[i].len, "prompt", e);
    }
    return openai_parse_end(r, m, root, &api, ok, e);
}

static bool parse_body(struct completion_request *r, const struct served_model *m, const char *body,
                       size_t len, struct api_error *e) {
    return openai_completions_read(r, m, body_load(body, len, e), read_prompts, 16, e);
}

// ---- log-probabilities: four lists

static void write_top(struct buf *b, const struct response *r, token_id id, float logprob, bool first) {
    struct token_label l;
    openai_label(&l, r, id);
    if (!first)
        buf_char(b, ',');
    json_quote(b, l.text, l.len);
    buf_char(b, ':');
    json_float(b, logprob);
}

// Two tokens may have one text (a byte token and a letter, or two broken bytes that are both shown as
// U+FFFD). A JSON object holds it once: the likelier one, which comes first.
static bool is_shown(const struct response *r, const struct service_event *ev, int upto, token_id id) {
    size_t bad;
    struct token_label l, o;
    openai_label(&l, r, id);
    bool valid = true;
    for (size_t i = 0; i < l.len && valid;) {
        size_t n = utf8_sequence((const unsigned char *)l.text + i, l.len - i, &bad);
        valid = n > 0;
        i += n;
    }
    if (valid) {
        for (int i = 0; i < upto; i++) {
            openai_label(&o, r, ev->top_ids[i]);
            if (o.len == l.len && memcmp(o.text, l.text, l.len) == 0)
                return true;
        }
        return false;
    }
    struct buf mine = {0}, other = {0}; // rare: compare what would be printed
    json_escape(&mine, l.text, l.len);
    bool found = false;
    for (int i = 0; i < upto && !found; i++) {
        openai_label(&o, r, ev->top_ids[i]);
        buf_clear(&other);
        json_escape(&other, o.text, o.len);
        found = other.len == mine.len && memcmp(other.data, mine.data, mine.len) == 0;
    }
    buf_free(&mine);
    buf_free(&other);
    return found;
}

static void add_logprob(struct logprob_lists *l, const struct response *r, const struct service_event *ev,
                        int64_t offset) {
    struct token_label label;
    openai_label(&label, r, ev->token);
    if (l->count++) {
        buf_char(&l->tokens, ',');
        buf_char(&l->values, ',');
        buf_char(&l->tops, ',');
        buf_char(&l->offsets, ',');
    }
    json_quote(&l->tokens, label.text, label.len);
    buf_int(&l->offsets, offset);
    if (ev->num_top < 0) { // the first token of a prompt: nothing is before it
        buf_lit(&l->values, "null");
        buf_lit(&l->tops, "null");
        return;
    }
    json_float(&l->values, ev->logprob);
    buf_char(&l->tops, '{');
    int k = r->request->logprobs, top = ev->num_top < k ? ev->num_top : k;
    bool first = true, chosen = false;
    for (int i = 0; i < top; i++) {
        chosen |= ev->top_ids[i] == ev->token;
        if (is_shown(r, ev, i, ev->top_ids[i]))
            continue;
        write_top(&l->tops, r, ev->top_ids[i], ev->top_logprobs[i], first);
        first = false;
    }
    if (!chosen && !is_shown(r, ev, top, ev->token))
        write_top(&l->tops, r, ev->token, ev->logprob, first);
    buf_char(&l->tops, '}');
}

// ---- out

static void begin_response(struct response *r) { openai_write_head(r, "text_completion"); }

static void write_choice(struct buf *b, const struct response *r, const struct piece *p) {
    const struct logprob_lists *l = p->logprobs;
    buf_lit(b, "{\"index\":");
    buf_int(b, p->index);
    buf_lit(b, ",\"text\":\"");
    json_escape(b, p->text, p->len);
    if (l) {
        buf_lit(b, "\",\"logprobs\":{\"tokens\":[");
        buf_add(b, l->tokens.data, l->tokens.len);
        buf_lit(b, "],\"token_logprobs\":[");
        buf_add(b, l->values.data, l->values.len);
        buf_lit(b, "],\"top_logprobs\":[");
        buf_add(b, l->tops.data, l->tops.len);
        buf_lit(b, "],\"text_offset\":[");
        buf_add(b, l->offsets.data, l->offsets.len);
        buf_lit(b, "]}");
    } else {
        buf_lit(b, "\",\"logprobs\":null");
    }
    openai_write_finish(b, r, p);
    openai_write_prompt_logprobs(b, p->prompt_logprobs);
    openai_write_prompt_ids(b, p->prompt);
    openai_write_ids(b, p->token_ids);
    buf_char(b, '}');
}

static void write_piece(struct sse_queue *out, const struct response *r, const struct piece *p,
                        const struct usage *usage) {
    write_choice(openai_chunk_begin(out, r), r, p);
    openai_chunk_end(out, r, NULL, usage, true);
}

static void write_whole(struct buf *b, const struct response *r, const struct piece *pieces,
                        const struct usage *usage) {
    buf_add(b, r->head.data, r->head.len);
    for (int i = 0; i < r->num_choices; i++) {
        if (i)
            buf_char(b, ',');
        write_choice(b, r, &pieces[i]);
    }
    buf_char(b, ']');
    openai_body_end(b, r, usage);
}

const struct dialect openai_completions = {
    .id_prefix = "cmpl-",
    .form = &openai_form,
    .parse = parse_body,
    .begin = begin_response,
    .logprob = add_logprob,
    .prompt_logprob = openai_prompt_logprob,
    .piece = write_piece,
    .done = openai_done,
    .fail = openai_fail,
    .whole = write_whole,
};
