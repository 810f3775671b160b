// /v1/systemone: named questions about a state, as Ollama 0.35 and TypeSafe's System One have it (docs.ollama.com,
// capabilities/decision; docs.typesafe.ai/api). /classify: a label for each input, as vLLM has it of classifiers, here of the
// labels that the request gives. `method` and `permutations` are ours.
#include "api/field_rows.h"
#include "openai.h"

#include <stdlib.h>
#include <string.h>

// ---- in

#define INT_TOP 2147483647.0
#define AT(field) offsetof(struct decision_request, field)

static const struct field fields[] = {
    {"permutations", F_INT, 1, MAX_PERMUTATIONS, false, AT(permutations)},
    {"priority", F_INT, -INT_TOP, INT_TOP, false, AT(base.priority)},
};
enum { NUM_FIELDS = sizeof fields / sizeof fields[0], MAX_CLASSIFIED = 2048 };

enum { SYSTEMONE = 1, CLASSIFY = 2, QUESTION = 4 };
// clang-format off
static const struct field_rule rules[] = {
    READ("model", SYSTEMONE | CLASSIFY),
    READ("state", SYSTEMONE),
    READ("questions", SYSTEMONE),
    READ("type", QUESTION),
    READ("criteria", QUESTION),
    READ("input", CLASSIFY),
    READ("labels", CLASSIFY),
    READ("instructions", CLASSIFY | QUESTION),
    READ("method", SYSTEMONE | CLASSIFY),
    READ("permutations", SYSTEMONE | CLASSIFY),
    READ("priority", SYSTEMONE | CLASSIFY),
    READ("cache_salt", SYSTEMONE | CLASSIFY),
    READ("request_id", SYSTEMONE | CLASSIFY),
    READ("user", SYSTEMONE | CLASSIFY),
    REFUSED("images", SYSTEMONE, EMPTY),
    HARMLESS("keep_alive", SYSTEMONE, LOAD),
    {0},
};
// clang-format on

static void add_ignored_of_questions(char *list, const struct served_model *m, const json_t *root) {
    const char *name;
    json_t *question;
    json_object_foreach(json_object_get(root, "questions"), name, question) {
        if (!fields_add_ignored(list, m, question, rules, QUESTION, "questions."))
            return;
    }
}

static const struct field_names systemone_names = {rules, SYSTEMONE, add_ignored_of_questions},
                                classify_names = {rules, CLASSIFY, NULL};

// Reads what both have.
static bool read_shared(struct decision_request *r, const struct served_model *m,
                        const struct field_names *names, struct api_error *e) {
    if (!r->root || !(r->base.model = field_model(m, r->root, &r->base.lora, e)) ||
        !fields_read(r, fields, NUM_FIELDS, r->root, e) || !fields_refuse(r->root, names, e) ||
        !openai_check_priority(&r->base, m, e) || !openai_read_labels(&r->base, r->root, e))
        return false;
    const json_t *v = field_get(r->root, "method");
    const char *method = v ? json_name(v) : "first";
    if (!method || (strcmp(method, "first") != 0 && strcmp(method, "sequence") != 0))
        return api_fail(e, 400, method ? "out_of_range" : "invalid_type", "method",
                        "'method' must be \"first\" or \"sequence\".");
    r->sequence = strcmp(method, "sequence") == 0;
    return true;
}

// Completes r where ok, frees it otherwise; either way r->base.ignored is set.
static bool end_parse(struct decision_request *r, const struct served_model *m,
                      const struct field_names *names, bool ok, struct api_error *e) {
    char ignored[IGNORED_SIZE];
    ok = fields_tell_ignored(ignored, m, r->root, names, ok, e);
    if (!ok)
        decision_request_free(r);
    memcpy(r->base.ignored, ignored, sizeof ignored);
    return ok;
}

static bool make_options(struct decision_question *q, size_t num, const char *param, struct api_error *e) {
    if (num < 2 || num > MAX_OPTIONS)
        return api_fail(e, 400, "out_of_range", param, "There must be from 2 to %d options, found %zu.",
                        MAX_OPTIONS, num);
    return (q->options = calloc(num, sizeof *q->options)) != NULL || api_fail_memory(e);
}

