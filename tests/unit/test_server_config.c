// Flags, environment and --config file; where the embedded model is looked for.
#include "harness.h"
#include "process/config.h"
#include "process/default_model.h"
#include "process/embedded_model.h"
#include "process/options.h"
#include "process/sampling_defaults.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_WORDS = 16 };

struct parsed {
    struct config config;
    struct err err;
    enum status status;
    char *words[MAX_WORDS];
    int num_words;
};

// Splits at spaces, because config_parse() may write into argv.
static void parse(struct parsed *p, enum command command, const char *line) {
    memset(p, 0, sizeof *p);
    char *copy = strdup(line), *save = NULL;
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        p->words[p->num_words++] = strdup(w);
    free(copy);
    p->status = config_parse(&p->config, command, p->num_words, p->words, &p->err);
}

static void drop(struct parsed *p) {
    config_free(&p->config);
    for (int i = 0; i < p->num_words; i++)
        free(p->words[i]);
}

// The API's defaults and a person's, of a model that recommends a temperature, or -1: nothing.
static void expect_sampling(const char *flags, double advice, const double wanted[4]) {
    struct parsed p;
    struct sampling_params api, chat;
    struct err err = {0};
    const struct engine_info info = {.advice = {advice, -1, -1, -1, -1}};
    parse(&p, CMD_SERVE, flags);
    assert_int_equal(sampling_defaults(&api, &chat, &p.config, &info, &err), STATUS_OK);
    assert_float_equal(api.temperature, (float)wanted[0], 1e-6f);
    assert_int_equal(api.top_k, (int)wanted[1]);
    assert_float_equal(chat.temperature, (float)wanted[2], 1e-6f);
    assert_int_equal(chat.top_k, (int)wanted[3]);
    drop(&p);
}

TEST(sampling) {
    expect_sampling("m.gguf", -1, (const double[]){1, 0, 0.8, 40});
    expect_sampling("m.gguf", 0.5, (const double[]){0.5, 0, 0.5, 0});
    expect_sampling("m.gguf --generation-config vllm", 0.5, (const double[]){1, 0, 1, 0});
    expect_sampling("m.gguf --override-generation-config {\"top_k\":3}", -1, (const double[]){1, 3, 0.8, 3});
}

TEST(defaults) {
    struct parsed p;
    parse(&p, CMD_SERVE, "m.gguf");
    const struct config *c = &p.config;
    assert_int_equal(p.status, STATUS_OK);
    assert_string_equal(c->args.items[0], "m.gguf");
    assert_string_equal(c->host, "127.0.0.1");
    assert_int_equal(c->port, 8000);
    assert_int_equal(c->block_size, 0);
    assert_int_equal(c->max_num_seqs, 0); // as the device suits
    assert_int_equal(c->max_num_batched_tokens, 0);
    assert_int_equal(c->max_num_queued_seqs, 1024);
    assert_true(c->prefix_caching);
    assert_false(c->has_seed);
    assert_null(c->device); // as auto
    assert_string_equal(c->policy, "fcfs");
    assert_string_equal(c->metrics_namespace, "vllm");
    drop(&p);
}

TEST(flags) {
    struct parsed p;
    parse(&p, CMD_SERVE,
          "--port=0 --host 0.0.0.0 m --api-key abc --api-key=def --kv-cache-memory 1.5G "
          "--no-enable-prefix-caching --seed 7");
    const struct config *c = &p.config;
    assert_int_equal(p.status, STATUS_OK);
    assert_int_equal(c->port, 0);
    assert_int_equal(c->api_keys.len, 2);
    assert_string_equal(c->api_keys.items[0], "abc");
    assert_string_equal(c->api_keys.items[1], "def");
    assert_true(c->kv_cache_memory == 3LL << 29);
    assert_false(c->prefix_caching);
    assert_true(c->has_seed && c->seed == 7);
    assert_true(c->key_in_argv);
    for (int i = 0; i < p.num_words; i++) // gone from what /proc shows
        assert_true(!strstr(p.words[i], "abc") && !strstr(p.words[i], "def"));
    drop(&p);
    parse(&p, CMD_GENERATE, "m -p x -n 5 --json --top-k -1");
    assert_int_equal(p.status, STATUS_OK);
    assert_int_equal(p.config.max_tokens, 5);
    assert_int_equal(p.config.top_k, -1);
    assert_true(p.config.json);
    drop(&p);
}

