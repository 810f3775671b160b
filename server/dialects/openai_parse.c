// Request bodies of OpenAI's APIs: the fields that completions and chat share.
#include "api/messages.h"
#include "api/sampling_fields.h"
#include "openai.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- fields

#define AT(field) offsetof(struct completion_request, field)
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
    {"priority", F_INT, -INT_TOP, INT_TOP, false, AT(base.priority)},
    {"stream", F_BOOL, 0, 0, false, AT(stream)},
    {"ignore_eos", F_BOOL, 0, 0, false, AT(ignore_eos)},
    {"skip_special_tokens", F_BOOL, 0, 0, false, AT(skip_special)},
    {"spaces_between_special_tokens", F_BOOL, 0, 0, false, AT(spaces_between_special)},
    {"include_stop_str_in_output", F_BOOL, 0, 0, false, AT(include_stop)},
    {"return_token_ids", F_BOOL, 0, 0, false, AT(return_ids)},
    {"return_tokens_as_token_ids", F_BOOL, 0, 0, false, AT(names_ids)},
    {"typical_p", F_FLOAT, 0, 1, true, AT(sampling.typical_p)},
    {"top_n_sigma", F_FLOAT, -1, 1000, false, AT(sampling.top_n_sigma)},
    {"xtc_probability", F_FLOAT, 0, 1, false, AT(sampling.xtc_probability)},
    {"xtc_threshold", F_FLOAT, 0, 1, false, AT(sampling.xtc_threshold)},
    {"dynatemp_range", F_FLOAT, 0, 2, false, AT(sampling.dynatemp_range)},
    {"dynatemp_exponent", F_FLOAT, 0, 100, true, AT(sampling.dynatemp_exponent)},
    {"mirostat", F_INT, 0, 2, false, AT(mirostat)},
    {"mirostat_tau", F_FLOAT, 0, 100, true, AT(sampling.mirostat_tau)},
    {"mirostat_eta", F_FLOAT, 0, 10, false, AT(sampling.mirostat_eta)},
    {"dry_multiplier", F_FLOAT, 0, 1000, false, AT(history.dry_multiplier)},
    {"dry_base", F_FLOAT, 1, 1000, false, AT(history.dry_base)},
    {"dry_allowed_length", F_INT, 0, INT_TOP, false, AT(history.dry_allowed_length)},
    {"dry_penalty_last_n", F_INT, -1, INT_TOP, false, AT(history.dry_last_n)},
    {"no_repeat_ngram_size", F_INT, 0, INT_TOP, false, AT(history.no_repeat_ngram)},
    {"truncate_prompt_tokens", F_INT, -1, INT_TOP, false, AT(truncate)},
    {"timings_per_token", F_BOOL, 0, 0, false, AT(timings)},
};
#define COUNT(table) (sizeof(table) / sizeof(table)[0])
enum { NUM_FIELDS = COUNT(fields) };

// ---- names that no table above reads

static bool same_value(const json_t *a, const json_t *b) {
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b)
                                                  : json_equal(a, b);
}

// Gives the value of an alias to the field that it stands for.
static bool apply_alias(json_t *root, const struct field_rule *alias, json_t *given, struct api_error *e) {
    json_t *v = field_rule_has(alias, given) ? json_integer(INT_MAX) : json_incref(given);
    const char *names[] = {alias->word, "max_completion_tokens"};
    int num_names = strcmp(alias->word, "max_tokens") == 0 ? 2 : 1;
    for (int i = 0; i < num_names; i++) {
        const json_t *other = field_get(root, names[i]);
        if (other && other != given && !same_value(other, v)) {
            json_decref(v);
            return api_fail(e, 400, NULL, alias->name,
                            "'%s' and '%s' mean the same, and their values differ.", alias->name, names[i]);
        }
    }
    return json_object_set_new(root, alias->word, v) == 0 || api_fail_memory(e);
}