static bool read_choice(struct decision_question *q, const json_t *criteria, const char *param,
                        struct api_error *e) {
    const char *name;
    json_t *meaning;
    if (!json_is_object(criteria))
        return api_fail(e, 400, criteria ? "invalid_type" : "missing_required_parameter", param,
                        "A choice needs 'criteria': an object of each option's name and its meaning.");
    if (!make_options(q, json_object_size(criteria), param, e))
        return false;
    json_object_foreach((json_t *)(uintptr_t)criteria, name, meaning) {
        if (!decision_add_option(q, name, strlen(name), json_is_null(meaning) ? NULL : meaning, param, e))
            return false;
    }
    return true;
}

// A list of names.
static bool read_names(struct decision_question *q, const json_t *list, const char *param,
                       struct api_error *e) {
    if (!make_options(q, json_array_size(list), param, e))
        return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *name = json_array_get(list, i);
        if (!json_name(name))
            return api_fail(e, 400, "invalid_type", param, "'%s[%zu]' must be a string without NULs.", param,
                            i);
        if (!decision_add_option(q, json_string_value(name), json_string_length(name), NULL, param, e))
            return false;
    }
    return true;
}

static bool read_noul(struct decision_question *q, const json_t *criteria, const char *param,
                      struct api_error *e) {
    if (criteria && !json_is_object(criteria))
        return api_fail(e, 400, "invalid_type", param,
                        "The 'criteria' of a yes-or-no question are an object of \"true\" and \"false\".");
    return make_options(q, 2, param, e) &&
           decision_add_option(q, "Yes", 3, field_get(criteria, "true"), param, e) &&
           decision_add_option(q, "No", 2, field_get(criteria, "false"), param, e);
}

static bool read_score(struct decision_question *q, const json_t *criteria, const char *param,
                       struct api_error *e) {
    if (!json_is_array(criteria))
        return api_fail(e, 400, criteria ? "invalid_type" : "missing_required_parameter", param,
                        "A score needs 'criteria': a list of its levels' meanings, the lowest first.");
    if (!make_options(q, json_array_size(criteria), param, e))
        return false;
    for (size_t i = 0; i < json_array_size(criteria); i++) {
        struct decision_option *o = &q->options[i];
        char digits[sizeof o->digits];
        int len = snprintf(digits, sizeof digits, "%d", (int)i % 1000);
        if (!decision_add_option(q, digits, (size_t)len, json_array_get(criteria, i), param, e))
            return false;
        o->name = memcpy(o->digits, digits, sizeof digits);
    }
    return true;
}

static bool read_question(struct decision_question *q, const char *name, const json_t *v,
                          struct api_error *e) {
    static const struct {
        const char *name;
        bool (*read)(struct decision_question *q, const json_t *criteria, const char *param,
                     struct api_error *e);
    } types[] = {[QUESTION_CHOICE] = {"choice", read_choice},
                 [QUESTION_NOUL] = {"noul", read_noul},
                 [QUESTION_SCORE] = {"score", read_score}};
    enum { NUM_TYPES = sizeof types / sizeof types[0] };
    char param[120];
    const char *type = json_name(field_get(v, "type"));
    q->name = name;
    q->instructions = field_get(v, "instructions");
    snprintf(param, sizeof param, "questions.%.80s", name);
    size_t len = strlen(param), k = 0;
    if (!json_is_object(v))
        return api_fail(e, 400, "invalid_type", param, "A question must be an object.");
    while (k < NUM_TYPES && !(type && strcmp(type, types[k].name) == 0))
        k++;
    snprintf(param + len, sizeof param - len, ".type");
    if (k == NUM_TYPES)
        return api_fail(e, 400, type ? "out_of_range" : "missing_required_parameter", param,
                        "The 'type' of a question must be \"choice\", \"noul\" or \"score\".");
    q->type = (enum question_type)k;
    snprintf(param + len, sizeof param - len, ".instructions");
    if (!json_is_string(q->instructions) && !json_is_object(q->instructions) &&
        !json_is_array(q->instructions))
        return api_fail(e, 400, q->instructions ? "invalid_type" : "missing_required_parameter", param,
                        "A question needs 'instructions': a string, an object or a list.");
    snprintf(param + len, sizeof param - len, ".criteria");
    return types[k].read(q, field_get(v, "criteria"), param, e);
}

