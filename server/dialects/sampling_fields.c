// Fields of requests that say how tokens are chosen and shown, beyond what a table reads.
#include "openai.h"

#include <limits.h>
#include <string.h>

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

// vLLM's: 0 asks for the prompt tokens' own log-probabilities; alternatives beside them are not supported.
static bool read_prompt_logprobs(struct completion_request *r, const json_t *root, struct api_error *e) {
    const json_t *v = field_get(root, "prompt_logprobs");
    if (!v || json_is_false(v))
        return true;
    if (!json_is_integer(v) || json_integer_value(v) != 0)
        return api_fail(e, 400, "unsupported_parameter", "prompt_logprobs",
                        "'prompt_logprobs' other than 0 is not supported by this version of the server.");
    if (r->stream)
        return api_fail(e, 400, NULL, "prompt_logprobs", "'prompt_logprobs' needs 'stream': false.");
    r->prompt_logprobs = true;
    return true;
}

bool openai_read_sampling(struct completion_request *r, const struct served_model *m, const json_t *root,
                          struct api_error *e) {
    return read_truncation(r, m, root, e) && read_prompt_logprobs(r, root, e);
}
