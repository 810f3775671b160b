// Over 600 lines: the table of all flags.
#include "config.h"

#include "engine.h"
#include "foreign_flags.h"
#include "nearest.h"
#include "observe/otlp.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum option_type {
    OPT_STR,    // char *
    OPT_CONFIG, // char *: the --config file, which cannot name another
    OPT_CHOICE, // char *: one of the choices in `metavar`
    OPT_LIST,   // struct str_list; may be given again
    OPT_SECRET, // likewise; its values are overwritten in argv
    OPT_INT,    // int, [min, max]
    OPT_INT_K,  // int with K, M, G, T, [min, max]
    OPT_INT64,  // int64_t with K, M, G, T, [min, max]
    OPT_SEED,   // uint64_t, and the bool has_seed
    OPT_DOUBLE, // double, [min, max]
    OPT_FLAG,   // bool, true
    OPT_NOFLAG, // bool, false
    OPT_HELP,   // bool; on the command line only
};

enum { SERVE = CMD_SERVE, GEN = CMD_GENERATE, PPL = CMD_PERPLEXITY, TOK = CMD_TOKENIZE, INS = CMD_INSPECT };
enum { CHAT = CMD_CHAT, TOP = CMD_TOP, HEALTH = CMD_HEALTH, QUANT = CMD_QUANTIZE };
enum { RUN = SERVE | GEN | PPL | CHAT, ALL = RUN | TOK | INS };

struct option {
    const char *name;
    char letter; // short form, or 0
    unsigned commands;
    enum option_type type;
    size_t offset;
    const char *preset; // default as text; NULL: zero
    double min, max;
    const char *metavar; // choices, separated by |; or what stands for the value in the help text
    const char *help;
};

#define AT(field) offsetof(struct config, field)
#define INT_TOP 2147483647.0

