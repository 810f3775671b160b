#include "sampling_fields.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- defaults

// A parameter of a stage that is off here is its default once the stage is on.
#define REST                                                                                                 \
    .repetition_penalty = 1, .xtc_threshold = 0.1f, .dynatemp_exponent = 1, .mirostat_tau = 5,               \
    .mirostat_eta = 0.1f, .logprobs = -1
const struct sampling_params sampling_plain = {.temperature = 1, .top_p = 1, REST};
const struct sampling_params sampling_chat = {
    .temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, REST};

// The shortest number that a person would write for it.
static json_t *number_of(float v) {
    char text[32];
    snprintf(text, sizeof text, "%.6g", (double)v);
    return json_real(strtod(text, NULL));
}

json_t *sampling_object(const struct sampling_params *s) {
    return json_pack("{s:o,s:i,s:o,s:o}", "temperature", number_of(s->temperature), "top_k", s->top_k,
                     "top_p", number_of(s->top_p), "min_p", number_of(s->min_p));
}

#define AT(field) offsetof(struct sampling_params, field)
static const struct field defaults[] = {
    {"temperature", F_FLOAT, 0, 2, false, AT(temperature)},
    {"top_p", F_FLOAT, 0, 1, true, AT(top_p)},
    {"min_p", F_FLOAT, 0, 1, false, AT(min_p)},
    {"top_k", F_INT, -1, INT_MAX, false, AT(top_k)},
    {"typical_p", F_FLOAT, 0, 1, true, AT(typical_p)},
    {"top_n_sigma", F_FLOAT, -1, 1000, false, AT(top_n_sigma)},
    {"xtc_probability", F_FLOAT, 0, 1, false, AT(xtc_probability)},
    {"xtc_threshold", F_FLOAT, 0, 1, false, AT(xtc_threshold)},
    {"presence_penalty", F_FLOAT, -2, 2, false, AT(presence_penalty)},
    {"frequency_penalty", F_FLOAT, -2, 2, false, AT(frequency_penalty)},
    {"repetition_penalty", F_FLOAT, 0.001, 1000, false, AT(repetition_penalty)},
};
enum { NUM_DEFAULTS = sizeof defaults / sizeof defaults[0] };

bool sampling_read_defaults(struct sampling_params *out, const json_t *object, bool strict,
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
    const char *name = side ? json_name(side) : "left";
    r->truncate_end = name && strcmp(name, "right") == 0;
    if (!name || (strcmp(name, "left") != 0 && !r->truncate_end))
        return api_fail(e, 400, NULL, "truncation_side", "'truncation_side' must be left or right.");
    if (r->truncate == 0 || (r->truncate > m->max_model_len && r->truncate != INT_MAX))
        return api_fail(e, 400, "out_of_range", "truncate_prompt_tokens",
                        "'truncate_prompt_tokens' must be -1, or from 1 to %d.", m->max_model_len);
    return true;
}

