// Gives tests and benchmarks the state of a device that the seam hides. No product code includes this.
#pragma once

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

struct activations { // borrowed from the device, in its own types and layouts
    void *resid;     // (T, D) residual stream, f32
    void *q;         // (T, H, d)
    void *h;         // input of the row-parallel matrix: attention output or SwiGLU output
};

struct backend_inspect {
    void (*view)(struct device *dev, struct activations *view);
    // The bytes of a page in one canonical order, whatever the device's layout: for each of kv_layers, K then V, each
    // (B, K, d) in kv_dtype, K being the rank's, and with I8 then its scales, (B, K) f32, not aligned.
    // 2 * kv_layers * B * K * backend_kv_vector_bytes(). Of latent attention K alone, half of that. Where layers keep
    // vectors of several sizes the order is the device's own.
    void (*kv_export)(struct device *dev, int32_t block, void *dst);
    void (*kv_import)(struct device *dev, int32_t block, const void *src);
};

extern const struct backend_inspect inspect_ref, inspect_cpu, inspect_cuda;

#ifdef __cplusplus
}
#endif
