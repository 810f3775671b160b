#include "foreign_flags.h"

#include <stdbool.h>
#include <string.h>

#define LLAMA "llama-server's"
#define VLLM "vLLM's"
#define SGLANG "SGLang's"
#define BY_REQUEST "each request says it"
#define DRAFT_LENGTH "nothing to set: as many drafts as pay"

// Facts from the programs' own help texts.
static const struct foreign_flag flags[] = {
    {"-m|--model|--model-path", NULL, "model", NULL},
    {"-np|--parallel", LLAMA, "max-num-seqs", NULL},
    {"--max-running-requests", SGLANG, "max-num-seqs", NULL},
    {"-t", LLAMA, "threads", NULL},
    {"-tp|--tp|--tp-size", VLLM, "tensor-parallel-size", NULL},
    {"-pp|--pp-size", VLLM, "pipeline-parallel-size", NULL},
    {"--context-length", SGLANG, "max-model-len", NULL},
    {"--page-size", SGLANG, "block-size", NULL},
    {"--num-gpu-blocks-override", VLLM, "num-kv-blocks", NULL},
    {"--random-seed", SGLANG, "seed", NULL},
    {"--cache-prompt", LLAMA, "enable-prefix-caching", NULL},
    {"--no-cache-prompt", LLAMA, "no-enable-prefix-caching", NULL},
    {"--disable-radix-cache", SGLANG, "no-enable-prefix-caching", NULL},
    {"--enable-deterministic-inference", SGLANG, "exact", NULL},
    {"--chat-template-file", LLAMA, "chat-template", NULL},
    {"--cors-origins", LLAMA, "allowed-origins", NULL},
    {"--cors-credentials", LLAMA, "allow-credentials", NULL},
    {"--temp", LLAMA, "temperature", BY_REQUEST " (temperature)"},
    {"-n|--predict|--n-predict", LLAMA, "max-tokens", BY_REQUEST " (max_tokens)"},
    {"--samplers|--top-k|--top-p|--min-p|--repeat-penalty|--presence-penalty|--frequency-penalty", LLAMA,
     NULL, BY_REQUEST},
    {"-c|--ctx-size", LLAMA, NULL,
     "--max-model-len N for one request, --kv-cache-memory BYTES for all together"},
    {"-ngl|--gpu-layers|--n-gpu-layers", LLAMA, NULL, "--device cuda for all layers, --device cpu for none"},
    {"-sm|--split-mode|-ts|--tensor-split|-mg|--main-gpu", LLAMA, NULL,
     "--tensor-parallel-size N, in equal parts"},
    {"-b|--batch-size|-ub|--ubatch-size", LLAMA, NULL, "--max-num-batched-tokens N"},
    {"--spec-type|--spec-default", LLAMA, NULL, "--speculative-method ngram"},
    {"-md|--model-draft|--spec-draft-model", LLAMA, "speculative-model", NULL},
    {"--speculative-draft-model-path|--speculative-draft-model", SGLANG, "speculative-model", NULL},
    {"--speculative-config", VLLM, NULL, "--speculative-model FILE, or --speculative-method ngram"},
    {"--speculative-algorithm", SGLANG, NULL, "--speculative-model FILE, or --speculative-method ngram"},
    {"--draft|--draft-n|--draft-max|--draft-min|--draft-n-min|--draft-p-min", LLAMA, NULL, DRAFT_LENGTH},
    {"--speculative-num-steps|--speculative-num-draft-tokens|--speculative-eagle-topk", SGLANG, NULL,
     DRAFT_LENGTH},
    {"-tb|--threads-batch", LLAMA, NULL, "--threads N, for prefill and decode"},
    {"-ctk|--cache-type-k|-ctv|--cache-type-v", LLAMA, NULL, "--kv-cache-dtype TYPE, for keys and values"},
    {"-a|--alias", LLAMA, NULL, "--served-model-name NAME, once for each"},
    {"-s", LLAMA, NULL, "--seed N"},
    {"--lora|--lora-scaled", LLAMA, NULL, "--lora-modules NAME=PATH, which requests name"},
    {"--lora-paths", SGLANG, "lora-modules", NULL},
    {"--enable-lora", VLLM, NULL, "nothing to set: --lora-modules or --lora-root say it"},
    {"-fa|--flash-attn", LLAMA, NULL, "nothing to set"},
    {"-cb|--cont-batching", LLAMA, NULL, "nothing to set: batching is always continuous"},
    {"--jinja", LLAMA, NULL, "nothing to set: templates are always Jinja"},
    {"--slots|--props|--metrics", LLAMA, NULL, "nothing to set: the path is always there"},
    {"--enable-metrics", SGLANG, NULL, "nothing to set: /metrics is always there"},
    {"-hf|-hfr|--hf-repo|-mu|--model-url", LLAMA, NULL, "download it first: MODEL is a file"},
    {"--embedding|--embeddings", LLAMA, NULL,
     "--pooling last, mean or cls, where the model's file does not say it"},
    {"--reranking|--rerank", LLAMA, NULL, "--pooling rank, where the model's file does not say it"},
    {"-v|--verbose|-lv|--verbosity", LLAMA, NULL, "--log-level debug"},
    {"--ssl-key-file|--ssl-cert-file", LLAMA, NULL, "a reverse proxy speaks TLS"},
    {"--ssl-keyfile|--ssl-certfile", VLLM, NULL, "a reverse proxy speaks TLS"},
    {"--enable-chunked-prefill", VLLM, NULL, "nothing to set: prefill is always chunked"},
    {"--chunked-prefill-size", SGLANG, NULL, "--max-num-batched-tokens N, for a whole step"},
    {"--kv-cache-memory-bytes", VLLM, NULL, "--kv-cache-memory BYTES, where 1k is 1024"},
    {"--max-total-tokens", SGLANG, NULL, "--num-kv-blocks N or --kv-cache-memory BYTES"},
    {"--mem-fraction-static", SGLANG, NULL, "--gpu-memory-utilization X"},
    {"--schedule-policy", SGLANG, NULL, "--scheduling-policy fcfs|priority"},
    {"-q|--quantization|--load-format", VLLM, NULL, "nothing to set: the file says it"},
    {"--tokenizer|--tokenizer-path", VLLM, NULL, "nothing to set: the file holds it"},
    {"--trust-remote-code", VLLM, NULL, "nothing to set: no code of a model runs"},
    {"-dp|--data-parallel-size|--dp|--dp-size", VLLM, NULL, "several servers behind a proxy"},
    {"--uvicorn-log-level", VLLM, NULL, "--log-level error|warn|info|debug"},
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

const struct foreign_flag *foreign_flag_find(const char *word, size_t len) {
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (is_among(flags[i].names, word, len))
            return &flags[i];
    return NULL;
}
