// Computes a recurrent layer for one token of one sequence, between its input and its output matrix: the meaning of
// rule 19 of kernels/README.md, in double.
#pragma once

#include "ref_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

// Weights of a layer. NULL where the spec has none.
struct ref_mix {
    const struct mix_spec *spec;
    const float *conv[3], *conv_bias[3]; // rows of q, k, v (rows, taps), (rows); MIX_CONV: the first alone
    const float *a, *bias, *d;           // (heads)
    const float *norm;                   // (P), or (heads*P)
    float eps;
};

// raw: q, k, v (channels) as the input matrix gives them, or gate, output gate, x of MIX_CONV (3*heads); x: as many,
// scratch. gate: (heads*P), then one or two values
// of each head. state: (mix_state_size()), of the tokens before, and then with this one. y: (heads*P)
void ref_mix(float *y, const float *raw, float *x, const float *gate, float *state, const struct ref_mix *m);

#ifdef __cplusplus
}
#endif
