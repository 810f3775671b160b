// Reads models' outputs back: every format by hand, cut everywhere, and as chat templates write it themselves.
// Over 600 lines: the formats share the cuts and the comparison.
#include "formats/output_format.h"
#include "harness.h"
#include "jinja/chat.h"

static int num_calls; // of the last read_as()

// As [content]{reasoning}NAME#ID(arguments), in the order in which they come.
static char *read_as(const struct output_format *f, const json_t *tools, bool reasoning, bool thinking,
                     const char *text, size_t len, unsigned cuts) {
    struct output_parser *p = output_parser_new(f, tools, reasoning, thinking);
    struct buf out = {0};
    enum part_kind kind = PART_CALL;
    bool open = false;
    uint32_t state = cuts;
    for (size_t at = 0; at <= len && p;) {
        state = state * 1664525u + 1013904223u;
        size_t n = cuts == 0 ? len : cuts == 1 ? 1 : state >> 28;
        n = n < len - at ? n : len - at;
        while (at + n < len && (text[at + n] & 0xc0) == 0x80) // whole characters
            n++;
        output_push(p, text + at, n);
        at += n;
        bool end = at == len;
        if (end)
            output_end(p);
        size_t num;
        const char *bytes;
        const struct output_part *parts = output_parts(p, &num, &bytes);
        for (size_t i = 0; i < num; i++) {
            const struct output_part *part = &parts[i];
            if (part->kind == PART_CALL) {
                if (open)
                    buf_char(&out, kind == PART_REASONING ? '}' : kind == PART_CONTENT ? ']' : ')');
                assert_int_equal(part->call, output_num_calls(p) > part->call ? part->call : -1);
                buf_add(&out, bytes + part->begin, part->len);
                if (part->id_len)
                    buf_char(&out, '#');
                buf_add(&out, bytes + part->id, part->id_len);
                buf_char(&out, '(');
                kind = PART_ARGUMENTS;
                open = true;
                continue;
            }
            assert_true(part->len > 0);
            if (!open || kind != part->kind) {
                if (open)
                    buf_char(&out, kind == PART_REASONING ? '}' : kind == PART_CONTENT ? ']' : ')');
                if (part->kind == PART_ARGUMENTS)
                    fail_msg("%s: arguments of no call in %.*s", f->name, (int)len, text);
                buf_char(&out, part->kind == PART_REASONING ? '{' : '[');
            }
            kind = part->kind;
            open = true;
            buf_add(&out, bytes + part->begin, part->len);
        }
        output_clear(p);
        if (end)
            break;
    }
    if (open)
        buf_char(&out, kind == PART_REASONING ? '}' : kind == PART_CONTENT ? ']' : ')');
    assert_false(output_failed(p));
    num_calls = output_num_calls(p);
    output_parser_free(p);
    const char *s = buf_cstr(&out);
    char *copy = strdup(s ? s : "");
    buf_free(&out);
    return copy;
}

static json_t *the_tools(void) {
    json_t *tools =
        json_loads("[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\": "
                   "{\"type\": \"object\","
                   " \"properties\": {\"city\": {\"type\": \"string\"}, \"days\": {\"type\": \"integer\"},"
                   " \"exact\": {\"type\": [\"boolean\", \"null\"]}, \"tags\": {\"type\": \"array\"},"
                   " \"any\": {\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"number\"}]}}}}},"
                   " {\"type\": \"function\", \"function\": {\"name\": \"now\"}}]",
                   0, NULL);
    assert_non_null(tools);
    return tools;
}