static const struct option options[] = {
    {"host", 0, SERVE | HEALTH | TOP, OPT_STR, AT(host), "127.0.0.1", 0, 0, "ADDR", "address to listen on"},
    {"port", 0, SERVE | HEALTH | TOP, OPT_INT, AT(port), "8000", 0, 65535, "N", "port; 0 picks a free one"},
    {"served-model-name", 0, SERVE, OPT_LIST, AT(served_names), NULL, 0, 0, "NAME",
     "name of the model for clients; repeatable"},
    {"api-key", 0, SERVE, OPT_SECRET, AT(api_keys), NULL, 0, 0, "KEY",
     "key that clients must send; repeatable; safer: the two forms below"},
    {"api-key", 0, CHAT | TOP, OPT_SECRET, AT(api_keys), NULL, 0, 0, "KEY",
     "key for the server; safer: QUIRE_API_KEY in the environment"},
    {"url", 0, CHAT | TOP, OPT_STR, AT(url), NULL, 0, 0, "URL",
     "a running server, such as http://127.0.0.1:8000"},
    {"once", 0, TOP, OPT_FLAG, AT(once), NULL, 0, 0, NULL, "print it once"},
    {"api-key-file", 0, SERVE, OPT_STR, AT(api_key_file), NULL, 0, 0, "FILE",
     "keys, one per line, read again on SIGHUP (or QUIRE_API_KEY in the environment)"},
    {"admin-api-key", 0, SERVE, OPT_SECRET, AT(admin_keys), NULL, 0, 0, "KEY",
     "key for what changes the server: loading adapters; repeatable; safer: the file"},
    {"admin-api-key-file", 0, SERVE, OPT_STR, AT(admin_key_file), NULL, 0, 0, "FILE",
     "such keys, one per line, read again on SIGHUP (or QUIRE_ADMIN_API_KEY in the environment)"},
    {"require-key", 0, SERVE, OPT_FLAG, AT(require_key), NULL, 0, 0, NULL,
     "refuse a public address without a key"},
    {"allowed-origins", 0, SERVE, OPT_LIST, AT(allowed_origins), NULL, 0, 0, "ORIGIN",
     "origin whose browser pages may call; localhost for any port of it, * for all; repeatable"},
    {"allow-credentials", 0, SERVE, OPT_FLAG, AT(allow_credentials), NULL, 0, 0, NULL,
     "such pages may send cookies and HTTP authentication, which a proxy in front may check"},
    {"no-page", 0, SERVE, OPT_FLAG, AT(no_page), NULL, 0, 0, NULL, "no web page at /"},
    {"device", 0, RUN, OPT_CHOICE, AT(device), NULL, 0, 0, "auto|cpu|ref|cuda",
     "where the model runs; auto, the default, takes CUDA where it works"},
    {"cpu-variant", 0, RUN, OPT_CHOICE, AT(variant), "auto", 0, 0,
     "auto|scalar|avx2|avxvnni|avx512|avx512-fma|amx|neon|dotprod|i8mm",
     "instruction set of the CPU kernels; amx, which auto takes where it is, gives BF16 weights other bits"},
    {"threads", 0, RUN | QUANT, OPT_INT, AT(threads), "0", 0, 1024, "N",
     "threads that compute; 0: as many as CPUs, or as a CPU quota allows"},
    {"tensor-parallel-size", 0, RUN, OPT_INT, AT(tensor_parallel_size), NULL, 1, 8, "N",
     "ranks that share each layer, with --threads divided among them (1; under mpirun or srun, by its "
     "processes)"},
    {"pipeline-parallel-size", 0, RUN, OPT_INT, AT(pipeline_parallel_size), "1", 1, 8, "N",
     "stages, each with some of the layers and ranks of its own"},
    {"max-model-len", 0, RUN, OPT_INT_K, AT(max_model_len), "0", 0, INT_TOP, "N",
     "prompt and output of one request; 0: the model's, at most 131072"},
    {"block-size", 0, RUN, OPT_INT, AT(block_size), "0", 0, 4096, "N",
     "tokens of a cache block, a multiple of 16; 0: 16, or up to 512 where recurrent layers need larger "
     "pages"},
    {"num-kv-blocks", 0, RUN, OPT_INT64, AT(num_kv_blocks), "0", 0, INT_TOP, "N",
     "cache blocks; 0: from --kv-cache-memory"},
    {"kv-cache-memory", 0, RUN, OPT_INT64, AT(kv_cache_memory), "0", 0, 9e15, "BYTES",
     "cache bytes (K, M, G); 0 picks"},
    {"gpu-memory-utilization", 0, RUN, OPT_DOUBLE, AT(gpu_memory_utilization), "0.9", 0.01, 1, "X",
     "CUDA: share of its memory for weights, activations and cache"},
    {"dtype", 0, RUN, OPT_CHOICE, AT(dtype), "auto", 0, 0,
     "auto|float32|float16|bfloat16|float|half|f32|f16|bf16",
     "type of the weights that the file does not hold quantised"},
    {"kv-cache-dtype", 0, RUN, OPT_CHOICE, AT(kv_dtype), "auto", 0, 0, "auto|f32|f16|bf16|int8|fp8|fp8_e4m3",
     "type of keys and values; auto: f32 with F32 weights, else f16, or bf16 with BF16 weights on AMX"},
    {"pooling", 0, SERVE, OPT_CHOICE, AT(pooling), "auto", 0, 0, "auto|none|mean|cls|last|rank",
     "how hidden states become embeddings; rank: scores; none: the model generates text; auto: as its file "
     "says"},
    {"lora-modules", 0, SERVE, OPT_LIST, AT(lora_modules), NULL, 0, 0, "NAME=PATH",
     "LoRA adapter that requests name as their model: a PEFT folder or a GGUF file; repeatable (CPU)"},
    {"lora-root", 0, SERVE, OPT_STR, AT(lora_root), NULL, 0, 0, "DIR",
     "where adapters lie that /v1/load_lora_adapter may load; needs --admin-api-key"},
    {"max-loras", 0, SERVE, OPT_INT, AT(max_loras), "8", 1, 1024, "N",
     "adapters at a time, all of which may be in a step; at least those of --lora-modules"},
    {"max-lora-rank", 0, SERVE, OPT_INT, AT(max_lora_rank), "64", 1, 512, "N", "largest rank of one"},
    {"max-num-seqs", 0, RUN, OPT_INT, AT(max_num_seqs), NULL, 1, 4096, "N",
     "requests in one step (64; CUDA: 256)"},
    {"max-num-batched-tokens", 0, RUN, OPT_INT, AT(max_num_batched_tokens), "0", 0, 1048576, "N",
     "tokens in one step; 0: 512 (CUDA: 2,048), of encoders as long a text as they take, up to 8,192 or "
     "--max-model-len"},
    {"target-itl", 0, SERVE, OPT_DOUBLE, AT(target_itl), "50", 0, 1e6, "MS",
     "target inter-token latency: limits prefill chunks while other requests decode; 0: a quarter of a step "
     "(CPU)"},
    {"max-num-queued-seqs", 0, SERVE, OPT_INT, AT(max_num_queued_seqs), "1024", 0, 1000000, "N",
     "waiting requests; beyond it: 503"},
    {"max-response-memory", 0, SERVE, OPT_INT64, AT(max_response_memory), "1G", 1, 9e15, "BYTES",
     "of all responses that are not written yet (K, M, G); beyond it large ones: 503"},
    {"store", 0, SERVE, OPT_INT64, AT(store), "0", 0, 9e15, "BYTES",
     "keep responses of /v1/responses, so many bytes (K, M, G), the oldest go first; 0: none"},
    {"scheduling-policy", 0, SERVE, OPT_CHOICE, AT(policy), "fcfs", 0, 0, "fcfs|priority",
     "order of waiting requests"},
    {"enable-prefix-caching", 0, RUN, OPT_FLAG, AT(prefix_caching), "true", 0, 0, NULL,
     "reuse equal beginnings (the default)"},
    {"no-enable-prefix-caching", 0, RUN, OPT_NOFLAG, AT(prefix_caching), NULL, 0, 0, NULL,
     "never reuse them"},
    {"share-prefixes", 0, SERVE, OPT_FLAG, AT(share_prefixes), NULL, 0, 0, NULL,
     "let all API keys reuse each other's beginnings (else each of several keys only its own)"},
    {"seed", 0, SERVE | GEN | CHAT, OPT_SEED, AT(seed), NULL, 0, 0, "N",
     "from which requests without a seed get theirs"},
    {"generation-config", 0, SERVE | CHAT, OPT_STR, AT(generation_config), "auto", 0, 0, "auto|vllm|FILE",
     "where requests get what they do not say from: the model file, nowhere, or a generation_config.json"},
    {"override-generation-config", 0, SERVE | CHAT, OPT_STR, AT(override_generation_config), NULL, 0, 0,
     "JSON", "these before that: {\"temperature\": 0.6, \"top_k\": 20}"},
    {"exact", 0, RUN, OPT_FLAG, AT(exact), NULL, 0, 0, NULL,
     "the same bits in every batch (on CPU always so; CUDA: slower, no graphs)"},
    {"drain-timeout", 0, SERVE, OPT_DOUBLE, AT(drain_timeout), "30", 0, 86400, "S",
     "seconds that running requests get on SIGTERM"},
    {"watchdog-timeout", 0, SERVE, OPT_DOUBLE, AT(watchdog_timeout), "60", 0.1, 86400, "S",
     "seconds without a step until /health fails; more where steps take longer"},
    {"log-level", 0, (ALL & ~CHAT) | QUANT, OPT_CHOICE, AT(log_level), "info", 0, 0, "error|warn|info|debug",
     "lines above it are dropped"},
    {"metrics-namespace", 0, SERVE, OPT_STR, AT(metrics_namespace), "vllm", 0, 0, "NAME",
     "prefix of the metrics that vLLM names"},
    {"record", 0, SERVE, OPT_STR, AT(record), NULL, 0, 0, "FILE", "write inputs and plans for replay"},
    {"trace", 0, RUN, OPT_STR, AT(trace), NULL, 0, 0, "FILE",
     "write the times of steps and requests for Perfetto"},
    {"otlp-traces-endpoint", 0, SERVE, OPT_STR, AT(otlp_traces_endpoint), NULL, 0, 0, "URL",
     "collector of OpenTelemetry spans, such as http://127.0.0.1:4318 (else "
     "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT)"},
    {"tool-call-parser", 0, SERVE | CHAT, OPT_STR, AT(tool_call_parser), NULL, 0, 0, "NAME",
     "how the model writes calls and reasoning, or none; by default the chat template tells"},
    {"reasoning-budget", 0, SERVE, OPT_INT, AT(reasoning_budget), "-1", -1, INT_TOP, "N",
     "tokens in which a model may reason, where a request does not say; -1: any number"},
    {"structured-output-whitespace", 0, SERVE, OPT_INT, AT(max_blanks), "32", 0, 1024, "N",
     "blanks in a row in JSON that a request's output has to be"},
    {"speculative-method", 0, SERVE, OPT_CHOICE, AT(speculative_method), "auto", 0, 0, "auto|ngram|none",
     "what guesses tokens for steps to verify: ngram, the text itself; auto: ngram where it costs nothing"},
    {"speculative-model", 0, SERVE, OPT_STR, AT(speculative_model), NULL, 0, 0, "FILE",
     "a small model with the same tokenizer, which guesses them in place of the text (CPU)"},
    {"chat-template", 0, SERVE | GEN | CHAT, OPT_STR, AT(chat_template), NULL, 0, 0, "NAME|FILE",
     "chat template in place of the model's own: a file, or a built-in one such as chatml"},
    {"strict-fields", 0, SERVE, OPT_FLAG, AT(strict_fields), NULL, 0, 0, NULL,
     "refuse requests with fields that would be ignored"},
    {"config", 0, ALL, OPT_CONFIG, AT(config_file), NULL, 0, 0, "FILE", "read `flag: value` lines"},
    {"prompt", 'p', GEN, OPT_STR, AT(prompt), NULL, 0, 0, "TEXT",
     "what to say to a model with a chat template, or to go on from; \"\": nothing but BOS"},
    {"raw", 0, GEN, OPT_FLAG, AT(raw), NULL, 0, 0, NULL,
     "go on from TEXT as it is, without the chat template"},
    {"max-tokens", 'n', GEN, OPT_INT, AT(max_tokens), "64", 0, INT_TOP, "N", "tokens to generate"},
    {"system", 0, CHAT, OPT_STR, AT(system), NULL, 0, 0, "TEXT", "what the model is told first"},
    {"max-tokens", 'n', CHAT, OPT_INT, AT(answer_tokens), "0", 0, INT_TOP, "N",
     "tokens of an answer; 0: any number"},
    {"temperature", 0, CHAT, OPT_DOUBLE, AT(answer_temperature), "-1", -1, 2, "X", "-1: the model's own"},
    {"temperature", 0, GEN, OPT_DOUBLE, AT(temperature), "0", 0, 2, "X", "0: the likeliest token"},
    {"top-p", 0, GEN | CHAT, OPT_DOUBLE, AT(top_p), "1", 1e-6, 1, "X", "smallest set of this probability"},
    {"top-k", 0, GEN | CHAT, OPT_INT, AT(top_k), "0", -1, INT_TOP, "N", "this many tokens; 0: all"},
    {"logprobs", 0, GEN, OPT_INT, AT(logprobs), "0", 0, 20, "N", "--json: alternatives of each token"},
    {"ignore-eos", 0, GEN, OPT_FLAG, AT(ignore_eos), NULL, 0, 0, NULL, "go on after the end"},
    {"json", 0, GEN, OPT_FLAG, AT(json), NULL, 0, 0, NULL, "one JSON object instead of text"},
    {"file", 0, PPL, OPT_STR, AT(file), NULL, 0, 0, "TEXT", "file whose perplexity is computed"},
    {"ids", 0, TOK, OPT_FLAG, AT(ids), NULL, 0, 0, NULL, "ids on one line"},
    {"pure", 0, QUANT, OPT_FLAG, AT(pure), NULL, 0, 0, NULL, "every matrix in TYPE, the head too"},
    {"no-special", 0, TOK, OPT_FLAG, AT(no_special), NULL, 0, 0, NULL,
     "neither add special tokens nor read them in TEXT"},
    {"help", 'h', ALL | HEALTH | QUANT | TOP, OPT_HELP, AT(help), NULL, 0, 0, NULL, "this text"},
};
enum { NUM_OPTIONS = sizeof options / sizeof options[0] };

