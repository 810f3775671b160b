// llama-server's /completion and /infill. Their requests are rewritten as those of /v1/completions, whose fields they share
// but for the prompt, the bias and what of the tokens is wanted.
#include "llama_completion.h"

#include "api/infill.h"
#include "openai.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- in: prompts

static bool add_id(struct token_buf *out, const struct served_model *m, const json_t *v,
                   struct api_error *e) {
    if (!json_is_integer(v))
        return api_fail(e, 400, "invalid_type", "prompt", "A prompt has token ids, integers, and strings.");
    if (json_integer_value(v) < 0 || json_integer_value(v) >= m->vocab)
        return api_fail(e, 400, "out_of_range", "prompt", "The token id %lld is out of vocabulary: 0 to %d.",
                        (long long)json_integer_value(v), m->vocab - 1);
    if (out->len == out->cap) {
        size_t cap = out->cap ? 2 * out->cap : 64;
        token_id *grown = realloc(out->ids, cap * sizeof *grown);
        if (!grown)
            return api_fail_memory(e);
        out->ids = grown;
        out->cap = cap;
    }
    out->ids[out->len++] = (token_id)json_integer_value(v);
    return true;
}

static bool add_text(struct token_buf *out, const struct served_model *m, const json_t *v,
                     struct api_error *e) {
    size_t len = json_string_length(v);
    if (text_is_hopeless(m, len))
        return api_fail_context(e, "prompt", "the prompt has", 0, len, m->max_model_len);
    unsigned flags = TOKENIZE_PARSE_SPECIAL | (out->len == 0 ? TOKENIZE_ADD_SPECIAL : 0u);
    return api_check_encoded(e, "prompt",
                             tokenizer_encode(m->tokenizer, json_string_value(v), len, flags, out));
}

// A prompt is a text, {"prompt_string": text}, or a list of ids and texts, which are joined.
static bool add_prompt(struct token_buf *out, const struct completion_request *r,
                       const struct served_model *m, const json_t *v, struct api_error *e) {
    if (json_is_object(v)) {
        const json_t *media = field_get(v, "multimodal_data");
        if (media && json_array_size(media) + json_object_size(media) + json_string_length(media) > 0)
            return api_fail(e, 400, "unsupported_parameter", "prompt", "Images and audio are not supported.");
        v = field_get(v, "prompt_string");
    }
    if (!json_is_array(v) && !json_is_string(v))
        return api_fail(e, 400, "invalid_type", "prompt",
                        "A prompt must be a string, {\"prompt_string\": string}, or a list of token ids and "
                        "strings.");
    if (json_is_string(v) && !add_text(out, m, v, e))
        return false;
    size_t most = r->truncate == INT_MAX ? (size_t)m->max_model_len : SIZE_MAX;
    for (size_t i = 0; i < json_array_size(v) && out->len <= most; i++) {
        const json_t *part = json_array_get(v, i);
        if (json_is_string(part) ? !add_text(out, m, part, e) : !add_id(out, m, part, e))
            return false;
    }
    return out->len > 0 || api_fail(e, 400, NULL, "prompt", "A prompt must not be empty.");
}

// Whether a list is one prompt: one with ids beside nothing but texts. Else each entry is a prompt.
static bool is_one_prompt(const json_t *v) {
    bool ids = false;
    if (!json_is_array(v))
        return true;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *part = json_array_get(v, i);
        if (!json_is_number(part) && !json_is_string(part))
            return false;
        ids |= json_is_number(part);
    }
    return ids;
}

