// Frequencies of rotary position embedding, in double: what every backend fills its tables from.
#pragma once

#include "model.h"

// Angle per position of pair i, 0 <= i < dim/2, with scaling and frequency factors applied.
double rope_frequency(const struct rope_config *rope, int i);

// The factor of cos and sin: 1 except for YaRN, or where the model file has another.
double rope_magnitude(const struct rope_config *rope);

// The factor of queries at a position (attn_spec.temp_scale).
float attn_temperature(const struct attn_spec *a, int position);
