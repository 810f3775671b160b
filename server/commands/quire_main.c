#include "quire_main.h"

#include "ask_server.h"
#include "build_id.h"
#include "commands.h"
#include "local.h"
#include "log.h"
#include "process/console.h"
#include "process/default_model.h"
#include "process/environment.h"
#include "process/manual.h"
#include "process/model_name.h"
#include "process/nearest.h"
#include "process/process_env.h"
#include "process/setup.h"
#include "quantize.h"
#include "serve.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name, *args, *help;
    enum command command;
    int (*run)(const struct config *c);
    int num_args; // after MODEL; with only these, MODEL is the default one. -1: takes no MODEL
} commands[] = {
    {"serve", "[MODEL]", "Serve a model over HTTP.", CMD_SERVE, cmd_serve, 0},
    {"generate", "[MODEL] -p TEXT | MODEL TEXT", "Print one completion.", CMD_GENERATE, cmd_generate, 0},
    {"chat", "[MODEL | URL]", "Talk to a model, or to a running server.", CMD_CHAT, cmd_chat, 0},
    {"inspect", "[MODEL]", "Describe a model file.", CMD_INSPECT, cmd_inspect, 0},
    {"perplexity", "[MODEL] --file TEXT", "Measure how well a model predicts a text.", CMD_PERPLEXITY,
     cmd_perplexity, 0},
    {"tokenize", "[MODEL] [--ids] [--no-special] TEXT", "Print the tokens of a text.", CMD_TOKENIZE,
     cmd_tokenize, 1},
    {"quantize", "IN OUT TYPE", "Write a model file in another type, such as q4_k_m.", CMD_QUANTIZE,
     cmd_quantize, -1},
    {"replay", "RECORD", "Check that a run of `serve --record` plans the same again.", CMD_REPLAY, cmd_replay,
     -1},
    {"launch", "AGENT [--print] [-- ARGUMENTS]", "Run claude, codex or opencode with a running server.",
     CMD_LAUNCH, cmd_launch, -1},
    {"top", "[URL] [--once]", "Watch a running server.", CMD_TOP, cmd_top, -1},
    {"health", "[URL]", "Exit with 0 if a running server works.", CMD_HEALTH, cmd_health, -1},
};
enum { NUM_COMMANDS = sizeof commands / sizeof commands[0] };

static void print_help(FILE *out) {
    fputs("usage: quire COMMAND [ARGUMENTS] [FLAGS]\n\n", out);
    for (int i = 0; i < NUM_COMMANDS; i++) {
        char left[80];
        snprintf(left, sizeof left, "%s %s", commands[i].name, commands[i].args);
        fprintf(out, "  %-46s %s\n", left, commands[i].help);
    }
    fputs("\nMODEL is a GGUF file or a folder with safetensors; without it the embedded model answers.\n"
          "`quire help COMMAND` lists the flags of a command, `quire help configuration` all of them.\n",
          out);
}

static bool set_log(const struct config *c, struct err *err) {
    static const char *const names[] = {"error", "warn", "info", "debug"};
    for (int i = 0; i < 4; i++)
        if (strcmp(c->log_level, names[i]) == 0)
            log_set_level((enum log_level)i);
    if (c->log_file && !log_open(c->log_file))
        return err_set(err, STATUS_IO, "--log-file %s: %s", c->log_file, strerror(errno)), false;
    log_set_format(strcmp(c->log_format, "json") == 0, !log_is_journal());
    return true;
}

static void tell_notes(const struct config *c) {
    for (size_t i = 0; i < c->notes.len; i++)
        log_msg(LOG_WARN, "%s", c->notes.items[i]);
}

// Puts the default model before the arguments, if there are as many as the command takes without MODEL, and no server is asked.
static enum status add_default_model(struct config *c, int num_args, struct err *err) {
    char path[PATH_MAX];
    if (num_args < 0 || c->url || c->args.len != (size_t)num_args)
        return STATUS_OK;
    enum status status = default_model(path, sizeof path, &c->embedded_model, err);
    if (status == STATUS_OK && config_add_model(c, path) != STATUS_OK)
        status = err_set(err, STATUS_NOMEM, "out of memory");
    return status;
}

// A MODEL that is a name becomes the file that has it.
static enum status find_model(struct config *c, int num_args, struct err *err) {
    char path[PATH_MAX];
    if (num_args < 0 || c->url || c->args.len <= (size_t)num_args)
        return STATUS_OK;
    const char *model = c->args.items[0];
    bool is_server = c->command == CMD_CHAT && server_is_named(model);
    if (is_server || access(model, F_OK) == 0 || !model_name_is(model))
        return STATUS_OK;
    enum status status = model_name_find(model, path, sizeof path, err);
    if (status != STATUS_OK)
        return status;
    log_msg(LOG_INFO, "model=%s path=%s", model, path);
    return config_name_model(c, path) == STATUS_OK ? STATUS_OK : err_set(err, STATUS_NOMEM, "out of memory");
}

