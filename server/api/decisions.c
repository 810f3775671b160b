#include "decisions.h"

#include "jinja/chat.h"
#include "messages.h"
#include "minmax.h"
#include "rewrite.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPTION_NAME = 256 };

void decision_request_free(struct decision_request *r) {
    for (int i = 0; i < r->num_questions; i++) {
        struct decision_question *q = &r->questions[i];
        for (int k = 0; k < q->num_options; k++)
            token_buf_free(&q->options[k].ids);
        free(q->options);
        free(q->edges);
        free(q->nodes);
    }
    free(r->questions);
    free(r->rows);
    free(r->logprobs);
    api_request_free(&r->base);
    json_decref(r->root);
    *r = (struct decision_request){0};
}

bool decision_add_option(struct decision_question *q, const char *name, size_t len, const json_t *meaning,
                         const char *param, struct api_error *e) {
    if (len == 0 || len > MAX_OPTION_NAME)
        return api_fail(e, 400, "out_of_range", param, "The name of an option must have from 1 to %d bytes.",
                        MAX_OPTION_NAME);
    if (meaning && !json_is_string(meaning) && !json_is_object(meaning) && !json_is_array(meaning))
        return api_fail(e, 400, "invalid_type", param,
                        "The meaning of an option must be a string, an object or a list.");
    q->options[q->num_options++] = (struct decision_option){.name = name, .len = len, .meaning = meaning};
    return true;
}

// ---- texts

static bool add_text(struct buf *out, const json_t *v) {
    if (json_is_string(v)) {
        buf_add(out, json_string_value(v), json_string_length(v));
        return true;
    }
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    if (text)
        buf_str(out, text);
    free(text);
    return text != NULL;
}

// The question behind its text. The options begin with number `first`, so that each order of a question has its own first one.
static bool add_question(struct buf *out, const struct decision_question *q, int first) {
    static const char *const wanted[] = {"Name only.", NULL, "Number only."};
    bool ok = add_text(out, q->instructions), lists = q->type != QUESTION_NOUL;
    for (int i = 0; i < q->num_options; i++)
        lists |= q->options[i].meaning != NULL;
    for (int i = 0; i < q->num_options && lists; i++) {
        const struct decision_option *o = &q->options[(first + i) % q->num_options];
        buf_char(out, '\n');
        buf_add(out, o->name, o->len);
        if (o->meaning) {
            buf_lit(out, ": ");
            ok = add_text(out, o->meaning) && ok;
        }
    }
    buf_char(out, '\n');
    if (wanted[q->type])
        buf_str(out, wanted[q->type]);
    else
        buf_fmt(out, "%s or %s?", q->options[first].name, q->options[1 - first].name);
    return ok && !out->failed;
}

// Ends reasoning that the prompt has begun, or that the model would begin, so that the answer comes next.
static bool add_answer_mark(const struct served_model *m, const json_t *chat, bool thinking,
                            struct token_buf *ids, struct api_error *e) {
    const char *open, *close, *closing;
    struct buf text = {0};
    bool thinks = thinking;
    if (!m->format || !output_format_reasoning(m->format, false, &open, &close, &closing))
        return true;
    if (m->format->harmony)
        buf_lit(&text, "<|channel|>final<|message|>");
    else if (!thinking && !chat_thinks(m, chat, true, false, &thinks, e))
        return false;
    if (thinks)
        buf_fmt(&text, "%s%s\n%s\n\n", thinking ? "" : open, thinking ? "" : "\n", closing);
    bool ok = !text.failed || api_fail_memory(e);
    ok = ok && api_check_encoded(e, "questions",
                                 tokenizer_encode(m->tokenizer, text.data ? text.data : "", text.len,
                                                  TOKENIZE_PARSE_SPECIAL | TOKENIZE_CONTINUES, ids));
    buf_free(&text);
    return ok;
}

