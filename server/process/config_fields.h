// The values that flags, environment and the --config file set.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct processes;

enum command {
    CMD_SERVE = 1,
    CMD_GENERATE = 2,
    CMD_INSPECT = 4,
    CMD_PERPLEXITY = 8,
    CMD_TOKENIZE = 16,
    CMD_REPLAY = 32,
    CMD_HEALTH = 64,
    CMD_QUANTIZE = 128,
    CMD_CHAT = 256,
    CMD_TOP = 512,
    CMD_LAUNCH = 1024,
};

struct str_list { // owned strings
    char **items;
    size_t len;
};

// All strings are owned; see config_free().
struct config {
    enum command command;
    struct str_list args; // positional arguments: MODEL, TEXT
    bool embedded_model;  // MODEL is the embedded one, whose path says nothing
    // serve: where and for whom
    char *host;
    int port;
    struct str_list served_names, api_keys, allowed_origins;
    char *api_key_file, *store_dir;
    bool require_key, share_prefixes, allow_credentials, no_page;
    struct str_list admin_keys, lora_modules;
    char *admin_key_file, *lora_root, *tls_cert, *tls_key;
    int max_loras, max_lora_rank;
    // model and device
    char *device, *variant, *kv_dtype, *dtype, *pooling;
    int threads, tensor_parallel_size, pipeline_parallel_size, max_model_len, block_size;
    int64_t num_kv_blocks, kv_cache_memory; // 0: not given
    int64_t max_response_memory, store;     // bytes
    char *kv_store, *kv_role;               // kv_store or NULL
    int64_t kv_store_size;                  // bytes
    bool kv_store_private;
    double gpu_memory_utilization;
    bool exact, no_batch_invariant;
    // scheduling
    int max_num_seqs, max_num_batched_tokens; // 0: as the device suits; engine_info has what they are
    int max_num_queued_seqs;
    char *policy, *speculative_method, *speculative_model;
    int max_blanks, reasoning_budget;
    bool prefix_caching, strict_fields;
    bool has_seed;
    uint64_t seed;
    char *generation_config, *override_generation_config;
    char *otlp_traces_endpoint;
    char *record, *trace, *chat_template, *tool_call_parser, *tools_fallback;
    // lifecycle
    double drain_timeout, watchdog_timeout; // s
    double target_itl;                      // ms; 0: none
    char *log_level, *log_format, *log_file, *config_file, *metrics_namespace;
    // commands
    char *prompt, *file, *system, *url;
    int max_tokens, answer_tokens, top_k, logprobs; // answer_*: of chat; tokens 0: any number
    double temperature, answer_temperature, top_p;  // of answers -1: the model's own
    bool once, print, json, raw, ids, no_special, ignore_eos, pure;
    bool help;
    bool key_in_argv;
    struct str_list problems;    // a line for each fault, where config_parse() failed
    struct str_list notes;       // flags of other servers that need nothing here, a line each
    struct processes *processes; // of the launcher, borrowed (quire_main.c); NULL: this one alone
};
