#include "output_grammar.h"

#include "argument_types.h"
#include "json_strings.h"

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
static bool binds(const struct output_rule *r, const json_t *tool) { return r->calls || is_strict(tool); }

static const json_t *schema_of(const struct output_rule *r, const json_t *tool) {
    return binds(r, tool) ? json_object_get(function_of(tool), "parameters") : NULL;
}

bool output_any_strict(const json_t *tools) {
    bool any = false;
    for (size_t i = 0; i < json_array_size(tools); i++)
        any |= is_strict(json_array_get(tools, i));
    return any;
}

const char *output_rule_problem(const struct output_rule *r) {
    if (r->tools && r->format->bare && !r->calls && !r->body)
        return "'tool_choice' \"required\" or a named function with this model, which does not mark its "
               "calls";
    return NULL;
}

// ---- calls

static output_text quoted(struct part_arena *a, const char *before, const char *name, const char *after) {
    return PART_SEQ(a, part_text(a, before, strlen(before)), part_text(a, name, strlen(name)),
                    part_text(a, after, strlen(after)));
}

static output_text *boxed(struct part_arena *a, output_text p) { return part_copy(a, &p, sizeof p); }

static unsigned types_of_argument(const void *parameters, const char *key, size_t len) {
    unsigned types = argument_types(parameters, key, len);
    return types | (types & ARGUMENT_INTEGER ? (unsigned)GRAMMAR_NUMBER : 0);
}

// Arguments between tags. parameters: the schema that the grammar follows; NULL: any object.
static const struct grammar_literals *tags_of(struct part_arena *a, const struct output_rule *r,
                                              const json_t *parameters) {
    const struct output_format *f = r->format;
    bool told =
        f->argument.value && strcmp(f->argument.value, ">") == 0; // DeepSeek says which of the two a value is
    output_text newline = PART_TEXT(a, "\n"), text = newline, value = newline,
                close = MARKS(f->argument.close);
    if (f->argument.trim) {
        close = PART_SEQ(a, newline, close);
    } else if (told) {
        text = PART_TEXT(a, " string=\"true\">");
        value = PART_TEXT(a, " string=\"false\">");
    } else if (f->argument.value) {
        text = value = PART_SEQ(a, part_blanks(), MARKS(f->argument.value));
    } else {
        text = value = PART_TEXT(a, "");
    }
    struct grammar_tags tags = {.open = boxed(a, MARKS(f->argument.open)),
                                .mid = boxed(a, MARKS(f->argument.mid)),
                                .of_text = boxed(a, text),
                                .of_value = boxed(a, value),
                                .close = boxed(a, close),
                                .stop = f->argument.close,
                                .told = told,
                                .types = types_of_argument,
                                .of = parameters};
    struct grammar_literals literals = {.quote_token = -1, .tags = part_copy(a, &tags, sizeof tags)};
    return part_copy(a, &literals, sizeof literals);
}

// How a format writes values. NULL: as JSON.
static const struct grammar_literals *literals_of(struct part_arena *a, const struct output_rule *r,
                                                  const json_t *parameters) {
    static const struct grammar_literals python = {
        .words = {"True", "False", "None"}, .quote_token = -1, .arguments = true};
    struct grammar_literals braces = {
        .words = {"true", "false", "null"}, .quote = OUTPUT_QUOTE, .quote_token = -1, .bare_keys = true};
    if (r->format->syntax == CALLS_TAGGED)
        return tags_of(a, r, parameters);
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

// The one string that a custom tool takes, with its grammar.
static output_text input_part(struct part_arena *a, const struct output_rule *r, const json_t *custom,
                              const struct grammar_literals *literals) {
    const json_t *definition = json_object_get(custom, "definition");
    bool lark = strcmp(json_name(json_object_get(custom, "syntax")), "lark") == 0;
    output_text text = part_source(a, lark ? GRAMMAR_LARK : GRAMMAR_REGEX, json_string_value(definition),
                                   json_string_length(definition));
    output_text string = part_list(a, GRAMMAR_QUOTED, &text, 1), blanks = part_blanks();
    string.literals = literals;
    if (!literals)
        return PART_SEQ(a, PART_TEXT(a, "{"), blanks, PART_TEXT(a, "\"input\""), blanks, PART_TEXT(a, ":"),
                        blanks, string, blanks, PART_TEXT(a, "}"));
    if (r->format->syntax == CALLS_PYTHON)
        return PART_SEQ(a, PART_TEXT(a, "(input="), string, PART_TEXT(a, ")"));
    if (r->format->syntax == CALLS_BRACES)
        return PART_SEQ(a, PART_TEXT(a, "{input:"), string, PART_TEXT(a, "}"));
    const struct grammar_tags *t = literals->tags;
    return PART_SEQ(a, blanks, *t->open, PART_TEXT(a, "input"), *t->mid, *t->of_text, string, *t->close,
                    blanks);
}

// The arguments of a tool.
static output_text arguments_part(struct part_arena *a, const struct output_rule *r, const json_t *tool) {
    const json_t *schema = schema_of(r, tool), *custom = json_object_get(r->foreign, name_of(tool));
    const struct grammar_literals *literals = literals_of(a, r, schema);
    if (binds(r, tool) && json_object_get(custom, "definition"))
        return input_part(a, r, custom, literals);
    output_text arguments = part_schema(a, schema);
    arguments.literals = literals;
    return arguments;
}

// One call of a tool, without what stands around it.
static output_text call_part(struct part_arena *a, const struct output_rule *r, const json_t *tool) {
    const struct output_format *f = r->format;
    const char *name = name_of(tool);
    output_text arguments = arguments_part(a, r, tool);
    switch (f->syntax) {
    case CALLS_PYTHON:
    case CALLS_BRACES: return PART_SEQ(a, part_text(a, name, strlen(name)), arguments);
    case CALLS_TAGGED:
        return PART_SEQ(a, part_text(a, name, strlen(name)), MARKS(f->mid ? f->mid : ""), arguments);
    case CALLS_NAMED:
        return PART_SEQ(a,
                        f->kimi_ids
                            ? PART_SEQ(a, quoted(a, "functions.", name, ":"), // and how many were before
                                       part_source(a, GRAMMAR_REGEX, "[0-9]{1,3}", 10))
                            : part_text(a, name, strlen(name)),
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
                     TOKEN("<|message|>"), arguments_part(a, r, tool));
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