#define W "{\"city\": \"Oslo\", \"days\": 3}"
static const struct {
    const char *format, *text, *expected;
    bool thinking, no_tools, no_reasoning;
} cases[] = {
    // Reasoning.
    {.format = "think", "<think>\nWhy?\n\n</think>\n\nBecause.", "{Why?}[Because.]"},
    {.format = "think", "Why?\n</think>\nBecause.\n", "{Why?}[Because.\n]", .thinking = true},
    {.format = "think", "Why", "{Why}", .thinking = true},
    {.format = "think", "No <think>tags</think> here", "[No <think>tags</think> here]"},
    {.format = "think", "<think>a</think>b", "[<think>a</think>b]", .no_reasoning = true},
    {.format = "think", "<thin", "[<thin]"},
    {.format = "think", "<think>a </thin", "{a </thin}"},
    {.format = "think", "<think></think>\n\nYes", "[Yes]"},
    {.format = "think", "  two blanks", "[  two blanks]"},
    // Objects between marks.
    {.format = "hermes",
     "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " W "}\n</tool_call>",
     "get_weather(" W ")"},
    {.format = "hermes",
     "Let me see.\n<tool_call>\n{\"arguments\": " W
     ", \"name\": \"get_weather\"}\n</tool_call>\n<tool_call>{\"name\":\"now\"}</tool_call>\n",
     "[Let me see.]get_weather(" W ")now({})"},
    {.format = "hermes",
     "<think>\nhm\n</think>\n\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
     "{hm}now({})"},
    {.format = "hermes",
     "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"</tool_call> \\\" }\"}}</tool_call> after",
     "now({\"a\": \"</tool_call> \\\" }\"})[after]"},
    {.format = "hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {}</tool_call>", "now({})"},
    {.format = "hermes",
     "<tool_call>{\"name\": \"now\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
     "now({\"a\": 1})"},
    {.format = "hermes", "<tool_call>{\"name\": \"now\", \"arguments\": null}</tool_call>", "now({})"},
    {.format = "hermes",
     "<tool_call>{\"type\": \"function\", \"id\": \"x7\", \"function\": {\"name\": \"now\", \"arguments\": "
     "{\"b\": [1, {\"c\": 2}]}}}</tool_call>",
     "now#x7({\"b\": [1, {\"c\": 2}]})"},
    {.format = "hermes", "Write <tool_call> and </tool_call>.", "[Write <tool_call> and </tool_call>.]"},
    {.format = "hermes",
     "a <tool_call>{\"nothing\": 1}</tool_call> b",
     "[a <tool_call>{\"nothing\": 1}</tool_call> b]"},
    {.format = "hermes",
     "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Os",
     "get_weather({\"city\": \"Os)"},
    {.format = "hermes", "<tool_call>{\"name\": \"get_wea", "[<tool_call>{\"name\": \"get_wea]"},
    {.format = "hermes", "a\n\n<tool", "[a\n\n<tool]"},
    {.format = "hermes",
     "<tool_call>{\"name\": \"now\"}</tool_call>",
     "[<tool_call>{\"name\": \"now\"}</tool_call>]",
     .no_tools = true},
    {.format = "hermes",
     "<tool_call>{\"name\": \"t\\u00e4g\", \"arguments\": {}}</tool_call>",
     "t\xc3\xa4g({})"},
    {.format = "granite",
     "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"get_weather\", \"arguments\": " W
     "}]",
     "now({})get_weather(" W ")"},
    {.format = "nemotron", "<TOOLCALL>[{\"name\": \"now\", \"arguments\": {}}]</TOOLCALL>", "now({})"},
    {.format = "gigachat3",
     "Well.<|function_call|>{\"name\": \"get_weather\", \"arguments\": " W "}",
     "[Well.]get_weather(" W ")"},
    {.format = "firefunction", " functools[{\"name\": \"now\", \"arguments\": {}}]", "now({})"},
    {.format = "cohere",
     "<|START_THINKING|>I look.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
     "\"tool_name\": \"now\", \"parameters\": {}}\n]<|END_ACTION|>",
     "{I look.}now#0({})"},
    {.format = "cohere", "<|START_RESPONSE|>Hi.<|END_RESPONSE|>", "[Hi.]"},
    // Without marks: only a tool of the request is a call.
    {.format = "llama3_json", "{\"name\": \"get_weather\", \"parameters\": " W "}", "get_weather(" W ")"},
    {.format = "llama3_json", "<|python_tag|>{\"name\": \"now\", \"parameters\": {}}", "now({})"},
    {.format = "llama3_json",
     "{\"name\": \"Anna\", \"parameters\": {\"age\": 3}}",
     "[{\"name\": \"Anna\", \"parameters\": {\"age\": 3}}]"},
    {.format = "llama3_json", "{\"a\": 1}", "[{\"a\": 1}]"},
    {.format = "llama3_json", "It is {\"name\": \"now\"}", "[It is {\"name\": \"now\"}]"},
    {.format = "pythonic", "[get_weather(city='Oslo', days=3), now()]", "get_weather(" W ")now({})"},
    {.format = "pythonic", "[1, 2, 3]", "[[1, 2, 3]]"},
    {.format = "pythonic", "[someone(a=1)]", "[[someone(a=1)]]"},
    {.format = "lfm2",
     "<|tool_call_start|>[get_weather(city=\"O'slo\", days=3, exact=True, tags=[\"a\", 'b\\n'], any={'k': "
     "(1, None)})]<|tool_call_end|>Done.",
     "get_weather({\"city\": \"O'slo\", \"days\": 3, \"exact\": true, \"tags\": [\"a\", \"b\\n\"], \"any\": "
     "{\"k\": [1, null]}})[Done.]"},
    {.format = "lfm2",
     "<|tool_call_start|>[get_weather(city=)]<|tool_call_end|>",
     "[<|tool_call_start|>[get_weather(city=)]<|tool_call_end|>]"},
    // A name, then an object.
    {.format = "mistral",
     "[TOOL_CALLS]get_weather[ARGS]" W "[TOOL_CALLS]now[ARGS]{}",
     "get_weather(" W ")now({})"},
    {.format = "mistral", "[TOOL_CALLS]now[CALL_ID]123456789[ARGS]{}", "now#123456789({})"},
    {.format = "mistral",
     "[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}, \"id\": \"abcdefghi\"}]",
     "now({})"},
    {.format = "mistral",
     "[TOOL_CALLS] [{\"id\": \"abcdefghi\", \"name\": \"now\", \"arguments\": {}}]",
     "now#abcdefghi({})"},
    {.format = "mistral", "[THINK]hm[/THINK]Well, [TOOL_CALLS] of mine", "{hm}[Well, [TOOL_CALLS] of mine]"},
    {.format = "kimi_k2",
     "Yes.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|"
     ">" W "<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|"
     "><|tool_calls_section_end|>",
     "[Yes.]get_weather#functions.get_weather:0(" W ")now#functions.now:1({})"},
    {.format = "deepseek_v3",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n" W
     "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<"
     "｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "get_weather(" W ")now({})"},
    {.format = "deepseek_v31",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>" W
     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "get_weather(" W ")"},
    {.format = "functionary", "I ask. <function=get_weather>" W "</function>", "[I ask.]get_weather(" W ")"},
    {.format = "functionary", "<function=now>", "[<function=now>]"},
    // Tags.
    {.format = "qwen3_coder",
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n3\n</"
     "parameter>\n</function>\n</tool_call>",
     "get_weather(" W ")"},
    {.format = "qwen3_coder",
     "<function=get_weather>\n<parameter=city>\nA "
     "\"b\"\n\n</parameter>\n<parameter=tags>\n[1,\n2]\n</parameter>\n<parameter=exact>\nTrue\n</"
     "parameter>\n</function>\n</tool_call>",
     "get_weather({\"city\": \"A \\\"b\\\"\\n\", \"tags\": [1,\n2], \"exact\": true})"},
    {.format = "qwen3_coder",
     "<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</"
     "tool_call>",
     "now({})now({})"},
    {.format = "qwen3_coder",
     "<tool_call>\n<function=get_weather>\n<parameter=days>\nmany\n</parameter>\n<parameter=any>\n4\n</"
     "parameter>\n<parameter=other>\n5\n</parameter>\n</function>\n</tool_call>",
     "get_weather({\"days\": \"many\", \"any\": 4, \"other\": \"5\"})"},
    {.format = "qwen3_coder", "Use <tool_call> with care", "[Use <tool_call> with care]"},
    {.format = "glm45",
     "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</"
     "arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
     "get_weather(" W ")"},
    {.format = "glm45", "<think>x</think>\n<tool_call>now</tool_call>", "{x}now({})"},
    {.format = "minimax_m2",
     "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter "
     "name=\"city\">Oslo</parameter>\n<parameter "
     "name=\"days\">3</parameter>\n</invoke>\n</minimax:tool_call>",
     "get_weather(" W ")"},
    {.format = "deepseek_v4",
     "</think>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter "
     "name=\"city\" string=\"true\">Oslo</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
     "string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
     "get_weather(" W ")",
     .thinking = true},
    {.format = "gemma4",
     "<|channel>thought\nhm\n<channel|><|tool_call>call:get_weather{city:<|\"|>Os\"lo<|\"|>,days:3,tags:[<|"
     "\"|>a<|\"|>,{k:true}]}<tool_call|><|tool_call>call:now{}<tool_call|>",
     "{hm}get_weather({\"city\": \"Os\\\"lo\", \"days\": 3, \"tags\": [\"a\", {\"k\": true}]})now({})"},
    {.format = "gemma4",
     "<|tool_call>call:now{a:<|\"|>if (a < \"b\") {[<|\"|>,b:-1.5E+999}<tool_call|>",
     "now({\"a\": \"if (a < \\\"b\\\") {[\", \"b\": -1.5E+999})"},
    {.format = "gemma4", "<|tool_call>call:now{a:01}", "now({\"a\": \"01\"})"},
    {.format = "gemma4", "<|tool_call>call:now{a:01", "[<|tool_call>call:now{a:01]"},
    // Python's strings.
    {.format = "lfm2",
     "<|tool_call_start|>[now(a='\\\\d+ \\d+ a\\.b', b=r'\\d\\'', "
     "c='\\x41\\101\\u00e9\\U0001F600\\ud83d\\ude00', d='''it's\n\"\"''', "
     "e='a' \"b\", f='\\ud800', g='x\\\ny')]<|tool_call_end|>",
     "now({\"a\": \"\\\\d+ \\\\d+ a\\\\.b\", \"b\": \"\\\\d\\\\'\", \"c\": "
     "\"AA\xc3\xa9\xf0\x9f\x98\x80\xf0\x9f\x98\x80\", "
     "\"d\": \"it's\\n\\\"\\\"\", \"e\": \"ab\", \"f\": \"\xef\xbf\xbd\", \"g\": \"xy\"})"},
    {.format = "lfm2",
     "<|tool_call_start|>[now(a='it\\'s )', b=')')]<|tool_call_end|>",
     "now({\"a\": \"it's )\", \"b\": \")\"})"},
    // Marks that are left out, doubled, within values, and other formats' syntax: test_server_faults has more.
    {.format = "hermes", "<think>I look.<tool_call>{\"name\": \"now\"}</tool_call>", "{I look.}now({})"},
    {.format = "hermes",
     "<think>A <tool_call> or <tool_call>{\"name\": \"now\"}</tool_call>?</think>No.",
     "{A <tool_call> or <tool_call>{\"name\": \"now\"}</tool_call>?}[No.]"},
    {.format = "hermes",
     "<think>A <tool_call> or <tool_call>{\"name\": \"now\"}</tool_call>",
     "{A <tool_call> or}now({})"},
    {.format = "hermes", "<think>Say <tool_call> and", "{Say <tool_call> and}"},
    {.format = "hermes",
     "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n{\"name\": \"get_weather\", \"arguments\": " W
     "}\n</tool_call>",
     "now({})get_weather(" W ")"},
    {.format = "hermes",
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n3\n</"
     "parameter>\n</function>\n"
     "</tool_call>",
     "get_weather(" W ")"},
    {.format = "hermes", "<tool_call>now()</tool_call>", "now({})"},
    {.format = "hermes", "<tool_call>later()</tool_call>", "[<tool_call>later()</tool_call>]"},
    {.format = "hermes", "<tool_call>{\"name\": \"now\", \"arguments\": \" \"}</tool_call>", "now({})"},
    {.format = "hermes",
     "<tool_call>{\"name\": \"now\", \"arguments\": \"soon\"}</tool_call>",
     "now(\"soon\")"},
    {.format = "think", "</think>\n\nYes", "[Yes]"},
    {.format = "think", "<think>a</think></think>b", "{a}[b]"},
    {.format = "think", "<think>a", "{a}", .thinking = true},
    {.format = "mistral", "[TOOL_CALLS]get_weather" W, "get_weather(" W ")"},
    {.format = "mistral", "[TOOL_CALLS]of mine {", "[[TOOL_CALLS]of mine {]"},
    {.format = "deepseek_v31",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<"
     "｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "now({})"},
    {.format = "kimi_k2",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}<|tool_"
     "call_end|><|tool_call_begin|"
     ">functions.now:0<|tool_call_argument_begin|><|tool_call_end|><|tool_call_begin|>now<|tool_call_"
     "argument_begin|>{}<|tool_call_end|>"
     "<|tool_calls_section_end|>",
     "now#functions.now:0({})now({})now({})"},
    {.format = "qwen3_coder",
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nx = "
     "\"</parameter>\"\n</parameter>\n<parameter=tags>\n[\"</parameter>\\n"
     "</function>\"]\n</parameter>\n</function>\n</tool_call>",
     "get_weather({\"city\": \"x = \\\"</parameter>\\\"\", \"tags\": [\"</parameter>\\n</function>\"]})"},
    {.format = "qwen3_coder",
     "<tool_call><function=now>{\"a\": 1}</function></tool_call>",
     "now({\"a\": 1})"},
    {.format = "gemma4",
     "<|tool_call>call:get_weather{city:it's {here}, or: there,days:3,tags:[a b,c]}<tool_call|>",
     "get_weather({\"city\": \"it's {here}, or: there\", \"days\": 3, \"tags\": [\"a b\", \"c\"]})"},
    {.format = "gemma4",
     "<|tool_call>call:get_weather{city:10001}<tool_call|>",
     "get_weather({\"city\": \"10001\"})"},
    // Messages.
    {.format = "harmony",
     "<|channel|>commentary to=functions.now <|constrain|>json<|message|><|call|>",
     "now({})"},
    {.format = "harmony", "<|channel|>commentary to=now<|message|>{}<|call|>", "now({})"},
    {.format = "harmony", "<|channel|>final to=assistant<|message|>hello<|end|>", "[hello]"},
    {.format = "harmony", "<|channel|>analysis to=python code<|message|>print(1)<|call|>", "{print(1)}"},
    {.format = "harmony", "<|channel|>commentary to=browser.search code<|message|>{}<|call|>", "[{}]"},
    {.format = "harmony",
     "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>Hi.",
     "{Think.}[Hi.]"},
    {.format = "harmony",
     "<|channel|>analysis<|message|>T<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
     "<|constrain|>json<|message|>" W "<|call|>",
     "{T}get_weather(" W ")"},
    {.format = "harmony",
     "<|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}",
     "now({})"},
    {.format = "harmony", "<|channel|>commentary<|message|>I will look.<|end|>", "[I will look.]"},
    {.format = "harmony", "Plain words.", "[Plain words.]"},
    {.format = "harmony", "<b>Bold</b> words.", "[<b>Bold</b> words.]"},
    {.format = "harmony", "<|channel|>ana", ""},
    {.format = "harmony", "<|channel|>analysis<|message|>T<|end|>", "[T]", .no_reasoning = true},
};

TEST(test_cases) {
    json_t *tools = the_tools();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct output_format *f = output_format_named(cases[i].format);
        assert_non_null(f);
        for (unsigned cuts = 0; cuts < 40; cuts++) {
            char *got = read_as(f, cases[i].no_tools ? NULL : tools, !cases[i].no_reasoning,
                                cases[i].thinking, cases[i].text, strlen(cases[i].text), cuts);
            if (strcmp(got, cases[i].expected) != 0)
                fail_msg("%s, cuts %u: %s\n     got %s\nexpected %s", cases[i].format, cuts, cases[i].text,
                         got, cases[i].expected);
            free(got);
        }
    }
    json_decref(tools);
}

