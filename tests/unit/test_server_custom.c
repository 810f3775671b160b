// Custom tools, which take one text of a grammar: whatever the grammar of a format's calls allows, its parser reads as a text of the
// tool's own.
#include "output_texts.h"

#include "grammar_texts.h"

static const char *const formats[] = {
    "hermes",       "qwen3_coder",  "glm45",        "minimax_m2",  "seed_oss",    "deepseek_v3",
    "deepseek_v31", "deepseek_v32", "deepseek_v4",  "kimi_k2",     "mistral",     "cohere",
    "nemotron",     "granite",      "firefunction", "functionary", "llama3_json", "harmony",
    "pythonic",     "lfm2",         "gemma4",       "gigachat3"};

// A grammar whose texts nest, need escapes, and have what ends a string of the format in them, in parts: none is a dead end.
static void write_lark(struct buf *out, const struct output_format *f) {
    const char *close = f->syntax == CALLS_TAGGED ? f->argument.close : OUTPUT_QUOTE;
    size_t half = strlen(close) / 2, most = strlen(close) - 1;
    buf_lit(out, "start: (item | \"\\n\")~1..8\n"
                 "item: \"(\" item? \")\" | HEAD | TAIL | LAST | OTHER | \"#\"\n"
                 "OTHER: /[\\\\\"\\t\\u0001é]/\n"
                 "HEAD: ");
    json_quote(out, close, half);
    buf_lit(out, "\nTAIL: ");
    json_quote(out, close + half, most - half);
    buf_lit(out, "\nLAST: ");
    json_quote(out, close + most, 1);
    buf_lit(out, "\n%ignore \"-\"\n");
    assert_non_null(buf_cstr(out));
}

// The input of the only call in a text.
static json_t *input_of(const struct output_format *f, const json_t *tools, const struct buf *text) {
    struct output_parser *p = output_parser_new(f, tools, true, false);
    struct buf arguments = {0};
    size_t num;
    const char *bytes;
    output_push(p, text->data, text->len);
    output_end(p);
    const struct output_part *parts = output_parts(p, &num, &bytes);
    for (size_t i = 0; i < num; i++)
        if (parts[i].kind == PART_ARGUMENTS)
            buf_add(&arguments, bytes + parts[i].begin, parts[i].len);
    json_t *object = json_loadb(arguments.data, arguments.len, 0, NULL), *input;
    input = json_incref(json_object_get(object, "input"));
    if (output_num_calls(p) != 1 || !json_is_string(input) || json_object_size(object) != 1)
        fail_msg("%s: '%s' is read as '%s'", f->name, text->data, buf_cstr(&arguments));
    json_decref(object);
    buf_free(&arguments);
    output_parser_free(p);
    return input;
}

TEST(test_texts_of_a_grammar) {
    if (!ready())
        skip();
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const struct output_format *f = output_format_named(formats[i]);
        struct buf lark = {0};
        struct err err = {0};
        write_lark(&lark, f);
        struct grammar *own = read_grammar(lark_to_expr, lark.data, lark.len, &err);
        assert_non_null(own);
        json_t *tools = json_pack("[{s:{s:s, s:b, s:{s:{s:{s:s}}}}}]", "function", "name", "edit", "strict",
                                  1, "parameters", "properties", "input", "type", "string");
        json_t *foreign =
            json_pack("{s:{s:s, s:s}}", "edit", "syntax", "lark", "definition", buf_cstr(&lark));
        struct constraint *c = compiled(&(struct output_rule){.format = f,
                                                              .tokenizer = tokenizer,
                                                              .tools = tools,
                                                              .foreign = foreign,
                                                              .calls = true,
                                                              .one_call = true});
        size_t escaped = 0;
        for (int round = 0; round < 1000; round++) {
            struct buf text = {0};
            write_text(c, &text);
            json_t *input = input_of(f, tools, &text);
            check_text(own, f->name, json_string_value(input), json_string_length(input), true);
            escaped += strpbrk(json_string_value(input), "\\\"\n") != NULL;
            json_decref(input);
            buf_free(&text);
        }
        if (escaped < 20)
            fail_msg("%s: %zu of 1000 texts need escapes", f->name, escaped);
        constraint_release(c);
        grammar_free(own);
        json_decref(tools);
        json_decref(foreign);
        buf_free(&lark);
    }
}

