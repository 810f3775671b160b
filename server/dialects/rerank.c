// /v1/rerank (Cohere's and Jina's form) and /v1/score (vLLM's): pairs of texts in, a score of each out.
#include "api/field_rows.h"
#include "jinja/chat.h"
#include "openai.h"
#include "text.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PAIRS = 10000 };

// ---- in

#define INT_TOP 2147483647.0
#define AT(field) offsetof(struct vector_request, field)

static const struct field fields[] = {
    {"top_n", F_INT, 0, INT_TOP, false, AT(top_n)},
    {"return_documents", F_BOOL, 0, 0, false, AT(return_documents)},
    {"use_activation", F_BOOL, 0, 0, false, AT(use_activation)},
    {"truncate_prompt_tokens", F_INT, -1, INT_TOP, false, AT(truncate)},
    {"priority", F_INT, -INT_TOP, INT_TOP, false, AT(base.priority)},
};
enum { FIRST_OF_SCORE = 2, NUM_FIELDS = sizeof fields / sizeof fields[0] };

enum { RERANK = 1, SCORE = 2 };
// clang-format off
static const struct field_rule rules[] = {
    READ("model", RERANK | SCORE),
    READ("query", RERANK),
    READ("documents", RERANK),
    READ("top_n", RERANK),
    READ("return_documents", RERANK),
    READ("text_1", SCORE),
    READ("text_2", SCORE),
    READ("use_activation", RERANK | SCORE),
    READ("truncate_prompt_tokens", RERANK | SCORE),
    READ("priority", RERANK | SCORE),
    READ("cache_salt", RERANK | SCORE),
    READ("request_id", RERANK | SCORE),
    READ("user", RERANK | SCORE),
    {0},
};
// clang-format on
static const struct field_names rerank_names = {rules, RERANK, NULL}, score_names = {rules, SCORE, NULL};

// A text, or an object with one (Cohere, Jina). NULL: neither.
static const json_t *text_of(const json_t *v) {
    const json_t *text = json_is_object(v) ? json_object_get(v, "text") : v;
    return json_is_string(text) ? text : NULL;
}

struct text_pair {
    const char *query, *document; // (lengths)
    size_t query_len, document_len;
};

// The ids of what the model's template makes of a pair, or only of what it has behind the document.
static enum status fill_template(const struct served_model *m, const struct text_pair *p, bool tail,
                                 struct token_buf *out) {
    static const struct {
        const char *name;
        size_t len;
    } marks[] = {{"{query}", 7}, {"{document}", 10}};
    struct chat_segment segments[16];
    const char *at = m->rank_template, *end = at + m->rank_template_len;
    size_t n = 0;
    for (const char *from = at; at < end && n < 13; at++)
        for (int k = 0; k < 2; k++) {
            if ((size_t)(end - at) < marks[k].len || memcmp(at, marks[k].name, marks[k].len) != 0)
                continue;
            segments[n++] = (struct chat_segment){from, (size_t)(at - from), false};
            segments[n++] = k ? (struct chat_segment){p->document, p->document_len, true}
                              : (struct chat_segment){p->query, p->query_len, true};
            n = tail && k ? 0 : n;
            from = at + marks[k].len;
            at = from - 1;
            segments[n] = (struct chat_segment){from, (size_t)(end - from), false};
        }
    return text_encode(m->tokenizer, segments, n + 1, out);
}

// Cuts a pair to `keep` tokens: the end of the document goes, but not what follows it. *second: where the second text begins.
static enum status cut_pair(const struct served_model *m, const struct text_pair *p, size_t keep,
                            struct token_buf *ids, size_t *second) {
    struct token_buf tail = {0};
    enum status status = STATUS_OK;
    size_t end = 1;
    if (m->rank_template) {
        status = fill_template(m, p, true, &tail);
        end = tail.len - (tail.len > 0 && tokenizer_adds_bos(m->tokenizer)); // of which it has one, too
    } else if (!tokenizer_is_special(m->tokenizer, ids->ids[ids->len - 1])) {
        end = 0;
    }
    end = end < keep ? end : keep;
    memmove(ids->ids + keep - end, ids->ids + ids->len - end, end * sizeof *ids->ids);
    ids->len = keep;
    *second = *second < keep - end ? *second : keep - end;
    token_buf_free(&tail);
    return status;
}

