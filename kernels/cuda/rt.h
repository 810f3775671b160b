// The little of the CUDA runtime that the backend needs: one device, one stream, memory, graphs. rt_cuda.cu
// is it on a device, emu/rt_emu.cpp on the host, for tests.
//
// Errors are sticky: the first that fails is kept, every later call does nothing, and rt_wait() returns it.
// One thread per rt.
#pragma once

#include "status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rt;
struct rt_graph;

struct rt_info {
    char name[80];      // the device's
    int major, minor;   // compute capability
    int num_processors; // streaming multiprocessors
    size_t total, free; // bytes of device memory
    size_t shared_max;  // bytes of shared memory a block may ask for
    bool emulated;      // host memory, no device
};

// NULL with err (STATUS_DEVICE: no driver, no device, a driver that is too old, ...; one line that says
// which).
struct rt *rt_open(int ordinal, struct err *err);
void rt_close(struct rt *rt); // NULL is allowed; frees nothing that rt_alloc() gave
void rt_describe(struct rt *rt, struct rt_info *info);

// Zeroed, 256-byte aligned device memory, or NULL: out of memory (which is not sticky).
void *rt_alloc(struct rt *rt, size_t bytes);
void rt_free(struct rt *rt, void *p);
// Host memory that copies run from and to without staging. Zeroed.
void *rt_alloc_host(struct rt *rt, size_t bytes);
void rt_free_host(struct rt *rt, void *p);

// In the order of the stream. Host memory from rt_alloc_host() stays untouched until the event after the
// copy.
void rt_upload(struct rt *rt, void *device, const void *host, size_t bytes);
void rt_download(struct rt *rt, void *host, const void *device, size_t bytes);
// Done when it returns, from and to any host memory. For loading and tests.
void rt_upload_now(struct rt *rt, void *device, const void *host, size_t bytes);
void rt_download_now(struct rt *rt, void *host, const void *device, size_t bytes);

// Marks slot 0 or 1 behind all work queued so far; rt_wait() returns when that is done. STATUS_DEVICE with
// err once anything has failed.
void rt_mark(struct rt *rt, int slot);
enum status rt_wait(struct rt *rt, int slot, struct err *err);

// Between begin and end, launches are recorded instead of run. end: NULL when that failed.
void rt_capture_begin(struct rt *rt);
struct rt_graph *rt_capture_end(struct rt *rt);
void rt_graph_launch(struct rt *rt, struct rt_graph *graph);
void rt_graph_free(struct rt *rt, struct rt_graph *graph);

// Makes the rt fail, as a device error would; for tests and for our own refusals. what is kept by copy.
void rt_fail(struct rt *rt, const char *what);
bool rt_failed(const struct rt *rt);

// y (m, n) = x (m, k) times w (n, k) transposed, + y where add; x and w bf16 or f16, y f32, leading
// dimensions in elements. For many rows; false: it cannot (not built in, or these sizes), and nothing was
// done.
struct rt_gemm {
    const void *x, *w;
    float *y;
    int m, n, k, ldx, ldw, ldy;
    bool half; // f16, else bf16
    bool add;
};
bool rt_matmul(struct rt *rt, const struct rt_gemm *g);

// For tests: the schedule that the emulator runs blocks by (emu.h). Nothing on a device.
void rt_test_order(int order);

#ifdef __cplusplus
}
#endif