enum source { FROM_PRESET, FROM_FILE, FROM_ENV, FROM_ARGV };

struct parse {
    struct config *config;
    enum source source[NUM_OPTIONS]; // of each value so far
    struct err *err;
};

static bool takes_value(const struct option *o) {
    return o->type != OPT_FLAG && o->type != OPT_NOFLAG && o->type != OPT_HELP;
}

static bool is_list(const struct option *o) { return o->type == OPT_LIST || o->type == OPT_SECRET; }

static bool is_string(const struct option *o) {
    return o->type == OPT_STR || o->type == OPT_CONFIG || o->type == OPT_CHOICE;
}

enum status config_parse_number(const char *text, int64_t *out) {
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || errno || !isfinite(v) || isspace((unsigned char)text[0]) || strpbrk(text, "xXnN"))
        return STATUS_INVALID;
    double unit = 1;
    switch (toupper((unsigned char)*end)) {
    case 'K': unit = 1024; break;
    case 'M': unit = 1024.0 * 1024; break;
    case 'G': unit = 1024.0 * 1024 * 1024; break;
    case 'T': unit = 1024.0 * 1024 * 1024 * 1024; break;
    default: break;
    }
    if (unit > 1)
        end++;
    if (unit > 1 && *end == 'i')
        end++;
    if (unit > 1 && (*end == 'B' || *end == 'b'))
        end++;
    v *= unit;
    if (*end || v < -9e15 || v > 9e15 || v != floor(v))
        return STATUS_INVALID;
    *out = (int64_t)v;
    return STATUS_OK;
}