static bool add_pair(struct vector_request *r, const struct served_model *m, const json_t *query,
                     const json_t *document, const char *param, struct api_error *e) {
    struct text_pair p = {json_string_value(query), json_string_value(document), json_string_length(query),
                          json_string_length(document)};
    int *type_from = r->second_text ? &r->second_text[r->base.num_prompts] : NULL;
    struct token_buf *ids = &r->base.prompts[r->base.num_prompts++];
    size_t second = 0, keep = (size_t)(r->truncate < 0 ? m->max_model_len : r->truncate);
    if (!m->rank_template && !m->pairs)
        return api_fail(
            e, 400, "unsupported_model", "model",
            "The model's file does not say how pairs are written: tokenizer.chat_template.rerank.");
    if (text_is_hopeless(m, p.query_len + p.document_len))
        return api_fail_context(e, param, "the pair has", 0, p.query_len + p.document_len, m->max_model_len);
    enum status status = m->rank_template
                             ? fill_template(m, &p, false, ids)
                             : tokenizer_encode_pair(m->tokenizer, p.query, p.query_len, p.document,
                                                     p.document_len, TOKENIZE_ADD_SPECIAL, ids, &second);
    if (status == STATUS_OK && ids->len > keep)
        status = cut_pair(m, &p, keep, ids, &second);
    if (type_from)
        *type_from = (int)(second <= INT_MAX ? second : 0); // too long a pair is refused below
    if (!api_check_encoded(e, param, status))
        return false;
    if (ids->len == 0)
        return api_fail(e, 400, NULL, param, "A pair must not be empty.");
    return openai_check_room(m, 0, ids->len, param, e);
}

// Room for n pairs.
static bool make_room(struct vector_request *r, const struct served_model *m, size_t n, const char *param,
                      struct api_error *e) {
    if (r->truncate == 0)
        return api_fail(e, 400, "out_of_range", "truncate_prompt_tokens",
                        "'truncate_prompt_tokens' must be -1 or at least 1.");
    if (n == 0)
        return api_fail(e, 400, NULL, param, "'%s' must not be an empty list.", param);
    if (n > MAX_PAIRS)
        return api_fail(e, 400, "out_of_range", param, "'%s' must have at most %d texts, found %zu.", param,
                        MAX_PAIRS, n);
    if (m->types && !(r->second_text = calloc(n, sizeof *r->second_text)))
        return api_fail_memory(e);
    return (r->base.prompts = calloc(n, sizeof *r->base.prompts)) != NULL || api_fail_memory(e);
}

static bool keep_document(struct vector_request *r, size_t i, const json_t *text, struct api_error *e) {
    r->document_at[i] = r->documents.len;
    json_quote(&r->documents, json_string_value(text), json_string_length(text));
    buf_char(&r->documents, '\0');
    return !r->documents.failed || api_fail_memory(e);
}

static bool read_ranking(struct vector_request *r, const struct served_model *m, const json_t *root,
                         struct api_error *e) {
    const json_t *query = field_get(root, "query"), *documents = field_get(root, "documents");
    if (!json_is_string(query))
        return api_fail(e, 400, query ? "invalid_type" : "missing_required_parameter", "query",
                        query ? "'query' must be a string." : "'query' is missing.");
    if (json_string_length(query) == 0)
        return api_fail(e, 400, "out_of_range", "query", "'query' must not be empty.");
    if (!json_is_array(documents))
        return api_fail(e, 400, documents ? "invalid_type" : "missing_required_parameter", "documents",
                        documents ? "'documents' must be a list." : "'documents' is missing.");
    size_t n = json_array_size(documents);
    if (!make_room(r, m, n, "documents", e))
        return false;
    if (r->return_documents && !(r->document_at = calloc(n, sizeof *r->document_at)))
        return api_fail_memory(e);
    for (size_t i = 0; i < n; i++) {
        const json_t *text = text_of(json_array_get(documents, i));
        char where[40];
        snprintf(where, sizeof where, "documents[%zu]", i);
        if (!text)
            return api_fail(e, 400, "invalid_type", where,
                            "A document must be a string, or an object with one as 'text'.");
        if (!add_pair(r, m, query, text, where, e) || (r->return_documents && !keep_document(r, i, text, e)))
            return false;
    }
    return true;
}

// One side of the pairs: a text, or a list of n of them. NULL: e says why.
static const json_t *read_side(const json_t *root, const char *name, size_t *n, struct api_error *e) {
    const json_t *v = field_get(root, name);
    bool list = json_is_array(v);
    *n = list ? json_array_size(v) : 1;
    if (!json_is_string(v) && !list) {
        api_fail(e, 400, v ? "invalid_type" : "missing_required_parameter", name,
                 v ? "'%s' must be a string or a list of strings." : "'%s' is missing.", name);
        return NULL;
    }
    for (size_t i = 0; list && i < *n; i++)
        if (!json_is_string(json_array_get(v, i))) {
            api_fail(e, 400, "invalid_type", name, "'%s[%zu]' must be a string.", name, i);
            return NULL;
        }
    return v;
}

// The i-th of a side's texts; a side of one has it for all.
static const json_t *side_at(const json_t *v, size_t n, size_t i) {
    return json_is_array(v) ? json_array_get(v, n == 1 ? 0 : i) : v;
}

