#include "messages.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t splitmix64(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint64_t choice_seed(uint64_t seed, int j) { return j == 0 ? seed : splitmix64(seed + (uint64_t)j); }

// ---- fields

#define AT(field) offsetof(struct completion, field)
#define INT_TOP 2147483647.0

static const struct field fields[] = {
    {"min_tokens", F_INT, 0, INT_TOP, false, AT(min_tokens)},
    {"n", F_INT, 1, MAX_CHOICES, false, AT(n)},
    {"temperature", F_FLOAT, 0, 2, false, AT(sampling.temperature)},
    {"top_p", F_FLOAT, 0, 1, true, AT(sampling.top_p)},
    {"min_p", F_FLOAT, 0, 1, false, AT(sampling.min_p)},
    {"top_k", F_INT, -1, INT_TOP, false, AT(sampling.top_k)},
    {"presence_penalty", F_FLOAT, -2, 2, false, AT(sampling.presence_penalty)},
    {"frequency_penalty", F_FLOAT, -2, 2, false, AT(sampling.frequency_penalty)},
    {"repetition_penalty", F_FLOAT, 0.001, 1000, false, AT(sampling.repetition_penalty)},
    {"seed", F_INT64, -9223372036854775808.0, 9223372036854775808.0, false, AT(seed)},
    {"priority", F_INT, -INT_TOP, INT_TOP, false, AT(priority)},
    {"stream", F_BOOL, 0, 0, false, AT(stream)},
    {"ignore_eos", F_BOOL, 0, 0, false, AT(ignore_eos)},
    {"skip_special_tokens", F_BOOL, 0, 0, false, AT(skip_special)},
};
static const struct field completion_fields[] = {
    {"max_tokens", F_INT, 0, INT_TOP, false, AT(max_tokens)},
    {"logprobs", F_INT, 0, MAX_TOP_LOGPROBS, false, AT(logprobs)},
    {"echo", F_BOOL, 0, 0, false, AT(echo)},
    {"add_special_tokens", F_BOOL, 0, 0, false, AT(add_special)},
};
static const struct field chat_fields[] = {
    {"max_tokens", F_INT, 1, INT_TOP, false, AT(max_tokens)},
    {"max_completion_tokens", F_INT, 1, INT_TOP, false, AT(max_completion_tokens)},
    {"logprobs", F_BOOL, 0, 0, false, AT(chat_logprobs)},
    {"top_logprobs", F_INT, 0, MAX_TOP_LOGPROBS, false, AT(top_logprobs)},
    {"add_generation_prompt", F_BOOL, 0, 0, false, AT(add_generation_prompt)},
};
#define COUNT(table) (sizeof(table) / sizeof(table)[0])
enum { NUM_FIELDS = COUNT(fields) };

// Documented fields of OpenAI and vLLM that do not work here: refused by name, because ignoring them would
// give wrong answers with status 200. `harmless` is the one value that asks for nothing; NULL: there is none.
static const struct {
    const char *name, *harmless;
    enum { BOTH, LEGACY, CHAT } where;
} unsupported[] = {
    {"suffix", NULL, BOTH},
    {"response_format", "text", BOTH},
    {"structured_outputs", NULL, BOTH},
    {"guided_json", NULL, BOTH},
    {"guided_regex", NULL, BOTH},
    {"guided_choice", NULL, BOTH},
    {"guided_grammar", NULL, BOTH},
    {"grammar", NULL, BOTH},
    {"json_schema", NULL, BOTH},
    {"tools", "[]", BOTH},
    {"tool_choice", NULL, BOTH},
    {"functions", "[]", BOTH},
    {"function_call", NULL, BOTH},
    {"prompt_logprobs", "0", BOTH},
    {"truncate_prompt_tokens", "-1", BOTH},
    {"return_token_ids", "false", BOTH},
    {"return_tokens_as_token_ids", "false", BOTH},
    {"use_beam_search", "false", BOTH},
    {"include_stop_str_in_output", "false", BOTH},
    {"spaces_between_special_tokens", "true", BOTH},
    {"allowed_token_ids", NULL, BOTH},
    {"bad_words", "[]", BOTH},
    {"logits_processors", "[]", BOTH},
    {"prompt_embeds", NULL, BOTH},
    {"messages", NULL, LEGACY},
    {"prompt", NULL, CHAT},
    {"echo", "false", CHAT},
    {"audio", NULL, CHAT},
    {"web_search_options", NULL, CHAT},
    {"prediction", NULL, CHAT},
    {"chat_template", NULL, CHAT},
    {"chat_template_kwargs", NULL, CHAT},
    {"documents", "[]", CHAT},
    {"continue_final_message", "false", CHAT},
};

