#include "structured.h"

#include "field_table.h"
#include "formats/output_grammar.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_LISTED = 10000, MAX_TEXTS = 100000 }; // tags; texts

void structured_name(struct completion_request *r, const char *param) {
    if (r->structured && r->structured->has_body)
        snprintf(r->structured->param, sizeof r->structured->param, "%s", param);
}

static struct structured *begin(struct completion_request *r, const char *param, struct api_error *e) {
    if (!r->structured && !(r->structured = calloc(1, sizeof *r->structured))) {
        api_fail_memory(e);
        return NULL;
    }
    struct structured *s = r->structured;
    s->longest = SIZE_MAX;
    if (s->has_body) {
        api_fail(e, 400, NULL, param, "'%s' and '%s' both say what the output has to be.", s->param, param);
        return NULL;
    }
    snprintf(s->param, sizeof s->param, "%s", param);
    return s;
}

static bool set_body(struct structured *s, output_text p, struct api_error *e) {
    s->body = p;
    s->has_body = true;
    return !s->arena.failed || api_fail_memory(e);
}

// ---- one kind each

// An object, true or false, or the text of one.
static bool read_schema(struct completion_request *r, const json_t *v, const char *param,
                        struct api_error *e) {
    struct structured *s = begin(r, param, e);
    if (!s)
        return false;
    if (json_is_string(v))
        return set_body(
            s, part_source(&s->arena, GRAMMAR_JSON_SCHEMA, json_string_value(v), json_string_length(v)), e);
    if (v && !json_is_object(v) && !json_is_boolean(v))
        return api_fail(e, 400, "invalid_type", param, "'%s' must be a JSON schema.", param);
    return set_body(s, part_schema(&s->arena, v), e);
}

static bool read_source(struct completion_request *r, enum grammar_language language, const json_t *v,
                        const char *param, struct api_error *e) {
    struct structured *s = begin(r, param, e);
    if (!s)
        return false;
    if (!json_is_string(v) || json_string_length(v) == 0)
        return api_fail(e, 400, "invalid_type", param, "'%s' must be a string that is not empty.", param);
    return set_body(s, part_source(&s->arena, language, json_string_value(v), json_string_length(v)), e);
}

// GBNF has ::=, Lark's rules a colon alone.
static bool read_grammar(struct completion_request *r, const json_t *v, const char *param,
                         struct api_error *e) {
    bool gbnf = json_is_string(v) && memmem(json_string_value(v), json_string_length(v), "::=", 3);
    return read_source(r, gbnf ? GRAMMAR_GBNF : GRAMMAR_LARK, v, param, e);
}

static bool read_choice(struct completion_request *r, const json_t *v, const char *param,
                        struct api_error *e) {
    struct structured *s = begin(r, param, e);
    size_t n = json_array_size(v), longest = 0;
    if (!s)
        return false;
    if (n == 0 || n > MAX_TEXTS)
        return api_fail(e, 400, json_is_array(v) ? "out_of_range" : "invalid_type", param,
                        "'%s' must be a list of 1 to %d strings.", param, MAX_TEXTS);
    output_text *list = malloc(n * sizeof *list);
    if (!list)
        return api_fail_memory(e);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(v, i);
        if (!json_is_string(item)) {
            free(list);
            return api_fail(e, 400, "invalid_type", param, "'%s' must be a list of strings.", param);
        }
        list[i] = part_text(&s->arena, json_string_value(item), json_string_length(item));
        longest = json_string_length(item) > longest ? json_string_length(item) : longest;
    }
    s->longest = longest;
    output_text any = part_list(&s->arena, GRAMMAR_ANY_OF, list, (int)n);
    free(list);
    return set_body(s, any, e);
}

// ---- structural tags: xgrammar's, in its older and its newer form

static bool tag_fail(struct api_error *e, const char *what) {
    return api_fail(e, 400, "invalid_value", "structural_tag", "The structural tag %s.", what);
}

