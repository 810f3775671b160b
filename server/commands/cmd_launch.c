// quire launch CLIENT [-- ARGUMENTS]: runs a coding agent with a running server, by the settings that each documents (Anthropic's
// Claude Code settings, OpenAI's Codex configuration, opencode.ai's config): environment and arguments alone, no file is written.
#include "ask_server.h"
#include "buf.h"
#include "commands.h"
#include "process/console.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_ADDED = 24, MAX_OUTPUT = 32000 };

struct client_launch {
    const char *program;
    char base[640];    // of the server, without /v1
    const char *model; // borrowed
    const char *key;
    int64_t context;                            // tokens; 0: unknown
    char *names[MAX_ADDED], *values[MAX_ADDED]; // (num_set) of the environment; owned
    char *args[MAX_ADDED];                      // (num_args) before the user's; owned
    int num_set, num_args;
    bool failed; // out of memory
};

static void set(struct client_launch *l, const char *name, const char *value) {
    l->names[l->num_set] = strdup(name);
    l->values[l->num_set] = strdup(value);
    l->failed |= !l->names[l->num_set] || !l->values[l->num_set];
    l->num_set++;
}

static void set_number(struct client_launch *l, const char *name, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    set(l, name, text);
}

static void add_arg(struct client_launch *l, const char *text) {
    l->failed |= !(l->args[l->num_args++] = strdup(text));
}

static void launch_free(struct client_launch *l) {
    for (int i = 0; i < l->num_set; i++) {
        free(l->names[i]);
        free(l->values[i]);
    }
    for (int i = 0; i < l->num_args; i++)
        free(l->args[i]);
}

// ---- clients

static void for_claude(struct client_launch *l) {
    static const char *const models[] = {"ANTHROPIC_MODEL",
                                         "ANTHROPIC_SMALL_FAST_MODEL",
                                         "ANTHROPIC_DEFAULT_OPUS_MODEL",
                                         "ANTHROPIC_DEFAULT_SONNET_MODEL",
                                         "ANTHROPIC_DEFAULT_HAIKU_MODEL",
                                         "CLAUDE_CODE_SUBAGENT_MODEL"};
    set(l, "ANTHROPIC_BASE_URL", l->base);
    set(l, "ANTHROPIC_AUTH_TOKEN", l->key);
    set(l, "ANTHROPIC_API_KEY", ""); // it would go before the token
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        set(l, models[i], l->model);
    set(l, "CLAUDE_CODE_ATTRIBUTION_HEADER", "0"); // it changes with each request, and so would every prefix
    set(l, "DISABLE_TELEMETRY", "1");
    set(l, "DISABLE_ERROR_REPORTING", "1");
    int64_t output = l->context / 4 < MAX_OUTPUT ? l->context / 4 : MAX_OUTPUT;
    if (output) {
        set_number(l, "CLAUDE_CODE_MAX_OUTPUT_TOKENS", output);
        set_number(l, "CLAUDE_CODE_AUTO_COMPACT_WINDOW", l->context - output);
    }
}

// -c KEY=VALUE, a string of TOML, whose escapes are JSON's.
static void add_codex(struct client_launch *l, const char *key, const char *value) {
    json_t *text = json_string(value);
    char *quoted = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
    struct buf b = {0};
    buf_fmt(&b, "%s=%s", key, quoted ? quoted : "");
    add_arg(l, "-c");
    add_arg(l, buf_cstr(&b) ? b.data : "");
    l->failed |= !quoted || b.failed;
    buf_free(&b);
    free(quoted);
    json_decref(text);
}

static void for_codex(struct client_launch *l) {
    char url[700], context[64];
    snprintf(url, sizeof url, "%s/v1", l->base);
    add_codex(l, "model_providers.quire.name", "Quire");
    add_codex(l, "model_providers.quire.base_url", url);
    add_codex(l, "model_providers.quire.wire_api", "responses");
    add_codex(l, "model_providers.quire.env_key", "QUIRE_API_KEY");
    add_codex(l, "model_provider", "quire");
    add_codex(l, "model", l->model);
    if (l->context) {
        snprintf(context, sizeof context, "model_context_window=%lld", (long long)l->context);
        add_arg(l, "-c");
        add_arg(l, context);
    }
    set(l, "QUIRE_API_KEY", l->key);
}

static void for_opencode(struct client_launch *l) {
    char url[700], model[320];
    snprintf(url, sizeof url, "%s/v1", l->base);
    snprintf(model, sizeof model, "quire/%s", l->model);
    json_t *entry = json_pack("{s:s}", "name", l->model);
    if (l->context)
        json_object_set_new(entry, "limit",
                            json_pack("{s:I, s:I}", "context", (json_int_t)l->context, "output",
                                      (json_int_t)(l->context / 4)));
    json_t *config = json_pack("{s:s, s:s, s:{s:{s:s, s:s, s:{s:s, s:s}, s:{s:o}}}}", "$schema",
                               "https://opencode.ai/config.json", "model", model, "provider", "quire", "npm",
                               "@ai-sdk/openai-compatible", "name", "Quire", "options", "baseURL", url,
                               "apiKey", l->key, "models", l->model, entry);
    char *text = config ? json_dumps(config, JSON_COMPACT) : NULL;
    set(l, "OPENCODE_CONFIG_CONTENT", text ? text : "");
    l->failed |= !text;
    free(text);
    json_decref(config);
}

