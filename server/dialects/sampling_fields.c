// Fields of requests that say how tokens are chosen and shown, beyond what a table reads.
#include "openai.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- defaults

#define AT(field) offsetof(struct sampling_params, field)
static const struct field defaults[] = {
    {"temperature", F_FLOAT, 0, 2, false, AT(temperature)},
    {"top_p", F_FLOAT, 0, 1, true, AT(top_p)},
    {"min_p", F_FLOAT, 0, 1, false, AT(min_p)},
    {"top_k", F_INT, -1, INT_MAX, false, AT(top_k)},
    {"presence_penalty", F_FLOAT, -2, 2, false, AT(presence_penalty)},
    {"frequency_penalty", F_FLOAT, -2, 2, false, AT(frequency_penalty)},
    {"repetition_penalty", F_FLOAT, 0.001, 1000, false, AT(repetition_penalty)},
};
enum { NUM_DEFAULTS = sizeof defaults / sizeof defaults[0] };

bool openai_read_defaults(struct sampling_params *out, const json_t *object, bool strict,
                          struct api_error *e) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)object, key, v) {
        bool found = !strict;
        for (int i = 0; i < NUM_DEFAULTS; i++)
            found |= strcmp(key, defaults[i].name) == 0;
        if (!found)
            return api_fail(e, 400, NULL, key, "'%.64s' has no default that could be set.", key);
    }
    return fields_read(out, defaults, NUM_DEFAULTS, object, e);
}

// ---- what is kept of a prompt

static bool read_truncation(struct completion_request *r, const struct served_model *m, const json_t *root,
                            struct api_error *e) {
    const json_t *side = field_get(root, "truncation_side");
    const char *name = side ? json_string_value(side) : "left";
    r->truncate_end = name && strcmp(name, "right") == 0;
    if (!name || (strcmp(name, "left") != 0 && !r->truncate_end))
        return api_fail(e, 400, NULL, "truncation_side", "'truncation_side' must be left or right.");
    if (r->truncate == 0 || (r->truncate > m->max_model_len && r->truncate != INT_MAX))
        return api_fail(e, 400, "out_of_range", "truncate_prompt_tokens",
                        "'truncate_prompt_tokens' must be -1, or from 1 to %d.", m->max_model_len);
    return true;
}

void openai_truncate(const struct completion_request *r, const struct served_model *m,
                     struct token_buf *prompt) {
    int room = r->max_tokens == INT_MAX ? 1 : r->max_tokens, keep = r->truncate;
    if (keep < 0)
        keep = room < m->max_model_len ? m->max_model_len - room : 1;
    if (prompt->len <= (size_t)keep)
        return;
    if (!r->truncate_end)
        memmove(prompt->ids, prompt->ids + (prompt->len - (size_t)keep), (size_t)keep * sizeof *prompt->ids);
    prompt->len = (size_t)keep;
}

// ---- log-probabilities

// Log-probabilities of the prompt, with so many alternatives each.
static bool read_prompt_logprobs(struct completion_request *r, const json_t *root, struct api_error *e) {
    const json_t *v = field_get(root, "prompt_logprobs");
    double d;
    int64_t n = -1;
    if (!v || json_is_false(v))
        return true;
    if (!field_whole(v, &d, &n))
        return api_fail(e, 400, "invalid_type", "prompt_logprobs", "'prompt_logprobs' must be an integer.");
    if (n < 0 || n > MAX_TOP_LOGPROBS)
        return api_fail(e, 400, "out_of_range", "prompt_logprobs",
                        "'prompt_logprobs' must be at least 0 and at most %d.", MAX_TOP_LOGPROBS);
    if (r->stream)
        return api_fail(e, 400, NULL, "prompt_logprobs", "'prompt_logprobs' needs 'stream': false.");
    r->prompt_logprobs = (int)n;
    return true;
}

// Reads a list of 1 to `most` different ids of the vocabulary.
static bool read_ids(token_id **out, int *num, const struct served_model *m, const json_t *list,
                     const char *name, size_t most, struct api_error *e) {
    size_t n = json_array_size(list);
    if (!json_is_array(list))
        return api_fail(e, 400, "invalid_type", name, "'%s' must be a list of token ids.", name);
    if (n == 0 || n > most)
        return api_fail(e, 400, "out_of_range", name, "'%s' must have from 1 to %zu token ids, found %zu.",
                        name, most, n);
    if (!(*out = calloc(n, sizeof **out)))
        return api_fail_memory(e);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        char param[48];
        snprintf(param, sizeof param, "%s[%zu]", name, i);
        if (!json_is_integer(id))
            return api_fail(e, 400, "invalid_type", param, "A token id must be an integer.");
        if (json_integer_value(id) < 0 || json_integer_value(id) >= m->vocab)
            return api_fail(e, 400, "out_of_range", param, "The token id is out of vocabulary: 0 to %d.",
                            m->vocab - 1);
        (*out)[(*num)++] = (token_id)json_integer_value(id);
    }
    return true;
}

// Alternatives of the client's choice, in place of the best.
static bool read_logprob_ids(struct completion_request *r, const struct served_model *m, const json_t *root,
                             struct api_error *e) {
    const char *name = "logprob_token_ids";
    const json_t *v = field_get(root, name);
    int n = 0;
    if (!v)
        return true;
    if (!json_is_integer(field_get(root, "logprobs")) && !json_is_true(field_get(root, "logprobs")))
        return api_fail(e, 400, NULL, name, "'%s' needs 'logprobs'.", name);
    if (r->echo)
        return api_fail(e, 400, NULL, name, "'%s' and 'echo' exclude each other.", name);
    if (!read_ids(&r->logprob_ids, &n, m, v, name, MAX_TOP_LOGPROBS, e))
        return false;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            if (r->logprob_ids[i] == r->logprob_ids[j])
                return api_fail(e, 400, NULL, name, "The token id %d is given twice.", r->logprob_ids[i]);
    r->logprobs = n;
    return true;
}

bool openai_read_sampling(struct completion_request *r, const struct served_model *m, const json_t *root,
                          struct api_error *e) {
    return read_truncation(r, m, root, e) && read_prompt_logprobs(r, root, e) &&
           read_logprob_ids(r, m, root, e);
}