static bool read_prompts(struct completion_request *r, const struct served_model *m, const json_t *root,
                         struct api_error *e) {
    const json_t *v = field_get(root, "prompt");
    bool one = is_one_prompt(v);
    size_t num = one ? 1 : json_array_size(v);
    if (!v)
        return api_fail(e, 400, "missing_required_parameter", "prompt", "'prompt' is missing.");
    if (num == 0)
        return api_fail(e, 400, NULL, "prompt", "'prompt' must not be an empty list.");
    if (num * (size_t)r->n > MAX_CHOICES)
        return api_fail(e, 400, "out_of_range", "prompt", "Prompts times 'n' must not exceed %d, found %zu.",
                        MAX_CHOICES, num * (size_t)r->n);
    if (!(r->base.prompts = calloc(num, sizeof *r->base.prompts)))
        return api_fail_memory(e);
    r->base.num_prompts = num;
    for (size_t i = 0; i < num; i++)
        if (!add_prompt(&r->base.prompts[i], r, m, one ? v : json_array_get(v, i), e))
            return false;
    return true;
}

// ---- in: the bias

// Adds the bias of a token, or of all tokens of a text. `false` forbids: it becomes the lowest bias.
static bool add_bias(json_t *out, const struct served_model *m, const char *text, size_t len, json_int_t id,
                     const json_t *value, struct api_error *e) {
    json_t *add = json_is_false(value) ? json_integer(-100) : json_incref((json_t *)(uintptr_t)value);
    struct token_buf ids = {0};
    bool ok = !text || api_check_encoded(e, "logit_bias", tokenizer_encode(m->tokenizer, text, len, 0, &ids));
    for (size_t i = 0; i < (text ? ids.len : 1) && ok; i++) {
        char key[24];
        snprintf(key, sizeof key, "%lld", text ? (long long)ids.ids[i] : (long long)id);
        ok = json_object_set(out, key, add) == 0 || api_fail_memory(e);
    }
    token_buf_free(&ids);
    json_decref(add);
    return ok;
}

// [[token or text, bias], …], or an object with them as keys.
static bool rewrite_bias(json_t *root, const struct served_model *m, struct api_error *e) {
    json_t *v = json_object_get(root, "logit_bias"), *out = json_object(), *value;
    bool ok = out || api_fail_memory(e);
    const char *key;
    if (json_is_object(v)) {
        json_object_foreach(v, key, value) {
            size_t digits = strspn(key, "0123456789");
            bool id = digits && digits < 10 && !key[digits];
            ok = ok && add_bias(out, m, id ? NULL : key, strlen(key), id ? atoll(key) : 0, value, e);
        }
    }
    for (size_t i = 0; i < json_array_size(v) && ok; i++) {
        const json_t *pair = json_array_get(v, i), *token = json_array_get(pair, 0);
        if (json_array_size(pair) != 2 || (!json_is_string(token) && !json_is_integer(token)))
            ok = api_fail(e, 400, "invalid_type", "logit_bias",
                          "'logit_bias[%zu]' must be [token or text, bias].", i);
        else
            ok = add_bias(out, m, json_string_value(token), json_string_length(token),
                          json_integer_value(token), json_array_get(pair, 1), e);
    }
    if (ok && (json_is_object(v) || json_is_array(v)) && json_object_set(root, "logit_bias", out) != 0)
        ok = api_fail_memory(e);
    json_decref(out);
    return ok;
}

// With ignore_eos the model's ends cannot come; elsewhere they do not end the output.
static bool forbid_ends(struct completion_request *r, const struct served_model *m, struct api_error *e) {
    token_id ends[MAX_STOP_TOKENS];
    int num = tokenizer_ends(m->tokenizer, ends, MAX_STOP_TOKENS), n = 0;
    struct logit_bias *bias = calloc((size_t)(r->num_bias + num + 1), sizeof *bias);
    if (!bias)
        return api_fail_memory(e);
    for (int i = 0; i < num; i++)
        bias[n++] = (struct logit_bias){.token = ends[i], .add = -INFINITY};
    for (int i = 0; i < r->num_bias; i++) {
        bool is_end = false;
        for (int k = 0; k < num; k++)
            is_end |= r->bias[i].token == ends[k];
        if (!is_end)
            bias[n++] = r->bias[i];
    }
    free(r->bias);
    r->bias = bias;
    r->num_bias = n;
    return n <= MAX_LOGIT_BIAS ||
           api_fail(e, 400, "out_of_range", "logit_bias", "At most %d entries are allowed.", MAX_LOGIT_BIAS);
}