static bool is_one_of(const char *choices, const char *value) {
    size_t n = strlen(value);
    for (const char *w = choices; n && w;) {
        const char *bar = strchr(w, '|');
        size_t len = bar ? (size_t)(bar - w) : strlen(w);
        if (len == n && memcmp(w, value, n) == 0)
            return true;
        w = bar ? bar + 1 : NULL;
    }
    return false;
}

static bool parse_bool(const char *text, bool *out) {
    static const char *const choices[2] = {"false|no|off|0", "true|yes|on|1"};
    for (int i = 0; i < 2; i++)
        if (is_one_of(choices[i], text)) {
            *out = i == 1;
            return true;
        }
    return false;
}

static enum status list_add(struct str_list *l, const char *value) {
    char **items = realloc(l->items, (l->len + 1) * sizeof *items);
    if (!items)
        return STATUS_NOMEM;
    l->items = items;
    if (!(items[l->len] = strdup(value)))
        return STATUS_NOMEM;
    l->len++;
    return STATUS_OK;
}

static void list_free(struct str_list *l) {
    for (size_t i = 0; i < l->len; i++) {
        explicit_bzero(l->items[i], strlen(l->items[i])); // keys are among them
        free(l->items[i]);
    }
    free(l->items);
    *l = (struct str_list){0};
}

