// How a token is chosen: what requests, steps and events say alike.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { MAX_TOP_LOGPROBS = 20 }; // alternatives reported with a token

// How the next token is sampled. The API checks ranges; request_new() takes them as they are.
struct sampling_params {
    float temperature;     // 0: greedy, ties to the lower id
    float top_p;           // (0, 1]; 1: off
    float min_p;           // [0, 1]; 0: off
    int top_k;             // 0: off
    float typical_p;       // (0, 1); 0 and 1: off
    float top_n_sigma;     // > 0; else off
    float xtc_probability; // [0, 1] of doing at a token what xtc_threshold says; 0: off
    float xtc_threshold;   // of tokens of at least this probability all but the least likely go
    // the temperature follows the entropy, from temperature - this to temperature + this; 0: off
    float dynatemp_range;
    float dynatemp_exponent;  // > 0
    float mirostat_tau;       // bits of surprise that Mirostat 2 aims at; 0: off
    float mirostat_eta;       // how fast it learns
    uint64_t seed;            // output i is a function of (seed, i) and its logits, never of the batch
    float repetition_penalty; // > 0; 1: off. Tokens of prompt and output: logit / p if positive, else * p
    float frequency_penalty;  // 0: off. Subtracted once per occurrence in the output
    float presence_penalty;   // 0: off. Subtracted where the token occurs in the output
    int logprobs;             // -1: none; 0..MAX_TOP_LOGPROBS: the chosen token's, and this many of the best
    bool post_sampling;       // of the output, probabilities of what the samplers leave instead
    bool prompt_logprobs;     // also for every prompt token but the first; turns prefix reuse off
    int num_prompt_logprobs;  // with it: this many of the best, 0..MAX_TOP_LOGPROBS
};

#ifdef __cplusplus
}
#endif