// ---- random texts made of the marks of a format

static const char *const pieces[] = {
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "{\"name\": \"now\", \"arguments\": {",
    "}",
    "}}",
    "\n",
    " ",
    "word",
    "<function=now>",
    "</function>",
    "<parameter=city>",
    "</parameter>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "now",
    "{}",
    "[",
    "]",
    "<|channel|>",
    "<|message|>",
    "analysis",
    "<|end|>",
    " to=functions.now",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<|tool_call>call:",
    "<tool_call|>",
    "<|\"|>",
    "now(",
    ")",
    "'",
    "\"",
    "\\",
    "<",
    "<|",
    "k:",
    "k=",
    ",",
    "<|tool_call_start|>",
    "<invoke name=\"",
    "\">",
    "<minimax:tool_call>",
    "<｜tool▁calls▁begin｜>",
    "<|START_ACTION|>",
    "<|END_RESPONSE|>",
    "{\"name\":\"now\"}",
};

// A piece of any format, one of this format's own marks, or a word that is in the text once.
static void add_piece(struct buf *text, const struct output_format *f, int n, uint32_t random) {
    const char *const own[] = {f->think_open,    f->think_close,    f->section_open,
                               f->section_close, f->call_open,      f->call_close,
                               f->mid,           f->id_mid,         f->argument.open,
                               f->argument.mid,  f->argument.value, f->argument.close};
    size_t num = sizeof pieces / sizeof *pieces;
    const char *mark = own[random / 8 % (sizeof own / sizeof *own)];
    if (random % 8 == 0)
        buf_fmt(text, "w%dw", n);
    else if (random % 2 && mark)
        buf_str(text, mark);
    else
        buf_str(text, pieces[random / 8 % num]);
}