static bool read_questions(struct decision_request *r, struct api_error *e) {
    const json_t *state = field_get(r->root, "state"), *v = field_get(r->root, "questions");
    const char *name;
    json_t *question;
    if (!json_is_string(state) && !json_is_object(state) && !json_is_array(state))
        return api_fail(e, 400, state ? "invalid_type" : "missing_required_parameter", "state",
                        state ? "'state' must be a string, an object or a list." : "'state' is missing.");
    if (!json_is_object(v))
        return api_fail(e, 400, v ? "invalid_type" : "missing_required_parameter", "questions",
                        v ? "'questions' must be an object." : "'questions' is missing.");
    size_t num = json_object_size(v);
    if (num == 0 || num > MAX_QUESTIONS)
        return api_fail(e, 400, "out_of_range", "questions",
                        "'questions' must have from 1 to %d questions, found %zu.", MAX_QUESTIONS, num);
    if (!(r->questions = calloc(num, sizeof *r->questions)))
        return api_fail_memory(e);
    json_object_foreach((json_t *)(uintptr_t)v, name, question) {
        if (!read_question(&r->questions[r->num_questions++], name, question, e))
            return false;
    }
    return true;
}

static bool parse_systemone(struct decision_request *r, const struct served_model *m, const char *body,
                            size_t len, struct api_error *e) {
    *r = (struct decision_request){.root = body_load(body, len, e), .permutations = 1};
    bool ok = read_shared(r, m, &systemone_names, e) && read_questions(r, e);
    return end_parse(r, m, &systemone_names, ok, e);
}

static bool prepare_systemone(struct decision_request *r, const struct served_model *m, struct api_error *e) {
    const json_t *state = field_get(r->root, "state");
    return decisions_prepare(r, m, &state, 1, "state", e);
}

// The i-th of the inputs; a string is one.
static const json_t *input_at(const json_t *input, size_t i) {
    return json_is_array(input) ? json_array_get(input, i) : input;
}

static bool read_inputs(struct decision_request *r, struct api_error *e) {
    static const char usual[] = "\"Which label fits the text above?\"";
    const json_t *input = field_get(r->root, "input"), *labels = field_get(r->root, "labels"),
                 *instructions = field_get(r->root, "instructions");
    size_t num = json_is_array(input) ? json_array_size(input) : 1;
    if (!input || num == 0 || num > MAX_CLASSIFIED)
        return api_fail(e, 400, input ? "out_of_range" : "missing_required_parameter", "input",
                        "'input' must be a text, or a list of 1 to %d texts.", MAX_CLASSIFIED);
    if (!json_is_object(labels) && !json_is_array(labels))
        return api_fail(e, 400, labels ? "invalid_type" : "missing_required_parameter", "labels",
                        "'labels' must be a list of names, or an object of names and meanings: this model is "
                        "no classifier "
                        "with labels of its own.");
    if (!instructions) {
        instructions = json_loads(usual, JSON_DECODE_ANY, NULL);
        if (!instructions ||
            json_object_set_new(r->root, "instructions", (json_t *)(uintptr_t)instructions) != 0)
            return api_fail_memory(e);
    } else if (!json_is_string(instructions)) {
        return api_fail(e, 400, "invalid_type", "instructions", "'instructions' must be a string.");
    }
    size_t num_labels = json_is_array(labels) ? json_array_size(labels) : json_object_size(labels);
    if (num_labels > MAX_DECISION_OPTIONS / num)
        return api_fail(e, 400, "out_of_range", "labels", "Texts times labels must be at most %d.",
                        MAX_DECISION_OPTIONS);
    if (!(r->questions = calloc(num, sizeof *r->questions)))
        return api_fail_memory(e);
    for (size_t i = 0; i < num; i++) {
        struct decision_question *q = &r->questions[r->num_questions++];
        *q = (struct decision_question){.type = QUESTION_CHOICE, .name = "", .instructions = instructions};
        if (!json_is_string(input_at(input, i)))
            return api_fail(e, 400, "invalid_type", "input",
                            "'input' must be a string or a list of strings.");
        if (!(json_is_array(labels) ? read_names : read_choice)(q, labels, "labels", e))
            return false;
    }
    return true;
}

static bool parse_classify(struct decision_request *r, const struct served_model *m, const char *body,
                           size_t len, struct api_error *e) {
    *r = (struct decision_request){.root = body_load(body, len, e), .permutations = 1};
    bool ok = read_shared(r, m, &classify_names, e) && read_inputs(r, e);
    return end_parse(r, m, &classify_names, ok, e);
}

static bool prepare_classify(struct decision_request *r, const struct served_model *m, struct api_error *e) {
    const json_t *input = field_get(r->root, "input");
    const json_t **texts = calloc((size_t)r->num_questions, sizeof(*texts));
    for (int i = 0; texts && i < r->num_questions; i++)
        texts[i] = input_at(input, (size_t)i);
    bool ok = texts ? decisions_prepare(r, m, texts, r->num_questions, "input", e) : api_fail_memory(e);
    free(texts);
    return ok;
}

