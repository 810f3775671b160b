// Arguments of tools, from the grammar that constrains them to the parser that reads them: for every format and the schemas
// that Pydantic and MCP servers write, what is read is JSON of the schema.
// usage: test_server_arguments [FILE]: writes a line of JSON for each call, {"format", "schema", "arguments"}, to FILE.
#include "formats/argument_types.h"
#include "output_texts.h"

static const char *const formats[] = {
    "hermes",       "qwen3_coder",  "glm45",        "minimax_m2",  "seed_oss",    "deepseek_v3",
    "deepseek_v31", "deepseek_v32", "deepseek_v4",  "kimi_k2",     "mistral",     "cohere",
    "nemotron",     "granite",      "firefunction", "functionary", "llama3_json", "harmony",
    "pythonic",     "lfm2",         "gemma4",       "gigachat3"};

static FILE *lines; // or NULL

static struct constraint *constraint_of(const struct output_format *f, json_t *tools, struct err *err) {
    struct part_arena a = {0};
    output_text root = output_rule_part(
        &a, &(struct output_rule){
                .format = f, .tokenizer = tokenizer, .tools = tools, .calls = true, .one_call = true});
    struct constraint *c = constraint_new(&root, &(struct json_style){.max_blanks = 2}, trie, err);
    part_arena_free(&a);
    return c;
}

// The arguments of the one call in a text; the caller frees them.
static char *arguments_of(const struct output_format *f, const json_t *tools, const struct buf *text) {
    struct output_parser *p = output_parser_new(f, tools, true, false);
    struct buf out = {0};
    for (size_t at = 0; at < text->len;) { // cut here and there
        size_t n = 1 + draw(40);
        n = n < text->len - at ? n : text->len - at;
        while (at + n < text->len && (text->data[at + n] & 0xc0) == 0x80) // whole characters
            n++;
        output_push(p, text->data + at, n);
        at += n;
        if (at == text->len)
            output_end(p);
        size_t num;
        const char *bytes;
        const struct output_part *parts = output_parts(p, &num, &bytes);
        for (size_t i = 0; i < num; i++)
            if (parts[i].kind == PART_ARGUMENTS)
                buf_add(&out, bytes + parts[i].begin, parts[i].len);
            else if (parts[i].kind != PART_CALL)
                fail_msg("%s: '%.*s' is left of '%s'", f->name, (int)parts[i].len, bytes + parts[i].begin,
                         buf_cstr((struct buf *)(uintptr_t)text));
        output_clear(p);
    }
    if (output_num_calls(p) != 1 || output_calls_ended(p) != 1)
        fail_msg("%s: %d calls in '%s'", f->name, output_num_calls(p),
                 buf_cstr((struct buf *)(uintptr_t)text));
    output_parser_free(p);
    const char *s = buf_cstr(&out);
    char *copy = strdup(s ? s : "");
    buf_free(&out);
    return copy;
}

static int num_endless; // texts to which chance found no end

// The schema's own grammar takes the arguments, in any order of the members.
static bool check_schema(const struct output_format *f, json_t *schema, struct constraint *oracle,
                         int rounds) {
    json_t *tools = json_pack("[{s:{s:s,s:O}}]", "function", "name", "f", "parameters", schema);
    struct err err = {0};
    struct constraint *c = constraint_of(f, tools, &err);
    char *shown = json_dumps(schema, JSON_COMPACT);
    char close[64];
    snprintf(close, sizeof close, "%s%s", f->argument.trim ? "\n" : "",
             f->argument.close ? f->argument.close : OUTPUT_QUOTE);
    end_marks[0] = close;
    end_marks[1] = f->argument.mid ? f->argument.mid : OUTPUT_QUOTE;
    end_marks[2] = f->argument.mid ? f->call_close : OUTPUT_QUOTE;
    for (int round = 0; c && round < rounds; round++) {
        struct buf text = {0};
        if (!try_text(c, &text)) {
            num_endless++;
            buf_free(&text);
            continue;
        }
        char *arguments = arguments_of(f, tools, &text);
        if (!takes(oracle, arguments, strlen(arguments)))
            fail_msg("%s: schema %s\n'%s' is read as %s", f->name, shown, buf_cstr(&text), arguments);
        json_t *line =
            json_pack("{s:s, s:O, s:s}", "format", f->name, "schema", schema, "arguments", arguments);
        if (lines && json_dumpf(line, lines, JSON_COMPACT) == 0)
            fputc('\n', lines);
        json_decref(line);
        free(arguments);
        buf_free(&text);
    }
    free(shown);
    json_decref(tools);
    constraint_release(c);
    return c != NULL;
}