// No word comes twice, and without calls each comes.
static void check_words(const struct output_format *f, const char *text, const char *got) {
    for (int n = 0; n < 14; n++) {
        char word[8];
        snprintf(word, sizeof word, "w%dw", n);
        const char *at = strstr(got, word);
        bool there = strstr(text, word), lost = there && !at && num_calls == 0 && !f->harmony;
        if (lost || (at && (!there || strstr(at + 1, word))))
            fail_msg("%s: %s of %s\n gives %s", f->name, word, text, got);
    }
}

// However it is cut, the same comes out; no content is lost or invented; and where nothing is looked for, all of it is content.
TEST(test_random) {
    json_t *tools = the_tools();
    static const char *const names[] = {
        "think",        "hermes",      "granite",     "nemotron", "firefunction", "cohere",
        "llama3_json",  "pythonic",    "lfm2",        "mistral",  "kimi_k2",      "deepseek_v3",
        "deepseek_v31", "functionary", "qwen3_coder", "glm45",    "minimax_m2",   "deepseek_v4",
        "deepseek_v32", "seed_oss",    "gemma4",      "harmony",  "gigachat3"};
    uint32_t seed = 7;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        const struct output_format *f = output_format_named(names[k]);
        assert_non_null(f);
        for (int round = 0; round < 1500; round++) {
            struct buf text = {0};
            for (int n = 0; n < 14; n++) {
                seed = seed * 1664525u + 1013904223u;
                add_piece(&text, f, n, seed >> 8);
            }
            buf_cstr(&text);
            char *whole = read_as(f, tools, true, round & 1, text.data, text.len, 0);
            check_words(f, text.data, whole);
            for (unsigned cuts = 1; cuts < 4; cuts++) {
                char *cut = read_as(f, tools, true, round & 1, text.data, text.len,
                                    cuts + (cuts > 1) * (unsigned)round);
                if (strcmp(whole, cut) != 0)
                    fail_msg("%s: %s\n whole %s\n   cut %s", names[k], text.data, whole, cut);
                free(cut);
            }
            free(whole);
            if (!f->harmony && !f->drop[0]) {
                char *plain = read_as(f, NULL, false, false, text.data, text.len, (unsigned)round);
                assert_int_equal(strlen(plain), text.len + 2);
                assert_memory_equal(plain + 1, text.data, text.len);
                free(plain);
            }
            buf_free(&text);
        }
    }
    json_decref(tools);
}

