// The little of the CUDA runtime that the backend needs: one device, a stream, another for uploads, memory, graphs. rt_cuda.cu
// is it on a device, emu/rt_emu.cpp on the host, for tests.
//
// Errors are sticky: the first that fails is kept, every later call does nothing, and rt_wait() returns it.
// One thread per rt, but for rt_load() and rt_unload().
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
    char name[80];          // the device's
    int major, minor;       // compute capability
    int num_sms;            // streaming multiprocessors
    size_t total, free;     // bytes of device memory
    size_t shared_max;      // bytes of shared memory a block may ask for
    size_t cache;           // bytes of the last cache before memory
    bool emulated;          // host memory, no device
    unsigned char uuid[16]; // of the device, whatever number a process knows it by
    char no_matmul[300];    // why rt_matmul() can do nothing here, and what to install; "": it can
    bool group_scales;      // rt_matmul() takes x_scale and w_scale
};

// QUIRE_CUDA_OVERLAP=0 in the environment: no kernel begins before the one before it has ended.
// NULL with err (STATUS_DEVICE: no driver, no device, a driver that is too old, ...; one line that says
// which).
struct rt *rt_open(int ordinal, struct err *err);
void rt_close(struct rt *rt); // NULL is allowed; frees nothing that rt_alloc() gave
void rt_describe(struct rt *rt, struct rt_info *info);
int rt_num_devices(void); // 0: none, or rt_open() says why

// Zeroed, 256-byte aligned device memory, or NULL: out of memory (which is not sticky).
void *rt_alloc(struct rt *rt, size_t bytes);
void rt_free(struct rt *rt, void *p);
// The same with a copy of host memory, done when it returns; by any thread, beside the rt's own, and without waiting for a kernel.
// STATUS_DEVICE with err, or STATUS_NOMEM without.
enum status rt_load(struct rt *rt, void **p, const void *host, size_t bytes, struct err *err);
void rt_unload(struct rt *rt, void *p); // by any thread; nothing queued may read it
// Host memory that copies run from and to without staging. Zeroed.
void *rt_alloc_host(struct rt *rt, size_t bytes);
void rt_free_host(struct rt *rt, void *p);

// In the order of the stream. Host memory from rt_alloc_host() stays untouched until the event after the
// copy.
void rt_upload(struct rt *rt, void *device, const void *host, size_t bytes);
void rt_download(struct rt *rt, void *host, const void *device, size_t bytes);
// The same on the stream of uploads, which knows of no order with the other but by events.
void rt_upload_ahead(struct rt *rt, void *device, const void *host, size_t bytes);
enum rt_queue { RT_WORK, RT_UPLOADS };
enum rt_event { RT_UPLOADED, RT_UPLOAD_READ, RT_EVENTS };
void rt_record(struct rt *rt, enum rt_queue on, enum rt_event e); // comes when what was queued so far is done
// Work queued from here on waits for the event as it was recorded last.
void rt_order(struct rt *rt, enum rt_queue on, enum rt_event e);
// Done when it returns, from and to any host memory. For loading and tests.
void rt_upload_now(struct rt *rt, void *device, const void *host, size_t bytes);
void rt_download_now(struct rt *rt, void *host, const void *device, size_t bytes);

// Marks slot 0, 1 or 2 behind all work queued so far; rt_wait() returns when that is done. STATUS_DEVICE with
// err once anything has failed.
void rt_mark(struct rt *rt, int slot);
enum status rt_wait(struct rt *rt, int slot, struct err *err);

// Between begin and end, launches are captured instead of run. end: NULL when that failed.
void rt_capture_begin(struct rt *rt);
struct rt_graph *rt_capture_end(struct rt *rt);
void rt_graph_launch(struct rt *rt, struct rt_graph *graph);
void rt_graph_free(struct rt *rt, struct rt_graph *graph);

// Whether what was queued before rt_mark(slot) is done, or has failed, without waiting.
bool rt_done(struct rt *rt, int slot);

// ---- devices that work together, each with a thread or a process of its own

// Whether kernels of this device can read and write memory of another. STATUS_DEVICE with err: they cannot.
enum status rt_can_reach(struct rt *rt, int ordinal, struct err *err);
// Lets them, within this process. STATUS_DEVICE with err.
enum status rt_reach(struct rt *rt, int ordinal, struct err *err);

// As rt_alloc(), memory that other processes of this machine can open by its name; they close it before it is freed.
void *rt_alloc_shared(struct rt *rt, size_t bytes);
enum { RT_SHARED = 64 };
void rt_share(struct rt *rt, void *p, unsigned char name[RT_SHARED]);
// Maps memory that another process shares, of a device that can be reached. NULL: rt has failed.
void *rt_open_shared(struct rt *rt, const unsigned char name[RT_SHARED]);
void rt_close_shared(struct rt *rt, void *p);