static struct constraint *oracle_of(const json_t *schema, struct err *err) {
    struct part_arena a = {0};
    output_text p = part_schema(&a, schema);
    struct constraint *c = constraint_new(
        &p, &(struct json_style){.max_blanks = 20, .as_written = true, .order = JSON_ORDER_ANY}, trie, err);
    part_arena_free(&a);
    return c;
}

TEST(test_schemas) {
    if (!ready())
        skip();
    json_t *schemas = json_load_file(QUIRE_SOURCE_DIR "/tests/unit/tool_schemas.json", 0, NULL), *schema;
    size_t at;
    assert_true(json_array_size(schemas) > 20);
    num_endless = 0;
    json_array_foreach(schemas, at, schema) {
        struct err err = {0};
        struct constraint *oracle = oracle_of(schema, &err);
        if (!oracle)
            fail_msg("%s", err.msg);
        for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
            bool no_words = at == 24 && strstr("pythonic lfm2 gemma4", formats[i]); // a/b is none
            if (!no_words && !check_schema(output_format_named(formats[i]), schema, oracle, 8))
                fail_msg("%s: schema %zu cannot be followed", formats[i], at);
        }
        constraint_release(oracle);
    }
    assert_int_equal(num_endless, 0);
    json_decref(schemas);
}

// Schemas of tools that are used: what JSON can follow every tag can, but names that are none between tags.
TEST(test_known_schemas) {
    static const char *const files[] = {"MCPspec", "BFCL", "Glaiveai2K", "Github_easy"}, *const tagged[] = {
                                                                                             "qwen3_coder",
                                                                                             "glm45",
                                                                                             "minimax_m2",
                                                                                             "seed_oss",
                                                                                             "deepseek_v4"};
    int followed = 0, not_followed = 0;
    if (!ready())
        skip();
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        char name[80];
        snprintf(name, sizeof name, "structured/maskbench/%s.jsonl", files[k]);
        const char *path = test_data(name);
        FILE *file = path ? fopen(path, "r") : NULL;
        if (!file)
            skip();
        json_t *line;
        for (int at = 0; (line = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL)) != NULL; at++) {
            json_t *schema = json_object_get(line, "schema");
            struct err err = {0};
            struct constraint *oracle = at % 4 == 0 ? oracle_of(schema, &err) : NULL;
            const struct output_format *f = output_format_named(tagged[at / 4 % 5]);
            if (oracle && json_is_object(schema) &&
                check_schema(output_format_named("pythonic"), schema, oracle, 0)) {
                bool taken = check_schema(f, schema, oracle, 2);
                followed += taken;
                not_followed += !taken;
            }
            constraint_release(oracle);
            json_decref(line);
        }
        fclose(file);
    }
    printf("  %d schemas followed, %d not, %d texts without end\n", followed, not_followed, num_endless);
    assert_true(followed > 200 && not_followed == 0 && num_endless < 20);
}