TEST(bad_flags) {
    static const struct {
        const char *line, *says;
    } cases[] = {
        {"m --prot 1", "did you mean --port?"},
        {"m --max-model 1", "--max-model-len"},
        {"m --xyzzy", "unknown flag --xyzzy"},
        {"m --hlep", "did you mean --help?"},
        {"m -z", "unknown flag -z"},
        {"m -zz", "unknown flag -zz"},
        {"m --temp 1", "--temp is no flag of Quire: each request says it"},
        {"m --cache_type_k q8_0", "--cache_type_k is no flag of Quire: --kv-cache-dtype TYPE"},
        {"m --parallel x", "--max-num-seqs: expected a whole number"},
        {"-m", "-m needs a value"},
        {"m --allowed-origins example.org", "--allowed-origins: expected"},
        {"m --allowed-origins https://a,https://b", "--allowed-origins: expected"},
        {"m --allowed-origins https://a/", "--allowed-origins: expected"},
        {"m --port", "needs a value"},
        {"m --port 65536", "from 0 to 65535"},
        {"m --port -1", "from 0 to 65535"},
        {"m --port 1x", "whole number"},
        {"m --port 1.5", "whole number"},
        {"m --port nan", "whole number"},
        {"m --port 0x10", "whole number"},
        {"m --kv-cache-memory 1Q", "whole number"},
        {"m --kv-cache-memory 99999999T", "whole number"},
        {"m --block-size -1", "from 0"},
        {"m --device tpu", "auto|cpu|ref|cuda"},
        {"m --scheduling-policy x", "fcfs|priority"},
        {"m --seed x", "whole number"},
        {"m --drain-timeout inf", "number from"},
        {"m --drain-timeout -1", "number from"},
        {"m --require-key=maybe", "true or false"},
        {"m --tensor-parallel-size 9", "from 1 to 8"},
        {"m --pipeline-parallel-size 9", "from 1 to 8"},
        {"m --gpu-memory-utilization 1.5", "number from"},
        {"m --dtype int8", "auto|float32|float16|bfloat16"},
        {"m --max-num-seqs 64 --max-num-batched-tokens 32", "at least --max-num-seqs"},
        {"m --num-kv-blocks 4 --kv-cache-memory 4M", "not both"},
        {"m --metrics-namespace a:b", "letters"},
        {"m --otlp-traces-endpoint localhost:4317", "expected http://"}, // as gRPC has it
        {"m --config /nowhere/x", "/nowhere/x"},
        {"m --prompt x", "unknown flag --prompt"}, // of another command
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct parsed p;
        parse(&p, CMD_SERVE, cases[i].line);
        assert_int_equal(p.status, STATUS_INVALID);
        if (!strstr(p.err.msg, cases[i].says))
            fail_msg("%s: %s", cases[i].line, p.err.msg);
        drop(&p);
    }
    struct parsed p;
    parse(&p, CMD_SERVE, "m --tensor-parallel-size 2 --pipeline-parallel-size 4 --dtype auto");
    assert_int_equal(p.status, STATUS_OK);
    assert_int_equal(p.config.pipeline_parallel_size, 4);
    drop(&p);
}

