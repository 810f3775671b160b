#include "output_grammar.h"

#include "json_strings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARKS(text) part_marks(a, r->tokenizer, r->tokens, r->num_tokens, (text))

static const json_t *function_of(const json_t *tool) { return json_object_get(tool, "function"); }
static const char *name_of(const json_t *tool) {
    return json_name(json_object_get(function_of(tool), "name"));
}

static bool is_strict(const json_t *tool) {
    return json_is_true(json_object_get(function_of(tool), "strict"));
}

// Without strict a model may write what arguments it likes, unless it has to call.
static const json_t *schema_of(const struct output_rule *r, const json_t *tool) {
    return r->calls || is_strict(tool) ? json_object_get(function_of(tool), "parameters") : NULL;
}

bool output_any_strict(const json_t *tools) {
    bool any = false;
    for (size_t i = 0; i < json_array_size(tools); i++)
        any |= is_strict(json_array_get(tools, i));
    return any;
}

// ---- what can be constrained

static bool is_text(const json_t *property) {
    const char *type = json_name(json_object_get(property, "type"));
    return type && strcmp(type, "string") == 0;
}

static bool is_among(const char *const *words, const char *word) {
    while (*words && strcmp(*words, word) != 0)
        words++;
    return *words != NULL;
}

// The first keyword that says something else than those. NULL: there is none.
static const char *other_keyword(const json_t *schema, const char *const *known) {
    static const char *const say_nothing[] = {"title",    "description", "default",  "examples",
                                              "$schema",  "$id",         "$comment", "deprecated",
                                              "readOnly", "writeOnly",   NULL};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)schema, key, value) {
        if (!is_among(known, key) && !is_among(say_nothing, key))
            return key;
    }
    return NULL;
}

static bool has_string(const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_is_string(json_array_get(list, i)))
            return true;
    return false;
}

// The keyword that arguments between tags cannot follow: they are properties, each once, and texts among them stand
// without quotes. property: whose it is, NULL: the object's. NULL: they can.
static const char *tagged_problem(const json_t *parameters, const char **property) {
    static const char *const of_object[] = {"type",  "properties",  "required", "additionalProperties",
                                            "$defs", "definitions", NULL},
                             *const of_text[] = {"type", "enum", "const", NULL};
    json_t *properties = json_object_get(parameters, "properties"), *value;
    const json_t *type = json_object_get(parameters, "type"),
                 *required = json_object_get(parameters, "required");
    const char *other = other_keyword(parameters, of_object), *key;
    *property = NULL;
    if (other)
        return other;
    if (json_is_string(type) && !(json_name(type) && strcmp(json_name(type), "object") == 0))
        return "type";
    for (size_t i = 0; i < json_array_size(required); i++) {
        const json_t *one = json_array_get(required, i);
        if (json_is_string(one) && !(json_name(one) && json_object_get(properties, json_name(one))))
            return "required";
    }
    json_object_foreach(properties, key, value) {
        *property = key;
        if (!is_text(value))
            continue;
        if ((other = other_keyword(value, of_text)))
            return other;
        if (json_object_get(value, "enum") && !has_string(json_object_get(value, "enum")))
            return "enum";
    }
    return NULL;
}

const char *output_rule_problem(const struct output_rule *r, char *room, size_t size) {
    const struct output_format *f = r->format;
    if (!r->tools)
        return NULL;
    if (f->bare && !r->calls && !r->body)
        return "'tool_choice' \"required\" or a named function with this model, which does not mark its "
               "calls";
    for (size_t i = 0; f->syntax == CALLS_TAGGED && i < json_array_size(r->tools); i++) {
        const json_t *tool = json_array_get(r->tools, i);
        const char *property, *keyword = tagged_problem(schema_of(r, tool), &property);
        if (!keyword)
            continue;
        snprintf(room, size, "'%.64s' without '%.64s'%s%.64s: this model writes arguments between tags",
                 name_of(tool), keyword, property ? " in " : "", property ? property : "");
        return room;
    }
    return NULL;
}

// ---- calls

static output_text quoted(struct part_arena *a, const char *before, const char *name, const char *after) {
    return PART_SEQ(a, part_text(a, before, strlen(before)), part_text(a, name, strlen(name)),
                    part_text(a, after, strlen(after)));
}

// A property's schema with the definitions that it may refer to.
static output_text property_part(struct part_arena *a, const json_t *parameters, const json_t *property) {
    json_t *with = json_is_object(property) ? json_copy((json_t *)(uintptr_t)property) : NULL;
    static const char *const names[] = {"$defs", "definitions"};
    if (!with)
        return part_schema(a, property);
    for (int i = 0; i < 2; i++)
        if (json_object_get(parameters, names[i]) && !json_object_get(with, names[i]))
            json_object_set(with, names[i], json_object_get(parameters, names[i]));
    output_text p = part_schema(a, with);
    json_decref(with);
    return p;
}