// Read by hand below, or harmless to ignore.
static const char *const known[] = {"model",          "messages",       "prompt",     "stop",
                                    "stop_token_ids", "stream_options", "logit_bias", "best_of",
                                    "cache_salt",     "request_id",     "user"};

static bool is_harmless(const json_t *v, const char *word) {
    if (!word)
        return false;
    if (strcmp(word, "[]") == 0)
        return json_is_array(v) && json_array_size(v) == 0;
    if (strcmp(word, "false") == 0)
        return json_is_false(v);
    if (strcmp(word, "true") == 0)
        return json_is_true(v);
    if (strcmp(word, "text") == 0) {
        const char *type = json_string_value(json_object_get(v, "type"));
        return type && strcmp(type, "text") == 0;
    }
    if (strcmp(word, "0") == 0)
        return json_is_false(v);
    return json_is_integer(v) && json_integer_value(v) == strtoll(word, NULL, 10);
}

static bool refused_by(const struct completion *c, size_t i) {
    return unsupported[i].where != (c->chat ? LEGACY : CHAT);
}

static bool read_table(struct completion *c, const json_t *root, struct api_error *e) {
    if (!fields_read(c, fields, NUM_FIELDS, root, e) ||
        !(c->chat ? fields_read(c, chat_fields, COUNT(chat_fields), root, e)
                  : fields_read(c, completion_fields, COUNT(completion_fields), root, e)))
        return false;
    if (c->max_completion_tokens > 0)
        c->max_tokens = c->max_completion_tokens;
    c->has_seed = field_get(root, "seed") != NULL;
    for (size_t i = 0; i < COUNT(unsupported); i++) {
        const json_t *v = field_get(root, unsupported[i].name);
        if (v && refused_by(c, i) && !is_harmless(v, unsupported[i].harmless))
            return api_fail(e, 400, "unsupported_parameter", unsupported[i].name,
                            "'%s' is not supported by this version of the server.", unsupported[i].name);
    }
    return true;
}

// Remembers one field that this endpoint does not know, for the log.
static void find_unknown(struct completion *c, json_t *root) {
    const struct field *own = c->chat ? chat_fields : completion_fields;
    size_t num_own = c->chat ? COUNT(chat_fields) : COUNT(completion_fields);
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value) {
        bool found = false;
        for (int i = 0; i < NUM_FIELDS && !found; i++)
            found = strcmp(key, fields[i].name) == 0;
        for (size_t i = 0; i < num_own && !found; i++)
            found = strcmp(key, own[i].name) == 0;
        for (size_t i = 0; i < COUNT(unsupported) && !found; i++)
            found = refused_by(c, i) && strcmp(key, unsupported[i].name) == 0;
        for (size_t i = 0; i < COUNT(known) && !found; i++)
            found = strcmp(key, known[i]) == 0;
        if (found)
            continue;
        size_t n = 0;
        for (; key[n] && n + 1 < sizeof c->unknown; n++)
            c->unknown[n] = (key[n] > ' ' && key[n] < 0x7f) ? key[n] : '?';
        c->unknown[n] = '\0';
        return;
    }
}

// ---- stops and bias