// Any text of the grammar may be written: one as Codex's grammar for patches has it (openai/codex, tool_apply_patch.lark).
TEST(test_a_patch) {
    static const char
        lark[] = "start: \"*** Begin Patch\" LF hunk+ \"*** End Patch\" LF?\n"
                 "hunk: \"*** Update File: \" /(.+)/ LF (\"@@\" | \"@@ \" /(.+)/ LF | line)+\n"
                 "line: (\"+\" | \"-\" | \" \") /(.*)/ LF\n%import common.LF\n",
        patch[] = "*** Begin Patch\n*** Update File: a \"b\".c\n@@ int main(void) {\n- puts(\"\\t</x>\");\n"
                  "+\tputs(\"é\\n\");\n+\n*** End Patch";
    if (!ready())
        skip();
    json_t *tools = json_pack("[{s:{s:s, s:b}}]", "function", "name", "edit", "strict", 1),
           *foreign = json_pack("{s:{s:s, s:s}}", "edit", "syntax", "lark", "definition", lark);
    static const char *const around[][3] = {
        {"hermes", "<tool_call>{\"name\": \"edit\", \"arguments\": {\"input\":", "}}</tool_call>"},
        {"qwen3_coder", "<tool_call><function=edit><parameter=input>\n",
         "\n</parameter></function></tool_call>"},
        {"gemma4", "<|tool_call>call:edit{input:<|\"|>", "<|\"|>}<tool_call|>"},
        {"pythonic", "[edit(input=", ")]"}};
    for (size_t i = 0; i < sizeof around / sizeof *around; i++)
        for (int whole = 0; whole < 2; whole++) {
            struct constraint *c = compiled(&(struct output_rule){.format = output_format_named(around[i][0]),
                                                                  .tokenizer = tokenizer,
                                                                  .tools = tools,
                                                                  .foreign = foreign,
                                                                  .calls = true,
                                                                  .one_call = true});
            struct buf text = {0};
            size_t len = strlen(patch) - (whole ? 0 : 1); // without its end it is none
            buf_str(&text, around[i][1]);
            if (i % 3 == 0) // these escape
                json_quote(&text, patch, len);
            else
                buf_add(&text, patch, len);
            buf_str(&text, around[i][2]);
            if (takes(c, buf_cstr(&text), text.len) != (whole == 1))
                fail_msg("%s: '%s' is %s", around[i][0], text.data, whole ? "refused" : "taken");
            buf_free(&text);
            constraint_release(c);
        }
    json_decref(tools);
    json_decref(foreign);
}

// Grammars of which no string has the texts are refused with a reason.
TEST(test_grammars_that_no_string_follows) {
    static const struct {
        const char *lark, *says;
    } cases[] = {{"start: <[7]>", "a control token cannot stand in a string"},
                 {"start: %json {}", "JSON by a schema cannot stand in a grammar of a string"},
                 {"start: (", "Lark grammar, line 1"}};
    if (!ready())
        skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct part_arena a = {0};
        struct err err = {0};
        output_text source = part_source(&a, GRAMMAR_LARK, cases[i].lark, strlen(cases[i].lark)),
                    string = part_list(&a, GRAMMAR_QUOTED, &source, 1);
        assert_null(constraint_new(&string, &(struct json_style){.max_blanks = 2}, trie, &err));
        assert_int_equal(err.code, STATUS_INVALID);
        assert_non_null(strstr(err.msg, cases[i].says));
        part_arena_free(&a);
    }
}

int main(void) { return run_all_tests(NULL, end_texts); }