// ---- in: the rest

struct own_fields {
    int n_probs;
    bool return_tokens, post_sampling_probs;
};
static const struct field own_fields[] = {
    {"n_probs", F_INT, 0, MAX_TOP_LOGPROBS, false, offsetof(struct own_fields, n_probs)},
    {"return_tokens", F_BOOL, 0, 0, false, offsetof(struct own_fields, return_tokens)},
    {"post_sampling_probs", F_BOOL, 0, 0, false, offsetof(struct own_fields, post_sampling_probs)},
};
enum { NUM_OWN = sizeof own_fields / sizeof own_fields[0] };

// Ids come with log-probabilities: 0 asks for the ids alone.
static bool rewrite_outputs(json_t *root, bool *post_sampling, struct api_error *e) {
    struct own_fields own = {0};
    if (!fields_read(&own, own_fields, NUM_OWN, root, e))
        return false;
    *post_sampling = own.n_probs && own.post_sampling_probs;
    if (*post_sampling && field_get(root, "logprob_token_ids"))
        return api_fail(e, 400, NULL, "post_sampling_probs",
                        "'post_sampling_probs' and 'logprob_token_ids' exclude each other.");
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "logprobs" : "suffix";
        if (field_get(root, name))
            return api_fail(e, 400, "unsupported_parameter", name,
                            "'%s' is for /v1/completions; llama-server's name is '%s'.", name,
                            i ? "n_probs" : "input_suffix");
    }
    for (int i = 0; i < NUM_OWN; i++)
        json_object_del(root, own_fields[i].name);
    if ((own.n_probs || own.return_tokens || json_is_true(field_get(root, "stream"))) &&
        json_object_set_new(root, "logprobs", json_integer(own.n_probs)) != 0)
        return api_fail_memory(e);
    return true;
}

// Members of the response that alone are wanted: names, each with its NUL. An empty list asks for all.
static bool read_response_fields(struct buf *names, json_t *root, struct api_error *e) {
    const json_t *list = field_get(root, "response_fields");
    if (list && !json_is_array(list))
        return api_fail(e, 400, "invalid_type", "response_fields",
                        "'response_fields' must be a list of strings.");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_name(json_array_get(list, i));
        char param[40];
        snprintf(param, sizeof param, "response_fields[%zu]", i);
        if (!name)
            return api_fail(e, 400, "invalid_type", param, "A name must be a string.");
        buf_add(names, name, strlen(name) + 1);
    }
    json_object_del(root, "response_fields");
    return !names->failed || api_fail_memory(e);
}

static bool parse_by(struct completion_request *r, const struct served_model *m, const char *body, size_t len,
                     read_prompts_fn *prompts, struct api_error *e) {
    json_t *root = body_load(body, len, e);
    struct buf names = {0};
    bool post_sampling;
    if (!root || (prompts == infill_read && !infill_take(root, e)) || !rewrite_bias(root, m, e) ||
        !rewrite_outputs(root, &post_sampling, e) || !read_response_fields(&names, root, e)) {
        buf_free(&names);
        json_decref(root);
        *r = openai_defaults(m);
        return false;
    }
    if (!openai_completions_read(r, m, root, prompts, INT_MAX, e)) {
        buf_free(&names);
        return false;
    }
    r->response_fields = names;
    r->sampling.post_sampling = post_sampling;
    if (r->seed == UINT32_MAX) // its other way to ask for a new one
        r->has_seed = false;
    const char *other = r->echo                                   ? "echo"
                        : r->prompt_logprobs >= 0                 ? "prompt_logprobs"
                        : r->include_usage || r->continuous_usage ? "stream_options"
                        : r->return_ids                           ? "return_token_ids"
                        : r->names_ids                            ? "return_tokens_as_token_ids"
                                                                  : NULL;
    if (other)
        api_fail(e, 400, "unsupported_parameter", other, "'%s' is for /v1/completions.", other);
    else if (!r->ignore_eos || forbid_ends(r, m, e))
        return true;
    completion_request_free(r);
    return false;
}

