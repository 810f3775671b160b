// Adapters of the reference backend, in whatever type they come.
#pragma once

#include "ref_ops.h"

struct ref_adapter;

struct ref_adapters { // start it zeroed
    struct ref_adapter *slots;
    int num_slots, num_layers;
    int *of_row;         // (T) slot of each row of the step; -1: none
    float *low, *change; // (rank), (width): A x, B(A x)
};

// width: of the widest matrix. false: out of memory. ref_adapters_close() is right in any case.
bool ref_adapters_open(struct ref_adapters *a, int num_layers, const struct step_limits *limits,
                       size_t width);
void ref_adapters_close(struct ref_adapters *a);

// As backend_ops.adapter_load and .adapter_free.
enum status ref_adapters_load(struct ref_adapters *a, int slot, const struct adapter_desc *desc,
                              struct err *err);
void ref_adapters_unload(struct ref_adapters *a, int slot);

void ref_adapters_begin(struct ref_adapters *a, const struct step *step);
// y += scale * B(A x), where row t of the step has an adapter with this target.
void ref_adapters_add(struct ref_adapters *a, float *y, const float *x, int layer, enum adapter_target target,
                      int t);
