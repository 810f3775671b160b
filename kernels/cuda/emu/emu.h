// Runs CUDA kernels as host C++: one fiber per CUDA thread, blocks one after another, on the calling thread.
//
// Strict on purpose, stricter than a device:
//   - a collective (shuffle, ballot, ldmatrix, mma) that names a lane which has exited, or that lanes reach at
//     different calls, aborts with block and thread; so does __syncthreads() reached at different source
//     lines, and a block in which no thread can run;
//   - an asynchronous copy poisons its destination when it is issued and lands only at the wait for its group;
//   - a wgmma poisons its sums when it is issued; they land at the wait for its group.
//     It refuses a descriptor that means nothing, memory that its writers did not fence or that is written
//     while it may be read, registers that are written after the fence or in flight, and warps of a group
//     that do not do the same;
//   - shared memory starts as 0xff bytes (NaN, -1) and ends at a page that faults;
//   - a kernel launched to overlap its predecessor must wait for it (kd_grid_wait) in every thread.
//
// Schedules: between two barriers one warp runs as far as it can go before the next. Order 0 takes warps,
// lanes and blocks forward, 1 backward, n >= 2 shuffled by seed n. So every pair of warps runs both ways
// round with the greatest skew, and a missing barrier gives a wrong or differing result in one of them.
//
// It says nothing about speed, bank conflicts, coalescing, registers, or fences between blocks.
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};

namespace emu {

enum { WARP = 32, MAX_THREADS = 1024, MAX_SHARED = 228 << 10, MAX_COPIES = 96, MAX_GROUPS = 16 };
enum state { READY, AT_WARP, AT_BLOCK, DONE };

struct copy {
    void *dst;
    const void *src;
    int bytes;
    uint32_t number; // of all copies of the block, from 1
};

struct alignas(64) fiber { // of one line of the cache: switches are most of what the emulator does
    void *sp;
    const void *site; // of the __syncthreads() it stands at
    uint3 tid;
    int lane, warp;
    state st;
    int num_copies, num_groups;
    bool waited; // for the kernel before
};

struct copies { // in flight, of one thread
    copy all[MAX_COPIES];
    int group_end[MAX_GROUPS];
};

typedef void collective_fn(void **args, unsigned mask);

struct warp {
    void *arg[WARP];
    unsigned arrived, live;
    collective_fn *fn;
};

struct context {
    fiber fibers[MAX_THREADS];
    copies in_flight[MAX_THREADS];
    warp warps[MAX_THREADS / WARP];
    fiber *current;
    int num_threads, num_alive, num_at_block;
    uint3 block_id, block_dim, grid_dim;
    bool overlaps; // the launch asks to overlap its predecessor
    void *main_sp;
    char *stacks, *shared_pages, *shared;
    void (*body)(void *);
    void *body_arg;
};

// Read at every step of a kernel: not through a call, in the module either.
extern __thread context *ctx __attribute__((tls_model("initial-exec")));
extern int order; // the schedule

[[noreturn]] void die(const char *what);
void sync_block(const void *site);
// Every lane of mask brings its own arguments; the last to arrive runs fn for all of them.
void collective(unsigned mask, void *arg, collective_fn *fn);
void run(dim3 grid, dim3 block, size_t shared_bytes, bool overlaps, void (*body)(void *), void *arg);

void copy_async(void *dst, const void *src, int bytes, bool ok);
void copy_commit();
void copy_wait(int keep);

typedef float to_float_fn(uint16_t);

// Shared memory as wgmmas see it (wgmma.cpp). An address there: bytes from its beginning,
// which is a multiple of 1,024; a block's memory begins at any multiple of 128.
uint32_t shared_address(const void *p);
void shared_fence();
struct wgmma_args {
    float *d;          // (N / 2) of this lane
    const uint32_t *a; // (4) of this lane; NULL: A lies in shared memory
    int n;
    uint64_t a_desc, b_desc;
    bool a_across, b_across, add;
    to_float_fn *to_float;
};
void wgmma(wgmma_args args);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(int keep);
// Callbacks that follow a block's shared memory from its beginning to its end (wgmma.cpp); null: none.
struct watcher {
    void (*begin)(size_t shared_bytes);
    uint32_t (*copy_issued)(void *dst, int bytes); // by this thread; the copy's number
    void (*copy_landed)(const copy *c);            // of this thread
    void (*end)();
};
extern const watcher *watching;

// Flags between devices, each run by a thread of its own. A fiber that waits keeps its thread: the other side
// must be able to go on without it.
void flag_set(uint32_t *flag, uint32_t value);
bool flag_wait(const uint32_t *flag, uint32_t value, uint32_t *stop);

template <class T> struct lane_exchange {
    T value, result;
    int source;
};

template <class T> inline T shuffle(unsigned mask, T value, int source) {
    lane_exchange<T> mine = {value, value, source & (WARP - 1)};
    collective(mask, &mine, [](void **args, unsigned m) {
        lane_exchange<T> **x = (lane_exchange<T> **)args;
        for (int i = 0; i < WARP; i++)
            if (m >> i & 1) {
                if (!(m >> x[i]->source & 1))
                    die("a shuffle reads a lane outside its mask");
                x[i]->result = x[x[i]->source]->value;
            }
    });
    return mine.result;
}

unsigned ballot(unsigned mask, bool predicate);

// D (16, 8) += A (16, 16) B (16, 8): fragments as mma.m16n8k16 has them; k is added in ascending order, in
// f32, which hardware does not promise. to_float reads one 16-bit element.
void mma_m16n8k16(float c[4], const uint32_t a[4], const uint32_t b[2], to_float_fn *to_float);
// Four 8 x 8 matrices of 16-bit elements; row: the address that this lane brings (lane / 8: matrix, lane % 8:
// row).
void ldmatrix4(uint32_t r[4], const void *row, bool transposed);

} // namespace emu

#define threadIdx (emu::ctx->current->tid)
#define blockIdx (emu::ctx->block_id)
#define blockDim (emu::ctx->block_dim)
#define gridDim (emu::ctx->grid_dim)
#define __syncthreads()                                                                                      \
    do {                                                                                                     \
        static const char emu_site = 0;                                                                      \
        emu::sync_block(&emu_site);                                                                          \
    } while (0)

inline void __syncwarp(unsigned mask = 0xffffffffu) { emu::ballot(mask, false); }
inline unsigned __ballot_sync(unsigned mask, bool p) { return emu::ballot(mask, p); }
template <class T> inline T __shfl_sync(unsigned mask, T v, int source) {
    return emu::shuffle(mask, v, source);
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T v, int bits) {
    return emu::shuffle(mask, v, emu::ctx->current->lane ^ bits);
}
template <class T> inline T __shfl_up_sync(unsigned mask, T v, unsigned by) {
    int source = emu::ctx->current->lane - (int)by;
    return emu::shuffle(mask, v, source < 0 ? emu::ctx->current->lane : source);
}
// Fibers of a block do not run at the same time, so a plain addition is atomic.
template <class T> inline T atomicAdd(T *p, T v) {
    T old = *p;
    *p = old + v;
    return old;
}