// All that is wrong with a command line is told at once, and values of flags that are not there are no models.
TEST(all_problems) {
    static const char *const says[] = {"unknown flag --foo", "--temp is no flag", "did you mean --port?",
                                       "--threads: expected a whole number", "--lora-root needs a value"};
    struct parsed p;
    parse(&p, CMD_SERVE,
          "m --foo bar --temp 0.7 --prot 3 --jinja --swap-space 4 --threads x --max-num-seqs 2 --lora-root");
    assert_int_equal(p.status, STATUS_INVALID);
    assert_int_equal(p.config.problems.len, 5);
    for (int i = 0; i < 5; i++)
        assert_non_null(strstr(p.config.problems.items[i], says[i]));
    assert_string_equal(p.err.msg, p.config.problems.items[0]);
    assert_int_equal(p.config.args.len, 1);
    assert_int_equal(p.config.max_num_seqs, 2);
    drop(&p);
}

// Flags of others that need nothing here are left out with their values, and noted.
TEST(flags_that_need_nothing) {
    static const struct {
        const char *line;
        size_t notes;
    } cases[] = {{"--enable-auto-tool-choice m", 1},
                 {"-fa on m", 1},
                 {"-fa m", 1},
                 {"--swap-space 4 m", 1},
                 {"--swap_space=4 m", 1},
                 {"m --no-mmap --mlock", 2},
                 {"-ngl 99 -b 2048 m", 2},
                 {"m --n_gpu_layers=99", 1},
                 {"-lv -1 m", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parsed p;
        parse(&p, CMD_SERVE, cases[i].line);
        if (p.status != STATUS_OK || p.config.args.len != 1)
            fail_msg("%s: %s", cases[i].line, p.err.msg);
        assert_string_equal(p.config.args.items[0], "m");
        assert_int_equal(p.config.notes.len, cases[i].notes);
        drop(&p);
    }
}

// Flags have the other servers' names, too. A name far from every flag gets no guess.
TEST(flags_of_others) {
    struct parsed p;
    parse(&p, CMD_SERVE,
          "-np 4 --model m.gguf -tp=2 --context_length 4K --disable-radix-cache -t 3 --page-size 32 -a n");
    if (p.status != STATUS_OK)
        fail_msg("%s", p.err.msg);
    assert_int_equal(p.config.args.len, 1);
    assert_string_equal(p.config.args.items[0], "m.gguf");
    assert_int_equal(p.config.max_num_seqs, 4);
    assert_int_equal(p.config.tensor_parallel_size, 2);
    assert_int_equal(p.config.max_model_len, 4096);
    assert_int_equal(p.config.threads, 3);
    assert_int_equal(p.config.block_size, 32);
    assert_string_equal(p.config.served_names.items[0], "n");
    assert_false(p.config.prefix_caching);
    drop(&p);
    parse(&p, CMD_SERVE,
          "m --allowed-origins http://[::1]:3000 --allowed-origins * --allowed-origins app://x");
    assert_int_equal(p.status, STATUS_OK);
    assert_int_equal(p.config.allowed_origins.len, 3);
    drop(&p);
    parse(&p, CMD_TOKENIZE, "text -m m.gguf");
    assert_int_equal(p.config.args.len, 2);
    assert_string_equal(p.config.args.items[0], "m.gguf");
    drop(&p);
    parse(&p, CMD_GENERATE, "m -p x --temp 0.5 --n-predict 7");
    assert_true(p.config.temperature == 0.5 && p.config.max_tokens == 7);
    drop(&p);
    static const char *const far[] = {"m --harp", "m --tooth", "m --lora x", "m -mm x", "m --x"};
    for (size_t i = 0; i < sizeof far / sizeof far[0]; i++) {
        parse(&p, CMD_SERVE, far[i]);
        assert_true(strstr(p.err.msg, "did you mean") == NULL);
        drop(&p);
    }
    parse(&p, CMD_QUANTIZE, "--model x");
    assert_int_equal(p.status, STATUS_INVALID);
    drop(&p);
}

TEST(sources_have_an_order) {
    char path[] = "/tmp/quire-config-XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    fputs("# a comment\n\nport: 1\nhost: \"1.2.3.4\" # quoted\nmax_num_seqs = 3\nblock-size: 64\n"
          "enable-prefix-caching: true\nserved-model-name: a\nserved-model-name: b\nmodel: file.gguf\n",
          f);
    fclose(f);
    setenv("QUIRE_BLOCK_SIZE", "32", 1);
    setenv("QUIRE_NO_ENABLE_PREFIX_CACHING", "1", 1);
    setenv("QUIRE_API_KEY", "from-env", 1);
    char line[128];
    snprintf(line, sizeof line, "--port 2 --config %s", path);
    struct parsed p;
    parse(&p, CMD_SERVE, line);
    if (p.status != STATUS_OK)
        fail_msg("%s", p.err.msg);
    assert_int_equal(p.config.port, 2);         // command line
    assert_int_equal(p.config.block_size, 32);  // environment
    assert_int_equal(p.config.max_num_seqs, 3); // file
    assert_false(p.config.prefix_caching);      // environment over file, under another name
    assert_string_equal(p.config.host, "1.2.3.4");
    assert_string_equal(p.config.args.items[0], "file.gguf");
    assert_int_equal(p.config.served_names.len, 2);
    assert_string_equal(p.config.api_keys.items[0], "from-env");
    assert_false(p.config.key_in_argv);
    drop(&p);
    snprintf(line, sizeof line, "other.gguf --api-key mine --served-model-name z --config %s", path);
    parse(&p, CMD_SERVE, line);
    assert_int_equal(p.config.args.len, 1);
    assert_string_equal(p.config.args.items[0], "other.gguf");
    assert_int_equal(p.config.api_keys.len, 1);
    assert_string_equal(p.config.api_keys.items[0], "mine");
    assert_int_equal(p.config.served_names.len, 1);
    drop(&p);
    unsetenv("QUIRE_NO_ENABLE_PREFIX_CACHING");
    unsetenv("QUIRE_API_KEY");
    setenv("QUIRE_BLOCK_SIZE", "x", 1);
    parse(&p, CMD_SERVE, "m");
    assert_int_equal(p.status, STATUS_INVALID);
    drop(&p);
    unsetenv("QUIRE_BLOCK_SIZE");
    unlink(path);
}

