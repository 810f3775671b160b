// Latent attention of one row (kernels/README.md, rule 21): what comes before and after attention over the cache.
#pragma once

#include "ref_ops.h"

struct ref_latent {
    const struct ref_matrix *in, *q_down; // q_down and its norm NULL: queries come of x
    const struct ref_matrix *q;
    const struct ref_matrix *key, *value; // rows of all heads, one head after the other
    const float *norm, *q_norm;
    float eps;
};

// q (H, C+r) absorbed and rotated, vector (C+r) for the cache, of x (D) at a position. scratch (U + H*(n+r))
void ref_latent_in(float *q, float *vector, const struct ref_latent *w, const struct attn_spec *a,
                   const struct rope_config *rope, const float *x, int position, float *scratch);

// y (H, v) of what attention over the cache gives, out (H, C+r)
void ref_latent_out(float *y, const struct ref_latent *w, const struct attn_spec *a, const float *out);