static bool add_stop(struct completion *c, const json_t *v, const char *param, struct api_error *e) {
    if (!json_is_string(v))
        return api_fail(e, 400, "invalid_type", param, "'stop' must be a string or a list of strings.");
    size_t len = json_string_length(v);
    if (len == 0 || len > DETOK_MAX_STOP_LEN)
        return api_fail(e, 400, "out_of_range", param, "A stop string must have from 1 to %d bytes.",
                        DETOK_MAX_STOP_LEN);
    char *copy = malloc(len + 1);
    if (!copy)
        return api_fail(e, 503, "overloaded", NULL, "The server is out of memory.");
    memcpy(copy, json_string_value(v), len + 1);
    c->stops[c->num_stops] = copy;
    c->stop_lens[c->num_stops++] = len;
    return true;
}

static bool read_stop(struct completion *c, const json_t *root, struct api_error *e) {
    const json_t *v = field_get(root, "stop");
    if (!v)
        return true;
    if (!(c->stops = calloc(DETOK_MAX_STOPS, sizeof *c->stops)))
        return api_fail(e, 503, "overloaded", NULL, "The server is out of memory.");
    if (!json_is_array(v))
        return add_stop(c, v, "stop", e);
    if (json_array_size(v) > DETOK_MAX_STOPS)
        return api_fail(e, 400, "out_of_range", "stop", "At most %d stop strings are allowed, found %zu.",
                        DETOK_MAX_STOPS, json_array_size(v));
    for (size_t i = 0; i < json_array_size(v); i++) {
        char param[32];
        snprintf(param, sizeof param, "stop[%zu]", i);
        if (!add_stop(c, json_array_get(v, i), param, e))
            return false;
    }
    return true;
}

static bool read_stop_ids(struct completion *c, const struct openai_model *m, const json_t *root,
                          struct api_error *e) {
    if (!c->ignore_eos)
        c->num_stop_ids = tokenizer_ends(m->tokenizer, c->stop_ids, MAX_STOP_TOKENS / 2);
    const json_t *v = field_get(root, "stop_token_ids");
    if (!v)
        return true;
    if (!json_is_array(v))
        return api_fail(e, 400, "invalid_type", "stop_token_ids",
                        "'stop_token_ids' must be a list of token ids.");
    if (json_array_size(v) > (size_t)(MAX_STOP_TOKENS - c->num_stop_ids))
        return api_fail(e, 400, "out_of_range", "stop_token_ids", "At most %d stop token ids are allowed.",
                        MAX_STOP_TOKENS - c->num_stop_ids);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *id = json_array_get(v, i);
        char param[40];
        snprintf(param, sizeof param, "stop_token_ids[%zu]", i);
        if (!json_is_integer(id))
            return api_fail(e, 400, "invalid_type", param, "A token id must be a whole number.");
        if (json_integer_value(id) < 0 || json_integer_value(id) >= m->vocab)
            return api_fail(e, 400, "out_of_range", param, "The token id is out of vocabulary: 0 to %d.",
                            m->vocab - 1);
        c->stop_ids[c->num_stop_ids++] = (token_id)json_integer_value(id);
    }
    return true;
}

static bool read_bias(struct completion *c, const struct openai_model *m, json_t *root, struct api_error *e) {
    json_t *v = json_object_get(root, "logit_bias"), *value;
    if (!v || json_is_null(v))
        return true;
    if (!json_is_object(v))
        return api_fail(e, 400, "invalid_type", "logit_bias", "'logit_bias' must be an object.");
    if (json_object_size(v) > MAX_LOGIT_BIAS)
        return api_fail(e, 400, "out_of_range", "logit_bias", "At most %d entries are allowed.",
                        MAX_LOGIT_BIAS);
    if (!(c->bias = calloc(json_object_size(v) + 1, sizeof *c->bias)))
        return api_fail(e, 503, "overloaded", NULL, "The server is out of memory.");
    const char *key;
    json_object_foreach(v, key, value) {
        char param[64];
        snprintf(param, sizeof param, "logit_bias.%.40s", key);
        size_t digits = strspn(key, "0123456789");
        long id = digits && digits < 10 && !key[digits] ? strtol(key, NULL, 10) : -1;
        if (id < 0 || id >= m->vocab)
            return api_fail(e, 400, "out_of_range", param, "The key must be a token id from 0 to %d.",
                            m->vocab - 1);
        double add = json_number_value(value);
        if (!json_is_number(value))
            return api_fail(e, 400, "invalid_type", param, "A bias must be a number.");
        if (!isfinite(add) || add < -100 || add > 100)
            return api_fail(e, 400, "out_of_range", param, "A bias must be at least -100 and at most 100.");
        for (int i = 0; i < c->num_bias; i++) // "7" and "07"
            if (c->bias[i].token == (token_id)id)
                return api_fail(e, 400, NULL, param, "The token id is given twice.");
        c->bias[c->num_bias++] = (struct logit_bias){.token = (token_id)id, .add = (float)add};
    }
    return true;
}

