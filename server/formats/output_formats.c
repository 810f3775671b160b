// See output_format.h. Sources: the chat templates of the families and their model cards.
#include "output_format.h"

#include <stdio.h>
#include <string.h>

#define THINK .think_open = "<think>", .think_close = "</think>"

// A template is of the first row whose hints it has.
static const struct output_format formats[] = {
    {.name = "harmony",
     .hints = {"<|channel|>", "<|message|>"},
     .harmony = true,
     .syntax = CALLS_JSON}, // gpt-oss
    {.name = "gemma4",
     .hints = {"<|tool_call>call:", "<|channel>"},
     .think_open = "<|channel>thought",
     .think_close = "<channel|>",
     .think_inside = true,
     .syntax = CALLS_BRACES,
     .call_open = "<|tool_call>call:",
     .call_close = "<tool_call|>"},
    {.name = "kimi_k2",
     .hints = {"<|tool_call_argument_begin|>"},
     THINK,
     .syntax = CALLS_NAMED,
     .kimi_ids = true,
     .section_open = "<|tool_calls_section_begin|>",
     .section_close = "<|tool_calls_section_end|>",
     .call_open = "<|tool_call_begin|>",
     .call_close = "<|tool_call_end|>",
     .mid = "<|tool_call_argument_begin|>"},
    {.name = "deepseek_v4", // and V3.2, whose section has another name
     .hints = {"DSML", "tool_calls>"},
     THINK,
     .syntax = CALLS_TAGGED,
     .section_open = "<｜DSML｜tool_calls>",
     .section_close = "</｜DSML｜tool_calls>",
     .call_open = "<｜DSML｜invoke name=\"",
     .call_close = "</｜DSML｜invoke>",
     .mid = "\">",
     .argument = {"<｜DSML｜parameter name=\"", "\"", ">", "</｜DSML｜parameter>"}},
    {.name = "deepseek_v32",
     .hints = {"DSML"},
     THINK,
     .syntax = CALLS_TAGGED,
     .section_open = "<｜DSML｜function_calls>",
     .section_close = "</｜DSML｜function_calls>",
     .call_open = "<｜DSML｜invoke name=\"",
     .call_close = "</｜DSML｜invoke>",
     .mid = "\">",
     .argument = {"<｜DSML｜parameter name=\"", "\"", ">", "</｜DSML｜parameter>"}},
    {.name = "deepseek_v3", // and R1
     .hints = {"<｜tool▁call▁begin｜>", "```json"},
     THINK,
     .syntax = CALLS_NAMED,
     .section_open = "<｜tool▁calls▁begin｜>",
     .section_close = "<｜tool▁calls▁end｜>",
     .call_open = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
     .call_close = "```<｜tool▁call▁end｜>",
     .mid = "\n```json\n"},
    {.name = "deepseek_v31",
     .hints = {"<｜tool▁call▁begin｜>"},
     THINK,
     .syntax = CALLS_NAMED,
     .section_open = "<｜tool▁calls▁begin｜>",
     .section_close = "<｜tool▁calls▁end｜>",
     .call_open = "<｜tool▁call▁begin｜>",
     .call_close = "<｜tool▁call▁end｜>",
     .mid = "<｜tool▁sep｜>"},
    {.name = "minimax_m2",
     .hints = {"<minimax:tool_call>"},
     THINK,
     .syntax = CALLS_TAGGED,
     .section_open = "<minimax:tool_call>",
     .section_close = "</minimax:tool_call>",
     .call_open = "<invoke name=\"",
     .call_close = "</invoke>",
     .mid = "\">",
     .argument = {"<parameter name=\"", "\">", NULL, "</parameter>"}},
    {.name = "glm45", // GLM 4.5 to 4.7
     .hints = {"<arg_key>", "<arg_value>"},
     THINK,
     .syntax = CALLS_TAGGED,
     .call_open = "<tool_call>",
     .call_close = "</tool_call>",
     .argument = {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}},
    {.name = "seed_oss",
     .hints = {"<seed:tool_call>"},
     .think_open = "<seed:think>",
     .think_close = "</seed:think>",
     .syntax = CALLS_TAGGED,
     .section_open = "<seed:tool_call>",
     .section_close = "</seed:tool_call>",
     .call_open = "<function=",
     .call_close = "</function>",
     .mid = ">",
     .argument = {"<parameter=", ">", NULL, "</parameter>", .trim = true}},
    {.name = "qwen3_coder", // Qwen3 Coder, Qwen 3.5, Nemotron 3, Step 3.5
     .hints = {"<function=", "<parameter="},
     THINK,
     .syntax = CALLS_TAGGED,
     .section_open = "<tool_call>",
     .section_close = "</tool_call>",
     .call_open = "<function=",
     .call_close = "</function>",
     .mid = ">",
     .argument = {"<parameter=", ">", NULL, "</parameter>", .trim = true}},
    {.name = "lfm2",
     .hints = {"List of tools: "},
     THINK,
     .syntax = CALLS_PYTHON,
     .section_open = "<|tool_call_start|>",
     .section_close = "<|tool_call_end|>"},
    {.name = "mistral", // with [ARGS], or the older list of objects
     .hints = {"[TOOL_CALLS]"},
     .think_open = "[THINK]",
     .think_close = "[/THINK]",
     .syntax = CALLS_NAMED,
     .short_ids = true,
     .call_open = "[TOOL_CALLS]",
     .mid = "[ARGS]",
     .id_mid = "[CALL_ID]"},
    {.name = "cohere", // Command R7B, Command A
     .hints = {"<|START_ACTION|>"},
     .think_open = "<|START_THINKING|>",
     .think_close = "<|END_THINKING|>",
     .syntax = CALLS_JSON,
     .list = true,
     .name_key = "tool_name",
     .arguments_key = "parameters",
     .call_open = "<|START_ACTION|>",
     .call_close = "<|END_ACTION|>",
     .drop = {"<|START_RESPONSE|>", "<|END_RESPONSE|>"}},
    {.name = "nemotron",
     .hints = {"<TOOLCALL>"},
     THINK,
     .syntax = CALLS_JSON,
     .list = true,
     .call_open = "<TOOLCALL>",
     .call_close = "</TOOLCALL>"},
    {.name = "gigachat3", // GigaChat 3.1
     .hints = {"<|function_call|>", "<|message_sep|>"},
     .syntax = CALLS_JSON,
     .call_open = "<|function_call|>"},
    {.name = "hermes", // Hermes, Qwen 2.5 and 3, Granite 4, SmolLM 3 and the embedded model
     .hints = {"<tool_call>", "\"arguments\""},
     THINK,
     .syntax = CALLS_JSON,
     .call_open = "<tool_call>",
     .call_close = "</tool_call>"},
    {.name = "granite", // Granite 3
     .hints = {"<|tool_call|>"},
     THINK,
     .syntax = CALLS_JSON,
     .list = true,
     .call_open = "<|tool_call|>",
     .call_close = "<|/tool_call|>"}, // Phi 4 mini's
    {.name = "firefunction",
     .hints = {" functools["},
     .syntax = CALLS_JSON,
     .list = true,
     .call_open = " functools"},
    {.name = "functionary", // 3.1
     .hints = {"<function=", "</function>"},
     .syntax = CALLS_NAMED,
     .call_open = "<function=",
     .call_close = "</function>",
     .mid = ">"},
    {.name = "llama3_json", // Llama 3.1 to 3.3
     .hints = {"<|eot_id|>", "\"parameters\":"},
     .syntax = CALLS_JSON,
     .arguments_key = "parameters",
     .bare = true,
     .call_open = "<|python_tag|>"},
    {.name = "pythonic", // Llama 4, and Llama 3.2 where its prompt asks for it
     .hints = {"func_name1(params_name1="},
     .syntax = CALLS_PYTHON,
     .bare = true,
     .section_open = "<|python_start|>",
     .section_close = "<|python_end|>"},
    {.name = "generic",
     .syntax = CALLS_JSON,
     .call_open = "<tool_call>",
     .call_close = "</tool_call>"},                             // told in words
    {.name = "think", .hints = {"<think>", "</think>"}, THINK}, // reasoning alone
};
enum { NUM_FORMATS = sizeof formats / sizeof *formats };

