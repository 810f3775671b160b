#include "manual.h"

#include "build_id.h"
#include "config.h"
#include "console.h"
#include "options.h"
#include "roff.h"

#define WRITTEN "2026-11-28" // when the words below were last changed

struct manual_item {
    const char *name, *text;
};

static const struct manual_item variables[] = {
    {"QUIRE_HOST and so on",
     "Each flag of `serve` and of the commands that open a model: its name in capitals, behind QUIRE_. "
     "Values of "
     "a flag that is repeatable stand between commas, but for keys. A variable that is empty counts as none; "
     "one of "
     "a key is refused then."},
    {"QUIRE_MODEL", "MODEL where the command line has none."},
    {"HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME", "Where Hugging Face's tools keep what they fetched."},
    {"OLLAMA_MODELS", "Where Ollama keeps what it fetched."},
    {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_SERVICE_NAME",
     "`--otlp-traces-endpoint` where it is not given, and the service's name in spans."},
    {"NO_COLOR", "No colours on the terminal."},
};

static const struct manual_item files[] = {
    {"../share/quire/quire-tiny.gguf",
     "Beside the folder of the binary: the model without MODEL, in place of the embedded one."},
    {"~/.cache/huggingface/hub, ~/.ollama/models, /usr/share/ollama/.ollama/models",
     "Where MODEL is looked for if it is a name, such as Qwen/Qwen3-4B-GGUF or llama3.1:8b, and no file."},
};

static const struct {
    int code;
    const char *when;
} exits[] = {
    {0, "Done; `serve`: ended by SIGTERM or SIGINT, when running requests had ended."},
    {EXIT_MODEL,
     "The model's file is not readable or not supported; an output cannot be written; `health`: the server "
     "is not "
     "well; `replay`: the record cannot be replayed, or differs."},
    {EXIT_USAGE,
     "The command line, an address or port, a device, memory, a key file, a record or trace that cannot be "
     "opened, "
     "or a limit of the system."},
    {EXIT_ENGINE, "The engine failed, or another process of the same model did."},
};

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static void put_items(FILE *out, const struct manual_item *items, size_t num) {
    for (size_t i = 0; i < num; i++)
        roff_item(out, items[i].name, "", items[i].text);
}

void manual_begin(FILE *out) {
    roff_begin(out, "QUIRE", WRITTEN, build_version);
    roff_section(out, "NAME");
    fputs("quire \\- serve large language models over HTTP\n", out);
    roff_section(out, "SYNOPSIS");
    fputs(".B quire\n\\fICOMMAND\\fR [\\fIARGUMENTS\\fR] [\\fIFLAGS\\fR]\n", out);
    roff_section(out, "DESCRIPTION");
    roff_lines(
        out, "Quire serves a model to many clients at once, by the APIs of OpenAI, Anthropic and Ollama. "
             "MODEL is a GGUF file, a folder with safetensors, or the name of a model that `hf download` or "
             "`ollama "
             "pull` has fetched; without it the embedded model answers.");
    roff_section(out, "COMMANDS");
}

void manual_command(FILE *out, const char *name, const char *args, const char *help) {
    roff_item(out, name, args, help);
}

static void put_flag(FILE *out, const struct option *o) {
    char name[80];
    if (o->letter)
        snprintf(name, sizeof name, "-%c, --%s", o->letter, o->name);
    else
        snprintf(name, sizeof name, "--%s", o->name);
    roff_item(out, name, o->metavar ? o->metavar : "", o->help);
    const char *preset = option_preset(o);
    if (*preset) {
        fputs("Default: ", out);
        roff_text(out, preset);
        fputs(".\n", out);
    }
    fputs("Of ", out);
    option_commands(out, o->commands, ",\n");
    fputs(".\n", out);
}

void manual_end(FILE *out) {
    roff_section(out, "FLAGS");
    for (int i = 0; i < num_options; i++) {
        if (i == 0 || options[i].group != options[i - 1].group)
            roff_part(out, option_group_name(options[i].group));
        put_flag(out, &options[i]);
    }
    roff_paragraph(
        out, "Sizes take K, M, G and T, powers of 1024. The file of `--config` has a line for each flag, "
             "`max-num-seqs: 64`, and `model: PATH`. The command line wins over the environment, the "
             "environment "
             "over the file, the file over the default. Flags of vLLM, llama-server, SGLang and TGI are "
             "taken, left "
             "out with a warning, or answered with Quire's; `quire help configuration` lists them.");
    roff_section(out, "ENVIRONMENT");
    put_items(out, variables, COUNT(variables));
    roff_section(out, "FILES");
    put_items(out, files, COUNT(files));
    roff_section(out, "EXIT STATUS");
    for (size_t i = 0; i < COUNT(exits); i++) {
        char code[12];
        snprintf(code, sizeof code, "%d", exits[i].code);
        roff_item(out, code, "", exits[i].when);
    }
    roff_section(out, "SIGNALS");
    roff_lines(out, "`serve`: SIGTERM and SIGINT end it once running requests have, within "
                    "`--drain-timeout`; SIGHUP has it read the files of keys again.");
    roff_section(out, "EXAMPLES");
    roff_example(out, "quire serve Qwen/Qwen3-4B-GGUF --api-key-file keys.txt --host 0.0.0.0\n"
                      "quire chat http://127.0.0.1:8000\n"
                      "quire generate model.gguf -p \"Tell me a story\" -n 100");
    roff_section(out, "SEE ALSO");
    fputs(".BR quire\\-bench (1)\n", out);
}