static bool tag_text(struct part_arena *a, const json_t *object, const char *name, output_text *out,
                     struct api_error *e) {
    const json_t *v = json_object_get(object, name);
    if (!json_is_string(v))
        return api_fail(e, 400, "invalid_value", "structural_tag", "The structural tag needs '%s', a string.",
                        name);
    *out = part_text(a, json_string_value(v), json_string_length(v));
    return true;
}

static bool tag_format(struct part_arena *a, const json_t *format, int depth, output_text *out,
                       struct api_error *e);

static bool tag_formats(struct part_arena *a, const json_t *list, enum grammar_part_kind kind, int depth,
                        output_text *out, struct api_error *e) {
    size_t n = json_array_size(list);
    if (n == 0 || n > MAX_LISTED)
        return tag_fail(e, "needs a list of parts that is not empty");
    output_text *parts = calloc(n, sizeof *parts);
    bool ok = parts != NULL;
    for (size_t i = 0; i < n && ok; i++)
        ok = tag_format(a, json_array_get(list, i), depth + 1, &parts[i], e);
    if (ok)
        *out = part_list(a, kind, parts, (int)n);
    else if (!parts)
        api_fail_memory(e);
    free(parts);
    return ok;
}

static bool tag_of(struct part_arena *a, const json_t *tag, int depth, output_text *out,
                   struct api_error *e) {
    output_text open, close, content;
    if (!tag_text(a, tag, "begin", &open, e) || !tag_text(a, tag, "end", &close, e) ||
        !tag_format(a, json_object_get(tag, "content"), depth + 1, &content, e))
        return false;
    *out = PART_SEQ(a, open, content, close);
    return true;
}

// Text without triggers, and tags whose beginnings start with one.
static bool tag_triggered(struct part_arena *a, const json_t *triggers, const output_text *tags, int num,
                          bool one, bool must, output_text *out, struct api_error *e) {
    output_text stops[64];
    size_t n = json_array_size(triggers);
    if (n == 0 || n > 64 || num == 0)
        return tag_fail(e, "needs 1 to 64 'triggers', and tags");
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(triggers, i);
        if (!json_is_string(v) || json_string_length(v) == 0)
            return tag_fail(e, "has a trigger that is no text");
        stops[i] = part_text(a, json_string_value(v), json_string_length(v));
    }
    output_text text = part_list(a, GRAMMAR_WITHOUT, stops, (int)n);
    output_text turn = PART_SEQ(a, text, part_list(a, GRAMMAR_ANY_OF, tags, num));
    output_text turns = part_repeat(a, turn, must, one ? 1 : -1);
    *out = one ? PART_ANY_OF(a, must ? turn : text, turn) : PART_SEQ(a, turns, text);
    return true;
}

static bool tag_list(struct part_arena *a, const json_t *list, int depth, output_text **out,
                     struct api_error *e) {
    size_t n = json_array_size(list);
    *out = n && n <= MAX_LISTED ? calloc(n, sizeof **out) : NULL;
    if (!*out)
        return tag_fail(e, "needs a list of tags");
    for (size_t i = 0; i < n; i++)
        if (!tag_of(a, json_array_get(list, i), depth, &(*out)[i], e))
            return false;
    return true;
}

static bool tag_with_tags(struct part_arena *a, const json_t *format, bool separated, int depth,
                          output_text *out, struct api_error *e) {
    const json_t *list = json_object_get(format, "tags");
    bool must = json_is_true(json_object_get(format, "at_least_one"));
    bool one = json_is_true(json_object_get(format, "stop_after_first"));
    output_text *tags, separator;
    bool ok = tag_list(a, list, depth, &tags, e);
    int n = (int)json_array_size(list);
    if (ok && separated) {
        ok = tag_text(a, format, "separator", &separator, e);
        output_text any = part_list(a, GRAMMAR_ANY_OF, tags, n);
        output_text all =
            ok ? PART_SEQ(a, any, part_repeat(a, PART_SEQ(a, separator, any), 0, one ? 0 : -1)) : any;
        *out = part_repeat(a, all, must, 1);
    } else if (ok) {
        ok = tag_triggered(a, json_object_get(format, "triggers"), tags, n, one, must, out, e);
    }
    free(tags);
    return ok;
}