static bool parse_body(struct completion_request *r, const struct served_model *m, const char *body,
                       size_t len, struct api_error *e) {
    return parse_by(r, m, body, len, read_prompts, e);
}

static bool parse_infill(struct completion_request *r, const struct served_model *m, const char *body,
                         size_t len, struct api_error *e) {
    return parse_by(r, m, body, len, infill_read, e);
}

// ---- out: tokens

static void begin(struct response *r) { (void)r; }

static void write_probability(struct buf *b, const struct response *r, token_id id, float value) {
    size_t len;
    const char *text = openai_token_text(r->model->tokenizer, id, &len);
    buf_fmt(b, "{\"id\":%d,\"token\":", id);
    json_quote(b, text, len);
    buf_lit(b, ",\"bytes\":[");
    for (size_t i = 0; i < len; i++)
        buf_fmt(b, i ? ",%d" : "%d", (unsigned char)text[i]);
    buf_str(b, r->request->sampling.post_sampling ? "],\"prob\":" : "],\"logprob\":");
    json_float(b, value);
}

static void add_logprob(struct logprob_lists *l, const struct response *r, const struct service_event *ev,
                        int64_t offset) {
    (void)offset;
    buf_fmt(&l->tokens, l->tokens.len ? ",%d" : "%d", ev->token);
    if (r->request->logprobs == 0 || (ev->finish == FINISH_STOP && !r->request->include_stop))
        return;
    struct buf *b = &l->tops;
    if (b->len)
        buf_char(b, ',');
    write_probability(b, r, ev->token, ev->logprob);
    buf_str(b, r->request->sampling.post_sampling ? ",\"top_probs\":[" : ",\"top_logprobs\":[");
    for (int i = 0; i < ev->num_top && i < r->request->logprobs && ev->top_ids[i] >= 0; i++) {
        if (i)
            buf_char(b, ',');
        write_probability(b, r, ev->top_ids[i], ev->top_logprobs[i]);
        buf_char(b, '}');
    }
    buf_lit(b, "]}");
}

// ---- out: what every part has, and what the last one adds

static void write_list(struct buf *b, const char *name, const struct buf *list) {
    buf_fmt(b, ",\"%s\":[", name);
    if (list)
        buf_add(b, list->data, list->len);
    buf_char(b, ']');
}

static const struct token_buf *prompt_of(const struct response *r, const struct piece *p) {
    return &r->request->base.prompts[p->index / r->request->n];
}

// `text`: whether the text and its tokens are in it, too.
static void write_part(struct buf *b, const struct response *r, const struct piece *p, bool text, bool stop) {
    const struct logprob_lists *l = text ? p->logprobs : NULL;
    buf_fmt(b, "{\"index\":%d,\"content\":", p->index);
    json_quote(b, p->text, text ? p->len : 0);
    write_list(b, "tokens", l ? &l->tokens : NULL);
    buf_fmt(b, ",\"stop\":%s,\"id_slot\":-1,\"tokens_predicted\":%d,\"tokens_evaluated\":%zu",
            stop ? "true" : "false", p->num_tokens, prompt_of(r, p)->len);
    if (l && r->request->logprobs > 0)
        write_list(b, "completion_probabilities", &l->tops);
}

