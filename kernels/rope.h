// Frequencies of rotary position embedding, in double: what every backend fills its tables from.
#pragma once

#include "model.h"

#ifdef __CUDACC__
#define ROPE_FN static __host__ __device__ inline
#else
#define ROPE_FN static inline
#endif

// Angle per position of pair i, 0 <= i < dim/2, with scaling and frequency factors applied.
double rope_frequency(const struct rope_config *rope, int i);

// The factor of cos and sin: 1 except for YaRN, or where the model file has another.
double rope_magnitude(const struct rope_config *rope);

// The axis that pair i rotates by.
ROPE_FN int rope_axis(const struct rope_sections *s, int i) {
    int axis = s->in_turns ? i % 3 : i >= s->size[0] + s->size[1] ? 2 : i >= s->size[0];
    return s->in_turns && i >= 3 * s->size[axis] ? 0 : axis;
}

// The factor of queries at a position (attn_spec.temp_scale).
float attn_temperature(const struct attn_spec *a, int position);