// Runs a command, under mpirun or srun with the processes that share its model: the first one has the
// command, the others follow it.
static int run_together(struct config *config, int (*run)(const struct config *c)) {
    struct launch launch;
    struct err err = {0};
    bool has_engine =
        (config->command & (CMD_SERVE | CMD_GENERATE | CMD_PERPLEXITY | CMD_CHAT)) != 0 && !config->url;
    if (!has_engine || !processes_launched(&launch))
        return run(config);
    process_env_block_signals(true); // in the threads that this starts, so that this one gets them
    enum status joined = processes_join(&launch, &config->processes, &err);
    process_env_block_signals(false);
    if (joined != STATUS_OK) {
        complain("%s", err.msg);
        processes_leave(config->processes);
        return setup_engine_exit_code(err.code);
    }
    if (!config->processes) // one process
        return run(config);
    int rc = processes_index(config->processes) == 0 ? run(config) : local_work(config);
    if (!processes_leave(config->processes) && rc != 0 && rc != EXIT_ENGINE)
        rc = EXIT_ENGINE; // another process ended its work
    return rc;
}

// Commands of other programs, and ours that do the same
static const char *advice(const char *word) {
    static const char *const others[][2] = {
        {"run", "`quire chat MODEL` talks to a model"},
        {"pull", "Quire opens files: `hf download ORG/NAME` or `ollama pull NAME` fetches one, and `quire "
                 "serve` with "
                 "that name finds it"},
        {"download",
         "Quire opens files: `hf download ORG/NAME` fetches one, and `quire serve ORG/NAME` finds it"},
        {"list", "Quire keeps no models: `hf cache ls` and `ollama list` list those that it finds by name"},
        {"ls", "Quire keeps no models: `hf cache ls` and `ollama list` list those that it finds by name"},
        {"show", "`quire inspect MODEL` describes a model file"},
        {"ps", "`quire top` watches a running server"},
        {"bench", "`quire-bench URL` loads a running server"},
        {"benchmark", "`quire-bench URL` loads a running server"},
        {"complete", "`quire generate MODEL -p TEXT` prints one completion"},
        {"convert", "`quire quantize IN OUT TYPE` writes a model file in another type"},
        {"create", "`quire quantize IN OUT TYPE` writes a model file in another type"},
        {"start", "`quire serve MODEL` serves a model over HTTP"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(word, others[i][0]) == 0)
            return others[i][1];
    struct nearest near = {.word = word};
    static char text[64];
    for (int i = 0; i < NUM_COMMANDS; i++)
        nearest_try(&near, commands[i].name);
    if (!near.best)
        return "`quire --help` lists them";
    snprintf(text, sizeof text, "did you mean `quire %s`?", near.best);
    return text;
}

static void print_command_help(int i) {
    printf("usage: quire %s %s [FLAGS]\n\n%s\n\n", commands[i].name, commands[i].args, commands[i].help);
    config_help(stdout, commands[i].command);
    if (commands[i].command == CMD_QUANTIZE)
        printf("\nTYPE is one of %s.\n", quantize_types());
}

// `quire help [TOPIC]`
static int help(const char *topic) {
    int found = 0;
    while (found < NUM_COMMANDS && strcmp(topic, commands[found].name) != 0)
        found++;
    if (!*topic) {
        print_help(stdout);
    } else if (strcmp(topic, "configuration") == 0) {
        config_page(stdout);
    } else if (strcmp(topic, "man") == 0) {
        manual_begin(stdout);
        for (int i = 0; i < NUM_COMMANDS; i++)
            manual_command(stdout, commands[i].name, commands[i].args, commands[i].help);
        manual_end(stdout);
    } else if (found < NUM_COMMANDS) {
        print_command_help(found);
    } else {
        complain("no help on '%.60s'; there is some on each command, on configuration, and as man", topic);
        return EXIT_USAGE;
    }
    return 0;
}

static int run_command(int argc, char **argv) {
    const char *word = argc > 1 ? argv[1] : "";
    if (strcmp(word, "--version") == 0 || strcmp(word, "version") == 0) {
        printf("quire %s (sources %s)\n", build_version, build_id);
        return 0;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0)
        return help(argc > 2 ? argv[2] : "");
    for (int i = 0; i < NUM_COMMANDS; i++) {
        if (strcmp(word, commands[i].name) != 0)
            continue;
        struct config config;
        struct err err = {0};
        int rc = EXIT_USAGE;
        if (config_parse(&config, commands[i].command, argc - 2, argv + 2, &err) != STATUS_OK) {
            for (size_t k = 0; k < config.problems.len; k++)
                complain("%s", config.problems.items[k]);
            if (config.problems.len == 0) // no memory for them
                complain("%s", err.msg);
        } else if (config.help) {
            print_command_help(i);
            rc = 0;
        } else if (!set_log(&config, &err) || environment_check(&config, &err) != STATUS_OK) {
            complain("%s", err.msg);
        } else if (tell_notes(&config),
                   find_model(&config, commands[i].num_args, &err) != STATUS_OK ||
                       add_default_model(&config, commands[i].num_args, &err) != STATUS_OK) {
            complain("%s", err.msg);
            rc = EXIT_MODEL;
        } else {
            if (config.tensor_parallel_size > 1)
                process_env_load_kernels_early();
            rc = run_together(&config, commands[i].run);
        }
        config_free(&config);
        return rc;
    }
    if (*word)
        complain("unknown command '%.60s'; %s", word, advice(word));
    else
        print_help(stderr);
    return EXIT_USAGE;
}

int quire_main(int argc, char **argv) {
    struct err err = {0};
    if (argc > 1 && strcmp(argv[1], "serve") == 0)
        process_env_exit_on_signals(); // before anything that takes time
    if (process_env_prepare(&err) != STATUS_OK) {
        complain("%s", err.msg);
        return EXIT_USAGE;
    }
    return process_env_finish_output(run_command(argc, argv));
}