static bool chat_question(const struct served_model *m, const struct buf *text, struct token_buf *ids,
                          struct api_error *e) {
    bool thinking = false;
    json_t *chat = json_pack("{s:[{s:s,s:o}]}", "messages", "role", "user", "content",
                             json_stringn(text->data, text->len));
    bool ok = (chat || api_fail_memory(e)) && rewrite_thinking(chat, m, false, e) &&
              chat_prompt(m, chat, true, false, ids, &thinking, e) &&
              add_answer_mark(m, chat, thinking, ids, e);
    json_decref(chat);
    return ok;
}

static bool make_prompt(struct decision_request *r, const struct served_model *m, const json_t *state,
                        const struct decision_question *q, int permutation, const char *param,
                        struct api_error *e) {
    struct token_buf *ids = &r->base.prompts[r->base.num_prompts++];
    struct buf text = {0};
    bool ok = add_text(&text, state);
    buf_lit(&text, "\n\n");
    ok = (add_question(&text, q, permutation * q->num_options / q->num_prompts) && ok) || api_fail_memory(e);
    if (ok && !m->chat) {
        buf_lit(&text, "\nAnswer:");
        const struct chat_segment plain = {text.data, text.len, true};
        ok = (!text.failed || api_fail_memory(e)) &&
             api_check_encoded(e, param, text_encode(m->tokenizer, &plain, 1, ids));
    } else if (ok) {
        ok = chat_question(m, &text, ids, e);
    }
    buf_free(&text);
    if (ok && ids->len == 0)
        return api_fail(e, 400, "template_error", param, "The chat template makes nothing of a question.");
    return ok;
}

// ---- trees

static int compare_ids(const struct token_buf *a, const struct token_buf *b) {
    for (size_t i = 0; i < a->len && i < b->len; i++)
        if (a->ids[i] != b->ids[i])
            return a->ids[i] < b->ids[i] ? -1 : 1;
    return (a->len > b->len) - (a->len < b->len);
}

static int compare_options(const void *a, const void *b) {
    return compare_ids(&(*(struct decision_option *const *)a)->ids,
                       &(*(struct decision_option *const *)b)->ids);
}

// Behind the text `before`, which some tokenizers have to see: alone, the option would begin with a space of theirs.
static bool encode_option(const struct served_model *m, const char *before, struct decision_option *o,
                          struct api_error *e) {
    char text[MAX_OPTION_NAME + 4];
    struct token_buf alone = {0};
    size_t n = strlen(before);
    memcpy(text, before, n);
    memcpy(text + n, o->name, o->len);
    size_t begin = n > 0 && text[n - 1] == ' ' ? n - 1 : n; // a space is the option's
    bool ok =
        api_check_encoded(e, "questions",
                          tokenizer_encode(m->tokenizer, text, begin, TOKENIZE_CONTINUES, &alone)) &&
        api_check_encoded(e, "questions",
                          tokenizer_encode(m->tokenizer, text, n + o->len, TOKENIZE_CONTINUES, &o->ids));
    size_t skip = alone.len;
    if (ok && skip > 0 &&
        (skip >= o->ids.len || memcmp(alone.ids, o->ids.ids, skip * sizeof *alone.ids) != 0)) {
        o->ids.len = skip = 0; // one token for both: no such token is in the prompt
        ok = api_check_encoded(
            e, "questions",
            tokenizer_encode(m->tokenizer, text + begin, n + o->len - begin, TOKENIZE_CONTINUES, &o->ids));
    }
    token_buf_free(&alone);
    if (ok && o->ids.len == skip)
        return api_fail(e, 400, NULL, "questions", "The model has no tokens for the option '%.60s'.",
                        o->name);
    if (ok && skip > 0) {
        memmove(o->ids.ids, o->ids.ids + skip, (o->ids.len - skip) * sizeof *o->ids.ids);
        o->ids.len -= skip;
    }
    return ok;
}