static bool apply_aliases(json_t *root, const struct field_names *names, struct api_error *e) {
    for (const struct field_rule *rule = names->rules; rule->name; rule++) {
        bool here = rule->fate == FIELD_ALIAS && (rule->where & names->where);
        json_t *v = here ? json_object_get(root, rule->name) : NULL;
        if (v && !json_is_null(v) && !apply_alias(root, rule, v, e))
            return false;
    }
    return true;
}

// An error of a field whose value came by another name speaks of that name.
static void name_alias(const json_t *root, const struct field_names *names, struct api_error *e) {
    for (const struct field_rule *rule = names->rules; rule->name; rule++) {
        size_t n = rule->fate == FIELD_ALIAS && (rule->where & names->where) ? strlen(rule->word) : 0;
        if (!n || strncmp(e->param, rule->word, n) != 0 || (e->param[n] && e->param[n] != '[') ||
            !field_get(root, rule->name))
            continue;
        struct api_error old = *e;
        snprintf(e->param, sizeof e->param, "%s%.60s", rule->name, old.param + n);
        snprintf(e->message, sizeof e->message, "'%s' stands for '%s'. %.320s", rule->name, rule->word,
                 old.message);
        return;
    }
}

bool openai_check_priority(const struct api_request *r, const struct served_model *m, struct api_error *e) {
    return r->priority == 0 || m->has_priorities ||
           api_fail(e, 400, "unsupported_parameter", "priority",
                    "'priority' other than 0 needs a server with --scheduling-policy priority.");
}

bool openai_read_fields(struct completion_request *r, const struct served_model *m, json_t *root,
                        const struct openai_api *api, void *own, struct api_error *e) {
    if (!apply_aliases(root, &api->names, e) || !(r->base.model = field_model(m, root, &r->base.lora, e)) ||
        !fields_read(r, fields, NUM_FIELDS, root, e) ||
        !fields_read(r, api->fields, api->num_fields, root, e) ||
        !fields_read(own, api->own_fields, api->num_own_fields, root, e))
        return false;
    r->has_seed = field_get(root, "seed") && r->seed != -1; // -1: any (vLLM, llama.cpp)
    return openai_check_priority(&r->base, m, e) && fields_refuse(root, &api->names, e);
}

// ---- stops and bias

static bool add_stop(struct completion_request *r, const json_t *v, const char *param, struct api_error *e) {
    if (!json_is_string(v))
        return api_fail(e, 400, "invalid_type", param, "'stop' must be a string or a list of strings.");
    size_t len = json_string_length(v);
    if (len == 0 || len > DETOK_MAX_STOP_LEN)
        return api_fail(e, 400, "out_of_range", param, "A stop string must have from 1 to %d bytes.",
                        DETOK_MAX_STOP_LEN);
    char *copy = malloc(len + 1);
    if (!copy)
        return api_fail_memory(e);
    memcpy(copy, json_string_value(v), len + 1);
    r->stops[r->num_stops] = copy;
    r->stop_lens[r->num_stops++] = len;
    return true;
}

static bool read_stop(struct completion_request *r, const json_t *root, struct api_error *e) {
    const json_t *v = field_get(root, "stop");
    if (!v)
        return true;
    if (!(r->stops = calloc(DETOK_MAX_STOPS, sizeof *r->stops)))
        return api_fail_memory(e);
    if (!json_is_array(v))
        return add_stop(r, v, "stop", e);
    if (json_array_size(v) > DETOK_MAX_STOPS)
        return api_fail(e, 400, "out_of_range", "stop", "At most %d stop strings are allowed, found %zu.",
                        DETOK_MAX_STOPS, json_array_size(v));
    for (size_t i = 0; i < json_array_size(v); i++) {
        char param[32];
        snprintf(param, sizeof param, "stop[%zu]", i);
        if (!add_stop(r, json_array_get(v, i), param, e))
            return false;
    }
    return true;
}