static void write_settings(struct buf *b, const struct completion_request *r, int context) {
    const struct sampling_params *s = &r->sampling;
    int limit = r->max_tokens == INT_MAX ? -1 : r->max_tokens;
    buf_fmt(b,
            ",\"generation_settings\":{\"n_ctx\":%d,\"seed\":%lld,\"n_predict\":%d,\"max_tokens\":%d,"
            "\"stream\":%s",
            context, r->has_seed ? (long long)r->seed : -1, limit, limit, r->stream ? "true" : "false");
    buf_fmt(b, ",\"temperature\":%.9g,\"top_k\":%d,\"top_p\":%.9g,\"min_p\":%.9g", (double)s->temperature,
            s->top_k, (double)s->top_p, (double)s->min_p);
    buf_fmt(b, ",\"repeat_penalty\":%.9g,\"presence_penalty\":%.9g,\"frequency_penalty\":%.9g",
            (double)s->repetition_penalty, (double)s->presence_penalty, (double)s->frequency_penalty);
    buf_fmt(b, ",\"typical_p\":%.9g,\"top_n_sigma\":%.9g,\"xtc_probability\":%.9g,\"xtc_threshold\":%.9g",
            (double)s->typical_p, (double)s->top_n_sigma, (double)s->xtc_probability,
            (double)s->xtc_threshold);
    buf_fmt(b, ",\"dynatemp_range\":%.9g,\"mirostat\":%d,\"dry_multiplier\":%.9g", (double)s->dynatemp_range,
            r->mirostat, (double)r->history.dry_multiplier);
    buf_fmt(b, ",\"n_probs\":%d,\"ignore_eos\":%s,\"stop\":[", r->logprobs > 0 ? r->logprobs : 0,
            r->ignore_eos ? "true" : "false");
    for (int i = 0; i < r->num_stops; i++) {
        if (i)
            buf_char(b, ',');
        json_quote(b, r->stops[i], r->stop_lens[i]);
    }
    buf_lit(b, "],\"adaptive_target\":-1,\"adaptive_decay\":0,\"logit_bias\":["); // that sampler is off
    for (int i = 0; i < r->num_bias; i++) {
        buf_fmt(b, "%s{\"token\":%d,\"bias\":", i ? "," : "", r->bias[i].token);
        if (r->bias[i].add > -INFINITY)
            buf_fmt(b, "%.9g}", (double)r->bias[i].add);
        else
            buf_lit(b, "null}");
    }
    buf_lit(b, "]}");
}

static void write_end(struct buf *b, const struct response *r, const struct piece *p) {
    static const char *const ends[] = {[FINISH_STOP] = "eos", [FINISH_LENGTH] = "limit"};
    const struct token_buf *prompt = prompt_of(r, p);
    size_t num = sizeof ends / sizeof ends[0], len;
    const char *end = p->stop                                      ? "word"
                      : p->limited                                 ? "limit"
                      : (size_t)p->finish < num && ends[p->finish] ? ends[p->finish]
                                                                   : "none";
    bool truncated = p->finish == FINISH_LENGTH && p->num_tokens < r->request->max_tokens; // by the context
    buf_lit(b, ",\"model\":");
    json_quote(b, r->request->base.model, strlen(r->request->base.model));
    write_settings(b, r->request, r->model->max_model_len);
    buf_lit(b, ",\"prompt\":\"");
    for (size_t i = 0; i < prompt->len; i++) {
        const char *text = openai_token_text(r->model->tokenizer, prompt->ids[i], &len);
        json_escape(b, text, len);
    }
    buf_fmt(b,
            "\",\"has_new_line\":%s,\"truncated\":%s,\"stop_type\":\"%s\",\"tokens_cached\":%zu,\"stopping_"
            "word\":",
            p->has_new_line ? "true" : "false", truncated ? "true" : "false", end,
            prompt->len + (size_t)p->num_tokens);
    json_quote(b, p->stop ? p->stop : "", p->stop_len);
    struct timings t = r->timings;
    t.cached = p->num_cached;
    t.computed = (int64_t)prompt->len - p->num_cached;
    t.generated = p->num_tokens;
    t.decoded = p->num_tokens > 0 ? p->num_tokens - 1 : 0;
    openai_write_timings(b, &t);
    buf_char(b, '}');
}

