// Shared by tests of CUDA kernels: the runtime, arrays on the device, schedules. The same programs run on a
// device where they are linked with it (`./dev gpu-slot`).
#pragma once

#include "harness.h"

#include "fixture.h"
#include "ops.h"

static struct rt *rt; // opened by device_open()

static inline void device_open(void) {
    struct err err = {0};
    if (!rt && !(rt = rt_open(0, &err))) {
        printf("no device: %s\n", err.msg);
        exit(1);
    }
}

// A bound on GEMMs of the emulator, which adds in f32 to nearest; tensor cores cut, and may be ten times
// as far.
static inline double product_bound(double bound) {
    struct rt_info info;
    rt_describe(rt, &info);
    return info.emulated ? bound : 10 * bound;
}

static inline void *device_alloc(size_t bytes) {
    void *p = rt_alloc(rt, bytes);
    struct err err = {0};
    if (!p && rt_failed(rt)) // it gives no memory either
        rt_wait(rt, 0, &err);
    if (!p && err.code)
        fail_msg("%s", err.msg);
    if (!p)
        fail_msg("no device memory for %zu bytes", bytes);
    return p;
}

static inline void *to_device(const void *host, size_t bytes) {
    void *p = device_alloc(bytes);
    rt_upload_now(rt, p, host, bytes);
    return p;
}

// Device memory of 0xff bytes: NaN, -1.
static inline void *poisoned(size_t bytes) {
    void *host = malloc(bytes + 1), *p;
    memset(host, 0xff, bytes);
    p = to_device(host, bytes);
    free(host);
    return p;
}

static inline void *to_host(const void *device, size_t bytes) {
    struct err err = {0};
    void *host = malloc(bytes + 1);
    rt_mark(rt, 0);
    if (rt_wait(rt, 0, &err) != STATUS_OK)
        fail_msg("%s", err.msg);
    rt_download_now(rt, host, device, bytes);
    return host;
}

static inline float round_bf16(float x) { return bf16_to_float(float_to_bf16(x)); }

// A row of activations as floats.
static inline float *act_to_floats(const void *host, size_t n, enum act_dtype act_dtype) {
    float *f = malloc((n + 1) * sizeof *f);
    for (size_t i = 0; i < n; i++)
        f[i] = act_dtype == ACT_DTYPE_F32   ? ((const float *)host)[i]
               : act_dtype == ACT_DTYPE_F16 ? half_to_float(((const uint16_t *)host)[i])
                                            : bf16_to_float(((const uint16_t *)host)[i]);
    return f;
}

static inline float *download_act(const void *device, size_t n, enum act_dtype act_dtype) {
    void *raw = to_host(device, n * (act_dtype == ACT_DTYPE_F32 ? 4 : 2));
    float *f = act_to_floats(raw, n, act_dtype);
    free(raw);
    return f;
}

// f as activations in device memory.
static inline void *upload_act(const float *f, size_t n, enum act_dtype act_dtype) {
    if (act_dtype == ACT_DTYPE_F32)
        return to_device(f, n * 4);
    uint16_t *h = malloc(n * 2 + 1);
    for (size_t i = 0; i < n; i++)
        h[i] = act_dtype == ACT_DTYPE_F16 ? float_to_half(f[i]) : float_to_bf16(f[i]);
    void *p = to_device(h, n * 2);
    free(h);
    return p;
}

static inline float *random_floats(size_t n, float scale) {
    float *f = malloc((n + 1) * sizeof *f);
    for (size_t i = 0; i < n; i++)
        f[i] = random_float() * scale;
    return f;
}

// Activations in the dtype of a layout, and the same numbers as floats.
struct act_rows {
    float *values; // (m, k)
    void *x;       // (m, ld)
    float *scale;
    int ld;
};

static inline struct act_rows make_act_rows(enum weight_layout f, int m, int k, int cols) {
    struct act_rows in = {.values = random_floats((size_t)(m * k), 1), .ld = cols};
    enum act_dtype act_dtype = cuda_act_dtype_of(f);
    float *padded = must_calloc((size_t)(m * cols), sizeof *padded),
          *scale = must_calloc((size_t)m, sizeof *scale);
    for (int i = 0; i < m; i++) {
        scale[i] = ldexpf(1, i % 3 - 1);
        for (int j = 0; j < k; j++) {
            float *v = &in.values[i * k + j];
            if (act_dtype == ACT_DTYPE_BF16)
                *v = round_bf16(*v);
            if (act_dtype == ACT_DTYPE_F16)
                *v = half_to_float(float_to_half(*v / scale[i])) * scale[i];
            padded[i * cols + j] = act_dtype == ACT_DTYPE_F16 ? *v / scale[i] : *v;
        }
    }
    in.x = upload_act(padded, (size_t)(m * cols), act_dtype);
    in.scale = act_dtype == ACT_DTYPE_F16 ? to_device(scale, sizeof *scale * (size_t)m) : NULL;
    free(padded), free(scale);
    return in;
}

static inline void free_act_rows(struct act_rows *in) {
    free(in->values);
    rt_free(rt, in->x);
    rt_free(rt, in->scale);
}

// A file's matrix on the device, packed.
static inline struct cuda_matrix matrix_alloc(enum dtype dtype, int rows, int cols) {
    struct cuda_matrix w = {.layout = cuda_layout_of(dtype, cols), .rows = (rows + 15) / 16 * 16};
    int step = cuda_layout_k_step(w.layout);
    size_t bytes[3];
    w.cols = (cols + step - 1) / step * step;
    cuda_matrix_bytes(w.layout, w.rows, w.cols, bytes);
    w.data = device_alloc(bytes[0]);
    w.scales = device_alloc(bytes[1]);
    w.supers = device_alloc(bytes[2]);
    return w;
}

static inline void matrix_free(struct cuda_matrix *w) {
    rt_free(rt, w->data);
    rt_free(rt, w->scales);
    rt_free(rt, w->supers);
}

static inline void matrix_pack(const struct cuda_matrix *w, const struct tensor *t, int row0,
                               int interleave) {
    void *raw = to_device(t->data, (size_t)t->shape[0] * dtype_row_bytes(t->dtype, t->shape[1]));
    struct cuda_pack p = {.raw = raw,
                          .dtype = t->dtype,
                          .rows = (int)t->shape[0],
                          .cols = (int)t->shape[1],
                          .w = *w,
                          .row0 = row0,
                          .interleave = interleave};
    cuda_pack(rt, &p);
    rt_mark(rt, 0);
    rt_wait(rt, 0, NULL);
    rt_free(rt, raw);
}