// Sums by NCCL, which is looked for when it is first asked for (libnccl.so.2); nothing else needs it.
enum { RT_NCCL_ID = 128 };
struct rt_nccl;
// Why there is none; "": there is.
const char *rt_nccl_problem(void);
// A new group's name, by one of its ranks. False: there is no NCCL, and why stands in err.
bool rt_nccl_id(struct rt *rt, unsigned char id[RT_NCCL_ID], struct err *err);
// Every rank calls it at the same time, with the same id; waits for all as long as go_on(arg), asked every few ms, says so.
// NULL with err.
struct rt_nccl *rt_nccl_open(struct rt *rt, const unsigned char id[RT_NCCL_ID], int rank, int world,
                             bool (*go_on)(void *), void *arg, struct err *err);
// x (n) f32 or bf16, the same bits on all ranks; in which order it adds, and rounds, is NCCL's affair. Queued.
void rt_nccl_sum(struct rt_nccl *nccl, void *x, size_t n, bool bf16);
// Ends what waits for others. By the rank's own thread.
void rt_nccl_abort(struct rt_nccl *nccl);
void rt_nccl_close(struct rt_nccl *nccl); // NULL is allowed

// Makes the rt fail, as a device error would; for tests and for our own refusals. what is kept by copy.
void rt_fail(struct rt *rt, const char *what);
bool rt_failed(const struct rt *rt);

// y (m, n) = x (m, k) times w (n, k) transposed, + y where add, leading dimensions in elements. For many
// rows; false: it cannot (no cuBLASLt, these sizes or types), and nothing was done.
enum rt_operand { RT_BF16, RT_F16, RT_E4M3 };
struct rt_gemm {
    const void *x, *w;
    void *y;
    int m, n, k, ldx, ldw, ldy;
    enum rt_operand type; // of x and w
    bool add, bf16;       // bf16: y is, not f32; then nothing is added
    // RT_E4M3: factors of groups of 128 columns, or NULL: x's (k / 128, m), and w's (k / 128, n) or, with w_blocks,
    // of 128 rows each (n / 128 rounded up, k / 128 rounded up to 4).
    const float *x_scale, *w_scale;
    bool w_blocks;
};
bool rt_matmul(struct rt *rt, const struct rt_gemm *g);
bool rt_can_matmul(struct rt *rt, const struct rt_gemm *g); // reads nothing of x, w, y and scales
// How many times it has forgotten the algorithms that it found, all at once, as they became too many. While launches are
// captured it takes only what has run since: what is launched first may have to be loaded.
int rt_matmul_forgot(const struct rt *rt);

// Whether two products share an algorithm.
static inline bool rt_gemm_is_alike(const struct rt_gemm *a, const struct rt_gemm *b) {
    return a->m == b->m && a->n == b->n && a->k == b->k && a->ldx == b->ldx && a->ldw == b->ldw &&
           a->ldy == b->ldy && a->type == b->type && a->bf16 == b->bf16 && !a->x_scale == !b->x_scale &&
           a->w_blocks == b->w_blocks;
}

// Whether addresses and sizes are as cuBLASLt requires.
static inline bool rt_gemm_is_aligned(const struct rt_gemm *g) {
    int unit = g->type == RT_E4M3 ? 16 : 8;
    uintptr_t all =
        (uintptr_t)g->x | (uintptr_t)g->w | (uintptr_t)g->y | (uintptr_t)g->x_scale | (uintptr_t)g->w_scale;
    return all % 16 == 0 && g->ldx % unit == 0 && g->ldw % unit == 0 && g->ldy % (g->bf16 ? 8 : 4) == 0 &&
           (g->type != RT_E4M3 || (g->n % 16 == 0 && g->k % 16 == 0)) &&
           (!g->x_scale || (g->m % 4 == 0 && g->k % 128 == 0));
}

// A range of the calling thread's time line in a profiler (NVTX), within those that have begun and not ended; name is copied.
// Nothing without a profiler. A failure ends none.
void rt_range_begin(struct rt *rt, const char *name);
void rt_range_end(struct rt *rt);
// For tests: the ranges since it was asked last, as `step{upload{}}`; the first time "". Always "" on a device. Valid until
// asked again.
const char *rt_test_ranges(struct rt *rt);

// For tests: the schedule that the emulator runs blocks by (emu.h). Nothing on a device.
void rt_test_order(int order);
// For tests: emulated devices opened from here on have so many SMs and bytes of memory, of which they touch none:
// they check launches, complete queued work, and do nothing else. Nothing on a device.
void rt_test_dry(int num_sms, size_t memory);
// For tests: copies to and from devices that were queued in this process so far. Zeros on a device.
struct rt_copies {
    unsigned long up, down;
};
struct rt_copies rt_test_copies(void);

#ifdef __cplusplus
}
#endif