TEST(model_of_the_environment) {
    static const struct {
        enum command command;
        const char *line, *first; // argument
        size_t num;
    } cases[] = {{CMD_SERVE, "--port 1", "env.gguf", 1}, {CMD_SERVE, "m", "m", 1},
                 {CMD_SERVE, "--model m", "m", 1},       {CMD_GENERATE, "-p x", "env.gguf", 1},
                 {CMD_TOKENIZE, "text", "env.gguf", 2},  {CMD_TOKENIZE, "m text", "m", 2},
                 {CMD_TOKENIZE, "/ text", "/", 2},       {CMD_TOKENIZE, "-", "env.gguf", 2},
                 {CMD_CHAT, "", "env.gguf", 1},          {CMD_CHAT, "http://x", "http://x", 1},
                 {CMD_QUANTIZE, "in out q8_0", "in", 3}};
    setenv("QUIRE_MODEL", "env.gguf", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parsed p;
        parse(&p, cases[i].command, cases[i].line);
        assert_int_equal(p.status, STATUS_OK);
        assert_int_equal(p.config.args.len, cases[i].num);
        assert_string_equal(p.config.args.items[0], cases[i].first);
        drop(&p);
    }
    struct parsed p;
    parse(&p, CMD_TOP, "");
    assert_int_equal(p.config.args.len, 0);
    drop(&p);
    setenv("QUIRE_MODEL", "", 1);
    parse(&p, CMD_SERVE, "");
    assert_int_equal(p.config.args.len, 0);
    drop(&p);
    unsetenv("QUIRE_MODEL");
}

// A text that has been forgotten is not the model's path.
TEST(model_without_text) {
    static const char *const lines[] = {"m.gguf", "/", "--ids m.GGUF", "-m name"};
    for (int env = 0; env < 2; env++) {
        if (env)
            setenv("QUIRE_MODEL", "env.gguf", 1);
        for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
            struct parsed p;
            parse(&p, CMD_TOKENIZE, lines[i]);
            assert_int_equal(p.status, STATUS_INVALID);
            assert_non_null(strstr(p.err.msg, "no TEXT follows it"));
            drop(&p);
        }
    }
    unsetenv("QUIRE_MODEL");
}