// ---- formats of templates

static struct chat_value *from_json(struct chat_arena *a, json_t *v) {
    const char *key;
    json_t *member;
    struct chat_value *d;
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        d = chat_dict(a);
        json_object_foreach(v, key, member) chat_dict_set(a, d, key, strlen(key), from_json(a, member));
        return d;
    case JSON_ARRAY:
        d = chat_list(a);
        for (size_t i = 0; i < json_array_size(v); i++)
            chat_list_add(a, d, from_json(a, json_array_get(v, i)));
        return d;
    case JSON_STRING: return chat_string(a, json_string_value(v), json_string_length(v), true);
    case JSON_INTEGER: return chat_int(a, json_integer_value(v));
    case JSON_REAL: return chat_float(a, json_real_value(v));
    case JSON_NULL: return chat_null(a);
    default: return chat_bool(a, json_is_true(v));
    }
}

// The conversation as a template writes it; NULL: it refuses it.
static char *rendered(const struct chat_template *t, json_t *globals) {
    struct chat_arena *a = chat_arena_new();
    const struct chat_segment *s;
    size_t n = 0;
    struct err err = {0};
    struct buf out = {0};
    struct chat_value *g = from_json(a, globals);
    chat_dict_set(a, g, "now", 3, chat_int(a, 1752148800));
    bool ok = chat_render(t, a, g, &s, &n, &err) == STATUS_OK;
    for (size_t i = 0; ok && i < n; i++)
        buf_add(&out, s[i].text, s[i].len);
    const char *text = buf_cstr(&out);
    char *copy = ok && text ? strdup(text) : NULL;
    chat_arena_free(a);
    buf_free(&out);
    return copy;
}