// Stores one value. `value` is never NULL; a bare flag comes as "true".
static enum status set_option(struct parse *p, const struct option *o, const char *value) {
    void *at = (char *)p->config + o->offset;
    struct err *err = p->err;
    int64_t n;
    bool b;
    switch (o->type) {
    case OPT_STR:
    case OPT_CONFIG:
        free(*(char **)at);
        if (!(*(char **)at = strdup(value)))
            return err_set(err, STATUS_NOMEM, "out of memory");
        return STATUS_OK;
    case OPT_LIST:
    case OPT_SECRET:
        if (!*value)
            return err_set(err, STATUS_INVALID, "--%s must not be empty", o->name);
        if (list_add(at, value) != STATUS_OK)
            return err_set(err, STATUS_NOMEM, "out of memory");
        return STATUS_OK;
    case OPT_INT:
    case OPT_INT_K:
    case OPT_INT64:
        if (config_parse_number(value, &n) != STATUS_OK || (double)n < o->min || (double)n > o->max ||
            (o->type == OPT_INT && strpbrk(value, "kKmMgGtTeE.")))
            return err_set(err, STATUS_INVALID,
                           "--%s: expected a whole number from %.0f to %.0f, found '%.60s'", o->name, o->min,
                           o->max, value);
        if (o->type == OPT_INT64)
            *(int64_t *)at = n;
        else
            *(int *)at = (int)n;
        return STATUS_OK;
    case OPT_SEED: {
        char *end;
        errno = 0;
        uint64_t seed = strtoull(value, &end, 10);
        if (!isdigit((unsigned char)(value[0] == '-' ? value[1] : value[0])) || *end || errno)
            return err_set(err, STATUS_INVALID, "--%s: expected a whole number, found '%.60s'", o->name,
                           value);
        *(uint64_t *)at = seed;
        p->config->has_seed = true;
        return STATUS_OK;
    }
    case OPT_DOUBLE: {
        char *end;
        errno = 0;
        double v = strtod(value, &end);
        if (end == value || *end || !isfinite(v) || v < o->min || v > o->max)
            return err_set(err, STATUS_INVALID, "--%s: expected a number from %g to %g, found '%.60s'",
                           o->name, o->min, o->max, value);
        *(double *)at = v;
        return STATUS_OK;
    }
    case OPT_FLAG:
    case OPT_NOFLAG:
    case OPT_HELP:
        if (!parse_bool(value, &b))
            return err_set(err, STATUS_INVALID, "--%s: expected true or false, found '%.60s'", o->name,
                           value);
        *(bool *)at = b == (o->type != OPT_NOFLAG);
        return STATUS_OK;
    case OPT_CHOICE:
        if (!is_one_of(o->metavar, value))
            return err_set(err, STATUS_INVALID, "--%s: expected one of %s, found '%.60s'", o->name,
                           o->metavar, value);
        free(*(char **)at);
        if (!(*(char **)at = strdup(value)))
            return err_set(err, STATUS_NOMEM, "out of memory");
        return STATUS_OK;
    }
    return STATUS_OK;
}