// ---- out

static void write_probability(struct buf *b, double p) { buf_fmt(b, "%.12g", p); }

static const struct decision_option *best_of(const struct decision_question *q) {
    const struct decision_option *best = q->options;
    for (int i = 1; i < q->num_options; i++)
        best = q->options[i].probability > best->probability ? &q->options[i] : best;
    return best;
}

// ,"legend":{…}
static void write_legend(struct buf *b, const struct decision_question *q) {
    buf_lit(b, ",\"legend\":{");
    for (int i = 0; i < q->num_options; i++) {
        char *text = json_dumps(q->options[i].meaning, JSON_COMPACT | JSON_ENCODE_ANY);
        buf_fmt(b, "%s\"%d\":", i ? "," : "", i);
        b->failed |= text == NULL;
        buf_str(b, text ? text : "");
        free(text);
    }
    buf_char(b, '}');
}

static void write_answer(struct buf *b, const struct decision_question *q) {
    if (q->type == QUESTION_NOUL) {
        buf_lit(b, "{\"type\":\"noul\",\"noul\":");
        write_probability(b, q->options[0].probability);
        buf_char(b, '}');
        return;
    }
    if (q->type == QUESTION_CHOICE) {
        buf_lit(b, "{\"type\":\"choice\",\"choice\":");
        json_quote(b, best_of(q)->name, best_of(q)->len);
    } else {
        double score = 0;
        for (int i = 0; i < q->num_options; i++)
            score += i * q->options[i].probability;
        buf_lit(b, "{\"type\":\"score\",\"score\":");
        write_probability(b, score);
        write_legend(b, q);
    }
    buf_lit(b, ",\"probabilities\":{");
    for (int i = 0; i < q->num_options; i++) {
        if (i)
            buf_char(b, ',');
        json_quote(b, q->options[i].name, q->options[i].len);
        buf_char(b, ':');
        write_probability(b, q->options[i].probability);
    }
    buf_lit(b, "},\"confidence\":");
    write_probability(b, decision_confidence(q));
    buf_char(b, '}');
}

static void write_systemone(struct buf *b, const struct decision_response *r) {
    const struct decision_request *q = r->request;
    buf_lit(b, "{\"model\":");
    json_quote(b, q->base.model, strlen(q->base.model));
    buf_lit(b, ",\"answers\":{");
    for (int i = 0; i < q->num_questions; i++) {
        if (i)
            buf_char(b, ',');
        json_quote(b, q->questions[i].name, strlen(q->questions[i].name));
        buf_char(b, ':');
        write_answer(b, &q->questions[i]);
    }
    buf_fmt(b,
            "},\"usage\":{\"input_tokens\":%lld,\"output_tokens\":0,\"input_tokens_details\":{"
            "\"cached_tokens\":%lld}}}",
            (long long)q->num_input, (long long)r->num_cached);
}

static void write_classes(struct buf *b, const struct decision_response *r) {
    const struct decision_request *q = r->request;
    const struct usage usage = {.prompt = q->num_input, .cached = r->num_cached, .reasoning = -1};
    buf_fmt(b, "{\"id\":\"%s\",\"object\":\"list\",\"created\":%lld,\"model\":", r->id,
            (long long)r->created);
    json_quote(b, q->base.model, strlen(q->base.model));
    buf_lit(b, ",\"data\":[");
    for (int i = 0; i < q->num_questions; i++) {
        const struct decision_question *one = &q->questions[i];
        buf_fmt(b, "%s{\"index\":%d,\"label\":", i ? "," : "", i);
        json_quote(b, best_of(one)->name, best_of(one)->len);
        buf_lit(b, ",\"probs\":[");
        for (int k = 0; k < one->num_options; k++) {
            if (k)
                buf_char(b, ',');
            write_probability(b, one->options[k].probability);
        }
        buf_fmt(b, "],\"num_classes\":%d}", one->num_options);
    }
    buf_lit(b, "],\"usage\":");
    openai_write_usage(b, &usage);
    buf_char(b, '}');
}

const struct decision_dialect systemone = {.id_prefix = "decision-",
                                           .form = &openai_form,
                                           .parse = parse_systemone,
                                           .prepare = prepare_systemone,
                                           .write = write_systemone};
const struct decision_dialect vllm_classify = {.id_prefix = "classify-",
                                               .form = &openai_form,
                                               .parse = parse_classify,
                                               .prepare = prepare_classify,
                                               .write = write_classes};
