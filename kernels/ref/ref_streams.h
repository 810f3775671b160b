// Streams beside the residual one, of one row (kernels/README.md, rule 23). x (D) is the first of them, `others` (N, D) have
// what a layer predicted of it and then the rest.
#pragma once

#include "ref_ops.h"

struct ref_altup {
    int num, hidden;
    const struct ref_matrix *matrices[ALTUP_STREAMS - 1]; // (D, D), of embedding or merging
    const float *norm;                                    // (D)
    const struct ref_matrix *router, *coefs;              // (N, D), (N*N, N) or (N, N)
    float eps;
    float *scratch; // (D)
};

// Makes the others of x.
void ref_altup_embed(float *others, const float *x, const struct ref_altup *s);
// Predicts a layer's input for all streams, x included.
void ref_altup_predict(float *others, float *x, const struct ref_altup *s);
// Corrects all by how far x is from what was predicted.
void ref_altup_correct(float *others, float *x, const struct ref_altup *s);
// y (D) = the mean of all, each of the magnitude of x
void ref_altup_merge(float *y, const float *others, const float *x, const struct ref_altup *s);