static bool tag_format(struct part_arena *a, const json_t *format, int depth, output_text *out,
                       struct api_error *e) {
    const char *type = json_name(json_object_get(format, "type"));
    const json_t *v;
    if (depth > 32)
        return tag_fail(e, "is nested too deep");
    if (!type)
        return tag_fail(e, "needs a 'type' in each of its parts");
    if (strcmp(type, "const_string") == 0)
        return tag_text(a, format, "value", out, e);
    if (strcmp(type, "json_schema") == 0) {
        *out = part_schema(a, json_object_get(format, "json_schema"));
        return true;
    }
    bool regex = strcmp(type, "regex") == 0;
    if (regex || strcmp(type, "grammar") == 0) {
        v = json_object_get(format, regex ? "pattern" : "grammar");
        if (!json_is_string(v))
            return tag_fail(e, regex ? "needs 'pattern', a string" : "needs 'grammar', a string");
        *out =
            part_source(a, regex ? GRAMMAR_REGEX : GRAMMAR_GBNF, json_string_value(v), json_string_length(v));
        return true;
    }
    if (strcmp(type, "any_text") == 0) {
        *out = part_list(a, GRAMMAR_WITHOUT, NULL, 0);
        return true;
    }
    if (strcmp(type, "sequence") == 0 || strcmp(type, "or") == 0)
        return tag_formats(a, json_object_get(format, "elements"),
                           type[0] == 's' ? GRAMMAR_SEQ : GRAMMAR_ANY_OF, depth, out, e);
    if (strcmp(type, "tag") == 0)
        return tag_of(a, format, depth, out, e);
    if (strcmp(type, "triggered_tags") == 0 || strcmp(type, "tags_with_separator") == 0)
        return tag_with_tags(a, format, type[1] == 'a', depth, out, e);
    return api_fail(e, 400, "unsupported_parameter", "structural_tag",
                    "Parts of a structural tag of type '%.40s' are not supported.", type);
}

// {"structures": [{"begin", "schema", "end"}], "triggers": […]}
static bool old_tag(struct part_arena *a, const json_t *tag, output_text *out, struct api_error *e) {
    const json_t *list = json_object_get(tag, "structures");
    size_t n = json_array_size(list);
    output_text *tags = n && n <= MAX_LISTED ? calloc(n, sizeof *tags) : NULL;
    bool ok = tags || tag_fail(e, "needs 'structures', a list");
    for (size_t i = 0; i < n && ok; i++) {
        const json_t *v = json_array_get(list, i);
        output_text open, close;
        ok = tag_text(a, v, "begin", &open, e) && tag_text(a, v, "end", &close, e);
        if (ok)
            tags[i] = PART_SEQ(a, open, part_schema(a, json_object_get(v, "schema")), close);
    }
    ok = ok && tag_triggered(a, json_object_get(tag, "triggers"), tags, (int)n, false, false, out, e);
    free(tags);
    return ok;
}

static bool read_tag(struct completion_request *r, const json_t *v, const char *param, struct api_error *e) {
    struct structured *s = begin(r, param, e);
    json_t *tag = json_is_string(v)
                      ? json_loadb(json_string_value(v), json_string_length(v), JSON_ALLOW_NUL, NULL)
                      : json_incref((json_t *)(uintptr_t)v);
    output_text out = {0};
    bool ok = s != NULL;
    if (ok && !json_is_object(tag))
        ok = tag_fail(e, "must be an object, or the text of one");
    if (ok)
        ok = json_object_get(tag, "format")
                 ? tag_format(&s->arena, json_object_get(tag, "format"), 0, &out, e)
                 : old_tag(&s->arena, tag, &out, e);
    json_decref(tag);
    return ok && set_body(s, out, e);
}

// ---- the fields

