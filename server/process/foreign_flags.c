#include "foreign_flags.h"

#include <string.h>

#define FILE_SAYS "the model's file says it"
#define DRAFT_LENGTH "as many tokens are drafted as pay"
#define BY_REQUEST "each request says it; --override-generation-config JSON sets what those get that do not"
#define LAUNCHER "mpirun or srun starts the processes"

// Facts from the programs' own help texts.
static const struct foreign_flag flags[] = {
    // ---- the model
    {"-m|--model|--model-path|--model-id|-hf|-hfr|--hf-repo|-mu|--model-url", FOREIGN_OURS, "model", NULL},
    {"-a|--alias", FOREIGN_OURS, "served-model-name", NULL},
    {"--chat-template-file", FOREIGN_OURS, "chat-template", NULL},
    {"-s|--random-seed", FOREIGN_OURS, "seed", NULL},
    {"-q|--quantization|--load-format|--revision|--tokenizer-revision|--code-revision|--config-format|--"
     "download-dir",
     FOREIGN_VALUE, NULL, FILE_SAYS},
    {"--quantize", FOREIGN_VALUE, NULL, FILE_SAYS},
    {"--tokenizer|--tokenizer-path|--tokenizer-mode", FOREIGN_VALUE, NULL,
     "the model's file holds the tokenizer"},
    {"--skip-tokenizer-init|--check-tensors|--offline|--no-repack|--no-host", FOREIGN_BARE, NULL,
     "the loader does as the file needs"},
    {"--trust-remote-code", FOREIGN_BARE, NULL, "no code of a model runs"},
    {"-hft|--hf-token", FOREIGN_VALUE, NULL, "nothing is downloaded"},
    {"--task|--runner|--convert", FOREIGN_VALUE, NULL, FILE_SAYS},
    {"--embedding|--embeddings|--is-embedding|--reranking|--rerank", FOREIGN_BARE, NULL,
     FILE_SAYS "; --pooling overrides it"},
    {"--mmproj|-mm|--limit-mm-per-prompt|--mm-processor-kwargs|--mm-encoder-tp-mode", FOREIGN_VALUE, NULL,
     "the text of the model is served, without images"},
    {"--no-mmproj|--language-model-only|--no-mmproj-offload", FOREIGN_BARE, NULL,
     "the text of the model is served, without images"},
    {"--rope-scaling|--rope-scale|--rope-freq-base|--rope-freq-scale|--yarn-orig-ctx|--yarn-ext-factor|--"
     "yarn-attn-factor|--override-kv|--hf-overrides|--json-model-override-args",
     FOREIGN_OTHER, NULL, FILE_SAYS},
    {"--lora|--lora-scaled", FOREIGN_OTHER, NULL, "--lora-modules NAME=PATH, which requests name"},
    {"--lora-paths", FOREIGN_OURS, "lora-modules", NULL},
    {"--max-loras-per-batch", FOREIGN_OURS, "max-loras", NULL},
    {"--enable-lora|--lora-init-without-apply", FOREIGN_BARE, NULL, "--lora-modules and --lora-root say it"},
    {"--lora-extra-vocab-size|--max-cpu-loras", FOREIGN_VALUE, NULL, "--max-loras bounds the adapters"},
    {"-hff|--hf-file|-dr|--docker-repo|--models-dir|--models-preset", FOREIGN_OTHER, NULL,
     "MODEL is one file or folder"},
    // ---- length and batches
    {"-c|--ctx-size", FOREIGN_OURS, "max-model-len", NULL},
    {"--context-length", FOREIGN_OURS, "max-model-len", NULL},
    {"-np|--parallel", FOREIGN_OURS, "max-num-seqs", NULL},
    {"--max-running-requests", FOREIGN_OURS, "max-num-seqs", NULL},
    {"--max-queued-requests", FOREIGN_OURS, "max-num-queued-seqs", NULL},
    {"--max-concurrent-requests", FOREIGN_OURS, "max-num-queued-seqs", NULL},
    {"--max-batch-prefill-tokens", FOREIGN_OURS, "max-num-batched-tokens", NULL},
    {"--max-input-length|--max-input-tokens|--waiting-served-ratio|--max-waiting-tokens|--max-batch-size",
     FOREIGN_VALUE, NULL, "--max-model-len bounds prompt and answer together"},
    {"-b|--batch-size|-ub|--ubatch-size", FOREIGN_VALUE, NULL, "--max-num-batched-tokens bounds a step"},
    {"--chunked-prefill-size|--max-prefill-tokens|--prefill-max-requests", FOREIGN_VALUE, NULL,
     "--max-num-batched-tokens bounds a step"},
    {"--max-num-partial-prefills|--max-long-partial-prefills|--long-prefill-token-threshold|--max-seq-len-to-"
     "capture",
     FOREIGN_VALUE, NULL, "--max-num-batched-tokens bounds a step"},
    {"--enable-chunked-prefill|--no-enable-chunked-prefill|--enable-mixed-chunk", FOREIGN_BARE, NULL,
     "prefill is always chunked"},
    {"-cb|--cont-batching|-nocb|--no-cont-batching", FOREIGN_BARE, NULL, "batching is always continuous"},
    {"--async-scheduling|--no-async-scheduling|--disable-overlap-schedule", FOREIGN_BARE, NULL,
     "the scheduler decides it"},
    {"--schedule-policy|--schedule-conservativeness", FOREIGN_VALUE, NULL,
     "--scheduling-policy fcfs|priority says who waits"},
    {"--stream-interval", FOREIGN_VALUE, NULL, "every token is sent at once"},
    // ---- memory
    {"--page-size", FOREIGN_OURS, "block-size", NULL},
    {"--num-gpu-blocks-override", FOREIGN_OURS, "num-kv-blocks", NULL},
    {"--mem-fraction-static", FOREIGN_OURS, "gpu-memory-utilization", NULL},
    {"--cuda-memory-fraction", FOREIGN_OURS, "gpu-memory-utilization", NULL},
    {"--kv-cache-memory-bytes", FOREIGN_OTHER, NULL, "--kv-cache-memory BYTES, where 1k is 1024"},
    {"--max-total-tokens|--max-batch-total-tokens", FOREIGN_OTHER, NULL,
     "--num-kv-blocks N or --kv-cache-memory BYTES for all requests, --max-model-len N for one"},
    {"-ctk|--cache-type-k|-ctv|--cache-type-v", FOREIGN_OTHER, NULL,
     "--kv-cache-dtype TYPE, for keys and values"},
    {"--cache-prompt", FOREIGN_OURS, "enable-prefix-caching", NULL},
    {"--no-cache-prompt", FOREIGN_OURS, "no-enable-prefix-caching", NULL},
    {"--disable-radix-cache", FOREIGN_OURS, "no-enable-prefix-caching", NULL},
    {"--cache-reuse|-cram|--cache-ram|-sps|--slot-prompt-similarity|--slot-save-path|-dt|--defrag-thold|-"
     "ctxcp|--ctx-checkpoints",
     FOREIGN_VALUE, NULL, "one cache of blocks serves all requests"},
    {"--swa-full|-kvu|--kv-unified|-no-kvu|--no-kv-unified|-nkvo|--no-kv-offload|-kvo|--kv-offload|--context-"
     "shift|--no-context-shift",
     FOREIGN_BARE, NULL, "one cache of blocks serves all requests"},
    {"--prefix-caching-hash-algo|--swap-space|--cpu-offload-gb|--kv-offloading-size", FOREIGN_VALUE, NULL,
     "one cache of blocks serves all requests"},
    {"--mlock|--no-mmap|--mmap|-dio|--direct-io|-ndio|--no-direct-io", FOREIGN_BARE, NULL,
     "weights are packed into memory of their own"},
    // ---- hardware
    {"-t", FOREIGN_OURS, "threads", NULL},
    {"-tb|--threads-batch|--threads-http|--prio|--prio-batch|--poll|--poll-batch|--cpu-strict", FOREIGN_VALUE,
     NULL, "--threads N is for prefill and decode"},
    {"--numa|-C|--cpu-mask|-Cr|--cpu-range", FOREIGN_VALUE, NULL,
     "the threads run on the CPUs that taskset or the container allow"},
    {"-ngl|--gpu-layers|--n-gpu-layers|-ncmoe|--n-cpu-moe|-ot|--override-tensor", FOREIGN_VALUE, NULL,
     "--device cuda takes all layers, --device cpu none"},
    {"-cmoe|--cpu-moe|--no-op-offload|-fit", FOREIGN_BARE, NULL,
     "--device cuda takes all layers, --device cpu none"},
    {"-sm|--split-mode|-ts|--tensor-split|-mg|--main-gpu", FOREIGN_OTHER, NULL,
     "--tensor-parallel-size N, in equal parts"},
    {"-tp|--tp|--tp-size", FOREIGN_OURS, "tensor-parallel-size", NULL},
    {"--num-shard", FOREIGN_OURS, "tensor-parallel-size", NULL},
    {"-pp|--pp-size", FOREIGN_OURS, "pipeline-parallel-size", NULL},
    {"-dp|--data-parallel-size|--dp|--dp-size", FOREIGN_OTHER, NULL, "several servers behind a proxy"},
    {"--nnodes|--node-rank|--dist-init-addr|--master-addr|--headless", FOREIGN_OTHER, NULL, LAUNCHER},
    {"--distributed-executor-backend|--max-parallel-loading-workers|--decode-context-parallel-size",
     FOREIGN_VALUE, NULL, LAUNCHER " where one machine is not enough"},
    {"--enable-expert-parallel|--enable-ep|--enable-dp-attention|--disable-custom-all-reduce", FOREIGN_BARE,
     NULL, "--tensor-parallel-size shares the experts, too"},
    {"--enable-deterministic-inference", FOREIGN_OURS, "exact", NULL},
    {"-fa|--flash-attn", FOREIGN_SWITCH, NULL, "attention is always of that kind"},
    {"--attention-backend|--sampling-backend|--prefill-attention-backend|--decode-attention-backend|--mm-"
     "attention-backend|--moe-runner-backend",
     FOREIGN_VALUE, NULL, "each device has one"},
    {"-O0|-O1|-O2|-O3|--enforce-eager|--enable-torch-compile|--disable-cuda-graph|--disable-custom-kernels",
     FOREIGN_BARE, NULL, "nothing is compiled at the start"},
    {"-O|--compilation-config|-cc|--optimization-level|--torch-compile-max-bs|--cuda-graph-max-bs|--cuda-"
     "graph-bs",
     FOREIGN_VALUE, NULL, "nothing is compiled at the start"},
    {"--warmup|--no-warmup|--skip-server-warmup", FOREIGN_BARE, NULL, "the server is ready when it listens"},
    // ---- drafts
    {"-md|--model-draft|--spec-draft-model", FOREIGN_OURS, "speculative-model", NULL},
    {"--speculative-draft-model-path|--speculative-draft-model", FOREIGN_OURS, "speculative-model", NULL},
    {"--spec-type|--spec-default", FOREIGN_OTHER, NULL, "--speculative-method ngram or mtp"},
    {"--speculative-config", FOREIGN_OTHER, NULL,
     "--speculative-model FILE, or --speculative-method ngram or mtp"},
    {"--speculative-algorithm", FOREIGN_OTHER, NULL,
     "--speculative-model FILE, or --speculative-method ngram or mtp"},
    {"--draft|--draft-n|--draft-max|--draft-min|--draft-n-min|--draft-p-min|-cd|--ctx-size-draft|-ngld|-td|--"
     "threads-draft",
     FOREIGN_VALUE, NULL, DRAFT_LENGTH},
    {"--speculative-num-steps|--speculative-num-draft-tokens|--speculative-eagle-topk", FOREIGN_VALUE, NULL,
     DRAFT_LENGTH},
    // ---- what requests say
    {"--temp", FOREIGN_OURS, "temperature", BY_REQUEST},
    {"-n|--predict|--n-predict", FOREIGN_OURS, "max-tokens", BY_REQUEST},
    {"--samplers|--top-k|--top-p|--min-p|--repeat-penalty|--presence-penalty|--frequency-penalty|--mirostat|-"
     "-dry-multiplier|--xtc-probability|--typical",
     FOREIGN_OTHER, NULL, BY_REQUEST},
    {"--grammar|--grammar-file|-j|--json-schema|-jf|--json-schema-file|-l|--logit-bias|--keep|--ignore-eos",
     FOREIGN_OTHER, NULL, "each request says it"},
    {"--enable-auto-tool-choice|--enable-reasoning|--jinja|--no-jinja|--prefill-assistant|--no-prefill-"
     "assistant",
     FOREIGN_BARE, NULL, "the chat template says how tools and reasoning are written"},
    {"--reasoning-parser|--reasoning-format|--chat-template-content-format|--response-role", FOREIGN_VALUE,
     NULL, "the chat template says how tools and reasoning are written; --tool-call-parser overrides it"},
    {"--tool-parser-plugin|--chat-template-kwargs|--default-chat-template-kwargs", FOREIGN_OTHER, NULL,
     "each request says it (chat_template_kwargs)"},
    {"--guided-decoding-backend|--structured-outputs-config|--grammar-backend", FOREIGN_VALUE, NULL,
     "there is one"},
    {"--max-logprobs|--max-best-of|--max-stop-sequences|--max-client-batch-size|--max-top-n-tokens",
     FOREIGN_VALUE, NULL, "the bounds are of the API"},
    {"--enable-prompt-tokens-details|--enable-cache-report|--enable-force-include-usage|--return-tokens-as-"
     "token-ids|--special|-sp",
     FOREIGN_BARE, NULL, "usage always says it"},
    // ---- HTTP and logs
    {"--hostname", FOREIGN_OURS, "host", NULL},
    {"--cors-origins", FOREIGN_OURS, "allowed-origins", NULL},
    {"--cors-credentials", FOREIGN_OURS, "allow-credentials", NULL},
    {"--no-webui|--no-ui", FOREIGN_OURS, "no-page", NULL},
    {"--webui|--ui|--webui-mcp-proxy", FOREIGN_BARE, NULL, "the page is at /"},
    {"--slots|--no-slots|--props|--metrics", FOREIGN_BARE, NULL, "the path is always there"},
    {"--enable-metrics|--enable-server-load-tracking|--disable-log-stats|--enable-log-requests|--no-enable-"
     "log-requests|--disable-log-requests|--log-requests",
     FOREIGN_BARE, NULL, "/metrics is always there, and every request is one line of the log"},
    {"--log-requests-level|--max-log-len|--decode-log-interval|--uvicorn-log-level|-lv|--"
     "verbosity|--log-verbosity",
     FOREIGN_VALUE, NULL, "--log-level error|warn|info|debug says how much"},
    {"-v|--verbose|--log-verbose|--log-disable|--log-prefix|--log-timestamps|--log-colors|--no-perf|--perf|"
     "--show-time-cost",
     FOREIGN_BARE, NULL, "--log-level error|warn|info|debug says how much"},
    {"-to|--timeout|--sleep-idle-seconds", FOREIGN_VALUE, NULL, "a request ends when its client goes"},
    {"--ssl-cert-file|--ssl-certfile", FOREIGN_OURS, "tls-cert", NULL},
    {"--ssl-key-file|--ssl-keyfile", FOREIGN_OURS, "tls-key", NULL},
    {"--ssl-ca-certs|--ssl-cert-reqs", FOREIGN_OTHER, NULL, "a reverse proxy asks clients for certificates"},
    {"--enable-ssl-refresh", FOREIGN_BARE, NULL, "SIGHUP has the certificate read again"},
    {"--path|--api-prefix|--root-path|--middleware", FOREIGN_OTHER, NULL,
     "a reverse proxy serves other paths"},
    {"--disable-frontend-multiprocessing|--disable-fastapi-docs|--disable-uvicorn-access-log", FOREIGN_BARE,
     NULL, "there is one process"},
    // ---- of text-generation-launcher alone
    {"--cors-allow-origin", FOREIGN_OURS, "allowed-origins", NULL},
    {"--otlp-endpoint", FOREIGN_OTHER, NULL, "--otlp-traces-endpoint http://HOST:4318, over HTTP"},
    {"--otlp-service-name", FOREIGN_OTHER, NULL, "OTEL_SERVICE_NAME in the environment says it"},
    {"--lora-adapters", FOREIGN_OTHER, NULL, "--lora-modules NAME=PATH, which requests name"},
    {"--huggingface-hub-cache|--weights-cache-override", FOREIGN_OTHER, NULL,
     "HF_HUB_CACHE in the environment names the folder"},
    {"--tokenizer-config-path", FOREIGN_OTHER, NULL,
     "the model's file holds the tokenizer; --chat-template FILE is another template"},
    {"--rope-factor", FOREIGN_OTHER, NULL, FILE_SAYS},
    {"--ngrok|--ngrok-authtoken|--ngrok-edge", FOREIGN_OTHER, NULL, "a tunnel is another program"},
    {"--watermark-delta|--watermark-gamma", FOREIGN_OTHER, NULL, "there are no watermarks"},
    {"--disable-grammar-support", FOREIGN_OTHER, NULL, "a request's grammar is always followed"},
    {"--sharded", FOREIGN_VALUE, NULL, "--tensor-parallel-size says it"},
    {"--master-port|--shard-uds-path", FOREIGN_VALUE, NULL, LAUNCHER " where one machine is not enough"},
    {"--speculate", FOREIGN_VALUE, NULL, DRAFT_LENGTH},
    {"--cuda-graphs", FOREIGN_VALUE, NULL, "nothing is compiled at the start"},
    {"--payload-limit", FOREIGN_VALUE, NULL, "bodies have at most 32 MiB"},
    {"--usage-stats", FOREIGN_VALUE, NULL, "nothing is reported"},
    {"--validation-workers", FOREIGN_VALUE, NULL, "there is one process"},
    {"--json-output", FOREIGN_BARE, NULL, "--log-format json says it"},
    {"--enable-prefill-logprobs", FOREIGN_BARE, NULL, "each request may ask for them"},
    {"--api-server-count|--allowed-methods|--allowed-headers", FOREIGN_VALUE, NULL,
     "there is one process, and methods and headers are those of the API"},
};

static bool is_among(const char *names, const char *word, size_t len) {
    for (const char *name = names; *name;) {
        size_t n = strcspn(name, "|"), i = 0;
        while (n == len && i < len && (i > 1 && word[i] == '_' ? '-' : word[i]) == name[i])
            i++;
        if (n == len && i == len)
            return true;
        name += n + (name[n] == '|');
    }
    return false;
}

const struct foreign_flag *foreign_flag_at(size_t i) {
    return i < sizeof flags / sizeof flags[0] ? &flags[i] : NULL;
}

const struct foreign_flag *foreign_flag_find(const char *word, size_t len) {
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (is_among(flags[i].names, word, len))
            return &flags[i];
    return NULL;
}

bool foreign_flag_takes(const struct foreign_flag *f, const char *next) {
    static const char *const switches[] = {"on", "off", "auto", "true", "false", "0", "1"};
    if (!next || f->kind == FOREIGN_BARE)
        return false;
    if (f->kind == FOREIGN_OTHER || f->kind == FOREIGN_OURS)
        return next[0] != '-';
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
        if (strcmp(next, switches[i]) == 0)
            return true;
    return f->kind == FOREIGN_VALUE;
}
