#include "options.h"

enum {
    SERVE = CMD_SERVE,
    GEN = CMD_GENERATE,
    PPL = CMD_PERPLEXITY,
    TOK = CMD_TOKENIZE,
    CHAT = CMD_CHAT,
    TOP = CMD_TOP,
    LAUNCH = CMD_LAUNCH,
    HEALTH = CMD_HEALTH,
    QUANT = CMD_QUANTIZE,
    RUN = SERVE | GEN | PPL | CHAT,
    ALL = OPTIONS_TAKE_MODEL,
};

#define AT(field) offsetof(struct config, field)
#define INT_TOP 2147483647.0

// In the order of `--help`.
const struct option options[] = {
    // ---- of one command
    {"prompt", GEN, GROUP_COMMAND, OPT_STR, AT(prompt), "TEXT",
     .help =
         "Answer this user message, or continue this text if the model has no chat template. \"\" gives BOS "
         "alone.",
     .letter = 'p'},
    {"raw", GEN, GROUP_COMMAND, OPT_FLAG, AT(raw), NULL,
     .help = "Continue TEXT as it stands, without the chat template."},
    {"system", CHAT, GROUP_COMMAND, OPT_STR, AT(system), "TEXT",
     .help = "Begin the conversation with this system message."},
    {"max-tokens", GEN, GROUP_COMMAND, OPT_INT, AT(max_tokens), "N", .help = "Generate at most N tokens.",
     .preset = "64", .max = INT_TOP, .letter = 'n'},
    {"max-tokens", CHAT, GROUP_COMMAND, OPT_INT, AT(answer_tokens), "N",
     .help = "Generate at most N tokens an answer.", .preset = "0", .shown = "no limit", .max = INT_TOP,
     .letter = 'n'},
    {"temperature", GEN, GROUP_COMMAND, OPT_DOUBLE, AT(temperature), "X",
     .help = "Sample at this temperature. 0 takes the most likely token.", .preset = "0", .max = 2},
    {"temperature", CHAT, GROUP_COMMAND, OPT_DOUBLE, AT(answer_temperature), "X",
     .help = "Sample at this temperature. 0 takes the most likely token.", .preset = "-1",
     .shown = "the model's own", .min = -1, .max = 2},
    {"top-p", GEN | CHAT, GROUP_COMMAND, OPT_DOUBLE, AT(top_p), "X",
     .help = "Sample from the fewest tokens whose probabilities reach X.", .preset = "1", .min = 1e-6,
     .max = 1},
    {"top-k", GEN | CHAT, GROUP_COMMAND, OPT_INT, AT(top_k), "N",
     .help = "Sample from the N most likely tokens.", .preset = "0", .shown = "all", .min = -1,
     .max = INT_TOP},
    {"logprobs", GEN, GROUP_COMMAND, OPT_INT, AT(logprobs), "N",
     .help = "Print N alternatives of each token, with --json.", .preset = "0", .max = 20},
    {"ignore-eos", GEN, GROUP_COMMAND, OPT_FLAG, AT(ignore_eos), NULL,
     .help = "Generate on past the end-of-text token."},
    {"json", GEN, GROUP_COMMAND, OPT_FLAG, AT(json), NULL, .help = "Print one JSON object instead of text."},
    {"file", PPL, GROUP_COMMAND, OPT_STR, AT(file), "TEXT",
     .help = "Compute the perplexity of this text file."},
    {"ids", TOK, GROUP_COMMAND, OPT_FLAG, AT(ids), NULL, .help = "Print the ids alone, on one line."},
    {"no-special", TOK, GROUP_COMMAND, OPT_FLAG, AT(no_special), NULL,
     .help = "Add no special tokens, and take those written in TEXT as plain text."},
    {"pure", QUANT, GROUP_COMMAND, OPT_FLAG, AT(pure), NULL,
     .help = "Store every matrix as TYPE, the embedding and the output head included."},
    {"once", TOP, GROUP_COMMAND, OPT_FLAG, AT(once), NULL, .help = "Print the state once and exit."},
    {"print", LAUNCH, GROUP_COMMAND, OPT_FLAG, AT(print), NULL,
     .help = "Print the environment and the command, and run nothing."},
    {"url", CHAT | TOP | LAUNCH, GROUP_COMMAND, OPT_STR, AT(url), "URL",
     .help = "Talk to this running server, such as http://127.0.0.1:8000."},
    {"host", TOP | HEALTH | LAUNCH, GROUP_COMMAND, OPT_STR, AT(host), "ADDR",
     .help = "Ask the server at this address.", .preset = "127.0.0.1"},
    {"port", TOP | HEALTH | LAUNCH, GROUP_COMMAND, OPT_INT, AT(port), "N",
     .help = "Ask the server at this port.", .preset = "8000", .max = 65535},
    {"api-key", CHAT | TOP | LAUNCH, GROUP_COMMAND, OPT_SECRET, AT(api_keys), "KEY",
     .help = "Send this key to the server. QUIRE_API_KEY in the environment is safer: other users can read a "
             "command "
             "line."},

    // ---- model
    {"served-model-name", SERVE, GROUP_MODEL, OPT_LIST, AT(served_names), "NAME",
     .help = "Call the model NAME in the API. Repeatable.", .shown = "the file's name"},
    {"max-model-len", RUN, GROUP_MODEL, OPT_INT_K, AT(max_model_len), "N",
     .help = "Limit prompt and output of one request to N tokens together.", .preset = "0",
     .shown = "the model's own, at most 131072", .max = INT_TOP},
    {"dtype", RUN, GROUP_MODEL, OPT_CHOICE, AT(dtype),
     "auto|float32|float16|bfloat16|float|half|f32|f16|bf16",
     .help = "Keep weights that the file does not hold quantised in this type.", .preset = "auto"},
    {"seed", SERVE | GEN | CHAT, GROUP_MODEL, OPT_SEED, AT(seed), "N",
     .help = "Derive the seeds of requests that bring none from N.", .shown = "random"},
    {"chat-template", SERVE | GEN | CHAT, GROUP_MODEL, OPT_STR, AT(chat_template), "NAME|FILE",
     .help =
         "Use this chat template instead of the model's: a Jinja file, or the name of a built-in one such as "
         "chatml."},
    {"tool-call-parser", SERVE | CHAT, GROUP_MODEL, OPT_STR, AT(tool_call_parser), "NAME",
     .help = "Read tool calls and reasoning in this format. none reads neither.",
     .shown = "from the chat template"},
    {"tools-fallback", SERVE, GROUP_MODEL, OPT_CHOICE, AT(tools_fallback), "generic|ignore|refuse",
     .help = "Where the chat template knows no tools, describe them in a message (generic), leave them out "
             "and tell so "
             "(ignore), or refuse the request.",
     .preset = "generic"},
    {"reasoning-budget", SERVE, GROUP_MODEL, OPT_INT, AT(reasoning_budget), "N",
     .help = "End reasoning after N tokens unless the request sets its own budget.", .preset = "-1",
     .shown = "no limit", .min = -1, .max = INT_TOP},
    {"generation-config", SERVE | CHAT, GROUP_MODEL, OPT_STR, AT(generation_config), "auto|vllm|FILE",
     .help = "Take default sampling parameters from the model (auto), from nowhere (vllm), or from this "
             "generation_config.json.",
     .preset = "auto"},
    {"override-generation-config", SERVE | CHAT, GROUP_MODEL, OPT_STR, AT(override_generation_config), "JSON",
     .help =
         "Override these default sampling parameters, for example {\"temperature\": 0.6, \"top_k\": 20}."},
    {"pooling", SERVE, GROUP_MODEL, OPT_CHOICE, AT(pooling), "auto|none|mean|cls|last|rank",
     .help = "Pool hidden states into embeddings this way. rank gives scores; none generates text; auto "
             "follows the "
             "model.",
     .preset = "auto"},
    {"lora-modules", SERVE, GROUP_MODEL, OPT_LIST, AT(lora_modules), "NAME=PATH",
     .help = "Serve this LoRA adapter, a PEFT folder or a GGUF file, as model NAME. Repeatable."},
    {"lora-root", SERVE, GROUP_MODEL, OPT_STR, AT(lora_root), "DIR",
     .help = "Let /v1/load_lora_adapter load adapters from this folder. Needs --admin-api-key."},
    {"max-loras", SERVE, GROUP_MODEL, OPT_INT, AT(max_loras), "N",
     .help = "Hold at most N adapters in memory.", .preset = "8", .min = 1, .max = 1024},
    {"max-lora-rank", SERVE, GROUP_MODEL, OPT_INT, AT(max_lora_rank), "N",
     .help = "Refuse adapters of a higher rank.", .preset = "64", .min = 1, .max = 512},

    // ---- hardware
    {"device", RUN, GROUP_HARDWARE, OPT_CHOICE, AT(device), "auto|cpu|ref|cuda",
     .help = "Run the model on this device. auto takes CUDA if it works, else the CPU; ref is slow, plain C.",
     .shown = "auto"},
    {"threads", RUN | QUANT, GROUP_HARDWARE, OPT_INT, AT(threads), "N", .help = "Compute with N threads.",
     .preset = "0", .shown = "one per CPU, within the CPU quota", .max = 1024},
    {"cpu-variant", RUN, GROUP_HARDWARE, OPT_CHOICE, AT(variant),
     "auto|scalar|avx2|avxvnni|avx512|avx512-fma|amx|neon|dotprod|i8mm",
     .help = "Use the CPU kernels of this instruction set. All give the same bits, but for BF16 weights "
             "under amx.",
     .preset = "auto"},
    {"tensor-parallel-size", RUN, GROUP_HARDWARE, OPT_INT, AT(tensor_parallel_size), "N",
     .help = "Split every layer across N ranks. On the CPU they share --threads.",
     .shown = "1; under mpirun or srun, its processes", .min = 1, .max = 8},
    {"pipeline-parallel-size", RUN, GROUP_HARDWARE, OPT_INT, AT(pipeline_parallel_size), "N",
     .help = "Split the layers into N consecutive stages, each with its own ranks.", .preset = "1", .min = 1,
     .max = 8},
    {"exact", RUN, GROUP_HARDWARE, OPT_FLAG, AT(exact), NULL,
     .help = "Make prefill batch-invariant on CUDA, too. Slower: it forgoes CUDA graphs. The CPU always is."},
    {"no-batch-invariant", RUN, GROUP_HARDWARE, OPT_FLAG, AT(no_batch_invariant), NULL,
     .help = "Let tokens on CUDA depend on what else is in a step of more than 64 rows, for speed. Not with "
             "--exact."},

    // ---- memory
    {"kv-cache-memory", RUN, GROUP_MEMORY, OPT_INT64, AT(kv_cache_memory), "BYTES",
     .help = "Give the KV cache this much memory, for example 4G.", .preset = "0",
     .shown = "from free memory", .max = 9e15},
    {"num-kv-blocks", RUN, GROUP_MEMORY, OPT_INT64, AT(num_kv_blocks), "N",
     .help = "Give the KV cache N blocks.", .preset = "0", .shown = "from --kv-cache-memory", .max = INT_TOP},
    {"block-size", RUN, GROUP_MEMORY, OPT_INT, AT(block_size), "N",
     .help = "Tokens in a KV cache block, a multiple of 16.", .preset = "0",
     .shown = "16; up to 512 with recurrent layers", .max = 4096},
    {"kv-cache-dtype", RUN, GROUP_MEMORY, OPT_CHOICE, AT(kv_dtype), "auto|f32|f16|bf16|int8|fp8|fp8_e4m3",
     .help = "Store keys and values in this type. auto takes f32 with F32 weights, bf16 with BF16 weights on "
             "AMX, "
             "else f16.",
     .preset = "auto"},
    {"gpu-memory-utilization", RUN, GROUP_MEMORY, OPT_DOUBLE, AT(gpu_memory_utilization), "X",
     .help = "Use this fraction of GPU memory for weights, activations and the KV cache.", .preset = "0.9",
     .min = 0.01, .max = 1},
    {"enable-prefix-caching", RUN, GROUP_MEMORY, OPT_FLAG, AT(prefix_caching), NULL,
     .help = "Reuse the KV blocks of prompts that begin alike. This is the default.", .preset = "true",
     .shown = ""},
    {"no-enable-prefix-caching", RUN, GROUP_MEMORY, OPT_NOFLAG, AT(prefix_caching), NULL,
     .help = "Compute every prompt from its first token."},
    {"share-prefixes", SERVE, GROUP_MEMORY, OPT_FLAG, AT(share_prefixes), NULL,
     .help = "Share cached prefixes between API keys. By default each key sees only its own."},
    {"kv-store", RUN, GROUP_MEMORY, OPT_STR, AT(kv_store), "DIR",
     .help = "Keep KV blocks in DIR, too, or at valkey://HOST:PORT: what was computed once is read after a "
             "restart. memory: "
             "in the host's, for GPUs."},
    {"kv-store-size", RUN, GROUP_MEMORY, OPT_INT64, AT(kv_store_size), "BYTES",
     .help = "Let all that is in DIR take this much; the oldest goes first.", .preset = "10G", .min = 1,
     .max = 9e15},
    {"kv-role", SERVE, GROUP_MEMORY, OPT_CHOICE, AT(kv_role), "both|producer|consumer",
     .help = "Write KV blocks to the store and read them; producer only writes, consumer only reads.",
     .preset = "both"},
    {"kv-store-private", SERVE, GROUP_MEMORY, OPT_FLAG, AT(kv_store_private), NULL,
     .help = "Keep the blocks of requests with a key, a cache_salt or an adapter out of DIR."},
    {"max-response-memory", SERVE, GROUP_MEMORY, OPT_INT64, AT(max_response_memory), "BYTES",
     .help = "Hold at most this much of responses not yet sent; beyond it, answer 503 to large ones.",
     .preset = "1G", .min = 1, .max = 9e15},
    {"store", SERVE, GROUP_MEMORY, OPT_INT64, AT(store), "BYTES",
     .help = "Keep responses of /v1/responses in this much memory; the oldest go first.", .preset = "0",
     .max = 9e15},
    {"store-dir", SERVE, GROUP_MEMORY, OPT_STR, AT(store_dir), "DIR",
     .help = "Keep the responses of --store in this folder, too: they are there again after a restart."},

    // ---- scheduling
    {"max-num-seqs", RUN, GROUP_SCHEDULING, OPT_INT, AT(max_num_seqs), "N",
     .help = "Run at most N requests in one step.", .shown = "64; CUDA: 256", .min = 1, .max = 4096},
    {"max-num-batched-tokens", RUN, GROUP_SCHEDULING, OPT_INT, AT(max_num_batched_tokens), "N",
     .help = "Compute at most N tokens in one step.", .preset = "0",
     .shown = "512; CUDA: 2048; encoders: their longest text, at most 8192", .max = 1048576},
    {"target-itl", SERVE, GROUP_SCHEDULING, OPT_DOUBLE, AT(target_itl), "MS",
     .help =
         "Target inter-token latency: shorten prefill chunks to meet it while other requests decode. 0 gives "
         "prefill a "
         "quarter of each step. CPU only.",
     .preset = "50", .max = 1e6},
    {"max-num-queued-seqs", SERVE, GROUP_SCHEDULING, OPT_INT, AT(max_num_queued_seqs), "N",
     .help = "Let at most N requests wait; answer 503 beyond.", .preset = "1024", .max = 1000000},
    {"scheduling-policy", SERVE, GROUP_SCHEDULING, OPT_CHOICE, AT(policy), "fcfs|priority",
     .help = "Admit waiting requests in this order.", .preset = "fcfs"},
    {"speculative-method", SERVE, GROUP_SCHEDULING, OPT_CHOICE, AT(speculative_method), "auto|ngram|mtp|none",
     .help =
         "Draft tokens from the text so far (ngram), or with the MTP layer of the file (mtp; CPU only). auto "
         "does both, only where verifying costs no time.",
     .preset = "auto"},
    {"speculative-model", SERVE, GROUP_SCHEDULING, OPT_STR, AT(speculative_model), "FILE",
     .help = "Draft tokens with this smaller model, which must have the same tokenizer. CPU only."},

    // ---- API
    {"host", SERVE, GROUP_API, OPT_STR, AT(host), "ADDR", .help = "Listen on this address.",
     .preset = "127.0.0.1"},
    {"port", SERVE, GROUP_API, OPT_INT, AT(port), "N", .help = "Listen on this port. 0 picks a free one.",
     .preset = "8000", .max = 65535},
    {"no-page", SERVE, GROUP_API, OPT_FLAG, AT(no_page), NULL, .help = "Serve no web page at /."},
    {"strict-fields", SERVE, GROUP_API, OPT_FLAG, AT(strict_fields), NULL,
     .help = "Refuse requests with fields that would be ignored."},
    {"structured-output-whitespace", SERVE, GROUP_API, OPT_INT, AT(max_blanks), "N",
     .help = "Allow at most N blanks in a row in JSON that a schema constrains.", .preset = "32",
     .max = 1024},

    // ---- security
    {"api-key", SERVE, GROUP_SECURITY, OPT_SECRET, AT(api_keys), "KEY",
     .help = "Require this key from clients. Repeatable. Safer: --api-key-file, or QUIRE_API_KEY in the "
             "environment."},
    {"api-key-file", SERVE, GROUP_SECURITY, OPT_STR, AT(api_key_file), "FILE",
     .help = "Read keys from this file, one a line; SIGHUP reads it again. Behind a key may stand a name, "
             "for the log."},
    {"admin-api-key", SERVE, GROUP_SECURITY, OPT_SECRET, AT(admin_keys), "KEY",
     .help = "Require this key for requests that change the server, such as loading an adapter. Repeatable. "
             "Safer: "
             "--admin-api-key-file, or QUIRE_ADMIN_API_KEY in the environment."},
    {"admin-api-key-file", SERVE, GROUP_SECURITY, OPT_STR, AT(admin_key_file), "FILE",
     .help = "Read admin keys from this file, one a line; SIGHUP reads it again."},
    {"require-key", SERVE, GROUP_SECURITY, OPT_FLAG, AT(require_key), NULL,
     .help = "Refuse to start on a public address without a key."},
    {"tls-cert", SERVE, GROUP_SECURITY, OPT_STR, AT(tls_cert), "FILE",
     .help = "Speak HTTPS, with this certificate and those that vouch for it, as PEM; SIGHUP reads it again. "
             "Needs --tls-key."},
    {"tls-key", SERVE, GROUP_SECURITY, OPT_STR, AT(tls_key), "FILE",
     .help = "The private key of --tls-cert, as PEM without a password."},
    {"allowed-origins", SERVE, GROUP_SECURITY, OPT_LIST, AT(allowed_origins), "ORIGIN",
     .help = "Let web pages of this origin call the API (CORS). localhost allows any port of this machine, * "
             "allows "
             "all. "
             "Repeatable."},
    {"allow-credentials", SERVE, GROUP_SECURITY, OPT_FLAG, AT(allow_credentials), NULL,
     .help = "Let those pages send cookies and HTTP authentication, for a proxy in front to check."},

    // ---- observability
    {"log-level", (ALL & ~CHAT) | QUANT, GROUP_OBSERVABILITY, OPT_CHOICE, AT(log_level),
     "error|warn|info|debug", .help = "Log this level and those before it.", .preset = "info"},
    {"log-format", (ALL & ~CHAT) | QUANT, GROUP_OBSERVABILITY, OPT_CHOICE, AT(log_format), "text|json",
     .help = "Log lines of key=value, which begin with the time where stderr is not the journal, or JSON "
             "objects.",
     .preset = "text"},
    {"log-file", SERVE, GROUP_OBSERVABILITY, OPT_STR, AT(log_file), "FILE",
     .help = "Append stderr to this file, too late for errors of the command line; SIGHUP opens it anew."},
    {"metrics-namespace", SERVE, GROUP_OBSERVABILITY, OPT_STR, AT(metrics_namespace), "NAME",
     .help = "Prefix of the metrics that vLLM also has.", .preset = "vllm"},
    {"trace", RUN, GROUP_OBSERVABILITY, OPT_STR, AT(trace), "FILE",
     .help = "Write the times of steps and requests to this file, for Perfetto."},
    {"otlp-traces-endpoint", SERVE, GROUP_OBSERVABILITY, OPT_STR, AT(otlp_traces_endpoint), "URL",
     .help = "Send OpenTelemetry spans to this collector, such as http://127.0.0.1:4318.",
     .shown = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"},
    {"record", SERVE, GROUP_OBSERVABILITY, OPT_STR, AT(record), "FILE",
     .help = "Record requests and scheduler plans in this file, for `quire replay`."},

    // ---- process
    {"config", ALL, GROUP_PROCESS, OPT_CONFIG, AT(config_file), "FILE",
     .help = "Read flags from this file, one `flag: value` a line."},
    {"drain-timeout", SERVE, GROUP_PROCESS, OPT_DOUBLE, AT(drain_timeout), "S",
     .help = "On SIGTERM, give running requests S seconds to finish.", .preset = "30", .max = 86400},
    {"watchdog-timeout", SERVE, GROUP_PROCESS, OPT_DOUBLE, AT(watchdog_timeout), "S",
     .help = "Fail /health when no step has ended for S seconds, or for eight times as long as the step "
             "should take.",
     .preset = "60", .min = 0.1, .max = 86400},
    {"help", ALL | HEALTH | QUANT | TOP | LAUNCH, GROUP_PROCESS, OPT_HELP, AT(help), NULL,
     .help = "Print this text.", .letter = 'h'},
};
const int num_options = sizeof options / sizeof options[0];
_Static_assert(sizeof options / sizeof options[0] <= MAX_OPTIONS, "room for what config.c keeps of each");