static bool read_format(struct completion_request *r, const json_t *v, struct api_error *e) {
    const char *type = json_name(json_object_get(v, "type"));
    if (!json_is_object(v) || !type)
        return api_fail(e, 400, "invalid_type", "response_format",
                        "'response_format' must be an object with a 'type'.");
    if (strcmp(type, "text") == 0)
        return true;
    if (strcmp(type, "json_object") == 0) // llama-server takes a schema, too
        return read_schema(r, field_get(v, "schema"), "response_format", e);
    if (strcmp(type, "structural_tag") == 0)
        return read_tag(r, v, "response_format", e);
    const json_t *inner = field_get(v, "json_schema"), *schema = field_get(inner, "schema");
    if (strcmp(type, "json_schema") != 0)
        return api_fail(e, 400, "unsupported_parameter", "response_format.type",
                        "'response_format' of type '%.40s' is not supported: text, json_object, json_schema, "
                        "structural_tag.",
                        type);
    if (!inner && !(schema = field_get(v, "schema")))
        return api_fail(e, 400, "missing_required_parameter", "response_format.json_schema",
                        "'response_format' of type json_schema needs 'json_schema'.");
    if (!schema)
        return api_fail(e, 400, "missing_required_parameter", "response_format.json_schema.schema",
                        "'json_schema' needs 'schema'.");
    return read_schema(r, schema, "response_format.json_schema.schema", e);
}

enum kind { SCHEMA, OBJECT, REGEX, CHOICE, GRAMMAR, GBNF, TAG };
static const struct {
    const char *name, *inside; // of the body; of structured_outputs
    enum kind kind;
} names[] = {{"guided_json", "json", SCHEMA},
             {"guided_json_object", "json_object", OBJECT},
             {"guided_regex", "regex", REGEX},
             {"guided_choice", "choice", CHOICE},
             {"guided_grammar", "grammar", GRAMMAR},
             {"structural_tag", "structural_tag", TAG},
             {"json_schema", NULL, SCHEMA},
             {"grammar", NULL, GBNF},
             {"regex", NULL, REGEX},
             {"ebnf", NULL, GBNF}};

static bool read_one(struct completion_request *r, enum kind kind, const json_t *v, const char *param,
                     struct api_error *e) {
    bool nothing = json_is_string(v) && json_string_length(v) == 0;
    switch (nothing ? OBJECT : kind) {
    case SCHEMA: return read_schema(r, v, param, e);
    case OBJECT:
        if (!nothing && !json_is_boolean(v))
            return api_fail(e, 400, "invalid_type", param, "'%s' must be true or false.", param);
        return !json_is_true(v) || read_schema(r, NULL, param, e);
    case REGEX: return read_source(r, GRAMMAR_REGEX, v, param, e);
    case CHOICE: return read_choice(r, v, param, e);
    case GRAMMAR: return read_grammar(r, v, param, e);
    case GBNF: return read_source(r, GRAMMAR_GBNF, v, param, e);
    case TAG: return read_tag(r, v, param, e);
    }
    return false;
}

static bool read_outputs(struct completion_request *r, const json_t *v, struct api_error *e) {
    const char *key;
    json_t *value;
    if (!json_is_object(v))
        return api_fail(e, 400, "invalid_type", "structured_outputs",
                        "'structured_outputs' must be an object.");
    json_object_foreach((json_t *)(uintptr_t)v, key, value) {
        char param[64];
        snprintf(param, sizeof param, "structured_outputs.%.40s", key);
        size_t i = 0;
        while (i < sizeof names / sizeof *names && !(names[i].inside && strcmp(names[i].inside, key) == 0))
            i++;
        bool blanks = strcmp(key, "disable_any_whitespace") == 0, order = strcmp(key, "property_order") == 0;
        if (json_is_null(value) || strcmp(key, "disable_fallback") == 0)
            continue;
        if (i < sizeof names / sizeof *names) {
            if (!read_one(r, names[i].kind, value, param, e))
                return false;
        } else if (blanks && json_is_boolean(value)) {
            r->no_blanks = json_is_true(value);
        } else if (order && json_name(value)) {
            r->any_order = strcmp(json_name(value), "any") == 0;
            if (!r->any_order && strcmp(json_name(value), "schema") != 0)
                return api_fail(e, 400, "invalid_value", param,
                                "'property_order' must be \"schema\" or \"any\".");
        } else if (!(json_is_false(value) || (json_is_string(value) && json_string_length(value) == 0))) {
            return api_fail(e, 400, "unsupported_parameter", param,
                            "'%s' is not supported by this version of the server.", param);
        }
    }
    return true;
}