// Names that vLLM and SGLang have for them
static const char *usual_name(const char *name) {
    static const char *const others[][2] = {
        {"openai", "harmony"},
        {"gpt-oss", "harmony"},
        {"gpt_oss", "harmony"},
        {"qwen", "hermes"},
        {"qwen25", "hermes"},
        {"qwen3_xml", "qwen3_coder"},
        {"llama3", "llama3_json"},
        {"llama4_json", "llama3_json"},
        {"llama4_pythonic", "pythonic"},
        {"deepseekv3", "deepseek_v3"},
        {"deepseekv31", "deepseek_v31"},
        {"deepseekv32", "deepseek_v32"},
        {"minimax-m2", "minimax_m2"},
        {"glm", "glm45"},
        {"glm47", "glm45"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i][0]) == 0)
            return others[i][1];
    return name;
}

const struct output_format *output_format_named(const char *name) {
    name = usual_name(name);
    for (int i = 0; i < NUM_FORMATS; i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}

const struct output_format *output_format_at(int i) { return i < NUM_FORMATS ? &formats[i] : NULL; }

const struct output_format *output_format_of(const char *chat_template) {
    for (int i = 0; chat_template && i < NUM_FORMATS; i++) {
        bool all = formats[i].hints[0] != NULL;
        for (int k = 0; k < 3 && formats[i].hints[k]; k++)
            all &= strstr(chat_template, formats[i].hints[k]) != NULL;
        if (all)
            return &formats[i];
    }
    return NULL;
}

const char *output_format_names(void) {
    static _Thread_local char names[512];
    size_t len = 0;
    for (int i = 0; i < NUM_FORMATS; i++) {
        int n = snprintf(names + len, sizeof names - len, "%s%s", i ? ", " : "", formats[i].name);
        len += (size_t)n;
    }
    return names;
}

bool output_format_reasoning(const struct output_format *f, bool calls, const char **open, const char **close,
                             const char **closing) {
    *open = f->harmony ? "<|channel|>analysis<|message|>" : f->think_open;
    *close = f->harmony ? "<|end|>" : f->think_close;
    *closing = !f->harmony ? f->think_close
               : calls     ? "<|end|><|start|>assistant"
                           : "<|end|><|start|>assistant<|channel|>final<|message|>";
    return *close != NULL;
}

static bool has_text(const char *literal, const char *name, size_t len) {
    for (; literal && strlen(literal) >= len; literal++)
        if (memcmp(literal, name, len) == 0)
            return true;
    return false;
}

int output_format_tokens(const struct output_format *f, const struct tokenizer *t,
                         token_id ids[MAX_FORMAT_TOKENS]) {
    static const char harmony[] = "<|start|><|channel|><|constrain|><|message|><|end|><|call|><|return|>";
    const char *const literals[] = {f->think_open,
                                    f->think_close,
                                    f->section_open,
                                    f->section_close,
                                    f->call_open,
                                    f->call_close,
                                    f->mid,
                                    f->id_mid,
                                    f->argument.open,
                                    f->argument.mid,
                                    f->argument.value,
                                    f->argument.close,
                                    f->drop[0],
                                    f->drop[1],
                                    f->harmony ? harmony : NULL,
                                    f->syntax == CALLS_BRACES ? OUTPUT_QUOTE : NULL};
    int num = 0;
    for (token_id id = 0; id < tokenizer_vocab(t) && num < MAX_FORMAT_TOKENS; id++) {
        size_t len;
        const char *name = tokenizer_is_special(t, id) ? tokenizer_name(t, id, &len) : NULL;
        for (size_t i = 0; name && len > 1 && i < sizeof literals / sizeof *literals; i++)
            if (has_text(literals[i], name, len)) {
                ids[num++] = id;
                break;
            }
    }
    return num;
}