static bool read_stream_options(struct completion *c, const json_t *root, struct api_error *e) {
    const json_t *v = field_get(root, "stream_options");
    if (!v)
        return true;
    if (!json_is_object(v))
        return api_fail(e, 400, "invalid_type", "stream_options", "'stream_options' must be an object.");
    if (!c->stream)
        return api_fail(e, 400, NULL, "stream_options", "'stream_options' needs 'stream': true.");
    static const char *const names[] = {"include_usage", "continuous_usage_stats", "include_obfuscation"};
    bool values[3] = {0};
    for (int i = 0; i < 3; i++) {
        const json_t *o = field_get(v, names[i]);
        char param[64];
        snprintf(param, sizeof param, "stream_options.%s", names[i]);
        if (o && !json_is_boolean(o))
            return api_fail(e, 400, "invalid_type", param, "'%s' must be true or false.", names[i]);
        values[i] = o && json_is_true(o);
    }
    c->include_usage = values[0];
    c->continuous_usage = values[1];
    return true;
}

static bool read_rest(struct completion *c, const json_t *root, struct api_error *e) {
    const json_t *v = field_get(root, "best_of");
    if (v) {
        int64_t n = 0;
        double d;
        if (!field_whole(v, &d, &n))
            return api_fail(e, 400, "invalid_type", "best_of", "'best_of' must be a whole number.");
        if (n != 1 && n != c->n)
            return api_fail(e, 400, "unsupported_parameter", "best_of",
                            "'best_of' other than 1 or 'n' is not supported.");
        if (n < c->n)
            return api_fail(e, 400, "out_of_range", "best_of", "'best_of' must be at least 'n'.");
    }
    v = field_get(root, "cache_salt");
    if (v) {
        if (!json_is_string(v))
            return api_fail(e, 400, "invalid_type", "cache_salt", "'cache_salt' must be a string.");
        c->salt_len = json_string_length(v);
        if (c->salt_len == 0 || c->salt_len > MAX_SALT)
            return api_fail(e, 400, "out_of_range", "cache_salt",
                            "'cache_salt' must have from 1 to %d bytes.", MAX_SALT);
        if (!(c->salt = malloc(c->salt_len)))
            return api_fail(e, 503, "overloaded", NULL, "The server is out of memory.");
        memcpy(c->salt, json_string_value(v), c->salt_len);
    }
    v = field_get(root, "request_id");
    if (v) {
        const char *id = json_string_value(v);
        size_t n = id ? json_string_length(v) : 0;
        if (n == 0 || n > 128 ||
            strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-") != n)
            return api_fail(e, 400, id ? "out_of_range" : "invalid_type", "request_id",
                            "'request_id' must be a string of 1 to 128 letters, digits and ._:-");
        memcpy(c->request_id, id, n + 1);
    }
    v = field_get(root, "user");
    if (v && !json_is_string(v))
        return api_fail(e, 400, "invalid_type", "user", "'user' must be a string.");
    if (c->min_tokens > c->max_tokens && field_get(root, "min_tokens"))
        return api_fail(e, 400, "out_of_range", "min_tokens",
                        "'min_tokens' (%d) must not exceed 'max_tokens' (%d).", c->min_tokens, c->max_tokens);
    return true;
}

// ---- prompts

// `where` names the prompt in messages; the param of errors is always `prompt`.
static bool add_ids(struct token_buf *out, const struct openai_model *m, const json_t *list,
                    const char *where, struct api_error *e) {
    size_t n = json_array_size(list);
    const char *param = "prompt";
    if (n == 0)
        return api_fail(e, 400, NULL, param, "'%s' must not be empty.", where);
    if (n > (size_t)m->max_model_len)
        return api_fail(e, 400, "context_length_exceeded", param,
                        "This model's maximum context length is %d tokens; the prompt has %zu.",
                        m->max_model_len, n);
    if (!(out->ids = calloc(n, sizeof *out->ids)))
        return api_fail(e, 503, "overloaded", NULL, "The server is out of memory.");
    out->cap = n;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        if (!json_is_integer(id))
            return api_fail(e, 400, "invalid_type", param, "'%s[%zu]' must be a token id, a whole number.",
                            where, i);
        if (json_integer_value(id) < 0 || json_integer_value(id) >= m->vocab)
            return api_fail(e, 400, "out_of_range", param, "'%s[%zu]' is out of vocabulary: 0 to %d.", where,
                            i, m->vocab - 1);
        out->ids[out->len++] = (token_id)json_integer_value(id);
    }
    return true;
}