static const struct launched_client {
    const char *program, *install;
    void (*prepare)(struct client_launch *l);
} clients[] = {{"claude", "npm install -g @anthropic-ai/claude-code", for_claude},
               {"codex", "npm install -g @openai/codex", for_codex},
               {"opencode", "npm install -g opencode-ai", for_opencode}};

// ---- running

// A word as a shell reads it.
static void print_word(const char *word) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:=@%+-";
    if (*word && strspn(word, plain) == strlen(word)) {
        fputs(word, stdout);
        return;
    }
    putchar('\'');
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*word);
    putchar('\'');
}

static int print_launch(const struct client_launch *l, char **argv) {
    for (int i = 0; i < l->num_set; i++) {
        printf("export %s=", l->names[i]);
        print_word(l->values[i]);
        putchar('\n');
    }
    for (int i = 0; argv[i]; i++) {
        if (i)
            putchar(' ');
        print_word(argv[i]);
    }
    putchar('\n');
    return fflush(stdout) == 0 ? 0 : EXIT_FAILED;
}

static int run_client(const struct client_launch *l, const struct launched_client *client, char **argv) {
    for (int i = 0; i < l->num_set; i++)
        if (setenv(l->names[i], l->values[i], 1) != 0) {
            complain("%s: %s", l->names[i], strerror(errno));
            return EXIT_FAILED;
        }
    signal(SIGPIPE, SIG_DFL);
    execvp(client->program, argv);
    if (errno == ENOENT)
        complain("%s is not installed, or not in PATH: %s", client->program, client->install);
    else
        complain("%s: %s", client->program, strerror(errno));
    return EXIT_FAILED;
}

// The first model of the server; *models is the caller's to free.
static bool find_model(const struct config *c, const struct client_url *url, struct client_launch *l,
                       json_t **models) {
    struct err err = {0};
    if (server_get(c, url, "/v1/models", NULL, models, &err) != STATUS_OK) {
        bool answers = strncmp(err.msg, "status ", 7) == 0;
        complain(answers ? "%s: %s" : "%s: %s. Start a server: quire serve MODEL --port %s", l->base, err.msg,
                 url->port);
        return false;
    }
    const json_t *model = json_array_get(json_object_get(*models, "data"), 0);
    l->model = json_string_value(json_object_get(model, "id"));
    l->context = json_integer_value(json_object_get(model, "max_model_len"));
    if (!l->model)
        complain("the server at %s has no model", l->base);
    return l->model != NULL;
}

static int launch_client(const struct config *c, const struct launched_client *client,
                         const struct client_url *url) {
    struct client_launch l = {.program = client->program,
                              .key = c->api_keys.len ? c->api_keys.items[0] : "none"};
    bool v6 = strchr(url->host, ':') != NULL;
    const char *host = strcmp(url->host, "0.0.0.0") == 0 ? "127.0.0.1" : url->host;
    snprintf(l.base, sizeof l.base, v6 ? "http://[%s]:%s%.300s" : "http://%s:%s%.300s", host, url->port,
             url->path);
    json_t *models = NULL;
    char **argv = calloc((size_t)MAX_ADDED + c->args.len + 1, sizeof *argv);
    int rc = EXIT_FAILED, num = 0;
    if (argv && find_model(c, url, &l, &models)) {
        client->prepare(&l);
        argv[num++] = (char *)(uintptr_t)client->program;
        for (int i = 0; i < l.num_args; i++)
            argv[num++] = l.args[i];
        for (size_t i = 1; i < c->args.len; i++)
            argv[num++] = c->args.items[i];
        if (!l.failed)
            rc = c->print ? print_launch(&l, argv) : run_client(&l, client, argv);
    }
    if (!argv || l.failed)
        complain("out of memory");
    free(argv);
    launch_free(&l);
    json_decref(models);
    return rc;
}

int cmd_launch(const struct config *c) {
    struct client_url url;
    const char *name = c->args.len ? c->args.items[0] : "";
    for (size_t i = 0; i < sizeof clients / sizeof *clients; i++)
        if (strcmp(name, clients[i].program) == 0 && server_url(c, NULL, &url))
            return launch_client(c, &clients[i], &url);
    complain(
        "usage: quire launch claude|codex|opencode [--url [http://]HOST:PORT] [--print] [-- ARGUMENTS]%s",
        client_url_hint(c->url));
    return EXIT_USAGE;
}
