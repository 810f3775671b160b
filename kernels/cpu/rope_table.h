// Cosines and sines of one rotary embedding, by position: computed as far as sequences have come, in address
// space that is reserved for the longest one.
#pragma once

#include "memory.h"
#include "model.h"
#include "pool.h"

struct rope_table {
    struct region region;
    float *cos, *sin;  // (max_positions, pairs)
    double *frequency; // (pairs)
    double magnitude;  // of cos and sin
    int pairs;         // rotated pairs of a head
    bool interleaved;  // as in rope_config, as sections
    struct rope_sections sections;
    int filled, max_positions; // positions [0, filled) are there
};

// false: no memory. A table that is zero may be closed, too.
bool rope_table_open(struct rope_table *t, const struct rope_config *rope, int max_positions);
void rope_table_close(struct rope_table *t);

// Makes positions [0, num_positions) readable, on the threads of the pool; at most max_positions. Where they
// are already, that is a comparison. From the device's thread, while no phase runs.
void rope_table_fill(struct rope_table *t, struct pool *pool, int num_positions);