// One that begins another one must end there.
static bool end_option(const struct served_model *m, struct decision_option *o,
                       const struct decision_option *next, struct api_error *e) {
    token_id end = tokenizer_eos(m->tokenizer);
    bool begins = o->ids.len <= next->ids.len &&
                  memcmp(o->ids.ids, next->ids.ids, o->ids.len * sizeof *o->ids.ids) == 0;
    if (!begins)
        return true;
    if (o->ids.len == next->ids.len || end < 0)
        return api_fail(e, 400, NULL, "questions",
                        "The model's tokens cannot tell the options '%.60s' and '%.60s' apart.", o->name,
                        next->name);
    token_id *ids = realloc(o->ids.ids, (o->ids.len + 1) * sizeof *ids);
    if (!ids)
        return api_fail_memory(e);
    ids[o->ids.len++] = end;
    o->ids.ids = ids;
    o->ids.cap = o->ids.len;
    return true;
}

// The node that the sorted options share, which are equal in `depth` ids, and all below it. Recursion: as deep as ids.
static void add_node(struct decision_question *q, struct decision_option *const *sorted, int num, int depth,
                     int parent, bool whole) {
    int at = q->num_edges;
    struct decision_node *node = &q->nodes[q->num_nodes++];
    *node = (struct decision_node){.option = (int)(sorted[0] - q->options), .depth = depth, .edges = at};
    for (int i = 0; i < num; i++)
        if (i == 0 || sorted[i]->ids.ids[depth] != sorted[i - 1]->ids.ids[depth])
            q->edges[q->num_edges++] =
                (struct decision_edge){.parent = parent, .token = sorted[i]->ids.ids[depth]};
    node->num_edges = q->num_edges - at;
    for (int i = 0, end; i < num; i = end, at++) {
        for (end = i + 1; end < num && sorted[end]->ids.ids[depth] == sorted[i]->ids.ids[depth];)
            end++;
        if (end == i + 1 && (!whole || sorted[i]->ids.len == (size_t)depth + 1))
            sorted[i]->leaf = at;
        else
            add_node(q, sorted + i, end - i, depth + 1, at, whole);
    }
}

static bool make_tree(const struct decision_request *r, const struct served_model *m,
                      struct decision_question *q, struct api_error *e) {
    struct decision_option *sorted[MAX_OPTIONS];
    const struct token_buf *prompt = &r->base.prompts[q->prompt];
    const char *before = !m->chat                                                           ? ": "
                         : tokenizer_is_special(m->tokenizer, prompt->ids[prompt->len - 1]) ? ""
                                                                                            : "\n";
    size_t num = 0;
    for (int i = 0; i < q->num_options; i++) {
        sorted[i] = &q->options[i];
        if (!encode_option(m, before, sorted[i], e))
            return false;
    }
    qsort(sorted, (size_t)q->num_options, sizeof *sorted, compare_options);
    for (int i = 0; i + 1 < q->num_options; i++)
        if (!end_option(m, sorted[i], sorted[i + 1], e))
            return false;
    qsort(sorted, (size_t)q->num_options, sizeof *sorted, compare_options);
    for (int i = 0; i < q->num_options; i++)
        num += sorted[i]->ids.len;
    q->edges = calloc(num, sizeof *q->edges);
    q->nodes = calloc(num, sizeof *q->nodes);
    if (!q->edges || !q->nodes)
        return api_fail_memory(e);
    add_node(q, sorted, q->num_options, 0, -1, r->sequence);
    return true;
}

// ---- rows

// A node with one edge tells nothing of the options apart.
static bool needs_row(const struct decision_request *r, const struct decision_node *n) {
    return r->sequence || n->num_edges > 1;
}

static int rows_of(const struct decision_request *r, const struct decision_question *q) {
    int num = 0;
    for (int i = 0; i < q->num_nodes; i++)
        if (needs_row(r, &q->nodes[i]))
            num += (q->nodes[i].num_edges + MAX_TOP_LOGPROBS - 1) / MAX_TOP_LOGPROBS;
    return num * q->num_prompts;
}