// An empty key is refused, never read as no key.
TEST(empty_keys) {
    static const char *const names[] = {"QUIRE_API_KEY", "QUIRE_API_KEY_FILE", "QUIRE_ADMIN_API_KEY",
                                        "QUIRE_ADMIN_API_KEY_FILE", "QUIRE_REQUIRE_KEY"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct parsed p;
        setenv(names[i], "", 1);
        parse(&p, CMD_SERVE, "m");
        assert_int_equal(p.status, STATUS_INVALID);
        assert_non_null(strstr(p.err.msg, names[i]));
        drop(&p);
        unsetenv(names[i]);
    }
    struct parsed p;
    setenv("QUIRE_PORT", "", 1); // as good as none
    setenv("QUIRE_API_KEY", "", 1);
    parse(&p, CMD_SERVE, "m --api-key mine");
    assert_int_equal(p.status, STATUS_OK);
    assert_int_equal(p.config.port, 8000);
    drop(&p);
    unsetenv("QUIRE_PORT");
    unsetenv("QUIRE_API_KEY");
}

TEST(bad_files) {
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"port: 1\nprot: 2\n", "line 2: unknown key prot; did you mean port?"},
        {"harp: 2\n", "line 1: unknown key harp"},
        {"temp: 1\n", "line 1: --temp is no flag of Quire: each request says it"},
        {"cache_type_k: q8_0\n", "line 1: --cache_type_k is no flag of Quire: --kv-cache-dtype TYPE"},
        {"port: [1, 2]\n", "line 1: port takes one value, found a list"},
        {"host:\n- a\n- b\n", "line 2: host takes one value, found a list"},
        {"model: [a]\n", "model takes one value, found a list"},
        {"- a\n", "line 1: expected a line `key:` above"},
        {"port: 1\n- a\n", "line 2: expected a line `key:` above"},
        {"api-key: [a, b\n", "line 1: expected a list"},
        {"api-key: [a] b\n", "line 1: expected nothing behind the list"},
        {"api-key: [a, , b]\n", "line 1: --api-key must not be empty"},
        {"api-key: []\n", "line 1: --api-key must not be empty"},
        {"api-key:\n", "line 1: --api-key must not be empty"},
        {"api-key:\nport: 1\n", "line 1: --api-key must not be empty"},
        {"api-key:\n- a\n-\n", "line 3: --api-key must not be empty"},
        {"host: \"a\" b\n", "line 1: expected a value, with a quote"},
        {"port\n", "line 1: expected"},
        {"port: 99999\n", "line 1: --port"},
        {"config: x\n", "cannot name another"},
        {"just words\n", "expected"},
        {": 1\n", "line 1"},
        {"port: \"1\n", "line 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[] = "/tmp/quire-config-XXXXXX", line[128];
        int fd = mkstemp(path);
        assert_int_equal(write(fd, cases[i].text, strlen(cases[i].text)), strlen(cases[i].text));
        close(fd);
        snprintf(line, sizeof line, "m --config %s", path);
        struct parsed p;
        parse(&p, CMD_SERVE, line);
        assert_int_equal(p.status, STATUS_INVALID);
        if (!strstr(p.err.msg, cases[i].says))
            fail_msg("%s -> %s", cases[i].text, p.err.msg);
        drop(&p);
        unlink(path);
    }
}

// Parses a serve command that names a file with this text.
static void parse_file(struct parsed *p, const char *text) {
    char path[] = "/tmp/quire-config-XXXXXX", line[128];
    int fd = mkstemp(path);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    snprintf(line, sizeof line, "--config %s", path);
    parse(p, CMD_SERVE, line);
    unlink(path);
}