// ---- out: the members that response_fields names

static int add_text_to(const char *data, size_t len, void *b) {
    buf_add(b, data, len);
    return 0;
}

// The value at a path, as `generation_settings/seed`. NULL: there is none.
static json_t *find_path(json_t *in, const char *path) {
    char key[128]; // longer than any
    for (bool more = true; in && more; path++) {
        size_t n = strcspn(path, "/");
        snprintf(key, sizeof key, "%.*s", (int)(n < sizeof key ? n : sizeof key), path);
        in = json_object_get(in, key);
        path += n;
        more = *path != '\0';
    }
    return in;
}

// The members of an object that the names say, each by its whole path.
static void write_selected(struct buf *b, const struct buf *object, const struct buf *names) {
    json_t *all = json_loadb(object->data, object->len, JSON_ALLOW_NUL, NULL), *out = json_object();
    for (size_t i = 0; i < names->len; i += strlen(names->data + i) + 1) {
        json_t *v = find_path(all, names->data + i);
        b->failed |= v && json_object_set(out, names->data + i, v) != 0;
    }
    b->failed |= !all || json_dump_callback(out, add_text_to, b, JSON_COMPACT | JSON_REAL_PRECISION(15)) != 0;
    json_decref(all);
    json_decref(out);
}

// The whole of a choice, or (not text) what ends it.
static void write_final(struct buf *b, const struct response *r, const struct piece *p, bool text) {
    const struct buf *names = &r->request->response_fields;
    struct buf all = {0}, *to = names->len ? &all : b;
    write_part(to, r, p, text, true);
    write_end(to, r, p);
    if (to == &all)
        write_selected(b, &all, names);
    buf_free(&all);
}

// ---- out: streams and bodies

static void write_piece(struct sse_queue *out, const struct response *r, const struct piece *p,
                        const struct usage *u) {
    bool any = p->len || (p->logprobs && p->logprobs->tokens.len);
    (void)u;
    for (int last = any ? 0 : 1; last <= (p->finish != FINISH_NONE); last++) {
        struct buf *b = sse_begin(out);
        buf_lit(b, "data: ");
        if (last) {
            write_final(b, r, p, false);
        } else {
            write_part(b, r, p, true, false);
            buf_char(b, '}');
        }
        buf_lit(b, "\n\n");
        sse_end(out);
    }
}

static void write_done(struct sse_queue *out, const struct response *r, const struct usage *usage) {
    (void)out, (void)r, (void)usage; // the part with "stop": true is the last one
}

static void write_fail(struct sse_queue *out, const struct response *r, const struct api_error *e) {
    (void)r;
    struct buf *b = sse_begin(out);
    buf_lit(b, "data: ");
    openai_write_error(b, e);
    buf_lit(b, "\n\n");
    sse_end(out);
}

static void write_whole(struct buf *b, const struct response *r, const struct piece *pieces,
                        const struct usage *usage) {
    (void)usage;
    if (r->num_choices > 1)
        buf_char(b, '[');
    for (int i = 0; i < r->num_choices; i++) {
        if (i)
            buf_char(b, ',');
        write_final(b, r, &pieces[i], true);
    }
    if (r->num_choices > 1)
        buf_char(b, ']');
}

#define DIALECT(parse_function)                                                                              \
    {                                                                                                        \
        .id_prefix = "cmpl-", .form = &openai_form, .parse = parse_function, .begin = begin,                 \
        .logprob = add_logprob, .piece = write_piece, .done = write_done, .fail = write_fail,                \
        .whole = write_whole                                                                                 \
    }

const struct dialect llama_completion = DIALECT(parse_body), llama_infill = DIALECT(parse_infill);