static bool read_stop_ids(struct completion_request *r, const struct served_model *m, const json_t *root,
                          struct api_error *e) {
    if (!r->ignore_eos)
        r->num_own_ends = r->num_stop_ids = tokenizer_ends(m->tokenizer, r->stop_ids, MAX_STOP_TOKENS / 2);
    const json_t *v = field_get(root, "stop_token_ids");
    if (!v)
        return true;
    if (!json_is_array(v))
        return api_fail(e, 400, "invalid_type", "stop_token_ids",
                        "'stop_token_ids' must be a list of token ids.");
    if (json_array_size(v) > (size_t)(MAX_STOP_TOKENS - r->num_stop_ids))
        return api_fail(e, 400, "out_of_range", "stop_token_ids", "At most %d stop token ids are allowed.",
                        MAX_STOP_TOKENS - r->num_stop_ids);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *id = json_array_get(v, i);
        char param[40];
        snprintf(param, sizeof param, "stop_token_ids[%zu]", i);
        if (!json_is_integer(id))
            return api_fail(e, 400, "invalid_type", param, "A token id must be an integer.");
        if (json_integer_value(id) < 0 || json_integer_value(id) >= m->vocab)
            return api_fail(e, 400, "out_of_range", param, "The token id is out of vocabulary: 0 to %d.",
                            m->vocab - 1);
        r->stop_ids[r->num_stop_ids++] = (token_id)json_integer_value(id);
    }
    return true;
}

static bool read_bias(struct completion_request *r, const struct served_model *m, json_t *root,
                      struct api_error *e) {
    json_t *v = json_object_get(root, "logit_bias"), *value;
    if (!v || json_is_null(v))
        return true;
    if (!json_is_object(v))
        return api_fail(e, 400, "invalid_type", "logit_bias", "'logit_bias' must be an object.");
    if (json_object_size(v) > MAX_LOGIT_BIAS)
        return api_fail(e, 400, "out_of_range", "logit_bias", "At most %d entries are allowed.",
                        MAX_LOGIT_BIAS);
    if (!(r->bias = calloc(json_object_size(v) + 1, sizeof *r->bias)))
        return api_fail_memory(e);
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
        for (int i = 0; i < r->num_bias; i++) // "7" and "07"
            if (r->bias[i].token == (token_id)id)
                return api_fail(e, 400, NULL, param, "The token id is given twice.");
        r->bias[r->num_bias++] = (struct logit_bias){.token = (token_id)id, .add = (float)add};
    }
    return true;
}

static bool read_stream_options(struct completion_request *r, const json_t *root, struct api_error *e) {
    const json_t *v = field_get(root, "stream_options");
    if (!v)
        return true;
    if (!json_is_object(v))
        return api_fail(e, 400, "invalid_type", "stream_options", "'stream_options' must be an object.");
    if (!r->stream)
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
    r->include_usage = values[0];
    r->continuous_usage = values[0] && values[1]; // as in vLLM
    return true;
}

static bool read_rest(struct completion_request *r, const json_t *root, struct api_error *e) {
    const json_t *v = field_get(root, "best_of");
    if (v) {
        int64_t n = 0;
        double d;
        if (!field_whole(v, &d, &n))
            return api_fail(e, 400, "invalid_type", "best_of", "'best_of' must be an integer.");
        if (n != 1 && n != r->n)
            return api_fail(e, 400, "unsupported_parameter", "best_of",
                            "'best_of' other than 1 or 'n' is not supported.");
        if (n < r->n)
            return api_fail(e, 400, "out_of_range", "best_of", "'best_of' must be at least 'n'.");
    }
    if (r->min_tokens > r->max_tokens && field_get(root, "min_tokens"))
        return api_fail(e, 400, "out_of_range", "min_tokens",
                        "'min_tokens' (%d) must not exceed 'max_tokens' (%d).", r->min_tokens, r->max_tokens);
    return openai_read_labels(&r->base, root, e);
}

