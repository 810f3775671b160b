// Adaptive prefill chunk: how many prompt tokens a step may take beside decodes to meet the target inter-token latency.
// Pure: the service measures the times. Engine thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// The least that prompts get: fewer tokens would read the weights more often than that is worth.
enum { PACE_MIN_CHUNK = 16 };

struct pace {
    int64_t target_ns; // between two tokens of a stream; 0: max_chunk always
    int max_chunk;     // the most, whatever the time
    // Recent averages, 0: not measured. ns of a step that only decodes, its number of decodes, and ns of one token
    // more.
    double decode_ns, num_decode, token_ns;
};

// A step of num_decode decodes and num_prompt prompt tokens took `ns`.
void pace_add(struct pace *p, int num_decode, int num_prompt, int64_t ns);

// The prompt tokens that a step beside at most num_decode decodes may have now: what fits into the target
// after the decodes, but no less than take twice as long as the decodes do, so that slow decodes do not
// starve prompts. Within PACE_MIN_CHUNK (or max_chunk, where that is less) and max_chunk.
int pace_chunk(const struct pace *p, int num_decode);

// Predicts the ns of a step of this shape from measured steps; 0: none was measured. Until prompt tokens have been
// measured, each counts as much as a decode.
int64_t pace_expect(const struct pace *p, int num_decode, int num_prompt);
