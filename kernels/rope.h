// Frequencies of rotary position embedding, in double: what every backend fills its tables from.
#pragma once

#include "model.h"

// Angle per position of pair i, 0 <= i < dim/2, with scaling and frequency factors applied.
double rope_frequency(const struct rope_config *rope, int i);

// What cos and sin are multiplied by: 1 except for YaRN, or where the model file says so.
double rope_magnitude(const struct rope_config *rope);

// What queries at a position are multiplied by (attn_spec.temp_scale).
float attn_temperature(const struct attn_spec *a, int position);