static enum status set_from(struct parse *p, int index, const char *value, enum source source) {
    const struct option *o = &options[index];
    if (p->source[index] > source)
        return STATUS_OK;
    // Two names of one value, such as --enable-… and --no-enable-…: the stronger source wins over both.
    for (int i = 0; i < NUM_OPTIONS; i++)
        if (i != index && options[i].offset == o->offset && p->source[i] > source)
            return STATUS_OK;
    if (is_list(o) && p->source[index] < source)
        list_free((struct str_list *)(void *)((char *)p->config + o->offset));
    p->source[index] = source;
    return set_option(p, o, value);
}

static int find_option(const struct config *c, const char *name, size_t len) {
    for (int i = 0; i < NUM_OPTIONS; i++)
        if ((options[i].commands & (unsigned)c->command) && strlen(options[i].name) == len) {
            size_t j = 0; // `_` is read as `-`, so that file and environment spellings work
            while (j < len && (name[j] == '_' ? '-' : name[j]) == options[i].name[j])
                j++;
            if (j == len)
                return i;
        }
    return -1;
}

static enum status fail_unknown(struct parse *p, const char *where, const char *name) {
    struct nearest near = {.word = name};
    size_t n = strlen(name);
    for (int i = 0; i < NUM_OPTIONS; i++)
        if (options[i].commands & (unsigned)p->config->command) {
            nearest_try(&near, options[i].name);
            if (n >= 4 && strncmp(name, options[i].name, n) == 0 && !near.best)
                near.best = options[i].name;
        }
    return err_set(p->err, STATUS_INVALID, "%s--%.60s%s%s%s", where, name,
                   near.best ? "; did you mean --" : "", near.best ? near.best : "", near.best ? "?" : "");
}

// The option that a word of the command line names, by its own name or by one that another server gives it.
// MODEL_FLAG: the model's. -1: none; err says why.
enum { MODEL_FLAG = NUM_OPTIONS };

static int find_flag(struct parse *p, const char *word, size_t len) {
    const struct config *c = p->config;
    int index = -1;
    if (word[1] == '-')
        index = find_option(c, word + 2, len - 2);
    for (int i = 0; i < NUM_OPTIONS && len == 2 && index < 0; i++)
        if (options[i].letter == word[1] && (options[i].commands & (unsigned)c->command))
            index = i;
    const struct foreign_flag *f = index < 0 ? foreign_flag_find(word, len) : NULL;
    if (f && f->ours)
        index = strcmp(f->ours, "model") != 0         ? find_option(c, f->ours, strlen(f->ours))
                : (c->command & (unsigned)(ALL)) != 0 ? MODEL_FLAG
                                                      : -1;
    if (index >= 0)
        return index;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(len < 62 ? len : 62), word);
    if (f && f->hint)
        err_set(p->err, STATUS_INVALID, "%s is %s; here: %s", name, f->whose, f->hint);
    else if (name[1] == '-')
        fail_unknown(p, "unknown flag ", name + 2);
    else
        err_set(p->err, STATUS_INVALID, "unknown flag %s", name);
    return -1;
}

static enum status parse_argv(struct parse *p, int argc, char **argv) {
    bool only_args = false;
    for (int i = 0; i < argc; i++) {
        char *word = argv[i];
        if (only_args || word[0] != '-' || !word[1]) {
            if (list_add(&p->config->args, word) != STATUS_OK)
                return err_set(p->err, STATUS_NOMEM, "out of memory");
            continue;
        }
        if (strcmp(word, "--") == 0) {
            only_args = true;
            continue;
        }
        char *value = strchr(word, '=');
        size_t len = value ? (size_t)(value - word) : strlen(word);
        if (value)
            value++;
        int index = find_flag(p, word, len);
        if (index < 0)
            return p->err->code;
        const struct option *o = index == MODEL_FLAG ? NULL : &options[index];
        if (!value && (!o || takes_value(o))) {
            if (i + 1 >= argc)
                return err_set(p->err, STATUS_INVALID, "%s needs a value", word);
            value = argv[++i];
        }
        enum status status = o ? set_from(p, index, value ? value : "true", FROM_ARGV)
                             : config_add_model(p->config, value) != STATUS_OK
                                 ? err_set(p->err, STATUS_NOMEM, "out of memory")
                                 : STATUS_OK;
        if (status != STATUS_OK)
            return status;
        if (o && o->type == OPT_SECRET && value) {
            p->config->key_in_argv = true; // readable in /proc until here
            memset(value, '*', strlen(value));
        }
    }
    return STATUS_OK;
}