static bool read_scores(struct vector_request *r, const struct served_model *m, const json_t *root,
                        struct api_error *e) {
    size_t n[2];
    const json_t *a = read_side(root, "text_1", &n[0], e),
                 *b = a ? read_side(root, "text_2", &n[1], e) : NULL;
    if (!b)
        return false;
    if (n[0] != n[1] && n[0] != 1 && n[1] != 1)
        return api_fail(e, 400, NULL, "text_2",
                        "'text_1' has %zu texts and 'text_2' %zu: one, or as many as the other.", n[0], n[1]);
    size_t num = n[0] == 1 ? n[1] : n[0];
    if (!make_room(r, m, num, n[0] == 1 ? "text_2" : "text_1", e))
        return false;
    for (size_t i = 0; i < num; i++) {
        char where[40];
        snprintf(where, sizeof where, n[1] > 1 ? "text_2[%zu]" : "text_1[%zu]", i);
        if (!add_pair(r, m, side_at(a, n[0], i), side_at(b, n[1], i), where, e))
            return false;
    }
    return true;
}

static struct vector_request defaults(void) {
    return (struct vector_request){.truncate = INT_MAX, .return_documents = true, .use_activation = true};
}

static bool parse_rerank(struct vector_request *r, const struct served_model *m, const char *body, size_t len,
                         struct api_error *e) {
    json_t *root = body_load(body, len, e);
    *r = defaults();
    bool ok =
        vectors_read_shared(r, m, root, fields, NUM_FIELDS, &rerank_names, e) && read_ranking(r, m, root, e);
    return vectors_parse_end(r, m, root, &rerank_names, ok, e);
}

static bool parse_score(struct vector_request *r, const struct served_model *m, const char *body, size_t len,
                        struct api_error *e) {
    json_t *root = body_load(body, len, e);
    *r = defaults();
    bool ok = vectors_read_shared(r, m, root, fields + FIRST_OF_SCORE, NUM_FIELDS - FIRST_OF_SCORE,
                                  &score_names, e) &&
              read_scores(r, m, root, e);
    return vectors_parse_end(r, m, root, &score_names, ok, e);
}

// ---- out

// The model's one number, a logit.
static double score_at(const struct vector_response *r, size_t input) {
    double score = (double)r->vectors[input * (size_t)r->model->vector_size];
    return r->request->use_activation ? 1 / (1 + exp(-score)) : score;
}

static void write_begin(struct buf *b, const struct vector_response *r) {
    buf_fmt(b, "{\"id\":\"%s\",\"object\":\"list\",\"created\":%lld,\"model\":", r->id,
            (long long)r->created);
    json_quote(b, r->request->base.model, strlen(r->request->base.model));
}

static void write_end(struct buf *b, const struct vector_response *r) {
    buf_fmt(b, "],\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld}}", (long long)r->num_prompt,
            (long long)r->num_prompt);
}

struct ranked {
    double score;
    size_t index;
};

static int compare_ranked(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score ? 1 : -1)
                                : (x->index > y->index) - (x->index < y->index);
}

static void write_ranking(struct buf *b, const struct vector_response *r) {
    const struct vector_request *q = r->request;
    size_t n = q->base.num_prompts, top = q->top_n > 0 && (size_t)q->top_n < n ? (size_t)q->top_n : n;
    struct ranked *order = calloc(n, sizeof *order);
    if (!order) {
        b->failed = true;
        return;
    }
    for (size_t i = 0; i < n; i++)
        order[i] = (struct ranked){score_at(r, i), i};
    qsort(order, n, sizeof *order, compare_ranked);
    write_begin(b, r);
    buf_lit(b, ",\"results\":[");
    for (size_t k = 0; k < top; k++) {
        buf_fmt(b, "%s{\"index\":%zu,\"relevance_score\":%.9g", k ? "," : "", order[k].index, order[k].score);
        if (q->document_at) {
            const char *text = q->documents.data + q->document_at[order[k].index];
            buf_lit(b, ",\"document\":{\"text\":");
            buf_add(b, text, strlen(text));
            buf_char(b, '}');
        }
        buf_char(b, '}');
    }
    write_end(b, r);
    free(order);
}

static void write_scores(struct buf *b, const struct vector_response *r) {
    write_begin(b, r);
    buf_lit(b, ",\"data\":[");
    for (size_t i = 0; i < r->request->base.num_prompts; i++)
        buf_fmt(b, "%s{\"object\":\"score\",\"index\":%zu,\"score\":%.9g}", i ? "," : "", i, score_at(r, i));
    write_end(b, r);
}

const struct vector_dialect cohere_rerank = {.id_prefix = "rerank-",
                                             .form = &openai_form,
                                             .scores = true,
                                             .parse = parse_rerank,
                                             .write = write_ranking};

const struct vector_dialect vllm_score = {
    .id_prefix = "score-", .form = &openai_form, .scores = true, .parse = parse_score, .write = write_scores};