static void add_rows(struct decision_request *r, int question) {
    struct decision_question *q = &r->questions[question];
    q->logprobs = r->num_logprobs;
    for (int p = 0; p < q->num_prompts; p++, r->num_logprobs += q->num_edges)
        for (int i = 0; i < q->num_nodes; i++) {
            const struct decision_node *n = &q->nodes[i];
            for (int k = 0; needs_row(r, n) && k < n->num_edges; k += MAX_TOP_LOGPROBS)
                r->rows[r->num_rows++] =
                    (struct decision_row){.prompt = q->prompt + p,
                                          .option = n->option,
                                          .depth = n->depth,
                                          .question = question,
                                          .edges = n->edges + k,
                                          .num_edges = min_int(n->num_edges - k, MAX_TOP_LOGPROBS),
                                          .at = r->num_logprobs + n->edges + k};
        }
}

static bool make_rows(struct decision_request *r, struct api_error *e) {
    size_t rows = 0, logprobs = 0;
    for (int i = 0; i < r->num_questions; i++) {
        rows += (size_t)rows_of(r, &r->questions[i]);
        logprobs += (size_t)r->questions[i].num_edges * (size_t)r->questions[i].num_prompts;
    }
    if (rows > MAX_DECISION_ROWS)
        return api_fail(
            e, 400, "out_of_range", "questions",
            "The options and permutations need %zu rows of the model, and at most %d are allowed.", rows,
            MAX_DECISION_ROWS);
    r->rows = calloc(rows, sizeof *r->rows);
    r->logprobs = calloc(logprobs, sizeof *r->logprobs);
    if (!r->rows || !r->logprobs)
        return api_fail_memory(e);
    for (int i = 0; i < r->num_questions; i++)
        add_rows(r, i);
    return true;
}

static bool check_room(const struct decision_request *r, const struct served_model *m, const char *param,
                       struct api_error *e) {
    for (int i = 0; i < r->num_rows; i++) {
        size_t len = r->base.prompts[r->rows[i].prompt].len + (size_t)r->rows[i].depth + 1;
        if (len > (size_t)m->max_model_len)
            return api_fail_context(e, param, "a question and its text have", len, 0, m->max_model_len);
    }
    return true;
}

// Tokens that all prompts begin with.
static size_t shared_len(const struct api_request *r) {
    const struct token_buf *first = &r->prompts[0];
    size_t shared = r->num_prompts > 1 ? first->len : 0;
    for (size_t i = 1; i < r->num_prompts; i++) {
        size_t n = 0;
        while (n < shared && n < r->prompts[i].len && r->prompts[i].ids[n] == first->ids[n])
            n++;
        shared = n;
    }
    return shared;
}