bool config_variable(int i, char name[CONFIG_NAME]) {
    size_t n = (size_t)snprintf(name, CONFIG_NAME, "QUIRE_");
    for (const char *s = i < NUM_OPTIONS ? options[i].name : "model"; *s && n + 1 < CONFIG_NAME; s++)
        name[n++] = *s == '-' ? '_' : (char)toupper((unsigned char)*s);
    name[n] = '\0';
    return i <= NUM_OPTIONS;
}

// Gives MODEL to a command that takes one and was not told any.
static enum status set_model(struct parse *p, const char *path) {
    struct config *c = p->config;
    bool lacks = (c->command & (unsigned)ALL) && !c->url && c->args.len == (c->command == CMD_TOKENIZE);
    return lacks && config_add_model(c, path) != STATUS_OK ? err_set(p->err, STATUS_NOMEM, "out of memory")
                                                           : STATUS_OK;
}

static enum status parse_env(struct parse *p) {
    char name[CONFIG_NAME];
    enum status status = STATUS_OK;
    for (int i = 0; config_variable(i, name) && status == STATUS_OK; i++) {
        const struct option *o = i < NUM_OPTIONS ? &options[i] : NULL;
        const char *value = getenv(name);
        if (!value || (o && (!(o->commands & (unsigned)p->config->command) || o->type == OPT_HELP)))
            continue;
        if (*value)
            status = o ? set_from(p, i, value, FROM_ENV) : set_model(p, value);
        else if (o && strstr(o->name, "key") && p->source[i] < FROM_ENV)
            status = err_set(p->err, STATUS_INVALID, "%s is empty; unset it where no key is meant", name);
    }
    return status;
}

// The `flag: value` lines, a subset of YAML: comments, blank lines, quotes around a value, `[a, b]` is not
// one.
static enum status parse_file(struct parse *p, const char *path) {
    FILE *f = fopen(path, "re");
    if (!f)
        return err_set(p->err, STATUS_INVALID, "--config %s: %s", path, strerror(errno));
    char *line = NULL;
    size_t cap = 0;
    enum status status = STATUS_OK;
    for (int number = 1; status == STATUS_OK && getline(&line, &cap, f) >= 0; number++) {
        char *s = line, *end;
        while (isspace((unsigned char)*s))
            s++;
        if (!*s || *s == '#')
            continue;
        size_t len = strcspn(s, ":= \t\r\n");
        char *value = s + len;
        while (*value == ' ' || *value == '\t')
            value++;
        bool pair = *value == ':' || *value == '=';
        value += pair;
        while (*value == ' ' || *value == '\t')
            value++;
        if (*value == '"' || *value == '\'') {
            end = strchr(value + 1, *value);
            if (end)
                value++;
            else
                end = value + strlen(value);
        } else {
            end = strstr(value, " #");
            if (!end)
                end = value + strlen(value);
            while (end > value && isspace((unsigned char)end[-1]))
                end--;
        }
        char where[200];
        snprintf(where, sizeof where, "--config %.150s line %d: ", path, number);
        *end = '\0';
        int index = find_option(p->config, s, len);
        s[len] = '\0';
        if (strcmp(s, "model") == 0 && pair && index < 0) {
            status = set_model(p, value);
        } else if (index < 0 || !pair) {
            status = pair ? fail_unknown(p, where, s)
                          : err_set(p->err, STATUS_INVALID, "%sexpected `flag: value`", where);
        } else if (options[index].type == OPT_CONFIG) {
            status = err_set(p->err, STATUS_INVALID, "%sa file cannot name another", where);
        } else {
            struct err inner = {0}, *outer = p->err;
            p->err = &inner;
            status = set_from(p, index, value, FROM_FILE);
            p->err = outer;
            if (status != STATUS_OK)
                err_set(outer, status, "%s%.180s", where, inner.msg);
        }
    }
    if (line)
        explicit_bzero(line, cap);
    free(line);
    fclose(f);
    return status;
}

