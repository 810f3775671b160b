// Adapters of the CPU backend (rule 22 of kernels/README.md): who computes B(A x) of which rows, and where it is added.
#pragma once

#include "device.h"

// Beside limits: the memory for adapters and for rows that have one. STATUS_NOMEM.
enum status cpu_lora_open(struct device *dev);
void cpu_lora_close(struct device *dev);
void cpu_lora_arena(struct device *dev, struct cpu_arena *a);

// backend_ops
enum status cpu_adapter_load(struct device *dev, int slot, const struct adapter_desc *desc, struct err *err);
void cpu_adapter_free(struct device *dev, int slot);

// Notes which rows of a step have which adapter.
void cpu_lora_begin(struct device *dev, const struct step *step);

// Rows of x, as floats, that go into the matrix w.
struct lora_input {
    const float *x;
    size_t ldx;             // floats
    const struct weight *w; // row-parallel: its segments hold; else NULL
};
// y[i] (T, ldy[i]) += scale * B(A x) of the targets first + i, for rows that have an adapter with them.
void cpu_lora_add(struct device *dev, const struct layer *layer, enum adapter_target first, int num,
                  const struct lora_input *in, float *const y[3], const int ldy[3]);
// Whether cpu_lora_add() would add anything.
bool cpu_lora_has(const struct device *dev, const struct layer *layer, enum adapter_target first, int num);
// cpu_matmul_act() with what adapters add to gate and up, and sparse gates; x: the same rows as in.
void cpu_lora_act(struct device *dev, const struct layer *layer, const struct gemm_input *x,
                  const struct lora_input *in);