// As vLLM reads its own files: https://docs.vllm.ai/en/latest/configuration/serve_args.html
TEST(lists_of_files) {
    static const char *const files[] = {
        "served-model-name: [a, \"b, c\"] # two\n",
        "served_model_name: ['a','b, c',]\n",
        "---\nserved-model-name:\n- a\n- 'b, c'\nport: 1\n",
        "served-model-name: # two\n\n  # of them\n  - a # one\n  -   b, c\n",
        "served-model-name: a\nserved-model-name: \"b, c\"\n",
    };
    struct parsed p;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        parse_file(&p, files[i]);
        if (p.status != STATUS_OK)
            fail_msg("%s -> %s", files[i], p.err.msg);
        assert_int_equal(p.config.served_names.len, 2);
        assert_string_equal(p.config.served_names.items[0], "a");
        assert_string_equal(p.config.served_names.items[1], "b, c");
        drop(&p);
    }
    parse_file(&p, "override-generation-config: {\"top_k\": 3, \"stop\": []}\nchat-template: '[x]'\n");
    assert_string_equal(p.config.override_generation_config, "{\"top_k\": 3, \"stop\": []}");
    assert_string_equal(p.config.chat_template, "[x]");
    drop(&p);
}

// Keys of others are answered as on the command line; each key once, whatever its list has.
TEST(files_of_others) {
    struct parsed p;
    parse_file(&p, "model-path: m.gguf\ncontext_length: 4K\nenable-auto-tool-choice: true\n"
                   "swap-space: 4\ndisable-radix-cache: true\n");
    assert_int_equal(p.status, STATUS_OK);
    assert_string_equal(p.config.args.items[0], "m.gguf");
    assert_int_equal(p.config.max_model_len, 4096);
    assert_false(p.config.prefix_caching);
    assert_int_equal(p.config.notes.len, 2);
    drop(&p);
    parse_file(&p, "harp: [a, b]\ntemp:\n- 1\n- 2\nport:\n- 1\n- 2\nswap-space: [1, 2]\n");
    assert_int_equal(p.config.problems.len, 3);
    assert_int_equal(p.config.notes.len, 1);
    drop(&p);
    parse(&p, CMD_SERVE, "m --config /tmp");
    assert_int_equal(p.status, STATUS_INVALID); // a folder has no lines
    drop(&p);
}

// Commas part the values of a variable, but for keys.
TEST(lists_of_the_environment) {
    struct parsed p;
    setenv("QUIRE_SERVED_MODEL_NAME", "a, b", 1);
    setenv("QUIRE_API_KEY", "x,y", 1);
    setenv("QUIRE_ADMIN_API_KEY", "x,y", 1);
    parse(&p, CMD_SERVE, "m");
    assert_int_equal(p.status, STATUS_OK);
    assert_int_equal(p.config.served_names.len, 2);
    assert_string_equal(p.config.served_names.items[0], "a");
    assert_string_equal(p.config.served_names.items[1], "b");
    assert_int_equal(p.config.api_keys.len, 1);
    assert_string_equal(p.config.api_keys.items[0], "x,y");
    assert_int_equal(p.config.admin_keys.len, 1);
    drop(&p);
    parse(&p, CMD_SERVE, "m --served-model-name z,y");
    assert_int_equal(p.config.served_names.len, 1); // a flag has one value
    drop(&p);
    setenv("QUIRE_SERVED_MODEL_NAME", "a,", 1);
    parse(&p, CMD_SERVE, "m");
    assert_int_equal(p.status, STATUS_INVALID);
    drop(&p);
    unsetenv("QUIRE_SERVED_MODEL_NAME");
    unsetenv("QUIRE_API_KEY");
    unsetenv("QUIRE_ADMIN_API_KEY");
}

TEST(numbers) {
    int64_t n;
    assert_true(config_parse_number("12", &n) == STATUS_OK && n == 12);
    assert_true(config_parse_number("4K", &n) == STATUS_OK && n == 4096);
    assert_true(config_parse_number("4KiB", &n) == STATUS_OK && n == 4096);
    assert_true(config_parse_number("0.5k", &n) == STATUS_OK && n == 512);
    assert_true(config_parse_number("-3", &n) == STATUS_OK && n == -3);
    const char *bad[] = {"", " 1", "1 ", "K", "1KK", "0.3", "1e400", "nan", "inf", "0x1", "1i"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(config_parse_number(bad[i], &n), STATUS_INVALID);
}

static void make_file(const char *root, const char *name) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
}