static char *read_file(const char *path, size_t *len) {
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 1 << 18);
    assert_true(f && text);
    *len = fread(text, 1, (1 << 18) - 1, f);
    fclose(f);
    return text;
}

static const struct {
    const char *file, *format; // format NULL: its calls are of no known form, or it writes none
    bool no_history;           // the template does not write calls of before as the model does
} templates[] = {
    {.file = "Apertus-8B-Instruct"},
    {.file = "Bielik-11B-v3.0-Instruct", .format = "hermes"},
    {.file = "Cohere2MoE", .format = "cohere", .no_history = true},
    {.file = "CohereForAI-c4ai-command-r-plus-tool_use"},
    {.file = "CohereForAI-c4ai-command-r7b-12-2024-tool_use", .format = "cohere", .no_history = true},
    {.file = "GLM-4.6", .format = "glm45"},
    {.file = "GLM-4.7-Flash", .format = "glm45"},
    {.file = "GigaChat3-10B-A1.8B"},
    {.file = "GigaChat3.1-10B-A1.8B", .format = "gigachat3"},
    {.file = "HuggingFaceTB-SmolLM3-3B", .format = "think", .no_history = true},
    {.file = "Kimi-K2-Instruct", .format = "kimi_k2", .no_history = true},
    {.file = "Kimi-K2-Thinking", .format = "kimi_k2", .no_history = true},
    {.file = "LFM2.5-8B-A1B", .format = "lfm2"},
    {.file = "LFM2.5-Instruct", .format = "lfm2", .no_history = true},
    {.file = "MiMo-VL", .format = "hermes"},
    {.file = "MiniMax-M2", .format = "minimax_m2"},
    {.file = "MiniMax-M3"},
    {.file = "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", .format = "qwen3_coder"},
    {.file = "NVIDIA-Nemotron-Nano-v2", .format = "nemotron"},
    {.file = "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", .format = "hermes"},
    {.file = "NousResearch-Hermes-3-Llama-3.1-8B-tool_use", .format = "hermes"},
    {.file = "Qwen-QwQ-32B", .format = "hermes"},
    {.file = "Qwen-Qwen2.5-7B-Instruct", .format = "hermes"},
    {.file = "Qwen3-Coder", .format = "qwen3_coder"},
    {.file = "Qwen3.5-4B", .format = "qwen3_coder"},
    {.file = "Reka-Edge", .format = "hermes"},
    {.file = "StepFun3.5-Flash", .format = "qwen3_coder"},
    {.file = "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", .format = "deepseek_v3"},
    {.file = "deepseek-ai-DeepSeek-V3.1", .format = "deepseek_v31"},
    {.file = "deepseek-ai-DeepSeek-V4-Flash-0731", .format = "deepseek_v4"},
    {.file = "fireworks-ai-llama-3-firefunction-v2", .format = "firefunction", .no_history = true},
    {.file = "google-gemma-4-31B-it-interleaved", .format = "gemma4"},
    {.file = "google-gemma-4-31B-it", .format = "gemma4"},
    {.file = "ibm-granite-granite-3.3-2B-Instruct", .format = "granite", .no_history = true},
    {.file = "ibm-granite-granite-4.0", .format = "hermes"},
    {.file = "llama-cpp-rwkv-world", .format = "think", .no_history = true},
    {.file = "meetkai-functionary-medium-v3.1", .format = "functionary"},
    {.file = "meta-llama-Llama-3.1-8B-Instruct", .format = "llama3_json"},
    {.file = "meta-llama-Llama-3.2-3B-Instruct", .format = "llama3_json"},
    {.file = "mistralai-Ministral-3-14B-Reasoning-2512", .format = "mistral"},
    {.file = "mistralai-Mistral-Nemo-Instruct-2407", .format = "mistral"},
    {.file = "moonshotai-Kimi-K2", .format = "kimi_k2"},
    {.file = "openbmb-MiniCPM5-1B", .format = "think", .no_history = true},
    {.file = "poolside-Laguna-XS.2", .format = "glm45"},
    {.file = "tencent-Hy3"},
    {.file = "unsloth-mistral-Devstral-Small-2507", .format = "mistral"},
    {.file = "upstage-Solar-Open-100B"},
};