bool openai_read_labels(struct api_request *r, const json_t *root, struct api_error *e) {
    const json_t *v = field_get(root, "cache_salt");
    if (v) {
        if (!json_is_string(v))
            return api_fail(e, 400, "invalid_type", "cache_salt", "'cache_salt' must be a string.");
        r->salt_len = json_string_length(v);
        if (r->salt_len == 0 || r->salt_len > MAX_SALT)
            return api_fail(e, 400, "out_of_range", "cache_salt",
                            "'cache_salt' must have from 1 to %d bytes.", MAX_SALT);
        if (!(r->salt = malloc(r->salt_len)))
            return api_fail_memory(e);
        memcpy(r->salt, json_string_value(v), r->salt_len);
        r->salted = true;
    }
    v = field_get(root, "prompt_cache_retention");
    if (v && !json_is_string(v))
        return api_fail(e, 400, "invalid_type", "prompt_cache_retention",
                        "'prompt_cache_retention' must be a string.");
    r->retain = (v && strcmp(json_string_value(v), "24h") == 0) || fields_wish_retention(root);
    v = field_get(root, "request_id");
    if (v) {
        const char *id = json_string_value(v);
        size_t n = id ? json_string_length(v) : 0;
        if (n == 0 || n > 128 ||
            strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-") != n)
            return api_fail(e, 400, id ? "out_of_range" : "invalid_type", "request_id",
                            "'request_id' must be a string of 1 to 128 letters, digits and ._:-");
        memcpy(r->request_id, id, n + 1);
    }
    v = field_get(root, "user");
    if (v && !json_is_string(v))
        return api_fail(e, 400, "invalid_type", "user", "'user' must be a string.");
    return true;
}

bool openai_check_room(const struct served_model *m, int max_tokens, size_t len, const char *param,
                       struct api_error *e) {
    int room = len > (size_t)m->max_model_len ? -1 : m->max_model_len - (int)len;
    return room > 0 || (room == 0 && max_tokens == 0) ||
           api_fail_context(e, param, "the prompt has", len, 0, m->max_model_len);
}

bool openai_read_options(struct completion_request *r, const struct served_model *m, json_t *root,
                         struct api_error *e) {
    return read_stop(r, root, e) && read_stop_ids(r, m, root, e) && read_bias(r, m, root, e) &&
           read_stream_options(r, root, e) && sampling_read(r, m, root, e) && read_rest(r, root, e);
}

struct completion_request openai_defaults(const struct served_model *m) {
    return (struct completion_request){
        .n = 1,
        .sampling = m->sampling ? *m->sampling : sampling_plain,
        .history = {.dry_base = 1.75f, .dry_allowed_length = 2, .dry_last_n = -1},
        .skip_special = true,
        .truncate = INT_MAX,
        .add_special = true,
        .prompt_logprobs = -1,
        .reasoning_budget = -1,
        .logprobs = -1};
}

bool openai_parse_end(struct completion_request *r, const struct served_model *m, json_t *root,
                      const struct openai_api *api, bool ok, struct api_error *e) {
    char ignored[IGNORED_SIZE];
    ok = fields_tell_ignored(ignored, m, root, &api->names, ok, e);
    if (ok) {
        if (r->sampling.temperature < 1e-5f)
            r->sampling.temperature = 0;
        if (r->sampling.top_k < 0)
            r->sampling.top_k = 0;
        r->sampling.logprobs = r->logprobs;
        int echoed = r->echo ? r->logprobs : -1,
            most = echoed > r->prompt_logprobs ? echoed : r->prompt_logprobs;
        r->sampling.prompt_logprobs = most >= 0;
        r->sampling.num_prompt_logprobs = most > 0 ? most : 0;
    } else {
        name_alias(root, &api->names, e);
        completion_request_free(r);
    }
    memcpy(r->base.ignored, ignored, sizeof ignored);
    json_decref(root);
    return ok;
}
