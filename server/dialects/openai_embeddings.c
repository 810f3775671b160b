// /v1/embeddings: texts or ids in, a vector of each out.
#include "api/field_rows.h"
#include "openai.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_INPUTS = 2048 }; // OpenAI's

// ---- in

#define INT_TOP 2147483647.0
#define AT(field) offsetof(struct vector_request, field)

static const struct field fields[] = {
    {"dimensions", F_INT, 1, INT_TOP, false, AT(dimensions)},
    {"truncate_prompt_tokens", F_INT, -1, INT_TOP, false, AT(truncate)},
    {"add_special_tokens", F_BOOL, 0, 0, false, AT(add_special)},
    {"normalize", F_BOOL, 0, 0, false, AT(normalize)},
    {"priority", F_INT, -INT_TOP, INT_TOP, false, AT(base.priority)},
};
enum { NUM_FIELDS = sizeof fields / sizeof fields[0] };

enum { EMBED = 1 };
// clang-format off
static const struct field_rule rules[] = {
    READ("model", EMBED),
    READ("input", EMBED),
    READ("encoding_format", EMBED),
    READ("dimensions", EMBED),
    READ("truncate_prompt_tokens", EMBED),
    READ("add_special_tokens", EMBED),
    READ("normalize", EMBED),
    READ("priority", EMBED),
    READ("cache_salt", EMBED),
    READ("request_id", EMBED),
    READ("user", EMBED),
    {0},
};
// clang-format on
static const struct field_names names = {rules, EMBED, NULL};

static bool read_format(struct vector_request *r, const struct served_model *m, const json_t *root,
                        struct api_error *e) {
    const json_t *v = field_get(root, "encoding_format");
    const char *format = v ? json_name(v) : "float";
    if (!format || (strcmp(format, "float") != 0 && strcmp(format, "base64") != 0))
        return api_fail(e, 400, format ? "out_of_range" : "invalid_type", "encoding_format",
                        "'encoding_format' must be \"float\" or \"base64\".");
    r->base64 = strcmp(format, "base64") == 0;
    if (r->dimensions > m->vector_size)
        return api_fail(e, 400, "out_of_range", "dimensions",
                        "'dimensions' is %d, and the embeddings of this model have %d.", r->dimensions,
                        m->vector_size);
    return true;
}

// Inputs are read as the prompts of a completion are.
static bool read_inputs(struct vector_request *r, const struct served_model *m, const json_t *root,
                        struct api_error *e) {
    struct completion_request c = openai_defaults(m);
    c.add_special = r->add_special;
    c.truncate = r->truncate;
    bool ok = openai_read_prompts(&c, m, root, "input", MAX_INPUTS, NULL, e);
    r->base.prompts = c.base.prompts;
    r->base.num_prompts = c.base.num_prompts;
    return ok;
}

// Cuts an input to its first `truncate` tokens; where it ends in a token that the tokenizer adds, it still does.
static void cut_input(const struct vector_request *r, const struct served_model *m, struct token_buf *ids) {
    size_t keep = (size_t)(r->truncate < 0 ? m->max_model_len : r->truncate);
    if (ids->len <= keep)
        return;
    token_id last = ids->ids[ids->len - 1];
    ids->len = keep;
    if (keep > 0 && tokenizer_is_special(m->tokenizer, last))
        ids->ids[keep - 1] = last;
}

static bool check_inputs(struct vector_request *r, const struct served_model *m, struct api_error *e) {
    if (r->truncate == 0)
        return api_fail(e, 400, "out_of_range", "truncate_prompt_tokens",
                        "'truncate_prompt_tokens' must be -1 or at least 1.");
    for (size_t i = 0; i < r->base.num_prompts; i++) {
        cut_input(r, m, &r->base.prompts[i]);
        if (!openai_check_room(m, 0, r->base.prompts[i].len, "input", e))
            return false;
    }
    return true;
}

bool openai_embeddings_read(struct vector_request *r, const struct served_model *m, json_t *root,
                            struct api_error *e) {
    *r = (struct vector_request){.add_special = true, .truncate = INT_MAX, .normalize = !m->raw_vectors};
    bool ok = vectors_read_shared(r, m, root, fields, NUM_FIELDS, &names, e) && read_format(r, m, root, e) &&
              read_inputs(r, m, root, e) && check_inputs(r, m, e);
    return vectors_parse_end(r, m, root, &names, ok, e);
}

bool vectors_read_shared(struct vector_request *r, const struct served_model *m, const json_t *root,
                         const struct field *own, int num_own, const struct field_names *wanted,
                         struct api_error *e) {
    return root && (r->base.model = field_model(m, root, &r->base.lora, e)) &&
           fields_read(r, own, num_own, root, e) && fields_refuse(root, wanted, e) &&
           openai_check_priority(&r->base, m, e) && openai_read_labels(&r->base, root, e);
}

bool vectors_parse_end(struct vector_request *r, const struct served_model *m, json_t *root,
                       const struct field_names *wanted, bool ok, struct api_error *e) {
    char ignored[IGNORED_SIZE];
    ok = fields_tell_ignored(ignored, m, root, wanted, ok, e);
    if (!ok)
        vector_request_free(r);
    memcpy(r->base.ignored, ignored, sizeof ignored);
    json_decref(root);
    return ok;
}

static bool parse_body(struct vector_request *r, const struct served_model *m, const char *body, size_t len,
                       struct api_error *e) {
    return openai_embeddings_read(r, m, body_load(body, len, e), e);
}

// ---- out

void openai_write_vector(struct buf *b, const struct vector_response *r, size_t input) {
    const struct vector_request *q = r->request;
    float *v = r->vectors + input * (size_t)r->model->vector_size;
    int n = q->dimensions > 0 ? q->dimensions : r->model->vector_size;
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)v[i] * (double)v[i];
    for (int i = 0; q->normalize && sum > 0 && i < n; i++)
        v[i] = (float)((double)v[i] / sqrt(sum));
    if (q->base64) {
        buf_char(b, '"');
        buf_base64(b, v, (size_t)n * sizeof *v);
        buf_char(b, '"');
        return;
    }
    for (int i = 0; i < n; i++)
        buf_fmt(b, i ? ",%.9g" : "[%.9g", (double)v[i]);
    buf_char(b, ']');
}

static void write_embeddings(struct buf *b, const struct vector_response *r) {
    const struct api_request *q = &r->request->base;
    buf_lit(b, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < q->num_prompts; i++) {
        buf_fmt(b, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i ? "," : "", i);
        openai_write_vector(b, r, i);
        buf_char(b, '}');
    }
    buf_lit(b, "],\"model\":");
    json_quote(b, q->model, strlen(q->model));
    buf_fmt(b, ",\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld}}", (long long)r->num_prompt,
            (long long)r->num_prompt);
}

const struct vector_dialect openai_embeddings = {
    .id_prefix = "embd-", .form = &openai_form, .parse = parse_body, .write = write_embeddings};