// As browsers send it, so that it can be compared: scheme, host, port where it is not the usual one.
static bool is_origin(const char *s) {
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789+.-");
    return strcmp(s, "*") == 0 || strcmp(s, "localhost") == 0 ||
           (n > 0 && strncmp(s + n, "://", 3) == 0 && s[n + 3] && !strpbrk(s + n + 3, "/,* "));
}

enum status config_parse(struct config *c, enum command command, int argc, char **argv, struct err *err) {
    *c = (struct config){.command = command};
    struct parse p = {.config = c, .err = err};
    enum status status = STATUS_OK;
    for (int i = 0; i < NUM_OPTIONS && status == STATUS_OK; i++)
        if (options[i].preset)
            status = set_option(&p, &options[i], options[i].preset);
    if (status == STATUS_OK)
        status = parse_argv(&p, argc, argv);
    if (status == STATUS_OK)
        status = parse_env(&p);
    if (status == STATUS_OK && c->config_file && !c->help)
        status = parse_file(&p, c->config_file);
    const char *collector = getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"); // OpenTelemetry's own name
    if (status == STATUS_OK && command == CMD_SERVE && !c->otlp_traces_endpoint && collector && *collector &&
        !(c->otlp_traces_endpoint = strdup(collector)))
        status = err_set(err, STATUS_NOMEM, "out of memory");
    if (status == STATUS_OK && c->otlp_traces_endpoint && !otlp_url_ok(c->otlp_traces_endpoint))
        status = err_set(err, STATUS_INVALID,
                         "--otlp-traces-endpoint: expected http://HOST[:PORT][/PATH], found '%.60s'",
                         c->otlp_traces_endpoint);
    if (status == STATUS_OK && c->max_num_batched_tokens && c->max_num_batched_tokens < c->max_num_seqs)
        status =
            err_set(err, STATUS_INVALID, "--max-num-batched-tokens (%d) must be at least --max-num-seqs (%d)",
                    c->max_num_batched_tokens, c->max_num_seqs);
    if (status == STATUS_OK && c->num_kv_blocks && c->kv_cache_memory)
        status = err_set(err, STATUS_INVALID, "give --num-kv-blocks or --kv-cache-memory, not both");
    for (size_t i = 0; i < c->allowed_origins.len && status == STATUS_OK; i++)
        if (!is_origin(c->allowed_origins.items[i]))
            status = err_set(
                err, STATUS_INVALID,
                "--allowed-origins: expected *, localhost or one such as https://example.org, found '%.60s'",
                c->allowed_origins.items[i]);
    if (status == STATUS_OK && c->metrics_namespace) {
        const char *s = c->metrics_namespace;
        if (!isalpha((unsigned char)*s) ||
            s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")])
            status =
                err_set(err, STATUS_INVALID, "--metrics-namespace: expected a word of letters, digits and _");
    }
    return status;
}

void config_free(struct config *c) {
    for (int i = 0; i < NUM_OPTIONS; i++) {
        void *at = (char *)c + options[i].offset;
        if (is_string(&options[i]))
            free(*(char **)at);
        else if (is_list(&options[i]))
            list_free(at);
    }
    list_free(&c->args);
    *c = (struct config){0};
}

enum status config_add_model(struct config *c, const char *path) {
    if (list_add(&c->args, path) != STATUS_OK)
        return STATUS_NOMEM;
    char *model = c->args.items[c->args.len - 1];
    memmove(c->args.items + 1, c->args.items, (c->args.len - 1) * sizeof *c->args.items);
    c->args.items[0] = model;
    return STATUS_OK;
}

void config_help(FILE *out, enum command command) {
    for (int i = 0; i < NUM_OPTIONS; i++) {
        const struct option *o = &options[i];
        if (!(o->commands & (unsigned)command))
            continue;
        char left[80];
        snprintf(left, sizeof left, "%s%c%s--%s %s", o->letter ? "-" : "", o->letter ? o->letter : ' ',
                 o->letter ? ", " : "   ", o->name, o->metavar && takes_value(o) ? o->metavar : "");
        fprintf(out, "  %-44s %s", left, o->help);
        if (o->preset && takes_value(o) && strcmp(o->preset, "0") != 0)
            fprintf(out, " (%s)", o->preset);
        fputc('\n', out);
    }
    if (command & ALL)
        fputs("\nEach flag is also QUIRE_<FLAG> in the environment and `flag: value` in the --config file, "
              "MODEL\n"
              "QUIRE_MODEL and `model: PATH`.\n",
              out);
}
