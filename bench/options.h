// The command line of quire-bench. Names follow `vllm bench serve` where it has them.
#pragma once

#include "arrival.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dataset_kind {
    DATASET_RANDOM,
    DATASET_PREFIX,   // prefix_repetition: groups that share a prefix
    DATASET_SHAREGPT, // JSON array of {"conversations": [{"from", "value"}…]}
    DATASET_MTBENCH,  // jsonl of {"turns": […]}
    DATASET_CUSTOM,   // jsonl of {"prompt": …}
    DATASET_TEXT,     // plain text: a prompt for each paragraph
    DATASET_AZURE,    // CSV TIMESTAMP,ContextTokens,GeneratedTokens
    DATASET_MOONCAKE, // jsonl of {timestamp, input_length, output_length, hash_ids}
    DATASET_VIDUR,    // CSV num_prefill_tokens,num_decode_tokens
    DATASET_AIBRIX,   // jsonl of {timestamp, requests: [{prompt, …}]}
    DATASET_KINDS
};
extern const char *const dataset_names[DATASET_KINDS];

enum prompt_form { PROMPT_AUTO, PROMPT_IDS, PROMPT_WORDS };

struct options {
    // the server
    const char *base_url, *host, *endpoint, *model, *api_key;
    const char *headers[16];
    size_t num_headers;
    int64_t port;
    bool chat; // from the endpoint
    char url_host[256], url_port[8], path[512];
    // the load
    double request_rate; // INFINITY: closed loop
    double burstiness;
    const char *arrivals; // poisson, constant, gamma, trace
    enum arrival_kind arrival;
    int64_t max_concurrency; // 0: no limit
    int64_t num_prompts, num_warmups, seed;
    bool num_prompts_given, rate_given, input_len_given;
    double duration, timeout, connect_timeout; // s; duration 0: no limit
    // the prompts
    enum dataset_kind dataset;
    const char *dataset_path, *dataset_name;
    int64_t input_len, output_len, prefix_len;
    double range_ratio;
    int64_t group_prefix_len, group_suffix_len, num_prefixes, group_output_len;
    int64_t num_turns, vocab_size;
    double think_time;
    bool multi_turn, no_shuffle;
    const char *prompt_form_name;
    enum prompt_form prompt_form;
    double time_scale, input_scale, output_scale, trace_start, trace_seconds;
    int64_t max_input_len, max_output_len, file_output_len;
    // sampling
    bool no_stream, ignore_eos;
    double temperature, top_p; // below 0: not sent
    const char *extra_body;
    // goals: ms; below 0: none
    double goal_ttft, goal_tpot, goal_e2el, goal_itl;
    bool has_goals;
    bool search;
    double search_min, search_max, search_tolerance, attainment;
    // output
    const char *json, *csv, *html, *label;
    bool quiet;
};

// Fills `o` from the arguments. On a mistake: prints one line to stderr and ends the program with 2. --help and --man
// print and end with 0.
void options_read(struct options *o, int argc, char **argv);
// Shortens made-up prompts whose length is the default, so that they and their outputs fit a context of
// max_model_len tokens (0: unknown). True: it did.
bool options_fit(struct options *o, int64_t max_model_len);
// One line "quire-bench: …" to stderr, then exit(2).
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2), noreturn))
#endif
void options_die(const char *fmt, ...);