static bool add_text(struct token_buf *out, const struct completion *c, const struct openai_model *m,
                     const json_t *v, struct api_error *e) {
    const char *param = "prompt";
    size_t len = json_string_length(v);
    // No token is longer than max_token_bytes, so a longer text cannot fit: refused without tokenising it.
    if (len / m->max_token_bytes > (size_t)m->max_model_len)
        return api_fail(
            e, 400, "context_length_exceeded", param,
            "This model's maximum context length is %d tokens; the prompt has %zu bytes, which is more.",
            m->max_model_len, len);
    unsigned flags = TOKENIZE_PARSE_SPECIAL | (c->add_special ? TOKENIZE_ADD_SPECIAL : 0u);
    if (tokenizer_encode(m->tokenizer, json_string_value(v), len, flags, out) != STATUS_OK)
        return api_fail(e, 503, "overloaded", NULL, "The server is out of memory.");
    if (out->len > 0)
        return true;
    token_id bos = tokenizer_bos(m->tokenizer);
    if (bos < 0)
        return api_fail(e, 400, NULL, param,
                        "The prompt must not be empty: this model has no token to begin with.");
    if (out->cap == 0) {
        if (!(out->ids = malloc(sizeof *out->ids)))
            return api_fail(e, 503, "overloaded", NULL, "The server is out of memory.");
        out->cap = 1;
    }
    out->ids[out->len++] = bos;
    return true;
}

// Whether a prompt leaves room for an answer.
static bool check_room(const struct completion *c, const struct openai_model *m, size_t len,
                       const char *param, struct api_error *e) {
    int room = len > (size_t)m->max_model_len ? -1 : m->max_model_len - (int)len;
    return room > 0 || (room == 0 && c->max_tokens == 0) ||
           api_fail(e, 400, "context_length_exceeded", param,
                    "This model's maximum context length is %d tokens; the prompt has %zu%s.",
                    m->max_model_len, len, room == 0 ? ", which leaves no room for an answer" : "");
}

static bool read_messages(struct completion *c, const struct openai_model *m, const json_t *root,
                          struct api_error *e) {
    if (c->top_logprobs > 0 && !c->chat_logprobs)
        return api_fail(e, 400, NULL, "top_logprobs", "'top_logprobs' needs 'logprobs': true.");
    if (c->chat_logprobs)
        c->logprobs = c->top_logprobs > 0 ? c->top_logprobs : 0;
    if (!(c->prompts = calloc(1, sizeof *c->prompts)))
        return api_fail(e, 503, "overloaded", NULL, "The server is out of memory.");
    c->num_prompts = 1;
    return chat_prompt(m, root, c->add_generation_prompt, &c->prompts[0], e) &&
           check_room(c, m, c->prompts[0].len, "messages", e);
}

