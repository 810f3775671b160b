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
    float temperature;        // 0: greedy, ties to the lower id
    float top_p;              // (0, 1]; 1: off
    float min_p;              // [0, 1]; 0: off
    int top_k;                // 0: off
    uint64_t seed;            // output i is a function of (seed, i) and its logits, never of the batch
    float repetition_penalty; // > 0; 1: off. Tokens of prompt and output: logit / p if positive, else * p
    float frequency_penalty;  // 0: off. Subtracted once per occurrence in the output
    float presence_penalty;   // 0: off. Subtracted where the token occurs in the output
    int logprobs;             // -1: none; 0..MAX_TOP_LOGPROBS: the chosen token's, and this many of the best
    bool prompt_logprobs;     // also for every prompt token but the first; turns prefix reuse off
    int num_prompt_logprobs;  // with it: this many of the best, 0..MAX_TOP_LOGPROBS
};

#ifdef __cplusplus
}
#endif