static size_t bytes_of(const json_t *v) {
    return json_is_string(v) ? json_string_length(v) : json_dumpb(v, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
}

// Gives each question its number of prompts. False: they are too many, or too long.
static bool make_room(struct decision_request *r, const struct served_model *m, const json_t *const *states,
                      int num_states, const char *param, struct api_error *e) {
    size_t num = 0, bytes = 0, names = 0, len = 0;
    for (int i = 0; i < r->num_questions; i++) {
        struct decision_question *q = &r->questions[i];
        q->prompt = (int)num;
        q->num_prompts = min_int(r->permutations, q->num_options);
        num += (size_t)q->num_prompts;
        len = i == 0 || num_states > 1 ? bytes_of(states[num_states == 1 ? 0 : i]) : len;
        bytes += (size_t)q->num_prompts * len;
        for (int k = 0; k < q->num_options; k++)
            names += q->options[k].len;
        if (text_is_hopeless(m, len))
            return api_fail_context(e, param, "the text has", 0, len, m->max_model_len);
    }
    if (bytes > MAX_DECISION_BYTES)
        return api_fail(
            e, 400, "out_of_range", param,
            "Questions times permutations times the text are %zu bytes, and at most %d are allowed.", bytes,
            MAX_DECISION_BYTES);
    if (names > MAX_OPTION_BYTES)
        return api_fail(e, 400, "out_of_range", "questions",
                        "The names of all questions' options are %zu bytes, and at most %d are allowed.",
                        names, MAX_OPTION_BYTES);
    return (r->base.prompts = calloc(num, sizeof *r->base.prompts)) != NULL || api_fail_memory(e);
}

bool decisions_prepare(struct decision_request *r, const struct served_model *m, const json_t *const *states,
                       int num_states, const char *param, struct api_error *e) {
    if (!make_room(r, m, states, num_states, param, e))
        return false;
    for (int i = 0; i < r->num_questions; i++) {
        struct decision_question *q = &r->questions[i];
        for (int p = 0; p < q->num_prompts; p++)
            if (!make_prompt(r, m, states[num_states == 1 ? 0 : i], q, p, param, e))
                return false;
        if (!make_tree(r, m, q, e))
            return false;
    }
    if (!make_rows(r, e) || !check_room(r, m, param, e))
        return false;
    r->num_shared = shared_len(&r->base);
    r->num_input = (int64_t)r->num_shared;
    for (size_t i = 0; i < r->base.num_prompts; i++)
        r->num_input += (int64_t)(r->base.prompts[i].len - r->num_shared);
    return true;
}

// ---- probabilities

// Logarithms to shares that sum to 1, in place. False: the greatest is not finite.
static bool normalise(double *logs, int n, bool keep_logs) {
    double most = logs[0], sum = 0;
    for (int i = 1; i < n; i++)
        most = logs[i] > most ? logs[i] : most;
    for (int i = 0; i < n; i++)
        sum += exp(logs[i] - most);
    for (int i = 0; i < n; i++)
        logs[i] = keep_logs ? logs[i] - most - log(sum) : exp(logs[i] - most) / sum;
    return isfinite(most) && isfinite(sum);
}

// Adds the share of one prompt to the options' probabilities. scores: room for the edges, then the options.
static bool weigh_prompt(const struct decision_request *r, struct decision_question *q, int prompt,
                         double *scores) {
    const float *logprobs = r->logprobs + q->logprobs + prompt * q->num_edges;
    double *totals = scores + q->num_edges;
    bool finite = true;
    for (int i = 0; i < q->num_edges; i++)
        scores[i] = (double)logprobs[i];
    for (int i = 0; i < q->num_nodes && !r->sequence; i++) // of one edge it becomes 1
        finite &= normalise(scores + q->nodes[i].edges, q->nodes[i].num_edges, true);
    for (int i = 0; i < q->num_options; i++) {
        totals[i] = 0;
        for (int edge = q->options[i].leaf; edge >= 0; edge = q->edges[edge].parent)
            totals[i] += scores[edge];
    }
    finite &= normalise(totals, q->num_options, false);
    for (int i = 0; i < q->num_options; i++)
        q->options[i].probability += totals[i] / q->num_prompts;
    return finite;
}

bool decisions_weigh(struct decision_request *r, struct api_error *e) {
    for (int i = 0; i < r->num_questions; i++) {
        struct decision_question *q = &r->questions[i];
        double *scores = malloc((size_t)(q->num_edges + q->num_options) * sizeof *scores);
        bool finite = true;
        if (!scores)
            return api_fail_memory(e);
        for (int p = 0; p < q->num_prompts; p++)
            finite &= weigh_prompt(r, q, p, scores);
        free(scores);
        if (!finite)
            return api_fail(e, 500, "internal_error", NULL, "The model's probabilities are not finite.");
    }
    return true;
}

double decision_confidence(const struct decision_question *q) {
    double entropy = 0;
    for (int i = 0; i < q->num_options; i++) {
        double p = q->options[i].probability;
        entropy -= p > 0 ? p * log(p) : 0;
    }
    double confidence = 1 - entropy / log(q->num_options);
    return confidence > 0 ? confidence : 0;
}