static bool read_prompts(struct completion *c, const struct openai_model *m, const json_t *root,
                         struct api_error *e) {
    const json_t *v = field_get(root, "prompt");
    if (!v)
        return api_fail(e, 400, "missing_required_parameter", "prompt", "'prompt' is missing.");
    const json_t *first = json_is_array(v) ? json_array_get(v, 0) : NULL;
    bool many = json_is_string(first) || json_is_array(first);
    if (!json_is_string(v) && !json_is_array(v))
        return api_fail(
            e, 400, "invalid_type", "prompt",
            "'prompt' must be a string, a list of strings, a list of token ids, or a list of such lists.");
    if (json_is_array(v) && !first)
        return api_fail(e, 400, NULL, "prompt", "'prompt' must not be an empty list.");
    size_t num = many ? json_array_size(v) : 1;
    if (num * (size_t)c->n > MAX_CHOICES)
        return api_fail(e, 400, "out_of_range", "prompt", "Prompts times 'n' must not exceed %d, found %zu.",
                        MAX_CHOICES, num * (size_t)c->n);
    if (!(c->prompts = calloc(num, sizeof *c->prompts)))
        return api_fail(e, 503, "overloaded", NULL, "The server is out of memory.");
    c->num_prompts = num;
    for (size_t i = 0; i < num; i++) {
        const json_t *p = many ? json_array_get(v, i) : v;
        char where[32] = "prompt";
        if (many)
            snprintf(where, sizeof where, "prompt[%zu]", i);
        if (many && json_typeof(p) != json_typeof(first))
            return api_fail(e, 400, "invalid_type", "prompt",
                            "'%s' is of another kind than the prompts before it.", where);
        struct token_buf *ids = &c->prompts[i];
        if (!(json_is_string(p) ? add_text(ids, c, m, p, e) : add_ids(ids, m, p, where, e)))
            return false;
        if (!check_room(c, m, ids->len, "prompt", e))
            return false;
    }
    return true;
}

static bool parse(struct completion *c, bool chat, const struct openai_model *m, const char *body, size_t len,
                  struct api_error *e) {
    *c = (struct completion){
        .n = 1,
        .chat = chat,
        .max_tokens = chat ? INT_MAX : 16,
        .max_completion_tokens = -1,
        .top_logprobs = -1,
        .add_generation_prompt = true,
        .sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .logprobs = -1},
        .skip_special = true,
        .add_special = true,
        .logprobs = -1};
    json_t *root = body_load(body, len, e);
    if (!root)
        return false;
    bool ok = (c->model = field_model(m, root, e)) && read_table(c, root, e) && read_stop(c, root, e) &&
              read_stop_ids(c, m, root, e) && read_bias(c, m, root, e) && read_stream_options(c, root, e) &&
              read_rest(c, root, e) && (chat ? read_messages(c, m, root, e) : read_prompts(c, m, root, e));
    if (ok) {
        find_unknown(c, root);
        if (c->sampling.temperature < 1e-5f)
            c->sampling.temperature = 0;
        if (c->sampling.top_k < 0)
            c->sampling.top_k = 0;
        c->sampling.logprobs = c->logprobs;
        c->sampling.prompt_logprobs = c->echo && c->logprobs >= 0;
    }
    json_decref(root);
    if (!ok)
        completion_free(c);
    return ok;
}

bool completion_parse(struct completion *c, const struct openai_model *m, const char *body, size_t len,
                      struct api_error *e) {
    return parse(c, false, m, body, len, e);
}

bool chat_parse(struct completion *c, const struct openai_model *m, const char *body, size_t len,
                struct api_error *e) {
    return parse(c, true, m, body, len, e);
}

void completion_free(struct completion *c) {
    for (size_t i = 0; i < c->num_prompts; i++)
        token_buf_free(&c->prompts[i]);
    free(c->prompts);
    for (int i = 0; i < c->num_stops; i++)
        free(c->stops[i]);
    free(c->stops);
    free(c->bias);
    free(c->salt);
    *c = (struct completion){0};
}
