// Weights as the reference backend keeps them, and those of a layer as the primitives of one kind take them: borrowed.
#pragma once

#include "ref_latent.h"
#include "ref_mix.h"

struct weight {
    struct weight *next; // all weights of the device
    enum weight_role role;
    int num_parts;
    struct ref_matrix part[3];
    void *memory[3], *bias[3];
    int64_t total; // as in weight_desc
};

struct ref_latent ref_latent_weights(const struct layer *layer, float eps);
struct ref_mix ref_mix_weights(const struct layer *layer, float eps);

// y = the parts of w times x, one after the other; w NULL: nothing.
void ref_project(float *y, const float *x, const struct weight *w);