// The types that the schema gives an argument, and the value that a text has then.
TEST(test_types) {
    static const struct {
        const char *a, *text, *read; // the schema of a; its text; what it is as JSON
    } cases[] = {
        {"{'$ref':'#/$defs/L'}", "{'lat': 1}", "{'lat': 1}"},
        {"{'$ref':'#/$defs/I'}", "3", "3"},
        {"{'allOf':[{'$ref':'#/$defs/L'}]}", "{'lat': 1}", "{'lat': 1}"},
        {"{'anyOf':[{'$ref':'#/$defs/L'},{'type':'null'}]}", "null", "null"},
        {"{'const':7}", "7", "7"},
        {"{'$ref':'#over'}", "[1]", "[1]"},
        {"{'$ref':'#/$defs/a~1b'}", "true", "true"},
        {"{'$ref':'https://example.com/s'}", "5", "'5'"}, // not here
        {"{'$ref':'#/properties/a'}", "5", "'5'"},        // itself
        {"{'type':['string','null']}", "null", "null"},
        {"{'type':['string','null']}", "nullify", "'nullify'"},
        {"{'type':['string','null']}", "None", "'None'"},
        {"{'type':['string','integer']}", "2.5", "'2.5'"},
        {"{'type':['string','number']}", "2.5", "2.5"},
        {"{'type':['string','integer']}", "10 Downing Street", "'10 Downing Street'"},
        {"{'type':['string','boolean']}", "true", "true"},
        {"{'type':['string','boolean']}", "truest", "'truest'"},
        {"{'type':['string','object']}", "{'k': [1, 2]}", "{'k': [1, 2]}"},
        {"{'type':['string','object']}", "{k}", "'{k}'"},
        {"{'type':['string','object']}", "[1]", "'[1]'"},
        {"{'type':'object'}", "{\"k\": True, 'n': None}", "{\"k\": true, \"n\": null}"},
        {"{'type':'boolean'}", "True", "true"},
        {"{'type':'integer'}", " 12 ", " 12 "},
        {"{'type':'integer'}", "a dozen", "'a dozen'"},
        {"{'type':'integer'}", "01", "'01'"},
        {"{'type':'integer'}", "3.0", "3.0"},
        {"{'type':'number'}", "123456789012345678901234567890", "123456789012345678901234567890"},
        {"{'type':'number'}", "1e999", "1e999"},
        {"{'enum':['a','b']}", "a", "'a'"},
        {"{'enum':['a',1]}", "1", "1"},
        {"{'properties':{'k':{}}}", "{'k': 1}", "{'k': 1}"},
        {"{'items':{'type':'integer'}}", "[1]", "[1]"},
        {"{'minLength':2}", "12", "'12'"},
        {"{'minimum':2}", "12", "12"},
        {"{}", "12", "'12'"},
        {"true", "{'k': 1}", "{'k': 1}"},
        {"{'type':'string','nullable':true}", "null", "null"},
        {"{'type':'string'}", "null", "'null'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char schema[600];
        struct buf text = {0};
        snprintf(
            schema, sizeof schema,
            "[{'function':{'name':'f','parameters':{'properties':{'a':%s},'$defs':{'L':{'type':'object'},"
            "'I':{'type':'integer'},'a/b':{'type':'boolean'},'list':{'$anchor':'over','type':'array'}}}}}]",
            cases[i].a);
        for (char *c = schema; *c; c++)
            *c = *c == '\'' ? '"' : *c;
        buf_fmt(&text,
                "<tool_call>\n<function=f>\n<parameter=a>\n%s\n</parameter>\n</function>\n</tool_call>",
                cases[i].text);
        char expected[200];
        snprintf(expected, sizeof expected, "{\"a\": %s}", cases[i].read);
        bool python = strchr(cases[i].text, '"') != NULL;
        for (char *c = text.data; c < text.data + text.len && !python; c++)
            *c = *c == '\'' ? '"' : *c;
        for (char *c = expected; *c; c++)
            *c = *c == '\'' ? '"' : *c;
        json_t *tools = json_loads(schema, 0, NULL);
        assert_non_null(tools);
        for (int round = 0; round < 30; round++) {
            char *got = arguments_of(output_format_named("qwen3_coder"), tools, &text);
            if (strcmp(got, expected) != 0)
                fail_msg("%s: '%s' is read as %s, expected %s", cases[i].a, cases[i].text, got, expected);
            free(got);
        }
        json_decref(tools);
        buf_free(&text);
    }
}

int main(int argc, char **argv) {
    lines = argc > 1 ? fopen(argv[1], "w") : NULL;
    int failed = run_all_tests(NULL, end_texts);
    return lines && fclose(lines) != 0 ? 1 : failed;
}
