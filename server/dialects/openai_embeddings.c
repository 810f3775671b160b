// /v1/embeddings: texts or ids in, a vector of each out.
#include "openai.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_INPUTS = 2048 }; // OpenAI's

// ---- in

#define INT_TOP 2147483647.0
#define AT(field) offsetof(struct completion_request, field)

static const struct field fields[] = {
    {"dimensions", F_INT, 1, INT_TOP, false, AT(dimensions)},
    {"truncate_prompt_tokens", F_INT, -1, INT_TOP, false, AT(truncate)},
    {"add_special_tokens", F_BOOL, 0, 0, false, AT(add_special)},
    {"normalize", F_BOOL, 0, 0, false, AT(normalize)},
    {"priority", F_INT, -INT_TOP, INT_TOP, false, AT(priority)},
};
static const struct openai_api api = {OPENAI_EMBEDDINGS, fields, sizeof fields / sizeof fields[0], NULL, 0};

static bool read_format(struct completion_request *r, const struct served_model *m, const json_t *root,
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

// Cuts an input to its first `truncate` tokens; where it ends in a token that the tokenizer adds, it still does.
static void cut_input(const struct completion_request *r, const struct served_model *m,
                      struct token_buf *ids) {
    size_t keep = (size_t)(r->truncate < 0 ? m->max_model_len : r->truncate);
    if (ids->len <= keep)
        return;
    token_id last = ids->ids[ids->len - 1];
    ids->len = keep;
    if (keep > 0 && tokenizer_is_special(m->tokenizer, last))
        ids->ids[keep - 1] = last;
}

static bool check_inputs(struct completion_request *r, const struct served_model *m, struct api_error *e) {
    if (r->truncate == 0)
        return api_fail(e, 400, "out_of_range", "truncate_prompt_tokens",
                        "'truncate_prompt_tokens' must be -1 or at least 1.");
    for (size_t i = 0; i < r->num_prompts; i++) {
        cut_input(r, m, &r->prompts[i]);
        if (!openai_check_room(r, m, r->prompts[i].len, "input", e))
            return false;
    }
    return true;
}

bool openai_embeddings_read(struct completion_request *r, const struct served_model *m, json_t *root,
                            struct api_error *e) {
    *r = openai_defaults(m);
    r->normalize = !m->raw_vectors;
    bool ok = root && (r->model = field_model(m, root, &r->lora, e)) &&
              fields_read(r, api.fields, api.num_fields, root, e) && fields_refuse(root, api.bit, e) &&
              openai_check_priority(r, m, e) && read_format(r, m, root, e) &&
              openai_read_labels(r, root, e) &&
              openai_read_prompts(r, m, root, "input", MAX_INPUTS, NULL, e) && check_inputs(r, m, e);
    return openai_parse_end(r, m, root, &api, ok, e);
}

static bool parse_body(struct completion_request *r, const struct served_model *m, const char *body,
                       size_t len, struct api_error *e) {
    return openai_embeddings_read(r, m, body_load(body, len, e), e);
}

// ---- out

static void begin_response(struct response *r) { (void)r; }

void openai_write_vector(struct buf *b, const struct response *r, float *v) {
    const struct completion_request *q = r->request;
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

static void write_whole(struct buf *b, const struct response *r, const struct piece *pieces,
                        const struct usage *usage) {
    buf_lit(b, "{\"object\":\"list\",\"data\":[");
    for (int i = 0; i < r->num_choices; i++) {
        buf_fmt(b, "%s{\"object\":\"embedding\",\"index\":%d,\"embedding\":", i ? "," : "", i);
        buf_add(b, pieces[i].text, pieces[i].len);
        buf_char(b, '}');
    }
    buf_lit(b, "],\"model\":");
    json_quote(b, r->request->model, strlen(r->request->model));
    buf_fmt(b, ",\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld}}", (long long)usage->prompt,
            (long long)usage->prompt);
}

const struct dialect openai_embeddings = {
    .id_prefix = "embd-",
    .parse = parse_body,
    .begin = begin_response,
    .vector = openai_write_vector,
    .whole = write_whole,
    .error = openai_write_error,
};