// A text as it stands between tags; strings of an enum as they are.
static output_text text_value(struct part_arena *a, const json_t *property, const char *close) {
    const json_t *list = json_object_get(property, "enum"), *one = json_object_get(property, "const");
    output_text stop = part_text(a, close, strlen(close)), any;
    if (json_is_string(one))
        return part_text(a, json_string_value(one), json_string_length(one));
    if (!has_string(list))
        return part_list(a, GRAMMAR_WITHOUT, &stop, 1);
    output_text *p = calloc(json_array_size(list), sizeof *p);
    int num = 0;
    a->failed |= !p;
    for (size_t i = 0; p && i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (json_is_string(v))
            p[num++] = part_text(a, json_string_value(v), json_string_length(v));
    }
    any = p ? part_list(a, GRAMMAR_ANY_OF, p, num) : stop;
    free(p);
    return any;
}

static bool is_required(const json_t *parameters, const char *name) {
    const json_t *list = json_object_get(parameters, "required");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_name(json_array_get(list, i)) && strcmp(json_name(json_array_get(list, i)), name) == 0)
            return true;
    return false;
}

// Arguments between tags, in the order of the schema.
static output_text tagged_arguments(struct part_arena *a, const struct output_rule *r, const json_t *tool) {
    const struct output_format *f = r->format;
    json_t *parameters = json_object_get(function_of(tool), "parameters"), *value;
    output_text all = PART_SEQ(a, part_blanks());
    const char *key;
    json_object_foreach(json_object_get(parameters, "properties"), key, value) {
        bool text = is_text(value);
        const char *close = f->argument.close;
        output_text open =
            PART_SEQ(a, MARKS(f->argument.open), part_text(a, key, strlen(key)), MARKS(f->argument.mid));
        if (f->argument.value) { // DeepSeek says before it which of the two a value is
            bool says = strcmp(f->argument.value, ">") == 0;
            output_text before = !says  ? part_blanks()
                                 : text ? PART_TEXT(a, " string=\"true\"")
                                        : PART_TEXT(a, " string=\"false\"");
            open = PART_SEQ(a, open, before, MARKS(f->argument.value));
        }
        output_text of = text ? text_value(a, value, close) : property_part(a, parameters, value);
        if (f->argument.trim)
            of = PART_SEQ(a, PART_TEXT(a, "\n"), of, PART_TEXT(a, "\n"));
        output_text one = PART_SEQ(a, open, of, MARKS(close), part_blanks());
        all = PART_SEQ(a, all, is_required(parameters, key) ? one : part_repeat(a, one, 0, 1));
    }
    return all;
}

// How a format writes values. NULL: as JSON.
static const struct grammar_literals *literals_of(struct part_arena *a, const struct output_rule *r) {
    static const struct grammar_literals python = {
        .words = {"True", "False", "None"}, .quote_token = -1, .arguments = true};
    struct grammar_literals braces = {
        .words = {"true", "false", "null"}, .quote = OUTPUT_QUOTE, .quote_token = -1, .bare_keys = true};
    if (r->format->syntax != CALLS_BRACES)
        return r->format->syntax == CALLS_PYTHON ? &python : NULL;
    for (int i = 0; i < r->num_tokens; i++) {
        size_t len;
        const char *name = tokenizer_name(r->tokenizer, r->tokens[i], &len);
        if (len == strlen(OUTPUT_QUOTE) && memcmp(name, OUTPUT_QUOTE, len) == 0)
            braces.quote_token = r->tokens[i];
    }
    return part_copy(a, &braces, sizeof braces);
}

// One call of a tool, without what stands around it.
static output_text call_part(struct part_arena *a, const struct output_rule *r, const json_t *tool) {
    const struct output_format *f = r->format;
    const char *name = name_of(tool);
    output_text arguments = part_schema(a, schema_of(r, tool));
    arguments.literals = literals_of(a, r);
    switch (f->syntax) {
    case CALLS_PYTHON:
    case CALLS_BRACES: return PART_SEQ(a, part_text(a, name, strlen(name)), arguments);
    case CALLS_TAGGED:
        return PART_SEQ(a, part_text(a, name, strlen(name)), MARKS(f->mid ? f->mid : ""),
                        tagged_arguments(a, r, tool));
    case CALLS_NAMED:
        return PART_SEQ(a,
                        f->kimi_ids ? quoted(a, "functions.", name, ":0") : part_text(a, name, strlen(name)),
                        MARKS(f->mid), arguments);
    default: {
        const char *name_key = f->name_key ? f->name_key : "name",
                   *key = f->arguments_key ? f->arguments_key : "arguments";
        output_text head = PART_SEQ(a, quoted(a, "{\"", name_key, "\": \""), quoted(a, "", name, "\", \""),
                                    quoted(a, "", key, "\": "));
        return PART_SEQ(a, head, arguments, PART_TEXT(a, "}"));
    }
    }
}