// Values that ask for nothing, as client libraries send them.
static bool is_nothing(const json_t *v) {
    return (json_is_array(v) && json_array_size(v) == 0) || (json_is_object(v) && json_object_size(v) == 0) ||
           (json_is_string(v) && json_string_length(v) == 0);
}

bool structured_read(struct completion_request *r, const struct served_model *m, const json_t *root,
                     struct api_error *e) {
    (void)m;
    const json_t *format = field_get(root, "response_format"),
                 *outputs = field_get(root, "structured_outputs");
    if (format && !is_nothing(format) && !read_format(r, format, e))
        return false;
    if (outputs && !is_nothing(outputs) && !read_outputs(r, outputs, e))
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *v = field_get(root, names[i].name);
        bool empty_schema = names[i].kind == SCHEMA && json_is_object(v);
        if (v && names[i].inside && json_equal(v, field_get(outputs, names[i].inside)))
            continue; // one wish, in the words of two versions of vLLM
        if (v && (empty_schema || !is_nothing(v)) && !read_one(r, names[i].kind, v, names[i].name, e))
            return false;
    }
    return true;
}

// ---- all together

static bool binds_calls(const struct completion_request *r) {
    return r->tools && (r->must_call || r->callable || output_any_strict(r->tools));
}

bool structured_binds(const struct completion_request *r) {
    return (r->structured && r->structured->has_body) || binds_calls(r);
}

bool structured_finish(struct completion_request *r, const struct served_model *m, struct api_error *e) {
    bool body = r->structured && r->structured->has_body;
    if (!body && !binds_calls(r))
        return true;
    const char *param = r->must_call || r->callable ? "tool_choice" : "tools";
    if (!r->structured && !begin(r, param, e))
        return false;
    struct structured *s = r->structured;
    if (body && !r->format && (size_t)r->min_tokens > s->longest) // a token has a byte
        return api_fail(e, 400, "out_of_range", "min_tokens",
                        "'min_tokens' is %d, and the longest text of '%s' has %zu bytes.", r->min_tokens,
                        s->param, s->longest);
    struct output_rule rule = {.format = r->format,
                               .tokenizer = m->tokenizer,
                               .tokens = m->format_tokens,
                               .num_tokens = m->num_format_tokens,
                               .reads_reasoning = (r->reads_reasoning && !r->no_thinking) ||
                                                  (r->format && r->format->harmony),
                               .thinking = r->thinking,
                               .body = body ? &s->body : NULL,
                               .tools = r->callable ? r->callable : r->tools,
                               .foreign = r->foreign_tools,
                               .calls = r->must_call,
                               .one_call = r->one_call};
    const char *problem = output_rule_problem(&rule);
    if (problem)
        return api_fail(e, 400, "unsupported_parameter", param,
                        "To constrain the arguments of calls needs %s.", problem);
    s->root = output_rule_part(&s->arena, &rule);
    s->style = (struct json_style){.order = r->any_order ? JSON_ORDER_ANY : JSON_ORDER_SCHEMA,
                                   .max_blanks = r->no_blanks ? 0 : m->max_blanks};
    return !s->arena.failed || api_fail_memory(e);
}

bool structured_compile(struct completion_request *r, const struct served_model *m, struct api_error *e) {
    struct err err = {0};
    if (!r->structured)
        return true;
    r->constraint = constraint_cache_get(m->constraints, &r->structured->root, &r->structured->style, &err);
    if (r->constraint)
        return true;
    if (err.code == STATUS_NOMEM)
        return api_fail_memory(e);
    if (err.code == STATUS_CANCELLED)
        return api_fail(e, 503, "shutting_down", NULL, "The server is shutting down.");
    return api_fail(e, 400, "invalid_value", r->structured->param, "'%s' cannot be followed: %s",
                    r->structured->param, err.msg);
}