// In the tree t/: t/build/x is a build folder once it has a cache, t/a/bin and t/a/share an installation.
TEST(embedded_model) {
    static const char *const folders[] = {"models", "build",   "build/x",      "a",
                                          "a/bin",  "a/share", "a/share/quire"};
    char root[] = "/tmp/quire-default-XXXXXX", dir[64], path[PATH_MAX], expected[PATH_MAX];
    assert_non_null(mkdtemp(root));
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    make_file(root, "models/quire-tiny.gguf");
    snprintf(dir, sizeof dir, "%s/build/x", root);
    assert_false(default_model_near(dir, path, sizeof path)); // might be an installed one
    make_file(root, "build/x/CMakeCache.txt");
    assert_true(default_model_near(dir, path, sizeof path));
    snprintf(expected, sizeof expected, "%s/models/quire-tiny.gguf", root);
    assert_string_equal(path, expected);
    assert_false(default_model_near(dir, path, 8)); // no room for the path

    snprintf(dir, sizeof dir, "%s/a/bin", root);
    assert_false(default_model_near(dir, path, sizeof path));
    make_file(root, "a/share/quire/quire-tiny.gguf");
    assert_true(default_model_near(dir, path, sizeof path));
    snprintf(expected, sizeof expected, "%s/a/share/quire/quire-tiny.gguf", root);
    assert_string_equal(path, expected);
    snprintf(path, sizeof path, "rm -r %s", root);
    assert_int_equal(system(path), 0);
}

// The embedded model is the file, as a file in memory.
TEST(embedded_file) {
    char path[64];
    struct err err = {0};
    assert_int_equal(embedded_model_path(path, sizeof path, &err), STATUS_OK);
    FILE *got = fopen(path, "rb"), *want = fopen(QUIRE_SOURCE_DIR "/models/quire-tiny.gguf", "rb");
    assert_true(got && want);
    static char a[1 << 16], b[1 << 16];
    size_t n, all = 0;
    do {
        n = fread(a, 1, sizeof a, got);
        assert_int_equal(fread(b, 1, sizeof b, want), n);
        assert_memory_equal(a, b, n);
        all += n;
    } while (n);
    assert_true(all > 1 << 20);
    fclose(got);
    fclose(want);
}

TEST(embedded_model_goes_first) {
    struct parsed p;
    parse(&p, CMD_TOKENIZE, "some text");
    assert_int_equal(p.status, STATUS_OK);
    assert_int_equal(config_add_model(&p.config, "m.gguf"), STATUS_OK);
    assert_int_equal(p.config.args.len, 3);
    assert_string_equal(p.config.args.items[0], "m.gguf");
    assert_string_equal(p.config.args.items[1], "some");
    assert_string_equal(p.config.args.items[2], "text");
    drop(&p);
}

// `--help`: sentences, each flag once, under headings that stand in order, in lines that fit.
TEST(help_reads_well) {
    for (int i = 0; i < num_options; i++) {
        const struct option *o = &options[i];
        assert_true(o->help[0] >= 'A' && o->help[0] <= 'Z');
        assert_int_equal(o->help[strlen(o->help) - 1], '.');
        assert_int_equal(o->metavar != NULL, option_takes_value(o));
        assert_true(i == 0 || options[i - 1].group <= o->group);
        for (int k = 0; k < i; k++)
            assert_true(strcmp(o->name, options[k].name) != 0 || !(o->commands & options[k].commands));
    }
    for (int command = CMD_SERVE; command <= CMD_LAUNCH; command *= 2) {
        FILE *f = tmpfile();
        config_help(f, (enum command)command);
        rewind(f);
        char line[400];
        while (fgets(line, sizeof line, f))
            assert_in_range(strlen(line), 1, 101);
        fclose(f);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