static bool is_list(const struct output_format *f) { return f->list || f->syntax == CALLS_PYTHON; }

static output_text any_call(struct part_arena *a, const struct output_rule *r, bool marked) {
    const struct output_format *f = r->format;
    output_text each = {.kind = GRAMMAR_ANY_OF};
    size_t num = 0;
    for (size_t i = 0; i < json_array_size(r->tools); i++) {
        output_text one = call_part(a, r, json_array_get(r->tools, i));
        each = num++ ? PART_ANY_OF(a, each, one) : one;
    }
    if (f->syntax != CALLS_NAMED || f->kimi_ids)
        each = PART_SEQ(a, part_blanks(), each, part_blanks());
    if (is_list(f))
        each = PART_SEQ(a, PART_TEXT(a, "["), each,
                        part_repeat(a, PART_SEQ(a, PART_TEXT(a, ","), each), 0, r->one_call ? 0 : -1),
                        PART_TEXT(a, "]"));
    if (f->call_open && marked)
        each = PART_SEQ(a, MARKS(f->call_open), each);
    if (f->call_close)
        each = PART_SEQ(a, each, MARKS(f->call_close));
    return each;
}

static bool repeats(const struct output_rule *r) {
    return !r->one_call && !is_list(r->format) && !r->format->bare;
}

static output_text all_calls(struct part_arena *a, const struct output_rule *r) {
    const struct output_format *f = r->format;
    output_text call = any_call(a, r, !f->bare);
    if (repeats(r))
        call = PART_SEQ(a, call, part_repeat(a, PART_SEQ(a, part_blanks(), call), 0, -1));
    if (f->section_open && !f->bare)
        call =
            PART_SEQ(a, MARKS(f->section_open), part_blanks(), call, part_blanks(), MARKS(f->section_close));
    return call;
}

// Text up to the mark of calls, then they, any number of times.
static output_text text_and_calls(struct part_arena *a, const struct output_rule *r) {
    const char *open = r->format->section_open ? r->format->section_open : r->format->call_open;
    output_text mark = part_text(a, open, strlen(open)), text = part_list(a, GRAMMAR_WITHOUT, &mark, 1);
    output_text turn = PART_SEQ(a, text, all_calls(a, r));
    return PART_SEQ(a, part_repeat(a, turn, 0, r->one_call ? 1 : -1), text);
}

// ---- harmony

#define TOKEN(name) part_marks(a, r->tokenizer, r->tokens, r->num_tokens, (name))

static output_text harmony(struct part_arena *a, const struct output_rule *r) {
    output_text any = part_list(a, GRAMMAR_WITHOUT, NULL, 0), again = TOKEN("<|end|><|start|>assistant");
    output_text thoughts = PART_SEQ(a, TOKEN("<|channel|>analysis<|message|>"), any, again);
    output_text json = part_repeat(a, TOKEN(" <|constrain|>json"), 0, 1);
    output_text text =
        PART_SEQ(a, TOKEN("<|channel|>final"), json, TOKEN("<|message|>"), r->body ? *r->body : any);
    output_text calls = text;
    int num = 0;
    for (size_t i = 0; i < json_array_size(r->tools); i++) {
        const json_t *tool = json_array_get(r->tools, i);
        output_text one =
            PART_SEQ(a, TOKEN("<|channel|>commentary"), quoted(a, " to=functions.", name_of(tool), ""), json,
                     TOKEN("<|message|>"), part_schema(a, schema_of(r, tool)));
        calls = num++ || !r->calls ? PART_ANY_OF(a, calls, one) : one;
    }
    return PART_SEQ(a, part_repeat(a, thoughts, 0, r->reads_reasoning ? 4 : 0), r->tools ? calls : text);
}

// ---- all of it

output_text output_rule_part(struct part_arena *a, const struct output_rule *r) {
    const struct output_format *f = r->format;
    if (f && f->harmony)
        return harmony(a, r);
    output_text rest = r->body ? *r->body : part_list(a, GRAMMAR_WITHOUT, NULL, 0);
    if (r->tools && r->calls)
        rest = all_calls(a, r);
    else if (r->tools && r->body)
        rest = PART_ANY_OF(a, *r->body, all_calls(a, r));
    else if (r->tools)
        rest = text_and_calls(a, r);
    if (!f || !f->think_close || !r->reads_reasoning)
        return rest;
    output_text stop = part_text(a, f->think_close, strlen(f->think_close));
    output_text thoughts =
        PART_SEQ(a, part_list(a, GRAMMAR_WITHOUT, &stop, 1), MARKS(f->think_close), part_blanks());
    if (r->thinking)
        return PART_SEQ(a, thoughts, rest);
    return PART_ANY_OF(a, rest, PART_SEQ(a, MARKS(f->think_open), thoughts, rest));
}