void prompt_truncate(const struct completion_request *r, const struct served_model *m,
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

// ---- tokens that may not come, and repetitions

static bool read_allowed(struct completion_request *r, const struct served_model *m, const json_t *root,
                         struct api_error *e) {
    const json_t *v = field_get(root, "allowed_token_ids");
    token_id *ids = NULL;
    int n = 0;
    if (!v)
        return true;
    bool ok = read_ids(&ids, &n, m, v, "allowed_token_ids", (size_t)m->vocab, e);
    if (ok && !(r->allowed = calloc(((size_t)m->vocab + 31) / 32, sizeof *r->allowed)))
        ok = api_fail_memory(e);
    for (int i = 0; ok && i < n; i++)
        r->allowed[ids[i] / 32] |= 1u << (ids[i] % 32);
    free(ids);
    return ok;
}

static bool push_id(struct token_buf *b, token_id id) {
    if (b->len == b->cap) {
        size_t cap = b->cap ? 2 * b->cap : 16;
        token_id *grown = realloc(b->ids, cap * sizeof *grown);
        if (!grown)
            return false;
        b->ids = grown;
        b->cap = cap;
    }
    b->ids[b->len++] = id;
    return true;
}

// Appends the ids of `before` and text, with cut without those of `before`, with their number in front; nothing where
// they are none or those of the sequence at `same`.
static bool add_sequence(struct token_buf *out, const struct served_model *m, const char *before, bool cut,
                         const char *text, size_t len, size_t same, struct api_error *e) {
    struct token_buf head = {0};
    struct buf whole = {0};
    size_t at = out->len;
    buf_str(&whole, before);
    buf_add(&whole, text, len);
    enum status status = whole.failed || !push_id(out, 0) ? STATUS_NOMEM : STATUS_OK;
    if (status == STATUS_OK && cut)
        status = tokenizer_encode(m->tokenizer, before, strlen(before), 0, &head);
    if (status == STATUS_OK)
        status = tokenizer_encode(m->tokenizer, whole.data, whole.len, TOKENIZE_PARSE_SPECIAL, out);
    bool ok = status == STATUS_OK;
    size_t n = ok ? out->len - at - 1 : 0;
    token_id *ids = out->ids + at;
    if (head.len < n && (head.len == 0 || memcmp(ids + 1, head.ids, head.len * sizeof *ids) == 0)) {
        n -= head.len;
        memmove(ids + 1, ids + 1 + head.len, n * sizeof *ids);
        ids[0] = (token_id)n;
        bool again = same + 1 + n <= at && memcmp(out->ids + same, ids, (1 + n) * sizeof *ids) == 0;
        out->len = again ? at : at + 1 + n;
    } else if (ok) {
        out->len = at;
    }
    token_buf_free(&head);
    buf_free(&whole);
    return api_check_encoded(e, NULL, status);
}

// Strings of a list, each as it begins a text, as it follows a space, and as it follows what is neither, where the
// tokens differ.
static bool read_bad_words(struct completion_request *r, const struct served_model *m, const json_t *root,
                           struct api_error *e) {
    const json_t *v = field_get(root, "bad_words");
    struct token_buf out = {0};
    bool ok = !v || json_is_array(v) ||
              api_fail(e, 400, "invalid_type", "bad_words", "'bad_words' must be a list of strings.");
    if (ok && json_array_size(v) > MAX_BAD_WORDS / 3)
        ok =
            api_fail(e, 400, "out_of_range", "bad_words", "At most %d words are allowed.", MAX_BAD_WORDS / 3);
    for (size_t i = 0; ok && i < json_array_size(v); i++) {
        const char *text = json_string_value(json_array_get(v, i));
        size_t len = json_string_length(json_array_get(v, i)), at = out.len;
        char param[32];
        snprintf(param, sizeof param, "bad_words[%zu]", i);
        while (len > 0 && *text == ' ') {
            text++;
            len--;
        }
        if (len == 0 || len > DETOK_MAX_STOP_LEN)
            ok = api_fail(e, 400, text ? "out_of_range" : "invalid_type", param,
                          "A word must be a string of 1 to %d bytes.", DETOK_MAX_STOP_LEN);
        else
            ok = add_sequence(&out, m, "", false, text, len, at, e) &&
                 add_sequence(&out, m, " ", false, text, len, at, e) &&
                 add_sequence(&out, m, "\n", true, text, len, at, e);
    }
    if (ok && out.len > 0 && !push_id(&out, 0))
        ok = api_fail_memory(e);
    if (ok)
        r->bad_words = out.ids;
    else
        token_buf_free(&out);
    return ok;
}

struct breaker {
    const char *text; // (len)
    size_t len;
};

// Sets the bits of tokens whose text, or name, holds one of the strings (num), none of them empty. One pass over the
// vocabulary, which may be large: `first` has the strings by their first byte.
static void mark_tokens(uint32_t *bits, const struct served_model *m, const struct breaker *strings,
                        int num) {
    int first[256], next[MAX_BREAKERS];
    memset(first, -1, sizeof first);
    for (int k = 0; k < num; k++) {
        unsigned char c = (unsigned char)*strings[k].text;
        next[k] = first[c];
        first[c] = k;
    }
    for (token_id t = 0; t < m->vocab; t++) {
        size_t n;
        const char *bytes = tokenizer_bytes(m->tokenizer, t, true, &n);
        bool found = false;
        for (size_t i = 0; i < n && !found; i++)
            for (int k = first[(unsigned char)bytes[i]]; k >= 0 && !found; k = next[k])
                found = strings[k].len <= n - i && memcmp(bytes + i, strings[k].text, strings[k].len) == 0;
        if (found)
            bits[t / 32] |= 1u << (t % 32);
    }
}

// The list that a field has: the usual one where it is absent; a string, as text-generation-webui sends it, is JSON:
// a list or the inside of one. A new reference; NULL: it is none.
static json_t *breakers_of(const json_t *v) {
    struct buf text = {0};
    json_t *list = NULL;
    if (!v)
        return json_pack("[ssss]", "\n", ":", "\"", "*");
    if (json_is_array(v))
        return json_incref((json_t *)(uintptr_t)v);
    bool whole = *json_string_value(v) == '[';
    buf_str(&text, whole ? "" : "[");
    buf_add(&text, json_string_value(v), json_string_length(v));
    buf_str(&text, whole ? "" : "]");
    if (json_depth_ok(text.data, text.len, 2))
        list = json_loadb(text.data, text.len, JSON_ALLOW_NUL, NULL);
    buf_free(&text);
    return list;
}

// The strings over which DRY does not look back: tokens that hold one, and the tokens that it is made of.
static bool read_breakers(struct completion_request *r, const struct served_model *m, const json_t *root,
                          struct api_error *e) {
    const char *name = "dry_sequence_breakers";
    const json_t *given = field_get(root, name);
    struct token_buf sequences = {0};
    struct breaker strings[MAX_BREAKERS];
    uint32_t *bits = NULL;
    bool needed = r->history.dry_multiplier > 0 && r->history.dry_last_n != 0;
    if (json_is_string(given) && !needed)
        return true;
    json_t *v = !given || json_is_array(given) || json_is_string(given) ? breakers_of(given) : NULL;
    bool ok = v || api_fail(e, 400, "invalid_type", name, "'%s' must be a list of strings.", name);
    if (ok && json_array_size(v) > MAX_BREAKERS)
        ok = api_fail(e, 400, "out_of_range", name, "At most %d strings are allowed.", MAX_BREAKERS);
    if (ok && needed && !(bits = calloc(((size_t)m->vocab + 31) / 32, sizeof *bits)))
        ok = api_fail_memory(e);
    for (size_t i = 0; ok && i < json_array_size(v); i++) {
        const char *text = json_string_value(json_array_get(v, i));
        size_t len = json_string_length(json_array_get(v, i));
        char param[48];
        snprintf(param, sizeof param, "%s[%zu]", name, i);
        if (len == 0 || len > 40)
            ok = api_fail(e, 400, text ? "out_of_range" : "invalid_type", param,
                          "A breaker must be a string of 1 to 40 bytes.");
        if (!ok || !needed)
            continue;
        strings[i] = (struct breaker){text, len};
        ok = len == 1 || add_sequence(&sequences, m, "\n", true, text, len, sequences.len, e);
    }
    if (ok && sequences.len > 0 && !push_id(&sequences, 0))
        ok = api_fail_memory(e);
    if (ok && needed)
        mark_tokens(bits, m, strings, (int)json_array_size(v));
    r->history.dry_breakers = bits;
    r->history.dry_sequences = ok ? sequences.ids : NULL;
    if (!ok)
        token_buf_free(&sequences);
    json_decref(v);
    return ok;
}

// ---- llama-server's list of the stages that are on

enum {
    PENALTIES = 1,
    DRY = 2,
    N_SIGMA = 4,
    TOP_K = 8,
    TYPICAL = 16,
    TOP_P = 32,
    MIN_P = 64,
    XTC = 128,
    TEMPERATURE = 256
};

// 0: a stage that is unknown here.
static unsigned stage_of(const char *name) {
    static const struct {
        const char *name;
        unsigned stage;
    } stages[] = {{"penalties", PENALTIES},
                  {"dry", DRY},
                  {"top_n_sigma", N_SIGMA},
                  {"top_k", TOP_K},
                  {"typ_p", TYPICAL},
                  {"typical_p", TYPICAL},
                  {"top_p", TOP_P},
                  {"min_p", MIN_P},
                  {"xtc", XTC},
                  {"temperature", TEMPERATURE}};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        if (strcmp(name, stages[i].name) == 0)
            return stages[i].stage;
    return 0;
}

bool sampling_knows_stages(const json_t *samplers) {
    bool known = true;
    for (size_t i = 0; i < json_array_size(samplers); i++) {
        const char *name = json_name(json_array_get(samplers, i));
        known &= name && stage_of(name);
    }
    return known;
}

// Turns the stages off that the list leaves out. Their order is always ours.
static bool read_stages(struct completion_request *r, const json_t *root, struct api_error *e) {
    const json_t *list = field_get(root, "samplers");
    struct sampling_params *s = &r->sampling;
    unsigned on = 0;
    if (!list || (json_is_string(list) && json_string_length(list) == 0) ||
        (json_is_object(list) && json_object_size(list) == 0))
        return true;
    if (!json_is_array(list))
        return api_fail(e, 400, "invalid_type", "samplers", "'samplers' must be a list of names.");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_name(json_array_get(list, i));
        if (!name)
            return api_fail(e, 400, "invalid_type", "samplers", "'samplers' must be a list of names.");
        on |= stage_of(name);
    }
    if (!(on & PENALTIES)) {
        s->repetition_penalty = 1;
        s->frequency_penalty = s->presence_penalty = 0;
    }
    if (!(on & TEMPERATURE)) {
        s->temperature = 1;
        s->dynatemp_range = 0;
    }
    r->history.dry_multiplier = on & DRY ? r->history.dry_multiplier : 0;
    s->top_n_sigma = on & N_SIGMA ? s->top_n_sigma : 0;
    s->top_k = on & TOP_K ? s->top_k : 0;
    s->typical_p = on & TYPICAL ? s->typical_p : 1;
    s->top_p = on & TOP_P ? s->top_p : 1;
    s->min_p = on & MIN_P ? s->min_p : 0;
    s->xtc_probability = on & XTC ? s->xtc_probability : 0;
    return true;
}

// Mirostat is on where it has a tau.
static bool read_mirostat(struct completion_request *r, struct api_error *e) {
    if (r->mirostat == 1)
        return api_fail(e, 400, "unsupported_parameter", "mirostat",
                        "'mirostat' 1 is not supported by this version of the server; 2 is.");
    if (r->mirostat == 0 || r->sampling.temperature < 1e-5f)
        r->sampling.mirostat_tau = 0;
    return true;
}

bool sampling_read(struct completion_request *r, const struct served_model *m, const json_t *root,
                   struct api_error *e) {
    return read_stages(r, root, e) && read_truncation(r, m, root, e) && read_prompt_logprobs(r, root, e) &&
           read_logprob_ids(r, m, root, e) && read_allowed(r, m, root, e) && read_bad_words(r, m, root, e) &&
           read_breakers(r, m, root, e) && read_mirostat(r, e);
}