// The last place before `end` where one of the format's calls may begin.
static const char *call_begins(const struct output_format *f, const char *text, const char *end) {
    const char *open = f->section_open ? f->section_open
                       : f->bare       ? "{\"name\""
                                       : f->call_open,
               *begin = NULL;
    for (const char *s = text; (s = strstr(s, open)) != NULL && s < end; s++)
        begin = s;
    return begin;
}

static void check_history(const char *name, const struct output_format *f, const json_t *tools,
                          const char *text) {
    const char *call = NULL, *city = NULL;
    for (const char *at = text; (at = strstr(at, "get_weather")) != NULL;
         at++) // the last: tools are described before
        call = at;
    const char *begin = call ? call_begins(f, text, call) : NULL;
    if (!begin)
        fail_msg("%s: no call in %s", name, text);
    char *got = read_as(f, tools, true, false, begin, strlen(begin), 0), *args = strchr(got, '(');
    json_t *v = args ? json_loads(args + 1, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    json_unpack(v, "{s:s}", "city", &city);
    if (strncmp(got, "get_weather", 11) != 0 || !city || strcmp(city, "Oslo") != 0 ||
        json_integer_value(json_object_get(v, "days")) != 3)
        fail_msg("%s: %s\n gives %s", name, begin, got);
    json_decref(v);
    free(got);
}

// A template tells its format, and what it writes of a call before is read as that call.
TEST(test_templates) {
    json_t *tools = json_loads(
        "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"description\": \"Weather\", "
        "\"parameters\":"
        " {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\", \"description\": "
        "\"City\"},"
        " \"days\": {\"type\": \"integer\", \"description\": \"Days\"}}, \"required\": [\"city\"]}}}]",
        0, NULL);
    json_t *context =
        json_pack("{s:s, s:s, s:b, s:O, s:[{s:s, s:s}, {s:s, s:s, s:[{s:s, s:s, s:{s:s, s:{s:s, s:i}}}]}]}",
                  "bos_token", "<s>", "eos_token", "</s>", "add_generation_prompt", 0, "tools", tools,
                  "messages", "role", "user", "content", "Weather?", "role", "assistant", "content", "",
                  "tool_calls", "id", "abcdefghi", "type", "function", "function", "name", "get_weather",
                  "arguments", "city", "Oslo", "days", 3);
    assert_non_null(context);
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        const char *name = templates[i].file, *expected = templates[i].format;
        char file[200];
        size_t len;
        snprintf(file, sizeof file, "templates/llamacpp/%s.jinja", name);
        const char *path = test_data(file);
        if (!path)
            skip();
        char *source = read_file(path, &len);
        const struct output_format *f = output_format_of(source);
        if (strcmp(f ? f->name : "none", expected ? expected : "none") != 0)
            fail_msg("%s: %s", name, f ? f->name : "none");
        struct err err = {0};
        struct chat_template *t = chat_template_new(source, len, &err);
        char *text = t && f && !templates[i].no_history ? rendered(t, context) : NULL;
        if (f && !templates[i].no_history && !text)
            fail_msg("%s: not rendered", name);
        if (text)
            check_history(name, f, tools, text);
        free(text);
        chat_template_free(t);
        free(source);
    }
    json_decref(context);
    json_decref(tools);
}

// A megabyte of brackets, of blanks, and of a name without an end: no deep stack, and no time to speak of.
TEST(test_hostile) {
    json_t *tools = the_tools();
    static const char *const begins[][2] = {{"lfm2", "<|tool_call_start|>[now(a="},
                                            {"gemma4", "<|tool_call>call:now{a:"},
                                            {"hermes", "<tool_call>{\"name\": \"now\", \"arguments\": "},
                                            {"hermes", "<tool_call>{\""},
                                            {"qwen3_coder", "<tool_call><function=now><parameter="},
                                            {"qwen3_coder", "<tool_call><function="},
                                            {"think", "<think>"},
                                            {"harmony", "<|channel|>"}};
    static const char fill[] = "[ a{<";
    char *text = malloc((1 << 20) + 64);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        for (size_t k = 0; fill[k]; k++) {
            size_t len = strlen(begins[i][1]);
            memcpy(text, begins[i][1], len);
            memset(text + len, fill[k], 1 << 20);
            free(read_as(output_format_named(begins[i][0]), tools, true, false, text, len + (1 << 20), 2));
        }
    const char close[] = "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]"; // 40 deep is no call
    snprintf(text, 256, "<|tool_call_start|>[now(a=%.*s%s)]<|tool_call_end|>", 40,
             "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", close);
    char *got = read_as(output_format_named("lfm2"), tools, true, false, text, strlen(text), 0);
    assert_int_equal(got[0], '[');
    free(got);
    free(text);
    json_decref(tools);
}

int main(void) { return run_all_tests(NULL, NULL); }
